//! Own candidates beyond the machine's addresses: what STUN servers see, and relays of TURN servers. One set serves all
//! sessions of an endpoint.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use seam::{Dice, Outbox, Path};

use super::ask::{Ask, Came};
use super::config::Socket;
use crate::CandidateKind;
use crate::engine::{Candidate, candidate};

/// Datagrams towards servers that wait for the driver; later ones are dropped and come again by their timers.
const OUT_MAX: usize = 256;

/// A server that helps to find a path, its name already resolved.
#[derive(Clone, PartialEq, Eq)]
pub enum IceServer {
    /// A STUN server (RFC 8489).
    Stun(SocketAddr),
    /// A TURN server (RFC 8656) over UDP.
    Turn {
        /// Where it is.
        addr: SocketAddr,
        /// The user name of the credentials.
        username: String,
        /// The password of the credentials.
        password: String,
    },
}

impl IceServer {
    /// Where it is.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        match self {
            Self::Stun(addr) | Self::Turn { addr, .. } => *addr,
        }
    }
}

impl std::fmt::Debug for IceServer {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stun(addr) => write!(f, "stun:{addr}"),
            Self::Turn { addr, username, .. } => write!(f, "turn:{username}@{addr}"),
        }
    }
}

/// Why a server is of no help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerFailure {
    /// It did not answer.
    Silent,
    /// It refuses the credentials (error 22 of the protocol).
    Credentials,
    /// It sends from one server to the next without end.
    Circle,
    /// It refuses with a code of RFC 8656, section 19.
    Refused(u16),
}

/// Where a datagram belongs.
pub(super) enum Arrival<'a> {
    /// It came from a peer.
    Direct,
    /// It was a server's answer.
    Server,
    /// A relay has passed it on.
    Relayed { relay: SocketAddr, peer: SocketAddr, data: &'a [u8] },
}

/// A candidate that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gathered {
    pub(super) kind: CandidateKind,
    pub(super) addr: SocketAddr,
    /// The own base it was found from.
    pub(super) base: SocketAddr,
    nth: u16,
}

impl Gathered {
    pub(super) fn candidate(&self) -> Candidate {
        let code = if self.kind == CandidateKind::Relay { 200 } else { 100 };
        Candidate {
            foundation: (code + u32::from(self.nth)).to_string(),
            priority: candidate::priority(self.kind, self.addr, self.nth),
            addr: self.addr,
            kind: self.kind,
            related: Some(self.base),
            ufrag: None,
            network_id: self.nth + 1,
            network_cost: 0,
        }
    }
}

/// What an [`Ask`] hands over.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// (Own base, server, bytes).
    pub(super) out: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    fresh: VecDeque<Gathered>,
    known: Vec<Gathered>,
    failures: VecDeque<(SocketAddr, ServerFailure)>,
}

impl Found {
    pub(super) fn push(&mut self, base: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        if self.out.len() < OUT_MAX {
            self.out.push_back((base, to, bytes));
        }
    }

    pub(super) fn candidate(&mut self, kind: CandidateKind, addr: SocketAddr, base: SocketAddr, nth: u16) {
        // Behind no NAT a server sees what the machine tells already; that is no second candidate.
        if kind == CandidateKind::ServerReflexive && addr == base {
            return;
        }
        let gathered = Gathered { kind, addr, base, nth };
        if !self.known.iter().any(|old| old.kind == kind && old.addr == addr) {
            self.known.push(gathered);
            self.fresh.push_back(gathered);
        }
    }

    pub(super) fn forget(&mut self, addr: SocketAddr) {
        self.known.retain(|old| old.addr != addr);
    }

    pub(super) fn failed(&mut self, server: SocketAddr, why: ServerFailure) {
        self.failures.push_back((server, why));
    }
}

/// Asks every server from every socket.
#[derive(Debug)]
pub(super) struct Gatherer {
    servers: Vec<IceServer>,
    dice: Dice,
    asks: Vec<Ask>,
    found: Found,
    now: Option<Instant>,
}

impl Gatherer {
    pub(super) fn new(servers: Vec<IceServer>, dice: Dice) -> Self {
        Self { servers, dice, asks: Vec::new(), found: Found::default(), now: None }
    }

    pub(super) fn add_socket(&mut self, now: Instant, base: SocketAddr) {
        self.now = Some(now);
        for (nth, server) in self.servers.iter().enumerate() {
            if server.addr().is_ipv4() == base.is_ipv4() {
                let nth = u16::try_from(nth).unwrap_or(u16::MAX);
                self.asks.push(Ask::new(base, server.clone(), nth, self.dice.child(), now, &mut self.found));
            }
        }
    }

    pub(super) fn remove_socket(&mut self, base: SocketAddr) {
        self.asks.retain(|ask| ask.base() != base);
        self.found.known.retain(|gathered| gathered.base != base);
    }

    /// Every candidate that stands.
    pub(super) fn candidates(&self) -> &[Gathered] {
        &self.found.known
    }

    /// The next new candidate.
    pub(super) fn poll_candidate(&mut self) -> Option<Gathered> {
        self.found.fresh.pop_front()
    }

    pub(super) fn poll_failure(&mut self) -> Option<(SocketAddr, ServerFailure)> {
        self.found.failures.pop_front()
    }

    /// Whether every server has answered or been given up.
    pub(super) fn is_done(&self) -> bool {
        self.asks.iter().all(Ask::is_settled)
    }

    pub(super) fn handle_datagram<'a>(
        &mut self,
        now: Instant,
        base: SocketAddr,
        from: SocketAddr,
        datagram: &'a [u8],
    ) -> Arrival<'a> {
        for ask in self.asks.iter_mut().filter(|ask| ask.base() == base && ask.server() == from) {
            match ask.handle(now, datagram, &mut self.found) {
                Came::NotOurs => {}
                Came::Answer => {
                    self.now = Some(now);
                    return Arrival::Server;
                }
                Came::Data { relay, peer, data } => return Arrival::Relayed { relay, peer, data },
            }
        }
        Arrival::Direct
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
        for ask in &mut self.asks {
            ask.handle_timeout(now, &mut self.found);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let waits = !self.found.out.is_empty() || !self.found.fresh.is_empty() || !self.found.failures.is_empty();
        if waits {
            return self.now.map(|now| (now, "words for servers wait"));
        }
        self.asks.iter().filter_map(Ask::poll_timeout).map(|at| (at, "STUN and TURN servers")).min()
    }

    /// Sends what waits for servers.
    pub(super) fn poll_transmit(&mut self, sockets: &[Socket], out: &mut impl Outbox) -> bool {
        let mut any = false;
        while let Some((base, to, bytes)) = self.found.out.front() {
            if let Some(socket) = sockets.iter().find(|socket| socket.base == *base)
                && !out.datagram(Path::new(socket.id, *to), bytes.len(), |room| super::copy(bytes, room))
            {
                return any;
            }
            any = true;
            self.found.out.pop_front();
        }
        any
    }

    /// Sends a datagram of a relayed candidate through its server. False when the batch is full. Until the server has
    /// bound the peer, a few datagrams wait and the rest is dropped, as a network would.
    pub(super) fn relay(
        &mut self,
        now: Instant,
        sockets: &[Socket],
        relay: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
        out: &mut impl Outbox,
    ) -> bool {
        let Some(ask) = self.asks.iter_mut().find(|ask| ask.relay() == Some(relay)) else { return true };
        let Some(socket) = sockets.iter().find(|socket| socket.base == ask.base()) else { return true };
        self.now = Some(now);
        let path = Path::new(socket.id, ask.server());
        match ask.channel(now, to, bytes, &mut self.found) {
            Some(number) => out.datagram(path, bytes.len() + 4, |room| super::ask::frame(number, bytes, room)),
            None => true,
        }
    }
}
