//! A small internet in virtual time: machines at addresses, some behind routers, STUN servers. The clock jumps exactly
//! to the next deadline, so a forgotten wake-up shows as silence.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "the first instant of a virtual time has to come from somewhere")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a world that is set up wrongly fails its test")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anywire_punch::{Config, DialId, Event, Punch};
use netem::{Link, LinkConfig, Nat, NatConfig};
use np1::{Kind, Packet};
use seam::{Path, SocketId};

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn path(text: &str) -> Path {
    Path::new(SocketId(0), at(text))
}

enum What {
    Machine(Box<Punch>),
    /// Answers binding requests with the address it sees.
    Stun,
    /// As well, with the other addresses of the same server: its own nodes' numbers by (address, port).
    StunPart {
        places: [usize; 4],
        two_addresses: bool,
    },
    /// Swallows everything; a test speaks for it.
    Puppet,
}

struct Node {
    what: What,
    inner: SocketAddr,
    nat: Option<usize>,
    /// From this node to everybody.
    uplink: Link<(SocketAddr, SocketAddr, Vec<u8>)>,
    events: Vec<(Duration, Event)>,
    /// What reached the node: when, from where, what.
    got: Vec<(Duration, SocketAddr, Vec<u8>)>,
}

pub(crate) struct World {
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    nodes: Vec<Node>,
    nats: Vec<Nat>,
    link: LinkConfig,
    seed: u8,
    /// Everything that was put on a wire: when, by whom, to where, what.
    pub(crate) wire: Vec<(Duration, usize, SocketAddr, Vec<u8>)>,
}

impl World {
    /// A world whose links, in each direction, do what `link` says.
    pub(crate) fn new(link: LinkConfig, seed: u8) -> Self {
        let now = Instant::now();
        Self { start: now, now, nodes: Vec::new(), nats: Vec::new(), link, seed, wire: Vec::new() }
    }

    pub(crate) fn delayed(delay: Duration) -> Self {
        Self::new(LinkConfig { delay, ..LinkConfig::default() }, 1)
    }

    fn seed(&mut self) -> [u8; 32] {
        let number = u8::try_from(self.nodes.len() + self.nats.len()).unwrap();
        let mut seed = [self.seed; 32];
        seed[0] = number;
        seed
    }

    pub(crate) fn router(&mut self, config: NatConfig, external: &str) -> usize {
        let seed = self.seed();
        self.nats.push(Nat::new(config, external.parse().unwrap(), seed));
        self.nats.len() - 1
    }

    fn node(&mut self, what: What, inner: SocketAddr, nat: Option<usize>) -> usize {
        let seed = self.seed();
        let uplink = Link::new(self.link, seed);
        self.nodes.push(Node { what, inner, nat, uplink, events: Vec::new(), got: Vec::new() });
        self.nodes.len() - 1
    }

    pub(crate) fn machine(&mut self, inner: &str, nat: Option<usize>) -> usize {
        let mut seed = self.seed();
        seed[1] = 0xFF;
        let punch = Punch::new(Config::default(), seed, self.now);
        self.node(What::Machine(Box::new(punch)), at(inner), nat)
    }

    pub(crate) fn stun_server(&mut self, address: &str) -> usize {
        self.node(What::Stun, at(address), None)
    }

    /// A server at two ports of one or two addresses; the first address names it.
    pub(crate) fn stun_teller(&mut self, addresses: &[&str]) {
        let first = self.nodes.len();
        let (two, ports) = (addresses.len() > 1, [3478, 3479]);
        for (n, address) in addresses.iter().enumerate() {
            for (m, port) in ports.into_iter().enumerate() {
                let own = 2 * n + m;
                // Where an answer comes from: here, the other port, the other address, both.
                let places = [own, own ^ 1, own ^ 2, own ^ 3].map(|at| first + at);
                self.node(What::StunPart { places, two_addresses: two }, at(&format!("{address}:{port}")), None);
            }
        }
    }

    pub(crate) fn puppet(&mut self, address: &str) -> usize {
        self.node(What::Puppet, at(address), None)
    }

    pub(crate) fn nat(&mut self, index: usize) -> &mut Nat {
        &mut self.nats[index]
    }

    pub(crate) fn set_link(&mut self, node: usize, link: LinkConfig) {
        self.nodes[node].uplink.set_config(link);
    }

    /// Calls a verb of a machine at the present instant.
    pub(crate) fn call<R>(&mut self, node: usize, verb: impl FnOnce(&mut Punch, Instant) -> R) -> R {
        let now = self.now;
        let What::Machine(punch) = &mut self.nodes[node].what else { unreachable!("not a machine") };
        let result = verb(punch, now);
        self.drain(node);
        result
    }

    pub(crate) fn dial(&mut self, node: usize, id: u64, candidates: &[&str], timeout: Duration) {
        let candidates = candidates.iter().map(|text| at(text)).collect();
        self.call(node, |punch, now| punch.dial(now, DialId(id), candidates, timeout));
    }

    pub(crate) fn observe(&mut self, node: usize, servers: &[&str]) {
        let servers = servers.iter().map(|text| at(text)).collect();
        self.call(node, |punch, now| punch.observe(now, servers));
    }

    /// Puts a datagram on a puppet's wire.
    pub(crate) fn speak(&mut self, node: usize, to: &str, bytes: &[u8]) {
        self.emit(node, at(to), bytes.to_vec());
    }

    /// What a node's machine told, and when since the start.
    pub(crate) fn events(&self, node: usize) -> &[(Duration, Event)] {
        &self.nodes[node].events
    }

    /// What reached a node.
    pub(crate) fn got(&self, node: usize) -> &[(Duration, SocketAddr, Vec<u8>)] {
        &self.nodes[node].got
    }

    pub(crate) fn opened(&self, node: usize) -> Option<(Duration, Path, Duration)> {
        self.nodes[node].events.iter().find_map(|(when, event)| match event {
            Event::Opened { path, rtt, .. } => Some((*when, *path, *rtt)),
            _ => None,
        })
    }

    /// When a node put packets of a kind on the wire, and to where.
    pub(crate) fn sent(&self, node: usize, kind: Kind) -> Vec<(Duration, SocketAddr)> {
        let is_kind = |bytes: &[u8]| Packet::parse(bytes).is_ok_and(|packet| packet.kind == kind);
        self.wire
            .iter()
            .filter(|(_, by, _, bytes)| *by == node && is_kind(bytes))
            .map(|(t, _, to, _)| (*t, *to))
            .collect()
    }

    /// Runs for a time.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Jumps to the next deadline; false when there is none until `end`.
    fn step(&mut self, end: Instant) -> bool {
        let Some(due) = self
            .nodes
            .iter()
            .filter_map(|node| {
                let machine = if let What::Machine(punch) = &node.what { punch.poll_timeout() } else { None };
                [machine, node.uplink.poll_timeout()].into_iter().flatten().map(|(due, _)| due).min()
            })
            .min()
            .filter(|due| *due <= end)
        else {
            return false;
        };
        assert!(due >= self.now, "a deadline in the past after a drain");
        self.now = due;
        let arrivals: Vec<_> =
            self.nodes.iter_mut().flat_map(|node| std::iter::from_fn(|| node.uplink.pop(due))).collect();
        for (from, to, bytes) in arrivals {
            self.arrive(from, to, bytes);
        }
        for node in 0..self.nodes.len() {
            let now = self.now;
            if let What::Machine(punch) = &mut self.nodes[node].what {
                punch.handle_timeout(now);
                self.drain(node);
            }
        }
        true
    }

    fn drain(&mut self, node: usize) {
        let (now, since) = (self.now, self.now - self.start);
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        let this = &mut self.nodes[node];
        let What::Machine(punch) = &mut this.what else { return };
        punch.poll_transmit(now, &mut out);
        this.events.extend(std::iter::from_fn(|| punch.poll_event()).map(|event| (since, event)));
        for (path, bytes) in out {
            assert_eq!(path.socket, SocketId(0));
            self.emit(node, path.remote, bytes);
        }
    }

    fn emit(&mut self, node: usize, to: SocketAddr, bytes: Vec<u8>) {
        let now = self.now;
        self.wire.push((now - self.start, node, to, bytes.clone()));
        let (inner, nat) = (self.nodes[node].inner, self.nodes[node].nat);
        let at_home = self.nodes.iter().any(|other| other.inner == to && other.nat == nat);
        let (from, to) = match nat {
            Some(nat) if !at_home && to.ip() == self.nats[nat].external() => {
                let Some((from, inner)) = self.nats[nat].hairpin(now, inner, to) else { return };
                (from, inner)
            }
            Some(nat) if !at_home => match self.nats[nat].outbound(now, inner, to) {
                Some(from) => (from, to),
                None => return,
            },
            Some(_) | None => (inner, to),
        };
        self.nodes[node].uplink.push(now, (from, to, bytes));
    }

    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let now = self.now;
        let inside = self.nats.iter_mut().enumerate().find(|(_, nat)| nat.external() == to.ip());
        let (to, nat) = match inside {
            Some((index, nat)) => match nat.inbound(now, from, to) {
                Some(inner) => (inner, Some(Some(index))),
                None => return,
            },
            // A private address reaches whoever has it at home; the sender's home was settled when it was sent.
            None => {
                let turned = self.nats.iter().position(|nat| nat.external() == from.ip());
                (to, turned.filter(|_| is_private(to)).map(Some))
            }
        };
        let same_home = |node: &Node| {
            let sender = self.nodes.iter().find(|other| other.inner == from);
            nat.unwrap_or_else(|| sender.and_then(|sender| sender.nat).filter(|_| is_private(to))) == node.nat
        };
        let Some(index) = self.nodes.iter().position(|node| node.inner == to && same_home(node)) else { return };
        let since = now - self.start;
        self.nodes[index].got.push((since, from, bytes.clone()));
        let from_path = Path::new(SocketId(0), from);
        match &mut self.nodes[index].what {
            What::Machine(punch) => {
                let _ = match Packet::parse(&bytes) {
                    Ok(packet) => punch.handle_packet(now, from_path, packet),
                    Err(_) => punch.handle_stun(now, from_path, &bytes),
                };
                self.drain(index);
            }
            What::Stun => {
                if let Ok(request) = stun::Request::parse(&bytes) {
                    let answer = stun::Answer::of(&request, from).encode();
                    self.emit(index, from, answer);
                }
            }
            What::StunPart { places, two_addresses } => {
                let ([own, port, ip, both], two) = (*places, *two_addresses);
                let Ok(request) = stun::Request::parse(&bytes) else { return };
                let speaker = match (request.change.ip, request.change.port) {
                    (true, _) if !two => return self.emit(index, from, stun::Answer::refusal(&request)),
                    (false, false) => own,
                    (false, true) => port,
                    (true, false) => ip,
                    (true, true) => both,
                };
                let other = self.nodes[if two { both } else { port }].inner;
                let origin = self.nodes[speaker].inner;
                let answer = stun::Answer::of(&request, from).with_places(Some(origin), Some(other)).encode();
                self.emit(speaker, from, answer);
            }
            What::Puppet => {}
        }
    }
}

fn is_private(address: SocketAddr) -> bool {
    matches!(address.ip(), std::net::IpAddr::V4(ip) if ip.is_private())
}

/// What a machine measured of a path by now.
pub(crate) fn stats(world: &mut World, node: usize, remote: &str) -> seam::LinkStats {
    world.call(node, |punch, now| {
        punch.handle_timeout(now);
        punch.stats(path(remote)).unwrap()
    })
}
