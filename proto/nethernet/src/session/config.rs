//! What an endpoint is made with.

use std::net::SocketAddr;
use std::time::Duration;

use seam::SocketId;
use thiserror::Error;

use super::IceServer;
use crate::ConnectionFlags;

/// Most relay and STUN servers (NetherNet, section 6.1).
pub const SERVERS_MAX: usize = 16;

/// How long the next message of a negotiation is waited for (NetherNet, section 9.4).
pub const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an established session may be silent. Both sides check their path every few seconds, so silence means that
/// nobody is there (RFC 7675, section 5.1).
pub const INACTIVITY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a session that is being closed may take to deliver what was sent.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What sessions a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Own dials.
    Dial,
    /// Other peers' dials.
    Listen,
    /// Both. Two peers that both have one port for everything keep one session when they dial each other at once: the one
    /// with the higher connection id.
    Both,
}

/// A UDP socket of the driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its number in paths.
    pub id: SocketId,
    /// One concrete address of it. Datagrams of a socket that is bound to all addresses count as arriving here.
    pub base: SocketAddr,
    /// The addresses told to other peers as host candidates: those of the interfaces, or a configured one (containers).
    pub announce: Vec<SocketAddr>,
    /// What sessions it is for.
    pub purpose: Use,
}

/// What happens to other peers' dials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admit {
    /// They are answered.
    #[default]
    All,
    /// They are told as [`Event::Requested`](super::Event::Requested) and wait for
    /// [`accept`](super::Endpoint::accept) or [`refuse`](super::Endpoint::refuse).
    Ask,
    /// They are refused with error 16.
    None,
}

/// What an endpoint is made with. Made by [`Config::new`] and changed from there.
#[derive(Clone, Debug)]
pub struct Config {
    /// The driver's sockets. More can be added later.
    pub sockets: Vec<Socket>,
    /// STUN and TURN servers, at most [`SERVERS_MAX`]. None by default: a peer in a local network needs none, and asks
    /// nobody (NetherNet pain 15).
    pub servers: Vec<IceServer>,
    /// Which candidates may be used.
    pub flags: ConnectionFlags,
    /// Candidates follow in messages of their own. When false, descriptions wait until all are known and hold them.
    pub trickle: bool,
    /// Whether an unanswered offer, and candidates of a session that is not up, are sent again. For signalling that loses
    /// messages, as that of the local network does.
    pub repeat: bool,
    /// What happens to other peers' dials.
    pub admit: Admit,
    /// The value of `a=identity` in own descriptions.
    pub identity: Option<String>,
    /// See [`NEGOTIATION_TIMEOUT`].
    pub negotiation_timeout: Duration,
    /// See [`INACTIVITY_TIMEOUT`].
    pub inactivity_timeout: Duration,
    /// See [`CLOSE_TIMEOUT`].
    pub close_timeout: Duration,
    /// Bytes of one session that may wait to be acknowledged. One packet may always be sent when nothing waits.
    pub send_queue: usize,
    /// Receive window of one session in bytes; what waits unread is never more.
    pub receive_window: u32,
    /// Largest packet put together.
    pub packet_max: usize,
    /// Most sessions at once, being negotiated or up.
    pub sessions_max: usize,
}

impl Config {
    /// The defaults of the protocol over these sockets.
    #[must_use]
    pub fn new(sockets: Vec<Socket>) -> Self {
        Self {
            sockets,
            servers: Vec::new(),
            flags: ConnectionFlags::NONE,
            trickle: true,
            repeat: true,
            admit: Admit::All,
            identity: None,
            negotiation_timeout: NEGOTIATION_TIMEOUT,
            inactivity_timeout: INACTIVITY_TIMEOUT,
            close_timeout: CLOSE_TIMEOUT,
            send_queue: 4 << 20,
            receive_window: 8 << 20,
            packet_max: crate::frame::PACKET_MAX,
            sessions_max: 1024,
        }
    }
}

/// Why an endpoint cannot be made. The caller is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Over [`SERVERS_MAX`].
    #[error("{0} STUN and TURN servers; at most {SERVERS_MAX}")]
    Servers(usize),
    /// The same number twice.
    #[error("two sockets with the number {0}")]
    Socket(u16),
    /// An address that names no machine.
    #[error("a socket needs one concrete address as its base")]
    Base,
    /// The engine cannot be set up.
    #[error("the WebRTC engine cannot be set up")]
    Engine,
}
