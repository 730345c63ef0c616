//! Who counts as one caller, and as one network.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An address range that limits are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    bits: u128,
    len: u8,
}

impl Prefix {
    /// One caller: an IPv4 address, or the /64 an IPv6 address is from, since a household owns all of it.
    #[must_use]
    pub fn caller(ip: IpAddr) -> Self {
        Self::of(ip, 128, 64)
    }

    /// One network: /24 or /56.
    #[must_use]
    pub fn network(ip: IpAddr) -> Self {
        Self::of(ip, 96 + 24, 56)
    }

    fn of(ip: IpAddr, v4: u8, v6: u8) -> Self {
        let (bits, len) = match address_of(ip) {
            IpAddr::V4(ip) => (u128::from(ip.to_ipv6_mapped()), v4),
            IpAddr::V6(ip) => (u128::from(ip), v6),
        };
        Self { bits: bits & (u128::MAX << (128 - u32::from(len.min(128))).min(127)), len }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.bits), self.len)
    }
}

/// An address in its plain form: IPv4-mapped IPv6 is IPv4.
#[must_use]
pub fn address_of(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Whether `peer` lies in one of the ranges `trusted`, each an address and a prefix length.
#[must_use]
pub fn is_trusted(peer: IpAddr, trusted: &[(IpAddr, u8)]) -> bool {
    let peer = address_of(peer);
    trusted.iter().any(|(range, len)| match (peer, address_of(*range)) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(*len).min(32)).unwrap_or(0);
            u32::from(a) & mask == u32::from(b) & mask
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(*len).min(128)).unwrap_or(0);
            u128::from(a) & mask == u128::from(b) & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn callers_and_networks_are_told_apart_by_their_prefix() {
        assert_ne!(Prefix::caller(ip("192.0.2.1")), Prefix::caller(ip("192.0.2.2")));
        assert_eq!(Prefix::network(ip("192.0.2.1")), Prefix::network(ip("192.0.2.255")));
        assert_ne!(Prefix::network(ip("192.0.2.1")), Prefix::network(ip("192.0.3.1")));
        assert_eq!(Prefix::caller(ip("2001:db8:0:1::1")), Prefix::caller(ip("2001:db8:0:1:ffff::")));
        assert_ne!(Prefix::caller(ip("2001:db8:0:1::1")), Prefix::caller(ip("2001:db8:0:2::1")));
        assert_eq!(Prefix::network(ip("2001:db8:0:1::1")), Prefix::network(ip("2001:db8:0:ff::1")));
        assert_ne!(Prefix::network(ip("2001:db8:0:1::1")), Prefix::network(ip("2001:db8:0:100::1")));
        assert_eq!(Prefix::caller(ip("::ffff:192.0.2.1")), Prefix::caller(ip("192.0.2.1")));
    }

    #[test]
    fn a_trusted_range_covers_its_addresses_only() {
        let ranges = [(ip("127.0.0.0"), 8), (ip("2001:db8::"), 32), (ip("10.0.0.7"), 32)];
        for (who, want) in [
            ("127.0.0.1", true),
            ("::ffff:127.9.9.9", true),
            ("128.0.0.1", false),
            ("2001:db8:9::1", true),
            ("2001:db9::1", false),
            ("10.0.0.7", true),
            ("10.0.0.8", false),
        ] {
            assert_eq!(is_trusted(ip(who), &ranges), want, "{who}");
        }
        assert!(is_trusted(ip("198.51.100.1"), &[(ip("0.0.0.0"), 0)]));
    }
}
