//! A sender and its receivers in virtual time, with disks, links that lose, and streams that break.

// A harness: it indexes what it made itself, panics on its own mistakes, and takes an instant to begin from.
#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anywire_parcel::quic::{BLOCK, Block, BlockList};
use anywire_parcel::{
    Answer, Ask, Fault, Hello, Intake, Kind, Measured, Offer, ReceiveEvent, Receiver, SAVE_NAMES, SendEvent, Sender,
    Shipment, Word, refusal,
};
use bytes::BytesMut;
use netem::{Link, LinkConfig};
use np1::Chunk;
use seam::{ACCEPTED, Path, SocketId, StreamAsk, StreamEnd, StreamId, Until};
use sha2::{Digest, Sha256};

pub(crate) const SID: u32 = 0x1234_5678;
pub(crate) const TOKEN: &str = "00112233445566778899aabbccddeeff";
/// What begins a packet of QUIC.
const QUIC: &[u8] = b"NP1:Q";
const DISK: Duration = Duration::from_millis(1);

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn path(remote: SocketAddr) -> Path {
    Path::new(SocketId(0), remote)
}

/// Bytes that are not the same anywhere.
pub(crate) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut dice = seam::Dice::new([seed; 32]);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&dice.u64().to_be_bytes());
    }
    out.truncate(len);
    out
}

/// One end's files: what bears its final name, and what is being written.
#[derive(Default)]
pub(crate) struct Disk {
    /// The stream a sender reads.
    pub(crate) source: Vec<Vec<u8>>,
    whole: Vec<u8>,
    pub(crate) named: BTreeMap<String, Vec<u8>>,
    pub(crate) partial: Vec<u8>,
    files: Vec<(String, u64)>,
    noted: Option<([u8; 32], u64)>,
    sha256: [u8; 32],
    /// Bytes after which it is full.
    pub(crate) room: Option<usize>,
    /// The next reads find another file.
    pub(crate) changed: bool,
    /// Hashing finds what nobody wrote, this often.
    pub(crate) rot: u32,
    pub(crate) written: usize,
    answers: VecDeque<(Instant, Answer)>,
}

impl Disk {
    pub(crate) fn ask(&mut self, now: Instant, ask: Ask) {
        let answers = match ask {
            Ask::Measure { .. } => {
                let files =
                    self.source.iter().map(|f| Measured { size: f.len() as u64, sha256: Sha256::digest(f).into() });
                let sha256 = Sha256::digest(self.source.concat()).into();
                let hash = |part: &[u8]| (u32::try_from(part.len()).unwrap(), *blake3::hash(part).as_bytes());
                let list = Arc::new(BlockList::new(self.whole.chunks(BLOCK as usize).map(hash)));
                vec![Answer::Measured { files: files.collect(), sha256, list }]
            }
            Ask::Read { .. } if self.changed => vec![Answer::Failed(Fault::Changed)],
            Ask::Read { at, len } => {
                let data = self.whole[at as usize..at as usize + len].to_vec().into();
                vec![Answer::Data { at, data }]
            }
            Ask::Create { files, sha256 } => {
                let total: u64 = files.iter().map(|f| f.1).sum();
                let upto = self.noted.filter(|(of, _)| *of == sha256).map_or(0, |(_, upto)| upto);
                (self.files, self.sha256) = (files, sha256);
                self.partial.resize(total as usize, 0);
                vec![Answer::Created { upto }]
            }
            Ask::Write { at, data } => {
                self.written += data.len();
                if self.room.is_some_and(|room| self.written > room) {
                    vec![Answer::Failed(Fault::Full)]
                } else {
                    self.partial[at as usize..at as usize + data.len()].copy_from_slice(&data);
                    vec![Answer::Written { at, len: data.len() }]
                }
            }
            Ask::Look { list } => {
                let here = |block: &Block| {
                    let place = block.at as usize..block.at as usize + block.len as usize;
                    *blake3::hash(&self.partial[place]).as_bytes() == block.hash
                };
                let blocks = list.blocks().iter().zip(0..).filter(|(block, _)| here(block)).map(|(_, n)| n).collect();
                vec![Answer::Found { blocks }]
            }
            Ask::Keep { index, at, hash, data } => {
                let good = *blake3::hash(&data).as_bytes() == hash;
                if self.room.is_some_and(|room| self.written + data.len() > room) {
                    self.answers.push_back((now + DISK, Answer::Failed(Fault::Full)));
                    return;
                }
                if good {
                    self.written += data.len();
                    self.partial[at as usize..at as usize + data.len()].copy_from_slice(&data);
                }
                vec![Answer::Kept { index, good }]
            }
            Ask::Hash => {
                let mut files: Vec<[u8; 32]> = self.split().iter().map(|(_, f)| Sha256::digest(f).into()).collect();
                if self.rot > 0 {
                    self.rot -= 1;
                    files[0][0] ^= 1;
                }
                let sha256 = Sha256::digest(&self.partial).into();
                vec![Answer::Hashing { done: 1 }, Answer::Hashed { files, sha256 }]
            }
            Ask::Commit => {
                self.named = self.split().into_iter().collect();
                vec![Answer::Committed]
            }
            Ask::Discard => {
                (self.partial, self.noted) = (Vec::new(), None);
                vec![]
            }
            Ask::Note { upto } => {
                self.noted = Some((self.sha256, upto));
                vec![]
            }
            other => panic!("{other:?}"),
        };
        self.answers.extend(answers.into_iter().map(|answer| (now + DISK, answer)));
    }

    fn split(&self) -> Vec<(String, Vec<u8>)> {
        let mut at = 0;
        let mut out = Vec::new();
        for (name, size) in &self.files {
            out.push((name.clone(), self.partial[at..at + *size as usize].to_vec()));
            at += *size as usize;
        }
        out
    }
}

/// A receiver, and its wire to the sender and back.
pub(crate) struct End {
    pub(crate) path: Path,
    pub(crate) name: String,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) disk: Disk,
    pub(crate) events: Vec<ReceiveEvent>,
    pub(crate) dials: bool,
    /// Speaks the word `quic`.
    pub(crate) quic: bool,
    down: Link<(bool, Vec<u8>)>,
    up: Link<(bool, Vec<u8>)>,
    /// Takes nothing in.
    pub(crate) deaf: bool,
    /// Changes every chunk on its way.
    pub(crate) corrupt: bool,
    pub(crate) chunks: usize,
}

/// A stream that carries the files.
struct Pour {
    end: usize,
    sender: StreamId,
    receiver: StreamId,
    sent: usize,
    at: Instant,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) sender: Sender,
    pub(crate) disk: Disk,
    pub(crate) ends: Vec<End>,
    pub(crate) events: Vec<SendEvent>,
    /// Nothing comes from the sender any more.
    pub(crate) killed: bool,
    /// Streams connect.
    pub(crate) tcp: bool,
    /// A stream breaks behind so many bytes.
    pub(crate) breaks_at: Option<usize>,
    /// Bytes of a stream in 10 ms.
    pub(crate) pace: usize,
    pours: Vec<Pour>,
    later: Vec<(Instant, usize, StreamId, bool)>,
    accepted: u64,
    pub(crate) start: Instant,
}

pub(crate) fn shipment(files: usize, tcp: bool) -> Shipment {
    Shipment {
        sid: SID,
        kind: Kind::Save,
        files: SAVE_NAMES.iter().take(files).map(|name| (name.into(), (*name).to_owned())).collect(),
        mods: Some(Vec::new()),
        tcp: tcp.then(|| (TOKEN.to_owned(), Some(29_471))),
        pipe: None,
        quic: Some([4; 32]),
        first_stream: 0,
    }
}

impl World {
    pub(crate) fn new(files: Vec<Vec<u8>>, addresses: &[SocketAddr], config: LinkConfig, seed: u8, tcp: bool) -> Self {
        let now = Instant::now();
        let mut dice = seam::Dice::new([seed; 32]);
        let ends: Vec<End> = addresses
            .iter()
            .enumerate()
            .map(|(n, remote)| End {
                path: path(*remote),
                name: format!("player {n}"),
                receiver: None,
                disk: Disk::default(),
                events: Vec::new(),
                dials: tcp,
                quic: false,
                down: Link::new(config, dice.bytes()),
                up: Link::new(config, dice.bytes()),
                deaf: false,
                corrupt: false,
                chunks: 0,
            })
            .collect();
        let targets: Vec<(Path, &str)> = ends.iter().map(|end| (end.path, end.name.as_str())).collect();
        let sender = Sender::new(shipment(files.len(), tcp), &targets, now);
        Self {
            now,
            sender,
            disk: Disk { whole: files.concat(), source: files, ..Disk::default() },
            ends,
            events: Vec::new(),
            killed: false,
            tcp,
            breaks_at: None,
            pace: 100_000,
            pours: Vec::new(),
            later: Vec::new(),
            accepted: 0,
            start: now,
        }
    }

    /// Receiver `n` speaks the word `quic`, and the sender knows it.
    pub(crate) fn speaks_quic(&mut self, n: usize) {
        self.ends[n].quic = true;
        let path = self.ends[n].path;
        self.sender.speaks_quic(path);
    }

    /// Another process of the same sender begins anew.
    pub(crate) fn restart_sender(&mut self) {
        let targets: Vec<(Path, &str)> = self.ends.iter().map(|end| (end.path, end.name.as_str())).collect();
        let mut again = shipment(self.disk.source.len(), self.tcp);
        again.sid += 1;
        self.sender = Sender::new(again, &targets, self.now);
        self.killed = false;
        self.pours.clear();
        for end in &mut self.ends {
            end.receiver = None;
        }
    }

    fn drain(&mut self) {
        let now = self.now;
        loop {
            let mut quiet = true;
            while let Some(ask) = self.sender.poll_ask() {
                quiet = false;
                match ask {
                    Ask::SendFile { stream, .. } => {
                        if let Some(pour) = self.pours.iter_mut().find(|pour| pour.sender == stream) {
                            pour.at = now;
                        }
                    }
                    ask => self.disk.ask(now, ask),
                }
            }
            while let Some(event) = self.sender.poll_event() {
                self.events.push(event);
            }
            while let Some((to, json)) = self.sender.poll_message() {
                if let Some(end) = self.ends.iter_mut().find(|end| end.path == to).filter(|_| !self.killed) {
                    end.down.push(now, (false, json));
                }
            }
            while let Some(ask) = self.sender.poll_stream() {
                if let StreamAsk::Close { stream } = ask {
                    self.pours.retain(|pour| pour.sender != stream);
                }
            }
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            while self.sender.poll_transmit(now, &mut out) {
                quiet = false;
            }
            for (to, packet) in out {
                if let Some(end) = self.ends.iter_mut().find(|end| end.path == to).filter(|_| !self.killed) {
                    end.down.push(now, (true, packet));
                }
            }
            for n in 0..self.ends.len() {
                quiet &= self.drain_end(n);
            }
            if quiet {
                break;
            }
        }
        assert!(self.sender.poll_timeout().is_none_or(|(at, _)| at >= self.start));
    }

    fn drain_end(&mut self, n: usize) -> bool {
        let now = self.now;
        let mut quiet = true;
        let end = &mut self.ends[n];
        let Some(receiver) = &mut end.receiver else { return true };
        while let Some(ask) = receiver.poll_ask() {
            quiet = false;
            match ask {
                Ask::ReceiveFile { stream } => {
                    if let Some(pour) = self.pours.iter_mut().find(|pour| pour.receiver == stream && pour.end == n) {
                        pour.at = pour.at.max(now);
                    }
                }
                ask => end.disk.ask(now, ask),
            }
        }
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        while receiver.poll_transmit(now, &mut out) {
            quiet = false;
        }
        for (_, packet) in out {
            end.up.push(now, (true, packet));
        }
        while let Some(event) = receiver.poll_event() {
            end.events.push(event);
        }
        while let Some((_, json)) = receiver.poll_message() {
            end.up.push(now, (false, json));
        }
        while let Some(ask) = receiver.poll_stream() {
            match ask {
                StreamAsk::Dial { stream, .. } => self.later.push((now + ms(20), n, stream, self.tcp)),
                StreamAsk::Write { stream, bytes } => {
                    let sender = StreamId(ACCEPTED + self.accepted);
                    self.accepted += 1;
                    let hello = Hello::parse(&bytes).unwrap();
                    let end = &mut self.ends[n];
                    let at = now + ms(1_000_000);
                    if self.sender.handle_hello(sender, &hello, end.path.remote) {
                        self.pours.push(Pour { end: n, sender, receiver: stream, sent: 0, at });
                        end.receiver.as_mut().unwrap().handle_bytes(now, stream, b"OK\n");
                        self.pours.last_mut().unwrap().at = now;
                    } else {
                        end.receiver.as_mut().unwrap().handle_closed(now, stream, StreamEnd::Closed);
                    }
                    return false;
                }
                StreamAsk::Read { until, .. } => assert_eq!(until, Until::Bytes(3)),
                StreamAsk::Close { stream } => self.pours.retain(|pour| pour.receiver != stream || pour.end != n),
                other => panic!("{other:?}"),
            }
        }
        quiet
    }

    fn pour(&mut self) {
        let now = self.now;
        let whole = &self.disk.whole;
        let mut kept = Vec::new();
        for mut pour in std::mem::take(&mut self.pours) {
            if pour.at > now {
                kept.push(pour);
                continue;
            }
            let broken = self.killed || self.breaks_at.is_some_and(|at| pour.sent >= at);
            let end = &mut self.ends[pour.end];
            let upto = pour.sent as u64;
            if broken || pour.sent >= whole.len() {
                let why = if broken { StreamEnd::Broken } else { StreamEnd::Closed };
                self.sender.handle_answer(now, Answer::StreamOver { stream: pour.sender, upto, why });
                if let Some(receiver) = &mut end.receiver {
                    receiver.handle_answer(now, Answer::StreamOver { stream: pour.receiver, upto, why });
                }
                continue;
            }
            let next = whole.len().min(pour.sent + self.pace);
            end.disk.partial[pour.sent..next].copy_from_slice(&whole[pour.sent..next]);
            (pour.sent, pour.at) = (next, now + ms(10));
            let upto = next as u64;
            self.sender.handle_answer(now, Answer::Sent { stream: pour.sender, upto });
            if let Some(receiver) = &mut end.receiver {
                receiver.handle_answer(now, Answer::Arrived { stream: pour.receiver, upto });
            }
            kept.push(pour);
        }
        self.pours.extend(kept);
    }

    fn deliver(&mut self) {
        let now = self.now;
        for end in &mut self.ends {
            while let Some((chunk, mut packet)) = end.down.pop(now) {
                if end.deaf {
                    continue;
                }
                if !chunk {
                    Self::word(end, now, &packet);
                } else if packet.starts_with(QUIC) {
                    if let Some(receiver) = &mut end.receiver {
                        receiver.handle_quic(now, BytesMut::from(&packet[np1::HEADER..]));
                    }
                } else if let Some(receiver) = &mut end.receiver {
                    end.chunks += 1;
                    if end.corrupt {
                        *packet.last_mut().unwrap() ^= 1;
                    }
                    let _ = receiver.handle_chunk(now, &Chunk::parse(&packet[np1::HEADER..]).unwrap());
                }
            }
            while let Some((packet, json)) = end.up.pop(now) {
                if packet && !self.killed {
                    self.sender.handle_quic(now, end.path, BytesMut::from(&json[np1::HEADER..]));
                } else if !self.killed {
                    self.sender.handle_word(now, end.path, &Word::parse(&json).unwrap());
                }
            }
            while end.disk.answers.front().is_some_and(|(at, _)| *at <= now) {
                let (_, answer) = end.disk.answers.pop_front().unwrap();
                if let Some(receiver) = &mut end.receiver {
                    receiver.handle_answer(now, answer);
                }
            }
        }
        while self.disk.answers.front().is_some_and(|(at, _)| *at <= now) {
            let (_, answer) = self.disk.answers.pop_front().unwrap();
            self.sender.handle_answer(now, answer);
        }
        for (at, n, stream, opens) in std::mem::take(&mut self.later) {
            if at > now {
                self.later.push((at, n, stream, opens));
            } else if let Some(receiver) = &mut self.ends[n].receiver {
                if opens {
                    receiver.handle_connected(now, stream);
                } else {
                    receiver.handle_closed(now, stream, StreamEnd::TimedOut);
                }
            }
        }
    }

    /// What a composer does with an offer: it asks nobody here.
    fn word(end: &mut End, now: Instant, json: &[u8]) {
        let word = Word::parse(json).unwrap();
        if let (Word::Offer(offer), None) = (&word, &end.receiver) {
            let tcp = end.dials.then(|| SocketAddr::from(([192, 0, 2, 1], 29_471)));
            let intake = Intake {
                name: end.name.clone(),
                most_bytes: 1 << 33,
                tcp,
                quic: end.quic.then_some([5; 32]),
                first_stream: 0,
            };
            match Receiver::new(Offer::clone(offer), end.path, intake, now) {
                Ok(receiver) => end.receiver = Some(receiver),
                Err(_) => end.up.push(now, (false, refusal(offer.sid))),
            }
            return;
        }
        if let Some(receiver) = &mut end.receiver {
            receiver.handle_word(now, &word);
        }
    }

    fn next(&self) -> Option<Instant> {
        let mut times: Vec<Instant> = self.sender.poll_timeout().map(|(at, _)| at).into_iter().collect();
        times.extend(self.disk.answers.front().map(|(at, _)| *at));
        times.extend(self.pours.iter().map(|pour| pour.at));
        times.extend(self.later.iter().map(|later| later.0));
        for end in &self.ends {
            times.extend(end.receiver.as_ref().and_then(Receiver::poll_timeout).map(|(at, _)| at));
            times.extend(end.down.poll_timeout().into_iter().chain(end.up.poll_timeout()).map(|(at, _)| at));
            times.extend(end.disk.answers.front().map(|(at, _)| *at));
        }
        times.into_iter().min()
    }

    /// Runs until `done` says so, or this much time has passed. Says whether it was done.
    pub(crate) fn run(&mut self, most: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + most;
        let mut still = 0;
        loop {
            self.drain();
            if done(self) {
                return true;
            }
            let Some(next) = self.next().filter(|next| *next <= until) else {
                self.now = until;
                return false;
            };
            still = if next <= self.now { still + 1 } else { 0 };
            assert!(still < 1000, "stands still: {:?}", self.sender.poll_timeout());
            self.now = next.max(self.now);
            self.deliver();
            self.pour();
            self.sender.handle_timeout(self.now);
            for end in &mut self.ends {
                if let Some(receiver) = &mut end.receiver {
                    receiver.handle_timeout(self.now);
                }
            }
        }
    }

    /// Runs until everybody has it, failed or left.
    pub(crate) fn finish(&mut self, most: Duration) -> bool {
        self.run(most, |world| {
            world.sender.is_over() && world.events.iter().any(|e| matches!(e, SendEvent::Resolved(_)))
        })
    }

    /// Whether receiver `n` has the sender's files under their names.
    pub(crate) fn has_all(&self, n: usize) -> bool {
        let named: Vec<&Vec<u8>> = SAVE_NAMES.iter().filter_map(|name| self.ends[n].disk.named.get(*name)).collect();
        named == self.disk.source.iter().collect::<Vec<_>>()
    }
}
