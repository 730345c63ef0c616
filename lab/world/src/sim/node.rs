//! One session in a world, and what its player and its game have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use lobby::{End, Roster, State};
use seam::{Path, PooledBuf, Reply, Request};
use session::{Event, LOBBY, Session};

use super::Network;

/// A frame of the worlds' game: who made it, and its number.
pub(super) type FrameId = (u16, u32);

/// One session in a world.
pub struct Node {
    /// Its number in the plan.
    pub index: usize,
    /// Its present address.
    pub address: SocketAddr,
    /// When the world began.
    pub begun: Instant,
    /// The session. None once killed.
    pub session: Option<Session>,
    /// It does not get the processor until then.
    pub stalled_until: Option<Instant>,
    /// A host's code, when it is ready.
    pub code: Option<String>,
    /// The newest roster.
    pub roster: Arc<Roster>,
    /// The newest state.
    pub state: State,
    /// How it ended.
    pub end: Option<End>,
    /// Frames that reached the game, with how often.
    pub(super) frames: BTreeMap<FrameId, u32>,
    /// Chat lines, with how often.
    pub chat: BTreeMap<(String, String), u32>,
    /// World nonces in the order they were told.
    pub epochs: Vec<String>,
    /// Started, and how often.
    pub starts: u32,
    /// What was wrong with what it told.
    pub complaints: Vec<String>,
    /// Every event in turn, for a replay.
    pub trace: Option<Vec<String>>,
}

impl Node {
    /// A node of the world that began at `begun`.
    #[must_use]
    pub fn new(index: usize, address: SocketAddr, session: Session, begun: Instant) -> Self {
        Self {
            index,
            address,
            begun,
            session: Some(session),
            stalled_until: None,
            code: None,
            roster: Arc::default(),
            state: State::Connecting,
            end: None,
            frames: BTreeMap::new(),
            chat: BTreeMap::new(),
            epochs: Vec::new(),
            starts: 0,
            complaints: Vec::new(),
            trace: None,
        }
    }

    /// When it wants to be called.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let due = self.session.as_ref()?.poll_timeout()?.0;
        Some(self.stalled_until.map_or(due, |until| due.max(until)))
    }

    /// A datagram arrived.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, bytes: PooledBuf) {
        if let Some(session) = &mut self.session {
            // Whether it was taken is the session's affair; the world looks at what comes of it.
            let taken = session.handle_datagram(now, Path::new(LOBBY, from), bytes);
            if let (Err(refused), Some(trace)) = (taken, &mut self.trace) {
                trace.push(format!("{:.3} from {from}: {refused:?}", (now - self.begun).as_secs_f64()));
            }
        }
    }

    /// Timers, then everything it has to say, until it is quiet.
    pub fn turn(&mut self, now: Instant, network: &mut Network) {
        let Some(session) = &mut self.session else { return };
        if session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            session.handle_timeout(now);
        }
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        loop {
            session.poll_transmit(now, &mut out);
            let mut quiet = out.is_empty();
            for (path, bytes) in out.drain(..) {
                network.send(now, self.address, path.remote, bytes);
            }
            while let Some((id, request)) = session.poll_request() {
                quiet = false;
                let reply = match request {
                    Request::Stretch { password, timestamp } => {
                        Reply::Stretched(*joincode::stretch(password.reveal(), timestamp).as_bytes())
                    }
                    _ => Reply::Resolved(Vec::new()),
                };
                session.handle_reply(now, id, reply);
            }
            while let Some(event) = session.poll_event() {
                quiet = false;
                if let Some(trace) = &mut self.trace {
                    let at = (now - self.begun).as_secs_f64();
                    // A whole roster of a large world would fill a disk.
                    trace.push(match &event {
                        Event::Roster(roster) => format!("{at:.3} Roster of {}: {:?}", roster.you, shape(roster)),
                        Event::Links(_) => format!("{at:.3} Links"),
                        _ => format!("{at:.3} {event:?}"),
                    });
                }
                match event {
                    Event::Code(code) => self.code = Some(code),
                    Event::Status { state, .. } => self.state = state,
                    Event::Roster(roster) => self.roster = roster,
                    Event::Chat { from, text, .. } => *self.chat.entry((from, text)).or_default() += 1,
                    Event::Start { .. } => self.starts += 1,
                    Event::TransportLobby(epoch) => {
                        if self.epochs.contains(&epoch) {
                            self.complaints.push(format!("world nonce {epoch} was told twice"));
                        }
                        self.epochs.push(epoch);
                    }
                    Event::Frame { data, .. } => match frame_id(&data) {
                        Some(id) => *self.frames.entry(id).or_default() += 1,
                        None => self.complaints.push("a frame arrived changed".to_owned()),
                    },
                    Event::Ended(end) => self.end = Some(end),
                    _ => {}
                }
            }
            if quiet {
                break;
            }
        }
    }

    /// Whether it takes part: running, and not ended.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.session.is_some() && self.end.is_none()
    }
}

/// A frame as the worlds' game sends it: the two numbers, and filling that follows from them.
#[must_use]
pub(super) fn frame(id: FrameId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&id.0.to_be_bytes());
    bytes.extend_from_slice(&id.1.to_be_bytes());
    let filling = (id.1 % 97) as usize;
    bytes.resize(6 + filling, (id.1 % 251) as u8);
    bytes
}

fn frame_id(bytes: &[u8]) -> Option<FrameId> {
    let mut reader = codec::Reader::new(bytes);
    let id = (reader.u16("maker").ok()?, reader.u32("number").ok()?);
    (frame(id) == bytes).then_some(id)
}

/// Host, lobby, mode, and each player's name, letter, company and stage.
type Shape = (String, String, String, BTreeSet<(String, String, u32, String)>);

/// The rosters of a world in a form in which two can be compared.
#[must_use]
pub(super) fn shape(roster: &Roster) -> Shape {
    let players = roster
        .players
        .iter()
        .map(|(name, player)| (name.clone(), player.letter.clone(), player.company, player.stage.clone()))
        .collect();
    (roster.host.clone(), roster.lobby.clone(), roster.mode.to_string(), players)
}
