//! How a router treats one socket's datagrams (RFC 4787, told apart as in RFC 5780, section 4).

use std::fmt;
use std::net::SocketAddr;

/// On what the public address of a socket depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mapping {
    /// Too few answers.
    #[default]
    Unknown,
    /// On nothing: one public address for all destinations, or no router at all.
    EndpointIndependent,
    /// On the address sent to.
    AddressDependent,
    /// On the address and the port sent to.
    AddressAndPortDependent,
    /// On the address sent to; whether on the port as well cannot be told from these answers.
    Dependent,
}

impl Mapping {
    /// What several servers saw of one socket: pairs of the address that was asked and the one it saw.
    ///
    /// One server's two ports alone show whether the port counts; that nothing counts takes servers at two addresses.
    #[must_use]
    pub fn of(seen: &[(SocketAddr, SocketAddr)]) -> Self {
        let (mut two_addresses, mut same_port_pair, mut differs) = (false, false, false);
        for (n, (server, mapped)) in seen.iter().enumerate() {
            for (other, other_mapped) in seen.iter().skip(n + 1) {
                if server == other {
                    continue;
                }
                if server.ip() == other.ip() {
                    if mapped != other_mapped {
                        return Self::AddressAndPortDependent;
                    }
                    same_port_pair = true;
                } else {
                    two_addresses = true;
                    differs |= mapped != other_mapped;
                }
            }
        }
        match (two_addresses, differs, same_port_pair) {
            (false, ..) => Self::Unknown,
            (true, false, _) => Self::EndpointIndependent,
            (true, true, true) => Self::AddressDependent,
            (true, true, false) => Self::Dependent,
        }
    }

    /// Whether another destination sees another address.
    #[must_use]
    pub fn is_dependent(self) -> bool {
        matches!(self, Self::AddressDependent | Self::AddressAndPortDependent | Self::Dependent)
    }

    /// Its name in files that programs read.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
            Self::Dependent => "dependent",
        }
    }
}

/// Who is let in to a public address that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filtering {
    /// No server could tell.
    #[default]
    Unknown,
    /// Everybody.
    EndpointIndependent,
    /// Whoever is at an address that was sent to.
    AddressDependent,
    /// Only the very address and port that was sent to.
    AddressAndPortDependent,
    /// Other ports of an address that was sent to, at least: the server has one address and cannot tell more.
    PortIndependent,
}

/// Which answers from elsewhere were asked for, and came. Each has to be unexpected by the router: nothing was sent to
/// where it comes from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// One from another address and port was asked for.
    pub asked_ip: bool,
    /// It came.
    pub ip: bool,
    /// One from another port of the same address was asked for.
    pub asked_port: bool,
    /// It came.
    pub port: bool,
    /// The other address answers when it is asked itself: silence is the router's, not the server's.
    pub alive: bool,
}

impl Filtering {
    /// What answers from elsewhere say.
    #[must_use]
    pub fn of(changed: Changed) -> Self {
        let Changed { asked_ip, ip, asked_port, port, alive } = changed;
        match () {
            () if !alive => Self::Unknown,
            () if asked_ip && ip => Self::EndpointIndependent,
            () if asked_port && port && asked_ip => Self::AddressDependent,
            () if asked_port && port => Self::PortIndependent,
            () if asked_port => Self::AddressAndPortDependent,
            () => Self::Unknown,
        }
    }

    /// Its name in files that programs read.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
            Self::PortIndependent => "port-independent",
        }
    }
}

/// What is known of the router in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// On what the public address depends.
    pub mapping: Mapping,
    /// Who is let in.
    pub filtering: Filtering,
    /// Whether the own public address leads back here; `None` without one to try.
    pub hairpin: Option<bool>,
    /// The address a server on IPv6 saw.
    pub v6: Option<SocketAddr>,
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hairpin = match self.hairpin {
            None => "unknown",
            Some(true) => "yes",
            Some(false) => "no",
        };
        write!(f, "mapping {}, filtering {}, hairpin {hairpin}", self.mapping.word(), self.filtering.word())?;
        if self.v6.is_some() { f.write_str(", IPv6") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(seen: &[(&str, &str)]) -> Mapping {
        let seen: Vec<_> = seen.iter().map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).collect();
        Mapping::of(&seen)
    }

    const M: &str = "203.0.113.5:4000";
    const N: &str = "203.0.113.5:4001";

    #[test]
    fn the_mapping_class_follows_from_who_saw_what() {
        let (a, a2, b, b2) = ("198.51.100.1:3478", "198.51.100.1:3479", "198.51.100.2:3478", "198.51.100.2:3479");
        for (seen, want) in [
            (&[][..], Mapping::Unknown),
            (&[(a, M)], Mapping::Unknown),
            (&[(a, M), (a, N)], Mapping::Unknown),
            (&[(a, M), (a2, M)], Mapping::Unknown),
            (&[(a, M), (a2, N)], Mapping::AddressAndPortDependent),
            (&[(a, M), (b, M)], Mapping::EndpointIndependent),
            (&[(a, M), (b2, N)], Mapping::Dependent),
            (&[(a, M), (b, N), (b2, N)], Mapping::AddressDependent),
            (&[(a, M), (b, N), (b2, "203.0.113.5:4002")], Mapping::AddressAndPortDependent),
            (&[(a, M), (a2, M), (b, M), (b2, M)], Mapping::EndpointIndependent),
        ] {
            assert_eq!(mapping(seen), want, "{seen:?}");
        }
    }

    #[test]
    fn the_filtering_class_follows_from_which_answers_came() {
        let all = Changed { asked_ip: true, asked_port: true, alive: true, ..Changed::default() };
        let one = Changed { asked_ip: false, ..all };
        for (changed, want) in [
            (Changed::default(), Filtering::Unknown),
            (Changed { alive: false, ..all }, Filtering::Unknown),
            (Changed { ip: true, port: true, ..all }, Filtering::EndpointIndependent),
            (Changed { ip: true, ..all }, Filtering::EndpointIndependent),
            (Changed { port: true, ..all }, Filtering::AddressDependent),
            (all, Filtering::AddressAndPortDependent),
            (Changed { port: true, ..one }, Filtering::PortIndependent),
            (one, Filtering::AddressAndPortDependent),
            (Changed { asked_port: false, ..all }, Filtering::Unknown),
        ] {
            assert_eq!(Filtering::of(changed), want, "{changed:?}");
        }
    }
}
