//! What a session is made with.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use seam::Secret;

/// The newest release string seen in the field; admission compares it letter for letter.
pub const RELEASE: &str = "0.7.1.4";

/// What this machine knows of its own addresses before anybody is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Port the lobby socket is really bound to.
    pub port: u16,
    /// Address on the local network.
    pub lan: Option<Ipv4Addr>,
    /// Addresses on virtual networks (Hamachi, Tailscale, or named by the player).
    pub vpn: [Option<Ipv4Addr>; 2],
    /// A global IPv6 address at which the lobby socket listens. It travels in codes; an end without one dials none.
    pub v6: Option<Ipv6Addr>,
}

/// A STUN server by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StunServer {
    /// DNS name or address.
    pub host: String,
    /// UDP port.
    pub port: u16,
}

/// Where the game's own frames come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameSide {
    /// No game: frames are not exchanged.
    None,
    /// The game's bridge is a datagram endpoint on this machine.
    Loopback {
        /// Address of the bridge: frames are taken from it alone and delivered to it.
        bridge: SocketAddr,
    },
    /// The game is in this process: frames are commands and events.
    Inside,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Release string that admission compares.
    pub version: String,
    /// The player's name.
    pub name: String,
    /// The lobby's name, possibly empty.
    pub lobby_name: String,
    /// Locks the code and enters the session key.
    pub password: Option<Secret>,
    /// A dedicated relay: no game, not a player.
    pub relay_only: bool,
    /// Start in company mode instead of co-op.
    pub companies: bool,
    /// The session secret: fresh for a normal host, kept for a relay.
    pub secret: [u8; 12],
    /// The game.
    pub game: GameSide,
    /// This machine.
    pub local: Local,
    /// Asked for the public address; empty asks nobody.
    pub stun: Vec<StunServer>,
    /// Most players, the host included: 1 to 200.
    pub max_players: u16,
    /// Faults put on what this end sends to other players.
    pub impair: Option<netem::Impairment>,
    /// Offer the words of our own ends. Off, this end cannot be told from an old program.
    pub extensions: bool,
    /// The master's address: joiners knock there. `None` asks no master.
    pub rendezvous: Option<String>,
    /// Guess ports beside the relay when both routers hide theirs.
    pub guess: bool,
}

/// A joiner.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// Release string that admission compares.
    pub version: String,
    /// The name asked for.
    pub name: String,
    /// The host's code.
    pub code: joincode::Code,
    /// Opens a locked code and enters the session key.
    pub password: Option<Secret>,
    /// Whether to link with other joiners directly.
    pub mesh: bool,
    /// How long the first dial may take.
    pub timeout: Duration,
    /// The game.
    pub game: GameSide,
    /// This machine.
    pub local: Local,
    /// Asked for the public address; empty asks nobody.
    pub stun: Vec<StunServer>,
    /// Faults put on what this end sends to other players.
    pub impair: Option<netem::Impairment>,
    /// Offer the words of our own ends. Off, this end cannot be told from an old program.
    pub extensions: bool,
    /// The master's address: told of us, the host looks for us and a relay may serve. `None` asks no master.
    pub rendezvous: Option<String>,
    /// Guess ports beside the relay when both routers hide theirs.
    pub guess: bool,
}

impl HostConfig {
    /// An open co-op lobby for 200 with no game behind it, which asks nobody for anything.
    #[must_use]
    pub fn new(name: &str, secret: [u8; 12]) -> Self {
        Self {
            version: RELEASE.to_owned(),
            name: name.to_owned(),
            lobby_name: String::new(),
            password: None,
            relay_only: false,
            companies: false,
            secret,
            game: GameSide::None,
            local: Local::default(),
            stun: Vec::new(),
            max_players: 200,
            impair: None,
            extensions: true,
            rendezvous: None,
            guess: true,
        }
    }
}

impl JoinConfig {
    /// A joiner with no game behind it, which links to other joiners, dials for 20 s and asks nobody for anything.
    #[must_use]
    pub fn new(name: &str, code: joincode::Code) -> Self {
        Self {
            version: RELEASE.to_owned(),
            name: name.to_owned(),
            code,
            password: None,
            mesh: true,
            timeout: Duration::from_secs(20),
            game: GameSide::None,
            local: Local::default(),
            stun: Vec::new(),
            impair: None,
            extensions: true,
            rendezvous: None,
            guess: true,
        }
    }
}
