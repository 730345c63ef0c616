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
mod guess;
mod ingress;
mod jobs;
mod joiner;
mod observing;
mod obstacle;
mod parcels;
mod portmap;
mod publish;
mod reach;
mod relay;
mod rooms;
mod salts;
mod session;
mod tail;
mod tunnel;
mod verdict;
mod ways;

pub use config::{GameSide, HostConfig, JoinConfig, Local, RELEASE, StunServer};
pub use event::{Command, Event, Moved};
pub use jobs::{Did, Job, TransferId};
pub use obstacle::{Obstacle, Via};
pub use portmap::{PortMap, PortState};
pub use publish::Publish;
pub use session::{Session, Tally};
pub use verdict::{Better, Expected, Help, Mine, Verdict};

pub use parcel::{Answer, Ask, Progress, Transport};
pub use stun::{Behaviour, Filtering, Mapping};

use seam::SocketId;

/// The socket that faces other players.
pub const LOBBY: SocketId = SocketId(0);
/// The socket on loopback that faces the own game.
pub const GAME: SocketId = SocketId(1);
/// The stream over HTTP to the master, for a network that lets no datagram out (docs/wire/extensions.md, "Relay over
/// HTTP").
pub const TUNNEL: SocketId = SocketId(u16::MAX);
/// The number of the first socket that a guess of ports opens. 8,192 numbers are used in turn; open are at most 256 of them, and
/// those that carry a path to a player.
pub(crate) const FIRST_EXTRA: u16 = 1_024;
