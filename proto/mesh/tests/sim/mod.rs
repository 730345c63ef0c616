//! The world of `world.rs`.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test reads its own tables, and a failure of its own is a panic"
)]

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anywire_mesh::{Config, Event, Mesh, Outgoing, Role, RosterView, Seat, Send};
use bytes::BytesMut;
use seam::{Dice, Path, SocketId};

/// What goes wrong in a world.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Loss up to 30 %, duplicates, jitter.
    pub(crate) loss: bool,
    /// Direct ways between joiners close and open.
    pub(crate) toggles: bool,
    /// The host falls silent for a while.
    pub(crate) silence: bool,
    /// Late joiners, leavers, renames.
    pub(crate) churn: bool,
}

/// What happens to a node at some instant.
#[derive(Clone, Debug)]
enum What {
    Packet { id: u64, from: Path, payload: Outgoing },
    Roster(Arc<Snapshot>),
    DialEnds { name: String, generation: u64, path: Option<Path> },
    Probe(Path),
    Heard(Path),
    Report(Vec<String>),
    Frame,
    Join,
    Leave,
    Rename(String),
    Toggle(usize),
    HostUp(bool),
    Beat,
}

/// A roster as the lobby says it.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    host: Option<String>,
    relay: bool,
    players: BTreeSet<String>,
    profiles: BTreeMap<String, String>,
    pub(crate) links: BTreeMap<String, BTreeSet<String>>,
    names: BTreeMap<usize, String>,
}

struct Node {
    mesh: Mesh,
    name: String,
    /// Every name it had.
    names: BTreeSet<String>,
    meshed: bool,
    member: bool,
    joined: Option<Instant>,
    left: Option<Instant>,
    held: BTreeSet<Path>,
    seen: BTreeSet<u64>,
    dials: BTreeMap<String, u64>,
    fed: Option<(Instant, Arc<Snapshot>)>,
}

/// One frame, when it was sent, and who was to get it.
struct Sent {
    at: Instant,
    by: usize,
    /// Players of the sender's roster who could receive.
    to: BTreeSet<usize>,
}

/// Node 0 is the host.
pub(crate) struct World {
    seed: u64,
    start: Instant,
    now: Instant,
    dice: Dice,
    faults: Faults,
    relay: bool,
    loss: f64,
    nodes: Vec<Node>,
    /// Whether two joiners can reach each other; when that last became false.
    open: BTreeMap<(usize, usize), bool>,
    closed_at: BTreeMap<(usize, usize), Vec<Instant>>,
    host_up: bool,
    host_changes: Vec<(Instant, bool)>,
    links: BTreeMap<String, BTreeSet<String>>,
    queue: BTreeMap<(Instant, u64), (usize, What)>,
    counter: u64,
    sent: Vec<Sent>,
    got: BTreeMap<(usize, usize), Vec<Instant>>,
    order: BTreeMap<(usize, usize), Vec<usize>>,
    through: u64,
    /// `mesh_hi` messages sent.
    hellos: usize,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let start = Instant::now();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut dice = Dice::new(bytes);
        let size = 3 + usize::try_from(dice.below(7)).unwrap();
        let relay = dice.chance(0.3);
        let stars = [0.0, 0.0, 0.3][usize::try_from(dice.below(3)).unwrap()];
        let openness = [0.0, 0.5, 0.9, 1.0][usize::try_from(dice.below(4)).unwrap()];
        let loss = if faults.loss { f64::from(u32::try_from(dice.below(31)).unwrap()) / 100.0 } else { 0.0 };
        let nodes = (0..size).map(|index| {
            let meshed = index > 0 && !dice.chance(stars);
            let role = if index == 0 { Role::Host { relay_only: relay } } else { Role::Joiner { mesh: meshed } };
            let name = format!("p{}{index}", dice.below(10));
            Node {
                mesh: Mesh::new(Config { role }, dice.bytes(), start),
                names: BTreeSet::from([name.clone()]),
                name,
                meshed,
                member: index == 0,
                joined: (index == 0).then_some(start),
                left: None,
                held: BTreeSet::new(),
                seen: BTreeSet::new(),
                dials: BTreeMap::new(),
                fed: None,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let mut world = Self {
            seed,
            start,
            now: start,
            faults,
            relay,
            loss,
            nodes,
            open: BTreeMap::new(),
            closed_at: BTreeMap::new(),
            host_up: true,
            host_changes: Vec::new(),
            links: BTreeMap::new(),
            queue: BTreeMap::new(),
            counter: 0,
            sent: Vec::new(),
            got: BTreeMap::new(),
            order: BTreeMap::new(),
            through: 0,
            hellos: 0,
            dice,
        };
        if !relay {
            let name = world.nodes[0].name.clone();
            world.nodes[0].mesh.set_me(start, &name);
        }
        world.plan(size, openness);
        world
    }

    /// Everything that will happen by itself.
    fn plan(&mut self, size: usize, openness: f64) {
        for a in 1..size {
            for b in a + 1..size {
                let open = self.dice.chance(openness);
                self.open.insert((a, b), open);
            }
            let late = if self.faults.churn { 30_000 } else { 3_000 };
            let join = self.dice.below(late);
            self.after(join, a, What::Join);
            if self.faults.churn && self.dice.chance(0.3) {
                let leave = join + 5_000 + self.dice.below(50_000);
                self.after(leave, a, What::Leave);
            }
            if self.faults.churn && self.dice.chance(0.5) {
                let at = join + 2_000 + self.dice.below(50_000);
                self.after(at, a, What::Rename(format!("r{}{a}", self.nodes[a].name)));
            }
            if self.faults.toggles {
                let at = 20_000 + self.dice.below(60_000);
                self.after(at, a, What::Toggle(1));
            }
        }
        for node in 0..size {
            let at = self.dice.below(300);
            self.after(at, node, What::Frame);
        }
        self.after(2_000, 0, What::Beat);
        if self.faults.silence {
            let down = 60_000 + self.dice.below(5_000);
            self.after(down, 0, What::HostUp(false));
            let up = down + 30_000 + self.dice.below(20_000);
            self.after(up, 0, What::HostUp(true));
        }
    }

    /// Lets `seconds` pass, always jumping to the next thing that happens.
    pub(crate) fn run(&mut self, seconds: u64) {
        let end = self.start + Duration::from_secs(seconds);
        let mut stuck = 0;
        loop {
            self.drain();
            let timers = self.nodes.iter().enumerate().filter(|(_, node)| node.member);
            let timer = timers.filter_map(|(index, node)| Some((node.mesh.poll_timeout()?, index))).min();
            let event = self.queue.keys().next().map(|(at, _)| *at);
            let next = [timer.map(|((at, _), _)| at), event].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            stuck = if next <= self.now { stuck + 1 } else { 0 };
            assert!(stuck < 5_000, "seed {}: time stands still: {timer:?}", self.seed);
            self.now = self.now.max(next);
            if let Some((_, index)) = timer.filter(|((at, _), _)| *at <= self.now) {
                self.nodes[index].mesh.handle_timeout(self.now);
                self.drain();
                let after = self.nodes[index].mesh.poll_timeout();
                assert!(after.is_none_or(|(at, _)| at > self.now), "seed {}: woken for nothing: {after:?}", self.seed);
            }
            let due: Vec<(Instant, u64)> = self.queue.range(..=(self.now, u64::MAX)).map(|(key, _)| *key).collect();
            for key in due {
                if let Some((node, what)) = self.queue.remove(&key) {
                    self.happen(node, what);
                }
            }
        }
    }

    fn happen(&mut self, node: usize, what: What) {
        let now = self.now;
        match what {
            What::Join => self.join(node),
            What::Leave => self.leave(node),
            What::Rename(name) => self.rename(node, name),
            What::Toggle(other) => self.toggle(node, other),
            What::HostUp(up) => {
                self.host_up = up;
                self.host_changes.push((now, up));
            }
            What::Beat => {
                self.publish();
                self.after(2_000, 0, What::Beat);
            }
            What::Frame => {
                self.frame(node);
                let pause = 200 + self.dice.below(300);
                self.after(pause, node, What::Frame);
            }
            _ if !self.nodes[node].member => {}
            What::Packet { id, from, payload } => self.packet(node, id, from, payload),
            What::Roster(roster) => self.feed(node, roster),
            What::Heard(path) => self.nodes[node].mesh.heard(now, path),
            What::DialEnds { name, generation, path } => {
                if self.nodes[node].dials.get(&name) == Some(&generation) {
                    self.nodes[node].dials.remove(&name);
                    match path {
                        Some(path) => self.nodes[node].mesh.link_opened(now, &name, path),
                        None => self.nodes[node].mesh.dial_failed(now, &name),
                    }
                }
            }
            What::Probe(path) => {
                if self.nodes[node].held.contains(&path) {
                    let (other, kind) = node_of(path);
                    if self.is_connected(node, other, kind) && !self.dice.chance(self.loss) {
                        self.after(2 * latency(node, other), node, What::Heard(path));
                    }
                    self.after(2_000, node, What::Probe(path));
                }
            }
            What::Report(names) => {
                let name = self.nodes[node].name.clone();
                if self.links.insert(name, names.iter().cloned().collect()) != Some(names.into_iter().collect()) {
                    self.publish();
                }
            }
        }
    }

    fn join(&mut self, node: usize) {
        let now = self.now;
        let Node { name, meshed, .. } = &self.nodes[node];
        let (name, meshed) = (name.clone(), *meshed);
        self.nodes[0].mesh.member_joined(now, &name, path_of(node, 0), meshed);
        let joiner = &mut self.nodes[node];
        joiner.member = true;
        joiner.joined = Some(now);
        joiner.mesh.host_link(now, Some(path_of(0, 0)));
        self.publish();
    }

    fn leave(&mut self, node: usize) {
        self.nodes[node].member = false;
        self.nodes[node].left = Some(self.now);
        self.nodes[0].mesh.member_left(self.now, path_of(node, 0));
        self.links.remove(&self.nodes[node].name);
        self.publish();
    }

    fn rename(&mut self, node: usize, name: String) {
        if !self.nodes[node].member {
            return;
        }
        self.nodes[0].mesh.rename(self.now, path_of(node, 0), &name);
        let old = std::mem::replace(&mut self.nodes[node].name, name.clone());
        self.nodes[node].names.insert(name.clone());
        if let Some(links) = self.links.remove(&old) {
            self.links.insert(name, links);
        }
        self.publish();
    }

    fn toggle(&mut self, a: usize, b: usize) {
        let pair = (a.min(b), a.max(b));
        let now = self.now;
        if let Some(open) = self.open.get_mut(&pair) {
            *open = !*open;
            if !*open {
                self.closed_at.entry(pair).or_default().push(now);
            }
        }
        let other = 1 + usize::try_from(self.dice.below(9)).unwrap() % (self.nodes.len() - 1);
        let pause = 5_000 + self.dice.below(60_000);
        self.after(pause, a, What::Toggle(other));
    }

    /// Sends everybody the roster as it is.
    fn publish(&mut self) {
        let members =
            || self.nodes.iter().enumerate().filter(|(index, node)| node.member && !(self.relay && *index == 0));
        let leader = members().filter(|(index, _)| *index > 0).min_by_key(|(_, node)| node.joined);
        let leader = leader.map(|(_, node)| node.name.clone());
        let roster = Arc::new(Snapshot {
            host: if self.relay { leader.clone() } else { Some(self.nodes[0].name.clone()) },
            relay: self.relay,
            players: members().map(|(_, node)| node.name.clone()).collect(),
            profiles: members()
                .filter(|(_, node)| node.meshed)
                .map(|(index, node)| (node.name.clone(), index.to_string()))
                .collect(),
            links: self.links.clone(),
            names: members().map(|(index, node)| (index, node.name.clone())).collect(),
        });
        self.nodes[0].mesh.set_leader(self.now, leader.as_deref());
        for node in 1..self.nodes.len() {
            if self.nodes[node].member && self.host_up && !self.dice.chance(self.loss) {
                let delay = self.delay(0, node);
                self.after(delay, node, What::Roster(roster.clone()));
            }
        }
    }

    fn feed(&mut self, node: usize, roster: Arc<Snapshot>) {
        let now = self.now;
        let Some(me) = roster.names.get(&node) else { return };
        let slots: BTreeMap<&str, u8> = roster.players.iter().map(String::as_str).zip(0..=u8::MAX).collect();
        let links = |name| roster.links.get(name).into_iter().flatten().filter_map(|other| slots.get(other.as_str()));
        let players = slots.iter().map(|(&name, &slot)| {
            let profile = roster.profiles.get(name).map(String::as_str);
            (name, Seat { slot, profile, links: links(name).copied().collect() })
        });
        let view = RosterView { me, host: roster.host.as_deref(), relay: roster.relay, players: players.collect() };
        self.nodes[node].mesh.heard(now, path_of(0, 0));
        self.nodes[node].mesh.roster(now, &view);
        let first = self.nodes[node].fed.as_ref().map_or(now, |(first, _)| *first);
        self.nodes[node].fed = Some((first, roster));
    }

    fn frame(&mut self, node: usize) {
        if !self.nodes[node].member || (node == 0 && self.relay) {
            return;
        }
        let is_fed = |index: usize| index == 0 || self.nodes[index].fed.is_some();
        let everybody = (0..self.nodes.len()).filter(|index| {
            let in_view = match &self.nodes[node].fed {
                _ if node == 0 => true,
                Some((_, roster)) => roster.names.contains_key(index),
                None => false,
            };
            *index != node && in_view && self.nodes[*index].member && is_fed(*index) && !(self.relay && *index == 0)
        });
        let to = everybody.collect();
        let id = u64::try_from(self.sent.len()).unwrap();
        self.sent.push(Sent { at: self.now, by: node, to });
        self.nodes[node].mesh.local_frame(self.now, BytesMut::from(&id.to_le_bytes()[..]));
    }

    fn packet(&mut self, node: usize, id: u64, from: Path, payload: Outgoing) {
        let now = self.now;
        if !self.nodes[node].seen.insert(id) {
            return;
        }
        let mesh = &mut self.nodes[node].mesh;
        // Refusals are part of life: before the first roster, and of players who just left.
        let _ = match payload {
            Outgoing::Game(frame) => mesh.handle_frame(now, from, BytesMut::from(frame)),
            Outgoing::Envelope { to, from: by, frame } => {
                let inner = np1::game_frame(&frame).unwrap();
                let whole = np1::Envelope { to: &to, from: &by, inner: &inner }.write().unwrap();
                mesh.handle_envelope(now, from, BytesMut::from(whole.as_slice()))
            }
            Outgoing::Raw(whole) => mesh.handle_envelope(now, from, BytesMut::from(whole)),
            Outgoing::Hi(name) => mesh.handle_hi(now, from, &name),
        };
    }

    /// Takes everything out of every machine.
    fn drain(&mut self) {
        for node in 0..self.nodes.len() {
            while let Some(Send { to, payload }) = self.nodes[node].mesh.poll_send() {
                if self.nodes[node].member {
                    self.through += u64::from(node > 0 && matches!(payload, Outgoing::Raw(_)));
                    self.hellos += usize::from(matches!(payload, Outgoing::Hi(_)));
                    self.transmit(node, &to, &payload);
                }
            }
            while let Some(event) = self.nodes[node].mesh.poll_event() {
                self.event(node, event);
            }
        }
    }

    fn transmit(&mut self, node: usize, to: &[Path], payload: &Outgoing) {
        self.counter += 1;
        let id = self.counter;
        assert_eq!(to.iter().collect::<BTreeSet<_>>().len(), to.len(), "seed {}: a receiver twice", self.seed);
        for path in to {
            let (other, kind) = node_of(*path);
            let copies = if self.faults.loss && self.dice.chance(0.1) { 2 } else { 1 };
            for _ in 0..copies {
                if self.is_connected(node, other, kind) && !self.dice.chance(self.loss) {
                    let delay = self.delay(node, other);
                    let packet = What::Packet { id, from: path_of(node, kind), payload: payload.clone() };
                    self.after(delay, other, packet);
                }
            }
        }
    }

    fn event(&mut self, node: usize, event: Event) {
        match event {
            Event::Deliver { from, frame } => {
                let id = usize::try_from(u64::from_le_bytes(frame[..].try_into().unwrap())).unwrap();
                let by = self.sent[id].by;
                let known =
                    from.is_none_or(|name| self.nodes[by].names.contains(&name) || self.nodes[0].names.contains(&name));
                assert!(known, "seed {}: a frame under another player's name", self.seed);
                self.got.entry((id, node)).or_default().push(self.now);
                self.order.entry((by, node)).or_default().push(id);
            }
            Event::Dial { name, profile } => {
                let other: usize = profile.parse().unwrap();
                self.counter += 1;
                self.nodes[node].dials.insert(name.clone(), self.counter);
                let kind = u8::try_from(self.dice.below(2)).unwrap();
                let works = self.is_connected(node, other, kind) && self.nodes[other].member;
                let (wait, path) =
                    if works { (2 * self.delay(node, other), Some(path_of(other, kind))) } else { (8_000, None) };
                self.after(wait, node, What::DialEnds { name, generation: self.counter, path });
            }
            Event::CancelDial { name } => {
                self.nodes[node].dials.remove(&name);
            }
            Event::LinkUp { path, .. } => {
                assert!(self.nodes[node].held.insert(path), "seed {}: a link came up twice", self.seed);
                self.after(2_000, node, What::Probe(path));
            }
            Event::LinkDown { path, .. } => {
                assert!(self.nodes[node].held.remove(&path), "seed {}: a link went down twice", self.seed);
            }
            Event::Direct(names) => {
                if self.host_up && !self.dice.chance(self.loss) && self.nodes[node].member {
                    let delay = self.delay(node, 0);
                    self.after(delay, node, What::Report(names));
                }
            }
            Event::Oversize { .. } => panic!("seed {}: no frame is that long", self.seed),
        }
    }

    fn is_connected(&self, a: usize, b: usize, kind: u8) -> bool {
        if a == 0 || b == 0 { self.host_up && kind == 0 } else { self.open[&(a.min(b), a.max(b))] }
    }

    fn delay(&mut self, a: usize, b: usize) -> u64 {
        let jitter = if self.faults.loss { self.dice.below(80) } else { 0 };
        latency(a, b) + jitter
    }

    fn after(&mut self, millis: u64, node: usize, what: What) {
        self.counter += 1;
        self.queue.insert((self.now + Duration::from_millis(millis), self.counter), (node, what));
    }
}

/// One way, in milliseconds.
fn latency(a: usize, b: usize) -> u64 {
    5 + u64::try_from(a * b * 7 + (a + b) * 11).unwrap() % 50
}

/// Every node has two addresses, as one behind a router has; a pair that sees each other's one sees the other's same.
fn path_of(node: usize, kind: u8) -> Path {
    let port = 1_000 + u16::try_from(node).unwrap();
    Path::new(SocketId(0), SocketAddr::from(([10, kind, 0, 1], port)))
}

fn node_of(path: Path) -> (usize, u8) {
    let SocketAddr::V4(address) = path.remote else { panic!("paths are IPv4 here") };
    (usize::from(address.port() - 1_000), address.ip().octets()[1])
}
