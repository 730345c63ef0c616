//! Where a datagram comes from or goes to, and the batch it is written into.

use std::fmt;
use std::net::SocketAddr;

use crate::Masked;

/// A received datagram. It is owned, so that a room may open it in place, and it is sliced rather than copied on its
/// way up; the driver's pool gets the memory back when the last slice is dropped.
pub type PooledBuf = bytes::BytesMut;

/// One of a machine's own sockets, numbered by its composer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u16);

/// An own socket and a remote address: what "the same sender" means to a datagram protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The own socket.
    pub socket: SocketId,
    /// The other end. IPv4-mapped IPv6 addresses are written as IPv4 before they get here.
    pub remote: SocketAddr,
}

impl Path {
    /// A path over `socket` to `remote`.
    #[must_use]
    pub const fn new(socket: SocketId, remote: SocketAddr) -> Self {
        Self { socket, remote }
    }
}

impl fmt::Display for Path {
    /// The remote address with its host part masked: a path may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Masked(self.remote).fmt(f)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", Masked(self.remote), self.socket.0)
    }
}

/// A driver's send batch. Machines write each datagram once, where it will be sent from.
pub trait Outbox {
    /// Reserves `len` bytes for one datagram towards `path` and lets `fill` write them. The datagram is as long as
    /// `fill` says, at most `len`; 0 takes the reservation back. Returns false, without calling `fill`, when the batch
    /// is full: the caller keeps its datagram and is asked again.
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool;
}

/// The batch of tests and simulators: unbounded, in order.
impl Outbox for Vec<(Path, Vec<u8>)> {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let mut bytes = vec![0; len];
        let used = fill(&mut bytes);
        if used > 0 {
            bytes.truncate(used);
            self.push((path, bytes));
        }
        true
    }
}
