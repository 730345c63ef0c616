//! What an endpoint tells and refuses.

use std::fmt;
use std::net::SocketAddr;

use thiserror::Error;

use super::gather::ServerFailure;
use crate::frame::FrameError;
use crate::{ConnectionId, NetworkId, SessionError};

/// A session of an endpoint; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// Who ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// This side's application.
    Local,
    /// The other side.
    Remote,
    /// Nobody: something failed or took too long.
    Failure,
}

/// What an endpoint tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Somebody dials. Waits for [`accept`](super::Endpoint::accept) or [`refuse`](super::Endpoint::refuse).
    Requested {
        /// The session it would become.
        session: SessionId,
        /// Who.
        peer: NetworkId,
        /// The value of `a=identity` in the offer.
        identity: Option<String>,
    },
    /// Both channels of a session are open.
    Opened {
        /// Which.
        session: SessionId,
        /// With whom.
        peer: NetworkId,
        /// The id of the attempt.
        connection: ConnectionId,
        /// Whether this side has dialled.
        outgoing: bool,
        /// The value of `a=identity` in the other side's description.
        identity: Option<String>,
    },
    /// Packets wait in [`recv`](super::Endpoint::recv). Told once until it answers `None`.
    Readable(SessionId),
    /// After [`SendError::WouldBlock`]: there is room again.
    Writable(SessionId),
    /// No path works at the moment; one is looked for. Not the end.
    Interrupted(SessionId),
    /// A path works again.
    Resumed(SessionId),
    /// A STUN or TURN server is of no help. Sessions go on without it.
    Server {
        /// Which; an alternate one, if the server has named one.
        server: SocketAddr,
        /// Why.
        failure: ServerFailure,
    },
    /// The session is over. Told after its last packet was read.
    Closed {
        /// Which.
        session: SessionId,
        /// With whom.
        peer: NetworkId,
        /// Why. [`SessionError::None`] for an end in order.
        error: SessionError,
        /// Who ended it.
        by: By,
        /// The stage that failed, for people.
        stage: &'static str,
    },
}

/// Why a session cannot be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// An id without value.
    #[error("the other side has no id")]
    Unset,
    /// [`Config::sessions_max`](super::Config::sessions_max) is reached.
    #[error("there are {0} sessions already, which is the limit")]
    Full(usize),
    /// No socket is for dials.
    #[error("no socket is for dialling")]
    NoSocket,
    /// Every socket for dials has a session with this peer, and the other side may have but one port: add a socket.
    #[error("every socket has a session with this peer already; dial it from another")]
    SocketBusy,
}

/// Why a packet is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// No such session, or it is not open.
    #[error("the session is not open")]
    NotOpen,
    /// The queue is full; [`Event::Writable`] follows when there is room.
    #[error("the send queue is full; wait until there is room")]
    WouldBlock,
    /// A packet this peer does not take.
    #[error(transparent)]
    Frame(#[from] FrameError),
}
