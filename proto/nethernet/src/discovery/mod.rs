//! LAN discovery and LAN signalling (NetherNet, section 7) as a machine.
//!
//! Every own id that discovers or advertises broadcasts a Request at an interval; whoever advertises is asked by an
//! event and answers by unicast. Signalling messages go by unicast to peers that were heard lately, and by broadcast to
//! others. Everything leaves from an own socket, so that several processes of one machine can share the broadcast port:
//! all hear a Request, each is answered at a port of its own.
//!
//! The key of the envelope is known to everybody. Nothing that is heard here proves who said it.

mod config;
mod peers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::{Dice, Outbox, Path, PooledBuf, RateTable, Refused};

pub use config::{
    Ask, Config, DiscoveryError, Event, Heard, Host, Interface, OWN_V4, OWN_V6, PORT, SHARED_V4, SHARED_V6,
};

use crate::Signal;
use crate::envelope::{Key, MAC, OpenError};
use crate::packet::{Packet, PacketError, TooLong, response_text};
use crate::signaling::Incoming;
use config::own;
use peers::{Answer, Peers};

/// Most own ids.
pub const IDS_MAX: usize = 16;
/// Most addresses that are asked besides broadcasts.
pub const WATCHED_MAX: usize = 64;
/// Most networks that are broadcast into.
pub const INTERFACES_MAX: usize = 64;

/// Most bytes of a datagram that is looked at; more does not fit UDP over IPv4.
const DATAGRAM_MAX: usize = 65_507;
/// Most datagrams and bytes that wait to be sent.
const OUT_MAX: usize = 2_048;
const OUT_BYTES_MAX: usize = 4 << 20;
/// Most events, and signals, and bytes in each that wait to be read; then the newest are dropped and counted.
const EVENTS_MAX: usize = 1_024;
const EVENT_BYTES_MAX: usize = 4 << 20;
/// Most questions that wait for the application, and how long each does.
const ASKS_MAX: usize = 256;
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// A host's unchanged answer is told again after this time.
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// The same bytes within this time are one packet that was sent to two broadcast addresses.
const ECHO: Duration = Duration::from_millis(100);
const RECENT_MAX: usize = 256;
/// Most hosts that are asked directly in one interval because a broadcast seems lost.
const ASKED_DIRECTLY: usize = 32;

/// LAN discovery and LAN signalling. Bounds: 16 own ids, 1,024 peers, 64 of one address, 2,048 datagrams (4 MiB) to
/// send, 1,024 events and as many signals (4 MiB each), 256 open questions, a fixed table of rates.
#[derive(Debug)]
pub struct Discovery {
    config: Config,
    key: Key,
    start: Instant,
    /// The latest instant heard of, for queues that must be drained at once.
    now: Instant,
    ids: BTreeMap<u64, Local>,
    targets: Vec<Path>,
    watched: BTreeSet<SocketAddr>,
    peers: Peers,
    asks: BTreeMap<Ask, Asked>,
    next_ask: u64,
    /// What was taken within the last [`ECHO`], by its authentication code, at most [`RECENT_MAX`].
    recent: VecDeque<(Instant, Path, [u8; MAC])>,
    out: VecDeque<(Path, Bytes)>,
    out_bytes: usize,
    events: VecDeque<Event>,
    event_bytes: usize,
    signals: VecDeque<Incoming>,
    signal_bytes: usize,
    dropped: u64,
    /// What is opened, by sender.
    heard: RateTable,
    /// What is answered, by sender, and in all.
    answers: RateTable,
    answers_in_all: RateTable,
}

/// An own id.
#[derive(Clone, Copy, Debug)]
struct Local {
    discovering: bool,
    advertising: bool,
    next_request: Instant,
}

impl Local {
    fn speaks(&self) -> bool {
        self.discovering || self.advertising
    }
}

/// A question the application has not answered yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: u64,
    path: Path,
    until: Instant,
}

impl Discovery {
    /// A discovery without ids and networks.
    #[must_use]
    pub fn new(mut config: Config, seed: [u8; 32], now: Instant) -> Self {
        config.interval = config.interval.max(Duration::from_millis(100));
        let mut dice = Dice::new(seed);
        Self {
            key: Key::from_app_id(config.app_id),
            config,
            start: now,
            now,
            ids: BTreeMap::new(),
            targets: Vec::new(),
            watched: BTreeSet::new(),
            peers: Peers::default(),
            asks: BTreeMap::new(),
            next_ask: 0,
            recent: VecDeque::new(),
            out: VecDeque::new(),
            out_bytes: 0,
            events: VecDeque::new(),
            event_bytes: 0,
            signals: VecDeque::new(),
            signal_bytes: 0,
            dropped: 0,
            heard: RateTable::new(1_024, 256, Duration::from_millis(4), dice.u64()),
            answers: RateTable::new(1_024, 16, Duration::from_millis(100), dice.u64()),
            answers_in_all: RateTable::new(1, 64, Duration::from_millis(5), dice.u64()),
        }
    }

    /// Takes an id for this endpoint.
    ///
    /// # Errors
    /// [`DiscoveryError::Zero`] or [`DiscoveryError::TooManyIds`].
    pub fn open(&mut self, now: Instant, id: u64) -> Result<(), DiscoveryError> {
        if id == 0 {
            return Err(DiscoveryError::Zero);
        }
        if !self.ids.contains_key(&id) && self.ids.len() >= IDS_MAX {
            return Err(DiscoveryError::TooManyIds);
        }
        self.ids.entry(id).or_insert(Local { discovering: false, advertising: false, next_request: now });
        Ok(())
    }

    /// Gives an id up.
    pub fn close(&mut self, id: u64) {
        self.ids.remove(&id);
        self.asks.retain(|_, asked| asked.id != id);
    }

    /// Begins or ends to look for hosts. The first Request leaves at once.
    ///
    /// # Errors
    /// [`DiscoveryError::NotOurs`].
    pub fn discover(&mut self, now: Instant, id: u64, on: bool) -> Result<(), DiscoveryError> {
        self.speak(now, id, |local| local.discovering = on)
    }

    /// Begins or ends to answer Requests.
    ///
    /// # Errors
    /// [`DiscoveryError::NotOurs`].
    pub fn advertise(&mut self, now: Instant, id: u64, on: bool) -> Result<(), DiscoveryError> {
        if !on {
            self.asks.retain(|_, asked| asked.id != id);
        }
        self.speak(now, id, |local| local.advertising = on)
    }

    fn speak(&mut self, now: Instant, id: u64, change: impl FnOnce(&mut Local)) -> Result<(), DiscoveryError> {
        let local = self.ids.get_mut(&id).ok_or(DiscoveryError::NotOurs(id))?;
        let silent = !local.speaks();
        change(local);
        if silent {
            local.next_request = now;
        }
        Ok(())
    }

    /// The networks to broadcast into as they are now, at most [`INTERFACES_MAX`]. The limited broadcast address may be
    /// among them; it leaves by one interface, and not at all without a default route, so it is never enough alone.
    pub fn set_interfaces(&mut self, now: Instant, interfaces: impl IntoIterator<Item = Interface>) {
        let port = self.config.port;
        let known: BTreeSet<Interface> = interfaces.into_iter().take(INTERFACES_MAX).collect();
        let targets: Vec<Path> = known.into_iter().map(|i| i.target(port)).collect();
        if targets == self.targets {
            return;
        }
        self.targets = targets;
        for local in self.ids.values_mut() {
            local.next_request = now;
        }
    }

    /// Asks this address as well, for networks that carry no broadcast. An address without a port is asked at the
    /// broadcast port.
    ///
    /// # Errors
    /// [`DiscoveryError::TooManyAddresses`].
    pub fn watch(&mut self, now: Instant, mut address: SocketAddr) -> Result<(), DiscoveryError> {
        if address.port() == 0 {
            address.set_port(self.config.port);
        }
        if self.watched.len() >= WATCHED_MAX && !self.watched.contains(&address) {
            return Err(DiscoveryError::TooManyAddresses);
        }
        self.watched.insert(address);
        for local in self.ids.values_mut() {
            local.next_request = now;
        }
        Ok(())
    }

    /// Answers a question with the advertisement of the moment. It travels as hexadecimal text, which is what programs
    /// in the field read.
    ///
    /// # Errors
    /// [`DiscoveryError::TooLong`] over 574 bytes, [`DiscoveryError::TooLate`], [`DiscoveryError::WouldBlock`].
    pub fn answer(&mut self, now: Instant, ask: Ask, data: &[u8]) -> Result<(), DiscoveryError> {
        self.now = self.now.max(now);
        let text = response_text(data)?;
        let asked = self.asks.remove(&ask).filter(|asked| asked.until > now).ok_or(DiscoveryError::TooLate)?;
        let sealed = self.seal(Packet::Response { sender: asked.id, data: text.as_bytes() })?;
        if self.push(asked.path, sealed) { Ok(()) } else { Err(DiscoveryError::WouldBlock) }
    }

    /// Sends a signalling message: to the address where `to` was heard last, else as a broadcast.
    ///
    /// # Errors
    /// [`DiscoveryError`]; nothing was sent then.
    pub fn signal(&mut self, now: Instant, from: u64, to: u64, text: &str) -> Result<(), DiscoveryError> {
        self.now = self.now.max(now);
        if !self.ids.contains_key(&from) {
            return Err(DiscoveryError::NotOurs(from));
        }
        let sealed = self.seal(Packet::Message { sender: from, recipient: to, data: text.as_bytes() })?;
        let paths = match self.peers.get(to) {
            Some(peer) => vec![peer.path],
            None => self.everywhere(),
        };
        if paths.is_empty() {
            return Err(DiscoveryError::NoNetwork);
        }
        let mut sent = false;
        for path in paths {
            sent |= self.push(path, sealed.clone());
        }
        if sent { Ok(()) } else { Err(DiscoveryError::WouldBlock) }
    }

    /// Where a peer was heard last, if lately.
    #[must_use]
    pub fn path_to(&self, id: u64) -> Option<Path> {
        self.peers.get(id).map(|peer| peer.path)
    }

    /// Events and signals that were dropped because nobody read the ones before.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes one datagram of any discovery socket.
    ///
    /// # Errors
    /// [`Refused`]: it is dropped in silence.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, mut data: PooledBuf) -> Result<(), Refused> {
        self.now = self.now.max(now);
        let size = data.len();
        let (sender, what) = match self.take(now, path, &mut data) {
            Ok((sender, what)) => (Some(sender), what),
            Err((sender, why)) => (sender, Heard::Refused(why)),
        };
        let verdict = if let Heard::Refused(why) = what { Err(why) } else { Ok(()) };
        if self.config.trace {
            self.report(Event::Heard { path, size, sender, what });
        }
        verdict
    }

    fn take(&mut self, now: Instant, path: Path, data: &mut [u8]) -> Result<(u64, Heard), (Option<u64>, Refused)> {
        if !self.heard.allow(self.start, now, SocketAddr::new(path.remote.ip(), 0)) || data.len() > DATAGRAM_MAX {
            return Err((None, Refused::OverLimit));
        }
        let code: [u8; MAC] = data.first_chunk().copied().unwrap_or([0; MAC]);
        let plaintext = self.key.open(data).map_err(|error| (None, refused(error)))?;
        let packet = Packet::parse(plaintext).map_err(|error| {
            let kind = if matches!(error, PacketError::Type(_)) { Refused::Unexpected } else { Refused::Malformed };
            (None, kind)
        })?;
        let sender = packet.sender();
        if self.ids.contains_key(&sender) {
            return Err((Some(sender), Refused::NotAllowed));
        }
        let path = Path::new(own(path.remote), path.remote);
        match packet {
            Packet::Request { .. } => {
                // Over another network of the same peer the same Request comes from another address: answer there too.
                if self.is_first(now, code, |from| *from == path, path) {
                    self.requested(now, sender, path);
                }
                Ok((sender, Heard::Request))
            }
            Packet::Response { data, .. } => {
                if sender == 0 {
                    return Err((Some(sender), Refused::NotAllowed));
                }
                let wire = Bytes::copy_from_slice(data);
                self.responded(now, sender, path, &wire);
                Ok((sender, Heard::Response(wire)))
            }
            Packet::Message { recipient, data, .. } => {
                let seen = Heard::Message { recipient, data: Bytes::copy_from_slice(data) };
                // The probe names nobody; it must not make a peer of the id 0.
                if sender == 0 {
                    return Ok((sender, seen));
                }
                self.meet(now, sender, path, true);
                if !self.ids.contains_key(&recipient) {
                    return Err((Some(sender), Refused::Unexpected));
                }
                // Keep-alives in the field are empty or say `Ping`; they and other noise are no signals.
                if Signal::parse_bytes(data).is_ok()
                    && self.is_first(now, code, |_| true, path)
                    && let Ok(text) = std::str::from_utf8(data)
                {
                    self.told(sender, recipient, text);
                }
                Ok((sender, seen))
            }
        }
    }

    /// Whether a packet was not taken a moment ago already, from a path that counts as the same.
    fn is_first(&mut self, now: Instant, code: [u8; MAC], same: impl Fn(&Path) -> bool, path: Path) -> bool {
        while self.recent.front().is_some_and(|(at, ..)| *at + ECHO <= now) {
            self.recent.pop_front();
        }
        let first = !self.recent.iter().any(|(_, from, known)| *known == code && same(from));
        if first {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((now, path, code));
        }
        first
    }

    /// A peer was heard. Any packet but a Request may call for a probe.
    fn meet(&mut self, now: Instant, id: u64, path: Path, probe: bool) {
        let (new, gone) = self.peers.heard(now, id, path);
        if let Some(host) = gone {
            self.report(Event::Lost(host));
        }
        if new
            && probe
            && self.config.probe
            && let Ok(sealed) = self.seal(Packet::Message { sender: 0, recipient: id, data: &[] })
        {
            // A probe that finds the queue full is not missed.
            let _full = self.push(path, sealed);
        }
    }

    fn requested(&mut self, now: Instant, by: u64, path: Path) {
        if by != 0 {
            self.meet(now, by, path, false);
        }
        let advertising: Vec<u64> = self.ids.iter().filter(|(_, l)| l.advertising).map(|(id, _)| *id).collect();
        for id in advertising {
            if self.asks.len() >= ASKS_MAX {
                continue;
            }
            if !self.answers.allow(self.start, now, path.remote) {
                continue;
            }
            if !self.answers_in_all.allow(self.start, now, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)) {
                continue;
            }
            let ask = Ask(self.next_ask);
            self.next_ask = self.next_ask.wrapping_add(1);
            self.asks.insert(ask, Asked { id, path, until: now + ASK_PATIENCE });
            self.report(Event::Asked { ask, id, by });
        }
    }

    fn responded(&mut self, now: Instant, id: u64, path: Path, wire: &Bytes) {
        self.meet(now, id, path, true);
        let answer = self.peers.answered(now, id, wire, TELL_AGAIN);
        if answer != Answer::Same {
            self.report(Event::Host(Host { id, path, wire: wire.clone(), new: answer == Answer::New }));
        }
    }

    /// Sends Requests that are due and forgets who was silent for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let due: Vec<u64> =
            self.ids.iter().filter(|(_, l)| l.speaks() && l.next_request <= now).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(local) = self.ids.get_mut(&id) {
                local.next_request = now + self.config.interval;
            }
            self.ask_all(now, id);
        }
        self.asks.retain(|_, asked| asked.until > now);
        while let Some(host) = self.peers.expire(now, self.config.forget_after) {
            self.report(Event::Lost(host));
        }
    }

    fn ask_all(&mut self, now: Instant, id: u64) {
        let Ok(sealed) = self.seal(Packet::Request { sender: id }) else { return };
        // A host that did not answer the last broadcast may not have heard it: radio networks drop them first.
        let silent: Vec<Path> = now
            .checked_sub(self.config.interval * 3 / 2)
            .map(|since| self.peers.silent_hosts(since).take(ASKED_DIRECTLY).collect())
            .unwrap_or_default();
        for path in self.everywhere().into_iter().chain(silent) {
            // What finds the queue full goes out with the next interval.
            let _full = self.push(path, sealed.clone());
        }
    }

    fn everywhere(&self) -> Vec<Path> {
        let watched = self.watched.iter().map(|address| Path::new(own(*address), *address));
        self.targets.iter().copied().chain(watched).collect()
    }

    /// Writes datagrams until there are no more or `out` turns one away; says whether it wrote all.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        self.now = self.now.max(now);
        while let Some((path, bytes)) = self.out.front() {
            let fill = |slot: &mut [u8]| {
                slot.copy_from_slice(bytes);
                bytes.len()
            };
            if !out.datagram(*path, bytes.len(), fill) {
                return false;
            }
            self.out_bytes = self.out_bytes.saturating_sub(bytes.len());
            self.out.pop_front();
        }
        true
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.event_bytes = self.event_bytes.saturating_sub(weight(&event));
        Some(event)
    }

    /// The next signalling message for an own id.
    pub fn poll_signal(&mut self) -> Option<Incoming> {
        let signal = self.signals.pop_front()?;
        self.signal_bytes = self.signal_bytes.saturating_sub(signal.text.len());
        Some(signal)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.out.is_empty() || !self.events.is_empty() || !self.signals.is_empty() {
            return Some((self.now, "something is queued"));
        }
        let request = self.ids.values().filter(|l| l.speaks()).map(|l| (l.next_request, "a Request is due")).min();
        let forget = self.peers.next_expiry(self.config.forget_after).map(|at| (at, "a peer is forgotten"));
        let ask = self.asks.values().map(|asked| (asked.until, "a question lapses")).min();
        [request, forget, ask].into_iter().flatten().min()
    }

    fn seal(&self, packet: Packet<'_>) -> Result<Bytes, TooLong> {
        Ok(Bytes::from(self.key.seal(&packet.encode()?)))
    }

    fn push(&mut self, path: Path, bytes: Bytes) -> bool {
        let room = self.out.len() < OUT_MAX && self.out_bytes + bytes.len() <= OUT_BYTES_MAX;
        if room {
            self.out_bytes += bytes.len();
            self.out.push_back((path, bytes));
        }
        room
    }

    fn told(&mut self, from: u64, to: u64, text: &str) {
        if self.signals.len() >= EVENTS_MAX || self.signal_bytes + text.len() > EVENT_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        self.signal_bytes += text.len();
        self.signals.push_back(Incoming { from: from.into(), to: to.into(), text: text.to_owned() });
    }

    fn report(&mut self, event: Event) {
        let bytes = weight(&event);
        if self.events.len() >= EVENTS_MAX || self.event_bytes + bytes > EVENT_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        self.event_bytes += bytes;
        self.events.push_back(event);
    }
}

fn weight(event: &Event) -> usize {
    match event {
        Event::Host(host) => host.wire.len(),
        Event::Heard { what: Heard::Response(data) | Heard::Message { data, .. }, .. } => data.len(),
        Event::Asked { .. } | Event::Lost(_) | Event::Heard { .. } => 0,
    }
}

fn refused(error: OpenError) -> Refused {
    match error {
        OpenError::Short | OpenError::Blocks => Refused::NotOurs,
        OpenError::Padding | OpenError::NotAuthentic => Refused::NotAuthentic,
    }
}
