//! A joiner's half: hello, the roster as it is told, packets by way of the host.

use std::time::Duration;

use lanes::control::{Control, Mark, Player as Told, VERSION, Why};
use seam::{CloseReason, Event, PeerId, PeerState};

use super::{Key, Link, Packet, Party, Player, Role, Sender};
use crate::links::Who;

/// How often another id is drawn before the join is given up.
const TRIES: u32 = 16;

pub(super) struct Joiner {
    identity: [u8; 16],
    wanted: Option<PeerId>,
    tries: u32,
    pub(super) host: Option<Key>,
    host_speaks: bool,
}

impl Joiner {
    pub(super) fn new(identity: [u8; 16], wanted: Option<PeerId>) -> Self {
        Self { identity, wanted, tries: 0, host: None, host_speaks: false }
    }
}

impl Party {
    /// A link stands.
    pub(super) fn met(&mut self, key: Key) {
        let Some(link) = self.links.get(&key) else { return };
        let (who, speaks) = (link.who.clone(), link.speaks);
        let Role::Joiner(joiner) = &mut self.role else { return };
        match who {
            Who::Host => {
                joiner.host = Some(key);
                joiner.host_speaks = speaks;
                if self.state == PeerState::Connected {
                    // The same host over a new link: it does not know us any more.
                    self.over(CloseReason::SessionEnded);
                } else if speaks {
                    self.hello(key);
                } else {
                    let id = joiner.wanted.unwrap_or(PeerId::HOST);
                    let host = Told { id: PeerId::HOST, speaks: false, linked: false, name: String::new() };
                    self.welcome(key, id, vec![host]);
                }
            }
            Who::Fellow(name) => {
                let linked = self.players.iter().find(|(_, player)| player.linked && player.name == name);
                if let Some(id) = linked.map(|(id, _)| *id) {
                    self.use_link(key, id);
                }
            }
            Who::Joiner(_) => {}
        }
    }

    fn hello(&mut self, key: Key) {
        let Role::Joiner(joiner) = &mut self.role else { return };
        let drawn = PeerId::new((self.dice.u32() >> 1).max(2)).unwrap_or(PeerId::HOST);
        let wanted = joiner.wanted.take().unwrap_or(drawn);
        let identity = joiner.identity;
        let name = self.name.clone();
        self.say(key, &Control::Hello { version: VERSION, wanted: Some(wanted), identity, name });
    }

    fn use_link(&mut self, key: Key, id: PeerId) {
        if let Some(player) = self.players.get_mut(&id) {
            player.via = Some(key);
        }
        if let Some(link) = self.links.get_mut(&key) {
            link.player = Some(id);
        }
        self.release();
    }

    fn welcome(&mut self, key: Key, you: PeerId, players: Vec<Told>) {
        if self.state != PeerState::Connecting {
            return;
        }
        self.id = you;
        self.state = PeerState::Connected;
        self.events.push_back(Event::Connected(you));
        for player in players {
            self.meet(Some(key), player);
        }
        self.release();
    }

    fn meet(&mut self, host: Option<Key>, told: Told) {
        let id = told.id;
        if id == self.id || self.players.contains_key(&id) {
            return;
        }
        let via = host.filter(|_| id == PeerId::HOST);
        let name = told.name.clone();
        let player = Player { name: told.name, speaks: told.speaks, linked: told.linked, via, trip: None };
        self.players.insert(id, player);
        self.events.push_back(Event::Joined(id));
        if let Some(key) = via {
            if let Some(link) = self.links.get_mut(&key) {
                link.player = Some(id);
            }
        } else if told.linked {
            // A link from the first packet on: one that began by way of the host would be overtaken on a later one.
            let made = self.wires.first_mut().and_then(|links| links.link_to(self.now, &name));
            if let Some(link) = made {
                let (who, since) = (Who::Fellow(name), self.now);
                let fresh =
                    || Link { who, speaks: true, name: None, address: None, identity: [0; 16], since, player: None };
                self.links.entry((0, link)).or_insert_with(fresh);
                self.use_link((0, link), id);
            }
        }
    }

    fn is_host(&self, key: Key) -> bool {
        matches!(&self.role, Role::Joiner(joiner) if joiner.host == Some(key))
    }

    pub(super) fn joiner_hears(&mut self, key: Key, control: Control) {
        if !self.is_host(key) {
            // The host tells of everybody; fellows have nothing to say here.
            return;
        }
        match control {
            Control::Welcome { you, players } if you != PeerId::HOST => self.welcome(key, you, players),
            Control::Refused(why, text) => self.refused(key, why, text),
            Control::Joined(player) if self.state == PeerState::Connected => {
                self.meet(None, player);
                self.release();
            }
            Control::Left(id) if id != PeerId::HOST => self.leave(id),
            Control::Kicked(code, text) => self.over(CloseReason::Kicked(code, text)),
            Control::Bye => self.over(CloseReason::SessionEnded),
            Control::Trips(trips) => {
                for (id, trip) in trips {
                    if let Some(player) = self.players.get_mut(&id) {
                        player.trip = Some(Duration::from_millis(trip.into()));
                    }
                }
            }
            _ => {}
        }
    }

    fn refused(&mut self, key: Key, why: Why, text: String) {
        if self.state != PeerState::Connecting {
            return;
        }
        if why == Why::Taken
            && let Role::Joiner(joiner) = &mut self.role
            && joiner.tries < TRIES
        {
            joiner.tries += 1;
            return self.hello(key);
        }
        let text = if text.is_empty() { format!("the host does not want this player: {why:?}") } else { text };
        self.over(CloseReason::Refused(text));
    }

    fn leave(&mut self, id: PeerId) {
        if self.players.remove(&id).is_some() {
            self.events.push_back(Event::Left(id, CloseReason::ByPeer));
        }
        self.held.retain(|(sender, _)| *sender != Sender::Player(id));
    }

    pub(super) fn joiner_takes(&mut self, key: Key, packet: Packet) {
        let Some(link) = self.links.get(&key) else { return };
        let is_host = self.is_host(key);
        if !link.speaks {
            return self.deliver(Sender::Player(PeerId::HOST), packet);
        }
        let Some((mark, len)) = Mark::read(&packet.data) else { return };
        let Packet { channel, delivery, data } = packet;
        let packet = Packet { channel, delivery, data: data.slice(len..) };
        match mark {
            Mark::Direct if is_host => self.deliver(Sender::Player(PeerId::HOST), packet),
            Mark::From(id) if is_host && id != PeerId::HOST && id != self.id => {
                self.deliver(Sender::Player(id), packet)
            }
            Mark::Direct => self.deliver(Sender::Link(key), packet),
            _ => {}
        }
    }

    /// A link is gone.
    pub(super) fn lost(&mut self, key: Key, link: &Link, why: CloseReason) {
        if self.is_host(key) {
            return self.over(why);
        }
        // A fellow is a player as long as the host says so; its packets go by way of the host again.
        if let Some(player) = link.player.and_then(|id| self.players.get_mut(&id))
            && player.via == Some(key)
        {
            player.via = None;
        }
    }
}
