//! What this machine knows of its own addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Addresses worth telling another player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The address that traffic to the internet leaves from; without such a route, the first private one.
    pub lan: Option<Ipv4Addr>,
    /// Addresses on virtual networks: the one the player named, then adapters in 25.0.0.0/8, then in 100.64.0.0/10.
    pub vpn: [Option<Ipv4Addr>; 2],
    /// A global IPv6 address, 6to4 before others.
    pub v6: Option<Ipv6Addr>,
}

/// Asks the system. `named_vpn` is the player's own word on which address is a virtual network's. Sends nothing.
#[must_use]
pub fn addresses(named_vpn: Option<Ipv4Addr>) -> Addresses {
    let adapters: Vec<IpAddr> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .filter(|adapter| !adapter.is_loopback() && !adapter.is_link_local())
        .map(|adapter| adapter.ip())
        .collect();
    choose(route_source(), &adapters, named_vpn)
}

/// The pure half of [`addresses`]: what to tell, given the source address of the route to the internet and the addresses
/// of all adapters (netpunch wire, sections 11.5 and 12.2).
#[must_use]
pub fn choose(route: Option<Ipv4Addr>, adapters: &[IpAddr], named_vpn: Option<Ipv4Addr>) -> Addresses {
    let v4 = || adapters.iter().filter_map(|ip| if let IpAddr::V4(v4) = ip { Some(*v4) } else { None });
    let hamachi = v4().filter(|ip| ip.octets().first() == Some(&25));
    let shared = v4().filter(|ip| is_shared(*ip));
    let mut vpn = [None; 2];
    for ip in named_vpn.into_iter().chain(hamachi).chain(shared) {
        if vpn.contains(&Some(ip)) {
            continue;
        }
        match &mut vpn {
            [first @ None, _] => *first = Some(ip),
            [_, second @ None] => *second = Some(ip),
            _ => break,
        }
    }
    let global =
        || adapters.iter().filter_map(|ip| if let IpAddr::V6(v6) = ip { Some(*v6) } else { None }).filter(is_global);
    Addresses {
        lan: route.or_else(|| v4().find(Ipv4Addr::is_private)),
        vpn,
        v6: global().find(|ip| ip.segments().first() == Some(&0x2002)).or_else(|| global().next()),
    }
}

/// 100.64.0.0/10.
fn is_shared(ip: Ipv4Addr) -> bool {
    matches!(ip.octets(), [100, second, ..] if second & 0xC0 == 64)
}

/// 2000::/3 without the documentation blocks.
fn is_global(ip: &Ipv6Addr) -> bool {
    match ip.segments() {
        [0x2001, 0x0DB8, ..] => false,
        [0x3FFF, second, ..] if second < 0x1000 => false,
        [first, ..] => first & 0xE000 == 0x2000,
    }
}

/// Longest packet that leaves on the way to the internet, headers included, as far as the system knows: that of the
/// adapter, or less where the path turned out to be narrower. Sends nothing. `None` where the system does not say.
#[must_use]
pub fn mtu() -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((Ipv4Addr::new(8, 8, 8, 8), 9)).ok()?;
        rustix::net::sockopt::ip_mtu(&socket).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// The source address of the route to a public address. Connecting a datagram socket sends nothing.
fn route_source() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(8, 8, 8, 8), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) if !ip.is_unspecified() && !ip.is_loopback() => Some(ip),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn v4(text: &str) -> Option<Ipv4Addr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn vpn_is_the_named_address_then_hamachi_then_shared_space_and_at_most_two() {
        let adapters = ips(&["100.127.255.1", "192.168.1.4", "25.1.2.3", "100.128.0.1", "100.63.0.1"]);
        assert_eq!(choose(None, &adapters, None).vpn, [v4("25.1.2.3"), v4("100.127.255.1")]);
        assert_eq!(choose(None, &adapters, v4("10.9.9.9")).vpn, [v4("10.9.9.9"), v4("25.1.2.3")]);
        assert_eq!(choose(None, &adapters, v4("25.1.2.3")).vpn, [v4("25.1.2.3"), v4("100.127.255.1")]);
        assert_eq!(choose(None, &ips(&["192.168.1.4", "100.128.0.1"]), None).vpn, [None, None]);
    }

    #[test]
    fn lan_is_the_source_of_the_route_and_without_one_the_first_private_address() {
        let adapters = ips(&["203.0.113.9", "10.0.0.7", "192.168.1.4"]);
        assert_eq!(choose(v4("192.168.1.4"), &adapters, None).lan, v4("192.168.1.4"));
        assert_eq!(choose(None, &adapters, None).lan, v4("10.0.0.7"));
        assert_eq!(choose(None, &ips(&["203.0.113.9"]), None).lan, None);
    }

    #[test]
    fn v6_is_global_and_6to4_goes_first() {
        let text = |ip: Option<Ipv6Addr>| ip.map(|ip| ip.to_string());
        let not_global = ips(&["fe80::1", "fd00::1", "fc00::1", "2001:db8::1", "3fff:fff::1", "::1", "4000::1"]);
        assert_eq!(choose(None, &not_global, None).v6, None);
        let both = ips(&["2a00:1450::5", "2002:c000:204::1"]);
        assert_eq!(text(choose(None, &both, None).v6), Some("2002:c000:204::1".to_owned()));
        assert_eq!(text(choose(None, &ips(&["fd00::1", "3fff:1000::1"]), None).v6), Some("3fff:1000::1".to_owned()));
    }

    #[test]
    fn asking_the_system_answers_and_a_named_network_goes_first() {
        let named = addresses(v4("25.25.25.25"));
        assert_eq!(named.vpn.first().copied().flatten(), v4("25.25.25.25"));
        assert!(named.lan.is_none_or(|ip| !ip.is_loopback() && !ip.is_unspecified()));
    }
}
