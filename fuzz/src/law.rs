//! The law every machine keeps: it can be drained, and drained it does not ask to be called at once.

use std::time::Instant;

use seam::{Outbox, Path};

/// Rounds at one instant after which a machine is said to run in circles.
const ROUNDS_MAX: usize = 2_000;
/// Calls of `handle_timeout` in a row that may change nothing although they were asked for.
const IDLE_MAX: usize = 4;

/// A machine as its driver sees it.
pub trait Machine {
    /// Takes everything that is queued and says how much it was.
    fn drain(&mut self, now: Instant) -> usize;
    /// When it asks to be called.
    fn deadline(&self) -> Option<(Instant, &'static str)>;
    /// Calls it.
    fn tick(&mut self, now: Instant);
}

/// Drains `machine` as a driver does at `now`, until its deadline lies ahead, and returns that.
///
/// # Panics
/// When it never comes to rest.
pub fn settle(machine: &mut impl Machine, now: Instant) -> Option<Instant> {
    let mut idle = 0;
    for _ in 0..ROUNDS_MAX {
        let drained = machine.drain(now);
        let (at, why) = machine.deadline()?;
        if at > now {
            return Some(at);
        }
        idle = if drained == 0 { idle + 1 } else { 0 };
        assert!(idle <= IDLE_MAX, "spins: asks to be called for '{why}' and does nothing");
        machine.tick(now);
    }
    let why = machine.deadline().map_or("", |(_, why)| why);
    panic!("never comes to rest at one instant: '{why}'");
}

/// A send batch that is full now and then.
#[derive(Debug)]
pub struct Batch {
    /// What was written.
    pub sent: Vec<(Path, Vec<u8>)>,
    room: usize,
}

impl Batch {
    /// A batch for at most `room` datagrams.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { sent: Vec::new(), room }
    }
}

impl Outbox for Batch {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.sent.len() >= self.room {
            return false;
        }
        // Not zeroed, as a reused buffer is not: what is not filled shows.
        let mut bytes = vec![0xAA; len];
        let used = fill(&mut bytes);
        assert!(used <= len, "wrote {used} bytes into {len}");
        if used > 0 {
            bytes.truncate(used);
            self.sent.push((path, bytes));
        }
        true
    }
}
