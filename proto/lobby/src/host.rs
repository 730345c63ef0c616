//! The host's half of a lobby.

use std::sync::Arc;
use std::time::Instant;

use seam::{Path, Refused};

use crate::{Event, HostConfig, Mode, Roster};

/// The host's half of a lobby.
#[derive(Debug)]
pub struct Host {
    roster: Arc<Roster>,
}

impl Host {
    /// A lobby with nobody but the host in it. `wall` is the Unix time at `now`.
    #[must_use]
    pub fn new(config: Arc<HostConfig>, seed: [u8; 32], now: Instant, wall: u64) -> Self {
        let _ = (config, seed, now, wall);
        Self { roster: Arc::default() }
    }

    /// Takes one opened JSON message of anybody who holds the key.
    ///
    /// # Errors
    /// Why it was not taken; nothing changed then.
    pub fn handle_message(&mut self, now: Instant, from: Path, json: &[u8]) -> Result<(), Refused> {
        let _ = (now, from, json);
        Ok(())
    }

    /// An authenticated frame that is no lobby message came from somebody who is no member.
    pub fn unknown_member(&mut self, _now: Instant, _from: Path) {}

    /// Anything authentic was heard from this path.
    pub fn heard(&mut self, _now: Instant, _from: Path) {}

    /// Whether a member is at this path.
    #[must_use]
    pub fn is_member(&self, _path: Path) -> bool {
        false
    }

    /// The member at this path.
    #[must_use]
    pub fn name_of(&self, _path: Path) -> Option<&str> {
        None
    }

    /// Where a member is.
    #[must_use]
    pub fn path_of(&self, _name: &str) -> Option<Path> {
        None
    }

    /// A member moved. False when nobody is at `old` or somebody is at `new`.
    pub fn rekey(&mut self, _now: Instant, _old: Path, _new: Path) -> bool {
        false
    }

    /// Says something to everybody.
    pub fn chat(&mut self, _now: Instant, _text: &str) {}

    /// Starts everybody who was not started yet.
    pub fn start(&mut self, _now: Instant, _save: bool) {}

    /// Puts a player, the host itself when `None`, into a company.
    ///
    /// # Errors
    /// [`Refused`] for an unknown player, a company outside 1 to 200, or in co-op.
    pub fn company(&mut self, _now: Instant, _player: Option<&str>, _id: u32) -> Result<(), Refused> {
        Ok(())
    }

    /// Co-op or companies.
    pub fn mode(&mut self, _now: Instant, _mode: Mode) {}

    /// What the host's player is doing.
    pub fn stage(&mut self, _now: Instant, _text: &str) {}

    /// A chat line for the host alone.
    pub fn note(&mut self, _now: Instant, _text: &str) {}

    /// Gives the host another name.
    pub fn rename(&mut self, _now: Instant, _name: &str) {}

    /// Removes a player, who reads `text`. False when there is none of that name.
    pub fn kick(&mut self, _now: Instant, _player: &str, _text: &str) -> bool {
        false
    }

    /// Says goodbye to everybody; [`Event::Ended`] follows when the last copy is out.
    pub fn close(&mut self, _now: Instant) {}

    /// The lobby as it is now.
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
