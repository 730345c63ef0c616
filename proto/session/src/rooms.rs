//! Words of one room that another room needs.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;

use lobby::Roster;
use mesh::{DIAL_FOR, RosterView, Seat};
use punch::DialId;
use seam::Path;

use crate::egress::Body;
use crate::session::{Role, Session};
use crate::{Event, LOBBY};

impl Session {
    /// Passes events between the rooms until all are quiet.
    pub(crate) fn pump(&mut self) {
        loop {
            let mut moved = false;
            while let Some(event) = self.punch.poll_event() {
                moved = true;
                self.on_punch(event);
            }
            while let Some(event) = self.poll_lobby() {
                moved = true;
                self.on_lobby(event);
            }
            while let Some(event) = self.mesh.poll_event() {
                moved = true;
                self.on_mesh(event);
            }
            moved |= self.pump_reach();
            moved |= self.pump_listing();
            moved |= self.pump_parcels();
            if !moved {
                break;
            }
        }
    }

    fn poll_lobby(&mut self) -> Option<lobby::Event> {
        match &mut self.role {
            Role::Host(side) => side.lobby.poll_event(),
            Role::Joiner(side) => side.lobby.poll_event(),
        }
    }

    fn on_punch(&mut self, event: punch::Event) {
        match event {
            punch::Event::Observed(observation) => self.finish_observing(observation),
            punch::Event::Surveyed(survey) => self.surveyed(&survey),
            punch::Event::Opened { id, path, .. } => match self.dials.remove(&id) {
                Some(name) => self.mesh.link_opened(self.now, &name, path),
                None => self.host_opened(id, path),
            },
            punch::Event::Failed { id } => match self.dials.remove(&id) {
                Some(name) => {
                    self.log(format!("[mesh] {name}: no direct path (timeout) -- relaying"));
                    self.mesh.dial_failed(self.now, &name);
                }
                None => self.host_unreachable(id),
            },
            punch::Event::Proved { path } => {
                if let Some((old, stash)) = self.salts.finish_move(path) {
                    let added = self.way_proved(old, path);
                    if !added {
                        self.rekey(old, path);
                    }
                    if let Some(message) = stash {
                        let path = self.beside(path).unwrap_or(path);
                        // Refusals of this late message change nothing that its sender does not repeat.
                        let _ = self.message(path, &message);
                    }
                }
            }
            punch::Event::Guessed { path } => self.guess_met(path),
            punch::Event::GuessOver => self.guess_over(),
            _ => {}
        }
    }

    /// A player has another address now: every room follows.
    fn rekey(&mut self, old: Path, new: Path) {
        let now = self.now;
        let moved = match &mut self.role {
            Role::Host(side) => side.lobby.rekey(now, old, new),
            Role::Joiner(side) => side.rekey(now, old, new),
        };
        if moved {
            self.follow(old, new);
            self.log(format!("[net] {} moved to {}", old.remote, new.remote));
        }
    }

    /// The rooms beside the lobby follow a player to its new address.
    fn follow(&mut self, old: Path, new: Path) {
        self.mesh.rekey(self.now, old, new);
        self.punch.rekey(self.now, old, new);
        self.reassembly.forget(old);
        self.salts.rekey(old, new);
        self.egress.rekey(old, new);
        self.parcels.rekey(old, new);
        self.rekey_way(old, new);
    }

    fn on_lobby(&mut self, event: lobby::Event) {
        let now = self.now;
        match event {
            lobby::Event::Status { state, detail } => self.push(Event::Status { state, detail }),
            lobby::Event::Roster(roster) => {
                self.tell_mesh(&roster);
                self.push(Event::Roster(roster));
            }
            lobby::Event::Chat { from, text, ts } => self.push(Event::Chat { from, text, ts }),
            lobby::Event::Start { save, switch } => self.push(Event::Start { save, switch }),
            lobby::Event::TransportLobby(epoch) => self.push(Event::TransportLobby(epoch)),
            lobby::Event::MemberJoined { name, path, mesh, .. } => {
                self.mesh.member_joined(now, &name, path, mesh);
                self.hold(path, false);
                self.begin_way(path);
            }
            lobby::Event::MemberRenamed { path, new, .. } => {
                self.mesh.rename(now, path, &new);
            }
            lobby::Event::MemberMoved { old, new, .. } => self.follow(old, new),
            lobby::Event::MemberLeft { path, .. } => {
                self.mesh.member_left(now, path);
                self.parcels.left(path, now);
                self.release(path);
                self.end_way(path);
                self.reassembly.forget(path);
                self.salts.forget(path);
            }
            lobby::Event::PeerLog { name, line } => self.push(Event::PeerLog { name, line }),
            lobby::Event::Rejoin => self.dial_host_again(),
            lobby::Event::Log(line) => self.log(line),
            lobby::Event::Ended(end) => self.end(end),
            _ => {}
        }
    }

    fn tell_mesh(&mut self, roster: &Arc<Roster>) {
        let now = self.now;
        let host = (!roster.host.is_empty()).then_some(roster.host.as_str());
        match &self.role {
            Role::Host(_) if roster.relay => self.mesh.set_leader(now, host),
            Role::Host(_) => self.mesh.set_me(now, &roster.you),
            Role::Joiner(_) => {
                let players = roster.players.iter().map(|(name, player)| {
                    let seat = Seat { slot: player.slot, profile: player.profile.as_deref(), links: player.links };
                    (name.as_str(), seat)
                });
                let view = RosterView { me: &roster.you, host, relay: roster.relay, players: players.collect() };
                self.mesh.roster(now, &view);
            }
        }
    }

    fn on_mesh(&mut self, event: mesh::Event) {
        match event {
            mesh::Event::Deliver { from, frame } => self.deliver(from, frame),
            mesh::Event::Dial { name, profile } => self.dial_player(name, &profile),
            mesh::Event::CancelDial { name } => {
                let ids: Vec<DialId> =
                    self.dials.iter().filter(|(_, dialled)| **dialled == name).map(|(id, _)| *id).collect();
                for id in ids {
                    self.dials.remove(&id);
                    self.punch.cancel(id);
                }
            }
            mesh::Event::LinkUp { name, path } => {
                self.hold(path, true);
                self.log(format!("[mesh] {name} direct via {}", path.remote));
                if let Role::Joiner(side) = &mut self.role {
                    side.links.insert(name, path);
                }
            }
            mesh::Event::LinkDown { name, path, why } => {
                self.release(path);
                self.salts.forget(path);
                if let Role::Joiner(side) = &mut self.role
                    && side.links.get(&name) == Some(&path)
                {
                    side.links.remove(&name);
                }
                match why {
                    mesh::Down::Silent => self.log(format!("[mesh] {name}: link dead")),
                    mesh::Down::Left => self.log(format!("[mesh] {name} left: link closed")),
                    mesh::Down::Replaced | mesh::Down::Renamed => {}
                }
            }
            mesh::Event::Direct(names) => {
                if let Role::Joiner(side) = &mut self.role {
                    side.lobby.links(self.now, names);
                }
            }
            mesh::Event::Oversize { size } => {
                self.log(format!(
                    "[net] the game sent a frame of {size} bytes; over {} is dropped",
                    np1::GAME_FRAME_MAX
                ));
            }
        }
    }

    /// Dials another joiner at the addresses of its profile, in the order of netpunch wire, section 11.1.
    fn dial_player(&mut self, name: String, profile: &str) {
        let candidates = match joincode::parse(profile) {
            Ok(joincode::Code::Plain(profile)) => self.targets(&profile, None),
            // A profile is never locked and never a Steam ID alone; one that does not read cannot be dialled.
            Ok(joincode::Code::Locked(_) | joincode::Code::Steam(_)) | Err(_) => Vec::new(),
        };
        if candidates.is_empty() {
            return self.mesh.dial_failed(self.now, &name);
        }
        self.log(format!("[mesh] dialing {name}"));
        let id = self.dial_id();
        self.dials.insert(id, name);
        self.punch.dial(self.now, id, candidates, DIAL_FOR);
    }

    /// The addresses of a profile that can be dialled from here: those of old peers, and IPv6 where this end has it.
    pub(crate) fn targets(&self, profile: &joincode::Profile, mine: Option<SocketAddrV4>) -> Vec<SocketAddr> {
        let v6 = profile.v6.filter(|at| self.local.v6.is_some() && at.port() != 0).map(SocketAddr::V6);
        candidates(profile, mine).into_iter().chain(v6).collect()
    }

    pub(crate) fn dial_id(&mut self) -> DialId {
        self.next_dial += 1;
        DialId(self.next_dial)
    }

    pub(crate) fn hold(&mut self, path: Path, keepalive: bool) {
        self.punch.hold(self.now, path, keepalive);
        self.egress.count(path);
    }

    pub(crate) fn release(&mut self, path: Path) {
        self.punch.release(path);
        self.egress.uncount(path);
    }

    /// Moves what the rooms want to send into the queue, messages first, frames behind them. False when the queue is
    /// full and they may have more.
    pub(crate) fn fetch(&mut self) -> bool {
        while self.egress.has_room() {
            let message = match &mut self.role {
                Role::Host(side) => side.lobby.poll_message(),
                Role::Joiner(side) => side.lobby.poll_message(),
            };
            let Some((path, json)) = message else { break };
            self.send_message(path, json);
        }
        while self.egress.has_room() {
            let Some((path, json)) = self.parcels.poll_message() else { break };
            self.send_message(path, json);
        }
        while self.egress.has_room() {
            let Some(mut send) = self.mesh.poll_send() else { break };
            if let Some(reach) = &self.reach {
                reach.ways.spread(self.now, &mut send.to);
            }
            match send.payload {
                mesh::Outgoing::Game(frame) => self.egress.payload(send.to, Body::Game(frame)),
                mesh::Outgoing::Raw(bytes) => self.egress.payload(send.to, Body::Raw(bytes)),
                mesh::Outgoing::Envelope { to, from, frame } => {
                    // Names are bounded where players are admitted; one that does not fit cannot be sent to.
                    if let Ok(head) = np1::Envelope::head(&to, &from) {
                        self.egress.payload(send.to, Body::Envelope { head, frame });
                    }
                }
                mesh::Outgoing::Hi(name) => {
                    let mut message = codec::Map::new();
                    message.insert("t".to_owned(), "mesh_hi".into());
                    message.insert("name".to_owned(), (&*name).into());
                    self.egress.payload(send.to, Body::Message(codec::to_json(&message)));
                }
            }
        }
        self.egress.has_room()
    }

    /// One lobby message to one player: whole, or in fragments that are sealed each on its own.
    pub(crate) fn send_message(&mut self, path: Path, json: Vec<u8>) {
        let mut to = vec![path];
        if let Some(reach) = &self.reach {
            reach.ways.spread(self.now, &mut to);
        }
        if json.len() <= np1::FRAGMENT_DATA {
            return self.egress.payload(to, Body::Message(json));
        }
        let id = self.fragment_id;
        self.fragment_id = self.fragment_id.wrapping_add(1);
        for piece in np1::split(id, &json) {
            self.egress.payload(to.clone(), Body::Message(piece));
        }
    }
}

/// The addresses of a profile that can be dialled, in order.
pub(crate) fn candidates(profile: &joincode::Profile, my_public: Option<SocketAddrV4>) -> Vec<SocketAddr> {
    joincode::dial_order(profile, my_public).into_iter().filter(|address| address.port() != 0).collect()
}

/// The path of an address on the lobby socket.
pub(crate) const fn lobby_path(remote: SocketAddr) -> Path {
    Path::new(LOBBY, remote)
}
