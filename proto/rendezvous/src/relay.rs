//! The relay: which pair may use it, and where each datagram goes (netpunch wire, sections 11.4 and 16).
//!
//! A pair is a lobby's tag and a joiner's nonce. Its session has an id that only its two ends are told, may hold one
//! of the ports for old peers, and can always be met on the shared port. Its two seats are taken by binding; the
//! latest binding wins. An old peer on a port and a peer of ours on the shared port can be the two ends of one session.
//!
//! Guarantees: a datagram from an address that holds no seat goes nowhere; what is sent is at most what was received
//! (8 bytes more from a port to the shared port, whose addresses have proved that they want it); one datagram in, at
//! most one out.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use np1::{Role, read_relay_bind, relay_bound};
use seam::Dice;
use sha2::Sha256;

use crate::shared::{DATA_HEADER, Other, Word, data_header};
use crate::words::{Grant, Grants, Tag};
use crate::{Limits, Prefix};

const SWEEP: Duration = Duration::from_secs(1);
/// A cookie is good in the minute it was made in and in the next.
const COOKIE_SECONDS: u64 = 60;

/// Where datagrams come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The port of one session, for old peers.
    Port(u16),
    /// The port of all sessions.
    Shared,
}

/// Who is at the other side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// An address that sends datagrams.
    Udp(SocketAddr),
    /// A byte stream that carries datagrams of the shared port, for a player without UDP.
    Stream(u64),
}

/// What is to be sent: `head`, then `body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward<'a> {
    /// From which of the relay's ports.
    pub via: Via,
    /// To whom.
    pub to: End,
    /// The relay's own words, or the header before the body; often empty.
    pub head: Vec<u8>,
    /// A part of the datagram received.
    pub body: &'a [u8],
}

impl Forward<'_> {
    /// Head and body in one.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [&self.head, self.body].concat()
    }
}

/// Where the relay can be reached from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAt {
    /// The address that players are told.
    pub ip: IpAddr,
    /// The ports for old peers.
    pub ports: Vec<u16>,
    /// The shared port, when there is one.
    pub shared: Option<u16>,
}

/// No port is left for this asker: 503 `relay full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayFull;

/// What a grant made that was not there before, to be given back when its note is not kept.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Undo {
    session: Option<u32>,
    port: Option<u16>,
}

/// Counters of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RelayStats {
    /// Datagrams forwarded.
    pub forwarded: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams from addresses without a seat.
    pub strangers: u64,
    /// Datagrams whose other end is not bound.
    pub unmet: u64,
    /// Datagrams over a session's rate.
    pub over_rate: u64,
    /// Bindings taken.
    pub bindings: u64,
}

/// The relay's table. Bounded by [`Limits::sessions`].
#[derive(Debug)]
pub struct Relay {
    at: RelayAt,
    limits: Limits,
    dice: Dice,
    key: [u8; 32],
    start: Instant,
    sessions: BTreeMap<u32, Session>,
    ids: BTreeMap<[u8; 16], u32>,
    pairs: BTreeMap<(Tag, String), u32>,
    ports: BTreeMap<u16, u32>,
    swept: Instant,
    stats: RelayStats,
}

#[derive(Debug)]
struct Session {
    id: [u8; 16],
    pair: (Tag, String),
    port: Option<u16>,
    caller: Prefix,
    network: Prefix,
    joiner: Option<Seat>,
    host: Option<Seat>,
    born: Instant,
    used: Instant,
    /// Bytes that may be forwarded now.
    credit: u64,
    credited: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    via: Via,
    end: End,
}

impl Session {
    fn seat(&mut self, role: Role) -> &mut Option<Seat> {
        match role {
            Role::Joiner => &mut self.joiner,
            Role::Host => &mut self.host,
        }
    }

    /// Whether `seat` is one of the two, and if so who sits opposite.
    fn opposite(&self, seat: Seat) -> Option<Option<Seat>> {
        if self.joiner == Some(seat) {
            Some(self.host)
        } else if self.host == Some(seat) {
            Some(self.joiner)
        } else {
            None
        }
    }

    fn pay(&mut self, now: Instant, bytes: usize, rate: u64) -> bool {
        let micros = u64::try_from(now.saturating_duration_since(self.credited).as_micros()).unwrap_or(u64::MAX);
        let earned = rate.saturating_mul(micros.min(1_000_000)) / 1_000_000;
        if earned > 0 {
            self.credit = self.credit.saturating_add(earned).min(rate);
            self.credited = now;
        }
        let cost = u64::try_from(bytes).unwrap_or(u64::MAX);
        let paid = self.credit >= cost;
        if paid {
            self.credit -= cost;
        }
        paid
    }
}

fn opposite_of(role: Role) -> Role {
    match role {
        Role::Joiner => Role::Host,
        Role::Host => Role::Joiner,
    }
}

impl Relay {
    /// A relay without sessions. `seed` keeps its ids from being guessed.
    #[must_use]
    pub fn new(at: RelayAt, limits: Limits, seed: [u8; 32], now: Instant) -> Self {
        let mut dice = Dice::new(seed);
        let key = dice.bytes();
        Self {
            at,
            limits,
            dice,
            key,
            start: now,
            sessions: BTreeMap::new(),
            ids: BTreeMap::new(),
            pairs: BTreeMap::new(),
            ports: BTreeMap::new(),
            swept: now,
            stats: RelayStats::default(),
        }
    }

    /// The session of a pair, made if there is none, with a port if `port` asks for one. An asker who speaks on the
    /// shared port goes without the scarce port when none is left.
    ///
    /// # Errors
    /// [`RelayFull`] when a port is asked for, none is left, and the shared port does not serve instead.
    pub fn grant(
        &mut self,
        now: Instant,
        caller: IpAddr,
        pair: (Tag, String),
        port: bool,
        shared: bool,
    ) -> Result<(Grants, Undo), RelayFull> {
        self.handle_timeout(now);
        let shared = shared && self.at.shared.is_some();
        let mut undo = Undo::default();
        if !(port || shared) {
            return Ok((Grants::default(), undo));
        }
        let number = match self.pairs.get(&pair) {
            Some(number) => *number,
            None => {
                let Some(number) = self.open(now, caller, pair) else {
                    return if port && !shared { Err(RelayFull) } else { Ok((Grants::default(), undo)) };
                };
                undo.session = Some(number);
                number
            }
        };
        let mut grants = Grants::default();
        if port {
            match self.port_of(now, number) {
                Some((at, fresh)) => {
                    undo.port = fresh.then_some(at);
                    grants.relay = self.grant_at(number, at);
                }
                None if shared => {}
                None => {
                    self.undo(&undo);
                    return Err(RelayFull);
                }
            }
        }
        if let (true, Some(at)) = (shared, self.at.shared) {
            grants.shared = self.grant_at(number, at);
        }
        if let Some(session) = self.sessions.get_mut(&number) {
            session.used = now;
        }
        Ok((grants, undo))
    }

    fn grant_at(&self, number: u32, port: u16) -> Option<Grant> {
        let session = self.sessions.get(&number)?;
        Some(Grant { at: SocketAddr::new(self.at.ip, port), id: session.id })
    }

    fn open(&mut self, now: Instant, caller: IpAddr, pair: (Tag, String)) -> Option<u32> {
        let (caller, network) = (Prefix::caller(caller), Prefix::network(caller));
        let neighbours = self.sessions.values().filter(|session| session.network == network).count();
        if neighbours >= self.limits.network_sessions {
            return None;
        }
        if self.sessions.len() >= self.limits.sessions {
            let number = self.abandoned(now, false)?;
            self.close(number);
        }
        let number = (0..16).map(|_| self.dice.u32()).find(|number| !self.sessions.contains_key(number))?;
        // A session's id follows from its knock and from a key nobody else has, and differs from those before it.
        let born = now.saturating_duration_since(self.start).as_nanos().to_be_bytes();
        let id: [u8; 16] = self.hash(&[b"id", pair.0.as_str().as_bytes(), b"|", pair.1.as_bytes(), &born])?;
        let session = Session {
            id,
            pair: pair.clone(),
            port: None,
            caller,
            network,
            joiner: None,
            host: None,
            born: now,
            used: now,
            credit: self.limits.relay_rate,
            credited: now,
        };
        self.sessions.insert(number, session);
        self.ids.insert(id, number);
        self.pairs.insert(pair, number);
        Some(number)
    }

    /// The port of a session and whether it was given just now.
    fn port_of(&mut self, now: Instant, number: u32) -> Option<(u16, bool)> {
        let session = self.sessions.get(&number)?;
        if let Some(port) = session.port {
            return Some((port, false));
        }
        let caller = session.caller;
        let held = self.sessions.values().filter(|other| other.caller == caller && other.port.is_some()).count();
        if held >= self.limits.address_ports {
            return None;
        }
        let port = match self.free_port() {
            Some(port) => port,
            None => self.abandoned_port(now)?,
        };
        self.ports.insert(port, number);
        self.sessions.get_mut(&number)?.port = Some(port);
        Some((port, true))
    }

    /// A free port, sought from a random one on, so that a port rests before it serves others.
    fn free_port(&mut self) -> Option<u16> {
        let count = u64::try_from(self.at.ports.len()).unwrap_or(0);
        let skip = usize::try_from(self.dice.below(count)).unwrap_or(0);
        let mut from_there = self.at.ports.iter().skip(skip).chain(&self.at.ports);
        from_there.find(|port| !self.ports.contains_key(*port)).copied()
    }

    /// Takes back a port whose two ends never came.
    fn abandoned_port(&mut self, now: Instant) -> Option<u16> {
        let number = self.abandoned(now, true)?;
        let port = self.sessions.get(&number)?.port;
        self.close(number);
        port
    }

    /// A session whose two ends never came.
    fn abandoned(&self, now: Instant, with_port: bool) -> Option<u32> {
        let limit = self.limits.relay_unbound;
        let abandoned = self.sessions.iter().find(|(_, session)| {
            let unbound = session.joiner.is_none() && session.host.is_none();
            let old = now.saturating_duration_since(session.used) >= limit;
            unbound && old && (session.port.is_some() || !with_port)
        });
        abandoned.map(|(number, _)| *number)
    }

    /// Gives back what a grant made.
    pub fn undo(&mut self, undo: &Undo) {
        if let Some(number) = undo.session {
            self.close(number);
        } else if let Some(number) = undo.port.and_then(|port| self.ports.remove(&port))
            && let Some(session) = self.sessions.get_mut(&number)
        {
            session.port = None;
        }
    }

    fn close(&mut self, number: u32) {
        let Some(session) = self.sessions.remove(&number) else { return };
        self.ids.remove(&session.id);
        self.pairs.remove(&session.pair);
        if let Some(port) = session.port {
            self.ports.remove(&port);
        }
    }

    /// Takes one datagram and says what is to be sent for it.
    pub fn receive<'a>(&mut self, now: Instant, via: Via, from: End, datagram: &'a [u8]) -> Option<Forward<'a>> {
        let seat = Seat { via, end: from };
        match via {
            Via::Port(port) => {
                let number = *self.ports.get(&port)?;
                match read_relay_bind(datagram) {
                    Ok((id, role)) => self.bind_port(now, number, seat, id, role),
                    Err(_) => self.forward(now, number, seat, datagram),
                }
            }
            Via::Shared => match Word::parse(datagram) {
                Ok(Word::Ask { id, role, cookie }) => self.ask(now, seat, id, role, cookie),
                Ok(Word::Data { session, datagram }) => self.forward(now, session, seat, datagram),
                Ok(Word::Proof { .. } | Word::Bound { .. }) | Err(_) => {
                    self.stats.strangers += 1;
                    None
                }
            },
        }
    }

    fn bind_port<'a>(
        &mut self,
        now: Instant,
        number: u32,
        seat: Seat,
        id: [u8; 16],
        role: Role,
    ) -> Option<Forward<'a>> {
        let session = self.sessions.get_mut(&number)?;
        if session.id != id {
            self.stats.strangers += 1;
            return None;
        }
        session.used = now;
        *session.seat(role) = Some(seat);
        self.stats.bindings += 1;
        Some(Forward { via: seat.via, to: seat.end, head: relay_bound(&id), body: &[] })
    }

    fn ask<'a>(&mut self, now: Instant, seat: Seat, id: [u8; 16], role: Role, cookie: [u8; 8]) -> Option<Forward<'a>> {
        let Some(number) = self.ids.get(&id).copied() else {
            self.stats.strangers += 1;
            return None;
        };
        let minute = now.saturating_duration_since(self.start).as_secs() / COOKIE_SECONDS;
        let fresh = self.cookie(seat.end, &id, minute)?;
        let before = self.cookie(seat.end, &id, minute.wrapping_sub(1))?;
        // A stream has proved its address by its handshake.
        let proved = matches!(seat.end, End::Stream(_)) || cookie == fresh || cookie == before;
        if !proved {
            let head = Word::Proof { id, cookie: fresh }.write();
            return Some(Forward { via: seat.via, to: seat.end, head, body: &[] });
        }
        let session = self.sessions.get_mut(&number)?;
        session.used = now;
        *session.seat(role) = Some(seat);
        let other = match session.seat(opposite_of(role)) {
            None => Other::Absent,
            Some(Seat { end: End::Udp(_), .. }) => Other::Datagrams,
            Some(Seat { end: End::Stream(_), .. }) => Other::Stream,
        };
        self.stats.bindings += 1;
        let head = Word::Bound { id, session: number, other }.write();
        Some(Forward { via: seat.via, to: seat.end, head, body: &[] })
    }

    fn forward<'a>(&mut self, now: Instant, number: u32, from: Seat, body: &'a [u8]) -> Option<Forward<'a>> {
        let session = self.sessions.get_mut(&number);
        let Some((session, opposite)) = session.and_then(|s| s.opposite(from).map(|opposite| (s, opposite))) else {
            self.stats.strangers += 1;
            return None;
        };
        session.used = now;
        let Some(to) = opposite else {
            self.stats.unmet += 1;
            return None;
        };
        if !session.pay(now, body.len() + DATA_HEADER, self.limits.relay_rate) {
            self.stats.over_rate += 1;
            return None;
        }
        self.stats.forwarded += 1;
        self.stats.bytes += u64::try_from(body.len()).unwrap_or(0);
        let head = match to.via {
            Via::Shared => data_header(number).to_vec(),
            Via::Port(_) => Vec::new(),
        };
        Some(Forward { via: to.via, to: to.end, head, body })
    }

    /// A stream is gone: its seats are free.
    pub fn stream_closed(&mut self, stream: u64) {
        for session in self.sessions.values_mut() {
            for role in [Role::Joiner, Role::Host] {
                let seat = session.seat(role);
                if seat.is_some_and(|seat| seat.end == End::Stream(stream)) {
                    *seat = None;
                }
            }
        }
    }

    /// Ends sessions that are idle or old. At most once a second.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let Limits { relay_idle, relay_life, .. } = self.limits;
        let over = self.sessions.iter().filter(|(_, session)| {
            now.saturating_duration_since(session.used) >= relay_idle
                || now.saturating_duration_since(session.born) >= relay_life
        });
        let over: Vec<u32> = over.map(|(number, _)| *number).collect();
        for number in over {
            self.close(number);
        }
    }

    /// When sessions are looked through next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        (!self.sessions.is_empty()).then_some((self.swept + SWEEP, "relay sessions end"))
    }

    /// Sessions and ports in use.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.sessions.len(), self.ports.len())
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> RelayStats {
        self.stats
    }

    fn cookie(&self, end: End, id: &[u8; 16], minute: u64) -> Option<[u8; 8]> {
        let (ip, port) = match end {
            End::Udp(at) => (at.ip().to_canonical().to_string(), at.port()),
            End::Stream(number) => (number.to_string(), 0),
        };
        self.hash(&[b"cookie", ip.as_bytes(), &port.to_be_bytes(), id, &minute.to_be_bytes()])
    }

    fn hash<const N: usize>(&self, parts: &[&[u8]]) -> Option<[u8; N]> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.key).ok()?;
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().first_chunk::<N>().copied()
    }
}
