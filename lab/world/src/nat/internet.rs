//! The wires: homes behind routers, STUN servers, the master.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use netem::Nat;
use rendezvous::relay::{End, RelayAt, Via};
use rendezvous::store::Op;
use rendezvous::words::Tag;
use rendezvous::{Call, Limits, Local, ResponseBody, Step, Then};
use seam::{Dice, HttpMethod, Path, PooledBuf, Reply, Request, RequestId};
use session::{Event, LOBBY, Session, StunServer};

use super::Kind;

/// Unix time at the beginning.
pub(super) const WALL: u64 = 1_790_000_000;
const MASTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const SHARED: u16 = 29_599;
const STUN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const STUN_PORT: u16 = 3478;
/// Turns at one instant; more means that somebody spins.
const TURNS: u32 = 20_000;

/// A player's home.
pub struct Home {
    /// The player.
    pub session: Option<Session>,
    /// What it told.
    pub events: Vec<(Instant, Event)>,
    kind: Kind,
    inner: SocketAddr,
    nat: Option<Nat>,
    delay: Duration,
    /// UDP passes to other homes; a relay and the servers are always reached.
    cut: bool,
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
        self.homes.push(Home { session: None, events: Vec::new(), kind, inner, nat, delay, cut: false });
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
                self.send(index, path.remote, bytes);
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

    fn send(&mut self, home: usize, to: SocketAddr, bytes: Vec<u8>) {
        let (now, lost) = (self.now, self.dice.chance(self.loss));
        let home = &mut self.homes[home];
        let private = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.is_private());
        if home.kind == Kind::Blocked || private(to.ip()) || to.is_ipv6() {
            return;
        }
        let from = match &mut home.nat {
            Some(nat) => match nat.outbound(now, home.inner, to) {
                Some(from) => from,
                None => return,
            },
            None => home.inner,
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
                self.relay(from, to, &bytes);
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
            let home = self.homes.iter_mut().find(|home| home.inner == inner);
            if let Some(session) = home.and_then(|home| home.session.as_mut()) {
                // Whether it was taken is the session's affair; the world looks at what comes of it.
                let _ = session.handle_datagram(now, Path::new(LOBBY, from), PooledBuf::from(bytes.as_slice()));
            }
        }
    }

    fn relay(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let via = if to.port() == SHARED { Via::Shared } else { Via::Port(to.port()) };
        let Some(relay) = self.master.relay.as_mut().filter(|_| self.has_relay) else { return };
        let Some(forward) = relay.receive(self.now, via, End::Udp(from), bytes) else { return };
        if !forward.body.is_empty() {
            self.relayed += 1;
        }
        let End::Udp(at) = forward.to else { return };
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
            let arrived = match &mut home.nat {
                Some(nat) if nat.external() == to.ip() => nat.inbound(now, from, to),
                Some(_) => continue,
                None if home.inner == to => Some(to),
                None => continue,
            };
            if lost || arrived.is_none() || home.kind == Kind::Blocked {
                return;
            }
            let delay = home.delay;
            let inner = home.inner;
            self.count += 1;
            self.last.insert((now + delay, self.count), Flight { from, to: inner, bytes });
            return;
        }
    }
}
