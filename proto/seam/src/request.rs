//! What a machine asks of its driver, what it is told, and what it refuses.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use crate::SocketId;

/// Names one slow piece of work between `poll_request` and `handle_reply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names one byte stream of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A password or key on its way to a worker. It never shows in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that computes with it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Slow work that must not run on the network thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Stretch a lobby password into the key of a locked join code (PBKDF2, 600,000 rounds).
    Stretch {
        /// The lobby password.
        password: Secret,
        /// The code's time stamp, which salts the key.
        timestamp: u32,
    },
    /// Look up the addresses of `host`, to be used with `port`.
    Resolve {
        /// A DNS name or an address in text form.
        host: String,
        /// Port of the addresses in the answer.
        port: u16,
    },
    /// One HTTP request. Whoever carries it out follows no redirect, and answers [`Reply::Unreachable`] when
    /// `timeout` passes or the answer is longer than `answer_max`.
    Http {
        /// How.
        method: HttpMethod,
        /// `http://` or `https://`, with everything in it.
        url: String,
        /// A JSON body; empty for none.
        body: Vec<u8>,
        /// From the first packet to the last byte of the answer.
        timeout: Duration,
        /// Most bytes of the answer's body.
        answer_max: usize,
    },
    /// Turn a connection to an HTTP server into a stream of datagrams, each after its length in two bytes. From
    /// [`Reply::TunnelOpen`] on, what is written to `socket` travels on it, and what comes is a datagram of that socket;
    /// its remote address means nothing. Once it is gone the same request is answered [`Reply::Unreachable`].
    ///
    /// A driver holds one tunnel: a further request ends the one before, which is then answered no more.
    OpenTunnel {
        /// The socket it stands for.
        socket: SocketId,
        /// `http://` or `https://`, with everything in it.
        url: String,
        /// What the connection is asked to become (the Upgrade header, RFC 9110, section 7.8).
        protocol: &'static str,
        /// From the first packet to the server's consent.
        timeout: Duration,
    },
    /// End the tunnel. Nothing is answered.
    CloseTunnel,
    /// Open UDP sockets beside the first, on ports of the system's choice. Answered [`Reply::SocketsOpen`].
    OpenSockets {
        /// The number of the first; the others follow it. 32 or more.
        first: SocketId,
        /// How many.
        count: u16,
    },
    /// Close sockets that [`Request::OpenSockets`] opened; numbers that are not open are passed over. Nothing is answered.
    CloseSockets {
        /// The number of the first.
        first: SocketId,
        /// How many.
        count: u16,
    },
}

/// The methods machines use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HttpMethod {
    /// Asks.
    Get,
    /// Tells.
    Post,
}

/// The answer to a [`Request`] of the same kind.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The stretched key.
    Stretched([u8; 32]),
    /// Addresses found; none when the name does not resolve.
    Resolved(Vec<SocketAddr>),
    /// The server's answer, whatever its status.
    Http {
        /// HTTP status.
        status: u16,
        /// The answer's body.
        body: Vec<u8>,
    },
    /// No answer; the text says why.
    Unreachable(String),
    /// The tunnel is open.
    TunnelOpen,
    /// So many sockets are open, from the first number on: fewer than wanted where the system allows no more.
    SocketsOpen(u16),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stretched(_) => f.write_str("Stretched(..)"),
            Self::Resolved(list) => write!(f, "Resolved({} addresses)", list.len()),
            Self::Http { status, body } => write!(f, "Http({status}, {} bytes)", body.len()),
            Self::Unreachable(why) => write!(f, "Unreachable({why})"),
            Self::TunnelOpen => f.write_str("TunnelOpen"),
            Self::SocketsOpen(count) => write!(f, "SocketsOpen({count})"),
        }
    }
}

/// Why an input was not taken. None of these ends a loop: they are counted, and logged at most once a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
#[non_exhaustive]
pub enum Refused {
    /// Not a packet of this protocol.
    #[error("not a packet of ours")]
    NotOurs,
    /// Cut short, or a field out of its range.
    #[error("malformed")]
    Malformed,
    /// A frame whose authentication fails.
    #[error("not authentic")]
    NotAuthentic,
    /// A frame that was seen before.
    #[error("replayed")]
    Replayed,
    /// A frame older than the replay window.
    #[error("too old")]
    TooOld,
    /// From somebody who may not say this.
    #[error("not allowed")]
    NotAllowed,
    /// A bound was reached.
    #[error("over a limit")]
    OverLimit,
    /// Nothing waits for this input.
    #[error("unexpected")]
    Unexpected,
}
