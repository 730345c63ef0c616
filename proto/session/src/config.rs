//! What a session is made with.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use seam::Secret;

/// The newest release string seen in the field; admission compares it letter for letter.
pub const RELEASE: &str = "0.7.1.4";

/// The STUN port of a master that was not told another one.
const MASTER_STUN: u16 = 3478;

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

impl StunServer {
    /// A master's own STUN, at its usual port: with a master, nobody else has to be asked. `None` for what is no address
    /// of a web server.
    #[must_use]
    pub fn of_master(url: &str) -> Option<Self> {
        let (scheme, rest) = url.trim().split_once("://")?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = match authority.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port: MASTER_STUN })
    }
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
    /// The driver asks this machine's router for the lobby's port and tells with `Command::PortMap`: a code waits for it.
    pub portmap: bool,
    /// Find out how this machine's router behaves, after the code.
    pub survey: bool,
    /// The driver takes files of transfers to the disk and off it.
    pub files: bool,
    /// The TCP port at which the driver lets others fetch files.
    pub stream_port: Option<u16>,
    /// Where a relay keeps the world that its leader uploads.
    pub store: Option<PathBuf>,
    /// Names of the files of a world that a relay kept from an earlier run, the save first.
    pub stored: Vec<String>,
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
    /// The driver takes files of transfers to the disk: without it what is offered is refused.
    pub files: bool,
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
            portmap: false,
            survey: false,
            files: false,
            stream_port: None,
            store: None,
            stored: Vec::new(),
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
            files: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masters_stun_is_where_its_list_is() {
        for (url, host) in [
            ("http://master.example", Some("master.example")),
            ("https://master.example:8471/tpf2mp/", Some("master.example")),
            ("HTTP://192.0.2.7:1?x", Some("192.0.2.7")),
            ("https://[2001:db8::1]:443/a", Some("2001:db8::1")),
            ("off", None),
            ("ftp://x", None),
            ("http:///list", None),
        ] {
            let server = StunServer::of_master(url);
            assert_eq!(server.as_ref().map(|server| server.host.as_str()), host, "{url}");
            assert!(server.is_none_or(|server| server.port == 3478));
        }
    }
}
