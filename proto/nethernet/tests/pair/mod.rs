//! Two or more endpoints in virtual time: datagrams and signals over links that lose, delay, repeat and reorder.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a test may read the clock once and fail, and none needs all of this"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use netem::{Link, LinkConfig};
use nethernet::NetworkId;
use nethernet::engine::Certificate;
use nethernet::frame::Channel;
use nethernet::session::{Config, Endpoint, Event, SessionId, Socket, Use};
use seam::{Path, SocketId};

pub type Datagram = (SocketAddr, SocketAddr, Vec<u8>);
/// A signal with its sender.
pub type Said = (NetworkId, Vec<u8>);

/// One endpoint with what it told.
pub struct Peer {
    pub id: NetworkId,
    pub endpoint: Endpoint,
    pub sockets: Vec<SocketAddr>,
    pub events: Vec<Event>,
    /// Packets read, when `reads` is set.
    pub got: Vec<(SessionId, Channel, Bytes)>,
    pub reads: bool,
    /// Signals it has sent, as texts.
    pub said: Vec<String>,
    pub deaf: bool,
}

/// Peers on one network.
pub struct World {
    pub start: Instant,
    pub now: Instant,
    pub peers: Vec<Peer>,
    /// By receiver's socket.
    pub links: BTreeMap<(usize, usize), Link<Datagram>>,
    pub signals: BTreeMap<(usize, usize), Link<Said>>,
    pub wire: LinkConfig,
    pub signalling: LinkConfig,
    pub seed: u8,
    pub steps: u64,
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn delayed(delay: u64) -> LinkConfig {
    LinkConfig { delay: ms(delay), ..LinkConfig::default() }
}

pub fn socket(n: u16, addr: &str, purpose: Use) -> Socket {
    let addr = addr.parse().unwrap();
    Socket { id: SocketId(n), base: addr, announce: vec![addr], purpose }
}

impl World {
    pub fn new(wire: LinkConfig, signalling: LinkConfig, seed: u8) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            now,
            peers: Vec::new(),
            links: BTreeMap::new(),
            signals: BTreeMap::new(),
            wire,
            signalling,
            seed,
            steps: 0,
        }
    }

    /// A peer with one socket for everything, or as `change` makes it.
    pub fn add(&mut self, change: impl FnOnce(&mut Config)) -> usize {
        let n = self.peers.len();
        let mut config = Config::new(vec![socket(0, &format!("10.0.0.{}:4000", n + 1), Use::Both)]);
        change(&mut config);
        let sockets = config.sockets.iter().map(|s| s.base).collect();
        let certificate = Certificate::generate().unwrap();
        let endpoint = Endpoint::new(config, certificate, [self.seed.wrapping_add(n as u8); 32], self.now).unwrap();
        self.peers.push(Peer {
            id: NetworkId::P2p(100 + n as u64),
            endpoint,
            sockets,
            events: Vec::new(),
            got: Vec::new(),
            reads: true,
            said: Vec::new(),
            deaf: false,
        });
        n
    }

    pub fn pair(wire: LinkConfig, signalling: LinkConfig, seed: u8) -> Self {
        let mut world = Self::new(wire, signalling, seed);
        world.add(|_| {});
        world.add(|_| {});
        world
    }

    pub fn dial(&mut self, from: usize, to: usize) -> SessionId {
        let (id, now) = (self.peers[to].id.clone(), self.now);
        self.peers[from].endpoint.connect(now, id).unwrap()
    }

    pub fn who(&self, addr: SocketAddr) -> Option<usize> {
        self.peers.iter().position(|p| p.sockets.contains(&addr))
    }

    pub fn peer_of(&self, id: &NetworkId) -> Option<usize> {
        self.peers.iter().position(|p| p.id == *id)
    }

    /// Takes everything out of every endpoint.
    pub fn drain(&mut self) {
        let now = self.now;
        for n in 0..self.peers.len() {
            loop {
                let mut any = false;
                let peer = &mut self.peers[n];
                while let Some(event) = peer.endpoint.poll_event() {
                    any = true;
                    if let Event::Readable(id) = event
                        && peer.reads
                    {
                        while let Some((channel, packet)) = peer.endpoint.recv(now, id) {
                            peer.got.push((id, channel, packet));
                        }
                    }
                    peer.events.push(event);
                }
                let mut batch: Vec<(Path, Vec<u8>)> = Vec::new();
                any |= peer.endpoint.poll_transmit(now, &mut batch);
                let mut said = Vec::new();
                while let Some(signal) = peer.endpoint.poll_signal() {
                    any = true;
                    peer.said.push(signal.1.clone());
                    said.push(signal);
                }
                let sockets = peer.sockets.clone();
                let id = peer.id.clone();
                for (path, bytes) in batch {
                    let from = sockets[usize::from(path.socket.0)];
                    self.push(n, from, path.remote, bytes);
                }
                for (to, text) in said {
                    let Some(to) = self.peer_of(&to) else { continue };
                    let seed = [self.seed ^ 0x55 ^ (n as u8) << 4 ^ to as u8; 32];
                    let config = self.signalling;
                    let link = self.signals.entry((n, to)).or_insert_with(|| Link::new(config, seed));
                    link.push(now, (id.clone(), text.into_bytes()));
                }
                if !any {
                    break;
                }
            }
        }
    }

    fn push(&mut self, n: usize, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let Some(receiver) = self.who(to) else { return };
        let seed = [self.seed ^ 0xAA ^ (n as u8) << 4 ^ receiver as u8; 32];
        let config = self.wire;
        let link = self.links.entry((n, receiver)).or_insert_with(|| Link::new(config, seed));
        link.push(self.now, (from, to, bytes));
    }

    /// Runs to the next thing that happens, or to `until`.
    fn step(&mut self, until: Instant) {
        self.steps += 1;
        self.drain();
        let mut next = until;
        for peer in self.peers.iter().filter(|p| !p.deaf) {
            if let Some((at, _)) = peer.endpoint.poll_timeout() {
                next = next.min(at);
            }
        }
        for (at, _) in self.links.values().filter_map(Link::poll_timeout) {
            next = next.min(at);
        }
        for (at, _) in self.signals.values().filter_map(Link::poll_timeout) {
            next = next.min(at);
        }
        self.now = self.now.max(next);
        let now = self.now;
        for ((_, to), link) in &mut self.links {
            while let Some((from, socket, bytes)) = link.pop(now) {
                let peer = &mut self.peers[*to];
                let at = peer.sockets.iter().position(|s| *s == socket).unwrap();
                if !peer.deaf {
                    peer.endpoint.handle_datagram(now, Path::new(SocketId(at as u16), from), &bytes);
                }
            }
        }
        for ((_, to), link) in &mut self.signals {
            while let Some((from, text)) = link.pop(now) {
                if !self.peers[*to].deaf {
                    self.peers[*to].endpoint.handle_signal(now, &from, std::str::from_utf8(&text).unwrap());
                }
            }
        }
        for peer in self.peers.iter_mut().filter(|p| !p.deaf) {
            if peer.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
                peer.endpoint.handle_timeout(now);
            }
        }
        self.drain();
    }

    /// Runs until `done`, at most `limit` of virtual time. Whether it was done.
    pub fn until(&mut self, limit: Duration, mut done: impl FnMut(&World) -> bool) -> bool {
        let end = self.now + limit;
        let mut still = 0;
        loop {
            if done(self) {
                return true;
            }
            if self.now >= end {
                return false;
            }
            let before = self.now;
            self.step(end);
            still = if self.now == before { still + 1 } else { 0 };
            assert!(
                still < 20_000,
                "time stands still: {:?}",
                self.peers.iter().map(|p| p.endpoint.poll_timeout()).collect::<Vec<_>>()
            );
        }
    }

    pub fn run(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    pub fn opened(&self, n: usize) -> Vec<SessionId> {
        let opened = |event: &Event| if let Event::Opened { session, .. } = event { Some(*session) } else { None };
        self.peers[n].events.iter().filter_map(opened).collect()
    }

    pub fn closed(&self, n: usize) -> Vec<(SessionId, nethernet::SessionError)> {
        let closed = |event: &Event| {
            if let Event::Closed { session, error, .. } = event { Some((*session, *error)) } else { None }
        };
        self.peers[n].events.iter().filter_map(closed).collect()
    }

    pub fn both_open(&self) -> bool {
        (0..2).all(|n| !self.opened(n).is_empty())
    }

    pub fn send(&mut self, n: usize, id: SessionId, channel: Channel, packet: &[u8]) {
        let now = self.now;
        self.peers[n].endpoint.send(now, id, channel, Bytes::copy_from_slice(packet)).unwrap();
    }
}
