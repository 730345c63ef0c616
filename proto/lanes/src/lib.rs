//! Reliability, order, channels and fragments over game frames between two players: what ENet does over UDP, done over
//! datagrams that are sealed already. The bytes are in `docs/wire/lanes.md`.
//!
//! ```text
//! send(channel, delivery, data) ─> segments ─┬─> packed into frames of 1,200 bytes ─> poll_frame
//!        lost frames: their reliable segments ┘        (one frame carries many small packets and an acknowledgement)
//! handle_frame ─> acknowledged? seen before? ─> per channel: order, reassembly ─> poll_event
//! ```
//!
//! Guarantees of a link:
//! * a reliable packet arrives once and in the order of its channel, or the link ends and says so;
//! * an unreliable packet arrives at most once, an unreliable ordered one never after a later one of its channel;
//! * channels do not wait for each other.
//!
//! Not guaranteed: order between channels or between deliveries of one channel; secrecy and authenticity, which are the
//! carrier's.
//!
//! Law of use: feed frames and packets at one `now`, then call [`Lanes::poll_frame`] and [`Lanes::poll_event`] until both are
//! empty, then wait until [`Lanes::poll_timeout`]. Nothing is sent before `poll_frame` is asked, so that packets of one
//! turn share frames.
//!
//! Bounds of one link: 2 MiB and 8,192 packets of reliable data queued (6 MiB and 16,384 where packets are passed on for
//! others), 256 KiB of unreliable data queued, 4,096 frames in flight, 8 MiB received and not read, 32 unreliable packets in reassembly.
//!
//! [`control`] holds the messages two ends exchange on channel 255 and the mark in front of every other packet.

pub mod control;
mod frame;
mod incoming;
mod link;
mod outgoing;
mod rtt;

pub use frame::{Ack, FRAME_MAX, Frame, HEADER, Header, Malformed, Message, Part};
pub use link::{Config, End, Event, Lanes};
pub use outgoing::{QUEUE_MAX, RELIABLE_MAX, UNRELIABLE_MAX};

/// The channel of control messages; games use the ones below.
pub const CONTROL: u8 = 255;
