//! The machine.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use seal::{Opener, Sealer};
use seam::{Masked, Path, StreamAsk, StreamEnd, StreamId};

use crate::hello::{Hello, LINE_MAX, PREFIX, cut, hello};
use crate::peer::{Dial, Peer};
use crate::{Frames, Via, frame};

/// Players with a link at most: as many as a lobby holds.
pub const PEERS_MAX: usize = 200;
/// Streams at once: two for each player, and strangers that did not greet yet.
pub const STREAMS_MAX: usize = 464;
/// Packets received and not fetched; beyond them the newest are dropped, as a full socket would.
pub const ARRIVALS_MAX: usize = 4096;
/// Between an own greeting and the first frame behind it.
pub const HELLO_GAP: Duration = Duration::from_millis(200);
/// Time for a greeting to come.
const HELLO_FOR: Duration = Duration::from_secs(5);
/// Time for the join of somebody who greeted already.
const JOIN_FOR: Duration = Duration::from_secs(10);
/// One attempt to connect.
const DIAL_FOR: Duration = Duration::from_secs(1);
/// Between two lines of statistics.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How this process takes part.
#[derive(Clone, Debug)]
pub struct Config {
    /// The own name, told in greetings.
    pub name: String,
    /// The port to dial from: the lobby's, so that a dial from both ends meets in one connection.
    pub port: Option<u16>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A player's first stream stands.
    Up {
        /// Whose.
        path: Path,
        /// Whether this end connected.
        dialled: bool,
    },
    /// A player's last stream is gone.
    Down {
        /// Whose.
        path: Path,
    },
    /// A line for the log.
    Log(String),
}

/// How far a stream is.
#[derive(Debug)]
enum Stage {
    /// We connect.
    Dialling { peer: Path },
    /// Somebody connected and has to greet.
    Greeting { line: Vec<u8>, until: Instant },
    /// It greeted, and its join is not there yet. What comes already is kept.
    Early { name: String, held: Vec<u8>, until: Instant },
    /// It carries a player's packets. `quiet_until` keeps the first frame off our greeting.
    Up { peer: Path, frames: Frames, greeted: bool, quiet_until: Instant },
}

#[derive(Debug)]
struct Stream {
    remote: SocketAddr,
    stage: Stage,
    /// The driver takes no more for now.
    full: bool,
}

/// Most bytes of input that one stream may hold: frames of somebody whose join is not there yet.
const HELD_MAX: usize = 64 << 10;

/// The backup links of one process.
#[derive(Debug)]
pub struct Links {
    config: Config,
    peers: BTreeMap<Path, Peer>,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u64,
    asks: VecDeque<StreamAsk>,
    arrivals: VecDeque<(Path, BytesMut)>,
    arrivals_dropped: u64,
    events: VecDeque<Event>,
    line_at: Instant,
    /// Players whose queue may have something to write.
    ready: bool,
}

impl Links {
    /// A process with no links. Streams it dials are numbered from `first_stream` up.
    #[must_use]
    pub fn new(config: Config, first_stream: u64, now: Instant) -> Self {
        Self {
            config,
            peers: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream: first_stream,
            asks: VecDeque::new(),
            arrivals: VecDeque::new(),
            arrivals_dropped: 0,
            events: VecDeque::new(),
            line_at: now + LINE_EVERY,
            ready: false,
        }
    }

    // ---- players ------------------------------------------------------------------------------------------------

    /// A player of a sealed session is there. `names` are what it may call itself, the one it has and the one it asked
    /// for (pain 89); empty takes any. Said again, it changes the names.
    pub fn set_peer(&mut self, now: Instant, path: Path, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| cut(name).to_owned()).collect();
        if let Some(peer) = self.peers.get_mut(&path) {
            peer.names = names;
        } else if self.peers.len() < PEERS_MAX {
            // Pain 93: an address that stands for a Steam peer has no TCP port.
            let dials = !np1::is_tunnel(path.remote);
            self.peers.insert(path, Peer::new(now, names, path.remote, dials));
        }
        self.settle_early(now);
    }

    /// A player is gone.
    pub fn remove_peer(&mut self, path: Path) {
        let Some(peer) = self.peers.remove(&path) else { return };
        let trying = if let Dial::Trying(stream) = peer.dial { Some(stream) } else { None };
        for stream in peer.streams.into_iter().chain(trying) {
            self.close(stream);
        }
        self.arrivals.retain(|(from, _)| *from != path);
    }

    /// A player has another address; its streams stay.
    pub fn rekey(&mut self, old: Path, new: Path) {
        let Some(mut peer) = self.peers.remove(&old) else { return };
        peer.remote = new.remote;
        self.peers.insert(new, peer);
        for stream in self.streams.values_mut() {
            if let Stage::Dialling { peer } | Stage::Up { peer, .. } = &mut stream.stage
                && *peer == old
            {
                *peer = new;
            }
        }
        self.arrivals.iter_mut().filter(|(from, _)| *from == old).for_each(|(from, _)| *from = new);
    }

    /// Whether packets to `path` go out a second time.
    #[must_use]
    pub fn is_up(&self, path: Path) -> bool {
        self.peers.get(&path).is_some_and(|peer| !peer.streams.is_empty())
    }

    /// Sends a sealed packet a second time. Where no link stands nothing happens.
    pub fn send(&mut self, path: Path, packet: &[u8]) {
        let Some(peer) = self.peers.get_mut(&path) else { return };
        if let Some(bytes) = frame(packet) {
            peer.push(bytes);
            self.ready |= !peer.queue.is_empty();
        }
    }

    /// A copy of an authentic sealed packet of `path` came, new or seen before.
    pub fn heard(&mut self, now: Instant, path: Path, salt: [u8; 4], counter: u32, via: Via) {
        if let Some(peer) = self.peers.get_mut(&path).filter(|peer| !peer.streams.is_empty()) {
            peer.arrivals.heard(now, salt, counter, via);
        }
    }

    // ---- streams ------------------------------------------------------------------------------------------------

    /// A stream we dialled is open.
    pub fn handle_connected(&mut self, now: Instant, id: StreamId, sealer: &mut Sealer) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Stage::Dialling { peer } = stream.stage else { return };
        stream.stage = Stage::Up { peer, frames: Frames::default(), greeted: false, quiet_until: now + HELLO_GAP };
        let bytes = hello(&self.config.name, sealer);
        self.asks.push_back(StreamAsk::Write { stream: id, bytes });
        self.stand(peer, id, true);
    }

    /// Somebody connected; `first` is what was read of it already.
    pub fn handle_accepted(&mut self, now: Instant, id: StreamId, remote: SocketAddr) {
        if self.streams.len() >= STREAMS_MAX || self.streams.contains_key(&id) {
            self.asks.push_back(StreamAsk::Close { stream: id });
            return;
        }
        let stage = Stage::Greeting { line: Vec::new(), until: now + HELLO_FOR };
        self.streams.insert(id, Stream { remote, stage, full: false });
    }

    /// Bytes came on a stream.
    pub fn handle_bytes(&mut self, now: Instant, id: StreamId, mut bytes: &[u8], opener: &mut Opener) {
        // A greeting and frames behind it may come in one piece.
        while !bytes.is_empty() {
            let Some(stream) = self.streams.get_mut(&id) else { return };
            match &mut stream.stage {
                Stage::Dialling { .. } => return,
                Stage::Greeting { line, until: _ } => {
                    let Some(whole) = take_line(line, &mut bytes) else {
                        if line.len() >= LINE_MAX {
                            self.refuse(id, "no greeting");
                        }
                        continue;
                    };
                    self.greeted(now, id, &whole, opener);
                }
                Stage::Early { held, .. } => {
                    held.extend_from_slice(bytes);
                    if held.len() > HELD_MAX {
                        self.refuse(id, "too much before a join");
                    }
                    return;
                }
                Stage::Up { .. } => {
                    self.frames(now, id, bytes, opener);
                    return;
                }
            }
        }
    }

    /// A stream is gone, or could not be opened.
    pub fn handle_closed(&mut self, now: Instant, id: StreamId, why: StreamEnd) {
        let Some(stream) = self.streams.remove(&id) else { return };
        match stream.stage {
            Stage::Dialling { peer } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.down(now, id);
                }
            }
            Stage::Up { peer, .. } => self.fall(now, peer, id, &why.to_string()),
            Stage::Greeting { .. } | Stage::Early { .. } => {}
        }
    }

    /// The driver's buffer of a stream is full, or has room again.
    pub fn handle_full(&mut self, id: StreamId, full: bool) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.full = full;
            self.ready |= !full;
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.dial_due(now);
        let late: Vec<StreamId> = self.streams.iter().filter(|(_, s)| is_late(s, now)).map(|(id, _)| *id).collect();
        for id in late {
            self.refuse(id, "nobody greeted or joined in time");
        }
        let over = |s: &Stream| matches!(s.stage, Stage::Up { quiet_until, .. } if quiet_until <= now);
        self.ready |= self.streams.values().any(over);
        if now >= self.line_at {
            self.line_at = now + LINE_EVERY;
            self.lines(now);
        }
    }

    // ---- outputs ------------------------------------------------------------------------------------------------

    /// What is to be done with streams.
    pub fn poll_stream(&mut self, now: Instant) -> Option<StreamAsk> {
        if let Some(ask) = self.asks.pop_front() {
            return Some(ask);
        }
        if !self.ready {
            return None;
        }
        for peer in self.peers.values_mut() {
            let Some(id) = peer.streams.first() else { continue };
            let open = self.streams.get(id).is_some_and(|s| is_open(s, now));
            if let Some(bytes) = open.then(|| peer.queue.pop_front()).flatten() {
                return Some(StreamAsk::Write { stream: *id, bytes });
            }
        }
        self.ready = false;
        None
    }

    /// The next packet that came on a link, with the path of the player it is from.
    pub fn poll_packet(&mut self) -> Option<(Path, BytesMut)> {
        self.arrivals.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Links::handle_timeout`]; an instant that has passed while anything is queued.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let past = self.line_at.checked_sub(LINE_EVERY).unwrap_or(self.line_at);
        if !self.asks.is_empty() || self.ready || !self.arrivals.is_empty() || !self.events.is_empty() {
            return Some((past, "a backup link has something queued"));
        }
        let dials = self.peers.values().filter_map(|peer| match peer.dial {
            Dial::At(at) => Some((at, "a backup link is dialled")),
            Dial::Never | Dial::Trying(_) | Dial::Rests => None,
        });
        let stages = self.streams.iter().filter_map(|(id, stream)| match &stream.stage {
            Stage::Greeting { until, .. } | Stage::Early { until, .. } => Some((*until, "a greeting is late")),
            Stage::Up { quiet_until, peer, .. } => {
                let first = |peer: &&Peer| peer.streams.first() == Some(id) && !peer.queue.is_empty();
                let waits = self.peers.get(peer).as_ref().is_some_and(first);
                (waits && !stream.full).then_some((*quiet_until, "the first frame behind a greeting"))
            }
            Stage::Dialling { .. } => None,
        });
        let line = (!self.peers.is_empty()).then_some((self.line_at, "a line of statistics"));
        dials.chain(stages).chain(line).min_by_key(|(at, _)| *at)
    }

    // ---- inside -------------------------------------------------------------------------------------------------

    fn dial_due(&mut self, now: Instant) {
        for (path, peer) in &mut self.peers {
            let due = matches!(peer.dial, Dial::At(at) if at <= now);
            if !due || !peer.streams.is_empty() || self.streams.len() >= STREAMS_MAX {
                if due {
                    peer.dial = if peer.streams.is_empty() { Dial::At(now + DIAL_FOR) } else { Dial::Rests };
                }
                continue;
            }
            let stream = StreamId(self.next_stream);
            self.next_stream += 1;
            peer.dial = Dial::Trying(stream);
            let remote = peer.remote;
            self.streams.insert(stream, Stream { remote, stage: Stage::Dialling { peer: *path }, full: false });
            self.asks.push_back(StreamAsk::Dial { stream, remote, from: self.config.port, timeout: DIAL_FOR });
        }
    }

    /// A whole greeting on a stream that somebody opened.
    fn greeted(&mut self, now: Instant, id: StreamId, line: &[u8], opener: &mut Opener) {
        let name = Hello::parse(line).and_then(|hello| hello.open(now, opener));
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match name {
            Ok(name) => {
                stream.stage = Stage::Early { name, held: Vec::new(), until: now + JOIN_FOR };
                self.settle_early(now);
            }
            Err(error) => self.refuse(id, &error.to_string()),
        }
    }

    /// Gives streams that greeted to the players they are of.
    fn settle_early(&mut self, now: Instant) {
        let early: Vec<StreamId> =
            self.streams.iter().filter(|(_, s)| matches!(s.stage, Stage::Early { .. })).map(|(id, _)| *id).collect();
        for id in early {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Stage::Early { name, held, .. } = &mut stream.stage else { continue };
            let peer = match find(&self.peers, name, stream.remote) {
                Found::One(peer) => peer,
                Found::None => continue,
                Found::Several => {
                    self.refuse(id, "several players it may be of");
                    continue;
                }
            };
            let frames = Frames::new(held);
            stream.stage = Stage::Up { peer, frames, greeted: true, quiet_until: now };
            self.stand(peer, id, false);
            self.unpack(now, id);
        }
    }

    /// Bytes of a stream that stands: frames, and before the first of them perhaps a greeting.
    fn frames(&mut self, now: Instant, id: StreamId, bytes: &[u8], opener: &mut Opener) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Stage::Up { frames, greeted, peer, .. } = &mut stream.stage else { return };
        frames.push(bytes);
        if !*greeted {
            match frames.take_greeting(PREFIX.as_bytes(), LINE_MAX) {
                Greeting::More => return,
                Greeting::None => *greeted = true,
                Greeting::Overlong => return self.fail(now, id, "a greeting without an end"),
                Greeting::Line(line) => {
                    *greeted = true;
                    // Pain 91: both connected, in one connection.
                    let named = self.peers.get(peer).map(|peer| peer.names.clone()).unwrap_or_default();
                    let name = Hello::parse(&line).and_then(|hello| hello.open(now, opener));
                    match name {
                        Ok(name) if named.is_empty() || named.contains(&name) => {}
                        Ok(_) => return self.fail(now, id, "somebody else greeted"),
                        Err(error) => return self.fail(now, id, &error.to_string()),
                    }
                }
            }
        }
        self.unpack(now, id);
    }

    fn unpack(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Stage::Up { frames, peer, .. } = &mut stream.stage else { return };
        loop {
            match frames.next_packet() {
                Ok(Some(packet)) if self.arrivals.len() < ARRIVALS_MAX => self.arrivals.push_back((*peer, packet)),
                Ok(Some(_)) => self.arrivals_dropped += 1,
                Ok(None) => return,
                Err(error) => return self.fail(now, id, &error.to_string()),
            }
        }
    }

    fn stand(&mut self, path: Path, id: StreamId, dialled: bool) {
        let Some(peer) = self.peers.get_mut(&path) else { return };
        let first = peer.streams.is_empty();
        peer.up(id);
        self.ready |= !peer.queue.is_empty();
        if first {
            let who = if dialled { "this end" } else { "the other end" };
            let at = Masked(peer.remote);
            self.events.push_back(Event::Log(format!("[dual] TCP link with {at} up ({who} connected)")));
            self.events.push_back(Event::Up { path, dialled });
        }
    }

    fn fall(&mut self, now: Instant, path: Path, id: StreamId, why: &str) {
        let Some(peer) = self.peers.get_mut(&path) else { return };
        peer.down(now, id);
        if peer.streams.is_empty() {
            let at = Masked(peer.remote);
            self.events.push_back(Event::Log(format!("[dual] TCP link with {at} gone: {why}")));
            self.events.push_back(Event::Down { path });
        } else {
            self.ready = true;
        }
    }

    /// Closes a stream that stood.
    fn fail(&mut self, now: Instant, id: StreamId, why: &str) {
        let peer = match self.streams.get(&id).map(|stream| &stream.stage) {
            Some(Stage::Up { peer, .. }) => *peer,
            _ => return,
        };
        self.close(id);
        self.fall(now, peer, id, why);
    }

    /// Closes a stream that never stood.
    fn refuse(&mut self, id: StreamId, why: &str) {
        if let Some(stream) = self.streams.get(&id) {
            self.events.push_back(Event::Log(format!("[dual] TCP link from {} refused: {why}", Masked(stream.remote))));
        }
        self.close(id);
    }

    fn close(&mut self, id: StreamId) {
        if self.streams.remove(&id).is_some() {
            self.asks.push_back(StreamAsk::Close { stream: id });
        }
    }

    fn lines(&mut self, now: Instant) {
        for peer in self.peers.values_mut() {
            let line = peer.arrivals.take(now);
            let drops = std::mem::take(&mut peer.drops);
            if !line.is_empty() || drops > 0 {
                let name = peer.names.first().map_or("host", String::as_str);
                self.events.push_back(Event::Log(format!("[dual] {name}: {line}; queue_drops={drops}")));
            }
        }
    }
}

fn is_late(stream: &Stream, now: Instant) -> bool {
    matches!(&stream.stage, Stage::Greeting { until, .. } | Stage::Early { until, .. } if *until <= now)
}

fn is_open(stream: &Stream, now: Instant) -> bool {
    !stream.full && matches!(stream.stage, Stage::Up { quiet_until, .. } if quiet_until <= now)
}

/// Moves bytes up to a newline into `line`; the whole line when it is there. Takes at most [`LINE_MAX`] in all.
fn take_line(line: &mut Vec<u8>, bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let room = LINE_MAX.saturating_sub(line.len()).min(bytes.len());
    let (head, _) = bytes.split_at(room);
    let end = head.iter().position(|byte| *byte == b'\n');
    let (head, rest) = bytes.split_at(end.map_or(room, |end| end + 1));
    line.extend_from_slice(head);
    *bytes = rest;
    end.map(|_| std::mem::take(line))
}

enum Found {
    None,
    One(Path),
    Several,
}

/// Whose stream this is: by name among those without a stream, or else with room for one; then by address, then by its
/// number alone (pain 46).
fn find(peers: &BTreeMap<Path, Peer>, name: &str, remote: SocketAddr) -> Found {
    let named = |peer: &Peer| peer.names.iter().any(|own| own == name) || peer.names.is_empty();
    let among = |test: &dyn Fn(&Peer) -> bool| -> Vec<Path> {
        peers.iter().filter(|(_, peer)| test(peer) && named(peer)).map(|(path, _)| *path).collect()
    };
    let mut candidates = among(&|peer| peer.streams.is_empty());
    if candidates.is_empty() {
        candidates = among(&Peer::has_room);
    }
    let by = |test: &dyn Fn(&Path) -> bool| -> Vec<Path> { candidates.iter().copied().filter(test).collect() };
    let exact = by(&|path| path.remote == remote);
    let near = by(&|path| path.remote.ip() == remote.ip());
    for list in [&candidates, &exact, &near] {
        match list.as_slice() {
            [] if std::ptr::eq(list, &candidates) => return Found::None,
            [one] => return Found::One(*one),
            _ => {}
        }
    }
    Found::Several
}

/// What stands where a greeting may stand.
pub(crate) enum Greeting {
    More,
    None,
    Overlong,
    Line(Vec<u8>),
}
