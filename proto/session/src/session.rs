//! The session: its parts, its verbs, its queues.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lobby::{End, Mode, Roster, State};
use mesh::Mesh;
use netem::{Impairment, Shaper};
use np1::{Bounds, Reassembly};
use punch::{DialId, Punch};
use seal::{Opener, Sealer, SessionKey};
use seam::{Dice, LinkStats, Outbox, Path, PooledBuf, RateTable, Refused, Reply, Request, RequestId, Route};
use stun::Observation;

use crate::egress::Egress;
use crate::joiner::JoinSide;
use crate::observing::{Observing, profile};
use crate::parcels::Parcels;
use crate::portmap::Port;
use crate::publish::Listing;
use crate::reach::Reach;
use crate::salts::Salts;
use crate::{Command, Event, GameSide, HostConfig, JoinConfig, Local, StunServer};

/// Events held for a slow reader at most; frames for the game are dropped beyond it, and counted.
const EVENTS: usize = 8192;
/// How often [`Event::Links`] is said.
const LINKS_EVERY: Duration = Duration::from_secs(1);
/// How often a host asks for its public address: routers forget a UDP port after 30 s and more (RFC 4787, section 4.3).
const OBSERVE_EVERY: Duration = Duration::from_secs(25);
/// How often the routing counters are logged while there is a game or a relay.
const STATS_EVERY: Duration = Duration::from_secs(10);
/// One plain reject per stranger and 2 s (netpunch wire, section 4.3), of at most this many strangers.
const REJECT_SLOTS: usize = 1024;
const REJECT_EVERY: Duration = Duration::from_secs(2);

/// How payloads are protected.
#[derive(Debug)]
pub(crate) enum Crypt {
    /// The key is not known yet: nothing is opened.
    Locked,
    /// A code with a secret: everything is sealed.
    Sealed(Box<Opener>),
    /// A code without: everything is plain, as old peers do it.
    Plain,
}

/// Which half of a lobby this is.
#[derive(Debug)]
pub(crate) enum Role {
    Host(Box<HostSide>),
    Joiner(Box<JoinSide>),
}

/// A host beside its lobby.
#[derive(Debug)]
pub(crate) struct HostSide {
    pub(crate) lobby: lobby::Host,
    pub(crate) config: Arc<HostConfig>,
    code: CodeState,
}

/// How far a host's code is.
#[derive(Debug)]
enum CodeState {
    /// Waits for the public address.
    Observing,
    /// Waits for the key that locks it.
    Stretching { request: RequestId, profile: joincode::Profile },
    /// Given out.
    Ready,
}

/// Why inputs were refused so far, and what was dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Refused inputs by reason.
    pub refused: BTreeMap<Refused, u64>,
    /// Frames for a game that does not fetch its events.
    pub events_dropped: u64,
    /// Frames that were late by more than the replay window.
    pub too_old: u64,
}

/// One player's, host's or relay's whole netpunch peer.
#[derive(Debug)]
pub struct Session {
    start: Instant,
    pub(crate) now: Instant,
    wall: u64,
    pub(crate) role: Role,
    pub(crate) crypt: Crypt,
    pub(crate) punch: Punch,
    pub(crate) mesh: Mesh,
    pub(crate) reassembly: Reassembly,
    pub(crate) salts: Salts,
    pub(crate) egress: Egress,
    pub(crate) game: GameSide,
    pub(crate) local: Local,
    pub(crate) observing: Observing,
    pub(crate) dials: BTreeMap<DialId, String>,
    pub(crate) next_dial: u64,
    pub(crate) fragment_id: u32,
    pub(crate) over: bool,
    /// The master's help, where there is one.
    pub(crate) reach: Option<Box<Reach>>,
    /// A host's port at this machine's router, where the driver asks for one.
    pub(crate) port: Option<Box<Port>>,
    /// A host's row in the public list.
    pub(crate) listing: Option<Box<Listing>>,
    /// Files to and from other players.
    pub(crate) parcels: Parcels,
    /// A host's code as it was given out last.
    pub(crate) code: Option<String>,
    /// Any datagram came from outside.
    pub(crate) arrived: bool,
    /// When a joiner began to dial its host.
    pub(crate) dialled_at: Instant,
    /// STUN servers by address, asked again while a host waits.
    stun_servers: Vec<SocketAddr>,
    observe_at: Option<Instant>,
    rejects: RateTable,
    requests: VecDeque<(RequestId, Request)>,
    next_request: u64,
    events: VecDeque<Event>,
    links_at: Instant,
    stats_at: Instant,
    stats_before: mesh::Stats,
    tally: Tally,
    pub(crate) dice: Dice,
}

impl Session {
    /// A host, or a relay. `wall` is the Unix time at `now`; `seed` must be secret and fresh.
    #[must_use]
    pub fn host(config: HostConfig, seed: [u8; 32], now: Instant, wall: u64) -> Self {
        let mut dice = Dice::new(seed);
        let config = Arc::new(config);
        let password = config.password.as_ref().map_or("", |p| p.reveal());
        let key = SessionKey::derive(&config.secret, password);
        let lobby_config = lobby::HostConfig {
            version: config.version.clone(),
            name: config.name.clone(),
            lobby_name: config.lobby_name.clone(),
            relay_only: config.relay_only,
            companies: config.companies,
            max_players: config.max_players,
            extensions: config.extensions,
            ..lobby::HostConfig::default()
        };
        let lobby = lobby::Host::new(Arc::new(lobby_config), dice.bytes(), now, wall);
        let side = HostSide { lobby, config: Arc::clone(&config), code: CodeState::Observing };
        let role = mesh::Role::Host { relay_only: config.relay_only };
        let parts = Parts { role: Role::Host(Box::new(side)), mesh: role, game: config.game, local: config.local };
        let mut session = Self::assemble(parts, config.impair.as_ref(), dice, now, wall);
        session.set_key(&key);
        session.begin_reach(&key, &config.secret);
        if !config.relay_only {
            session.mesh.set_me(now, &config.name);
        }
        session.recall(&config);
        session.port = config.portmap.then(|| Box::new(Port::new(now)));
        session.observe(now, &config.stun);
        session.pump();
        session
    }

    /// A joiner. `wall` is the Unix time at `now`; `seed` must be secret and fresh.
    #[must_use]
    pub fn join(config: JoinConfig, seed: [u8; 32], now: Instant, wall: u64) -> Self {
        let mut dice = Dice::new(seed);
        let (game, local, stun, impair) = (config.game, config.local, config.stun.clone(), config.impair);
        let role = mesh::Role::Joiner { mesh: config.mesh };
        let side = JoinSide::new(config, dice.bytes(), now);
        let parts = Parts { role: Role::Joiner(Box::new(side)), mesh: role, game, local };
        let mut session = Self::assemble(parts, impair.as_ref(), dice, now, wall);
        session.observe(now, &stun);
        session.begin_join();
        session.pump();
        session
    }

    fn assemble(parts: Parts, impair: Option<&Impairment>, mut dice: Dice, now: Instant, wall: u64) -> Self {
        let shaper = impair.filter(|i| !i.is_none()).map(|i| Shaper::new(i, dice.bytes()));
        Self {
            start: now,
            now,
            wall,
            role: parts.role,
            crypt: Crypt::Locked,
            punch: Punch::new(punch::Config { socket: crate::LOBBY }, dice.bytes(), now),
            mesh: Mesh::new(mesh::Config { role: parts.mesh }, dice.bytes(), now),
            reassembly: Reassembly::new(Bounds::default()),
            salts: Salts::default(),
            egress: Egress::new(None, shaper),
            game: parts.game,
            local: parts.local,
            observing: Observing::Done(None),
            dials: BTreeMap::new(),
            next_dial: 0,
            fragment_id: dice.u32(),
            over: false,
            reach: None,
            port: None,
            listing: None,
            parcels: Parcels::default(),
            code: None,
            arrived: false,
            dialled_at: now,
            stun_servers: Vec::new(),
            observe_at: None,
            rejects: RateTable::new(REJECT_SLOTS, 1, REJECT_EVERY, dice.u64()),
            requests: VecDeque::new(),
            next_request: 0,
            events: VecDeque::new(),
            links_at: now + LINKS_EVERY,
            stats_at: now + STATS_EVERY,
            stats_before: mesh::Stats::default(),
            tally: Tally::default(),
            dice,
        }
    }

    pub(crate) fn set_key(&mut self, key: &SessionKey) {
        self.crypt = Crypt::Sealed(Box::new(Opener::new(key)));
        self.egress.set_sealer(Sealer::new(key, self.dice.child()));
    }

    fn observe(&mut self, now: Instant, servers: &[StunServer]) {
        let ids = Observing::servers(servers)
            .iter()
            .map(|server| self.request(Request::Resolve { host: server.host.clone(), port: server.port }))
            .collect();
        self.observing = Observing::begin(now, ids);
        self.observed();
    }

    pub(crate) fn request(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.requests.push_back((id, request));
        id
    }

    /// When the session began.
    pub(crate) fn begun(&self) -> Instant {
        self.start
    }

    /// Unix time now.
    pub(crate) fn unix(&self) -> u64 {
        self.wall + self.now.saturating_duration_since(self.start).as_secs()
    }

    /// Unix time now, as codes carry it.
    pub(crate) fn timestamp(&self) -> u32 {
        u32::try_from(self.unix()).unwrap_or(u32::MAX)
    }

    /// The own addresses as far as they are known.
    pub(crate) fn profile(&self) -> joincode::Profile {
        self.improve(profile(&self.local, self.observing.observation(), self.timestamp()))
    }

    // ---- inputs -------------------------------------------------------------------------------------------------

    /// Takes one datagram. Its memory is given back when the last slice of it in an event is dropped.
    ///
    /// # Errors
    /// Why it was not taken. The session counts refusals itself; nothing has to be done about one.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, data: PooledBuf) -> Result<(), Refused> {
        self.now = now;
        let result = self.ingress(path, data);
        if let Err(refused) = result {
            *self.tally.refused.entry(refused).or_default() += 1;
        }
        self.pump();
        result
    }

    /// Takes the answer to a request.
    pub fn handle_reply(&mut self, now: Instant, id: RequestId, reply: Reply) {
        self.now = now;
        let Some(reply) = self.reach_reply(id, reply) else { return self.pump() };
        let Some(reply) = self.listing_reply(id, reply) else { return self.pump() };
        let Some(reply) = self.port_reply(id, reply) else { return self.pump() };
        match reply {
            Reply::Resolved(addresses) => {
                self.observing.resolved(id, &addresses);
                self.step_observing();
            }
            Reply::Stretched(key) => self.stretched(id, key),
            _ => {}
        }
        self.pump();
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.punch.handle_timeout(now);
        self.mesh.handle_timeout(now);
        self.reassembly.handle_timeout(now);
        match &mut self.role {
            Role::Host(side) => side.lobby.handle_timeout(now),
            Role::Joiner(side) => side.lobby.handle_timeout(now),
        }
        self.port_timeout();
        self.step_observing();
        self.observe_again();
        self.joiner_timeout();
        self.reach_timeout();
        self.listing_timeout();
        self.parcels_timeout();
        if !self.over && now >= self.links_at {
            self.links_at = now + LINKS_EVERY;
            let links = Arc::new(self.links());
            self.events.retain(|event| !matches!(event, Event::Links(_)));
            self.push(Event::Links(links));
        }
        if !self.over && now >= self.stats_at {
            self.stats_at = now + STATS_EVERY;
            let stats = self.mesh.stats();
            if stats != self.stats_before {
                self.log(stats.line(&self.stats_before));
                self.stats_before = stats;
            }
        }
        self.pump();
    }

    /// Does what a player or a game asks.
    pub fn command(&mut self, now: Instant, command: Command) {
        self.now = now;
        if self.over {
            return;
        }
        if let Command::Frame(frame) = command {
            self.mesh.local_frame(now, frame.into());
            return self.pump();
        }
        if let Command::FrameTo { to, data } = command {
            self.mesh.local_frame_to(now, &to, data.into());
            return self.pump();
        }
        if let Command::PortMap(word) = command {
            self.port_map(word);
            return self.pump();
        }
        if let Command::Publish(publish) = command {
            self.publish(publish);
            return self.pump();
        }
        if let Command::StartWith { files, switch } = command {
            self.start_with(files, switch);
            return self.pump();
        }
        if command == Command::SaveComing {
            return self.save_coming();
        }
        if let Command::Start { save: false, .. } = command {
            self.start_without();
        }
        match &mut self.role {
            Role::Host(side) => {
                let lobby = &mut side.lobby;
                match command {
                    Command::Chat(text) => lobby.chat(now, &text),
                    Command::Name(name) => lobby.rename(now, &name),
                    Command::Company { player, id } => {
                        if lobby.company(now, player.as_deref(), id).is_err() {
                            let who = player.as_deref().unwrap_or("you").to_owned();
                            self.log(format!("[host] company {id} for {who} is not possible"));
                        }
                    }
                    Command::Stage(text) => lobby.stage(now, &text),
                    Command::Mode(mode) => lobby.mode(now, mode),
                    Command::Start { save, .. } => lobby.start(now, save),
                    Command::Note(text) => lobby.note(now, &text),
                    Command::Kick { player, text } => {
                        if !lobby.kick(now, &player, &text) {
                            self.log(format!("[host] nobody called '{player}' to remove"));
                        }
                    }
                    Command::Quit => {
                        lobby.close(now);
                        self.unlist();
                    }
                    Command::Log(_)
                    | Command::Frame(_)
                    | Command::FrameTo { .. }
                    | Command::StartWith { .. }
                    | Command::SaveComing
                    | Command::Publish(_)
                    | Command::PortMap(_) => {}
                }
            }
            Role::Joiner(side) => {
                let lobby = &mut side.lobby;
                match command {
                    Command::Chat(text) => lobby.chat(now, &text),
                    Command::Name(name) => lobby.rename(now, &name),
                    Command::Company { player, id } => lobby.company(now, player.as_deref(), id),
                    Command::Stage(text) => lobby.stage(now, &text),
                    Command::Mode(mode) => lobby.mode(now, mode),
                    Command::Start { .. } => lobby.start(now),
                    Command::Log(lines) => lobby.log(now, lines),
                    Command::Note(text) => lobby.note(now, &text),
                    Command::Quit => self.quit_joiner(),
                    Command::Kick { .. } => self.log("[join] only the host removes players".to_owned()),
                    Command::Frame(_)
                    | Command::FrameTo { .. }
                    | Command::StartWith { .. }
                    | Command::SaveComing
                    | Command::Publish(_)
                    | Command::PortMap(_) => {}
                }
            }
        }
        self.pump();
    }

    // ---- outputs ------------------------------------------------------------------------------------------------

    /// Writes what is to be sent into the driver's batch. False when the batch is full and something is left.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        self.now = now;
        let punch = &mut self.punch;
        let all = self.egress.through(now, out, |out| {
            punch.poll_transmit(now, out);
        });
        loop {
            let fetched = self.fetch();
            if !self.egress.write(now, out) {
                return false;
            }
            if fetched {
                // A game's frames always go first: files take what room is left.
                let parcels = &mut self.parcels;
                return self.egress.through(now, out, |out| parcels.transmit(now, out)) && all;
            }
        }
    }

    /// Slow work for the driver.
    pub fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Session::handle_timeout`] is next due, and why. `None` once the session is over and everything is sent.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.egress.is_empty() {
            return Some((self.now, "packets to write"));
        }
        if !self.events.is_empty() || !self.requests.is_empty() {
            return Some((self.now, "events or requests to fetch"));
        }
        if self.parcels.has_jobs() {
            return Some((self.now, "work for the disk to fetch"));
        }
        let rooms = if self.over {
            [None; 13]
        } else {
            let lobby = match &self.role {
                Role::Host(side) => side.lobby.poll_timeout(),
                Role::Joiner(side) => side.lobby.poll_timeout(),
            };
            [
                self.punch.poll_timeout(),
                self.mesh.poll_timeout(),
                lobby,
                self.observing.poll_timeout(),
                self.joiner_deadline(),
                Some((self.links_at.min(self.stats_at), "statistics")),
                self.reassembly.poll_timeout(),
                self.reach_deadline(),
                self.listing_deadline(),
                self.observe_at.map(|at| (at, "the own address again")),
                self.port_deadline(),
                self.code_deadline(),
                self.parcels.poll_timeout(),
            ]
        };
        rooms.into_iter().flatten().chain(self.egress.poll_timeout()).min_by_key(|(at, _)| *at)
    }

    /// Whether the session is over: nothing but queued output is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The lobby as it is now.
    #[must_use]
    pub fn roster(&self) -> Arc<Roster> {
        match &self.role {
            Role::Host(side) => side.lobby.roster(),
            Role::Joiner(side) => side.lobby.roster(),
        }
    }

    /// What was refused and dropped so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let too_old = match &self.crypt {
            Crypt::Sealed(opener) => opener.too_old(),
            Crypt::Locked | Crypt::Plain => 0,
        };
        Tally { too_old, ..self.tally.clone() }
    }

    /// How much is held at the moment of what strangers and players can make it hold: what, how much, and its bound.
    #[must_use]
    pub fn held(&self) -> [(&'static str, usize, usize); 6] {
        let (salts, moves) = self.salts.held();
        [
            ("events", self.events.len(), 2 * EVENTS),
            ("items to send", self.egress.len(), 2 * crate::egress::QUEUE),
            ("bytes of unfinished messages", self.reassembly.held(), Bounds::default().bytes_total),
            ("salts", salts, crate::salts::MAX_SALTS),
            ("addresses under proof", moves, crate::salts::MAX_MOVES),
            ("dials", self.dials.len(), 512),
        ]
    }

    /// Counters of the routing of game frames.
    #[must_use]
    pub fn frames(&self) -> mesh::Stats {
        self.mesh.stats()
    }

    /// What is known of the link to each other player.
    #[must_use]
    pub fn links(&self) -> BTreeMap<String, LinkStats> {
        let roster = self.roster();
        // They come in the order of names already: the map is made at once.
        let mut out = Vec::with_capacity(roster.players.len());
        for name in roster.players.keys().filter(|name| **name != roster.you) {
            let (path, route) = match &self.role {
                Role::Host(side) => (side.lobby.path_of(name), Route::Direct),
                Role::Joiner(side) if *name == roster.host && !roster.relay => (side.host, Route::Direct),
                Role::Joiner(side) => (side.links.get(name).copied(), self.mesh.route_to(name)),
            };
            let mut stats = path.and_then(|path| self.punch.stats(path)).unwrap_or_default();
            if let Some(path) = path {
                let traffic = self.egress.traffic(path);
                (stats.sent, stats.received) = (traffic.sent, traffic.received);
            }
            stats.route = match path.filter(|path| route == Route::Direct && self.is_relayed(*path)) {
                Some(path) if self.is_stream(path) => Route::Tcp,
                Some(_) => Route::Relay,
                None => route,
            };
            out.push((name.clone(), stats));
        }
        out.into_iter().collect()
    }

    // ---- between the rooms --------------------------------------------------------------------------------------

    pub(crate) fn push(&mut self, event: Event) {
        if self.over {
            return;
        }
        if self.events.len() >= EVENTS && matches!(event, Event::Frame { .. }) {
            self.tally.events_dropped += 1;
            return;
        }
        match &event {
            Event::Code(code) => {
                self.code = Some(code.clone());
                self.row_changed();
            }
            Event::Roster(_) => self.row_changed(),
            _ => {}
        }
        self.events.push_back(event);
    }

    pub(crate) fn log(&mut self, line: String) {
        if self.events.len() < EVENTS && !self.over {
            self.events.push_back(Event::Log(line));
        }
    }

    pub(crate) fn status(&mut self, state: State, detail: impl Into<String>) {
        self.push(Event::Status { state, detail: detail.into() });
    }

    /// The session ends here.
    pub(crate) fn end(&mut self, end: End) {
        if self.over {
            return;
        }
        self.unlist();
        self.push(Event::Ended(end));
        self.parcels.close(self.now);
        self.over = true;
    }

    /// Whether a stranger may be told now that it has the wrong key.
    pub(crate) fn may_reject(&mut self, path: Path) -> bool {
        self.rejects.allow(self.start, self.now, path.remote)
    }

    fn step_observing(&mut self) {
        if let Some(servers) = self.observing.step(self.now) {
            self.stun_servers.clone_from(&servers);
            match &self.role {
                Role::Host(side) if side.config.survey => self.punch.survey(self.now, servers),
                Role::Host(_) | Role::Joiner(_) => self.punch.observe(self.now, servers),
            }
        }
        self.observed();
    }

    pub(crate) fn finish_observing(&mut self, observation: Observation) {
        let before = self.observing.observation().and_then(|before| before.public.first().copied());
        if self.observing.is_done() {
            // A host's own address changed, or could be learned at last: its code is another one now.
            let changed = !observation.public.is_empty() && before.is_none_or(|old| !observation.public.contains(&old));
            match &mut self.role {
                Role::Host(side) if changed && matches!(side.code, CodeState::Ready) => {
                    side.code = CodeState::Observing;
                }
                // Datagrams pass at last: the next knock tells where.
                Role::Joiner(_) if changed && before.is_none() => return self.observing.finish(observation),
                Role::Host(_) | Role::Joiner(_) => return,
            }
        }
        self.observing.finish(observation);
        self.observed();
    }

    /// How the router behaves is known, and more of how it chooses ports.
    pub(crate) fn surveyed(&mut self, survey: &punch::Survey) {
        self.observing.refine(&survey.observation);
        self.log(format!("[net] router: {}", survey.behaviour));
        let public = survey.observation.public.clone();
        self.push(Event::Router { behaviour: survey.behaviour, public });
    }

    /// What the router says of the port changed: the code may go out, or has to be another one.
    pub(crate) fn port_changed(&mut self) {
        let otherwise = self.is_coded_otherwise();
        if let Role::Host(side) = &mut self.role
            && otherwise
            && matches!(side.code, CodeState::Ready)
        {
            side.code = CodeState::Observing;
        }
        self.observed();
    }

    /// When a code that waits for the router goes out.
    fn code_deadline(&self) -> Option<(Instant, &'static str)> {
        let waits = |side: &HostSide| matches!(side.code, CodeState::Observing) && self.observing.is_done();
        match &self.role {
            Role::Host(side) if waits(side) => self.code_waits().map(|at| (at, "the code, which waits for the router")),
            Role::Host(_) | Role::Joiner(_) => None,
        }
    }

    /// Datagrams pass again, so that the own address can be learned.
    pub(crate) fn observe_now(&mut self) {
        let servers = self.stun_servers.clone();
        if !servers.is_empty() && !self.over {
            self.punch.observe(self.now, servers);
        }
    }

    /// A waiting host asks again from time to time, so that its router keeps the port and a new address shows.
    fn observe_again(&mut self) {
        let now = self.now;
        if self.observe_at.is_some_and(|at| now >= at) && !self.over {
            self.observe_at = Some(now + OBSERVE_EVERY);
            let servers = self.stun_servers.clone();
            self.punch.observe(now, servers);
        }
    }

    /// The public address is known, or it is known that it is not.
    fn observed(&mut self) {
        if !self.observing.is_done() || self.over {
            return;
        }
        let (profile, waits) = (self.profile(), self.code_waits().is_some());
        match &mut self.role {
            Role::Joiner(_) => {
                self.joiner_observed();
                self.reach_observed();
            }
            Role::Host(side) => {
                if !matches!(side.code, CodeState::Observing) {
                    return;
                }
                if self.observe_at.is_none() && !self.stun_servers.is_empty() {
                    self.observe_at = Some(self.now + OBSERVE_EVERY);
                }
                if waits {
                    return;
                }
                if let Some(port) = &mut self.port {
                    port.coded(profile.public);
                }
                let profile = joincode::Profile { secret: Some(side.config.secret), ..profile };
                match side.config.password.clone() {
                    Some(password) if !password.reveal().is_empty() => {
                        let timestamp = profile.timestamp;
                        side.code = CodeState::Ready;
                        let request = self.request(Request::Stretch { password, timestamp });
                        if let Role::Host(side) = &mut self.role {
                            side.code = CodeState::Stretching { request, profile };
                        }
                    }
                    Some(_) | None => {
                        side.code = CodeState::Ready;
                        self.push(Event::Code(profile.encode()));
                    }
                }
            }
        }
    }

    fn stretched(&mut self, id: RequestId, key: [u8; 32]) {
        let key = joincode::LockKey::from_bytes(key);
        match &mut self.role {
            Role::Joiner(_) => self.joiner_stretched(id, &key),
            Role::Host(side) => {
                if let CodeState::Stretching { request, profile } = &side.code
                    && *request == id
                {
                    let code = profile.lock(&key);
                    side.code = CodeState::Ready;
                    self.push(Event::Code(code));
                }
            }
        }
    }

    /// Whether the sender of a frame is one of this session's players.
    pub(crate) fn is_known(&self, path: Path) -> bool {
        match &self.role {
            Role::Host(side) => side.lobby.is_member(path),
            Role::Joiner(side) => side.host == Some(path) || side.links.values().any(|link| *link == path),
        }
    }

    /// The bridge's address, when the game is a datagram endpoint.
    pub(crate) fn bridge(&self) -> Option<SocketAddr> {
        match self.game {
            GameSide::Loopback { bridge } => Some(bridge),
            GameSide::None | GameSide::Inside => None,
        }
    }

    /// The mode of the lobby; for tests and panels that offer the other one.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.roster().mode
    }
}

struct Parts {
    role: Role,
    mesh: mesh::Role,
    game: GameSide,
    local: Local,
}
