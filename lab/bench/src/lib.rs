//! Measurements against rivals and bounds, as Markdown.
//!
//! Each benchmark is a module with a `report`, and a program of its own under `src/bin`; `all` runs them in turn and
//! writes `docs/benchmarks.md`. Contestants of one table take turns within one run, so that whatever else the machine
//! does hits all of them alike, and every report begins with the machine and its load. What has to be a process of its
//! own is the same program again ([`child`]).

mod blast;
pub mod child;
pub mod forward;
pub mod frames;
mod lobbies;
mod machine;
pub mod master_load;
mod measure;
pub mod plain;
pub mod players;
pub mod sealing;
mod table;

pub use machine::{cpu_seconds, load, machine, memory, peak_memory};
pub use measure::{Clock, Contestant, Score, interleaved, median};
pub use table::Table;
