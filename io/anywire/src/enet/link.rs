//! ENet connections as links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use mio::{Events, Interest, Poll, Token};
use rusty_enet::{EventNoRef, HostSettings, Packet, PacketKind, PeerID};
use seam::{Channel, CloseReason, Delivery, LinkStats, OpenError, PeerId, Route, SendError};

use super::socket::{Socket, Traffic};
use crate::links::{Lane, LinkEvent, LinkId, Links, QUEUE_MAX, RELAY_MAX, Waker, Who};

/// Channels of ours, which no stock peer asks for: the last is for control.
const CHANNELS: usize = 254;
const CONTROL: u8 = 253;
/// Channels a host allows, ENet's most: everybody gets what they ask for.
const CHANNELS_MAX: usize = 255;
/// Packets of ours, 4 bytes below every default of ENet.
const MTU: u16 = 1_388;
/// Unreliable bytes that may wait on one link.
const LOOSE_MAX: usize = 512 << 10;
/// How long the host waits while something is on its way, and otherwise.
const BUSY: Duration = Duration::from_millis(4);
const IDLE: Duration = Duration::from_millis(50);
/// Bytes from which a packet is kept where ENet put it rather than copied.
const COPY_MAX: usize = 512;

const SOCKET: Token = Token(0);
const WAKE: Token = Token(1);

pub(super) struct Setup {
    pub(super) bind: SocketAddr,
    pub(super) silence: Duration,
    pub(super) players: u16,
    /// A joiner: where to, and its id.
    pub(super) join: Option<(SocketAddr, PeerId)>,
}

pub(super) struct EnetLinks {
    host: rusty_enet::Host<Socket>,
    poll: Poll,
    ready: Events,
    waker: Waker,
    is_host: bool,
    silence: Duration,
    conns: BTreeMap<LinkId, Conn>,
    by_index: BTreeMap<usize, LinkId>,
    /// Told to disconnect once everything is said.
    closing: BTreeSet<usize>,
    next: LinkId,
    events: VecDeque<LinkEvent>,
    /// Something was queued since the last flush.
    dirty: bool,
    blocked: bool,
    leaving: bool,
}

struct Conn {
    index: PeerID,
    address: Option<SocketAddr>,
    speaks: bool,
    channels: usize,
    queued: Arc<AtomicUsize>,
    loose: Arc<AtomicUsize>,
}

/// A packet's bytes, counted until ENet has done with them.
struct Counted {
    bytes: Bytes,
    queued: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.queued.fetch_sub(weight(self.bytes.len()), Ordering::Relaxed);
    }
}

/// A received packet that stays where ENet put it.
struct Kept(Packet);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.0.data()
    }
}

/// What a packet counts for, so that empty ones are bounded too.
fn weight(len: usize) -> usize {
    len + 64
}

impl EnetLinks {
    pub(super) fn open(setup: &Setup) -> Result<Self, OpenError> {
        let socket_error = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => OpenError::Socket(format!(
                "UDP port {} is in use; is another session hosted on this machine?",
                setup.bind.port()
            )),
            _ => OpenError::Socket(error.to_string()),
        };
        let mut socket = Socket::bind(setup.bind).map_err(socket_error)?;
        let poll = Poll::new().map_err(socket_error)?;
        poll.registry().register(&mut socket.udp, SOCKET, Interest::READABLE).map_err(socket_error)?;
        let wake = mio::Waker::new(poll.registry(), WAKE).map_err(socket_error)?;
        let local = socket.udp.local_addr().map_err(socket_error)?;
        let start = Instant::now();
        let settings = HostSettings {
            peer_limit: usize::from(setup.players).saturating_add(8).min(PeerID::MAX),
            channel_limit: if setup.join.is_some() { CHANNELS } else { CHANNELS_MAX },
            // ENet takes 0 for "never".
            time: Box::new(move || start.elapsed() + Duration::from_secs(1)),
            ..HostSettings::default()
        };
        let mut host = rusty_enet::Host::new(socket, settings).map_err(|error| OpenError::Socket(error.to_string()))?;
        let mut events = VecDeque::new();
        let silence = u32::try_from(setup.silence.as_millis()).unwrap_or(u32::MAX);
        if let Some((to, id)) = setup.join {
            let peer = host
                .connect(to, CHANNELS, id.get())
                .map_err(|error| OpenError::Socket(format!("ENet has no room for a connection: {error}")))?;
            peer.set_timeout(0, silence, silence);
        } else {
            host.set_mtu(MTU).map_err(|error| OpenError::Socket(error.to_string()))?;
            events.push_back(LinkEvent::Invite(invitation(local)));
        }
        Ok(Self {
            host,
            poll,
            ready: Events::with_capacity(8),
            waker: Arc::new(move || {
                // A wake that fails is made good by the next end of the wait.
                let _later = wake.wake();
            }),
            is_host: setup.join.is_none(),
            silence: setup.silence,
            conns: BTreeMap::new(),
            by_index: BTreeMap::new(),
            closing: BTreeSet::new(),
            next: 0,
            events,
            dirty: true,
            blocked: false,
            leaving: false,
        })
    }

    fn happened(&mut self, event: EventNoRef) {
        match event {
            EventNoRef::Connect { peer, data } => self.connected(peer, data),
            EventNoRef::Disconnect { peer, data } => self.disconnected(peer, data),
            EventNoRef::Receive { peer, channel_id, packet } => self.received(peer, channel_id, packet),
        }
    }

    fn connected(&mut self, index: PeerID, data: u32) {
        let silence = u32::try_from(self.silence.as_millis()).unwrap_or(u32::MAX);
        let is_host = self.is_host;
        let Some(peer) = self.host.get_peer_mut(index) else { return };
        if self.leaving {
            return peer.disconnect(0);
        }
        peer.set_timeout(0, silence, silence);
        let channels = peer.channel_count();
        let speaks = channels == CHANNELS && (is_host || peer.mtu() == MTU);
        let address = peer.address();
        if let Some(address) = address {
            let traffic = Traffic { sent: 0, received: 0, heard: Instant::now() };
            self.host.socket_mut().traffic.insert(address, traffic);
        }
        let link = self.next;
        self.next += 1;
        let conn = Conn { index, address, speaks, channels, queued: Arc::default(), loose: Arc::default() };
        self.conns.insert(link, conn);
        self.by_index.insert(index.0, link);
        let who = if is_host { Who::Joiner(PeerId::new(data).filter(|id| *id != PeerId::HOST)) } else { Who::Host };
        // Everybody on this machine, or behind one router of a home, has the same address; only the former is plain to see.
        let address = address.map(|address| address.ip()).filter(|ip| !ip.is_loopback());
        let address = address.map(|ip| ip.to_string());
        self.events.push_back(LinkEvent::Up { link, who, speaks, name: None, address });
    }

    fn disconnected(&mut self, index: PeerID, data: u32) {
        self.closing.remove(&index.0);
        let Some(link) = self.by_index.remove(&index.0) else {
            if !self.is_host && self.conns.is_empty() && !self.leaving {
                self.events.push_back(LinkEvent::Over(CloseReason::Silent));
            }
            return;
        };
        let address = self.conns.remove(&link).and_then(|conn| conn.address);
        let traffic = address.and_then(|address| self.host.socket_mut().traffic.remove(&address));
        let silent = traffic.is_some_and(|traffic| traffic.heard.elapsed() * 2 >= self.silence);
        let why = match (silent, self.is_host, data) {
            (true, ..) => CloseReason::Silent,
            (false, true, _) => CloseReason::ByPeer,
            (false, false, 0) => CloseReason::SessionEnded,
            (false, false, code) => CloseReason::Kicked(code, String::new()),
        };
        self.events.push_back(LinkEvent::Down(link, why));
    }

    fn received(&mut self, index: PeerID, channel: u8, packet: Packet) {
        let Some((link, conn)) = self.by_index.get(&index.0).and_then(|link| Some((*link, self.conns.get(link)?)))
        else {
            return;
        };
        let speaks = conn.speaks;
        let mut data = if packet.data().len() <= COPY_MAX {
            Bytes::copy_from_slice(packet.data())
        } else {
            Bytes::from_owner(Kept(packet))
        };
        if speaks && channel == CONTROL {
            let (lane, delivery) = (Lane::Control, Delivery::Reliable);
            return self.events.push_back(LinkEvent::Packet { link, lane, delivery, data });
        }
        let mut delivery = if channel == 1 { Delivery::Unreliable } else { Delivery::Reliable };
        if speaks {
            if data.is_empty() {
                return;
            }
            delivery = match data.split_to(1).first() {
                Some(0) => Delivery::Reliable,
                Some(1) => Delivery::Unreliable,
                Some(2) => Delivery::UnreliableOrdered,
                _ => return,
            };
        }
        let lane = Lane::Game(Channel(channel.saturating_sub(1)));
        self.events.push_back(LinkEvent::Packet { link, lane, delivery, data });
    }

    fn close(&mut self, link: LinkId, code: u32) {
        let Some(conn) = self.conns.remove(&link) else { return };
        self.by_index.remove(&conn.index.0);
        self.closing.insert(conn.index.0);
        self.dirty = true;
        if let Some(peer) = self.host.get_peer_mut(conn.index) {
            peer.disconnect_later(code);
        }
    }
}

/// Godot's mapping of its channels, which ours are.
fn channel_of(lane: Lane, delivery: Delivery) -> usize {
    match lane {
        Lane::Control => usize::from(CONTROL),
        Lane::Game(Channel(0)) if delivery == Delivery::Reliable => 0,
        Lane::Game(channel) => usize::from(channel.0) + 1,
    }
}

fn invitation(local: SocketAddr) -> String {
    if !local.ip().is_unspecified() {
        return local.to_string();
    }
    let lan = net::addresses(None).lan.map(std::net::IpAddr::V4).unwrap_or(local.ip());
    SocketAddr::new(lan, local.port()).to_string()
}

impl Links for EnetLinks {
    fn turn(&mut self, _now: Instant) {
        // One look at the socket, then what it brought; a flood leaves the rest to the next turn.
        for _ in 0..4_096 {
            let event = match self.host.check_events().map(rusty_enet::Event::no_ref) {
                Some(event) => Some(event),
                None => self.host.service().ok().flatten().map(rusty_enet::Event::no_ref),
            };
            match event {
                Some(event) => self.happened(event),
                None => break,
            }
        }
        let drained = |conn: &Conn| conn.queued.load(Ordering::Relaxed) <= QUEUE_MAX / 2;
        if self.blocked && self.conns.values().all(drained) {
            self.blocked = false;
            self.events.push_back(LinkEvent::Writable);
        }
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    fn flush(&mut self, _now: Instant) {
        if std::mem::take(&mut self.dirty) {
            self.host.flush();
        }
    }

    fn carries(&self, link: LinkId, lane: Lane, delivery: Delivery) -> bool {
        let Some(conn) = self.conns.get(&link) else { return false };
        let most = if conn.speaks && lane != Lane::Control { CHANNELS - 1 } else { conn.channels };
        channel_of(lane, delivery) < most
    }

    fn has_room(&mut self, link: LinkId, len: usize) -> bool {
        let queued = self.conns.get(&link).map_or(0, |conn| conn.queued.load(Ordering::Relaxed));
        let room = queued + weight(len) <= QUEUE_MAX + weight(0);
        self.blocked |= !room;
        room
    }

    fn send(
        &mut self,
        _now: Instant,
        link: LinkId,
        lane: Lane,
        delivery: Delivery,
        data: &Bytes,
        relay: bool,
    ) -> Result<(), SendError> {
        let Some(conn) = self.conns.get(&link) else { return Err(SendError::NotConnected) };
        let bytes = if conn.speaks && lane != Lane::Control {
            let mut bytes = BytesMut::with_capacity(1 + data.len());
            bytes.put_u8(match delivery {
                Delivery::Reliable => 0,
                Delivery::Unreliable => 1,
                Delivery::UnreliableOrdered => 2,
            });
            bytes.put_slice(data);
            bytes.freeze()
        } else {
            data.clone()
        };
        let (kind, counter, most) = match delivery {
            Delivery::Reliable => (PacketKind::Reliable, &conn.queued, if relay { RELAY_MAX } else { QUEUE_MAX }),
            Delivery::Unreliable => (PacketKind::AlwaysUnreliable { sequenced: false }, &conn.loose, LOOSE_MAX),
            Delivery::UnreliableOrdered => (PacketKind::AlwaysUnreliable { sequenced: true }, &conn.loose, LOOSE_MAX),
        };
        let weight = weight(bytes.len());
        if counter.load(Ordering::Relaxed) + weight > most + 128 {
            self.blocked = true;
            return Err(SendError::WouldBlock);
        }
        let channel = u8::try_from(channel_of(lane, delivery)).map_err(|_| SendError::NotCarried)?;
        counter.fetch_add(weight, Ordering::Relaxed);
        let packet = Packet::new(Box::new(Counted { bytes, queued: Arc::clone(counter) }), kind);
        self.dirty = true;
        let Some(peer) = self.host.get_peer_mut(conn.index) else { return Err(SendError::NotConnected) };
        peer.send(channel, &packet).map_err(|error| match error {
            rusty_enet::error::PeerSendError::NotConnected => SendError::NotConnected,
            _ => SendError::NotCarried,
        })
    }

    fn hang_up(&mut self, _now: Instant, link: LinkId, code: u32, _text: &str) {
        self.close(link, code);
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        let Some(conn) = self.conns.get(&link) else { return LinkStats::default() };
        let Some(peer) = self.host.get_peer(conn.index) else { return LinkStats::default() };
        let traffic = conn.address.and_then(|address| self.host.socket().traffic.get(&address));
        LinkStats {
            rtt: Some(peer.round_trip_time()),
            jitter: Some(peer.round_trip_time_variance()),
            loss: Some(u16::try_from(peer.packet_loss()).map_or(1.0, |loss| f32::from(loss) / 65_536.0)),
            sent: traffic.map_or(0, |traffic| traffic.sent),
            received: traffic.map_or(0, |traffic| traffic.received),
            queued: conn.queued.load(Ordering::Relaxed) + conn.loose.load(Ordering::Relaxed),
            route: Route::Direct,
        }
    }

    fn leave(&mut self, _now: Instant) {
        self.leaving = true;
        for link in self.conns.keys().copied().collect::<Vec<_>>() {
            self.close(link, 0);
        }
        if !self.is_host
            && self.closing.is_empty()
            && let Some(peer) = self.host.get_peer_mut(PeerID(0))
        {
            // Not through yet: nobody is told, nobody knows.
            peer.reset();
        }
    }

    fn is_gone(&self) -> bool {
        self.leaving && self.conns.is_empty() && self.closing.is_empty()
    }

    fn timeout(&self, now: Instant) -> Option<Instant> {
        if !self.host.socket().empty.get() || !self.events.is_empty() {
            return Some(now);
        }
        let busy = |conn: &Conn| conn.queued.load(Ordering::Relaxed) > 0;
        let soon = !self.closing.is_empty() || self.conns.is_empty() && !self.is_host || self.conns.values().any(busy);
        Some(now + if soon { BUSY } else { IDLE })
    }

    fn wait(&mut self, until: Instant) {
        if !self.host.socket().empty.get() {
            return;
        }
        let patience = until.saturating_duration_since(Instant::now());
        // Whatever it is that cannot be waited for shows at the socket in the next turn.
        let _shown_later = self.poll.poll(&mut self.ready, Some(patience));
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.waker)
    }
}

impl Drop for EnetLinks {
    fn drop(&mut self) {
        for conn in self.conns.values() {
            if let Some(peer) = self.host.get_peer_mut(conn.index) {
                peer.disconnect_now(0);
            }
        }
        self.host.flush();
    }
}
