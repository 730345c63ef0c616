//! A host and a joiner with a game in which both send a numbered frame every 20 ms.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use joincode::Code;
use lobby::{End, State};
use seam::{Dice, Route};
use session::{Command, Event, GameSide, HostConfig, JoinConfig, Local, Session, Via};

use super::internet::WALL;
use super::{Internet, Kind};

pub(super) const HOST: usize = 0;
pub(super) const JOINER: usize = 1;
/// Between two frames of one player.
pub(super) const FRAME_EVERY: Duration = Duration::from_millis(20);

/// A frame's way through the world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) sent: Instant,
    pub(super) arrived: Option<Instant>,
    pub(super) times: u32,
}

/// Both players.
pub(super) struct Game {
    dice: Dice,
    rendezvous: bool,
    guess: bool,
    /// By sender, then number.
    pub(super) frames: [BTreeMap<u32, Frame>; 2],
    pub(super) send_at: Option<Instant>,
    pub(super) ready: Option<Instant>,
    pub(super) joined: Option<Instant>,
    pub(super) first: Option<Duration>,
    pub(super) won: Vec<(Instant, Via)>,
    pub(super) end: Option<End>,
    pub(super) log: Vec<(Instant, usize, String)>,
    seen: [usize; 2],
    number: u32,
}

impl Game {
    pub(super) fn new(dice: Dice, rendezvous: bool, guess: bool) -> Self {
        Self {
            dice,
            rendezvous,
            guess,
            frames: Default::default(),
            send_at: None,
            ready: None,
            joined: None,
            first: None,
            won: Vec::new(),
            end: None,
            log: Vec::new(),
            seen: [0; 2],
            number: 0,
        }
    }

    fn url(&self) -> Option<String> {
        self.rendezvous.then(|| "http://master".to_owned())
    }

    pub(super) fn host(&mut self, world: &mut Internet, kind: Kind, delay: Duration) {
        let inner = world.home(kind, delay);
        let config = HostConfig {
            game: GameSide::Inside,
            local: local(inner),
            stun: Internet::stun(),
            max_players: 8,
            rendezvous: self.url(),
            guess: self.guess,
            ..HostConfig::new("host", self.dice.bytes())
        };
        world.homes[HOST].session = Some(Session::host(config, self.dice.bytes(), world.now, WALL));
    }

    /// The joiner comes with the host's newest code.
    pub(super) fn join(&mut self, world: &mut Internet, kind: Kind, delay: Duration) -> Result<(), String> {
        let code = world.homes[HOST].events.iter().rev().find_map(|(_, event)| match event {
            Event::Code(code) => Some(code.clone()),
            _ => None,
        });
        let code = joincode::parse(&code.ok_or("the host has no code")?).map_err(|error| error.to_string())?;
        if !matches!(code, Code::Plain(_)) {
            return Err("the code is locked".to_owned());
        }
        let inner = world.home(kind, delay);
        let config = JoinConfig {
            timeout: Duration::from_secs(40),
            game: GameSide::Inside,
            local: local(inner),
            stun: Internet::stun(),
            rendezvous: self.url(),
            guess: self.guess,
            ..JoinConfig::new("joiner", code)
        };
        self.joined = Some(world.now);
        world.homes[JOINER].session = Some(Session::join(config, self.dice.bytes(), world.now, WALL));
        Ok(())
    }

    /// Looks at what was told, and sends what is due; when that is next.
    pub(super) fn step(&mut self, world: &mut Internet) -> Option<Instant> {
        let now = world.now;
        for (index, home) in world.homes.iter().enumerate() {
            for (at, event) in home.events.iter().skip(self.seen[index]) {
                match event {
                    Event::Frame { data, .. } => self.arrived(1 - index, *at, data),
                    Event::Status { state: State::Connected, .. } if index == JOINER && self.ready.is_none() => {
                        self.ready = Some(*at);
                    }
                    Event::Won { via, .. } => self.won.push((*at, *via)),
                    Event::Ended(end) if index == JOINER => self.end = Some(end.clone()),
                    Event::Log(line) => self.log.push((*at, index, line.clone())),
                    _ => {}
                }
            }
            self.seen[index] = home.events.len();
        }
        self.ready?;
        let due = *self.send_at.get_or_insert(now);
        if due <= now {
            self.send_at = Some(now + FRAME_EVERY);
            self.number += 1;
            for index in [HOST, JOINER] {
                self.frames[index].insert(self.number, Frame { sent: now, arrived: None, times: 0 });
                let mut data = self.number.to_be_bytes().to_vec();
                data.resize(60, index as u8);
                if let Some(session) = &mut world.homes[index].session {
                    session.command(now, Command::Frame(data.into()));
                }
            }
        }
        self.send_at
    }

    fn arrived(&mut self, sender: usize, at: Instant, data: &[u8]) {
        let number = data.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)).unwrap_or_default();
        if let Some(frame) = self.frames[sender].get_mut(&number) {
            frame.arrived.get_or_insert(at);
            frame.times += 1;
            if self.first.is_none() {
                self.first = self.joined.map(|joined| at.saturating_duration_since(joined));
            }
        }
    }

    /// How the host is reached from the joiner now.
    pub(super) fn route(world: &Internet) -> Route {
        let links = world.homes[JOINER].session.as_ref().map(Session::links).unwrap_or_default();
        links.get("host").map(|stats| stats.route.clone()).unwrap_or_default()
    }

    /// Frames that came twice.
    pub(super) fn twice(&self) -> usize {
        self.frames.iter().flat_map(BTreeMap::values).filter(|frame| frame.times > 1).count()
    }
}

fn local(inner: std::net::SocketAddr) -> Local {
    let lan = match inner.ip() {
        std::net::IpAddr::V4(ip) => Some(ip),
        std::net::IpAddr::V6(_) => None,
    };
    Local { port: inner.port(), lan, ..Local::default() }
}
