//! One STUN or TURN server, asked from one socket (RFC 8489, RFC 8656).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};
use seam::Dice;

use super::gather::{Found, IceServer, ServerFailure};
use crate::CandidateKind;
use crate::engine::stun::{Builder, Message, USERNAME, plain_address, unxor_address};

/// First retransmission; each further one waits twice as long.
const RTO: Duration = Duration::from_millis(250);
/// Sendings of one request: the last answer is waited for until 7.75 s.
const SENDS: u32 = 5;
/// How often a mapping is looked at, which also keeps it.
const KEEP: Duration = Duration::from_secs(25);
/// Permissions last 300 s and channels 600 s (RFC 8656, sections 9 and 12); binding again renews both.
const BIND_AGAIN: Duration = Duration::from_secs(240);
/// An allocation that is asked for again after it was lost.
const ALLOCATE_AGAIN: Duration = Duration::from_secs(30);
/// Alternate servers followed (RFC 8489, section 10).
const HOPS_MAX: u8 = 3;
/// Peers of one relay.
const CHANNELS_MAX: u16 = 1024;
/// Datagrams that wait until a peer is bound.
const WAITING_MAX: usize = 8;

const BINDING: u16 = 0x001;
const ALLOCATE: u16 = 0x003;
const REFRESH: u16 = 0x004;
const CHANNEL_BIND: u16 = 0x009;
const DATA_INDICATION: u16 = 0x0017;
const SUCCESS: u16 = 0x0100;
const FAILURE: u16 = 0x0110;

const CHANNEL_NUMBER: u16 = 0x000C;
const LIFETIME: u16 = 0x000D;
const XOR_PEER_ADDRESS: u16 = 0x0012;
const DATA: u16 = 0x0013;
const REALM: u16 = 0x0014;
const NONCE: u16 = 0x0015;
const XOR_RELAYED_ADDRESS: u16 = 0x0016;
const REQUESTED_TRANSPORT: u16 = 0x0019;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const ALTERNATE_SERVER: u16 = 0x8023;

/// What a datagram of the server's address is.
pub(super) enum Came<'a> {
    NotOurs,
    Answer,
    Data { relay: SocketAddr, peer: SocketAddr, data: &'a [u8] },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Binding,
    Allocate,
    Refresh,
    Channel(SocketAddr),
}

impl What {
    const fn method(self) -> u16 {
        match self {
            Self::Binding => BINDING,
            Self::Allocate => ALLOCATE,
            Self::Refresh => REFRESH,
            Self::Channel(_) => CHANNEL_BIND,
        }
    }
}

#[derive(Debug)]
struct Request {
    id: [u8; 12],
    what: What,
    bytes: Vec<u8>,
    sends: u32,
    again: Instant,
    /// Sent with credentials of a server that has just told its nonce: a second refusal is one.
    answered_challenge: bool,
}

#[derive(Debug)]
struct Auth {
    key: [u8; 16],
    realm: Vec<u8>,
    nonce: Vec<u8>,
}

#[derive(Debug)]
struct Bound {
    number: u16,
    ready: bool,
    again: Option<Instant>,
    waiting: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Ask {
    base: SocketAddr,
    server: SocketAddr,
    credentials: Option<(String, String)>,
    nth: u16,
    dice: Dice,
    requests: Vec<Request>,
    auth: Option<Auth>,
    hops: u8,
    settled: bool,
    relay: Option<SocketAddr>,
    peers: BTreeMap<SocketAddr, Bound>,
    next_at: Option<Instant>,
}

impl Ask {
    pub(super) fn new(
        base: SocketAddr,
        server: IceServer,
        nth: u16,
        dice: Dice,
        now: Instant,
        found: &mut Found,
    ) -> Self {
        let (server, credentials) = match server {
            IceServer::Stun(addr) => (addr, None),
            IceServer::Turn { addr, username, password } => (addr, Some((username, password))),
        };
        let mut ask = Self {
            base,
            server,
            credentials,
            nth,
            dice,
            requests: Vec::new(),
            auth: None,
            hops: 0,
            settled: false,
            relay: None,
            peers: BTreeMap::new(),
            next_at: None,
        };
        ask.begin(now, found);
        ask
    }

    pub(super) fn base(&self) -> SocketAddr {
        self.base
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    pub(super) fn relay(&self) -> Option<SocketAddr> {
        self.relay
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    fn begin(&mut self, now: Instant, found: &mut Found) {
        let what = if self.credentials.is_some() { What::Allocate } else { What::Binding };
        self.request(now, what, false, found);
    }

    fn request(&mut self, now: Instant, what: What, answered_challenge: bool, found: &mut Found) {
        let id = self.dice.bytes();
        let mut message = Builder::new(what.method(), id);
        match what {
            What::Allocate => message = message.put(REQUESTED_TRANSPORT, &[17, 0, 0, 0]),
            What::Channel(peer) => {
                let number = self.peers.get(&peer).map_or(0, |bound| bound.number).to_be_bytes();
                message = message.put(CHANNEL_NUMBER, &[number[0], number[1], 0, 0]).address(XOR_PEER_ADDRESS, peer);
            }
            What::Binding | What::Refresh => {}
        }
        let key = self.auth.as_ref().map(|auth| auth.key);
        if let (Some(auth), Some((username, _))) = (&self.auth, &self.credentials) {
            message = message.put(USERNAME, username.as_bytes()).put(REALM, &auth.realm).put(NONCE, &auth.nonce);
        }
        let bytes = message.finish(key.as_ref().map(<[u8; 16]>::as_slice));
        found.push(self.base, self.server, bytes.clone());
        self.requests.push(Request { id, what, bytes, sends: 1, again: now + RTO, answered_challenge });
    }

    pub(super) fn handle<'a>(&mut self, now: Instant, datagram: &'a [u8], found: &mut Found) -> Came<'a> {
        if let Some(0x40..=0x4F) = datagram.first() {
            return self.channel_data(datagram);
        }
        let Some(message) = Message::parse(datagram) else { return Came::NotOurs };
        if message.kind == DATA_INDICATION {
            let peer = message.get(XOR_PEER_ADDRESS).and_then(|value| unxor_address(value, message.id));
            return match (self.relay, peer, message.get(DATA)) {
                (Some(relay), Some(peer), Some(data)) => Came::Data { relay, peer, data },
                _ => Came::NotOurs,
            };
        }
        let Some(at) = self.requests.iter().position(|request| request.id == message.id) else { return Came::NotOurs };
        let (what, challenged) = match self.requests.get(at) {
            Some(request) => (request.what, request.answered_challenge),
            None => return Came::NotOurs,
        };
        let success = message.kind == what.method() | SUCCESS;
        if !success && message.kind != what.method() | FAILURE {
            return Came::NotOurs;
        }
        // An answer to a signed request is signed, unless it refuses the signature.
        let refuses = matches!(message.error(), Some(300 | 400 | 401 | 438));
        if let Some(auth) = &self.auth
            && what != What::Binding
            && !message.is_signed(&auth.key)
            && (success || !refuses)
        {
            return Came::Answer;
        }
        self.requests.remove(at);
        if success {
            self.granted(now, what, &message, found)
        } else {
            self.refused(now, what, challenged, &message, found)
        }
        Came::Answer
    }

    fn granted(&mut self, now: Instant, what: What, message: &Message<'_>, found: &mut Found) {
        let mapped = message.get(XOR_MAPPED_ADDRESS).and_then(|value| unxor_address(value, message.id));
        let lifetime = message.get(LIFETIME).and_then(|v| Some(u32::from_be_bytes(v.try_into().ok()?))).unwrap_or(600);
        // Early enough for several tries.
        let renew = now + Duration::from_secs(u64::from(lifetime)) * 3 / 4;
        match what {
            What::Binding => {
                if let Some(mapped) = mapped {
                    found.candidate(CandidateKind::ServerReflexive, mapped, self.base, self.nth);
                }
                self.settled = true;
                self.next_at = Some(now + KEEP);
            }
            What::Allocate => {
                let relay = message.get(XOR_RELAYED_ADDRESS).and_then(|value| unxor_address(value, message.id));
                let Some(relay) = relay else { return self.fail(now, ServerFailure::Refused(0), found) };
                if let Some(mapped) = mapped {
                    found.candidate(CandidateKind::ServerReflexive, mapped, self.base, self.nth);
                }
                self.relay = Some(relay);
                self.settled = true;
                self.next_at = Some(renew);
                found.candidate(CandidateKind::Relay, relay, self.base, self.nth);
            }
            What::Refresh => self.next_at = Some(renew),
            What::Channel(peer) => {
                if let Some(bound) = self.peers.get_mut(&peer) {
                    bound.ready = true;
                    bound.again = Some(now + BIND_AGAIN);
                    let number = bound.number;
                    for bytes in std::mem::take(&mut bound.waiting) {
                        let mut framed = vec![0; bytes.len() + 4];
                        frame(number, &bytes, &mut framed);
                        found.push(self.base, self.server, framed);
                    }
                }
            }
        }
    }

    fn refused(&mut self, now: Instant, what: What, challenged: bool, message: &Message<'_>, found: &mut Found) {
        match message.error() {
            Some(401) if challenged => self.fail(now, ServerFailure::Credentials, found),
            Some(401 | 438) => {
                let (Some(nonce), Some((username, password))) = (message.get(NONCE), &self.credentials) else {
                    return self.fail(now, ServerFailure::Credentials, found);
                };
                let realm = match (message.get(REALM), &self.auth) {
                    (Some(realm), _) => realm.to_vec(),
                    (None, Some(auth)) => auth.realm.clone(),
                    (None, None) => return self.fail(now, ServerFailure::Credentials, found),
                };
                // RFC 8489, section 9.2.2: the key of long-term credentials.
                let mut key = Md5::new();
                for part in [username.as_bytes(), b":", &realm, b":", password.as_bytes()] {
                    key.update(part);
                }
                self.auth = Some(Auth { key: key.finalize().into(), realm, nonce: nonce.to_vec() });
                // A nonce that was stale is no refusal of the credentials.
                self.request(now, what, message.error() == Some(401), found);
            }
            Some(300) => match message.get(ALTERNATE_SERVER).and_then(plain_address) {
                Some(other) if self.hops < HOPS_MAX && other.is_ipv4() == self.base.is_ipv4() && other.port() != 0 => {
                    self.hops += 1;
                    self.server = other;
                    self.auth = None;
                    self.requests.clear();
                    self.begin(now, found);
                }
                _ => self.fail(now, ServerFailure::Circle, found),
            },
            code => match what {
                // One peer that cannot be bound is not the end of the relay.
                What::Channel(peer) => {
                    self.peers.remove(&peer);
                }
                _ => self.fail(now, ServerFailure::Refused(code.unwrap_or(0)), found),
            },
        }
    }

    /// The server is of no help for now. A relay that stood is asked for again.
    fn fail(&mut self, now: Instant, why: ServerFailure, found: &mut Found) {
        found.failed(self.server, why);
        self.settled = true;
        self.requests.clear();
        self.peers.clear();
        self.next_at = None;
        if let Some(relay) = self.relay.take() {
            found.forget(relay);
            self.auth = None;
            self.next_at = Some(now + ALLOCATE_AGAIN);
        }
    }

    fn channel_data<'a>(&self, datagram: &'a [u8]) -> Came<'a> {
        let Some((&[n0, n1, l0, l1], data)) = datagram.split_first_chunk::<4>() else { return Came::NotOurs };
        let number = u16::from_be_bytes([n0, n1]);
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let peer = self.peers.iter().find(|(_, bound)| bound.number == number).map(|(peer, _)| *peer);
        match (self.relay, peer, data.get(..length)) {
            (Some(relay), Some(peer), Some(data)) => Came::Data { relay, peer, data },
            _ => Came::NotOurs,
        }
    }

    /// The channel of a peer, when it is bound. Else binds it and keeps the datagram.
    pub(super) fn channel(&mut self, now: Instant, peer: SocketAddr, bytes: &[u8], found: &mut Found) -> Option<u16> {
        if let Some(bound) = self.peers.get_mut(&peer) {
            if bound.ready {
                return Some(bound.number);
            }
            if bound.waiting.len() < WAITING_MAX {
                bound.waiting.push_back(bytes.to_vec());
            }
            return None;
        }
        let taken = |number: &u16| !self.peers.values().any(|bound| bound.number == *number);
        let number = (0x4000..0x4000 + CHANNELS_MAX).find(taken)?;
        let bound = Bound { number, ready: false, again: None, waiting: VecDeque::from([bytes.to_vec()]) };
        self.peers.insert(peer, bound);
        self.request(now, What::Channel(peer), false, found);
        None
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, found: &mut Found) {
        let mut silent = None;
        for request in self.requests.iter_mut().filter(|request| request.again <= now) {
            if request.sends >= SENDS {
                silent = Some(request.what);
                break;
            }
            request.again = now + RTO * 2u32.pow(request.sends);
            request.sends += 1;
            found.push(self.base, self.server, request.bytes.clone());
        }
        match silent {
            Some(What::Channel(peer)) => {
                self.peers.remove(&peer);
                self.requests.retain(|request| request.what != What::Channel(peer));
            }
            Some(_) => self.fail(now, ServerFailure::Silent, found),
            None => {}
        }
        if self.next_at.is_some_and(|at| at <= now) {
            self.next_at = None;
            let what = match (self.credentials.is_some(), self.relay.is_some()) {
                (false, _) => What::Binding,
                (true, true) => What::Refresh,
                (true, false) => What::Allocate,
            };
            self.request(now, what, false, found);
        }
        let due: Vec<_> =
            self.peers.iter().filter(|(_, b)| b.again.is_some_and(|at| at <= now)).map(|(p, _)| *p).collect();
        for peer in due {
            if let Some(bound) = self.peers.get_mut(&peer) {
                bound.again = None;
            }
            self.request(now, What::Channel(peer), false, found);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let requests = self.requests.iter().map(|request| request.again);
        let peers = self.peers.values().filter_map(|bound| bound.again);
        requests.chain(peers).chain(self.next_at).min()
    }
}

/// ChannelData (RFC 8656, section 12.4). Over UDP it needs no padding.
pub(super) fn frame(number: u16, bytes: &[u8], room: &mut [u8]) -> usize {
    let Ok(length) = u16::try_from(bytes.len()) else { return 0 };
    let Some((head, rest)) = room.split_first_chunk_mut::<4>() else { return 0 };
    let ([n0, n1], [l0, l1]) = (number.to_be_bytes(), length.to_be_bytes());
    *head = [n0, n1, l0, l1];
    match rest.get_mut(..bytes.len()) {
        Some(rest) => {
            rest.copy_from_slice(bytes);
            bytes.len() + 4
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests;
