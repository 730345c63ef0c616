//! What a session is told and what it tells.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lobby::{End, Mode, Roster, State};
use seam::LinkStats;

use parcel::Progress;

use crate::{Behaviour, PortMap, PortState, Publish, Via};

/// What a player or a game asks of its session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Say something to everybody.
    Chat(String),
    /// Be called something else.
    Name(String),
    /// Put a player (oneself when `None`) into a company.
    Company {
        /// Whose company; a joiner may name only itself.
        player: Option<String>,
        /// 1 to 200.
        id: u32,
    },
    /// What the player is doing; empty clears.
    Stage(String),
    /// Co-op or companies.
    Mode(Mode),
    /// Start everybody.
    Start {
        /// A save goes with it.
        save: bool,
        /// It replaces a running world.
        switch: bool,
    },
    /// Start everybody who waits with a save: each gets its files first.
    StartWith {
        /// Each file and the name it travels under ([`parcel::SAVE_NAMES`]).
        files: Vec<(PathBuf, String)>,
        /// It replaces a running world.
        switch: bool,
    },
    /// The own game is making a newer save: for two minutes latecomers are not served with the last one.
    SaveComing,
    /// Lines for the host's merged log.
    Log(Vec<String>),
    /// A chat line for this player alone.
    Note(String),
    /// Remove a player, who reads `text`.
    Kick {
        /// Who.
        player: String,
        /// Why.
        text: String,
    },
    /// A frame of the game in this process.
    Frame(Bytes),
    /// The same for one player alone.
    FrameTo {
        /// Who, by name.
        to: Arc<str>,
        /// The frame.
        data: Bytes,
    },
    /// List the lobby publicly from now on, or no more.
    Publish(Option<Publish>),
    /// What this machine's router says of the lobby's port: the driver's word, not a player's.
    PortMap(PortMap),
    /// Leave, telling everybody.
    Quit,
}

/// What happens in a session, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A host's code is ready to be given away.
    Code(String),
    /// Where the session stands, for a person.
    Status {
        /// The state.
        state: State,
        /// One sentence.
        detail: String,
    },
    /// The lobby as it is now.
    Roster(Arc<Roster>),
    /// Somebody said something.
    Chat {
        /// Who.
        from: String,
        /// What.
        text: String,
        /// When, Unix seconds; absent for notes of this program.
        ts: Option<u64>,
    },
    /// The game starts.
    Start {
        /// With a save that was received.
        save: bool,
        /// Replacing a running world.
        switch: bool,
    },
    /// Files are on their way.
    Transfer {
        /// They go from here; else they come.
        send: bool,
        /// To or from whom.
        peer: String,
        /// How it goes.
        moved: Moved,
    },
    /// A save was received whole and verified; its files bear their names.
    SaveReady {
        /// Their names, the save first.
        files: Vec<String>,
    },
    /// A new world nonce for the game's bridge.
    TransportLobby(String),
    /// A line of another player's log.
    PeerLog {
        /// Whose.
        name: String,
        /// The line, without control characters.
        line: String,
    },
    /// What is known of the links, by player name; once a second.
    Links(Arc<BTreeMap<String, LinkStats>>),
    /// A frame for the game in this process.
    Frame {
        /// Who sent it, where the frame says so.
        from: Option<String>,
        /// Its bytes.
        data: Bytes,
    },
    /// A joiner has a path to its host, or another one than before.
    Won {
        /// Which kind.
        via: Via,
        /// Since the host was first dialled.
        after: Duration,
    },
    /// How this machine's router behaves, where the configuration wants to know.
    Router {
        /// By the tests of RFC 5780.
        behaviour: Behaviour,
        /// What servers saw; empty when none answered.
        public: Vec<SocketAddrV4>,
    },
    /// What is known of the lobby's port at this machine's router. Said again when it changes.
    Port(PortState),
    /// A line for the log. Addresses in it are not masked yet: the sink does that.
    Log(String),
    /// The session is over. Nothing follows.
    Ended(End),
}

/// How a transfer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moved {
    /// How far the receiver is; about once a second.
    Progress(Progress),
    /// A byte stream, or QUIC, carries it from now on.
    Streaming,
    /// That broke: chunks carry the rest.
    Chunks,
    /// What arrived was not what was offered: it begins again.
    Again,
    /// The receiver has verified everything.
    Done,
    /// It will not come about, and why.
    Failed(String),
    /// The receiver left.
    Dropped,
}
