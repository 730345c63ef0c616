//! Joiner-to-joiner links, envelopes, routing of game frames

mod types;

use std::time::{Duration, Instant};

use seam::{Path, PooledBuf, Refused, Route};

pub use types::{Config, Down, Event, Outgoing, Role, RosterView, Send, Stats};

/// How long one dial to another joiner may take.
pub const DIAL_FOR: Duration = Duration::from_secs(8);

/// One player's part in the exchange of game frames.
#[derive(Debug)]
pub struct Mesh {
    now: Instant,
    stats: Stats,
}

#[allow(unused_variables, reason = "verbs first")]
impl Mesh {
    /// A mesh without a name, a host or members.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        Self { now, stats: Stats::default() }
    }
    /// Host: the own name, which envelopes to the host's game carry. A joiner learns its name from the roster.
    pub fn set_me(&mut self, now: Instant, name: &str) {}
    /// Joiner: the path to the host, or that there is none at the moment.
    pub fn host_link(&mut self, now: Instant, path: Option<Path>) {}
    /// Joiner: the newest roster.
    pub fn roster(&mut self, now: Instant, roster: &RosterView<'_>) {}
    /// Host: a player was admitted; for a known path, its name or kind changed.
    pub fn member_joined(&mut self, now: Instant, name: &str, path: Path, mesh: bool) {}
    /// Host: a player is gone.
    pub fn member_left(&mut self, now: Instant, path: Path) {}
    /// Host: a player goes by another name.
    pub fn rename(&mut self, now: Instant, path: Path, name: &str) {}
    /// Host, relay: who leads the session.
    pub fn set_leader(&mut self, now: Instant, name: Option<&str>) {}
    /// A peer's address changed.
    pub fn rekey(&mut self, now: Instant, old: Path, new: Path) {}
    /// An authenticated packet came on `from`.
    pub fn heard(&mut self, now: Instant, from: Path) {}
    /// A game frame came, without its letter.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] when nobody on that path may send frames.
    pub fn handle_frame(&mut self, now: Instant, from: Path, frame: PooledBuf) -> Result<(), Refused> {
        Ok(())
    }
    /// An envelope came, letter included.
    ///
    /// # Errors
    /// [`Refused::Malformed`], or [`Refused::NotAllowed`] when its sender is not who it says.
    pub fn handle_envelope(&mut self, now: Instant, from: Path, payload: PooledBuf) -> Result<(), Refused> {
        Ok(())
    }
    /// The message `mesh_hi` came.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] for a name that cannot be another joiner's.
    pub fn handle_hi(&mut self, now: Instant, from: Path, name: &str) -> Result<(), Refused> {
        Ok(())
    }
    /// A datagram of the own game.
    pub fn local_frame(&mut self, now: Instant, frame: PooledBuf) {}
    /// A dial ended in an open path.
    pub fn link_opened(&mut self, now: Instant, dial: &str, path: Path) {}
    /// A dial ended without a path.
    pub fn dial_failed(&mut self, now: Instant, name: &str) {}
    /// Timers.
    pub fn handle_timeout(&mut self, now: Instant) {}
    /// The next payload to seal and send.
    pub fn poll_send(&mut self) -> Option<Send> {
        None
    }
    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    /// When to call again, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        Some((self.now, "stub"))
    }
    /// How a player's copy of a frame would travel now.
    #[must_use]
    pub fn route_to(&self, now: Instant, name: &str) -> Route {
        Route::None
    }
    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }
}
