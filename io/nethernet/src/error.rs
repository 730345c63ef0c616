//! What goes wrong, one true sentence each.

use std::io;
use std::net::SocketAddr;

use nethernet::frame::FrameError;
use nethernet::session::By;
use nethernet::{NetworkId, SessionError};
use thiserror::Error;

/// Why a node did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused a socket.
    #[error("cannot open UDP socket {0}: {1}")]
    Socket(SocketAddr, #[source] io::Error),
    /// No interface has an address that may be used.
    #[error("no network interface with a usable address is up")]
    NoNetwork,
    /// An option is of no use; the text says which and why.
    #[error("{0}")]
    Option(String),
    /// Threads, timers, random numbers.
    #[error("cannot start: {0}")]
    System(String),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{error}{}{stage}", if stage.is_empty() { "" } else { ", " })]
pub struct CloseInfo {
    /// Why.
    pub error: SessionError,
    /// Who ended it.
    pub by: By,
    /// What failed, for people; may be empty.
    pub stage: &'static str,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// It could not even be tried.
    #[error("cannot connect to {0}: {1}")]
    NotTried(NetworkId, String),
    /// It was tried.
    #[error("cannot connect to {0}: {1}")]
    Failed(NetworkId, CloseInfo),
}

/// Why a packet was not sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue is full.
    #[error("the send queue is full")]
    WouldBlock,
    /// A packet this peer does not take.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The session is over.
    #[error("the session is over: {0}")]
    Closed(CloseInfo),
}
