//! The TCP backup link of a sealed session (netpunch wire, section 13): every sealed packet to a player goes out a
//! second time over a byte stream, and the receiver's replay window drops whichever copy comes later.
//!
//! [`Links`] is the machine of one process. It dials, greets, tells players apart by what they sealed, frames packets,
//! and counts which way was first. A packet from a link is handed to the composer as if it had come from the player's
//! UDP address.
//!
//! * **Greeting.** Whoever connected says [`hello()`]; nothing is answered. The sealed name proves the session key and is
//!   good once: a copied greeting is a replay.
//! * **Frames.** `u16be length | NP1 packet`, in both directions. After an own greeting the first frame waits
//!   [`HELLO_GAP`], because old programs read the greeting in gulps and lose what stands behind it (pain 92).
//! * **Both dial.** On a connection opened from both sides at once both greet, so a greeting before the first frame is
//!   taken wherever it comes (pain 91). Where two connections come about instead, copies go out on the first, and what
//!   comes on either is taken: neither end has to guess which one the other kept.
//! * **Again.** A link that drops is dialled again, with pauses of 1 s doubling to 30 s (pain 93). Addresses that stand
//!   for Steam peers are never dialled.
//!
//! Bounds: [`PEERS_MAX`] players, [`STREAMS_MAX`] streams, two streams a player, [`QUEUE_MAX`] packets of at most
//! [`FRAME_MAX`] bytes waiting for each, 64 KiB of input held per stream, 4,096 packets of statistics per player.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests take a real instant to begin from"))]

mod framing;
mod hello;
mod links;
mod peer;
mod stats;

pub use framing::{FRAME_MAX, Frames, Overlong, frame};
pub use hello::{Hello, HelloError, LINE_MAX, NAME_MAX, PREFIX, hello};
pub use links::{ARRIVALS_MAX, Config, Event, HELLO_GAP, Links, PEERS_MAX, STREAMS_MAX};
pub use peer::QUEUE_MAX;
pub use stats::{Arrivals, Via};
