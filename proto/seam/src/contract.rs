//! The two contracts of the house: a [`Transport`] opens sessions, a [`Peer`] is one player's end of a session.
//!
//! Guarantees of every peer:
//! * the host is peer 1, and every other id belongs to one player for the life of the session;
//! * [`Peer::poll`] never blocks and runs on the caller's thread;
//! * a reliable packet arrives once and in order within its channel, or the link is closed;
//! * nothing a peer sends or receives grows without bound.
//!
//! Not guaranteed: order between channels, delivery of unreliable packets, kick texts on a stock ENet peer.

use thiserror::Error;

use crate::{Channel, Delivery, Event, LinkStats, PeerId, Secret, Target, TransportKind};

/// What a host asks for.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// The player's name.
    pub name: String,
    /// Local port; 0 takes the wire's default.
    pub port: u16,
    /// Password a joiner needs, where the wire has passwords.
    pub password: Option<Secret>,
    /// Most players at once, the host included; 0 takes the wire's limit.
    pub max_players: u16,
}

/// What a joiner asks for.
#[derive(Clone, Debug, Default)]
pub struct JoinOptions {
    /// The player's name.
    pub name: String,
    /// Where to: a join code, `address:port` or a SteamID64, as the wire wants it.
    pub address: String,
    /// The session's password, where it has one.
    pub password: Option<Secret>,
}

/// Why a session could not be opened. Each is one true sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This wire does not do that, or is not in this build.
    #[error("{0} is not available: {1}")]
    Unavailable(TransportKind, String),
    /// The address, code or option cannot be used; the text says what and where.
    #[error("{0}")]
    BadAddress(String),
    /// The operating system refused a socket.
    #[error("cannot open a socket: {0}")]
    Socket(String),
}

/// Why a packet was not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue is full; wait for [`Event::Writable`].
    #[error("the send queue is full; try again after a Writable event")]
    WouldBlock,
    /// Larger than this wire carries in one packet.
    #[error("a packet of {size} bytes is over this wire's limit of {max}")]
    TooLarge {
        /// Bytes asked for.
        size: usize,
        /// Most bytes for this delivery.
        max: usize,
    },
    /// No such player in the session.
    #[error("no player {0} in this session")]
    NoSuchPeer(PeerId),
    /// The session is not up yet, or is over.
    #[error("not connected")]
    NotConnected,
    /// This wire has no such delivery or target.
    #[error("this wire does not carry packets of that delivery to that target")]
    NotCarried,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Dialling, or waiting to be admitted.
    Connecting,
    /// Packets flow.
    Connected,
    /// Over.
    Closed,
}

/// One player's end of a session.
pub trait Peer: Send {
    /// The own id; the host's is 1. Meaningful once connected.
    fn id(&self) -> PeerId;

    /// How far the session is.
    fn state(&self) -> PeerState;

    /// The next event, or `None` when there is nothing new. Never blocks.
    fn poll(&mut self) -> Option<Event>;

    /// Sends one packet.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent to anybody then.
    fn send(&mut self, target: Target, channel: Channel, delivery: Delivery, data: &[u8]) -> Result<(), SendError>;

    /// Most bytes of one packet.
    fn max_packet_size(&self, delivery: Delivery) -> usize;

    /// Everybody else in the session, in ascending order.
    fn peers(&self) -> Vec<PeerId>;

    /// What is known of the link to a player; `None` when there is no such player.
    fn link_stats(&self, peer: PeerId) -> Option<LinkStats>;

    /// Host only: removes a player, who is told `code` and `text`.
    ///
    /// # Errors
    /// [`SendError::NoSuchPeer`], or [`SendError::NotConnected`] at a joiner.
    fn kick(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError>;

    /// Leaves, telling everybody. Further calls do nothing.
    fn close(&mut self);
}

/// One wire. Nothing else in the house constructs a [`Peer`].
pub trait Transport {
    /// Which wire this is.
    fn kind(&self) -> TransportKind;

    /// Whether it can work on this machine now.
    fn is_available(&self) -> bool;

    /// Opens a session.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot even begin; later failures are events.
    fn host(&self, options: &HostOptions) -> Result<Box<dyn Peer>, OpenError>;

    /// Joins a session.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot even begin; later failures are events.
    fn join(&self, options: &JoinOptions) -> Result<Box<dyn Peer>, OpenError>;
}
