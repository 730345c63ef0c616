//! Players as a game sees them. The vocabulary is Godot's `MultiplayerPeer`.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// A player within one session: 1 is the host, joiners are 2 to 2³¹-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u32);

impl PeerId {
    /// The host, always.
    pub const HOST: Self = Self(1);

    /// An id from its number; `None` for 0 and anything over 31 bits.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || number > i32::MAX as u32 { None } else { Some(Self(number)) }
    }

    /// The number an engine shows.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// Arrives once and in order within its channel, or the link is closed.
    Reliable,
    /// May be lost or overtaken; never duplicated.
    Unreliable,
    /// May be lost; what arrives late is dropped.
    UnreliableOrdered,
}

/// One of the independent orders within a link. Channels 0 to 31 exist on every wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u8);

/// Who a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everybody else in the session.
    All,
    /// One player.
    One(PeerId),
    /// Everybody else but one player.
    AllBut(PeerId),
}

/// Why a link or a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The own application closed it.
    ByUser,
    /// The other end said goodbye.
    ByPeer,
    /// The host removed this player, with a code and a text for the person.
    Kicked(u32, String),
    /// The other end does not want this player; the text says why.
    Refused(String),
    /// Nothing was heard for too long.
    Silent,
    /// The session as a whole ended.
    SessionEnded,
}

/// How a player is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// Not reachable at the moment.
    #[default]
    None,
    /// Oneself.
    Local,
    /// Datagrams straight to the player.
    Direct,
    /// Datagrams through a relay of the master.
    Relay,
    /// Through the relay, with TCP at one end at least: UDP does not get out there.
    Tcp,
    /// In envelopes through the host.
    ThroughHost,
    /// In envelopes through another player.
    Through(String),
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Local => f.write_str("you"),
            Self::Direct => f.write_str("direct"),
            Self::Relay => f.write_str("via relay"),
            Self::Tcp => f.write_str("TCP through the master"),
            Self::ThroughHost => f.write_str("via host"),
            Self::Through(name) => write!(f, "via {name}"),
        }
    }
}

/// What is known of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// Smoothed round trip, when one was measured.
    pub rtt: Option<Duration>,
    /// Mean deviation of the round trip.
    pub jitter: Option<Duration>,
    /// Share of recent probes without an answer, 0 to 1, when enough were sent.
    pub loss: Option<f32>,
    /// Bytes sent, datagram payloads.
    pub sent: u64,
    /// Bytes received, datagram payloads.
    pub received: u64,
    /// Bytes waiting to be sent.
    pub queued: usize,
    /// How the player is reached.
    pub route: Route,
}

/// What a game hears from its peer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The session is up; the own id is known from here on.
    Connected(PeerId),
    /// A player arrived.
    Joined(PeerId),
    /// A player is gone.
    Left(PeerId, CloseReason),
    /// A packet for this player.
    Packet {
        /// Who sent it.
        from: PeerId,
        /// The channel it was sent on.
        channel: Channel,
        /// How it travelled.
        delivery: Delivery,
        /// Its bytes.
        data: Bytes,
    },
    /// After a `WouldBlock`: sending may be tried again.
    Writable,
    /// The session is over. Nothing follows.
    Closed(CloseReason),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_31_bits_and_positive() {
        assert_eq!(PeerId::new(0), None);
        assert_eq!(PeerId::new(1), Some(PeerId::HOST));
        assert!(PeerId::new(0x7FFF_FFFF).is_some());
        assert_eq!(PeerId::new(0x8000_0000), None);
    }
}
