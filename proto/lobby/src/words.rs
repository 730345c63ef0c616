//! What rooms above and panels read of a lobby.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use seam::{Path, Slots};
use thiserror::Error;

/// Where a session stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// A host that waits for players.
    #[default]
    Waiting,
    /// Looking for the host, or for the host again.
    Connecting,
    /// In a lobby.
    Connected,
    /// It did not work.
    Failed,
    /// It is over.
    Disconnected,
}

impl State {
    /// The word in messages and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Failed => "failed",
            Self::Disconnected => "disconnected",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is none of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not known here")]
pub struct UnknownWord(pub String);

impl FromStr for State {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        [Self::Waiting, Self::Connecting, Self::Connected, Self::Failed, Self::Disconnected]
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| UnknownWord(word.to_owned()))
    }
}

/// Who plays which company.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Everybody plays company 1.
    #[default]
    Coop,
    /// Everybody has a company of their own, unless they choose to share one.
    Companies,
}

impl Mode {
    /// The word in messages and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Coop => "coop",
            Self::Companies => "companies",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "coop" => Ok(Self::Coop),
            "companies" => Ok(Self::Companies),
            other => Err(UnknownWord(other.to_owned())),
        }
    }
}

/// Why a session is over. Each is one true sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum End {
    /// This player left.
    #[error("you left the lobby")]
    Quit,
    /// The host said goodbye.
    #[error("the host closed the lobby")]
    HostClosed,
    /// The host was lost and not found again.
    #[error("the host has gone and could not be reached again")]
    HostGone,
    /// The host does not want this player; its own words follow.
    #[error("the host refused: {0}")]
    Rejected(String),
    /// Two releases that do not play together.
    #[error("the host runs version {theirs}, this is version {mine}; both must be the same")]
    Version {
        /// This program's.
        mine: String,
        /// The host's.
        theirs: String,
    },
    /// The host never said which release it runs.
    #[error("the host did not confirm its version within 15 seconds (another release, or a wrong password)")]
    Unconfirmed,
    /// No candidate of the host answered; the text names the obstacle and the one thing to do.
    #[error("the host could not be reached: {0}")]
    Unreachable(String),
    /// The join code cannot be used; the text says what is wrong with it.
    #[error("bad code: {0}")]
    BadCode(String),
    /// A fault of this program itself; the text is for its authors.
    #[error("internal error: {0}")]
    Fault(String),
}

/// One player of a [`Roster`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Player {
    /// The seat, by which `links` name a player. No two players of a roster have the same; it says nothing else, and
    /// another roster may seat everybody anew.
    pub slot: u8,
    /// `a`, `b`, ..., `aa`, ...: fixed for the lobby's life. Empty while unknown.
    pub letter: String,
    /// 1 to 200.
    pub company: u32,
    /// What the player is doing; often empty.
    pub stage: String,
    /// The join code under which other joiners may dial this one.
    pub profile: Option<String>,
    /// Whom this player reaches directly, as it reported them: [`Roster::names`] tells who they are.
    pub links: Slots,
}

/// A lobby as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The own name. On a relay's roster of itself it is empty.
    pub you: String,
    /// The host's name, a relay's leader, or empty.
    pub host: String,
    /// The lobby's name.
    pub lobby: String,
    /// The host is a dedicated relay.
    pub relay: bool,
    /// Everybody, by name; the host among them unless it is a relay.
    pub players: BTreeMap<String, Player>,
    /// Who plays which company.
    pub mode: Mode,
    /// Whether this player was started.
    pub started: bool,
    /// Age in seconds of a relay's stored world, -1 for none.
    pub stored_age: i64,
    /// Oldest stored world a relay hands out, in seconds; -1 when the host is no relay.
    pub stored_max: i64,
    /// The world nonce, 32 lower-case hexadecimal digits; empty while unknown.
    pub transport_lobby: String,
}

impl Roster {
    /// Who sits in these slots, in the order of names.
    pub fn names(&self, slots: Slots) -> impl Iterator<Item = &str> {
        let seated = self.players.iter().filter(move |(_, player)| slots.contains(player.slot));
        seated.map(|(name, _)| name.as_str())
    }
}

/// What happens in a lobby, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Where the session stands, for a person.
    Status {
        /// The state.
        state: State,
        /// One sentence.
        detail: String,
    },
    /// The lobby as it is now. Of several that wait, only the newest is kept.
    Roster(Arc<Roster>),
    /// Somebody said something.
    Chat {
        /// Who.
        from: String,
        /// What, without control characters.
        text: String,
        /// When, Unix seconds; absent for notes of this program.
        ts: Option<u64>,
    },
    /// The game starts here.
    Start {
        /// With a save that was received.
        save: bool,
        /// Replacing a running world.
        switch: bool,
    },
    /// A world nonce that was not told before.
    TransportLobby(String),
    /// At a host: somebody was admitted.
    MemberJoined {
        /// The name given.
        name: String,
        /// Where it is.
        path: Path,
        /// It links with other joiners itself.
        mesh: bool,
        /// The join code under which other joiners may dial it.
        profile: Option<String>,
    },
    /// At a host: a member is called something else now.
    MemberRenamed {
        /// Where it is.
        path: Path,
        /// Its name before.
        old: String,
        /// Its name now.
        new: String,
    },
    /// At a host: a member took its seat again from another address.
    MemberMoved {
        /// Who.
        name: String,
        /// Where it was.
        old: Path,
        /// Where it is.
        new: Path,
    },
    /// At a host: a member is gone.
    MemberLeft {
        /// Who.
        name: String,
        /// Where it was.
        path: Path,
        /// One word or sentence for the log.
        reason: String,
    },
    /// At a host: a line of a member's log.
    PeerLog {
        /// Whose.
        name: String,
        /// The line, without control characters.
        line: String,
    },
    /// At a joiner: nothing comes from the host. Dial it again, then call `connected`.
    Rejoin,
    /// A line for the log. A path in it is masked; what others wrote in it is not.
    Log(String),
    /// The lobby is over. Nothing follows.
    Ended(End),
}
