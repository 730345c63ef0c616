//! The wires: homes behind routers, STUN servers, the master.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use netem::Nat;
use rendezvous::relay::{End, RelayAt, Via};
use rendezvous::store::Op;
use rendezvous::words::Tag;
use rendezvous::{Call, Limits, Local, ResponseBody, Step, Then};
use seam::{Dice, HttpMethod, Path, PooledBuf, Reply, Request, RequestId, SocketId};
use session::{Event, LOBBY, Session, StunServer, TUNNEL};

use super::Kind;

/// Unix time at the beginning.
pub(super) const WALL: u64 = 1_790_000_000;
const MASTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const SHARED: u16 = 29_599;
const STUN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const STUN_PORT: u16 = 3478;
/// Sockets beside the first are bound to their number and this.
const EXTRA_PORTS: u16 = 10_000;
/// Turns at one instant; more means that somebody spins.
const TURNS: u32 = 20_000;

/// A player's home.
pub struct Home {
    /// The player.
    pub session: Option<Session>,
    /// What it told.
    pub events: Vec<(Instant, Event)>,
    inner: SocketAddr,
    nat: Option<Nat>,
    delay: Duration,
    /// UDP passes to other homes; a relay and the servers are always reached.
    cut: bool,
    /// No datagram gets out.
    blocked: bool,
    /// Sockets that are open beside the first.
    sockets: BTreeSet<u16>,
    /// The request of a tunnel that is open or being opened, and its number at the relay.
    tunnel: Option<(RequestId, u64)>,
}

impl Home {
    /// Where a socket is bound, if it is open.
    fn address(&self, socket: SocketId) -> Option<SocketAddr> {
        match socket {
            LOBBY => Some(self.inner),
            SocketId(n) => self.sockets.contains(&n).then(|| SocketAddr::new(self.inner.ip(), EXTRA_PORTS + n)),
        }
    }

    /// The open socket that is bound there.
    fn socket(&self, at: SocketAddr) -> Option<SocketId> {
        if at == self.inner {
            return Some(LOBBY);
        }
        let n = at.port().checked_sub(EXTRA_PORTS).filter(|_| at.ip() == self.inner.ip())?;
        self.sockets.contains(&n).then_some(SocketId(n))
    }

    /// How many sockets are open beside the first.
    #[must_use]
    pub fn extra_sockets(&self) -> usize {
        self.sockets.len()
    }
}

struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

enum Errand {
    /// A request arrives at the master.
    Ask { home: usize, id: RequestId, url: String, method: HttpMethod, body: Vec<u8> },
    /// An answer arrives at its asker.
    Answer { home: usize, id: RequestId, reply: Reply },
    /// The master consents to a tunnel.
    Tunnel { home: usize, stream: u64 },
    /// A datagram in a tunnel arrives at the master.
    Up { home: usize, stream: u64, bytes: Vec<u8> },
    /// It arrives at the player.
    Down { home: usize, stream: u64, bytes: Vec<u8> },
    /// A poll's time is over.
    Release { id: (usize, RequestId) },
}

struct Held {
    tag: Tag,
    op: Op,
    then: Then,
}

/// Everything between the players.
pub struct Internet {
    /// Virtual time.
    pub now: Instant,
    begun: Instant,
    /// The players' homes.
    pub homes: Vec<Home>,
    /// Share of datagrams lost on every uplink.
    pub loss: f64,
    dice: Dice,
    flights: BTreeMap<(Instant, u64), Flight>,
    /// Behind the receiver's router already.
    last: BTreeMap<(Instant, u64), Flight>,
    errands: BTreeMap<(Instant, u64), Errand>,
    held: BTreeMap<(usize, RequestId), Held>,
    count: u64,
    master: Local,
    has_relay: bool,
    /// Datagrams that went through the relay.
    pub relayed: u64,
    /// Bytes that players sent.
    pub sent: u64,
    /// What went wrong with the world itself.
    pub why: Vec<String>,
}

impl Internet {
    /// Nobody is there yet. `relay` says whether the master offers one.
    #[must_use]
    pub fn new(mut dice: Dice, relay: bool) -> Self {
        #[allow(clippy::disallowed_methods, reason = "virtual time begins at some real instant")]
        let now = Instant::now();
        let at = RelayAt { ip: MASTER.into(), ports: (29_600..=29_699).collect(), shared: Some(SHARED) };
        Self {
            now,
            begun: now,
            homes: Vec::new(),
            loss: 0.0,
            flights: BTreeMap::new(),
            last: BTreeMap::new(),
            errands: BTreeMap::new(),
            held: BTreeMap::new(),
            count: 0,
            master: Local::new(Limits::default(), relay.then_some(at), None, dice.bytes(), now),
            has_relay: relay,
            relayed: 0,
            sent: 0,
            why: Vec::new(),
            dice,
        }
    }

    /// The STUN servers by name.
    #[must_use]
    pub fn stun() -> Vec<StunServer> {
        STUN.iter().map(|ip| StunServer { host: ip.to_string(), port: STUN_PORT }).collect()
    }

    /// A home of this kind, `delay` away from everything; nobody lives there yet. Its inner address is answered.
    pub fn home(&mut self, kind: Kind, delay: Duration) -> SocketAddr {
        let n = self.homes.len() as u8;
        let router = kind.router();
        let outer: IpAddr = Ipv4Addr::new(203, 0, 113, 10 + n).into();
        let inner = match router {
            Some(_) => SocketAddr::from((Ipv4Addr::new(192, 168, 40 + n, 2), 40_000 + u16::from(n))),
            None => SocketAddr::new(outer, 40_000 + u16::from(n)),
        };
        let nat = router.map(|router| Nat::new(router, outer, self.dice.bytes()));
        self.homes.push(Home {
            session: None,
            events: Vec::new(),
            inner,
            nat,
            delay,
            cut: false,
            blocked: kind == Kind::Blocked,
            sockets: BTreeSet::new(),
            tunnel: None,
        });
        inner
    }

    /// The router of a home forgets its mappings, and has another address where `moves` says so.
    pub fn rebind(&mut self, home: usize, moves: bool) {
        // No two homes have one address.
        let octet = 100 + 2 * self.dice.below(50) as u8 + (home % 2) as u8;
        if let Some(nat) = &mut self.homes[home].nat {
            if moves {
                nat.readdress(Ipv4Addr::new(203, 0, 113, octet).into());
            } else {
                nat.rebind();
            }
        }
    }

    /// No datagram gets out of a home, or does again.
    pub fn block(&mut self, home: usize, blocked: bool) {
        self.homes[home].blocked = blocked;
    }

    /// Whether a home has a tunnel.
    #[must_use]
    pub fn is_tunnelled(&self, home: usize) -> bool {
        self.homes[home].tunnel.is_some()
    }

    /// The connection under a home's tunnel breaks.
    pub fn break_tunnel(&mut self, home: usize) {
        if let Some((id, stream)) = self.homes[home].tunnel.take() {
            self.close_stream(stream);
            self.errand(self.now, Errand::Answer { home, id, reply: Reply::Unreachable("broken".to_owned()) });
        }
    }

    fn close_stream(&mut self, stream: u64) {
        if let Some(relay) = self.master.relay.as_mut() {
            relay.stream_closed(stream);
        }
    }

    /// Nothing passes directly between homes, or does again.
    pub fn cut(&mut self, cut: bool) {
        for home in &mut self.homes {
            home.cut = cut;
        }
    }

    /// Plays until `end`; `each` is called at every instant at which something happened, and says when it wants to be
    /// called at the latest.
    pub fn play(&mut self, end: Instant, mut each: impl FnMut(&mut Self) -> Option<Instant>) {
        let mut turns = 0;
        loop {
            let wanted = each(self);
            for home in 0..self.homes.len() {
                self.turn(home);
            }
            let due = self.homes.iter().filter_map(|home| home.session.as_ref()?.poll_timeout()).map(|(at, _)| at);
            let next = due
                .chain(wanted)
                .chain(self.flights.first_key_value().map(|((at, _), _)| *at))
                .chain(self.last.first_key_value().map(|((at, _), _)| *at))
                .chain(self.errands.first_key_value().map(|((at, _), _)| *at))
                .min();
            let Some(next) = next.filter(|next| *next < end) else { break };
            turns = if next > self.now { 0 } else { turns + 1 };
            if turns > TURNS {
                let reason = |home: &Home| home.session.as_ref()?.poll_timeout().map(|(_, reason)| reason);
                let reasons: Vec<_> = self.homes.iter().map(reason).collect();
                return self.why.push(format!("somebody spins on {reasons:?}"));
            }
            self.now = self.now.max(next);
            self.arrive();
            self.run_errands();
        }
        self.now = self.now.max(end);
    }

    fn turn(&mut self, index: usize) {
        let now = self.now;
        loop {
            let Some(session) = &mut self.homes[index].session else { return };
            if session.poll_timeout().is_some_and(|(at, _)| at <= now) {
                session.handle_timeout(now);
            }
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            session.poll_transmit(now, &mut out);
            let requests: Vec<_> = std::iter::from_fn(|| session.poll_request()).collect();
            let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).map(|event| (now, event)).collect();
            let quiet = out.is_empty() && requests.is_empty() && events.is_empty();
            self.homes[index].events.extend(events);
            for (path, bytes) in out {
                match (path.socket, self.homes[index].tunnel) {
                    (TUNNEL, Some((_, stream))) => {
                        let at = self.now + self.homes[index].delay;
                        self.errand(at, Errand::Up { home: index, stream, bytes });
                    }
                    (TUNNEL, None) => {}
                    _ => self.send(index, path, bytes),
                }
            }
            for (id, request) in requests {
                self.request(index, id, request);
            }
            if quiet {
                return;
            }
        }
    }

    fn request(&mut self, home: usize, id: RequestId, request: Request) {
        match request {
            Request::Http { method, url, body, .. } => {
                let at = self.now + self.homes[home].delay;
                self.errand(at, Errand::Ask { home, id, url, method, body });
            }
            Request::Resolve { host, port } => {
                let found = host.parse().map(|ip: IpAddr| vec![SocketAddr::new(ip, port)]).unwrap_or_default();
                self.errand(self.now, Errand::Answer { home, id, reply: Reply::Resolved(found) });
            }
            Request::OpenTunnel { .. } => {
                self.count += 1;
                let stream = self.count;
                if let Some((_, old)) = self.homes[home].tunnel.replace((id, stream)) {
                    self.close_stream(old);
                }
                // A handshake, and the answer to the question after it.
                let at = self.now + self.homes[home].delay * 4;
                self.errand(at, Errand::Tunnel { home, stream });
            }
            Request::OpenSockets { first, count } => {
                self.homes[home].sockets.extend(first.0..first.0 + count);
                self.errand(self.now, Errand::Answer { home, id, reply: Reply::SocketsOpen(count) });
            }
            Request::CloseSockets { first, count } => {
                self.homes[home].sockets.retain(|socket| !(first.0..first.0 + count).contains(socket));
            }
            Request::CloseTunnel => {
                if let Some((_, old)) = self.homes[home].tunnel.take() {
                    self.close_stream(old);
                }
            }
            _ => self.errand(self.now, Errand::Answer { home, id, reply: Reply::Unreachable("no".to_owned()) }),
        }
    }

    fn errand(&mut self, at: Instant, errand: Errand) {
        self.count += 1;
        self.errands.insert((at, self.count), errand);
    }

    fn run_errands(&mut self) {
        while let Some(entry) = self.errands.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Errand::Ask { home, id, url, method, body } => self.ask(home, id, &url, method, &body),
                Errand::Answer { home, id, reply } => {
                    let now = self.now;
                    if let Some(session) = &mut self.homes[home].session {
                        session.handle_reply(now, id, reply);
                    }
                }
                Errand::Tunnel { home, stream } => {
                    let open = self.homes[home].tunnel.filter(|(_, own)| *own == stream);
                    if let (Some((id, _)), Some(session)) = (open, &mut self.homes[home].session) {
                        session.handle_reply(self.now, id, Reply::TunnelOpen);
                    }
                }
                Errand::Up { home, stream, bytes } => {
                    if self.homes[home].tunnel.is_some_and(|(_, own)| own == stream) {
                        self.relay(Via::Shared, End::Stream(stream), &bytes);
                    }
                }
                Errand::Down { home, stream, bytes } => {
                    let is_open = self.homes[home].tunnel.is_some_and(|(_, own)| own == stream);
                    if let Some(session) = self.homes[home].session.as_mut().filter(|_| is_open) {
                        let path = Path::new(TUNNEL, SocketAddr::new(MASTER.into(), 80));
                        let _ = session.handle_datagram(self.now, path, PooledBuf::from(bytes.as_slice()));
                    }
                }
                Errand::Release { id } => {
                    if let Some(Held { op, mut then, .. }) = self.held.remove(&id) {
                        then.give_up();
                        self.resume(id, op, then);
                    }
                }
            }
        }
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(WALL) + self.now.saturating_duration_since(self.begun)
    }

    fn ask(&mut self, home: usize, id: RequestId, url: &str, method: HttpMethod, body: &[u8]) {
        let outer = self.homes[home].nat.as_ref().map_or(self.homes[home].inner.ip(), Nat::external);
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let method = if method == HttpMethod::Get { "GET" } else { "POST" };
        let call = Call { method, path, query, body: Some(body), html: false };
        let step = self.master.handle(self.now, self.wall(), outer, &call);
        self.stepped((home, id), step);
        if method == "POST" {
            for id in self.held.keys().copied().collect::<Vec<_>>() {
                if let Some(Held { op, then, .. }) = self.held.remove(&id) {
                    self.resume(id, op, then);
                }
            }
        }
    }

    fn resume(&mut self, id: (usize, RequestId), op: Op, then: Then) {
        let step = self.master.resume(self.now, self.wall(), op, then);
        self.stepped(id, step);
    }

    fn stepped(&mut self, id: (usize, RequestId), step: Step) {
        match step {
            Step::Answer(response) => {
                let body = match response.body {
                    ResponseBody::Json(bytes) => bytes.to_vec(),
                    _ => Vec::new(),
                };
                let at = self.now + self.homes[id.0].delay;
                let reply = Reply::Http { status: response.status, body };
                self.errand(at, Errand::Answer { home: id.0, id: id.1, reply });
            }
            Step::Hold { tag, until, op, then } => {
                self.held.insert(id, Held { tag, op, then });
                self.errand(until, Errand::Release { id });
            }
            Step::Do { .. } | Step::Probe(_) => self.why.push("the master left something to do".to_owned()),
        }
    }

    /// How many polls are held at the master, by tag.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.values().map(|held| &held.tag).collect::<BTreeSet<_>>().len()
    }

    // ---- datagrams ----------------------------------------------------------------------------------------------

    fn send(&mut self, home: usize, path: Path, bytes: Vec<u8>) {
        let to = path.remote;
        self.sent += bytes.len() as u64;
        let (now, lost) = (self.now, self.dice.chance(self.loss));
        let home = &mut self.homes[home];
        let private = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.is_private());
        if home.blocked || private(to.ip()) || to.is_ipv6() {
            return;
        }
        let Some(inner) = home.address(path.socket) else { return };
        let from = match &mut home.nat {
            Some(nat) => match nat.outbound(now, inner, to) {
                Some(from) => from,
                None => return,
            },
            None => inner,
        };
        let is_server = to.ip() == IpAddr::from(MASTER) || STUN.iter().any(|ip| to.ip() == IpAddr::from(*ip));
        if lost || (home.cut && !is_server) {
            return;
        }
        let at = now + home.delay;
        self.fly(at, from, to, bytes);
    }

    fn fly(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.count += 1;
        self.flights.insert((at, self.count), Flight { from, to, bytes });
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let Flight { from, to, bytes } = entry.remove();
            if to.ip() == IpAddr::from(MASTER) {
                let via = if to.port() == SHARED { Via::Shared } else { Via::Port(to.port()) };
                self.relay(via, End::Udp(from), &bytes);
            } else if STUN.iter().any(|ip| to.ip() == IpAddr::from(*ip)) {
                if let Ok(request) = stun::Request::parse(&bytes) {
                    self.deliver(to, from, stun::Answer::of(&request, from).encode());
                }
            } else {
                self.deliver(from, to, bytes);
            }
        }
        while let Some(entry) = self.last.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let Flight { from, to: inner, bytes } = entry.remove();
            let now = self.now;
            let Some(home) = self.homes.iter_mut().find(|home| home.inner.ip() == inner.ip()) else { continue };
            if let (Some(socket), Some(session)) = (home.socket(inner), home.session.as_mut()) {
                // Whether it was taken is the session's affair; the world looks at what comes of it.
                let _ = session.handle_datagram(now, Path::new(socket, from), PooledBuf::from(bytes.as_slice()));
            }
        }
    }

    fn relay(&mut self, via: Via, from: End, bytes: &[u8]) {
        let Some(relay) = self.master.relay.as_mut().filter(|_| self.has_relay) else { return };
        let Some(forward) = relay.receive(self.now, via, from, bytes) else { return };
        if !forward.body.is_empty() {
            self.relayed += 1;
        }
        let at = match forward.to {
            End::Udp(at) => at,
            End::Stream(stream) => {
                let bytes = forward.bytes();
                let of = |home: &Home| home.tunnel.is_some_and(|(_, own)| own == stream);
                if let Some(home) = self.homes.iter().position(of) {
                    let at = self.now + self.homes[home].delay;
                    self.errand(at, Errand::Down { home, stream, bytes });
                }
                return;
            }
        };
        let source = match forward.via {
            Via::Shared => SHARED,
            Via::Port(port) => port,
        };
        let bytes = [&forward.head[..], forward.body].concat();
        self.deliver(SocketAddr::new(MASTER.into(), source), at, bytes);
    }

    /// From the middle of the internet to whoever is at `to`, after the delay of that home.
    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let now = self.now;
        let lost = self.dice.chance(self.loss);
        for home in &mut self.homes {
            let is_open = home.socket(to).is_some();
            let arrived = match &mut home.nat {
                Some(nat) if nat.external() == to.ip() => nat.inbound(now, from, to),
                Some(_) => continue,
                None if is_open => Some(to),
                None => continue,
            };
            let Some(inner) = arrived else { return };
            if lost || home.blocked {
                return;
            }
            let delay = home.delay;
            self.count += 1;
            self.last.insert((now + delay, self.count), Flight { from, to: inner, bytes });
            return;
        }
    }
}
