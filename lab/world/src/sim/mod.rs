//! Many players in virtual time.
//!
//! A [`Network`] carries datagrams between [`Node`]s with seeded faults; the clock jumps exactly to whatever is due next,
//! never in ticks, so a machine that forgets to ask for its wake-up stands still and the world fails. [`run`] plays one
//! seed from beginning to end and checks what must hold in every world.

mod network;
mod node;
mod plan;
mod play;
mod regressions;
mod strangers;

pub use network::{Faults, Network};
pub use node::Node;
pub use plan::{Plan, Player};
pub use play::{Failure, Report, run};
pub use regressions::REGRESSIONS;
