//! 199 joiners in one process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lobby::{JoinConfig, Joiner};
use mio::{Events, Interest, Poll, Token};
use np1::{Bounds, Fragment, HEADER, Kind, Packet, Reassembly};
use seal::{OVERHEAD, Opener, Sealer, SessionKey};
use seam::{Dice, Path, SocketId};

use super::server::rival;
use super::{FRAME, JOINERS, TICK};
use crate::lobbies;
use crate::plain::Rival;

/// One more joiner knocks this often, and a knock that was not heard is repeated after the second.
const ENTER: Duration = Duration::from_millis(10);
const AGAIN: Duration = Duration::from_millis(300);

/// What the joiners speak.
pub(super) enum Talk {
    /// All of a lobby; with the socket of a host's game that is not in its process.
    Lobby {
        /// The host's game.
        game: Option<UdpSocket>,
    },
    /// Frames in the sealed format.
    Sealed,
    /// Datagrams of the same size.
    Clear,
}

/// The joiners of one server.
pub(super) struct Crowd {
    poll: Poll,
    events: Events,
    members: Vec<Member>,
    game: Option<Game>,
    start: Instant,
    /// Whose frame is next, and when.
    next: (usize, Instant),
    /// Copies of the server's frames that arrived.
    pub(super) frames: u64,
    /// Frames of these joiners that arrived at the host's game, if that is not in the host's process.
    pub(super) delivered: Option<u64>,
}

struct Game {
    socket: UdpSocket,
    relay: SocketAddr,
    due: Instant,
}

struct Member {
    socket: mio::net::UdpSocket,
    part: Part,
}

enum Part {
    Lobby(Box<Player>),
    Sealed(Box<Rival>, bool),
    Clear(bool),
}

/// A joiner of a lobby, without a mesh of its own.
struct Player {
    name: String,
    host: Path,
    knock: Option<Instant>,
    connected: bool,
    lobby: Joiner,
    sealer: Sealer,
    opener: Opener,
    reassembly: Reassembly,
    fragment: u32,
}

impl Crowd {
    /// Joiners for the server at `host`.
    pub(super) fn new(server: &mut crate::child::Child, talk: Talk) -> Self {
        let host: SocketAddr = server.value();
        let poll = Poll::new().expect("a poll");
        let now = Instant::now();
        let members = (0..JOINERS)
            .map(|number| {
                let mut socket = mio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a socket");
                socket.connect(host).expect("an address");
                poll.registry().register(&mut socket, Token(number), Interest::READABLE).expect("a place in the poll");
                let part = match &talk {
                    Talk::Lobby { .. } => Part::Lobby(Box::new(Player::new(number, host, &socket, now))),
                    Talk::Sealed => Part::Sealed(Box::new(rival()), false),
                    Talk::Clear => Part::Clear(false),
                };
                Member { socket, part }
            })
            .collect();
        let game = if let Talk::Lobby { game: Some(socket) } = talk {
            socket.set_nonblocking(true).expect("a socket option");
            Some(Game { socket, relay: server.value(), due: now })
        } else {
            None
        };
        let delivered = game.as_ref().map(|_| 0);
        Self {
            poll,
            events: Events::with_capacity(256),
            members,
            game,
            start: now,
            next: (0, now),
            frames: 0,
            delivered,
        }
    }

    /// Everybody is in, and knows everybody.
    pub(super) fn is_complete(&self) -> bool {
        self.members.iter().all(|member| match &member.part {
            Part::Lobby(player) => player.lobby.is_confirmed() && player.lobby.roster().players.len() == JOINERS + 1,
            Part::Sealed(_, in_it) | Part::Clear(in_it) => *in_it,
        })
    }

    /// How far it is, for an error.
    pub(super) fn progress(&self) -> String {
        let players = || {
            self.members.iter().filter_map(|member| match &member.part {
                Part::Lobby(player) => Some(player),
                Part::Sealed(..) | Part::Clear(_) => None,
            })
        };
        let confirmed = players().filter(|player| player.lobby.is_confirmed()).count();
        let least = players().map(|player| player.lobby.roster().players.len()).min().unwrap_or_default();
        format!("{confirmed} of {JOINERS} are in, somebody knows only {least}")
    }

    /// Every joiner reports a direct link with every other.
    pub(super) fn mesh(&mut self, now: Instant) {
        let names: Vec<String> = (0..JOINERS).map(name).collect();
        for member in &mut self.members {
            if let Part::Lobby(player) = &mut member.part {
                let others = names.iter().filter(|name| **name != player.name).cloned().collect();
                player.lobby.links(now, others);
                player.flush(now, &member.socket);
            }
        }
    }

    /// Frames begin now.
    pub(super) fn begin(&mut self, now: Instant) {
        self.next.1 = now;
        if let Some(game) = &mut self.game {
            game.due = now;
        }
    }

    /// Sends the frames that are due, one joiner after the other.
    pub(super) fn play(&mut self, now: Instant) {
        while self.next.1 <= now {
            let number = self.next.0;
            self.next = ((number + 1) % JOINERS, self.next.1 + TICK / JOINERS as u32);
            if let Some(member) = self.members.get_mut(number) {
                member.frame();
            }
        }
        if let Some(game) = self.game.as_mut().filter(|game| game.due <= now) {
            game.due += TICK;
            let _full = game.socket.send_to(&[7; FRAME], game.relay);
        }
    }

    /// Takes what arrived; with `timers`, does what is due.
    pub(super) fn turn(&mut self, now: Instant, timers: bool) {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => panic!("cannot wait: {error}"),
            _ => {}
        }
        let mut buffer = [0; 2048];
        for event in &self.events {
            let Some(member) = self.members.get_mut(event.token().0) else { continue };
            while let Ok(len) = member.socket.recv(&mut buffer) {
                self.frames += u64::from(member.take(now, &mut buffer[..len]));
            }
        }
        if let (Some(game), Some(delivered)) = (&self.game, &mut self.delivered) {
            while game.socket.recv_from(&mut buffer).is_ok() {
                *delivered += 1;
            }
        }
        if timers {
            for (number, member) in self.members.iter_mut().enumerate() {
                if now >= self.start + ENTER * u32::try_from(number).unwrap_or_default() {
                    member.timers(now);
                }
            }
        }
    }
}

impl Member {
    fn frame(&mut self) {
        let mut packet = vec![0; HEADER + OVERHEAD + 1 + FRAME];
        packet[..HEADER].copy_from_slice(&np1::header(Kind::Sealed));
        match &mut self.part {
            Part::Lobby(player) => _ = player.sealer.seal(&[b"g", &[9; FRAME]], &mut packet[HEADER..]),
            Part::Sealed(rival, _) => _ = rival.seal(&[b'g'; 1 + FRAME], &mut packet[HEADER..]),
            Part::Clear(_) => {}
        }
        let _full = self.socket.send(&packet);
    }

    /// Whether the datagram carried a frame.
    fn take(&mut self, now: Instant, datagram: &mut [u8]) -> bool {
        match &mut self.part {
            Part::Lobby(player) => player.take(now, &self.socket, datagram),
            // The servers' own work is measured, not that of these joiners.
            Part::Sealed(..) | Part::Clear(_) => true,
        }
    }

    fn timers(&mut self, now: Instant) {
        match &mut self.part {
            Part::Lobby(player) => player.timers(now, &self.socket),
            Part::Sealed(_, false) | Part::Clear(false) => {
                // The first frame is how the server learns of its player.
                self.frame();
                if let Part::Sealed(_, in_it) | Part::Clear(in_it) = &mut self.part {
                    *in_it = true;
                }
            }
            Part::Sealed(..) | Part::Clear(_) => {}
        }
    }
}

fn name(number: usize) -> String {
    format!("player {number}")
}

impl Player {
    fn new(number: usize, host: SocketAddr, socket: &mio::net::UdpSocket, now: Instant) -> Self {
        let mut seed = [3; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        let mut dice = Dice::new(seed);
        let key = SessionKey::derive(&lobbies::SECRET, "");
        let lan = match socket.local_addr() {
            Ok(SocketAddr::V4(address)) => Some(address),
            _ => None,
        };
        let config = JoinConfig {
            version: session::RELEASE.to_owned(),
            name: name(number),
            profile: Some(joincode::Profile { timestamp: 1_700_000_000, lan, ..Default::default() }.encode()),
            ..JoinConfig::default()
        };
        Self {
            name: name(number),
            host: Path::new(SocketId(0), host),
            knock: Some(now),
            connected: false,
            lobby: Joiner::new(Arc::new(config), dice.bytes(), now),
            sealer: Sealer::new(&key, dice.child()),
            opener: Opener::new(&key),
            reassembly: Reassembly::new(Bounds::default()),
            fragment: 0,
        }
    }

    fn timers(&mut self, now: Instant, socket: &mio::net::UdpSocket) {
        if self.knock.is_some_and(|due| due <= now) {
            self.knock = Some(now + AGAIN);
            let _full = socket.send(&np1::packet(Kind::Hello, b"a token!"));
        }
        if self.lobby.poll_timeout().is_some_and(|(due, _)| due <= now) {
            self.lobby.handle_timeout(now);
            self.flush(now, socket);
        }
    }

    fn take(&mut self, now: Instant, socket: &mio::net::UdpSocket, datagram: &mut [u8]) -> bool {
        let Ok(packet) = Packet::parse(datagram) else { return false };
        match packet.kind {
            Kind::Hello => _ = socket.send(&np1::packet(Kind::Ack, packet.payload)),
            Kind::Ack if !self.connected => {
                (self.connected, self.knock) = (true, None);
                let _full = socket.send(&np1::packet(Kind::Connected, packet.payload));
                self.lobby.connected(now, self.host);
                self.flush(now, socket);
            }
            Kind::Sealed => return self.open(now, socket, datagram),
            _ => {}
        }
        false
    }

    fn open(&mut self, now: Instant, socket: &mio::net::UdpSocket, datagram: &mut [u8]) -> bool {
        let Ok(opened) = self.opener.open(now, &mut datagram[HEADER..]) else { return false };
        self.lobby.heard(now, self.host);
        match opened.plain.first() {
            Some(&np1::GAME) => return true,
            // What is refused shows in a roster that does not fill.
            Some(&np1::FRAGMENT) => {
                let whole = Fragment::parse(opened.plain)
                    .and_then(|piece| self.reassembly.push(now, self.host, &piece))
                    .ok()
                    .flatten();
                if let Some(json) = whole {
                    let _refused = self.lobby.handle_message(now, self.host, &json);
                }
            }
            _ => _ = self.lobby.handle_message(now, self.host, opened.plain),
        }
        self.flush(now, socket);
        false
    }

    fn flush(&mut self, now: Instant, socket: &mio::net::UdpSocket) {
        while let Some((_, json)) = self.lobby.poll_message() {
            if json.len() <= np1::FRAGMENT_DATA {
                self.say(socket, &json);
                continue;
            }
            self.fragment += 1;
            for piece in np1::split(self.fragment, &json).collect::<Vec<_>>() {
                self.say(socket, &piece);
            }
        }
        while let Some(event) = self.lobby.poll_event() {
            match event {
                lobby::Event::Rejoin => self.lobby.connected(now, self.host),
                lobby::Event::Ended(end) => panic!("{} is out of the lobby: {end}", self.name),
                _ => {}
            }
        }
    }

    fn say(&mut self, socket: &mio::net::UdpSocket, payload: &[u8]) {
        let mut packet = vec![0; HEADER + OVERHEAD + payload.len()];
        packet[..HEADER].copy_from_slice(&np1::header(Kind::Sealed));
        self.sealer.seal(&[payload], &mut packet[HEADER..]);
        let _full = socket.send(&packet);
    }
}
