//! The host's half: admission, arrivals and leavings, passing on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lanes::control::{Control, Mark, Why};
use seam::{CloseReason, Event, PeerId, SendError};

use super::{HELLO_WITHIN, Key, Packet, Party, Player, Role, Sender, TRIPS_EVERY};
use crate::links::Lane;

const BANS_MAX: usize = 1_024;
/// Players with this many bits of id; the engine that has fewest peers has 4,095.
const PLAYERS_MAX: usize = 4_095;

pub(super) struct Host {
    max_players: usize,
    refusing: bool,
    bans: VecDeque<Ban>,
    pub(super) trips_at: Instant,
}

struct Ban {
    address: Option<String>,
    identity: [u8; 16],
    text: String,
}

impl Host {
    pub(super) fn new(max_players: usize, now: Instant) -> Self {
        let max_players = if max_players == 0 { PLAYERS_MAX } else { max_players.min(PLAYERS_MAX) };
        Self { max_players, refusing: false, bans: VecDeque::new(), trips_at: now + TRIPS_EVERY }
    }

    fn ban_on(&self, address: Option<&str>, identity: [u8; 16]) -> Option<&Ban> {
        self.bans.iter().find(|ban| {
            address.is_some() && ban.address.as_deref() == address || identity != [0; 16] && ban.identity == identity
        })
    }
}

impl Party {
    /// Whether a player may come in, and why not.
    fn admits(&self, key: Key, identity: [u8; 16], wanted: Option<PeerId>) -> Result<(), (Why, String)> {
        let Role::Host(host) = &self.role else { return Err((Why::Other, String::new())) };
        let address = self.links.get(&key).and_then(|link| link.address.as_deref());
        if let Some(ban) = host.ban_on(address, identity) {
            return Err((Why::Banned, ban.text.clone()));
        }
        if host.refusing {
            return Err((Why::Closed, "nobody else is taken at the moment".to_owned()));
        }
        if self.players.len() + 1 >= host.max_players {
            return Err((Why::Full, format!("all {} places are taken", host.max_players)));
        }
        match wanted {
            Some(id) if id == PeerId::HOST || self.players.contains_key(&id) => {
                Err((Why::Taken, format!("the id {id} is taken")))
            }
            _ => Ok(()),
        }
    }

    /// A peer that knows nothing of control messages: its id came with the connection.
    pub(super) fn admit_stock(&mut self, key: Key, asked: Option<PeerId>) {
        let verdict = match asked {
            Some(_) => self.admits(key, [0; 16], asked),
            None => Err((Why::Other, "an id is 2 to 2147483647".to_owned())),
        };
        match (verdict, asked) {
            (Ok(()), Some(id)) => {
                let player = Player { name: String::new(), speaks: false, linked: false, via: Some(key), trip: None };
                self.arrive(key, id, player);
            }
            _ => self.turn_away(key),
        }
    }

    fn turn_away(&mut self, key: Key) {
        self.links.remove(&key);
        if let Some(links) = self.wires.get_mut(key.0) {
            links.hang_up(self.now, key.1, 0, "");
        }
    }

    pub(super) fn host_hears(&mut self, key: Key, control: Control) {
        let Some(link) = self.links.get_mut(&key) else { return };
        match control {
            Control::Hello { wanted, identity, name, .. } if link.player.is_none() => {
                link.identity = identity;
                let unique = link.name.clone();
                if let Err((why, text)) = self.admits(key, identity, wanted) {
                    self.say(key, &Control::Refused(why, text.clone()));
                    if why != Why::Taken {
                        self.links.remove(&key);
                        if let Some(links) = self.wires.get_mut(key.0) {
                            links.hang_up(self.now, key.1, 0, &text);
                        }
                    }
                    return;
                }
                let id = wanted.unwrap_or_else(|| self.free_id());
                let linked = unique.is_some();
                let name = unique.unwrap_or(name);
                let player = Player { name, speaks: true, linked, via: Some(key), trip: None };
                self.arrive(key, id, player);
            }
            Control::Bye => {
                if let Some(player) = link.player.take() {
                    self.gone(player, CloseReason::ByPeer);
                }
            }
            _ => {}
        }
    }

    fn free_id(&mut self) -> PeerId {
        loop {
            let number = (self.dice.u32() >> 1).max(2);
            if let Some(id) = PeerId::new(number).filter(|id| !self.players.contains_key(id)) {
                return id;
            }
        }
    }

    fn arrive(&mut self, key: Key, id: PeerId, player: Player) {
        if let Some(link) = self.links.get_mut(&key) {
            link.player = Some(id);
        }
        if player.speaks {
            // The host first: its name is unique where the player's own is.
            let me = Player { name: self.name.clone(), speaks: true, linked: player.linked, via: None, trip: None };
            let mut players = vec![self.told(PeerId::HOST, &me)];
            players.extend(self.players.iter().map(|(id, player)| self.told(*id, player)));
            self.say(key, &Control::Welcome { you: id, players });
        }
        let told = Control::Joined(self.told(id, &player));
        self.tell_others(id, &told);
        self.players.insert(id, player);
        self.events.push_back(Event::Joined(id));
    }

    /// A player is no more.
    pub(super) fn gone(&mut self, id: PeerId, why: CloseReason) {
        if self.players.remove(&id).is_none() {
            return;
        }
        self.tell_others(id, &Control::Left(id));
        self.events.push_back(Event::Left(id, why));
    }

    fn tell_others(&mut self, but: PeerId, control: &Control) {
        let speaking = self.players.iter().filter(|(id, player)| **id != but && player.speaks);
        let keys: Vec<Key> = speaking.filter_map(|(_, player)| player.via).collect();
        for key in keys {
            self.say(key, control);
        }
    }

    pub(super) fn host_takes(&mut self, key: Key, packet: Packet) {
        let Some(link) = self.links.get(&key) else { return };
        let Some(from) = link.player else { return };
        if !link.speaks {
            return self.deliver(Sender::Player(from), packet);
        }
        let Some((mark, len)) = Mark::read(&packet.data) else { return };
        let Packet { channel, delivery, data } = packet;
        let packet = Packet { channel, delivery, data: data.slice(len..) };
        let but = match mark {
            Mark::Direct | Mark::To(PeerId::HOST) => return self.deliver(Sender::Player(from), packet),
            Mark::To(id) => {
                let via = self.players.get(&id).filter(|player| player.speaks).and_then(|player| player.via);
                return self.pass_on(from, &packet, via.into_iter().collect());
            }
            Mark::ToAll => from,
            Mark::ToAllBut(id) => id,
            Mark::From(_) => return,
        };
        // Who has links of its own to others sends to them itself; a copy by way of the host would break their order.
        let own_links = self.players.get(&from).is_some_and(|player| player.linked);
        let others = self
            .players
            .iter()
            .filter(|(id, player)| **id != from && **id != but && player.speaks && !(own_links && player.linked));
        let keys = others.filter_map(|(_, player)| player.via).collect();
        self.pass_on(from, &packet, keys);
        if but != PeerId::HOST {
            self.deliver(Sender::Player(from), packet);
        }
    }

    fn pass_on(&mut self, from: PeerId, packet: &Packet, to: Vec<Key>) {
        if to.is_empty() {
            return;
        }
        let mut marked = Vec::with_capacity(packet.data.len() + lanes::control::MARK_MAX);
        Mark::From(from).write(&mut marked);
        marked.extend_from_slice(&packet.data);
        let data = Bytes::from(marked);
        for key in to {
            self.pass(key, Lane::Game(packet.channel), packet.delivery, &data);
        }
    }

    // ---- what the game asks ------------------------------------------------------------------------------------

    pub(crate) fn kick(&mut self, now: Instant, id: PeerId, code: u32, text: &str, ban: bool) -> Result<(), SendError> {
        self.now = now;
        let Role::Host(host) = &mut self.role else { return Err(SendError::HostOnly) };
        let key = self.players.get(&id).and_then(|player| player.via).ok_or(SendError::NoSuchPeer(id))?;
        if ban && let Some(link) = self.links.get(&key) {
            if host.bans.len() >= BANS_MAX {
                host.bans.pop_front();
            }
            let address = link.address.clone();
            host.bans.push_back(Ban { address, identity: link.identity, text: text.to_owned() });
        }
        let speaks = self.links.remove(&key).is_some_and(|link| link.speaks);
        if speaks {
            self.say(key, &Control::Kicked(code, text.to_owned()));
        }
        if let Some(links) = self.wires.get_mut(key.0) {
            links.hang_up(now, key.1, code, text);
            links.flush(now);
        }
        self.gone(id, CloseReason::Kicked(code, text.to_owned()));
        Ok(())
    }

    pub(crate) fn refuse_new(&mut self, refuse: bool) {
        if let Role::Host(host) = &mut self.role {
            host.refusing = refuse;
        }
    }

    /// Hangs up on who never said hello.
    pub(super) fn clear_silent(&mut self) {
        if !matches!(self.role, Role::Host(_)) {
            return;
        }
        let now = self.now;
        let mute = |link: &super::Link| link.speaks && link.player.is_none() && now >= link.since + HELLO_WITHIN;
        let keys: Vec<Key> = self.links.iter().filter(|(_, link)| mute(link)).map(|(key, _)| *key).collect();
        for key in keys {
            self.turn_away(key);
        }
    }

    pub(super) fn tell_trips(&mut self) {
        let Role::Host(host) = &mut self.role else { return };
        if self.now < host.trips_at {
            return;
        }
        host.trips_at = self.now + TRIPS_EVERY;
        let trip = |rtt: Duration| u16::try_from(rtt.as_millis()).unwrap_or(u16::MAX);
        let trips = self.players.iter().filter_map(|(id, player)| {
            let key = player.via?;
            Some((*id, trip(self.wires.get(key.0)?.stats(key.1).rtt?)))
        });
        // What does not fit one unreliable packet is not worth two.
        let trips: Vec<(PeerId, u16)> = trips.take(2_000).collect();
        if trips.len() > 1 {
            self.tell_others(PeerId::HOST, &Control::Trips(trips));
        }
    }
}
