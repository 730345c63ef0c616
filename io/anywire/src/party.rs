//! One player's part in a session, over whatever links its wires have.
//!
//! The host is in the middle: it admits, gives ids their owners, tells everybody of everybody, and passes packets on between
//! players who have no link of their own. The words are those of [`lanes::control`].
//!
//! Bounds: 4,095 players; 1,024 packets and 2 MiB of players whose arrival is still on its way; 1,024 bans.

mod host;
mod joiner;
mod send;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lanes::control::{Control, Player as Told};
use seam::{Channel, CloseReason, Delivery, Dice, Event, LinkStats, PeerId, PeerState, Route, SendError};

use crate::links::{Lane, LinkEvent, LinkId, Links, Waker, Who};

/// Who has not said hello by now is no player.
const HELLO_WITHIN: Duration = Duration::from_secs(15);
/// How often a host tells its round trips.
const TRIPS_EVERY: Duration = Duration::from_secs(2);
/// How long leaving may take.
const LEAVING: Duration = Duration::from_secs(1);
/// Events of wires taken in one turn.
const TURN_MAX: usize = 4_096;
const HELD_MAX: usize = 1_024;
const HELD_BYTES_MAX: usize = 2 << 20;

/// A link, with the number of its wire.
pub(crate) type Key = (usize, LinkId);

/// What a party is made with.
pub(crate) struct Config {
    pub(crate) name: String,
    /// A joiner: what the host may recognise it by, and the id it would like.
    pub(crate) identity: [u8; 16],
    pub(crate) wanted: Option<PeerId>,
    /// A host: most players at once.
    pub(crate) max_players: usize,
    pub(crate) seed: [u8; 32],
}

pub(crate) struct Party {
    wires: Vec<Box<dyn Links>>,
    dice: Dice,
    now: Instant,
    id: PeerId,
    name: String,
    state: PeerState,
    role: Role,
    links: BTreeMap<Key, Link>,
    players: BTreeMap<PeerId, Player>,
    events: VecDeque<Event>,
    /// Packets of players whose arrival was not told yet.
    held: VecDeque<(Sender, Packet)>,
    held_bytes: usize,
    invites: Vec<String>,
    blocked: bool,
    leave_by: Option<Instant>,
    scratch: Vec<u8>,
}

enum Role {
    Host(host::Host),
    Joiner(joiner::Joiner),
}

struct Link {
    who: Who,
    speaks: bool,
    name: Option<String>,
    address: Option<String>,
    identity: [u8; 16],
    since: Instant,
    player: Option<PeerId>,
}

struct Player {
    name: String,
    speaks: bool,
    linked: bool,
    /// The own link to it.
    via: Option<Key>,
    /// The host's round trip to it.
    trip: Option<Duration>,
}

/// Who sent a packet: a player, or whoever turns out to be at the end of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Player(PeerId),
    Link(Key),
}

/// A game's packet that arrived.
struct Packet {
    channel: Channel,
    delivery: Delivery,
    data: Bytes,
}

/// What a thread of its own shows the game of a player.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) stats: LinkStats,
    /// Only these are carried: channels below the first number, and both unreliable deliveries if the second is set.
    pub(crate) stock: Option<u16>,
}

impl Party {
    /// A host's, which is connected at once.
    pub(crate) fn host(config: Config, wires: Vec<Box<dyn Links>>, now: Instant) -> Self {
        let role = Role::Host(host::Host::new(config.max_players, now));
        let mut party = Self::new(config, wires, role, now);
        party.state = PeerState::Connected;
        party.events.push_back(Event::Connected(PeerId::HOST));
        party
    }

    /// A joiner's.
    pub(crate) fn join(config: Config, wire: Box<dyn Links>, now: Instant) -> Self {
        let role = Role::Joiner(joiner::Joiner::new(config.identity, config.wanted));
        Self::new(config, vec![wire], role, now)
    }

    fn new(config: Config, wires: Vec<Box<dyn Links>>, role: Role, now: Instant) -> Self {
        Self {
            wires,
            dice: Dice::new(config.seed),
            now,
            id: PeerId::HOST,
            name: config.name,
            state: PeerState::Connecting,
            role,
            links: BTreeMap::new(),
            players: BTreeMap::new(),
            events: VecDeque::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            invites: Vec::new(),
            blocked: false,
            leave_by: None,
            scratch: Vec::new(),
        }
    }

    /// Receives, decides, sends.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.receive(now);
        self.finish(now);
    }

    /// The first half of a turn: what came.
    pub(crate) fn receive(&mut self, now: Instant) {
        self.now = now;
        for wire in 0..self.wires.len() {
            if let Some(links) = self.wires.get_mut(wire) {
                links.turn(now);
            }
            for _ in 0..TURN_MAX {
                let Some(event) = self.wires.get_mut(wire).and_then(|links| links.poll()) else { break };
                self.take(wire, event);
            }
        }
        self.clear_silent();
        self.tell_trips();
    }

    /// The second half: what came of it.
    pub(crate) fn finish(&mut self, now: Instant) {
        for links in &mut self.wires {
            links.flush(now);
        }
    }

    fn take(&mut self, wire: usize, event: LinkEvent) {
        match event {
            LinkEvent::Invite(text) => self.invites.push(text),
            LinkEvent::Me(name) => self.name = name,
            LinkEvent::Writable => self.writable(),
            LinkEvent::Up { link, who, speaks, name, address } => {
                let key = (wire, link);
                let asked = if let Who::Joiner(asked) = who { asked } else { None };
                let since = self.now;
                let fresh = || Link { who, speaks, name, address, identity: [0; 16], since, player: None };
                self.links.entry(key).or_insert_with(fresh);
                match &self.role {
                    Role::Host(_) if !speaks => self.admit_stock(key, asked),
                    Role::Host(_) => {}
                    Role::Joiner(_) => self.met(key),
                }
            }
            LinkEvent::Packet { link, lane, delivery, data } => self.packet((wire, link), lane, delivery, data),
            LinkEvent::Down(link, why) => self.down((wire, link), why),
            LinkEvent::Over(why) => self.wire_over(wire, why),
        }
    }

    fn packet(&mut self, key: Key, lane: Lane, delivery: Delivery, data: Bytes) {
        if self.state == PeerState::Closed {
            return;
        }
        let Some(link) = self.links.get(&key) else { return };
        match lane {
            Lane::Control if link.speaks => {
                // What is malformed or of a later version says nothing.
                if let Ok(Some(control)) = Control::parse(&data) {
                    match self.role {
                        Role::Host(_) => self.host_hears(key, control),
                        Role::Joiner(_) => self.joiner_hears(key, control),
                    }
                }
            }
            Lane::Control => {}
            Lane::Game(channel) => {
                let packet = Packet { channel, delivery, data };
                match self.role {
                    Role::Host(_) => self.host_takes(key, packet),
                    Role::Joiner(_) => self.joiner_takes(key, packet),
                }
            }
        }
    }

    fn writable(&mut self) {
        if std::mem::take(&mut self.blocked) {
            self.events.push_back(Event::Writable);
        }
    }

    fn down(&mut self, key: Key, why: CloseReason) {
        let Some(link) = self.links.remove(&key) else { return };
        match self.role {
            Role::Host(_) => {
                if let Some(player) = link.player {
                    self.gone(player, why);
                }
            }
            Role::Joiner(_) => self.lost(key, &link, why),
        }
    }

    /// A wire of several may end; the last one ends the session.
    fn wire_over(&mut self, wire: usize, why: CloseReason) {
        let keys: Vec<Key> = self.links.keys().filter(|key| key.0 == wire).copied().collect();
        for key in keys {
            self.down(key, why.clone());
        }
        let alone = self.wires.len() == 1;
        if alone || matches!(self.role, Role::Joiner(_)) {
            self.over(why);
        }
    }

    /// The session is over for this player.
    fn over(&mut self, why: CloseReason) {
        if self.state == PeerState::Closed {
            return;
        }
        self.state = PeerState::Closed;
        self.players.clear();
        self.held.clear();
        self.events.push_back(Event::Closed(why));
        self.leave_by = Some(self.now + LEAVING);
        for links in &mut self.wires {
            links.leave(self.now);
        }
    }

    /// Leaves, telling everybody.
    pub(crate) fn close(&mut self, now: Instant) {
        self.now = now;
        if self.state == PeerState::Closed {
            return;
        }
        let keys: Vec<Key> = self.links.iter().filter(|(_, link)| link.speaks).map(|(key, _)| *key).collect();
        for key in keys {
            self.say(key, &Control::Bye);
        }
        self.over(CloseReason::ByUser);
        for links in &mut self.wires {
            links.flush(now);
        }
    }

    /// Over, and everything said that could be.
    pub(crate) fn is_gone(&self) -> bool {
        self.leave_by.is_some_and(|by| self.now >= by || self.wires.iter().all(|links| links.is_gone()))
    }

    fn say(&mut self, key: Key, control: &Control) {
        let delivery = if matches!(control, Control::Trips(_)) { Delivery::Unreliable } else { Delivery::Reliable };
        let data = control.to_bytes().into();
        self.pass(key, Lane::Control, delivery, &data);
    }

    /// Queues a packet that must not be lost; a link that cannot take it is given up.
    fn pass(&mut self, key: Key, lane: Lane, delivery: Delivery, data: &Bytes) {
        let now = self.now;
        let Some(links) = self.wires.get_mut(key.0) else { return };
        let taken = links.send(now, key.1, lane, delivery, data, true);
        if taken == Err(SendError::WouldBlock) && delivery == Delivery::Reliable {
            links.hang_up(now, key.1, 0, "too slow for what is sent");
            self.down(key, CloseReason::Silent);
        }
    }

    fn told(&self, id: PeerId, player: &Player) -> Told {
        Told { id, speaks: player.speaks, linked: player.linked, name: player.name.clone() }
    }

    /// Hands a packet to the game, or keeps it until its sender's arrival is told.
    fn deliver(&mut self, sender: Sender, packet: Packet) {
        let from = match sender {
            Sender::Player(id) => Some(id),
            Sender::Link(key) => self.links.get(&key).and_then(|link| link.player),
        };
        let known = from.filter(|id| self.state == PeerState::Connected && self.players.contains_key(id));
        if let Some(from) = known {
            let Packet { channel, delivery, data } = packet;
            self.events.push_back(Event::Packet { from, channel, delivery, data });
        } else if packet.delivery == Delivery::Reliable
            && self.held.len() < HELD_MAX
            && self.held_bytes < HELD_BYTES_MAX
            && !matches!(self.role, Role::Host(_))
        {
            self.held_bytes += packet.data.len();
            self.held.push_back((sender, packet));
        }
    }

    /// Hands out what was kept for want of a sender.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        self.held_bytes = 0;
        for (sender, packet) in std::mem::take(&mut self.held) {
            self.deliver(sender, packet);
        }
    }

    // ---- what the game asks ------------------------------------------------------------------------------------

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn id(&self) -> PeerId {
        self.id
    }

    pub(crate) fn state(&self) -> PeerState {
        self.state
    }

    pub(crate) fn peers(&self) -> Vec<PeerId> {
        self.players.keys().copied().collect()
    }

    pub(crate) fn name(&self, peer: PeerId) -> Option<String> {
        if peer == self.id && self.state == PeerState::Connected {
            return Some(self.name.clone());
        }
        self.players.get(&peer).map(|player| player.name.clone())
    }

    pub(crate) fn own_name(&self) -> &str {
        &self.name
    }

    pub(crate) fn invite(&self) -> Option<String> {
        (!self.invites.is_empty()).then(|| self.invites.join(" "))
    }

    pub(crate) fn link_stats(&self, peer: PeerId) -> Option<LinkStats> {
        let player = self.players.get(&peer)?;
        if let Some(key) = player.via {
            return Some(self.wires.get(key.0)?.stats(key.1));
        }
        let host = self.players.get(&PeerId::HOST).and_then(|host| host.via);
        let own = host.and_then(|key| Some(self.wires.get(key.0)?.stats(key.1))).unwrap_or_default();
        let rtt = player.trip.zip(own.rtt).map(|(far, near)| far + near);
        Some(LinkStats {
            rtt,
            jitter: own.jitter,
            queued: own.queued,
            route: Route::ThroughHost,
            ..LinkStats::default()
        })
    }

    pub(crate) fn facts(&self) -> BTreeMap<PeerId, Facts> {
        let facts = |(id, player): (&PeerId, &Player)| {
            let stock = player.via.filter(|_| !player.speaks).map(|key| self.channels(key));
            let stats = self.link_stats(*id).unwrap_or_default();
            (*id, Facts { name: player.name.clone(), stats, stock })
        };
        self.players.iter().map(facts).collect()
    }

    fn channels(&self, key: Key) -> u16 {
        let Some(links) = self.wires.get(key.0) else { return 0 };
        let carried = |number: &u8| links.carries(key.1, Lane::Game(Channel(*number)), Delivery::Reliable);
        (0..=255_u8).take_while(carried).map(u16::from).count().try_into().unwrap_or(u16::MAX)
    }

    // ---- the wait ----------------------------------------------------------------------------------------------

    pub(crate) fn timeout(&self, now: Instant) -> Option<Instant> {
        let wires = self.wires.iter().filter_map(|links| links.timeout(now));
        let own = match &self.role {
            Role::Host(host) => Some(host.trips_at),
            Role::Joiner(_) => None,
        };
        wires.chain(own).chain(self.leave_by).min()
    }

    /// Blocks until something is to be done; several wires take turns of two milliseconds.
    pub(crate) fn wait(&mut self, until: Instant) {
        let now = Instant::now();
        let until = self.timeout(now).map_or(until, |due| due.min(until));
        let several = self.wires.len() > 1;
        for links in &mut self.wires {
            let share = if several { until.min(Instant::now() + Duration::from_millis(2)) } else { until };
            links.wait(share);
        }
    }

    pub(crate) fn waker(&self) -> Waker {
        let wakers: Vec<Waker> = self.wires.iter().map(|links| links.waker()).collect();
        std::sync::Arc::new(move || wakers.iter().for_each(|wake| wake()))
    }
}
