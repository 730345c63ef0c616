//! NetherNet without sockets: codecs, LAN discovery, signalling, and WebRTC sessions.
//!
//! NetherNet connects two peers of a game by WebRTC. Signalling texts carry offers, answers and candidates; in a local
//! network, sealed UDP packets find hosts and carry those texts, so that no server is needed. This crate is the whole
//! protocol as codecs and state machines: bytes and time in, bytes and events out. `anywire-nethernet-io` runs it on
//! sockets.
//!
//! | module | holds | NetherNet |
//! |---|---|---|
//! | [`discovery`] | LAN discovery and LAN signalling | section 7.4 |
//! | [`packet`] | discovery packets | section 7 |
//! | [`envelope`] | their sealed envelope | section 8 |
//! | [`frame`] | packets as fragments of data channel messages | section 6.3 |
//! | [`server_data`] | what hosts tell about themselves (feature `server-data`, on by default) | |
//! | [`signaling`] | channels for signalling messages | section 5.1 |
//! | [`engine`] | WebRTC behind one trait | section 6 |
//! | [`session`] | negotiation and transport | sections 6 and 9 |
//!
//! Reading is as tolerant as the programs in the field make necessary, writing is strict. Nothing panics on what a peer
//! sends, and every table and reassembly has a bound that its documentation names.

pub mod discovery;
pub mod engine;
pub mod envelope;
mod error;
mod flags;
pub mod frame;
mod id;
pub mod packet;
#[cfg(feature = "server-data")]
pub mod server_data;
pub mod session;
mod signal;
pub mod signaling;

pub use error::SessionError;
pub use flags::{CandidateKind, ConnectionFlags};
pub use id::{BadId, ConnectionId, NetworkId, OPAQUE_MAX, correlation_id};
pub use signal::{Body, Signal, SignalError};
