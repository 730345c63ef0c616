//! The words of the house.
//!
//! Every room speaks in these types: who ([`PeerId`], [`Target`]), how ([`Delivery`], [`Channel`]), where ([`Path`]),
//! what a machine asks of its driver ([`Request`], [`Outbox`]) and what it refuses ([`Refused`]). The contracts
//! [`Transport`] and [`Peer`] are what gameplay code holds; [`select`] chooses a wire without side effects.

mod contract;
mod dice;
mod launch;
mod path;
mod peer;
mod rate;
mod redact;
mod request;
mod select;
mod slots;
mod stream;

pub use contract::{Drive, HostOptions, JoinOptions, OpenError, Peer, PeerState, SendError, Transport};
pub use dice::Dice;
pub use launch::{Launch, LaunchRole};
pub use path::{Outbox, Path, PooledBuf, SocketId};
pub use peer::{Channel, CloseReason, Delivery, Event, LinkStats, PeerId, Route, Target};
pub use rate::RateTable;
pub use redact::{Masked, mask};
pub use request::{HttpMethod, Refused, Reply, Request, RequestId, Secret, StreamId};
pub use select::{SelectError, TransportKind, default_kind, resolve};
pub use slots::Slots;
pub use stream::{ACCEPTED, StreamAsk, StreamEnd, Until};
