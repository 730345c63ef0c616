//! The networks this machine is in, for broadcasts.

use std::net::{IpAddr, Ipv4Addr};

/// One address of one interface that is up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// The interface's name.
    pub name: String,
    /// Its number, which IPv6 calls a scope; 0 where the system does not say.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// The IPv4 broadcast address. That of the loopback interface reaches every process of the machine on systems that
    /// have one.
    pub broadcast: Option<Ipv4Addr>,
    /// The loopback interface.
    pub loopback: bool,
}

impl Network {
    /// Whether an address lies in this network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                u32::from(own) & mask == u32::from(other) & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                u128::from(own) & mask == u128::from(other) & mask
            }
            _ => false,
        }
    }
}

/// Asks the system for every address of every interface that is up, the loopback ones included. Sends nothing.
#[must_use]
pub fn networks() -> Vec<Network> {
    let mut found: Vec<Network> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .filter(|adapter| adapter.is_oper_up() || adapter.is_loopback())
        .map(|adapter| {
            let loopback = adapter.is_loopback();
            let (prefix, broadcast) = match &adapter.addr {
                if_addrs::IfAddr::V4(v4) => {
                    let directed = broadcast(v4.ip, v4.prefixlen);
                    (v4.prefixlen, v4.broadcast.filter(|_| !loopback).or(directed))
                }
                if_addrs::IfAddr::V6(v6) => (v6.prefixlen, None),
            };
            Network {
                index: adapter.index.unwrap_or(0),
                ip: adapter.ip(),
                name: adapter.name,
                prefix,
                broadcast,
                loopback,
            }
        })
        .collect();
    found.sort();
    found
}

/// The directed broadcast address; a network of one or two addresses has none.
fn broadcast(ip: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    (prefix < 31).then(|| Ipv4Addr::from(u32::from(ip) | (u32::MAX >> prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(ip: &str, prefix: u8) -> Network {
        let ip = ip.parse().unwrap();
        Network { name: "eth0".into(), index: 2, ip, prefix, broadcast: None, loopback: false }
    }

    #[test]
    fn broadcast_addresses_follow_the_prefix() {
        let of = |ip: &str, prefix| broadcast(ip.parse().unwrap(), prefix).map(|ip| ip.to_string());
        assert_eq!(of("192.168.3.4", 24).as_deref(), Some("192.168.3.255"));
        assert_eq!(of("10.1.2.3", 8).as_deref(), Some("10.255.255.255"));
        assert_eq!(of("10.1.2.3", 30).as_deref(), Some("10.1.2.3"));
        assert_eq!([of("10.1.2.3", 31), of("10.1.2.3", 32)], [None, None]);
        assert_eq!(of("10.1.2.3", 0).as_deref(), Some("255.255.255.255"));
    }

    #[test]
    fn a_network_knows_its_addresses() {
        let home = network("192.168.3.4", 24);
        let inside = |text: &str| home.contains(text.parse().unwrap());
        assert!(inside("192.168.3.200") && !inside("192.168.4.1") && !inside("fe80::1"));
        assert!(network("10.0.0.1", 0).contains("1.2.3.4".parse().unwrap()));
        let link = network("fe80::1", 64);
        assert!(link.contains("fe80::7".parse().unwrap()) && !link.contains("fd00::7".parse().unwrap()));
        assert!(network("::1", 128).contains("::1".parse().unwrap()));
    }

    #[test]
    fn asking_the_system_finds_the_loopback_interface_with_its_broadcast_address() {
        let found = networks();
        let own = found.iter().find(|n| n.ip == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(own.loopback);
        assert_eq!(own.broadcast, Some(Ipv4Addr::new(127, 255, 255, 255)));
    }
}
