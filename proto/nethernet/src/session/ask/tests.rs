//! Endpoints with servers: a STUN and TURN server that does what RFC 8656 says and no more.

#![allow(clippy::disallowed_methods, reason = "the first instant of a virtual time has to come from somewhere")]

use std::collections::BTreeMap;

use super::*;
use crate::engine::Certificate;
use crate::frame::Channel;
use crate::session::{Config, Endpoint, Event, SessionId, Socket, Use};
use crate::{ConnectionFlags, NetworkId};
use bytes::Bytes;
use seam::{Path, SocketId};

const MAIN: &str = "203.0.113.1:3478";
const OTHER: &str = "203.0.113.2:3478";

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Allocations by client; relays are ports of the server's own address.
struct FakeTurn {
    at: SocketAddr,
    redirect: Option<SocketAddr>,
    nonce: &'static [u8],
    silent: bool,
    relays: BTreeMap<SocketAddr, SocketAddr>,
    channels: BTreeMap<(SocketAddr, u16), SocketAddr>,
    refreshes: usize,
}

impl FakeTurn {
    fn new(at: &str) -> Self {
        Self {
            at: addr(at),
            redirect: None,
            nonce: b"one",
            silent: false,
            relays: BTreeMap::new(),
            channels: BTreeMap::new(),
            refreshes: 0,
        }
    }

    fn key() -> [u8; 16] {
        Md5::digest(b"user:realm:secret").into()
    }

    /// A datagram of a client: what goes to the client, or to a peer from a relay.
    fn client(&mut self, from: SocketAddr, bytes: &[u8]) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
        if self.silent {
            return Vec::new();
        }
        if bytes[0] & 0xC0 == 0x40 {
            let peer = self.channels.get(&(from, u16::from_be_bytes([bytes[0], bytes[1]])));
            return peer.map(|peer| (self.relays[&from], *peer, bytes[4..].to_vec())).into_iter().collect();
        }
        let message = Message::parse(bytes).unwrap();
        let (id, method) = (message.id, message.kind);
        if method == BINDING {
            let answer = Builder::new(BINDING | SUCCESS, id).address(XOR_MAPPED_ADDRESS, addr("198.51.100.7:9999"));
            return vec![(self.at, from, answer.finish(None))];
        }
        let fail =
            |code: u16| Builder::new(method | FAILURE, id).put(9, &[0, 0, (code / 100) as u8, (code % 100) as u8]);
        if let Some(other) = self.redirect {
            let mut value = vec![0, 1];
            value.extend(other.port().to_be_bytes());
            let std::net::IpAddr::V4(ip) = other.ip() else { panic!() };
            value.extend(ip.octets());
            return vec![(self.at, from, fail(300).put(ALTERNATE_SERVER, &value).finish(None))];
        }
        if !message.is_signed(&Self::key()) {
            let answer = fail(401).put(REALM, b"realm").put(NONCE, self.nonce);
            return vec![(self.at, from, answer.finish(None))];
        }
        if message.get(NONCE) != Some(self.nonce) {
            let answer = fail(438).put(REALM, b"realm").put(NONCE, self.nonce);
            return vec![(self.at, from, answer.finish(None))];
        }
        let mut answer = Builder::new(method | SUCCESS, id);
        match method {
            ALLOCATE => {
                assert_eq!(message.get(REQUESTED_TRANSPORT), Some(&[17, 0, 0, 0][..]));
                let relay = SocketAddr::new(self.at.ip(), 50_000 + self.relays.len() as u16);
                self.relays.insert(from, relay);
                answer = answer.address(XOR_RELAYED_ADDRESS, relay).address(XOR_MAPPED_ADDRESS, from);
                answer = answer.put(LIFETIME, &600u32.to_be_bytes());
            }
            REFRESH => {
                self.refreshes += 1;
                answer = answer.put(LIFETIME, &600u32.to_be_bytes());
            }
            CHANNEL_BIND => {
                let number = message.get(CHANNEL_NUMBER).unwrap();
                let peer = unxor_address(message.get(XOR_PEER_ADDRESS).unwrap(), id).unwrap();
                self.channels.insert((from, u16::from_be_bytes([number[0], number[1]])), peer);
            }
            other => panic!("method {other}"),
        }
        vec![(self.at, from, answer.finish(Some(&Self::key())))]
    }

    /// A datagram that has come to a relay: only peers that are bound may send (RFC 8656, section 12).
    fn peer(&self, relay: SocketAddr, from: SocketAddr, bytes: &[u8]) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
        let Some((client, _)) = self.relays.iter().find(|(_, r)| **r == relay) else { return Vec::new() };
        let channel = self.channels.iter().find(|((c, _), peer)| c == client && **peer == from);
        let Some(((_, number), _)) = channel else { return Vec::new() };
        let mut framed = vec![0; bytes.len() + 4];
        frame(*number, bytes, &mut framed);
        vec![(self.at, *client, framed)]
    }
}

struct World {
    now: Instant,
    peers: Vec<(SocketAddr, Endpoint, Vec<Event>)>,
    servers: Vec<FakeTurn>,
    said: Vec<String>,
    got: Vec<Bytes>,
    /// Datagrams that went from peer to peer without a relay.
    direct: usize,
}

impl World {
    fn new(change: impl Fn(usize, &mut Config)) -> Self {
        let now = Instant::now();
        let mut peers = Vec::new();
        for n in 0..2 {
            let base = addr(&format!("10.0.0.{}:4000", n + 1));
            let socket = Socket { id: SocketId(0), base, announce: vec![base], purpose: Use::Both };
            let mut config = Config::new(vec![socket]);
            change(n, &mut config);
            let certificate = Certificate::generate().unwrap();
            peers.push((base, Endpoint::new(config, certificate, [n as u8 + 1; 32], now).unwrap(), Vec::new()));
        }
        let servers = vec![FakeTurn::new(MAIN), FakeTurn::new(OTHER)];
        Self { now, peers, servers, said: Vec::new(), got: Vec::new(), direct: 0 }
    }

    /// Datagrams and signals arrive at once; then time jumps to the next deadline.
    fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            let mut wires = Vec::new();
            let mut signals = Vec::new();
            for (n, (base, endpoint, events)) in self.peers.iter_mut().enumerate() {
                let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
                endpoint.poll_transmit(self.now, &mut out);
                wires.extend(out.into_iter().map(|(path, bytes)| (*base, path.remote, bytes)));
                while let Some((_, text)) = endpoint.poll_signal() {
                    self.said.push(text.clone());
                    signals.push((n, text));
                }
                while let Some(event) = endpoint.poll_event() {
                    if let Event::Readable(id) = event {
                        while let Some((_, packet)) = endpoint.recv(self.now, id) {
                            self.got.push(packet);
                        }
                    }
                    events.push(event);
                }
            }
            let idle = wires.is_empty() && signals.is_empty();
            for (n, text) in signals {
                self.peers[1 - n].1.handle_signal(self.now, &NetworkId::P2p(n as u64 + 1), &text);
            }
            while let Some((from, to, bytes)) = wires.pop() {
                if let Some(server) = self.servers.iter_mut().find(|s| s.at == to) {
                    wires.extend(server.client(from, &bytes));
                } else if let Some(server) = self.servers.iter().find(|s| s.at.ip() == to.ip()) {
                    wires.extend(server.peer(to, from, &bytes));
                } else if let Some((base, endpoint, _)) = self.peers.iter_mut().find(|(base, ..)| *base == to) {
                    self.direct += usize::from(from.ip().to_string().starts_with("10."));
                    let _ = base;
                    endpoint.handle_datagram(self.now, Path::new(SocketId(0), from), &bytes);
                }
            }
            if idle {
                let next = self.peers.iter().filter_map(|(_, e, _)| e.poll_timeout()).map(|(at, _)| at).min();
                if next.is_none_or(|at| at > end) {
                    self.now = end;
                    return;
                }
                self.now = self.now.max(next.unwrap());
            }
            for (_, endpoint, _) in &mut self.peers {
                if endpoint.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                    endpoint.handle_timeout(self.now);
                }
            }
        }
    }

    fn dial(&mut self) -> SessionId {
        let now = self.now;
        self.peers[0].1.connect(now, NetworkId::P2p(2)).unwrap()
    }

    fn opened(&self, n: usize) -> bool {
        self.peers[n].2.iter().any(|event| matches!(event, Event::Opened { .. }))
    }

    fn failures(&self) -> Vec<ServerFailure> {
        let failure = |e: &Event| if let Event::Server { failure, .. } = e { Some(*failure) } else { None };
        self.peers[0].2.iter().filter_map(failure).collect()
    }
}

fn turn(at: &str, password: &str) -> IceServer {
    IceServer::Turn { addr: addr(at), username: "user".into(), password: password.into() }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn two_peers_that_may_use_relays_alone_meet_at_theirs() {
    let mut world = World::new(|_, config| {
        config.servers = vec![turn(MAIN, "secret")];
        config.flags = ConnectionFlags::RELAY_ONLY;
    });
    world.run(SECOND);
    let id = world.dial();
    world.run(SECOND * 5);
    assert!(world.opened(0) && world.opened(1), "{:?} {:?}", world.peers[0].2, world.said);
    assert!(world.said.iter().filter(|t| t.starts_with("CANDIDATEADD")).all(|t| t.contains(" typ relay ")));
    let now = world.now;
    world.peers[0].1.send(now, id, Channel::Reliable, vec![7; 300_000].into()).unwrap();
    world.run(SECOND * 5);
    assert_eq!(world.got.iter().map(Bytes::len).collect::<Vec<_>>(), [300_000]);
    assert_eq!(world.direct, 0);
    // Twelve minutes later: allocation and channels were renewed, with a nonce that the server has changed.
    world.servers[0].nonce = b"two";
    world.run(SECOND * 720);
    assert!(world.servers[0].refreshes >= 2);
    let now = world.now;
    world.peers[0].1.send(now, id, Channel::Reliable, Bytes::from_static(b"still")).unwrap();
    world.run(SECOND);
    assert_eq!(world.got.len(), 2);
    assert_eq!(world.failures(), []);
}

#[test]
fn pain_16_a_server_that_names_another_is_followed() {
    let mut world = World::new(|n, config| {
        if n == 0 {
            config.servers = vec![turn(MAIN, "secret")];
            config.flags = ConnectionFlags::RELAY_ONLY;
        }
    });
    world.servers[0].redirect = Some(addr(OTHER));
    world.run(SECOND);
    world.dial();
    world.run(SECOND * 5);
    assert!(world.opened(0) && world.opened(1), "{:?}", world.said);
    assert!(world.servers[0].relays.is_empty() && world.servers[1].relays.len() == 1);
}

#[test]
fn servers_that_send_in_circles_and_wrong_credentials_are_told() {
    let mut world = World::new(|_, config| config.servers = vec![turn(MAIN, "secret")]);
    world.servers[0].redirect = Some(addr(OTHER));
    world.servers[1].redirect = Some(addr(MAIN));
    world.run(SECOND * 2);
    assert_eq!(world.failures(), [ServerFailure::Circle]);
    let mut world = World::new(|_, config| config.servers = vec![turn(MAIN, "wrong")]);
    world.run(SECOND * 2);
    assert_eq!(world.failures(), [ServerFailure::Credentials]);
}

#[test]
fn a_silent_server_delays_nobody_who_trickles_and_is_given_up_by_the_others() {
    let mut world = World::new(|_, config| config.servers = vec![IceServer::Stun(addr(MAIN))]);
    world.servers[0].silent = true;
    world.dial();
    world.run(SECOND);
    assert!(world.opened(0) && world.opened(1));
    let mut world = World::new(|_, config| {
        config.servers = vec![IceServer::Stun(addr(MAIN))];
        config.trickle = false;
    });
    world.servers[0].silent = true;
    world.dial();
    world.run(SECOND * 7);
    assert!(world.said.is_empty());
    world.run(SECOND * 4);
    assert_eq!(world.failures(), [ServerFailure::Silent]);
    assert!(world.opened(0) && world.opened(1), "{:?}", world.said);
}

#[test]
fn what_a_stun_server_sees_is_told() {
    let mut world = World::new(|_, config| config.servers = vec![IceServer::Stun(addr(MAIN))]);
    world.dial();
    world.run(SECOND);
    let told = world.said.iter().any(|t| t.contains(" 198.51.100.7 9999 typ srflx raddr 10.0.0.1 rport 4000"));
    assert!(told, "{:?}", world.said);
}

#[test]
fn an_unsigned_answer_to_a_signed_request_is_ignored() {
    let (now, mut found) = (Instant::now(), Found::default());
    let mut ask = Ask::new(addr("10.0.0.1:4000"), turn(MAIN, "secret"), 0, Dice::new([1; 32]), now, &mut found);
    let mut server = FakeTurn::new(MAIN);
    let challenge = |found: &mut Found| found.out.pop_front().unwrap().2;
    let (_, _, refusal) = server.client(addr("10.0.0.1:4000"), &challenge(&mut found)).remove(0);
    ask.handle(now, &refusal, &mut found);
    let signed = challenge(&mut found);
    let id = Message::parse(&signed).unwrap().id;
    let forged = Builder::new(ALLOCATE | SUCCESS, id).address(XOR_RELAYED_ADDRESS, addr("192.0.2.66:1")).finish(None);
    ask.handle(now, &forged, &mut found);
    assert_eq!(ask.relay(), None);
    let (_, _, granted) = server.client(addr("10.0.0.1:4000"), &signed).remove(0);
    ask.handle(now, &granted, &mut found);
    assert_eq!(ask.relay(), Some(addr("203.0.113.1:50000")));
}
