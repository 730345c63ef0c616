//! The joiner's half of a lobby.

use std::sync::Arc;
use std::time::Instant;

use seam::{Path, Refused};

use crate::{Event, JoinConfig, Mode, Roster};

/// The joiner's half of a lobby.
#[derive(Debug)]
pub struct Joiner {
    roster: Arc<Roster>,
}

impl Joiner {
    /// A joiner without a host yet.
    #[must_use]
    pub fn new(config: Arc<JoinConfig>, seed: [u8; 32], now: Instant) -> Self {
        let _ = (config, seed, now);
        Self { roster: Arc::default() }
    }

    /// The own join code, as soon as it is known; best before `connected`.
    pub fn set_profile(&mut self, _now: Instant, _profile: Option<String>) {}

    /// The host answers at this path: asks to be let in, or in again.
    pub fn connected(&mut self, _now: Instant, _host: Path) {}

    /// The host's path is known to be dead.
    pub fn disconnected(&mut self, _now: Instant) {}

    /// Takes one opened JSON message.
    ///
    /// # Errors
    /// Why it was not taken; nothing changed then.
    pub fn handle_message(&mut self, now: Instant, from: Path, json: &[u8]) -> Result<(), Refused> {
        let _ = (now, from, json);
        Ok(())
    }

    /// An unauthenticated rejection (netpunch wire, section 4.3). It counts only before the first authentic frame.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] when it does not count.
    pub fn handle_plain_reject(&mut self, _now: Instant, _from: Path, _reason: &str) -> Result<(), Refused> {
        Ok(())
    }

    /// Anything authentic was heard from this path.
    pub fn heard(&mut self, _now: Instant, _from: Path) {}

    /// Whether the host is at this path.
    #[must_use]
    pub fn is_member(&self, _path: Path) -> bool {
        false
    }

    /// Whether the host confirmed its version: game frames and mesh traffic flow only then.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        false
    }

    /// The host moved. False when it was not at `old`.
    pub fn rekey(&mut self, _now: Instant, _old: Path, _new: Path) -> bool {
        false
    }

    /// Says something to everybody.
    pub fn chat(&mut self, _now: Instant, _text: &str) {}

    /// Puts a player (oneself when `None`) into a company.
    pub fn company(&mut self, _now: Instant, _player: Option<&str>, _id: u32) {}

    /// Co-op or companies; a relay's leader alone is heard.
    pub fn mode(&mut self, _now: Instant, _mode: Mode) {}

    /// What the player is doing.
    pub fn stage(&mut self, _now: Instant, _text: &str) {}

    /// Asks for another name.
    pub fn rename(&mut self, _now: Instant, _name: &str) {}

    /// Starts everybody without a save; a relay's leader alone is heard.
    pub fn start(&mut self, _now: Instant) {}

    /// A chat line for this player alone.
    pub fn note(&mut self, _now: Instant, _text: &str) {}

    /// Lines for the host's merged log.
    pub fn log(&mut self, _now: Instant, _lines: Vec<String>) {}

    /// Which players are reached directly.
    pub fn links(&mut self, _now: Instant, _direct: Vec<String>) {}

    /// Leaves; [`Event::Ended`] follows when the last copy is out.
    pub fn leave(&mut self, _now: Instant) {}

    /// The lobby as far as it is known.
    #[must_use]
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, _now: Instant) {}

    /// The next message to seal and send.
    pub fn poll_message(&mut self) -> Option<(Path, Vec<u8>)> {
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// When `handle_timeout` is next due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}
