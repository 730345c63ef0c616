//! The composer of a netpunch peer: peer table, demultiplexer, the one place that opens and seals, one event stream.
//! It routes and decides nothing.

mod config;
mod event;

pub use config::{GameSide, HostConfig, JoinConfig, Local, StunServer};
pub use event::{Command, Event};
