//! The composer of a netpunch peer: peer table, demultiplexer, the one place that opens and seals, one event stream.
//! It routes and decides nothing.
//!
//! ```text
//! datagram ──> first bytes and path choose the owner; E frames are opened in place
//!                STUN, H A C K ──> punch        { ──> lobby (mesh_hi: mesh)        g r, game ──> mesh
//! rooms ─────> words of one room that another needs (a dial, a member, a route) pass through here
//!          └─> packets, sealed straight into the driver's batch
//! ```
//!
//! Law of use: feed a batch of inputs at one `now`; then call [`Session::poll_transmit`], [`Session::poll_request`] and
//! [`Session::poll_event`] until each is empty; only then wait until [`Session::poll_timeout`]. While anything is queued,
//! `poll_timeout` answers an instant that has passed.

mod config;
mod egress;
mod event;
mod ingress;
mod joiner;
mod observing;
mod obstacle;
mod publish;
mod reach;
mod relay;
mod rooms;
mod salts;
mod session;
mod tail;
mod ways;

pub use config::{GameSide, HostConfig, JoinConfig, Local, RELEASE, StunServer};
pub use event::{Command, Event};
pub use obstacle::{Obstacle, Via};
pub use publish::Publish;
pub use session::{Session, Tally};

use seam::SocketId;

/// The socket that faces other players.
pub const LOBBY: SocketId = SocketId(0);
/// The socket on loopback that faces the own game.
pub const GAME: SocketId = SocketId(1);
