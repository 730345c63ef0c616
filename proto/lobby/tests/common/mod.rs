//! A host and its joiners in virtual time, over a link that loses, repeats and reorders by the dice.
//!
//! The clock jumps exactly to the next `poll_timeout` or arrival and never ticks: a wake-up that a machine forgets makes
//! a test fail by running out of turns.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anywire_lobby::{Event, Host, HostConfig, JoinConfig, Joiner, Roster};
use seam::{Dice, Path, SocketId};
use serde_json::Value;

pub(crate) const VERSION: &str = "0.7.1.4";
/// Unix time at which every world begins.
pub(crate) const WALL: u64 = 1_790_000_000;
/// Where joiners see the host.
pub(crate) const HOST: u16 = 29_471;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn path(port: u16) -> Path {
    Path::new(SocketId(0), SocketAddr::from(([198, 51, 100, 1], port)))
}

pub(crate) fn host_config() -> HostConfig {
    HostConfig { version: VERSION.into(), name: "ada".into(), lobby_name: "Tuesday".into(), ..HostConfig::default() }
}

pub(crate) fn join_config(name: &str) -> JoinConfig {
    JoinConfig { version: VERSION.into(), name: name.into(), ..JoinConfig::default() }
}

/// What the link does to a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// Datagrams take 20 ms, and up to this much longer.
    pub(crate) jitter: Duration,
}

pub(crate) const PERFECT: Link = Link { loss: 0.0, duplicate: 0.0, jitter: Duration::ZERO };
pub(crate) const ROUGH: Link = Link { loss: 0.3, duplicate: 0.1, jitter: Duration::from_millis(200) };

pub(crate) enum Node {
    Joiner(Box<Joiner>),
    /// An old peer played by the test: what it hears is kept.
    Script(Vec<Value>),
}

pub(crate) struct World {
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) link: Link,
    dice: Dice,
    pub(crate) host: Host,
    pub(crate) host_events: Vec<Event>,
    /// By port: the path the host sees.
    pub(crate) nodes: BTreeMap<u16, Node>,
    pub(crate) events: BTreeMap<u16, Vec<Event>>,
    /// Arrival and order of sending, then: to the host, the joiner's port, the bytes.
    wire: BTreeMap<(Instant, u64), (bool, u16, Vec<u8>)>,
    sent: u64,
    /// Nothing of these gets through, in either direction.
    pub(crate) cut: Vec<u16>,
    /// How many fragments of 1,300 bytes the host sent.
    pub(crate) host_datagrams: u64,
    /// Longest message a host sent, by its kind.
    pub(crate) longest: BTreeMap<String, usize>,
}

impl World {
    pub(crate) fn new(seed: u8, link: Link, config: HostConfig) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: start,
            link,
            dice: Dice::new([seed; 32]),
            host: Host::new(Arc::new(config), [seed; 32], start, WALL),
            host_events: Vec::new(),
            nodes: BTreeMap::new(),
            events: BTreeMap::new(),
            wire: BTreeMap::new(),
            sent: 0,
            cut: Vec::new(),
            host_datagrams: 0,
            longest: BTreeMap::new(),
        }
    }

    pub(crate) fn join(&mut self, port: u16, config: JoinConfig) {
        let mut joiner = Joiner::new(Arc::new(config), [7; 32], self.now);
        joiner.connected(self.now, path(HOST));
        self.nodes.insert(port, Node::Joiner(Box::new(joiner)));
        self.pump();
    }

    pub(crate) fn script(&mut self, port: u16) {
        self.nodes.insert(port, Node::Script(Vec::new()));
    }

    /// A scripted peer says something.
    pub(crate) fn say(&mut self, port: u16, json: &str) {
        self.send(true, port, json.as_bytes().to_vec());
    }

    /// What a scripted peer heard of this kind.
    pub(crate) fn told(&self, port: u16, kind: &str) -> Vec<Value> {
        match self.nodes.get(&port) {
            Some(Node::Script(heard)) => heard.iter().filter(|message| message["t"] == kind).cloned().collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn joiner(&mut self, port: u16) -> &mut Joiner {
        match self.nodes.get_mut(&port) {
            Some(Node::Joiner(joiner)) => joiner,
            _ => panic!("no joiner at {port}"),
        }
    }

    pub(crate) fn roster(&mut self, port: u16) -> Arc<Roster> {
        self.joiner(port).roster()
    }

    pub(crate) fn events_of(&self, port: u16) -> &[Event] {
        self.events.get(&port).map(Vec::as_slice).unwrap_or_default()
    }

    /// A joiner goes on from another address; its process is the same.
    pub(crate) fn move_joiner(&mut self, old: u16, new: u16) {
        let node = self.nodes.remove(&old).unwrap();
        self.nodes.insert(new, node);
        let events = self.events.remove(&old).unwrap_or_default();
        self.events.insert(new, events);
    }

    fn send(&mut self, to_host: bool, port: u16, bytes: Vec<u8>) {
        if !to_host {
            self.host_datagrams += bytes.len().div_ceil(1_300) as u64;
            let kind = serde_json::from_slice::<Value>(&bytes).unwrap()["t"].as_str().unwrap().to_owned();
            let longest = self.longest.entry(kind).or_default();
            *longest = bytes.len().max(*longest);
        }
        if self.cut.contains(&port) {
            return;
        }
        // A message of many fragments needs all of them.
        let pieces = i32::try_from(bytes.len().div_ceil(1_300)).unwrap();
        let copies = 1 + u32::from(self.dice.chance(self.link.duplicate));
        for _ in 0..copies {
            if self.dice.chance(1.0 - (1.0 - self.link.loss).powi(pieces)) {
                continue;
            }
            let jitter = u64::try_from(self.link.jitter.as_micros()).unwrap();
            let arrival = self.now + ms(20) + Duration::from_micros(self.dice.below(jitter + 1));
            self.sent += 1;
            self.wire.insert((arrival, self.sent), (to_host, port, bytes.clone()));
        }
    }

    /// Fetches everything that waits.
    pub(crate) fn pump(&mut self) {
        let due = self.host.poll_timeout();
        let mut waited = false;
        while let Some((to, bytes)) = self.host.poll_message() {
            waited = true;
            self.send(false, to.remote.port(), bytes);
        }
        while let Some(event) = self.host.poll_event() {
            waited = true;
            self.host_events.push(event);
        }
        assert!(!waited || due.is_some_and(|(at, _)| at <= self.now), "something is queued and nobody is woken");
        let mut out = Vec::new();
        for (&port, node) in &mut self.nodes {
            let Node::Joiner(joiner) = node else { continue };
            let due = joiner.poll_timeout();
            let mut waited = false;
            while let Some((to, bytes)) = joiner.poll_message() {
                assert_eq!(to, path(HOST));
                waited = true;
                out.push((port, bytes));
            }
            while let Some(event) = joiner.poll_event() {
                waited = true;
                let events = self.events.entry(port).or_default();
                if matches!(event, Event::Roster(_)) {
                    events.retain(|event| !matches!(event, Event::Roster(_)));
                }
                events.push(event);
            }
            assert!(!waited || due.is_some_and(|(at, _)| at <= self.now), "something is queued and nobody is woken");
        }
        for (port, bytes) in out {
            self.send(true, port, bytes);
        }
    }

    fn next(&self) -> Option<Instant> {
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let joiners = self.nodes.values().filter_map(|node| match node {
            Node::Joiner(joiner) => joiner.poll_timeout().map(|(at, _)| at),
            Node::Script(_) => None,
        });
        joiners.chain(arrival).chain(self.host.poll_timeout().map(|(at, _)| at)).min()
    }

    /// Lets time pass in which the host's process stands still.
    pub(crate) fn stall_host(&mut self, time: Duration) {
        let end = self.now + time;
        let arrivals = |world: &Self| world.wire.keys().next().map(|(at, _)| *at);
        // Joiners go on; what they send waits in the host's socket.
        let mut waiting = Vec::new();
        loop {
            let joiners = self.nodes.values().filter_map(|node| match node {
                Node::Joiner(joiner) => joiner.poll_timeout().map(|(at, _)| at),
                Node::Script(_) => None,
            });
            let Some(next) = joiners.chain(arrivals(self)).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.deliver(&mut waiting, false);
            self.wake_joiners();
            self.pump();
        }
        self.now = end;
        for (port, bytes) in waiting {
            let _ = self.host.handle_message(end, path(port), &bytes);
        }
        self.host.handle_timeout(end);
        self.pump();
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.pump();
        let mut turns = 0u64;
        while let Some(next) = self.next().filter(|next| *next <= end) {
            turns += 1;
            assert!(turns < 5_000_000, "the world does not get on");
            self.now = self.now.max(next);
            self.deliver(&mut Vec::new(), true);
            if self.host.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                self.host.handle_timeout(self.now);
            }
            self.wake_joiners();
            self.pump();
        }
        self.now = end;
    }

    fn wake_joiners(&mut self) {
        let now = self.now;
        for node in self.nodes.values_mut() {
            if let Node::Joiner(joiner) = node
                && joiner.poll_timeout().is_some_and(|(at, _)| at <= now)
            {
                joiner.handle_timeout(now);
            }
        }
    }

    fn deliver(&mut self, waiting: &mut Vec<(u16, Vec<u8>)>, host: bool) {
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to_host, port, bytes) = entry.remove();
            if self.cut.contains(&port) {
                continue;
            }
            if to_host {
                if host {
                    let _ = self.host.handle_message(self.now, path(port), &bytes);
                } else {
                    waiting.push((port, bytes));
                }
            } else {
                match self.nodes.get_mut(&port) {
                    Some(Node::Joiner(joiner)) => {
                        let _ = joiner.handle_message(self.now, path(HOST), &bytes);
                    }
                    Some(Node::Script(heard)) => heard.push(serde_json::from_slice(&bytes).unwrap()),
                    None => {}
                }
            }
        }
    }

    /// Every joiner's roster is the host's, but for what is one's own.
    pub(crate) fn assert_agreement(&mut self) {
        let host = self.host.roster();
        let ports: Vec<u16> = self.nodes.keys().copied().collect();
        for port in ports {
            let Some(Node::Joiner(joiner)) = self.nodes.get(&port) else { continue };
            let mut roster = Roster::clone(&joiner.roster());
            assert!(roster.players.contains_key(&roster.you), "{port} knows itself");
            assert_eq!(self.host.name_of(path(port)), Some(roster.you.as_str()));
            roster.you.clone_from(&host.you);
            roster.started = host.started;
            assert_eq!(reseated(&roster), reseated(&host), "at {port}");
        }
    }
}

/// A roster with the slots that follow from the order of names: whoever is told no slots gives out others.
fn reseated(roster: &Roster) -> Roster {
    let mut told = roster.clone();
    for (player, slot) in told.players.values_mut().zip(0..=u8::MAX) {
        let links: BTreeSet<&str> = roster.names(player.links).collect();
        assert_eq!(links.len(), player.links.len(), "a link to an empty seat");
        let slots = roster.players.keys().zip(0..=u8::MAX).filter(|(name, _)| links.contains(name.as_str()));
        player.links = slots.map(|(_, slot)| slot).collect();
        player.slot = slot;
    }
    told
}
