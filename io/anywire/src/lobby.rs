//! The lobby wire: sealed UDP, joined by code.
//!
//! A packet is a netpunch game frame: one byte of channel, then the packet's bytes. Player ids follow from letters,
//! which are fixed for a lobby's life and known to everybody: the host, `a`, is 1, `b` is 2.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use driver::{CommandError, Handle, Setup};
use seam::{
    Channel, CloseReason, Delivery, Event, HostOptions, JoinOptions, LinkStats, OpenError, Peer, PeerId, PeerState,
    SendError, Target, Transport, TransportKind,
};
use session::{Command, GameSide, HostConfig, JoinConfig, RELEASE, StunServer};

/// Most bytes of one packet: with its channel it stays below the frame limit and below every common path MTU.
const PACKET_MAX: usize = 1200;
/// How long a dial may take before the join fails.
const DIAL_FOR: Duration = Duration::from_secs(40);

/// Opens lobby sessions.
#[derive(Clone, Debug)]
pub struct LobbyTransport {
    /// Release string that admission compares; both ends must have the same.
    pub version: String,
    /// STUN servers by `host`, `port`; empty asks nobody, which is enough on one LAN.
    pub stun: Vec<(String, u16)>,
}

impl Default for LobbyTransport {
    fn default() -> Self {
        let servers = [
            ("stun.l.google.com", 19302),
            ("stun.nextcloud.com", 3478),
            ("stun.cloudflare.com", 3478),
            ("stun.services.mozilla.com", 3478),
        ];
        Self { version: RELEASE.to_owned(), stun: servers.map(|(host, port)| (host.to_owned(), port)).into() }
    }
}

impl LobbyTransport {
    fn servers(&self) -> Vec<StunServer> {
        self.stun.iter().map(|(host, port)| StunServer { host: host.clone(), port: *port }).collect()
    }

    /// Opens a host; unlike [`Transport::host`] it keeps the lobby's own verbs at hand, the join code among them.
    ///
    /// # Errors
    /// [`OpenError`] when no socket can be had.
    pub fn host_lobby(&self, options: &HostOptions) -> Result<LobbyPeer, OpenError> {
        let secret = seam::Dice::new(driver::entropy().map_err(|e| OpenError::Socket(e.to_string()))?).bytes();
        let config = HostConfig {
            version: self.version.clone(),
            password: options.password.clone(),
            game: GameSide::Inside,
            stun: self.servers(),
            max_players: if options.max_players == 0 { 200 } else { options.max_players },
            ..HostConfig::new(&options.name, secret)
        };
        let mut setup = Setup::host(config);
        if options.port != 0 {
            setup.bind.set_port(options.port);
        }
        LobbyPeer::start(setup)
    }

    /// Opens a joiner; unlike [`Transport::join`] it keeps the lobby's own verbs at hand.
    ///
    /// # Errors
    /// [`OpenError::BadAddress`] for a code that does not read, else when no socket can be had.
    pub fn join_lobby(&self, options: &JoinOptions) -> Result<LobbyPeer, OpenError> {
        let code = joincode::read(&options.address).map_err(|e| OpenError::BadAddress(e.to_string()))?;
        let config = JoinConfig {
            version: self.version.clone(),
            password: options.password.clone(),
            timeout: DIAL_FOR,
            game: GameSide::Inside,
            stun: self.servers(),
            ..JoinConfig::new(&options.name, code)
        };
        LobbyPeer::start(Setup::join(config))
    }
}

impl Transport for LobbyTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Lobby
    }

    fn is_available(&self) -> bool {
        true
    }

    fn host(&self, options: &HostOptions) -> Result<Box<dyn Peer>, OpenError> {
        Ok(Box::new(self.host_lobby(options)?))
    }

    fn join(&self, options: &JoinOptions) -> Result<Box<dyn Peer>, OpenError> {
        Ok(Box::new(self.join_lobby(options)?))
    }
}

/// One player's end of a lobby session.
pub struct LobbyPeer {
    handle: Handle,
    state: PeerState,
    id: PeerId,
    code: Option<String>,
    names: BTreeMap<PeerId, String>,
    links: Arc<BTreeMap<String, LinkStats>>,
    events: VecDeque<Event>,
    /// A send was refused for want of room since the last [`Event::Writable`].
    blocked: bool,
}

impl std::fmt::Debug for LobbyPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LobbyPeer").field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

impl LobbyPeer {
    fn start(setup: Setup) -> Result<Self, OpenError> {
        let handle = driver::spawn(setup).map_err(|e| OpenError::Socket(e.to_string()))?;
        Ok(Self {
            handle,
            state: PeerState::Connecting,
            id: PeerId::HOST,
            code: None,
            names: BTreeMap::new(),
            links: Arc::default(),
            events: VecDeque::new(),
            blocked: false,
        })
    }

    /// A host's join code, once it is known.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Polls until a host's join code is known; `None` when it is not within `patience` or the session ended.
    pub fn wait_for_code(&mut self, patience: Duration) -> Option<&str> {
        let until = Instant::now() + patience;
        while self.code.is_none() && self.state != PeerState::Closed && Instant::now() < until {
            if let Some(event) = self.handle.event_timeout(Duration::from_millis(20)) {
                self.take(event);
            }
        }
        self.code.as_deref()
    }

    /// A player's name.
    #[must_use]
    pub fn name(&self, peer: PeerId) -> Option<&str> {
        self.names.get(&peer).map(String::as_str)
    }

    fn id_of(&self, name: &str) -> Option<PeerId> {
        self.names.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    fn take(&mut self, event: session::Event) {
        match event {
            session::Event::Code(code) => {
                self.code = Some(code);
                self.connected(PeerId::HOST);
            }
            session::Event::Roster(roster) => self.roster(&roster),
            session::Event::Links(links) => self.links = links,
            session::Event::Frame { from, data } => self.frame(from.as_deref(), data),
            session::Event::Ended(end) => {
                self.state = PeerState::Closed;
                let reason = match end {
                    lobby::End::Quit => CloseReason::ByUser,
                    lobby::End::HostClosed => CloseReason::ByPeer,
                    lobby::End::HostGone => CloseReason::Silent,
                    refused => CloseReason::Refused(refused.to_string()),
                };
                self.events.push_back(Event::Closed(reason));
            }
            _ => {}
        }
    }

    fn connected(&mut self, id: PeerId) {
        if self.state == PeerState::Connecting {
            self.state = PeerState::Connected;
            self.id = id;
            self.events.push_back(Event::Connected(id));
        }
    }

    fn roster(&mut self, roster: &lobby::Roster) {
        let now: BTreeMap<PeerId, String> = roster
            .players
            .iter()
            .filter_map(|(name, player)| Some((id_of_letter(&player.letter)?, name.clone())))
            .collect();
        let me = roster.players.get(&roster.you).and_then(|player| id_of_letter(&player.letter));
        if let Some(me) = me {
            self.connected(me);
        }
        let others =
            |names: &BTreeMap<PeerId, String>| names.keys().copied().filter(|id| Some(*id) != me).collect::<Vec<_>>();
        let before = others(&self.names);
        for gone in before.iter().filter(|id| !now.contains_key(id)) {
            self.events.push_back(Event::Left(*gone, CloseReason::ByPeer));
        }
        for new in others(&now).into_iter().filter(|id| !before.contains(id)) {
            self.events.push_back(Event::Joined(new));
        }
        self.names = now;
    }

    fn frame(&mut self, from: Option<&str>, mut data: Bytes) {
        // Frames of players whose arrival was not told yet, and frames without a channel, are not packets of ours.
        let Some(from) = from.and_then(|name| self.id_of(name)).filter(|id| *id != self.id) else { return };
        if data.is_empty() {
            return;
        }
        let channel = Channel(data.split_to(1).first().copied().unwrap_or_default());
        self.events.push_back(Event::Packet { from, channel, delivery: Delivery::Unreliable, data });
    }

    fn tell(&mut self, command: Command) -> Result<(), SendError> {
        self.handle.command(command).map_err(|error| match error {
            CommandError::Full => {
                self.blocked = true;
                SendError::WouldBlock
            }
            _ => SendError::NotConnected,
        })
    }
}

impl Peer for LobbyPeer {
    fn id(&self) -> PeerId {
        self.id
    }

    fn state(&self) -> PeerState {
        self.state
    }

    fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            while let Some(event) = self.handle.try_event() {
                self.take(event);
                if !self.events.is_empty() {
                    break;
                }
            }
        }
        if self.events.is_empty() && self.blocked {
            self.blocked = false;
            return Some(Event::Writable);
        }
        self.events.pop_front()
    }

    fn send(&mut self, target: Target, channel: Channel, delivery: Delivery, data: &[u8]) -> Result<(), SendError> {
        if self.state != PeerState::Connected {
            return Err(SendError::NotConnected);
        }
        if delivery != Delivery::Unreliable || target != Target::All {
            return Err(SendError::NotCarried);
        }
        if data.len() > PACKET_MAX {
            return Err(SendError::TooLarge { size: data.len(), max: PACKET_MAX });
        }
        let mut frame = BytesMut::with_capacity(1 + data.len());
        frame.put_u8(channel.0);
        frame.put_slice(data);
        self.tell(Command::Frame(frame.freeze()))
    }

    fn max_packet_size(&self, delivery: Delivery) -> usize {
        match delivery {
            Delivery::Unreliable => PACKET_MAX,
            Delivery::Reliable | Delivery::UnreliableOrdered => 0,
        }
    }

    fn peers(&self) -> Vec<PeerId> {
        self.names.keys().copied().filter(|id| *id != self.id).collect()
    }

    fn name(&self, peer: PeerId) -> Option<String> {
        self.names.get(&peer).cloned()
    }

    fn invite(&self) -> Option<String> {
        self.code.clone()
    }

    fn link_stats(&self, peer: PeerId) -> Option<LinkStats> {
        let name = self.names.get(&peer)?;
        Some(self.links.get(name).cloned().unwrap_or_default())
    }

    fn kick(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError> {
        if self.id != PeerId::HOST {
            return Err(SendError::HostOnly);
        }
        let player = self.names.get(&peer).cloned().ok_or(SendError::NoSuchPeer(peer))?;
        self.tell(Command::Kick {
            player,
            text: if text.is_empty() { format!("code {code}") } else { text.to_owned() },
        })
    }

    fn ban(&mut self, _peer: PeerId, _code: u32, _text: &str) -> Result<(), SendError> {
        Err(SendError::NotCarried)
    }

    fn refuse_new(&mut self, _refuse: bool) {}

    fn close(&mut self) {
        // A session that is over already has nobody to tell.
        let _ = self.handle.command(Command::Quit);
    }
}

/// `a` is 1, `b` is 2, ..., `z` is 26, `aa` is 27: letters counted as in a spreadsheet's columns.
fn id_of_letter(letter: &str) -> Option<PeerId> {
    let mut number: u32 = 0;
    for byte in letter.bytes() {
        if !byte.is_ascii_lowercase() {
            return None;
        }
        number = number.checked_mul(26)?.checked_add(u32::from(byte - b'a') + 1)?;
    }
    PeerId::new(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_number_the_players() {
        let id = |letter| id_of_letter(letter).map(PeerId::get);
        assert_eq!(["a", "b", "z", "aa", "zz", "aaa"].map(id), [1, 2, 26, 27, 702, 703].map(Some));
        assert_eq!(["", "A", "a1", "zzzzzzzzzz"].map(id), [None; 4]);
    }
}
