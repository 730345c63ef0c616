//! What a machine asks of its driver's byte streams, and what it is told of them. Streams are numbered by the machine
//! that dials them, or by the driver that accepts them: machines count up from 0, drivers from [`ACCEPTED`].

use std::net::SocketAddr;
use std::time::Duration;

use crate::StreamId;

/// The first number of a stream that a driver accepted.
pub const ACCEPTED: u64 = 1 << 63;

/// What is to be done with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamAsk {
    /// Connect. Answered by the machine's `handle_connected` or `handle_closed`.
    Dial {
        /// Its number from now on.
        stream: StreamId,
        /// Where to.
        remote: SocketAddr,
        /// The own port to dial from, shared with a listener; a driver that cannot use it dials from any.
        from: Option<u16>,
        /// Given up then.
        timeout: Duration,
    },
    /// Read, and no byte more: what follows may be somebody else's. Without this a stream is read as bytes come.
    Read {
        /// Where.
        stream: StreamId,
        /// How much.
        until: Until,
    },
    /// Write these bytes behind those before.
    Write {
        /// Where.
        stream: StreamId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Close it, after what was written. Nothing is said of it again.
    Close {
        /// Which.
        stream: StreamId,
    },
}

/// Where a reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many bytes.
    Bytes(usize),
    /// After a line feed, or after so many bytes without one.
    Line(usize),
}

/// Why a stream is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum StreamEnd {
    /// Nobody listens at the port.
    #[error("refused: nothing listens at that port")]
    Refused,
    /// No answer in time.
    #[error("timed out: a firewall or a missing port forwarding is in the way")]
    TimedOut,
    /// Closed by the other end.
    #[error("closed by the other end")]
    Closed,
    /// Broken on the way.
    #[error("broken")]
    Broken,
}
