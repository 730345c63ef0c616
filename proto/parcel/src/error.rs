//! Why an offer is not taken and why a transfer failed, by who is to blame.

use thiserror::Error;

use crate::Fault;

/// What is wrong with an offer: its sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misfit {
    /// No file, or too many.
    #[error("a wrong number of files")]
    Count,
    /// Over what this end takes.
    #[error("{bytes} bytes, at most {most} are taken")]
    TooLarge {
        /// Bytes offered.
        bytes: u64,
        /// Bytes taken.
        most: u64,
    },
    /// Sizes that do not add up.
    #[error("sizes that do not add up")]
    Sizes,
    /// A hash that is none.
    #[error("a hash that is none")]
    Hash,
    /// A name that is not one of those a transfer of its kind writes.
    #[error("a file name that is not written")]
    Name,
}

/// Why a receiver did not get its files.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// It gave up: its disk is full, or its copy did not verify three times.
    #[error("the receiver gave up")]
    GaveUp,
    /// It made no progress for 30 s, or 300 s while verifying.
    #[error("no progress in time")]
    Stalled,
    /// The files could not be read here.
    #[error("reading here: {0}")]
    Reading(Fault),
    /// The files could not be written here.
    #[error("writing here: {0}")]
    Writing(Fault),
    /// Bytes beyond the end were sent.
    #[error("the sender sent more than it offered")]
    PastTheEnd,
    /// What arrived was not what was offered, three times.
    #[error("what arrived is not what was offered")]
    Hash,
    /// The sender is gone.
    #[error("the sender is gone")]
    SenderGone,
}
