//! What several answers say about the router in between.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// Most answers that are looked at; later ones change nothing.
pub const ANSWERS_MAX: usize = 16;

/// What a socket's public side looks like (netpunch wire, section 12.2). The flags travel for diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Public IPv4 addresses in the order of the answers, each once. The first is the public candidate.
    pub public: Vec<SocketAddrV4>,
    /// Two servers saw different ports: a new mapping for each destination. One answer proves nothing.
    pub symmetric: bool,
    /// The public candidate is in 100.64.0.0/10: a second router of the provider stands in between.
    pub cgnat: bool,
}

impl Observation {
    /// Sums up addresses that servers reported for one socket, in the order they arrived. IPv6 answers are passed
    /// over, since the lobby dials IPv4, and so are answers nobody could dial: port 0, unspecified or multicast
    /// addresses.
    #[must_use]
    pub fn of(answers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let mut out = Self::default();
        for answer in answers.into_iter().take(ANSWERS_MAX) {
            let IpAddr::V4(ip) = answer.ip().to_canonical() else { continue };
            if answer.port() == 0 || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
                continue;
            }
            match out.public.first() {
                Some(first) => out.symmetric |= first.port() != answer.port(),
                None => out.cgnat = is_shared(ip),
            }
            let answer = SocketAddrV4::new(ip, answer.port());
            if !out.public.contains(&answer) {
                out.public.push(answer);
            }
        }
        out
    }
}

/// Whether an address is in 100.64.0.0/10, the range providers share among customers (RFC 6598).
fn is_shared(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    a == 100 && b & 0xC0 == 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answers: &[&str]) -> Observation {
        Observation::of(answers.iter().map(|a| a.parse::<SocketAddr>().unwrap()))
    }

    #[test]
    fn one_answer_is_never_symmetric() {
        let one = seen(&["203.0.113.5:4000"]);
        assert_eq!((one.public.len(), one.symmetric, one.cgnat), (1, false, false));
        assert_eq!(seen(&[]), Observation::default());
    }

    #[test]
    fn ports_decide_and_addresses_do_not() {
        assert!(seen(&["203.0.113.5:4000", "203.0.113.5:4001"]).symmetric);
        assert!(!seen(&["203.0.113.5:4000", "198.51.100.9:4000"]).symmetric);
        assert!(seen(&["203.0.113.5:4000", "203.0.113.5:4000", "203.0.113.5:9"]).symmetric);
    }

    #[test]
    fn the_first_answer_is_the_candidate_and_repeats_are_kept_once() {
        let three = seen(&["203.0.113.5:1", "198.51.100.9:1", "203.0.113.5:1"]);
        assert_eq!(three.public, ["203.0.113.5:1".parse().unwrap(), "198.51.100.9:1".parse().unwrap()]);
    }

    #[test]
    fn the_shared_range_ends_where_it_ends() {
        for (ip, shared) in
            [("100.63.255.255", false), ("100.64.0.0", true), ("100.127.255.255", true), ("100.128.0.0", false)]
        {
            assert_eq!(seen(&[&format!("{ip}:5")]).cgnat, shared, "{ip}");
        }
    }

    #[test]
    fn answers_nobody_could_dial_do_not_count() {
        let none = seen(&["203.0.113.5:0", "0.0.0.0:5", "224.0.0.1:5", "255.255.255.255:5", "[2001:db8::1]:5"]);
        assert_eq!(none, Observation::default());
        assert_eq!(seen(&["[::ffff:203.0.113.5]:7"]).public, ["203.0.113.5:7".parse().unwrap()]);
    }

    #[test]
    fn a_flood_of_answers_is_bounded() {
        let many = Observation::of((1..1000).map(|port| SocketAddr::from(([203, 0, 113, 5], port))));
        assert_eq!(many.public.len(), ANSWERS_MAX);
    }
}
