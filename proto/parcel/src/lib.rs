//! Files to other players (netpunch wire, section 9).
//!
//! [`Sender`] is one offer to everybody who is to have it, [`Receiver`] is one offer that was taken. In between travel
//! the words of a transfer ([`Word`], sealed by the composer) and the files themselves: on a byte stream where one comes
//! about, or as chunks in datagrams, which fill whatever a stream left.
//!
//! ```text
//! sender     fbegin .. ──────────────────> Create ─> fbegin_ack        receiver
//!            <──────────────── fack every 50 ms: base, what is missing
//!            chunks, or a stream ────────> Write
//!                                          Hash ─> Commit ─> fdone
//! ```
//!
//! Neither machine touches a file: they say what is to be read, written, hashed and renamed ([`Ask`]) and are told what
//! became of it ([`Answer`]). The bytes of a stream never pass through them. Nothing stands under its final name before
//! the whole of it was hashed and found right, and what fails leaves what stood there before.
//!
//! Bounds: a sender holds 24 MiB of blocks and at most [`TARGETS_MAX`] receivers, each with as many instants as its
//! window has chunks; a receiver has at most 8 MiB on their way to the disk and remembers chunks within one window. None
//! of it grows with the files.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests take a real instant to begin from"))]

mod blocks;
mod disk;
mod error;
mod held;
mod hello;
mod progress;
pub mod quic;
mod rate;
mod receiver;
mod sender;
mod target;
mod words;

pub use disk::{Answer, Ask, Fault, Measured};
pub use error::{Failure, Misfit};
pub use hello::{ANSWER, Hello, LINE_MAX, PAIRED, PREFIX, Role, pipe_line};
pub use progress::{Progress, Transport};
pub use receiver::{Intake, ReceiveEvent, Receiver, refusal};
pub use sender::{Fate, Outcome, SendEvent, Sender, Shipment, TARGETS_MAX};
pub use words::{
    ADDRESSES_MAX, AwQuic, Done, FILES_MAX, Feedback, GaveUp, Kind, NACKS_MAX, Offer, OfferAck, OfferedFile, Pipe,
    SAVE_NAMES, TcpOffer, Word, digest,
};
