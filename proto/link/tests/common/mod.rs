//! Two or more processes with links, and byte streams between them in virtual time.

// A harness: it indexes what it made itself, panics on its own mistakes, and takes an instant to begin from.
#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anywire_link::{Config, Event, Links};
use seal::{Opener, Sealer, SessionKey};
use seam::{ACCEPTED, Dice, Path, SocketId, StreamAsk, StreamEnd, StreamId};

/// One direction takes this long.
pub(crate) const DELAY: Duration = Duration::from_millis(10);

/// A process.
pub(crate) struct End {
    pub(crate) links: Links,
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    pub(crate) address: SocketAddr,
    pub(crate) got: Vec<(Path, Vec<u8>)>,
    pub(crate) events: Vec<Event>,
    /// Whether it listens.
    pub(crate) listens: bool,
    /// Far ends of its streams.
    streams: BTreeMap<StreamId, (usize, StreamId)>,
}

#[derive(Debug)]
enum Flight {
    Arrives { remote: SocketAddr, far: (usize, StreamId) },
    Opened,
    Bytes(Vec<u8>),
    Gone(StreamEnd),
}

/// Processes and what flies between them.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) start: Instant,
    pub(crate) ends: Vec<End>,
    flights: VecDeque<(Instant, usize, StreamId, Flight)>,
    accepted: u64,
    /// Dials that were made: who, when since the start.
    pub(crate) dials: Vec<(usize, Duration)>,
    /// Two dials toward each other at one time meet in one connection.
    pub(crate) meet: bool,
}

pub(crate) fn path(remote: SocketAddr) -> Path {
    Path::new(SocketId(0), remote)
}

pub(crate) fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 4000 + u16::from(n)))
}

impl World {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Self {
            now: start,
            start,
            ends: Vec::new(),
            flights: VecDeque::new(),
            accepted: 0,
            dials: Vec::new(),
            meet: false,
        }
    }

    /// One more process of the session with this key.
    pub(crate) fn end(&mut self, name: &str, key: u8, address: SocketAddr) -> usize {
        let n = self.ends.len();
        let key = SessionKey::from_bytes([key; 32]);
        let config = Config { name: name.to_owned(), port: Some(address.port()) };
        self.ends.push(End {
            links: Links::new(config, 0, self.now),
            sealer: Sealer::new(&key, Dice::new([n as u8 + 1; 32])),
            opener: Opener::new(&key),
            address,
            got: Vec::new(),
            events: Vec::new(),
            listens: true,
            streams: BTreeMap::new(),
        });
        n
    }

    /// Seals a text into a packet.
    pub(crate) fn packet(&mut self, end: usize, text: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; text.len() + 24];
        let used = self.ends[end].sealer.seal(&[text], &mut sealed);
        np1::packet(np1::Kind::Sealed, &sealed[..used])
    }

    fn fly(&mut self, to: usize, stream: StreamId, flight: Flight) {
        self.flights.push_back((self.now + DELAY, to, stream, flight));
    }

    fn ask(&mut self, from: usize, ask: StreamAsk) {
        match ask {
            StreamAsk::Dial { stream, remote, .. } => {
                self.dials.push((from, self.now - self.start));
                let own = self.ends[from].address;
                let target = self.ends.iter().position(|end| end.address == remote);
                let Some(to) = target.filter(|to| self.ends[*to].listens) else {
                    return self.fly(from, stream, Flight::Gone(StreamEnd::Refused));
                };
                if self.meet {
                    // The other's dial toward us becomes the far end of ours.
                    let far = StreamId(stream.0);
                    self.ends[from].streams.insert(stream, (to, far));
                    return self.fly(from, stream, Flight::Opened);
                }
                let far = StreamId(ACCEPTED + self.accepted);
                self.accepted += 1;
                self.ends[from].streams.insert(stream, (to, far));
                self.fly(to, far, Flight::Arrives { remote: own, far: (from, stream) });
                self.fly(from, stream, Flight::Opened);
            }
            StreamAsk::Write { stream, bytes } => {
                if let Some((to, far)) = self.ends[from].streams.get(&stream).copied() {
                    self.fly(to, far, Flight::Bytes(bytes));
                }
            }
            StreamAsk::Close { stream } => self.cut_one(from, stream),
            other => panic!("{other:?}"),
        }
    }

    fn cut_one(&mut self, from: usize, stream: StreamId) {
        if let Some((to, far)) = self.ends[from].streams.remove(&stream) {
            self.fly(to, far, Flight::Gone(StreamEnd::Closed));
        }
    }

    /// Every connection breaks.
    pub(crate) fn cut(&mut self) {
        for n in 0..self.ends.len() {
            for stream in self.ends[n].streams.keys().copied().collect::<Vec<_>>() {
                self.fly(n, stream, Flight::Gone(StreamEnd::Broken));
            }
        }
    }

    fn deliver(&mut self, to: usize, stream: StreamId, flight: Flight) {
        let now = self.now;
        let end = &mut self.ends[to];
        match flight {
            Flight::Arrives { remote, far } => {
                end.streams.insert(stream, far);
                end.links.handle_accepted(now, stream, remote);
            }
            Flight::Opened => end.links.handle_connected(now, stream, &mut end.sealer),
            Flight::Bytes(bytes) if end.streams.contains_key(&stream) => {
                // Cut in the middle, as streams are.
                let (head, tail) = bytes.split_at(bytes.len() / 3);
                for part in [head, tail] {
                    end.links.handle_bytes(now, stream, part, &mut end.opener);
                }
            }
            Flight::Gone(why) if end.streams.remove(&stream).is_some() || why == StreamEnd::Refused => {
                end.links.handle_closed(now, stream, why);
            }
            Flight::Bytes(_) | Flight::Gone(_) => {}
        }
    }

    fn drain(&mut self) {
        for n in 0..self.ends.len() {
            loop {
                let end = &mut self.ends[n];
                while let Some((path, packet)) = end.links.poll_packet() {
                    end.got.push((path, packet.to_vec()));
                }
                while let Some(event) = end.links.poll_event() {
                    end.events.push(event);
                }
                match end.links.poll_stream(self.now) {
                    Some(ask) => self.ask(n, ask),
                    None => break,
                }
            }
            if let Some((at, why)) = self.ends[n].links.poll_timeout().filter(|(at, _)| *at < self.now) {
                panic!("drained, and still wants {why} at {:?} before now", self.now - at);
            }
        }
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.drain();
            let timers = self.ends.iter().filter_map(|end| end.links.poll_timeout()).map(|(at, _)| at);
            let next = timers.chain(self.flights.iter().map(|flight| flight.0)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = next.max(self.now);
            while let Some(at) = self.flights.iter().position(|flight| flight.0 <= self.now) {
                if let Some((_, to, stream, flight)) = self.flights.remove(at) {
                    self.deliver(to, stream, flight);
                }
            }
            for n in 0..self.ends.len() {
                let now = self.now;
                if self.ends[n].links.poll_timeout().is_some_and(|(at, _)| at <= now) {
                    self.ends[n].links.handle_timeout(now);
                }
            }
        }
        self.now = until;
        self.drain();
    }

    /// Texts that came to `end` on links, opened.
    pub(crate) fn texts(&mut self, end: usize) -> Vec<String> {
        let now = self.now;
        let end = &mut self.ends[end];
        let got = std::mem::take(&mut end.got);
        got.into_iter()
            .filter_map(|(_, mut packet)| {
                let frame = packet.get_mut(np1::HEADER..)?;
                let opened = end.opener.open(now, frame).ok()?;
                Some(String::from_utf8_lossy(opened.plain).into_owned())
            })
            .collect()
    }

    pub(crate) fn logs(&self, end: usize) -> Vec<String> {
        let log = |event: &Event| if let Event::Log(line) = event { Some(line.clone()) } else { None };
        self.ends[end].events.iter().filter_map(log).collect()
    }
}
