//! Our NetherNet against the programs and WebRTC engines in the field: each on a machine of its own in one local network,
//! as the one who dials and as the one who is dialled.
//!
//! The programs are installed into a folder from their registries, in versions that are pinned here. What cannot be
//! installed is skipped, and a line says so.

// Namespaces are Linux's: elsewhere the crate is empty.
#![cfg(target_os = "linux")]

mod kit;
mod play;

pub use kit::{Kit, Program};
pub use play::{ALL_SIZES, Figures, Plan, Role, SHORT_SIZES, play};
