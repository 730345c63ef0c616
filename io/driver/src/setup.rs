//! Opening: sockets, addresses, seed, session.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use net::UdpSocket;
use session::{Event, GAME, GameSide, HostConfig, JoinConfig, LOBBY, Local, Session};
use thiserror::Error;

use crate::core::Core;
use crate::jobs::Jobs;
use crate::router::{AskRouter, Router};

/// A host's UDP port unless told otherwise (netpunch wire, section 1).
pub const HOST_PORT: u16 = 29_471;
/// Where a host's game sends its frames.
pub const HOST_RELAY_PORT: u16 = 7_773;
/// Where a joiner's game sends its frames: the first free one.
pub const JOIN_RELAY_PORTS: RangeInclusive<u16> = 7_774..=7_805;

/// Which end of a session.
#[derive(Clone, Debug)]
pub enum Role {
    /// The host.
    Host(HostConfig),
    /// A joiner.
    Join(JoinConfig),
}

/// What a driver is opened with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The session. The driver fills in `local`: always its port, and each address that is absent.
    pub role: Role,
    /// What the lobby socket is bound to. With a concrete address, that is the only one told to others.
    pub bind: SocketAddr,
    /// Loopback port the game sends its frames to. `None`: 7773 at a host, the first free of 7774 to 7805 at a joiner.
    /// 0: any free port. Without [`GameSide::Loopback`] there is none.
    pub relay_port: Option<u16>,
    /// A virtual network's address as the player named it.
    pub vpn: Option<Ipv4Addr>,
    /// Ask this machine's router to let strangers in to a host's port; `None` leaves the router alone. Joiners dial and
    /// need no such thing: theirs is left alone anyway.
    pub portmap: Option<AskRouter>,
    /// Where received files go. `None` takes none and sends none.
    pub files: Option<PathBuf>,
    /// Seed of everything the session draws; `None` asks the operating system.
    pub seed: Option<[u8; 32]>,
}

impl Setup {
    /// A host on port 29471 of every interface.
    #[must_use]
    pub fn host(config: HostConfig) -> Self {
        Self::new(Role::Host(config), HOST_PORT)
    }

    /// A joiner on a port of the system's choice.
    #[must_use]
    pub fn join(config: JoinConfig) -> Self {
        Self::new(Role::Join(config), 0)
    }

    fn new(role: Role, port: u16) -> Self {
        let bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        Self { role, bind, relay_port: None, vpn: None, portmap: None, files: None, seed: None }
    }
}

/// What was found out while opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Port and addresses of the lobby socket.
    pub local: Local,
    /// Loopback port the game sends its frames to.
    pub relay_port: Option<u16>,
}

/// Why a session could not be opened. Each is one true sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The lobby's port is taken.
    #[error("UDP port {0} is in use; is another lobby running on this machine?")]
    PortInUse(u16),
    /// The game's relay port is taken.
    #[error("UDP port {0} on 127.0.0.1, where the game sends its frames, is in use")]
    RelayPortInUse(u16),
    /// All the ports a joiner's game may use are taken.
    #[error("no UDP port from {} to {} on 127.0.0.1 is free for the game's frames", JOIN_RELAY_PORTS.start(), JOIN_RELAY_PORTS.end())]
    NoRelayPort,
    /// The operating system refused a socket.
    #[error("cannot open a socket: {0}")]
    Socket(#[source] io::Error),
    /// The operating system refused a thread.
    #[error("cannot start the network thread: {0}")]
    Thread(#[source] io::Error),
    /// The operating system has no randomness.
    #[error("the system gives no random numbers: {0}")]
    Entropy(String),
}

/// The sockets of a session, bound.
struct Bound {
    sockets: Vec<UdpSocket>,
    facts: Facts,
    /// What a person should know about them.
    remarks: Vec<String>,
}

/// A session with its sockets, ready to take turns.
pub(crate) struct Opened {
    pub(crate) core: Core<Session>,
    pub(crate) facts: Facts,
    pub(crate) remarks: Vec<Event>,
}

/// Opens all that `setup` asks for.
pub(crate) fn open(mut setup: Setup) -> Result<Opened, OpenError> {
    let Bound { sockets, facts, mut remarks } = bind(&mut setup)?;
    let mut listeners = Vec::new();
    match &mut setup.role {
        Role::Host(config) => {
            config.files = setup.files.is_some();
            if let Some(folder) = setup.files.as_ref().filter(|_| config.relay_only) {
                config.store = Some(folder.clone());
                config.stored = stored(folder);
            }
            if config.files {
                match streams(setup.bind.ip(), facts.local.port) {
                    Ok(open) => (listeners, config.stream_port) = (open, Some(facts.local.port)),
                    Err(error) => remarks.push(format!(
                        "[xfer] TCP port {} cannot be opened ({error}): files go by UDP alone",
                        facts.local.port
                    )),
                }
            }
        }
        Role::Join(config) => config.files = setup.files.is_some(),
    }
    let mut portmap = None;
    if let Role::Host(config) = &mut setup.role {
        // A lobby on loopback is for this machine alone.
        portmap = setup.portmap.take().filter(|_| !setup.bind.ip().is_loopback());
        config.portmap = portmap.is_some();
    }
    let seed = setup.seed.map_or_else(entropy, Ok)?;
    let now = Instant::now();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let session = match setup.role {
        Role::Host(config) => Session::host(config, seed, now, wall),
        Role::Join(config) => Session::join(config, seed, now, wall),
    };
    let mut core = Core::new(session, sockets, now).map_err(OpenError::Socket)?;
    if let Some(ask) = portmap {
        core.set_router(Router::start(ask, facts.local.port, core.wake()));
    }
    if let Some(folder) = setup.files {
        core.set_jobs(Jobs::new(folder, listeners, core.wake()));
    }
    Ok(Opened { core, facts, remarks: remarks.into_iter().map(Event::Log).collect() })
}

/// Binds what `setup` asks for and writes what was found out into its configuration.
fn bind(setup: &mut Setup) -> Result<Bound, OpenError> {
    let lobby = lobby(setup.bind).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => OpenError::PortInUse(setup.bind.port()),
        _ => OpenError::Socket(error),
    })?;
    let (game, told, scan) = match &mut setup.role {
        Role::Host(config) => (config.game, &mut config.local, HOST_RELAY_PORT..=HOST_RELAY_PORT),
        Role::Join(config) => (config.game, &mut config.local, JOIN_RELAY_PORTS),
    };
    *told = local(*told, lobby.local_addr(), setup.vpn);
    let mut facts = Facts { local: *told, relay_port: None };

    let mut remarks = Vec::new();
    remarks.extend(lobby.shortfall());
    let mut sockets = vec![lobby];
    if let GameSide::Loopback { bridge } = game {
        let socket = match setup.relay_port {
            Some(port) => relay(bridge, port..=port)?,
            None => relay(bridge, scan)?,
        };
        facts.relay_port = Some(socket.local_addr().port());
        sockets.push(socket);
    }
    Ok(Bound { sockets, facts, remarks })
}

/// Where others fetch files: the lobby's own port, at the addresses of the lobby.
fn streams(ip: IpAddr, port: u16) -> io::Result<Vec<TcpListener>> {
    if ip.is_unspecified() { files::listen(port) } else { Ok(vec![files::listen_at(SocketAddr::new(ip, port))?]) }
}

/// The world that a relay kept in `folder`: without its save the rest is none.
fn stored(folder: &Path) -> Vec<String> {
    let there = parcel::SAVE_NAMES.iter().filter(|name| folder.join(name).is_file());
    let names: Vec<String> = there.map(|name| (*name).to_owned()).collect();
    if names.first().is_some_and(|first| *first == parcel::SAVE_NAMES[0]) { names } else { Vec::new() }
}

/// The lobby socket. Every IPv4 interface means every IPv6 one as well, on a system that has both: our own ends dial either.
fn lobby(bind: SocketAddr) -> io::Result<UdpSocket> {
    if bind.ip() == IpAddr::from(Ipv4Addr::UNSPECIFIED) && cfg!(any(target_os = "linux", windows)) {
        match UdpSocket::bind(LOBBY, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), bind.port())) {
            // Without IPv6 there is IPv4 alone.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    UdpSocket::bind(LOBBY, bind)
}

/// The first port of `range` that is free on the bridge's loopback address.
fn relay(bridge: SocketAddr, range: RangeInclusive<u16>) -> Result<UdpSocket, OpenError> {
    let ip: IpAddr = if bridge.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let (first, single) = (*range.start(), range.start() == range.end());
    for port in range {
        match UdpSocket::bind(GAME, SocketAddr::new(ip, port)) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(OpenError::Socket(error)),
        }
    }
    Err(if single { OpenError::RelayPortInUse(first) } else { OpenError::NoRelayPort })
}

/// What to tell others: the caller's word, else the address that was bound, else what the system knows.
fn local(told: Local, bound: SocketAddr, vpn: Option<Ipv4Addr>) -> Local {
    let found = match bound.ip() {
        ip if ip.is_unspecified() => net::addresses(vpn),
        IpAddr::V4(ip) => net::choose(Some(ip), &[], vpn),
        IpAddr::V6(ip) => net::choose(None, &[IpAddr::V6(ip)], vpn),
    };
    Local {
        port: bound.port(),
        lan: told.lan.or(found.lan),
        vpn: if told.vpn == [None, None] { found.vpn } else { told.vpn },
        // An address where the socket does not listen is of no use to anybody.
        v6: told.v6.or(found.v6).filter(|_| bound.is_ipv6()),
    }
}

/// 32 bytes of the operating system's randomness.
///
/// # Errors
/// [`OpenError::Entropy`].
pub fn entropy() -> Result<[u8; 32], OpenError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| OpenError::Entropy(error.to_string()))?;
    Ok(seed)
}
