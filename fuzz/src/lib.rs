//! What the targets share: the input read as a script of moves, the law of queues, and messages as they are sent.
//!
//! A target of a machine reads its input as a list of moves, one letter and its arguments each, so that a changed byte
//! is a changed move and a cut input is a shorter story.

pub mod law;
pub mod script;
pub mod words;
pub mod world;

pub use law::{Batch, Machine, settle};
pub use script::{Script, member, remote};
