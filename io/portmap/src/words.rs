//! The words of this room.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp,
}

/// How a router is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Method {
    /// UPnP IGD.
    Upnp,
    /// RFC 6886.
    NatPmp,
    /// RFC 6887.
    Pcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upnp => "UPnP",
            Self::NatPmp => "NAT-PMP",
            Self::Pcp => "PCP",
        })
    }
}

/// Why a router mapped nothing, in one sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// There is nobody to ask.
    #[error("this machine has no default gateway to ask")]
    NoGateway,
    /// Silence.
    #[error("no gateway answered")]
    NoAnswer,
    /// It answered that it does not know this protocol.
    #[error("the router does not speak it")]
    Unspoken,
    /// It answered no.
    #[error("the router refused: {code} {text}")]
    Refused {
        /// The protocol's own number.
        code: u16,
        /// The router's own words, or the protocol's; at most 80 printable characters.
        text: String,
    },
    /// It is behind a router itself, so a mapping leads nowhere.
    #[error("the router's own outside address {0} is private: it is behind another router")]
    PrivateWan(Ipv4Addr),
    /// It is not connected, or would not say.
    #[error("the router tells no outside address")]
    NoOutsideAddress,
    /// Every outside port that was tried is somebody else's.
    #[error("the router gave outside port {0}, and the others tried, to another machine")]
    PortTaken(u16),
    /// Error 725, and no way to remember such a mapping over a crash.
    #[error("the router maps ports for good only, and there is no file to remember that by")]
    PermanentOnly,
    /// [`Mapper::distrust`](crate::Mapper::distrust).
    #[error("the router mapped the port, but nothing came through it from outside")]
    Disproved,
    /// Anything else; at most 80 printable characters.
    #[error("asking the router failed: {0}")]
    Broken(String),
}

/// What a [`Mapper`](crate::Mapper) tells.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The outside address that the router says it has, told first and when it changes. A private one, or another than
    /// a STUN server saw, is a carrier's NAT: [`behind_another_router`].
    Wan {
        /// Who said so.
        by: Method,
        /// The address.
        address: Ipv4Addr,
    },
    /// The router says that what comes to `external` arrives here: a candidate until it was seen from outside. Told
    /// again when `external` changes.
    Mapped {
        /// What.
        protocol: Protocol,
        /// How.
        by: Method,
        /// Where the router says it listens.
        external: SocketAddrV4,
        /// How long, without renewal; `None` for a router that maps for good only.
        lease: Option<Duration>,
    },
    /// This way there is no mapping. Told once, until the reason changes.
    Refused {
        /// What.
        protocol: Protocol,
        /// How.
        by: Method,
        /// Why.
        why: Why,
    },
    /// A mapping that was told is no more; all ways are tried again at once.
    Lost {
        /// What.
        protocol: Protocol,
        /// How.
        by: Method,
        /// What it was.
        external: SocketAddrV4,
    },
    /// The first round is over: each protocol is mapped or refused in every way. Told once. Refused protocols are tried
    /// again after 30 s, then every 10 minutes.
    Done,
}

/// Whether a router with this outside address is itself behind another: the address is of a private or shared network,
/// or strangers (`seen`, from STUN) see another one (netpunch wire, section 12.2).
#[must_use]
pub fn behind_another_router(wan: Ipv4Addr, seen: Option<Ipv4Addr>) -> bool {
    is_inside(wan) || seen.is_some_and(|seen| seen != wan)
}

/// An address that no stranger can send to.
pub(crate) fn is_inside(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private()
        || (a == 100 && b & 0xC0 == 64)
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast()
}

/// An outside address that a mapping may stand on.
pub(crate) fn outside(address: Ipv4Addr) -> Result<Ipv4Addr, Why> {
    match address {
        address if address.is_unspecified() => Err(Why::NoOutsideAddress),
        address if is_inside(address) => Err(Why::PrivateWan(address)),
        address => Ok(address),
    }
}

/// A router's words, fit for a line of text.
pub(crate) fn words(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(80).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_shared_or_other_than_seen_is_behind_another_router() {
        let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        for inside in ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.127.255.255", "0.0.0.0"] {
            assert!(behind_another_router(ip(inside), None), "{inside}");
        }
        for outside in ["100.63.255.255", "100.128.0.0", "172.32.0.1", "44.128.1.1"] {
            assert!(!behind_another_router(ip(outside), Some(ip(outside))), "{outside}");
            assert!(behind_another_router(ip(outside), Some(ip("9.9.9.9"))), "{outside}");
        }
        assert_eq!(outside(ip("0.0.0.0")), Err(Why::NoOutsideAddress));
        assert_eq!(outside(ip("100.64.9.9")), Err(Why::PrivateWan(ip("100.64.9.9"))));
    }

    #[test]
    fn a_routers_words_fit_a_line() {
        assert_eq!(words("no\r\nway\u{1b}[2J"), "no  way [2J");
        assert_eq!(words(&"x".repeat(500)).len(), 80);
    }
}
