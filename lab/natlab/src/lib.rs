//! A small internet on one machine, for testing what crosses NATs. README.md beside this crate is its manual.
//!
//! ```no_run
//! use std::process::Command;
//! use std::time::Duration;
//!
//! let lab = natlab::Lab::up("
//!     home a kind=port-restricted hosts=alice delay=20ms
//!     home b kind=symmetric hosts=bob loss=1%
//! ")?; // ends when dropped
//! // A program on a server of the public segment, and one on bob's machine.
//! let mut server = lab.spawn("master", Command::new("my-server"))?;
//! server.wait_for("listening", Duration::from_secs(5))?;
//! let mut game = Command::new("my-game");
//! game.arg("--server").arg(lab.ip("master")?.to_string());
//! let mut game = lab.spawn("bob", game)?;
//! game.wait_for("connected", Duration::from_secs(5))?;
//! // A socket of alice's machine, used from this process.
//! let socket = lab.inside("alice", || std::net::UdpSocket::bind("0.0.0.0:0"))?;
//! // A bad link, another public address, another network.
//! lab.set("a", "loss=10%")?;
//! lab.renumber("a")?;
//! lab.roam("bob", "a")?;
//! # let _ = socket;
//! # Ok::<(), String>(())
//! ```

// A lab works on packets of this machine's own kernel, whose lengths `packet::parse` has checked, and on arrays it made
// itself. A panic here ends a lab, not a player's game.
#![allow(clippy::indexing_slicing)]
// Network namespaces and tunnel devices are Linux's: elsewhere this crate is empty.
#![cfg(target_os = "linux")]

mod cli;
mod igd;
mod lab;
mod link;
mod nat;
mod net;
mod packet;
mod plane;
pub mod probe;
mod rng;
mod selftest;
mod spec;
mod stun;
mod sys;

pub use cli::main;
pub use lab::{Handle, Lab, Program, Traffic};
pub use nat::Dependence;
pub use net::{Result, lacks, ready};
pub use selftest::{punchable, run as selftest};
pub use spec::Topology;
