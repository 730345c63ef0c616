//! Two homes, their routers, STUN servers and a master, in virtual time.
//!
//! [`Internet`] carries datagrams through [`netem::Nat`] boxes and answers HTTP with a whole [`rendezvous::Local`] master,
//! relay included. [`reach()`] plays one pair of routers and checks the way that was taken; [`roam()`] changes the path under
//! a running game and counts every frame.

mod block;
mod game;
mod internet;
mod kinds;
mod reach;
mod roam;

pub use block::block;
pub use internet::{Home, Internet};
pub use kinds::{Kind, Way, expected, is_guessed};
pub use reach::{Reached, reach, reach_without_guess};
pub use roam::{Roamed, roam};
