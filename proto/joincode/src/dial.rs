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

/// Where a host punches toward for the joiner of a knock: its public, then its LAN address (netpunch wire, section
/// 11.3).
#[must_use]
pub fn knock_targets(joiner: &Profile) -> Vec<SocketAddr> {
    let mut targets: Vec<_> = [joiner.public, joiner.lan].into_iter().flatten().filter(usable).collect();
    targets.dedup();
    targets.into_iter().map(SocketAddr::V4).collect()
}

fn usable(address: &SocketAddrV4) -> bool {
    let ip = address.ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_punches_toward_the_public_address_then_the_lan_one_when_they_have_ports() {
        let at = |text: &str| Some(text.parse::<SocketAddrV4>().unwrap());
        let both = Profile { public: at("203.0.113.5:9"), lan: at("192.168.0.2:29471"), ..Profile::default() };
        let texts = |profile: &Profile| knock_targets(profile).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&both), ["203.0.113.5:9", "192.168.0.2:29471"]);
        assert_eq!(texts(&Profile { lan: at("192.168.0.2:0"), ..both.clone() }), ["203.0.113.5:9"]);
        assert_eq!(texts(&Profile { public: both.lan, ..both }), ["192.168.0.2:29471"]);
    }

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
