//! Which of a host's addresses to dial, and in which order (netpunch wire, section 11.1).

use std::net::{SocketAddr, SocketAddrV4};

use crate::Profile;

/// Most candidates one profile gives.
const CANDIDATES: usize = 4;

/// The addresses to dial: first VPN, second VPN, LAN, public. Behind the host's own router (`my_public` has the same
/// IP) its public address is left out when there is a LAN address to use. Links between joiners pass `None`.
///
/// Each address comes once. Addresses that nobody can answer from are left out before the rule is applied: port 0,
/// which a joiner with an ephemeral port advertises, and unspecified, multicast or broadcast addresses.
#[must_use]
pub fn dial_order(host: &Profile, my_public: Option<SocketAddrV4>) -> Vec<SocketAddr> {
    let usable = |a: &SocketAddrV4| {
        let ip = a.ip();
        a.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast()
    };
    let [vpn, vpn2] = host.vpn;
    let lan = host.lan.filter(usable);
    let same_router = host.public.zip(my_public).is_some_and(|(theirs, mine)| theirs.ip() == mine.ip());
    let public = host.public.filter(|_| !(same_router && lan.is_some()));

    let mut order = Vec::with_capacity(CANDIDATES);
    for address in [vpn, vpn2, lan, public].into_iter().flatten().filter(usable) {
        let address = SocketAddr::V4(address);
        if !order.contains(&address) {
            order.push(address);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<SocketAddrV4> {
        Some(text.parse().unwrap())
    }

    fn texts(profile: &Profile, mine: Option<SocketAddrV4>) -> Vec<String> {
        dial_order(profile, mine).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn behind_the_same_router_the_lan_address_replaces_the_public_one() {
        let host = Profile { lan: at("192.168.1.20:5"), public: at("203.0.113.5:6"), ..Profile::default() };
        assert_eq!(texts(&host, at("203.0.113.5:999")), ["192.168.1.20:5"]);
        assert_eq!(texts(&host, at("203.0.113.6:6")), ["192.168.1.20:5", "203.0.113.5:6"]);
        assert_eq!(texts(&host, None), ["192.168.1.20:5", "203.0.113.5:6"]);
    }

    #[test]
    fn a_lan_address_with_port_zero_does_not_displace_the_public_one() {
        let host = Profile { lan: at("192.168.1.20:0"), public: at("203.0.113.5:6"), ..Profile::default() };
        assert_eq!(texts(&host, at("203.0.113.5:999")), ["203.0.113.5:6"]);
    }

    #[test]
    fn addresses_nobody_answers_from_are_left_out_and_repeats_come_once() {
        let host = Profile {
            vpn: [at("224.0.0.9:5"), at("255.255.255.255:5")],
            lan: at("0.0.0.0:5"),
            public: at("203.0.113.5:6"),
            ..Profile::default()
        };
        assert_eq!(texts(&host, None), ["203.0.113.5:6"]);
        let twice = Profile { lan: at("203.0.113.5:6"), ..host };
        assert_eq!(texts(&twice, None), ["203.0.113.5:6"]);
    }
}
