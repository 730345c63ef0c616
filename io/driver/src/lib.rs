//! One network thread that runs a session.
//!
//! Each turn has one order: timers, what the sockets received, commands, answers of the workers; then requests, events
//! and datagrams until there are no more; then the wait. One `now` serves the whole turn. Nothing in it blocks: names
//! are looked up, masters asked and passwords stretched by worker threads.
//!
//! * [`spawn`] runs the turns on a thread of its own and hands out a [`Handle`].
//! * [`Inline`] runs them on the caller's thread, without a queue in between.

mod core;
mod extra;
mod http;
mod inline;
mod jobs;
mod machine;
mod queue;
mod router;
mod setup;
mod thread;
mod tunnel;
mod workers;

#[cfg(test)]
mod tests;

pub use http::fetch;
pub use inline::Inline;
pub use queue::{CommandError, Missed};
pub use router::AskRouter;
pub use setup::{Facts, HOST_PORT, HOST_RELAY_PORT, JOIN_RELAY_PORTS, OpenError, Role, Setup, entropy};
pub use thread::{Handle, spawn};
pub use tunnel::try_tunnel;
