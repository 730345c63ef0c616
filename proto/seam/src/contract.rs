//! The two contracts of the house: a [`Transport`] opens sessions, a [`Peer`] is one player's end of a session.
//!
//! Guarantees of every peer:
//! * the host is peer 1, and every other id belongs to one player for the life of the session;
//! * [`Peer::poll`] never blocks and runs on the caller's thread;
//! * a reliable packet arrives once and in order within its channel, or the link is closed;
//! * every arrival and every leaving of a player is an event, on every wire;
//! * nothing a peer sends or receives grows without bound.
//!
//! Not guaranteed: order between channels, delivery of unreliable packets, and, with a stock ENet peer, kick texts and
//! packets between that player and another joiner.

use thiserror::Error;

use crate::{Channel, Delivery, Event, LinkStats, PeerId, Secret, Target, TransportKind};

/// Whose thread does the work of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// A thread of its own: the session lives on however seldom the game polls.
    #[default]
    Threaded,
    /// The caller's, inside [`Peer::poll`] and [`Peer::flush`]: no queue and no hand-over, and everything stands still
    /// between two calls. For servers with their own loop.
    Inline,
}

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
    /// Whose thread does the work.
    pub drive: Drive,
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
    /// What a host may recognise this player by, for bans: a number drawn once per installation. All zeros says nothing.
    pub identity: [u8; 16],
    /// Whose thread does the work.
    pub drive: Drive,
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
    /// This wire has no such delivery, channel or target.
    #[error("this wire does not carry packets of that delivery on that channel to that target")]
    NotCarried,
    /// Only the host may do that.
    #[error("only the host may do that")]
    HostOnly,
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

    /// Sends one packet. An empty one is refused by no wire and carried by every one.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent to anybody then.
    fn send(&mut self, target: Target, channel: Channel, delivery: Delivery, data: &[u8]) -> Result<(), SendError>;

    /// Sends what waits to be sent, for who does not poll next. A peer with a thread of its own has nothing to do here.
    fn flush(&mut self) {}

    /// Most bytes of one packet; 0 where the wire does not carry this delivery.
    fn max_packet_size(&self, delivery: Delivery) -> usize;

    /// Everybody else in the session, in ascending order.
    fn peers(&self) -> Vec<PeerId>;

    /// A player's name, the own one included; `None` when there is no such player. It may be empty, and two players may
    /// have the same.
    fn name(&self, peer: PeerId) -> Option<String>;

    /// Host only: what a friend types in to join, once it is known; `None` where nobody can.
    fn invite(&self) -> Option<String>;

    /// What is known of the link to a player; `None` when there is no such player.
    fn link_stats(&self, peer: PeerId) -> Option<LinkStats>;

    /// Host only: removes a player, who is told `code` and `text`.
    ///
    /// # Errors
    /// [`SendError::NoSuchPeer`], or [`SendError::HostOnly`] at a joiner.
    fn kick(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError>;

    /// Host only: removes a player as [`Peer::kick`] does, and refuses it from then on by what the wire knows of it (an
    /// address, a Steam id) and by the identity it said. At most 1,024 bans are held; the oldest goes first.
    ///
    /// # Errors
    /// As [`Peer::kick`].
    fn ban(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError>;

    /// Host only: whether to refuse players from now on. Who is in stays in. Nothing happens at a joiner.
    fn refuse_new(&mut self, refuse: bool);

    /// Leaves, telling everybody. Further calls do nothing.
    fn close(&mut self);
}

/// One wire. Nothing else in the house constructs a [`Peer`].
pub trait Transport {
    /// Which wire this is.
    fn kind(&self) -> TransportKind;

    /// The word for it in a log.
    fn log_name(&self) -> &'static str {
        self.kind().log_name()
    }

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
