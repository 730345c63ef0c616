//! Ways for signalling messages to travel (NetherNet, section 5.1), each behind [`Channel`].
//!
//! | channel | reaches |
//! |---|---|
//! | [`Discovery`](crate::discovery::Discovery) | peers of the local network |
//! | [`http::HttpDialer`], [`http::HttpHost`] | dedicated hosts, by one HTTP request per dial, with identities on both sides |
//! | [`Memory`] | peers of the same process: tests, split screens |

pub mod http;
pub mod identity;
mod lan;
mod memory;

use std::time::Instant;

use thiserror::Error;

use crate::{NetworkId, SessionError};

pub use memory::{MAILBOX_MAX, Memory};

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Who sent it, as far as the channel can tell.
    pub from: NetworkId,
    /// The own id it is for.
    pub to: NetworkId,
    /// The message; [`Signal`](crate::Signal) reads it.
    pub text: String,
}

/// Why a message was not taken by a channel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Undelivered {
    /// This channel does not reach that id.
    #[error("this channel does not reach {0:?}")]
    NoWay(NetworkId),
    /// The channel is full, or its network is down.
    #[error("the message cannot be sent: {0}")]
    Failed(String),
}

impl Undelivered {
    /// What a session is told.
    #[must_use]
    pub const fn error(&self) -> SessionError {
        match self {
            Self::NoWay(_) => SessionError::NoSignalingChannel,
            Self::Failed(_) => SessionError::SignalingFailedToSend,
        }
    }
}

/// A signalling channel. It may lose, repeat and reorder messages; sessions live with that. A session outlives its
/// channel: signalling is for negotiation only.
pub trait Channel {
    /// Sends a message.
    ///
    /// # Errors
    /// [`Undelivered`]: it was not sent at all.
    fn send(&mut self, now: Instant, from: &NetworkId, to: &NetworkId, text: &str) -> Result<(), Undelivered>;

    /// The next message that arrived.
    fn poll(&mut self) -> Option<Incoming>;
}
