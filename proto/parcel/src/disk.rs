//! What a transfer asks of the disk and of the streams that carry files, and what it is told. Places are offsets in the
//! whole stream of a transfer; whoever carries requests out knows where each file begins.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use seam::{StreamEnd, StreamId};
use thiserror::Error;

use crate::quic::BlockList;

/// Why the disk did not do it. What stood under the final names before stands there still.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No room.
    #[error("the disk is full")]
    Full,
    /// A file or folder that was there is not.
    #[error("the file or its folder is gone")]
    Gone,
    /// The file is not what it was when it was measured.
    #[error("the file changed while it was being read")]
    Changed,
    /// Not allowed.
    #[error("the file may not be read or written")]
    Denied,
    /// Anything else, as the system says it.
    #[error("{0}")]
    Other(String),
}

/// A file that was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Bytes.
    pub size: u64,
    /// SHA-256.
    pub sha256: [u8; 32],
}

/// Work for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// Measure these files, which are to be sent in this order. Answered [`Answer::Measured`]. From then on a file that
    /// changes is a [`Fault::Changed`].
    Measure {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// Read. Answered [`Answer::Data`].
    Read {
        /// Where.
        at: u64,
        /// How much; less only at the end of the stream.
        len: usize,
    },
    /// Make room beside the final names. Answered [`Answer::Created`].
    Create {
        /// Names and sizes in the order of the stream.
        files: Vec<(String, u64)>,
        /// SHA-256 of the whole stream: what an earlier attempt at the same stream left is taken up again.
        sha256: [u8; 32],
    },
    /// Write. Answered [`Answer::Written`].
    Write {
        /// Where.
        at: u64,
        /// What.
        data: Bytes,
    },
    /// Look through what an earlier attempt, or an older file of the same name, has where these blocks belong. Answered
    /// [`Answer::Found`].
    Look {
        /// The blocks.
        list: Arc<BlockList>,
    },
    /// Write a block if BLAKE3 of it is `hash`. Answered [`Answer::Kept`].
    Keep {
        /// Which.
        index: u32,
        /// Where.
        at: u64,
        /// What it is to be.
        hash: [u8; 32],
        /// What came.
        data: Bytes,
    },
    /// Hash what was written. Answered [`Answer::Hashing`] now and then, then [`Answer::Hashed`].
    Hash,
    /// Give the files their final names. Answered [`Answer::Committed`].
    Commit,
    /// Remove what was written. Nothing is answered.
    Discard,
    /// Write `first` and then the whole files into a byte stream and close it. Answered [`Answer::Sent`] about every
    /// 50 ms, and [`Answer::StreamOver`].
    SendFile {
        /// Which.
        stream: StreamId,
        /// What stands before the files.
        first: &'static [u8],
    },
    /// Take the whole stream out of a byte stream, from its first byte. Answered [`Answer::Arrived`] about every 50 ms,
    /// and [`Answer::StreamOver`].
    ReceiveFile {
        /// Which.
        stream: StreamId,
    },
    /// Say where the transfer stands, for a later attempt. Nothing is answered.
    Note {
        /// Bytes from the start that are there.
        upto: u64,
    },
}

/// What became of an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The files, and SHA-256 of one after the other.
    Measured {
        /// In the order asked.
        files: Vec<Measured>,
        /// Of the whole stream.
        sha256: [u8; 32],
        /// Its blocks.
        list: Arc<BlockList>,
    },
    /// What stands there.
    Data {
        /// Where.
        at: u64,
        /// What.
        data: Bytes,
    },
    /// There is room; `upto` bytes of an earlier attempt are there already.
    Created {
        /// Bytes from the start.
        upto: u64,
    },
    /// It is written.
    Written {
        /// Where.
        at: u64,
        /// How much.
        len: usize,
    },
    /// These blocks are there.
    Found {
        /// Their numbers.
        blocks: Vec<u32>,
    },
    /// A block is written, or was another one than it was to be.
    Kept {
        /// Which.
        index: u32,
        /// Whether it is written.
        good: bool,
    },
    /// So many bytes are hashed.
    Hashing {
        /// Bytes.
        done: u64,
    },
    /// The hashes of the files and of the whole stream.
    Hashed {
        /// In the order created.
        files: Vec<[u8; 32]>,
        /// Of the whole stream.
        sha256: [u8; 32],
    },
    /// The files have their names.
    Committed,
    /// So much of the stream is in a byte stream.
    Sent {
        /// Which.
        stream: StreamId,
        /// Bytes from the start.
        upto: u64,
    },
    /// So much of the stream came out of a byte stream and is written.
    Arrived {
        /// Which.
        stream: StreamId,
        /// Bytes from the start.
        upto: u64,
    },
    /// A byte stream is over; `why` is [`StreamEnd::Closed`] when it came to its end.
    StreamOver {
        /// Which.
        stream: StreamId,
        /// Bytes from the start that were sent or written.
        upto: u64,
        /// Why.
        why: StreamEnd,
    },
    /// It could not be done.
    Failed(Fault),
}
