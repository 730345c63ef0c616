//! Own candidates beyond the machine's addresses: what STUN servers see, and relays of TURN servers.

use std::net::SocketAddr;
use std::time::Instant;

use seam::{Dice, Outbox};

use super::config::Socket;
use crate::CandidateKind;
use crate::engine::{Candidate, candidate};

/// A server that helps to find a path, its name already resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Asks the servers on behalf of all sessions.
#[derive(Debug)]
pub(super) struct Gatherer {
    servers: Vec<IceServer>,
    dice: Dice,
}

impl Gatherer {
    pub(super) fn new(servers: Vec<IceServer>, dice: Dice) -> Self {
        Self { servers, dice }
    }
    pub(super) fn add_socket(&mut self, _now: Instant, _base: SocketAddr) {}
    pub(super) fn candidates(&self) -> &[Gathered] {
        &[]
    }
    pub(super) fn poll_candidate(&mut self) -> Option<Gathered> {
        None
    }
    pub(super) fn is_done(&self) -> bool {
        true
    }
    pub(super) fn handle_datagram<'a>(
        &mut self,
        _now: Instant,
        _base: SocketAddr,
        _from: SocketAddr,
        _datagram: &'a [u8],
    ) -> Arrival<'a> {
        Arrival::Direct
    }
    pub(super) fn handle_timeout(&mut self, _now: Instant) {}
    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
    pub(super) fn poll_transmit(&mut self, _now: Instant, _sockets: &[Socket], _out: &mut impl Outbox) -> bool {
        false
    }
    pub(super) fn relay(
        &mut self,
        _now: Instant,
        _sockets: &[Socket],
        _from: SocketAddr,
        _to: SocketAddr,
        _bytes: &[u8],
        _out: &mut impl Outbox,
    ) -> bool {
        true
    }
}
