//! Which candidates a connection may use (NetherNet, section 4).

use std::ops::{BitOr, BitOrAssign};

/// `EConnectionFlags`: a bit mask that takes kinds of candidates away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionFlags(u32);

/// What `typ` says in a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CandidateKind {
    /// An address of the machine itself.
    Host,
    /// Its address as a STUN server saw it.
    ServerReflexive,
    /// Its address as the other peer saw it.
    PeerReflexive,
    /// An address at a TURN server.
    Relay,
}

impl CandidateKind {
    /// The word in a candidate.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::ServerReflexive => "srflx",
            Self::PeerReflexive => "prflx",
            Self::Relay => "relay",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Host, Self::ServerReflexive, Self::PeerReflexive, Self::Relay].into_iter().find(|k| k.word() == word)
    }
}

impl ConnectionFlags {
    /// Everything is allowed.
    pub const NONE: Self = Self(0);
    /// Relayed candidates only.
    pub const RELAY_ONLY: Self = Self(1);
    /// No TCP.
    pub const NO_TCP_CANDIDATES: Self = Self(2);
    /// No addresses of the machine itself.
    pub const NO_LOCAL_CANDIDATES: Self = Self(4);
    /// Nothing learned from STUN servers.
    pub const NO_SERVER_REFLEXIVE_CANDIDATES: Self = Self(8);
    /// Nothing learned from the other peer.
    pub const NO_PEER_REFLEXIVE_CANDIDATES: Self = Self(16);
    /// No relays.
    pub const NO_RELAY_CANDIDATES: Self = Self(32);

    /// Flags from their number. Bits without a meaning are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a candidate of this kind may be used and told.
    #[must_use]
    pub const fn permits(self, kind: CandidateKind, tcp: bool) -> bool {
        if tcp && self.contains(Self::NO_TCP_CANDIDATES) {
            return false;
        }
        let banned = match kind {
            CandidateKind::Host => Self::NO_LOCAL_CANDIDATES,
            CandidateKind::ServerReflexive => Self::NO_SERVER_REFLEXIVE_CANDIDATES,
            CandidateKind::PeerReflexive => Self::NO_PEER_REFLEXIVE_CANDIDATES,
            CandidateKind::Relay => Self::NO_RELAY_CANDIDATES,
        };
        let relay_rule = !self.contains(Self::RELAY_ONLY) || matches!(kind, CandidateKind::Relay);
        relay_rule && !self.contains(banned)
    }
}

impl BitOr for ConnectionFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for ConnectionFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CandidateKind::{Host, PeerReflexive, Relay, ServerReflexive};

    #[test]
    fn each_flag_takes_its_kind_away_and_no_other() {
        let kinds = [Host, ServerReflexive, PeerReflexive, Relay];
        let left = |flags: ConnectionFlags| kinds.map(|kind| flags.permits(kind, false));
        assert_eq!(left(ConnectionFlags::NONE), [true; 4]);
        assert_eq!(left(ConnectionFlags::RELAY_ONLY), [false, false, false, true]);
        assert_eq!(left(ConnectionFlags::NO_LOCAL_CANDIDATES), [false, true, true, true]);
        assert_eq!(left(ConnectionFlags::NO_SERVER_REFLEXIVE_CANDIDATES), [true, false, true, true]);
        assert_eq!(left(ConnectionFlags::NO_PEER_REFLEXIVE_CANDIDATES), [true, true, false, true]);
        assert_eq!(left(ConnectionFlags::NO_RELAY_CANDIDATES), [true, true, true, false]);
        assert!(!ConnectionFlags::NO_TCP_CANDIDATES.permits(Host, true));
        assert!(ConnectionFlags::NO_TCP_CANDIDATES.permits(Host, false));
    }

    #[test]
    fn numbers_are_those_of_the_protocol() {
        let all = [
            ConnectionFlags::RELAY_ONLY,
            ConnectionFlags::NO_TCP_CANDIDATES,
            ConnectionFlags::NO_LOCAL_CANDIDATES,
            ConnectionFlags::NO_SERVER_REFLEXIVE_CANDIDATES,
            ConnectionFlags::NO_PEER_REFLEXIVE_CANDIDATES,
            ConnectionFlags::NO_RELAY_CANDIDATES,
        ];
        assert_eq!(all.map(ConnectionFlags::bits), [1, 2, 4, 8, 16, 32]);
        assert_eq!(CandidateKind::of("srflx"), Some(ServerReflexive));
        assert_eq!(CandidateKind::of("SRFLX"), None);
    }
}
