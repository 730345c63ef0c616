//! Work for the disk and for byte streams, which a driver does beside the network thread.

use std::net::SocketAddr;

use parcel::{Answer, Ask};
use seam::{StreamAsk, StreamEnd, StreamId};

/// One transfer, as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Job {
    /// Work for the disk; of one transfer in this order. A stream that an [`Ask`] names is the transfer's from then on.
    Disk {
        /// Of which transfer.
        transfer: TransferId,
        /// What.
        ask: Ask,
    },
    /// Nothing more is asked for this transfer.
    Over(TransferId),
    /// Work for a byte stream.
    Stream(StreamAsk),
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Did {
    /// The disk's answer.
    Disk {
        /// Of which transfer.
        transfer: TransferId,
        /// What.
        answer: Answer,
    },
    /// A stream that was dialled is open.
    Connected(StreamId),
    /// What was read of it.
    Bytes(StreamId, Vec<u8>),
    /// It is gone, or could not be opened.
    Closed(StreamId, StreamEnd),
    /// Somebody connected to this end and said its first line.
    Greeted {
        /// Its number, from [`seam::ACCEPTED`] up.
        stream: StreamId,
        /// Who.
        remote: SocketAddr,
        /// The line with its line feed.
        line: Vec<u8>,
    },
}
