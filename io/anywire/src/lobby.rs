//! The lobby wire: sealed UDP, joined by code.
//!
//! Each pair of players has lanes over game frames (`docs/wire/lanes.md`): to each other directly where their networks
//! allow it, else in envelopes through the host or another player; the lobby below chooses and changes the way, and no
//! packet notices. Ids are agreed through the host, names are the lobby's. Programs that do not speak lanes may sit in the same
//! lobby; a game does not see them.

mod link;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use driver::Setup;
use netem::Impairment;
use seam::{Dice, HostOptions, JoinOptions, OpenError, Peer, PeerId, Transport, TransportKind};
use session::{GameSide, HostConfig, JoinConfig, RELEASE, StunServer};

use crate::drive::drive;
use crate::links::Links;
use crate::lobby::link::LobbyLinks;
use crate::party::{Config, Party};

/// How long a dial may take before the join fails.
const DIAL_FOR: Duration = Duration::from_secs(40);
/// Most players of a lobby.
const PLAYERS: u16 = 200;

/// Opens lobby sessions.
#[derive(Clone, Debug)]
pub struct LobbyTransport {
    /// Release string that admission compares; both ends must have the same.
    pub version: String,
    /// STUN servers by `host`, `port`; empty asks nobody, which is enough on one LAN.
    pub stun: Vec<(String, u16)>,
    /// The master's address, for players whose routers hide them; `None` asks none.
    pub master: Option<String>,
    /// What the socket is bound to; `None` takes every interface, a host's options or the lobby's default port.
    pub bind: Option<SocketAddr>,
    /// Faults put on what this end sends.
    pub impair: Option<Impairment>,
    /// The id a joiner asks for first; `None` draws one.
    pub id: Option<PeerId>,
}

impl Default for LobbyTransport {
    fn default() -> Self {
        let servers = [
            ("stun.l.google.com", 19302),
            ("stun.nextcloud.com", 3478),
            ("stun.cloudflare.com", 3478),
            ("stun.services.mozilla.com", 3478),
        ];
        Self {
            version: RELEASE.to_owned(),
            stun: servers.map(|(host, port)| (host.to_owned(), port)).into(),
            master: None,
            bind: None,
            impair: None,
            id: None,
        }
    }
}

impl LobbyTransport {
    fn servers(&self) -> Vec<StunServer> {
        self.stun.iter().map(|(host, port)| StunServer { host: host.clone(), port: *port }).collect()
    }

    /// A host's links, for a party with other wires beside this one.
    pub(crate) fn host_links(&self, options: &HostOptions) -> Result<Box<dyn Links>, OpenError> {
        let seed = seed()?;
        let config = HostConfig {
            version: self.version.clone(),
            password: options.password.clone(),
            game: GameSide::Inside,
            stun: self.servers(),
            max_players: players(options),
            impair: self.impair,
            rendezvous: self.master.clone(),
            ..HostConfig::new(&options.name, Dice::new(seed).bytes())
        };
        let mut setup = Setup::host(config);
        if let Some(bind) = self.bind {
            setup.bind = bind;
        }
        if options.port != 0 {
            setup.bind.set_port(options.port);
        }
        Ok(Box::new(LobbyLinks::open(setup, true)?))
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
        let links = self.host_links(options)?;
        let config = Config {
            name: options.name.clone(),
            identity: [0; 16],
            wanted: None,
            max_players: players(options).into(),
            seed: seed()?,
        };
        drive(Party::host(config, vec![links], Instant::now()), options.drive)
    }

    fn join(&self, options: &JoinOptions) -> Result<Box<dyn Peer>, OpenError> {
        let code = joincode::read(&options.address).map_err(|error| OpenError::BadAddress(error.to_string()))?;
        let config = JoinConfig {
            version: self.version.clone(),
            password: options.password.clone(),
            timeout: DIAL_FOR,
            game: GameSide::Inside,
            stun: self.servers(),
            impair: self.impair,
            rendezvous: self.master.clone(),
            ..JoinConfig::new(&options.name, code)
        };
        let mut setup = Setup::join(config);
        if let Some(bind) = self.bind {
            setup.bind = bind;
        }
        let links = Box::new(LobbyLinks::open(setup, false)?);
        let config = Config {
            name: options.name.clone(),
            identity: options.identity,
            wanted: self.id,
            max_players: 0,
            seed: seed()?,
        };
        drive(Party::join(config, links, Instant::now()), options.drive)
    }
}

fn players(options: &HostOptions) -> u16 {
    if options.max_players == 0 { PLAYERS } else { options.max_players.min(PLAYERS) }
}

fn seed() -> Result<[u8; 32], OpenError> {
    driver::entropy().map_err(|error| OpenError::Socket(error.to_string()))
}
