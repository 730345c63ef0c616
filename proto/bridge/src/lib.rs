//! The datagram link between games, as the game's own bridge speaks it (protocol 5; netpunch wire, section 21).
//!
//! Every process has a random session number and one stream of numbered events, which it sends to one place: the
//! lobby process beside it, or the other game on the same machine. Whoever carries the datagrams may hand each to many
//! receivers, lose, repeat or reorder them. A receiver keeps one stream **per sender's session** (pain 96) and hands
//! out each sender's texts once and in order.
//!
//! * A text travels as one or more events; an event is resent every 250 ms until every receiver that is there has
//!   acknowledged it, and at most 32 events are under way.
//! * Every 500 ms each known sender gets a keepalive, which acknowledges its stream and names the oldest event still
//!   kept: a new receiver starts there, and one that is behind skips to there ([`Event::Gap`]).
//! * A sender silent for 10 s is gone. It may come back and goes on where it was.
//! * With more than 512 events pending the whole backlog is dropped and counted: a receiver that cannot follow does
//!   not hold up the others for ever.
//!
//! Feed a batch of inputs at one `now`, drain transmits and events to empty, only then wait until
//! [`Bridge::poll_timeout`].
//!
//! Bounds: 256 senders (and the places of 1,024 more that were forgotten while silent), 64 events ahead of order per sender, 512 events pending, and 8 MiB for everything received
//! that is not yet whole, in order and fetched.

mod link;
mod outbound;
mod stream;
mod wire;

pub use link::{Bridge, Config, Event, SENDERS_MAX, Stats};
pub use outbound::{PENDING_MAX, RESEND, SendError, TEXT_MAX, WINDOW};
pub use wire::{Body, CHUNK_MAX, DATAGRAM_MAX, Datagram, EVENT_MIN, HEADER, Header, MAGIC};
