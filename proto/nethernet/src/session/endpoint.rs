//! All sessions of an endpoint over its sockets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::{Dice, Outbox, Path, SocketId};

use super::config::{Admit, Config, ConfigError, SERVERS_MAX, Socket, Use};
use super::early::Early;
use super::event::{By, ConnectError, Event, SendError, SessionId};
use super::gather::{Arrival, Gatherer};
use super::one::{Birth, Session, Stage};
use super::told::Told;
use crate::engine::candidate::{self, Parsed};
use crate::engine::{Candidate, Certificate, Engine as _, Fingerprint, Settings, WebRtc, sdp, stun};
use crate::frame::Channel;
use crate::{Body, CandidateKind, ConnectionFlags, ConnectionId, NetworkId, SessionError, Signal};

/// Sessions that may share one pair of addresses in the table of routes.
const ROUTE_MAX: usize = 8;
/// Ended attempts remembered, so that a late repetition of their offer does not begin them anew.
const GRAVES_MAX: usize = 256;
/// For how long.
const GRAVE: Duration = Duration::from_secs(30);
/// Most of one peer's offers being negotiated at once.
const OFFERS_MAX: usize = 8;

/// Negotiates and runs all sessions of one peer id. A machine of the house: see the crate's documentation for its verbs.
///
/// Bounds: [`Config::sessions_max`] sessions, 64 candidates each, 64 attempts whose candidates came before their offer,
/// 8,192 waiting signals; packets as [`Config`] says.
pub struct Endpoint {
    config: Config,
    settings: Settings,
    dice: Dice,
    now: Instant,
    sessions: BTreeMap<SessionId, Session<WebRtc>>,
    next: u64,
    by_attempt: BTreeMap<(NetworkId, ConnectionId), SessionId>,
    by_ufrag: BTreeMap<String, SessionId>,
    /// Who speaks with whom: (own base, remote address) to sessions, the last of which gets what names nobody.
    routes: BTreeMap<(SocketAddr, SocketAddr), Vec<SessionId>>,
    graves: VecDeque<(Instant, NetworkId, ConnectionId)>,
    early: Early,
    gatherer: Gatherer,
    told: Told,
    /// Sessions that may have something to send, in turn.
    round: VecDeque<SessionId>,
    alarms: BTreeSet<(Instant, SessionId)>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint over the driver's sockets. The certificate is made once and serves all sessions.
    ///
    /// # Errors
    /// [`ConfigError`] names what cannot be so.
    pub fn new(config: Config, certificate: Certificate, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        if config.servers.len() > SERVERS_MAX {
            return Err(ConfigError::Servers(config.servers.len()));
        }
        let settings = Settings::new(certificate, config.receive_window).map_err(|_| ConfigError::Engine)?;
        let mut dice = Dice::new(seed);
        let gatherer = Gatherer::new(config.servers.clone(), dice.child());
        let sockets = config.sockets.clone();
        let mut endpoint = Self {
            config: Config { sockets: Vec::new(), ..config },
            settings,
            dice,
            now,
            sessions: BTreeMap::new(),
            next: 0,
            by_attempt: BTreeMap::new(),
            by_ufrag: BTreeMap::new(),
            routes: BTreeMap::new(),
            graves: VecDeque::new(),
            early: Early::default(),
            gatherer,
            told: Told::default(),
            round: VecDeque::new(),
            alarms: BTreeSet::new(),
        };
        for socket in sockets {
            endpoint.add_socket(now, socket)?;
        }
        Ok(endpoint)
    }

    /// The hash of the certificate, which identity assertions are about.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.settings.certificate().fingerprint()
    }

    /// Sets the value of `a=identity` in descriptions from now on.
    pub fn set_identity(&mut self, identity: Option<String>) {
        self.config.identity = identity;
    }

    /// Sets what happens to other peers' dials from now on.
    pub fn set_admit(&mut self, admit: Admit) {
        self.config.admit = admit;
    }

    /// One more socket, for sessions from now on.
    ///
    /// # Errors
    /// [`ConfigError`] names what cannot be so.
    pub fn add_socket(&mut self, now: Instant, socket: Socket) -> Result<(), ConfigError> {
        self.now = self.now.max(now);
        let ip = socket.base.ip();
        if ip.is_unspecified() || ip.is_multicast() || socket.base.port() == 0 {
            return Err(ConfigError::Base);
        }
        if self.config.sockets.iter().any(|other| other.id == socket.id || other.base == socket.base) {
            return Err(ConfigError::Socket(socket.id.0));
        }
        self.gatherer.add_socket(now, socket.base);
        self.config.sockets.push(socket);
        Ok(())
    }

    /// A socket is gone. Its sessions look for other paths.
    pub fn remove_socket(&mut self, id: SocketId) {
        if let Some(socket) = self.config.sockets.iter().find(|socket| socket.id == id) {
            self.gatherer.remove_socket(socket.base);
        }
        self.config.sockets.retain(|socket| socket.id != id);
    }

    /// Dials a peer. The offer is the next signal.
    ///
    /// # Errors
    /// [`ConnectError`] says why not.
    pub fn connect(&mut self, now: Instant, peer: NetworkId) -> Result<SessionId, ConnectError> {
        self.now = self.now.max(now);
        if peer == NetworkId::Unset {
            return Err(ConnectError::Unset);
        }
        if self.sessions.len() >= self.config.sessions_max {
            return Err(ConnectError::Full(self.config.sessions_max));
        }
        let sockets = self.sockets_for_dial(&peer)?;
        let connection = ConnectionId(self.dice.u64());
        let id = self.birth(now, peer, connection, true, sockets);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.dial();
        }
        self.give_candidates(id);
        self.describe(now, id);
        self.touch(now, id);
        Ok(id)
    }

    /// For each family the socket with the fewest sessions with this peer, if one has none.
    fn sockets_for_dial(&self, peer: &NetworkId) -> Result<Vec<Socket>, ConnectError> {
        let mut best: BTreeMap<bool, (usize, Socket)> = BTreeMap::new();
        let with_peer: Vec<_> = self.sessions.values().filter(|s| s.peer == *peer && s.stage != Stage::Over).collect();
        for socket in self.config.sockets.iter().filter(|socket| socket.purpose != Use::Listen) {
            let busy = with_peer.iter().filter(|session| session.bases.contains(&socket.base)).count();
            let entry = best.entry(socket.base.is_ipv6());
            let entry = entry.or_insert_with(|| (usize::MAX, socket.clone()));
            if busy < entry.0 {
                *entry = (busy, socket.clone());
            }
        }
        if best.is_empty() {
            return Err(ConnectError::NoSocket);
        }
        let free: Vec<_> = best.into_values().filter(|(busy, _)| *busy == 0).map(|(_, socket)| socket).collect();
        if free.is_empty() { Err(ConnectError::SocketBusy) } else { Ok(free) }
    }

    fn birth(
        &mut self,
        now: Instant,
        peer: NetworkId,
        connection: ConnectionId,
        outgoing: bool,
        sockets: Vec<Socket>,
    ) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        let ufrag = loop {
            let ufrag = self.ice_text(8);
            if !self.by_ufrag.contains_key(&ufrag) {
                break ufrag;
            }
        };
        let pwd = self.ice_text(24);
        self.by_ufrag.insert(ufrag.clone(), id);
        self.by_attempt.insert((peer.clone(), connection), id);
        let mut engine = WebRtc::new(self.settings.clone(), ufrag, pwd, self.dice.u64(), outgoing, now);
        let direct = !self.config.flags.contains(ConnectionFlags::RELAY_ONLY);
        let mut bases = Vec::new();
        for socket in sockets.iter().filter(|_| direct) {
            if engine.add_local(now, socket.base, false).is_ok() {
                bases.push(socket.base);
            }
        }
        let fingerprint = self.fingerprint();
        let origin = self.dice.u64();
        let birth = Birth { id, peer, connection, outgoing, engine, bases, fingerprint, origin };
        self.sessions.insert(id, Session::new(birth, &self.config, now));
        id
    }

    /// Text of `ice-char`s (RFC 8839, section 5.4).
    fn ice_text(&mut self, length: usize) -> String {
        const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        (0..length)
            .map(|_| {
                let at = usize::try_from(self.dice.below(62)).unwrap_or(0);
                ALPHABET.get(at).map_or('A', |c| char::from(*c))
            })
            .collect()
    }

    /// Gives a new session every own candidate known so far.
    fn give_candidates(&mut self, id: SessionId) {
        let flags = self.config.flags;
        let Some(session) = self.sessions.get(&id) else { return };
        let mut candidates = Vec::new();
        if flags.permits(CandidateKind::Host, false) {
            for socket in self.config.sockets.iter().filter(|socket| session.bases.contains(&socket.base)) {
                for addr in &socket.announce {
                    candidates.push(host_candidate(*addr, candidates.len()));
                }
            }
        }
        for gathered in self.gatherer.candidates() {
            let direct = session.bases.contains(&gathered.base) || gathered.kind == CandidateKind::Relay;
            if direct && flags.permits(gathered.kind, false) {
                candidates.push(gathered.candidate());
            }
        }
        for candidate in candidates {
            self.give(id, candidate);
        }
    }

    fn give(&mut self, id: SessionId, candidate: Candidate) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if candidate.kind == CandidateKind::Relay && session.engine.add_local(now, candidate.addr, true).is_err() {
            return;
        }
        session.add_local(candidate, &self.config, &mut self.told);
    }

    fn describe(&mut self, now: Instant, id: SessionId) {
        let gathered = self.gatherer.is_done();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.describe(now, &self.config, gathered, &mut self.told);
        }
    }

    /// Lets a requested session go on (see [`Admit::Ask`]).
    pub fn accept(&mut self, now: Instant, id: SessionId) {
        self.now = self.now.max(now);
        let gathered = self.gatherer.is_done();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.accept(now, &self.config, gathered, &mut self.told);
            self.touch(now, id);
        }
    }

    /// Refuses a requested session, or closes any other, with an error of the application's choice.
    pub fn refuse(&mut self, now: Instant, id: SessionId, error: SessionError) {
        self.now = self.now.max(now);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.close(now, &self.config, error, &mut self.told);
            self.touch(now, id);
        }
    }

    /// Closes a session in order: what was sent is delivered first, within [`Config::close_timeout`]. What was not read
    /// is dropped.
    pub fn close(&mut self, now: Instant, id: SessionId) {
        self.refuse(now, id, SessionError::GenericFailure);
    }

    /// Closes every session in order.
    pub fn close_all(&mut self, now: Instant) {
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.close(now, id);
        }
    }

    /// A signalling text from a peer. What is no signalling message is ignored.
    pub fn handle_signal(&mut self, now: Instant, from: &NetworkId, text: &str) {
        self.now = self.now.max(now);
        let Ok(signal) = Signal::parse(text) else { return };
        let key = (from.clone(), signal.connection);
        let known = self.by_attempt.get(&key).copied();
        match (signal.body, known) {
            (Body::ConnectRequest(offer), Some(id)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.offered_again(offer, &mut self.told);
                }
            }
            (Body::ConnectRequest(offer), None) => self.offered(now, from, signal.connection, offer),
            (Body::ConnectResponse(answer), Some(id)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.answered(now, &self.config, answer, &mut self.told);
                }
            }
            (Body::CandidateAdd(text), known) => {
                // A bad candidate never ends a session.
                if let Ok(Parsed::Candidate(candidate)) = candidate::parse(text) {
                    match known.and_then(|id| self.sessions.get_mut(&id)) {
                        Some(session) => session.add_remote(now, candidate),
                        None => self.early.add(now, key, candidate),
                    }
                }
            }
            (Body::ConnectError(error), Some(id)) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.refused(error, &mut self.told);
                }
            }
            (Body::ConnectResponse(_) | Body::ConnectError(_), None) => {}
        }
        if let Some(id) = known {
            self.touch(now, id);
        }
    }

    fn offered(&mut self, now: Instant, from: &NetworkId, connection: ConnectionId, text: &str) {
        let refuse = |told: &mut Told, error| told.signal(from, connection, Body::ConnectError(error));
        let buried = self.graves.iter().any(|(until, peer, id)| *until > now && peer == from && *id == connection);
        let pending = self.sessions.values().filter(|s| s.peer == *from && !s.outgoing && s.is_negotiating()).count();
        let full = self.sessions.len() >= self.config.sessions_max || pending >= OFFERS_MAX;
        let sockets: Vec<_> = self.config.sockets.iter().filter(|s| s.purpose != Use::Dial).cloned().collect();
        if buried || full || self.config.admit == Admit::None || sockets.is_empty() {
            return refuse(&mut self.told, SessionError::IncomingConnectionIgnored);
        }
        let Ok(offer) = sdp::parse(text) else {
            return refuse(&mut self.told, SessionError::FailedToSetRemoteDescription);
        };
        if self.glare(now, from, connection, &sockets) {
            return refuse(&mut self.told, SessionError::IncomingConnectionIgnored);
        }
        let id = self.birth(now, from.clone(), connection, false, sockets);
        let early = self.early.take(&(from.clone(), connection));
        if let Some(session) = self.sessions.get_mut(&id) {
            session.take_offer(text, offer);
            for candidate in early {
                session.add_remote(now, candidate);
            }
        }
        self.give_candidates(id);
        if self.config.admit == Admit::Ask {
            let identity = self.sessions.get(&id).and_then(Session::identity);
            self.told.event(Event::Requested { session: id, peer: from.clone(), identity });
        } else {
            self.accept(now, id);
        }
        self.touch(now, id);
    }

    /// Both sides dial at once over the same socket here: the higher connection id lives, whoever dialled it. Whether the
    /// incoming one is the lower.
    fn glare(&mut self, now: Instant, from: &NetworkId, connection: ConnectionId, sockets: &[Socket]) -> bool {
        let shares = |s: &Session<WebRtc>| sockets.iter().any(|socket| s.bases.contains(&socket.base));
        let own = self.sessions.values_mut().find(|s| s.peer == *from && s.outgoing && s.is_negotiating() && shares(s));
        let Some(own) = own else { return false };
        if own.connection > connection {
            return true;
        }
        let id = own.id;
        let error = SessionError::IncomingConnectionIgnored;
        own.signal(Body::ConnectError(error), &mut self.told);
        own.abort(now, error, By::Failure, "both sides dialled at once; the other dial goes on", &mut self.told);
        self.touch(now, id);
        false
    }

    /// A datagram of a socket of this endpoint. False when it is nobody's.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) -> bool {
        self.now = self.now.max(now);
        let Some(base) = self.config.sockets.iter().find(|s| s.id == path.socket).map(|s| s.base) else { return false };
        match self.gatherer.handle_datagram(now, base, path.remote, datagram) {
            Arrival::Direct => self.deliver(now, path.remote, base, datagram),
            Arrival::Server => {
                self.after_gathering(now);
                true
            }
            Arrival::Relayed { relay, peer, data } => self.deliver(now, peer, relay, data),
        }
    }

    fn deliver(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        let flags = self.config.flags;
        let named = match datagram.first() {
            Some(0..=3) => match stun::Message::parse(datagram) {
                Some(message) => message.ufrag().and_then(|ufrag| self.by_ufrag.get(ufrag)).copied(),
                None => return false,
            },
            _ => None,
        };
        if let Some(id) = named {
            let Some(session) = self.sessions.get_mut(&id) else { return false };
            let taken = session.input(now, flags, from, to, datagram);
            if taken {
                self.route(to, from, id, false);
                self.touch(now, id);
            }
            return taken;
        }
        let Some(route) = self.routes.get(&(to, from)) else { return false };
        for id in route.iter().rev().copied().collect::<Vec<_>>() {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            if session.input(now, flags, from, to, datagram) {
                self.touch(now, id);
                return true;
            }
        }
        false
    }

    /// Notes that a session speaks with an address; on top of others when it has found its path there.
    fn route(&mut self, base: SocketAddr, remote: SocketAddr, id: SessionId, top: bool) {
        let over = |id: &SessionId| self.sessions.get(id).is_none_or(|session| session.stage == Stage::Over);
        let route = self.routes.entry((base, remote)).or_default();
        if top {
            route.retain(|other| *other != id);
            route.push(id);
        } else if !route.contains(&id) {
            route.insert(0, id);
        }
        if route.len() > ROUTE_MAX {
            route.retain(|other| *other == id || !over(other));
        }
        // The oldest goes: a peer with so many sessions over one pair of ports has lost them.
        while route.len() > ROUTE_MAX {
            let oldest = route.iter().copied().filter(|other| *other != id).min();
            route.retain(|other| Some(*other) != oldest);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.alarms.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.alarms.pop_first() else { break };
            if let Some(session) = self.sessions.get_mut(&id) {
                session.alarm = None;
                session.timeout(now, &self.config, &mut self.told);
                self.touch(now, id);
            }
        }
        self.early.expire(now);
        while self.graves.front().is_some_and(|(until, ..)| *until <= now) {
            self.graves.pop_front();
        }
        self.gatherer.handle_timeout(now);
        self.after_gathering(now);
    }

    fn after_gathering(&mut self, now: Instant) {
        while let Some((server, failure)) = self.gatherer.poll_failure() {
            self.told.event(Event::Server { server, failure });
        }
        let flags = self.config.flags;
        while let Some(gathered) = self.gatherer.poll_candidate() {
            if !flags.permits(gathered.kind, false) {
                continue;
            }
            for id in self.sessions.keys().copied().collect::<Vec<_>>() {
                let direct = self.sessions.get(&id).is_some_and(|s| s.bases.contains(&gathered.base));
                if direct || gathered.kind == CandidateKind::Relay {
                    self.give(id, gathered.candidate());
                    self.touch(now, id);
                }
            }
        }
        if self.gatherer.is_done() && !self.config.trickle {
            for id in self.sessions.keys().copied().collect::<Vec<_>>() {
                if self.sessions.get(&id).is_some_and(|s| s.stage == Stage::Gathering) {
                    self.describe(now, id);
                    self.touch(now, id);
                }
            }
        }
    }

    /// After every verb of a session: its events are turned into ours, and it gets its turn to send.
    fn touch(&mut self, now: Instant, id: SessionId) {
        self.settle(now, id);
        if let Some(session) = self.sessions.get_mut(&id)
            && !session.queued
        {
            session.queued = true;
            self.round.push_back(id);
        }
    }

    fn settle(&mut self, now: Instant, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.drain(now, &mut self.told);
            session.check_writable(&self.config, &mut self.told);
            session.linger(now);
        }
        for (id, from, to) in std::mem::take(&mut self.told.paths) {
            self.route(from, to, id, true);
        }
        for id in std::mem::take(&mut self.told.opened) {
            self.supersede(now, id);
        }
    }

    /// After a session has sent all it had: its alarm is set anew, and it goes when it is over.
    fn sent(&mut self, now: Instant, id: SessionId) {
        self.settle(now, id);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.is_done() {
            return self.bury(now, id);
        }
        let at = session.poll_timeout(&self.config).map(|(at, _)| at);
        if session.alarm != at {
            if let Some(old) = session.alarm {
                self.alarms.remove(&(old, id));
            }
            if let Some(at) = at {
                self.alarms.insert((at, id));
            }
            session.alarm = at;
        }
    }

    /// A peer that has opened another session has lost its older ones, unless they show that they are alive.
    fn supersede(&mut self, now: Instant, newer: SessionId) {
        let Some((peer, outgoing)) = self.sessions.get(&newer).map(|s| (s.peer.clone(), s.outgoing)) else { return };
        let mut gone = Vec::new();
        for (id, older) in self.sessions.iter_mut().filter(|(id, _)| **id < newer) {
            if older.peer != peer || older.outgoing != outgoing || older.stage != Stage::Open {
                continue;
            }
            if older.is_interrupted() {
                older.abort(now, SessionError::InactivityTimeout, By::Failure, "the peer dialled anew", &mut self.told);
            } else {
                older.supersede(now);
            }
            gone.push(*id);
        }
        for id in gone {
            self.touch(now, id);
        }
    }

    /// Queues a packet. An unreliable one is dropped while no path works (pain 31).
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when [`Config::send_queue`] is reached, and other reasons why not.
    pub fn send(&mut self, now: Instant, id: SessionId, channel: Channel, packet: Bytes) -> Result<(), SendError> {
        self.now = self.now.max(now);
        let session = self.sessions.get_mut(&id).ok_or(SendError::NotOpen)?;
        let sent = session.send(now, &self.config, channel, packet);
        self.touch(now, id);
        sent
    }

    /// The next packet of a session. What nobody asks for closes the window towards its sender.
    pub fn recv(&mut self, now: Instant, id: SessionId) -> Option<(Channel, Bytes)> {
        self.now = self.now.max(now);
        let session = self.sessions.get_mut(&id)?;
        let packet = session.recv(now, &mut self.told);
        self.touch(now, id);
        packet
    }

    /// The size of the packet at the head of the queue, if there is one (NetherNet, section 6.4).
    pub fn peek(&mut self, now: Instant, id: SessionId) -> Option<usize> {
        self.now = self.now.max(now);
        let size = self.sessions.get_mut(&id)?.peek(now, &mut self.told);
        self.touch(now, id);
        size
    }

    /// Copies from the packet at the head of the queue. What does not fit stays at the head for the next call, else the
    /// packet is gone (NetherNet, section 6.4).
    pub fn read(&mut self, now: Instant, id: SessionId, buffer: &mut [u8]) -> Option<usize> {
        self.now = self.now.max(now);
        let taken = self.sessions.get_mut(&id)?.read(now, buffer, &mut self.told);
        self.touch(now, id);
        taken
    }

    /// Bytes sent in a session and not acknowledged yet.
    #[must_use]
    pub fn buffered(&self, id: SessionId) -> usize {
        self.sessions.get(&id).map_or(0, Session::buffered)
    }

    /// Writes waiting datagrams into the batch; whether any was written. Sessions take turns.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        self.now = self.now.max(now);
        let mut any = self.gatherer.poll_transmit(&self.config.sockets, out);
        let mut full = false;
        for _ in 0..self.round.len() {
            let Some(id) = self.round.pop_front() else { break };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let (gatherer, sockets) = (&mut self.gatherer, &self.config.sockets);
            let mut asked = Vec::new();
            any |= session.engine.poll_transmit(now, &mut |from, to, bytes| {
                if matches!(bytes.first(), Some(0..=3)) {
                    asked.push((from, to));
                }
                let sent = match sockets.iter().find(|socket| socket.base == from) {
                    Some(socket) => {
                        out.datagram(Path::new(socket.id, to), bytes.len(), |room| super::copy(bytes, room))
                    }
                    None => gatherer.relay(now, sockets, from, to, bytes, out),
                };
                full |= !sent;
                sent
            });
            session.queued = false;
            for (from, to) in asked {
                self.route(from, to, id, false);
            }
            if full {
                // It goes on from where it was, after the others.
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.queued = true;
                    self.round.push_back(id);
                }
                break;
            }
            self.sent(now, id);
        }
        any
    }

    fn bury(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(at) = session.alarm {
            self.alarms.remove(&(at, id));
        }
        self.by_ufrag.remove(session.engine.credentials().0);
        self.by_attempt.remove(&(session.peer.clone(), session.connection));
        self.routes.retain(|_, route| {
            route.retain(|other| *other != id);
            !route.is_empty()
        });
        if self.graves.len() >= GRAVES_MAX {
            self.graves.pop_front();
        }
        self.graves.push_back((now + GRAVE, session.peer, session.connection));
    }

    /// The next signalling text and whom it is for.
    pub fn poll_signal(&mut self) -> Option<(NetworkId, String)> {
        self.told.signals.pop_front()
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.told.events.pop_front()
    }

    /// When the endpoint wants to be called again, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.round.is_empty() {
            return Some((self.now, "datagrams wait"));
        }
        if !self.told.signals.is_empty() {
            return Some((self.now, "signals wait"));
        }
        if !self.told.events.is_empty() {
            return Some((self.now, "events wait"));
        }
        let session = self.alarms.first().and_then(|(_, id)| self.sessions.get(id)?.poll_timeout(&self.config));
        [session, self.early.poll_timeout(), self.gatherer.poll_timeout()].into_iter().flatten().min()
    }

    /// Sessions there are, in any stage.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

fn host_candidate(addr: SocketAddr, nth: usize) -> Candidate {
    let nth = u16::try_from(nth).unwrap_or(u16::MAX);
    Candidate {
        foundation: (u32::from(nth) + 1).to_string(),
        priority: candidate::priority(CandidateKind::Host, addr, nth),
        addr,
        kind: CandidateKind::Host,
        related: None,
        ufrag: None,
        network_id: nth + 1,
        network_cost: 0,
    }
}
