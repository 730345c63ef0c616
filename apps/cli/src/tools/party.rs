//! Real lobbies inside this computer: sessions with sockets on loopback and no game but the tool itself.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Handle, OpenError, Setup};
use lobby::{End, Roster};
use seam::LinkStats;
use session::{Command, Event, GameSide, HostConfig, JoinConfig};

/// One player and all it was told.
pub(crate) struct Guest {
    pub(crate) name: String,
    handle: Handle,
    pub(crate) code: Option<String>,
    pub(crate) roster: Option<Arc<Roster>>,
    pub(crate) links: Arc<BTreeMap<String, LinkStats>>,
    /// Chat lines by sender and text.
    pub(crate) chat: Vec<(String, String)>,
    /// How many copies of each frame arrived.
    pub(crate) frames: BTreeMap<Bytes, u32>,
    pub(crate) end: Option<End>,
}

/// A host on loopback; `relay` makes it a meeting point without a player.
pub(crate) fn host(name: &str, relay: bool) -> Result<Guest, OpenError> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = driver::entropy()?;
    Guest::open(
        name,
        Setup::host(HostConfig {
            lobby_name: "selftest".to_owned(),
            relay_only: relay,
            game: if relay { GameSide::None } else { GameSide::Inside },
            ..HostConfig::new(name, [a, b, c, d, e, f, g, h, i, j, k, l])
        }),
    )
}

/// A joiner on loopback.
///
/// # Errors
/// A sentence: the code or a socket.
pub(crate) fn join(name: &str, code: &str, mesh: bool) -> Result<Guest, String> {
    let code = joincode::read(code).map_err(|error| error.to_string())?;
    let setup = Setup::join(JoinConfig {
        mesh,
        timeout: Duration::from_secs(10),
        game: GameSide::Inside,
        ..JoinConfig::new(name, code)
    });
    Guest::open(name, setup).map_err(|error| error.to_string())
}

impl Guest {
    fn open(name: &str, mut setup: Setup) -> Result<Self, OpenError> {
        setup.bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Ok(Self {
            name: name.to_owned(),
            handle: driver::spawn(setup)?,
            code: None,
            roster: None,
            links: Arc::default(),
            chat: Vec::new(),
            frames: BTreeMap::new(),
            end: None,
        })
    }

    /// Tells the session something; one that is over does not listen.
    pub(crate) fn command(&self, command: Command) {
        let _over = self.handle.command(command);
    }

    /// Takes in all that happened.
    pub(crate) fn pump(&mut self) {
        while let Some(event) = self.handle.try_event() {
            self.take(event);
        }
    }

    /// Takes in the next thing that happens, waiting for it.
    pub(crate) fn wait(&mut self, patience: Duration) {
        if let Some(event) = self.handle.event_timeout(patience) {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Code(code) => self.code = Some(code),
            Event::Roster(roster) => self.roster = Some(roster),
            Event::Links(links) => self.links = links,
            Event::Chat { from, text, .. } => self.chat.push((from, text)),
            Event::Frame { data, .. } => *self.frames.entry(data).or_default() += 1,
            Event::Ended(end) => self.end = Some(end),
            _ => {}
        }
    }

    /// The players it sees.
    pub(crate) fn sees(&self) -> Vec<&str> {
        self.roster.as_ref().map(|roster| roster.players.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// Waits until `done` says so of all guests together: how long it took, or `None` when `patience` ran out.
pub(crate) fn until(
    guests: &mut [Guest],
    patience: Duration,
    mut done: impl FnMut(&[Guest]) -> bool,
) -> Option<Duration> {
    let begin = Instant::now();
    loop {
        guests.iter_mut().for_each(Guest::pump);
        if done(guests) {
            return Some(begin.elapsed());
        }
        if begin.elapsed() > patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
