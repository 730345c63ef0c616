//! One offer to everybody who is to have it, in the old forms.

mod quic;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use np1::{CHUNK_HEADER, Chunk, HEADER};
use seam::{Outbox, Path, StreamAsk, StreamEnd, StreamId, Until};

use crate::blocks::Blocks;
use crate::hello::{ANSWER, Hello, LINE_MAX, PAIRED, Role, pipe_line};
use crate::target::{Carrier, Phase, Pipe, Target};
use crate::words::{self, Offer, OfferedFile, TcpOffer, Word};
use crate::{Answer, Ask, Failure, Fault, Kind, Progress, Transport};

/// Datagrams for one receiver in one turn, and the time between two turns.
const TURN: usize = 256;
const TURN_EVERY: Duration = Duration::from_millis(2);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// When the master's pipe is worth meeting at (netpunch wire, section 9.7).
const PIPE_AFTER: Duration = Duration::from_secs(15);
const PIPE_LEFT: u64 = 60;
const PIPE_BYTES: u64 = 16 << 20;
const PIPE_DIAL: Duration = Duration::from_secs(3);
/// Receivers of one offer at most.
pub const TARGETS_MAX: usize = 200;

/// What is sent, and how.
#[derive(Clone, Debug)]
pub struct Shipment {
    /// Names the transfer.
    pub sid: u32,
    /// What it is.
    pub kind: Kind,
    /// Each file and the name it travels under.
    pub files: Vec<(PathBuf, String)>,
    /// Mods a save needs; `None` when the list could not be read.
    pub mods: Option<Vec<(String, i64)>>,
    /// 32 hexadecimal digits, where streams are possible, and the port this end listens at.
    pub tcp: Option<(String, Option<u16>)>,
    /// The master's pipe, where there is one, and what names the pair of each receiver: drawn from these bytes.
    pub pipe: Option<(SocketAddr, [u8; 32])>,
    /// A fresh, secret seed where QUIC is offered to those who speak it.
    pub quic: Option<[u8; 32]>,
    /// Streams that this end dials are numbered from here.
    pub first_stream: u64,
}

/// What became of one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// A stream carries it from now on.
    Streaming,
    /// A stream broke; chunks carry the rest.
    StreamBroke,
    /// It has verified everything.
    Done,
    /// It did not.
    Failed(Failure),
    /// It left.
    Dropped,
}

/// How an offer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Who has verified everything.
    pub done: Vec<Path>,
    /// Who did not, by name, and why: then nobody starts.
    pub failed: Vec<(String, Failure)>,
    /// Who left.
    pub dropped: usize,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendEvent {
    /// Something became of a receiver.
    Fate {
        /// Whose.
        path: Path,
        /// What.
        fate: Fate,
    },
    /// How far a receiver is; about once a second.
    Progress {
        /// Whose.
        path: Path,
        /// How far.
        progress: Progress,
    },
    /// Everybody has it, failed or left. Nothing follows.
    Resolved(Outcome),
}

/// One offer.
#[derive(Debug)]
pub struct Sender {
    shipment: Shipment,
    /// Absent until the files are measured.
    offer: Option<Offer>,
    window: u32,
    means: Option<quic::Means>,
    targets: BTreeMap<Path, Target>,
    blocks: Blocks,
    asks: VecDeque<Ask>,
    streams: VecDeque<StreamAsk>,
    messages: VecDeque<(Path, Vec<u8>)>,
    events: VecDeque<SendEvent>,
    next_stream: u64,
    tell_at: Instant,
    begun: Instant,
    over: bool,
}

impl Sender {
    /// An offer to `targets`, at most [`TARGETS_MAX`] of them, each with its name. The size of chunks is decided here,
    /// for all of them (pain 57).
    #[must_use]
    pub fn new(shipment: Shipment, targets: &[(Path, &str)], now: Instant) -> Self {
        let files = shipment.files.iter().map(|(path, _)| path.clone()).collect();
        let targets: BTreeMap<Path, Target> =
            targets.iter().take(TARGETS_MAX).map(|(path, name)| (*path, Target::new(now, name))).collect();
        let mut sender = Self {
            next_stream: shipment.first_stream,
            shipment,
            offer: None,
            window: 0,
            means: None,
            targets,
            blocks: Blocks::default(),
            asks: VecDeque::from([Ask::Measure { files }]),
            streams: VecDeque::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            tell_at: now + TELL_EVERY,
            begun: now,
            over: false,
        };
        sender.resolve();
        sender
    }

    /// The transfer's number.
    #[must_use]
    pub fn sid(&self) -> u32 {
        self.shipment.sid
    }

    /// What is offered, once the files are measured.
    #[must_use]
    pub fn offer(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }

    /// Whether `path` is a receiver that is not through: its silence is no reason to drop it (pain 45).
    #[must_use]
    pub fn is_serving(&self, path: Path) -> bool {
        self.targets.get(&path).is_some_and(Target::is_open)
    }

    /// Whether everybody has it, failed or left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    // ---- inputs -------------------------------------------------------------------------------------------------

    /// A receiver left.
    pub fn remove(&mut self, path: Path) {
        self.end(path, Phase::Dropped, Fate::Dropped);
    }

    /// A receiver has another address.
    pub fn rekey(&mut self, old: Path, new: Path) {
        if let Some(target) = self.targets.remove(&old) {
            self.targets.insert(new, target);
        }
        self.messages.iter_mut().filter(|(path, _)| *path == old).for_each(|(path, _)| *path = new);
    }

    /// A message of this transfer from a receiver.
    pub fn handle_word(&mut self, now: Instant, path: Path, word: &Word) {
        let (Some(offer), true) = (&self.offer, word.sid() == self.shipment.sid) else { return };
        let Some(target) = self.targets.get_mut(&path).filter(|target| target.is_open()) else { return };
        match word {
            Word::Ack(ack) => {
                target.acknowledged(now);
                self.quic_acknowledged(now, path, ack);
            }
            Word::Feedback(word) => {
                // Where a key is awaited, only the acknowledgement itself brings it.
                if !target.quic {
                    target.acknowledged(now);
                }
                target.feedback(now, word, offer, self.window);
            }
            Word::GaveUp(_) if target.giver.is_some() => self.quic_gave_up(now, path),
            Word::GaveUp(_) => target.gave_up_tcp = true,
            Word::Done(done) if done.ok => self.end(path, Phase::Done, Fate::Done),
            Word::Done(done) if done.last => self.fail(path, Failure::GaveUp),
            Word::Done(_) | Word::Offer(_) | Word::Pipe(_) => {}
        }
    }

    /// Somebody connected and greeted. `true` when the stream is this offer's from now on.
    pub fn handle_hello(&mut self, stream: StreamId, hello: &Hello, remote: SocketAddr) -> bool {
        let token = self.shipment.tcp.as_ref().map(|(token, _)| token.as_str());
        let right = hello.sid == self.shipment.sid && Some(hello.token.as_str()) == token;
        if self.offer.is_none() || !right || hello.role != Role::Receive {
            return false;
        }
        let free = |target: &Target| target.is_open() && target.carrier.is_none();
        let by = |test: &dyn Fn(&Path, &Target) -> bool| -> Vec<Path> {
            self.targets.iter().filter(|(path, t)| free(t) && test(path, t)).map(|(path, _)| *path).collect()
        };
        let named = by(&|_, target| target.name == hello.name);
        let near = by(&|path, _| path.remote.ip() == remote.ip());
        match (named.as_slice(), near.as_slice()) {
            ([path], _) | (_, [path]) => self.carry(*path, stream),
            _ => return false,
        }
        true
    }

    /// A stream that this end dialled is open: the pipe.
    pub fn handle_connected(&mut self, stream: StreamId) {
        let pair = self.pair(stream);
        let found = self.targets.values_mut().find(|target| target.pipe == Pipe::Dialling(stream));
        if let (Some(target), Some(pair)) = (found, pair) {
            target.pipe = Pipe::Paired { stream, greeted: false };
            self.streams.push_back(StreamAsk::Write { stream, bytes: pipe_line(&pair, true) });
            self.streams.push_back(StreamAsk::Read { stream, until: Until::Bytes(PAIRED.len()) });
        }
    }

    /// What was read of a stream.
    pub fn handle_bytes(&mut self, stream: StreamId, bytes: &[u8]) {
        let paired = |target: &Target| matches!(target.pipe, Pipe::Paired { stream: own, .. } if own == stream);
        let Some((path, target)) = self.targets.iter_mut().find(|(_, target)| paired(target)) else { return };
        let path = *path;
        let right = |hello: Hello| {
            let token = self.shipment.tcp.as_ref().map(|(token, _)| token);
            hello.role == Role::Receive && hello.sid == self.shipment.sid && Some(&hello.token) == token
        };
        match target.pipe {
            Pipe::Paired { greeted: false, .. } if bytes == PAIRED => {
                target.pipe = Pipe::Paired { stream, greeted: true };
                self.streams.push_back(StreamAsk::Read { stream, until: Until::Line(LINE_MAX) });
            }
            Pipe::Paired { greeted: true, .. } if Hello::parse(bytes).is_ok_and(right) && target.carrier.is_none() => {
                target.pipe = Pipe::Over;
                self.carry(path, stream);
            }
            _ => {
                target.pipe = Pipe::Over;
                self.streams.push_back(StreamAsk::Close { stream });
            }
        }
    }

    /// A stream is gone, or could not be opened.
    pub fn handle_closed(&mut self, now: Instant, stream: StreamId) {
        self.stream_over(now, stream, StreamEnd::Broken);
    }

    /// What the disk did.
    pub fn handle_answer(&mut self, now: Instant, answer: Answer) {
        match answer {
            Answer::Measured { files, sha256, list } if self.offer.is_none() => {
                self.means = self.shipment.quic.and_then(|seed| quic::Means::new(seed, list));
                self.measured(now, &files, sha256);
            }
            Answer::Data { at, data } => {
                self.quic_data(at, &data);
                self.blocks.arrived(at, data);
                self.targets.values_mut().for_each(|target| target.starved = false);
            }
            Answer::StreamOver { stream, upto: _, why } => self.stream_over(now, stream, why),
            Answer::Failed(fault) => self.fail_all(&fault),
            _ => {}
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(offer) = &self.offer else { return };
        let total = offer.total_chunks;
        let mut stalled = Vec::new();
        let mut offered = Vec::new();
        for (path, target) in self.targets.iter_mut().filter(|(_, target)| target.is_open()) {
            if now >= target.stall_at() {
                stalled.push(*path);
                continue;
            }
            target.tick(now, self.window, total);
            if target.offer_due(now, total == 0) {
                offered.push(*path);
            }
        }
        if !offered.is_empty() {
            let old = codec::to_json(offer);
            let new = self.means.as_ref().map(|means| Offer { aw_quic: Some(means.offer()), ..offer.clone() });
            let new = new.map(|offer| codec::to_json(&offer));
            for path in offered {
                let speaks = self.targets.get(&path).is_some_and(|target| target.quic);
                let word = new.as_ref().filter(|_| speaks).unwrap_or(&old);
                self.messages.push_back((path, word.clone()));
            }
        }
        self.quic_timeout(now);
        for path in stalled {
            self.fail(path, Failure::Stalled);
        }
        if now >= self.tell_at {
            self.tell_at = now + TELL_EVERY;
            self.tell();
            self.consider_pipes(now);
        }
    }

    // ---- outputs ------------------------------------------------------------------------------------------------

    /// Work for the disk.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        if let Some(ask) = self.asks.pop_front() {
            return Some(ask);
        }
        if let Some((at, len)) = self.blocks.next_read() {
            return Some(Ask::Read { at, len });
        }
        self.quic_ask()
    }

    /// Work for streams.
    pub fn poll_stream(&mut self) -> Option<StreamAsk> {
        self.streams.pop_front()
    }

    /// A message for the composer to seal.
    pub fn poll_message(&mut self) -> Option<(Path, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<SendEvent> {
        self.events.pop_front()
    }

    /// Writes chunks that are due, until there are none or `out` is full. Says whether it wrote any.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        let quic = self.quic_transmit(now, out);
        self.chunks(now, out) || quic
    }

    fn chunks(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        let (Some(offer), window) = (&self.offer, self.window) else { return false };
        let mut wrote = false;
        for (path, target) in &mut self.targets {
            if !target.takes_chunks() || target.starved || target.turn > now {
                continue;
            }
            let mut sent = 0;
            while sent < TURN
                && let Some(index) = target.next_chunk(window, offer.total_chunks)
            {
                let at = u64::from(index) * u64::from(offer.chunk);
                let len = offer.chunk_len(index);
                let mut copied = false;
                let room = out.datagram(*path, HEADER + CHUNK_HEADER + len, |bytes| {
                    copied = fill(bytes, offer.sid, index, |data| self.blocks.copy(at, data));
                    if copied { bytes.len() } else { 0 }
                });
                if !room {
                    return wrote || sent > 0;
                }
                if !copied {
                    target.starved = true;
                    break;
                }
                target.sent_chunk(now, index);
                sent += 1;
            }
            wrote |= sent > 0;
            target.turn = now + TURN_EVERY;
        }
        wrote
    }

    /// When to call [`Sender::handle_timeout`] and [`Sender::poll_transmit`]; an instant that has passed while anything
    /// is queued.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let queued = !self.asks.is_empty()
            || !self.streams.is_empty()
            || !self.messages.is_empty()
            || !self.events.is_empty()
            || self.blocks.is_wanting();
        if queued {
            return Some((self.begun, "a transfer has something queued"));
        }
        let offer = self.offer.as_ref().filter(|_| !self.over)?;
        let open = self.targets.values().filter(|target| target.is_open());
        let ticks = open.map(|target| target.next_tick(self.window, offer.total_chunks));
        ticks.chain(self.quic_next()).chain([(self.tell_at, "progress is told")]).min_by_key(|(at, _)| *at)
    }

    // ---- inside -------------------------------------------------------------------------------------------------

    fn measured(&mut self, now: Instant, files: &[crate::Measured], sha256: [u8; 32]) {
        let total_bytes: u64 = files.iter().map(|file| file.size).sum();
        let addresses: Vec<SocketAddr> = self.targets.keys().map(|path| path.remote).collect();
        let chunk = np1::chunk_size(&addresses);
        let Ok(total_chunks) = u32::try_from(total_bytes.div_ceil(u64::from(chunk))) else {
            return self.fail_all(&Fault::Other("larger than a transfer can be".to_owned()));
        };
        let named = self.shipment.files.iter().zip(files);
        let files = named
            .map(|((_, name), file)| OfferedFile {
                name: name.clone(),
                size: file.size,
                sha256: codec::hex(&file.sha256),
            })
            .collect();
        let tcp = self.shipment.tcp.as_ref();
        self.offer = Some(Offer {
            sid: self.shipment.sid,
            total_bytes,
            chunk,
            total_chunks,
            files,
            sha256: codec::hex(&sha256),
            kind: self.shipment.kind,
            mods: Some(self.shipment.mods.clone().unwrap_or_default()),
            mods_unknown: self.shipment.mods.is_none(),
            batch: None,
            tcp: tcp.map(|(token, port)| TcpOffer { port: *port, token: token.clone(), addrs: Vec::new() }),
            aw_quic: None,
        });
        self.window = np1::window(chunk);
        self.blocks = Blocks::new(total_bytes);
        self.targets.values_mut().filter(|target| target.is_open()).for_each(|target| {
            let name = std::mem::take(&mut target.name);
            let quic = target.quic;
            *target = Target::new(now, &name);
            target.quic = quic;
        });
        self.handle_timeout(now);
    }

    fn carry(&mut self, path: Path, stream: StreamId) {
        let Some(target) = self.targets.get_mut(&path) else { return };
        target.carrier = Some(Carrier { stream, written: None });
        self.asks.push_back(Ask::SendFile { stream, first: ANSWER });
        self.events.push_back(SendEvent::Fate { path, fate: Fate::Streaming });
    }

    fn stream_over(&mut self, now: Instant, stream: StreamId, why: StreamEnd) {
        for (path, target) in &mut self.targets {
            if matches!(target.pipe, Pipe::Dialling(own) | Pipe::Paired { stream: own, .. } if own == stream) {
                target.pipe = Pipe::Over;
            }
            let Some(carrier) = target.carrier.as_mut().filter(|carrier| carrier.stream == stream) else { continue };
            if why == StreamEnd::Closed {
                carrier.written = Some(now);
            } else {
                target.carrier = None;
                target.turn = now;
                self.events.push_back(SendEvent::Fate { path: *path, fate: Fate::StreamBroke });
            }
        }
    }

    fn end(&mut self, path: Path, phase: Phase, fate: Fate) {
        let Some(target) = self.targets.get_mut(&path).filter(|target| target.is_open()) else { return };
        target.phase = phase;
        target.giver = None;
        let pipe = match target.pipe {
            Pipe::Dialling(stream) | Pipe::Paired { stream, .. } => Some(stream),
            Pipe::Idle | Pipe::Over => None,
        };
        for stream in target.carrier.take().map(|carrier| carrier.stream).into_iter().chain(pipe) {
            self.streams.push_back(StreamAsk::Close { stream });
        }
        self.events.push_back(SendEvent::Fate { path, fate });
        self.resolve();
    }

    fn fail(&mut self, path: Path, failure: Failure) {
        self.end(path, Phase::Failed(failure.clone()), Fate::Failed(failure));
    }

    fn fail_all(&mut self, fault: &Fault) {
        for path in self.targets.keys().copied().collect::<Vec<_>>() {
            self.fail(path, Failure::Reading(fault.clone()));
        }
    }

    fn resolve(&mut self) {
        if self.over || self.targets.values().any(Target::is_open) {
            return;
        }
        self.over = true;
        let mut outcome = Outcome::default();
        for (path, target) in &self.targets {
            match &target.phase {
                Phase::Done => outcome.done.push(*path),
                Phase::Failed(why) => outcome.failed.push((target.name.clone(), why.clone())),
                Phase::Dropped | Phase::Offered { .. } | Phase::Serving => outcome.dropped += 1,
            }
        }
        self.events.push_back(SendEvent::Resolved(outcome));
    }

    fn tell(&mut self) {
        let Some(offer) = &self.offer else { return };
        for (path, target) in self.targets.iter().filter(|(_, target)| target.phase == Phase::Serving) {
            let transport = match target.carrier {
                _ if target.giver.is_some() => Transport::Quic,
                Some(_) => Transport::Tcp,
                None if np1::is_tunnel(path.remote) => Transport::Steam,
                None => Transport::Udp,
            };
            let progress = Progress {
                bytes_done: target.bytes_done(offer),
                bytes_total: offer.total_bytes,
                bytes_per_second: target.rate.bytes_per_second(),
                transport,
                verifying: target.verifying,
                gave_up_tcp: target.gave_up_tcp,
            };
            self.events.push_back(SendEvent::Progress { path: *path, progress });
        }
    }

    /// Asks slow receivers to the master's pipe, each once.
    fn consider_pipes(&mut self, now: Instant) {
        let (Some((pipe, _)), Some(offer)) = (&self.shipment.pipe, &self.offer) else { return };
        let pipe = *pipe;
        if offer.total_bytes < PIPE_BYTES || self.shipment.tcp.is_none() {
            return;
        }
        let slow = |target: &Target| {
            let waited = target.ready.is_some_and(|ready| now.saturating_duration_since(ready) >= PIPE_AFTER);
            let left = offer.total_bytes - target.bytes_done(offer);
            let pace = target.rate.bytes_per_second();
            target.takes_chunks() && target.pipe == Pipe::Idle && waited && left > pace.saturating_mul(PIPE_LEFT)
        };
        let paths: Vec<Path> = self.targets.iter().filter(|(_, t)| slow(t)).map(|(path, _)| *path).collect();
        for path in paths {
            let stream = StreamId(self.next_stream);
            self.next_stream += 1;
            let Some(pair) = self.pair(stream) else { continue };
            let Some(target) = self.targets.get_mut(&path) else { continue };
            target.pipe = Pipe::Dialling(stream);
            let word = words::Pipe { sid: self.shipment.sid, pair, ip: pipe.ip().to_string(), port: pipe.port() };
            self.messages.push_back((path, codec::to_json(&word)));
            self.streams.push_back(StreamAsk::Dial { stream, remote: pipe, from: None, timeout: PIPE_DIAL });
        }
    }

    /// What names the pair that meets over `stream`: 32 digits that nobody who does not know the seed can name.
    fn pair(&self, stream: StreamId) -> Option<String> {
        let (_, seed) = self.shipment.pipe.as_ref()?;
        let mut dice = seam::Dice::new(*seed);
        let mut pair: [u8; 16] = dice.bytes();
        for _ in self.shipment.first_stream..stream.0 {
            pair = dice.bytes();
        }
        Some(codec::hex(&pair))
    }
}

/// Writes one chunk's packet; `false` when its data is not there.
fn fill(bytes: &mut [u8], sid: u32, index: u32, copy: impl FnOnce(&mut [u8]) -> bool) -> bool {
    let Some((head, data)) = bytes.split_at_mut_checked(HEADER + CHUNK_HEADER) else { return false };
    let parts = np1::header(np1::Kind::Plain).into_iter().chain(Chunk::head(sid, index));
    head.iter_mut().zip(parts).for_each(|(slot, byte)| *slot = byte);
    copy(data)
}
