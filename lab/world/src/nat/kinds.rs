//! Kinds of homes, and the way a pair of them is expected to take.

use std::fmt;

use netem::{Dependence, NatConfig, Ports};

/// What stands between a player and the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing.
    Open,
    /// A router that lets everybody in once a port is mapped.
    FullCone,
    /// A router that lets in whom was sent to.
    AddressRestricted,
    /// A router that lets in whom was sent to, from the same port.
    PortRestricted,
    /// A router with a random port for every destination.
    Symmetric,
    /// A router with the next port for every destination.
    SymmetricSequential,
    /// A network without UDP.
    Blocked,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::FullCone,
        Self::AddressRestricted,
        Self::PortRestricted,
        Self::Symmetric,
        Self::SymmetricSequential,
        Self::Blocked,
    ];

    /// The router, if there is one.
    #[must_use]
    pub fn router(self) -> Option<NatConfig> {
        match self {
            Self::Open | Self::Blocked => None,
            Self::FullCone => Some(NatConfig::OPEN),
            Self::AddressRestricted => Some(NatConfig::ADDRESS_RESTRICTED),
            Self::PortRestricted => Some(NatConfig::PORT_RESTRICTED),
            Self::Symmetric => Some(NatConfig::SYMMETRIC),
            Self::SymmetricSequential => Some(NatConfig { ports: Ports::Sequential(20_000), ..NatConfig::SYMMETRIC }),
        }
    }

    fn is_symmetric(self) -> bool {
        self.router().is_some_and(|router| router.mapping != Dependence::Endpoint)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::FullCone => "full-cone",
            Self::AddressRestricted => "address-restricted",
            Self::PortRestricted => "port-restricted",
            Self::Symmetric => "symmetric",
            Self::SymmetricSequential => "symmetric-seq",
            Self::Blocked => "udp-blocked",
        })
    }
}

/// The way a pair takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Datagrams straight between them.
    Direct,
    /// Through the master's relay.
    Relay,
    /// Through the master's relay, by TCP where no datagram gets out.
    Tcp,
    /// Neither; the joiner is told why.
    None,
}

/// What follows from the kinds of a host's and a joiner's home.
#[must_use]
pub fn expected(host: Kind, joiner: Kind) -> Way {
    use Kind::{AddressRestricted, Blocked, FullCone, Open, PortRestricted, SymmetricSequential};
    match (host, joiner) {
        (Blocked, _) | (_, Blocked) => Way::Tcp,
        (Open | FullCone, _) | (_, Open | FullCone) => Way::Direct,
        (a, b) if !a.is_symmetric() && !b.is_symmetric() => Way::Direct,
        (AddressRestricted, _) | (_, AddressRestricted) => Way::Direct,
        (PortRestricted, SymmetricSequential) | (SymmetricSequential, PortRestricted) => Way::Direct,
        (SymmetricSequential, SymmetricSequential) => Way::Direct,
        _ if is_guessed(host, joiner) => Way::Direct,
        _ => Way::Relay,
    }
}

/// Whether a pair has to guess a random port, so that the relay may stay as well.
#[must_use]
pub fn is_guessed(host: Kind, joiner: Kind) -> bool {
    use Kind::{PortRestricted, Symmetric};
    matches!((host, joiner), (PortRestricted, Symmetric) | (Symmetric, PortRestricted))
}
