//! A bad network, made on purpose and repeatable.
//!
//! [`Link`] is one direction of a wire with seeded loss, delay, jitter, reordering, duplication and rate. [`Nat`] is a
//! home router by mapping and filtering (RFC 4787). [`Impairment`] is the netsim file of netpunch wire, section 18, and
//! [`Shaper`] applies it to what this program really sends. All of it is sans-IO: time and seeds are arguments, and the
//! same seed and calls give the same datagrams at the same instants.

mod impairment;
mod link;
mod nat;
mod shaper;

pub use impairment::{BadLine, Impairment};
pub use link::{Link, LinkConfig, Loss, Traffic, Weigh};
pub use nat::{Dependence, Nat, NatConfig, Ports};
pub use shaper::Shaper;
