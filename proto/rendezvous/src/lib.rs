//! The master's words and both halves: list, announce, knock, relay ports, pipes (netpunch wire, section 16).
//!
//! The master brokers nothing it can read: rows carry join codes, notes carry sealed blobs, relays forward sealed
//! frames. Its half is [`Server`] for requests, [`Relay`] for datagrams, [`Pipes`] for streams; a player's half is
//! [`Client`]. None of them owns a socket, a clock or a store: [`Server`] turns a request into a [`store::Op`] and the
//! [`store::Outcome`] into a [`Response`], so that one [`store::Memory`] or a database between several masters answer alike.
//!
//! Not guaranteed: that a note reaches a host, or that a relay port lives on. Every ask is repeated by its asker.

pub mod client;
pub mod limits;
mod pipe;
mod prefix;
mod rates;
pub mod relay;
mod server;
pub mod shared;
pub mod store;
pub mod words;

pub use client::Client;
pub use limits::Limits;
pub use pipe::{Arrival, PIPE_PAIRED, PIPE_PREFIX, Pipes, pipe_hello, read_pipe_hello};
pub use prefix::{Prefix, address_of, is_trusted};
pub use rates::Rates;
pub use relay::{Forward, Relay, RelayStats};
pub use server::{BODY_MAX, Call, Local, Probe, Response, ResponseBody, Server, Step, Then, WAIT_MAX};
