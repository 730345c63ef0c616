//! Whole sessions on a small network in virtual time: the clock jumps to the next deadline or arrival, and nowhere else.
#![allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "test helpers, of which each file uses its part")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use anywire_session::{Command, Event, GameSide, HostConfig, JoinConfig, LOBBY, Local, Session};
use bytes::{Bytes, BytesMut};
use joincode::{Code, Profile};
use lobby::{End, State};
use seam::{Dice, Path, Reply, Request};

pub(crate) const SECRET: [u8; 12] = [7; 12];
pub(crate) const WALL: u64 = 1_790_000_000;
/// The host is the first end of every network here.
pub(crate) const HOST: usize = 0;

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Addresses of documentation (RFC 5737), one per number.
pub(crate) const fn v4(n: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, n), 4000)
}

pub(crate) const fn at(n: u8) -> SocketAddr {
    SocketAddr::V4(v4(n))
}

pub(crate) fn host_config(n: u8) -> HostConfig {
    HostConfig {
        game: GameSide::Inside,
        local: Local { port: 4000, lan: Some(*v4(n).ip()), ..Local::default() },
        ..HostConfig::new("ada", SECRET)
    }
}

pub(crate) fn join_config(name: &str, n: u8, code: Code) -> JoinConfig {
    JoinConfig {
        game: GameSide::Inside,
        local: Local { port: 4000, lan: Some(*v4(n).ip()), ..Local::default() },
        ..JoinConfig::new(name, code)
    }
}

/// The code of a host at address `n` of the local network.
pub(crate) fn code(n: u8) -> Code {
    Code::Plain(Profile { timestamp: stamp(), lan: Some(v4(n)), secret: Some(SECRET), ..Profile::default() })
}

pub(crate) fn stamp() -> u32 {
    u32::try_from(WALL).unwrap()
}

/// One process.
pub(crate) struct Node {
    pub(crate) session: Session,
    /// Where datagrams reach it.
    pub(crate) at: SocketAddr,
    /// What others see as the source of its datagrams; usually `at`.
    pub(crate) seen_as: SocketAddr,
    pub(crate) events: Vec<Event>,
}

impl Node {
    pub(crate) fn states(&self) -> Vec<State> {
        let state = |event: &Event| if let Event::Status { state, .. } = event { Some(*state) } else { None };
        self.events.iter().filter_map(state).collect()
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.events.iter().find_map(|event| if let Event::Ended(end) = event { Some(end) } else { None })
    }

    pub(crate) fn heard(&self, line: &str) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Chat { text, .. } if text == line)).count()
    }

    pub(crate) fn frames(&self, bytes: &[u8]) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Frame { data, .. } if data == bytes)).count()
    }

    pub(crate) fn logged(&self, part: &str) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Log(line) if line.contains(part)))
    }

    pub(crate) fn letter(&self, name: &str) -> Option<String> {
        self.session.roster().players.get(name).map(|player| player.letter.clone())
    }
}

/// A datagram that was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// Processes, and what is under way between them.
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    /// Addresses where a machine answers hellos and does nothing else.
    pub(crate) echoes: BTreeSet<SocketAddr>,
    /// Addresses cut off from everybody.
    pub(crate) cut: BTreeSet<SocketAddr>,
    /// Nothing passes between these two.
    pub(crate) parted: Option<(SocketAddr, SocketAddr)>,
    /// Share of datagrams lost.
    pub(crate) loss: f64,
    /// No sealed frame arrives.
    pub(crate) no_seals: bool,
    /// Everything that was sent, lost or not.
    pub(crate) sent: Vec<Sent>,
    /// Deadlines that came due.
    pub(crate) wakes: usize,
    air: BTreeMap<(Instant, u64), Sent>,
    count: u64,
    dice: Dice,
}

impl Net {
    pub(crate) fn new(seed: u8) -> Self {
        Self {
            now: Instant::now(),
            nodes: Vec::new(),
            echoes: BTreeSet::new(),
            cut: BTreeSet::new(),
            parted: None,
            loss: 0.0,
            no_seals: false,
            sent: Vec::new(),
            wakes: 0,
            air: BTreeMap::new(),
            count: 0,
            dice: Dice::new([seed; 32]),
        }
    }

    /// A host at address 1.
    pub(crate) fn hosted(seed: u8) -> Self {
        let mut net = Self::new(seed);
        net.host(1, host_config(1));
        net
    }

    /// A host at address 1 and one joiner, `lin`, at address 2, who are together.
    pub(crate) fn pair(seed: u8) -> Self {
        let mut net = Self::hosted(seed);
        net.join(2, join_config("lin", 2, code(1)));
        net.run(secs(2));
        net.assert_together(&["ada", "lin"]);
        net
    }

    pub(crate) fn host(&mut self, n: u8, config: HostConfig) -> usize {
        let seed = self.dice.bytes();
        self.add(n, Session::host(config, seed, self.now, WALL))
    }

    pub(crate) fn join(&mut self, n: u8, config: JoinConfig) -> usize {
        let seed = self.dice.bytes();
        self.add(n, Session::join(config, seed, self.now, WALL))
    }

    fn add(&mut self, n: u8, session: Session) -> usize {
        self.nodes.push(Node { session, at: at(n), seen_as: at(n), events: Vec::new() });
        self.nodes.len() - 1
    }

    /// This process is behind another address from now on.
    pub(crate) fn move_to(&mut self, node: usize, n: u8) {
        let node = &mut self.nodes[node];
        (node.at, node.seen_as) = (at(n), at(n));
    }

    pub(crate) fn command(&mut self, node: usize, command: Command) {
        self.nodes[node].session.command(self.now, command);
        self.settle();
    }

    pub(crate) fn chat(&mut self, node: usize, text: &str) {
        self.command(node, Command::Chat(text.to_owned()));
    }

    pub(crate) fn frame(&mut self, node: usize, bytes: &'static [u8]) {
        self.command(node, Command::Frame(Bytes::from_static(bytes)));
    }

    /// A datagram straight into a session.
    pub(crate) fn inject(&mut self, node: usize, from: SocketAddr, bytes: &[u8]) -> Result<(), seam::Refused> {
        let taken = self.nodes[node].session.handle_datagram(self.now, Path::new(LOBBY, from), BytesMut::from(bytes));
        self.settle();
        taken
    }

    /// Everybody says the same about who is here.
    pub(crate) fn assert_together(&self, names: &[&str]) {
        for node in &self.nodes {
            let roster = node.session.roster();
            assert_eq!(roster.players.keys().map(String::as_str).collect::<Vec<_>>(), names, "at '{}'", roster.you);
        }
    }

    /// A line and a frame from each of these two reach the other.
    pub(crate) fn assert_talk(&mut self, a: usize, b: usize, line: &str) {
        for (from, to) in [(a, b), (b, a)] {
            let text = format!("{line} {from}");
            let before = self.nodes[to].frames(b"frame");
            self.chat(from, &text);
            self.frame(from, b"frame");
            self.run(secs(1));
            assert_eq!((self.nodes[to].heard(&text), self.nodes[to].frames(b"frame") - before), (1, 1), "{text}");
        }
    }

    /// Takes everything every process has to give.
    pub(crate) fn settle(&mut self) {
        for n in 0..self.nodes.len() {
            loop {
                let node = &mut self.nodes[n];
                let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
                node.session.poll_transmit(self.now, &mut out);
                let events: Vec<Event> = std::iter::from_fn(|| node.session.poll_event()).collect();
                let requests: Vec<_> = std::iter::from_fn(|| node.session.poll_request()).collect();
                if out.is_empty() && events.is_empty() && requests.is_empty() {
                    break;
                }
                node.events.extend(events);
                for (id, request) in requests {
                    let Request::Stretch { password, timestamp } = request else { panic!("{request:?}") };
                    // As good as the real one, which takes 600,000 rounds.
                    let mut salt = [0; 12];
                    salt[..4].copy_from_slice(&timestamp.to_be_bytes());
                    let key = *seal::SessionKey::derive(&salt, password.reveal()).as_bytes();
                    node.session.handle_reply(self.now, id, Reply::Stretched(key));
                }
                let from = node.seen_as;
                for (to, bytes) in out {
                    self.send(Sent { from, to: to.remote, bytes });
                }
            }
        }
    }

    fn send(&mut self, datagram: Sent) {
        self.sent.push(datagram.clone());
        let is_near = self.echoes.contains(&datagram.to) || self.echoes.contains(&datagram.from);
        let delay = if is_near { 1_000 } else { 10_000 + self.dice.below(30_000) };
        if self.dice.chance(self.loss) || (self.no_seals && datagram.bytes.starts_with(b"NP1:E")) {
            return;
        }
        self.count += 1;
        self.air.insert((self.now + Duration::from_micros(delay), self.count), datagram);
    }

    fn arrive(&mut self, datagram: &Sent) {
        if self.cut.contains(&datagram.from) || self.cut.contains(&datagram.to) {
            return;
        }
        if self.parted.is_some_and(|(a, b)| [(a, b), (b, a)].contains(&(datagram.from, datagram.to))) {
            return;
        }
        if self.echoes.contains(&datagram.to) {
            if let Some(token) = datagram.bytes.strip_prefix(b"NP1:H") {
                let bytes = np1::packet(np1::Kind::Ack, token);
                self.send(Sent { from: datagram.to, to: datagram.from, bytes });
            }
        } else if let Some(node) = self.nodes.iter_mut().find(|node| node.at == datagram.to) {
            let path = Path::new(LOBBY, datagram.from);
            // The session counts what it refuses.
            let _ = node.session.handle_datagram(self.now, path, BytesMut::from(datagram.bytes.as_slice()));
        }
    }

    /// Serves what is due now, until nothing is. A room that hears of another's news may be due once more.
    fn serve(&mut self) {
        for _ in 0..4 {
            self.settle();
            let mut quiet = true;
            for node in &mut self.nodes {
                if node.session.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                    self.wakes += 1;
                    quiet = false;
                    node.session.handle_timeout(self.now);
                }
            }
            if quiet {
                return;
            }
        }
        let due: Vec<_> = self.nodes.iter().map(|node| node.session.poll_timeout()).collect();
        panic!("drained and served, and still due: {due:?} at {:?}", self.now);
    }

    /// Time passes, from one thing that happens to the next.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.serve();
            let due = self.nodes.iter().filter_map(|node| node.session.poll_timeout()).map(|(at, _)| at);
            let next = due.chain(self.air.keys().map(|(at, _)| *at).next()).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = next;
            while let Some(entry) = self.air.first_entry()
                && entry.key().0 <= self.now
            {
                let datagram = entry.remove();
                self.arrive(&datagram);
            }
        }
        self.now = end;
    }
}
