//! What a machine asks of its driver, what it is told, and what it refuses.

use std::fmt;
use std::net::SocketAddr;

use thiserror::Error;

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
}

/// The answer to a [`Request`] of the same kind.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The stretched key.
    Stretched([u8; 32]),
    /// Addresses found; none when the name does not resolve.
    Resolved(Vec<SocketAddr>),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stretched(_) => f.write_str("Stretched(..)"),
            Self::Resolved(list) => write!(f, "Resolved({} addresses)", list.len()),
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
