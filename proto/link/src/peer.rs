//! One player: its names, its streams, when it is dialled next, what waits for it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use seam::StreamId;

use crate::Arrivals;

/// Packets that wait for a player's stream; beyond them the oldest are dropped, as they come by datagram too.
pub const QUEUE_MAX: usize = 1024;
/// Streams that stand for one player at most.
const STREAMS: usize = 2;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// When a player is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    /// Never: a Steam peer, or somebody only listened for.
    Never,
    /// At this instant.
    At(Instant),
    /// This stream is being opened.
    Trying(StreamId),
    /// A stream stands.
    Rests,
}

#[derive(Debug)]
pub(crate) struct Peer {
    /// What it may call itself: the name it has and the one it asked for. Empty: whatever it says.
    pub(crate) names: Vec<String>,
    /// The address number that is dialled.
    pub(crate) remote: SocketAddr,
    pub(crate) dial: Dial,
    pub(crate) pause: Duration,
    /// The first carries what goes out.
    pub(crate) streams: Vec<StreamId>,
    pub(crate) queue: VecDeque<Vec<u8>>,
    pub(crate) drops: u64,
    pub(crate) arrivals: Arrivals,
}

impl Peer {
    pub(crate) fn new(now: Instant, names: Vec<String>, remote: SocketAddr, dials: bool) -> Self {
        Self {
            names,
            remote,
            dial: if dials { Dial::At(now) } else { Dial::Never },
            pause: PAUSE_FIRST,
            streams: Vec::new(),
            queue: VecDeque::new(),
            drops: 0,
            arrivals: Arrivals::default(),
        }
    }

    /// Whether one more stream may stand for it.
    pub(crate) fn has_room(&self) -> bool {
        self.streams.len() < STREAMS
    }

    pub(crate) fn up(&mut self, stream: StreamId) {
        self.streams.push(stream);
        self.pause = PAUSE_FIRST;
        if matches!(self.dial, Dial::At(_)) || self.dial == Dial::Trying(stream) {
            self.dial = Dial::Rests;
        }
    }

    /// A stream is gone, or could not be opened: dialled again after a pause when none stands.
    pub(crate) fn down(&mut self, now: Instant, stream: StreamId) {
        self.streams.retain(|own| *own != stream);
        let tried = self.dial == Dial::Trying(stream);
        if self.dial == Dial::Never || !(tried || self.dial == Dial::Rests) {
            return;
        }
        if self.streams.is_empty() {
            self.queue.clear();
            self.dial = Dial::At(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else {
            self.dial = Dial::Rests;
        }
    }

    pub(crate) fn push(&mut self, frame: Vec<u8>) {
        if self.streams.is_empty() {
            return;
        }
        self.queue.push_back(frame);
        if self.queue.len() > QUEUE_MAX {
            self.queue.pop_front();
            self.drops += 1;
        }
    }
}
