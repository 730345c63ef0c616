//! What goes into a mesh and what comes out of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use seam::{Path, Slots};

/// What this end is in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The host everybody has a link to.
    Host {
        /// A dedicated relay: no game behind it, it only passes frames on.
        relay_only: bool,
    },
    /// A joiner.
    Joiner {
        /// Whether it links to other joiners; without, everything goes through the host.
        mesh: bool,
    },
}

/// What a mesh is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// What this end is.
    pub role: Role,
}

/// What a joiner's mesh needs of the newest roster. It borrows: nothing is copied to ask.
#[derive(Clone, Debug, Default)]
pub struct RosterView<'a> {
    /// The own name, as the host gave it.
    pub me: &'a str,
    /// The host's name; on a relay its leader's, who is a joiner like any other.
    pub host: Option<&'a str>,
    /// Whether the host is a relay without a game.
    pub relay: bool,
    /// Everybody by name, oneself and a playing host included.
    pub players: BTreeMap<&'a str, Seat<'a>>,
}

/// One player of a [`RosterView`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat<'a> {
    /// By which the others' `links` name this player; no two players have the same.
    pub slot: u8,
    /// The profile code of a player who can be dialled.
    pub profile: Option<&'a str>,
    /// Whom this player says to reach directly.
    pub links: Slots,
}

/// One payload and everybody who gets a copy: sealed once, sent `to.len()` times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// Receivers, each once.
    pub to: Vec<Path>,
    /// What they get.
    pub payload: Outgoing,
}

/// A payload to seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A game frame, without its letter `g`.
    Game(Bytes),
    /// A game frame to wrap into an envelope (netpunch wire, section 8.2).
    Envelope {
        /// The player it is for.
        to: Arc<str>,
        /// The player it is from.
        from: Arc<str>,
        /// The frame, without its letter `g`.
        frame: Bytes,
    },
    /// A whole envelope that is passed on as it came, letter `r` included.
    Raw(Bytes),
    /// The message `mesh_hi` with the own name.
    Hi(Arc<str>),
}

/// Why a link is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Nothing was heard on it for 30 s.
    Silent,
    /// Its player left the roster.
    Left,
    /// Another path to the same player is used instead.
    Replaced,
    /// Its player goes by another name; the path comes up again under that.
    Renamed,
}

/// What a mesh has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame for the own game.
    Deliver {
        /// Its sender, where it is known. A frame on the host link counts as the host's, also when the host passes on
        /// a frame of a player without a mesh.
        from: Option<String>,
        /// The frame, without its letter `g`.
        frame: Bytes,
    },
    /// A player shall be dialled, for at most [`DIAL_FOR`](crate::DIAL_FOR).
    Dial {
        /// Whom.
        name: String,
        /// The player's profile code.
        profile: String,
    },
    /// A running dial is of no use any more.
    CancelDial {
        /// Whom it was for.
        name: String,
    },
    /// This path is used for this player from now on, and shall be kept alive.
    LinkUp {
        /// The player.
        name: String,
        /// The path.
        path: Path,
    },
    /// This path is not used any more.
    LinkDown {
        /// The player.
        name: String,
        /// The path.
        path: Path,
        /// The reason.
        why: Down,
    },
    /// The names to report to the host as reached directly, sorted.
    Direct(Vec<String>),
    /// The own game's bridge sent a datagram that is too long for a frame. Said at most every 5 s.
    Oversize {
        /// Its length.
        size: usize,
    },
}

/// Counters since the mesh was made. Copies, not frames, where one frame goes to several players.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames taken from the own game.
    pub local: u64,
    /// Copies of own frames queued for sending.
    pub sent: u64,
    /// Frames handed to the own game.
    pub delivered: u64,
    /// Copies of others' frames passed on.
    pub forwarded: u64,
    /// Copies with nobody to go to: unknown name, or no way to the player at the moment.
    pub no_peer: u64,
    /// Datagrams of the own game over the limit of a frame.
    pub oversize: u64,
    /// Frames and envelopes refused because of who sent them.
    pub refused: u64,
    /// Copies and deliveries dropped because a queue was full.
    pub overflow: u64,
}

impl Stats {
    /// The line that old log readers know, `before` being the counters of ten seconds ago.
    #[must_use]
    pub fn line(&self, before: &Self) -> String {
        format!(
            "[relay] stats: forwarded={} (+{}) delivered={} (+{}) in 10s; no_peer={} oversize={}",
            self.forwarded,
            self.forwarded.saturating_sub(before.forwarded),
            self.delivered,
            self.delivered.saturating_sub(before.delivered),
            self.no_peer,
            self.oversize,
        )
    }
}
