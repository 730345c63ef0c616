//! Which sockets a node has, and which networks it is in.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use net::{Network, UdpSocket};
use nethernet::discovery::{Interface, OWN_V4, OWN_V6, SHARED_V4, SHARED_V6};
use nethernet::session::{Socket, Use};
use seam::SocketId;

use crate::{OpenError, Options};

/// The sessions' sockets, numbered behind those of discovery.
const SESSION_V4: SocketId = SocketId(4);
const SESSION_V6: SocketId = SocketId(5);

/// Everything a node listens at.
pub(crate) struct Sockets {
    pub(crate) all: Vec<UdpSocket>,
    /// The session sockets, as sessions know them.
    pub(crate) sessions: Vec<Socket>,
    /// Why nobody can find this node, where that is so.
    pub(crate) unheard: Option<String>,
}

/// Networks this node is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks {
    known: Vec<Network>,
    only: Vec<IpAddr>,
}

impl Networks {
    pub(crate) fn of(only: &[IpAddr]) -> Self {
        let mut known = net::networks();
        if !only.is_empty() {
            known.retain(|network| only.contains(&network.ip));
        }
        Self { known, only: only.to_vec() }
    }

    pub(crate) fn only(&self) -> &[IpAddr] {
        &self.only
    }

    /// Where Requests go. A machine without any network still has itself.
    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        let mut list: Vec<Interface> = self.known.iter().filter_map(|n| n.broadcast).map(Interface::V4).collect();
        let v6 = self.known.iter().filter(|n| n.ip.is_ipv6() && n.index != 0 && !n.loopback);
        list.extend(v6.map(|n| Interface::V6(n.index)));
        if self.only.is_empty() && self.known.iter().any(|n| n.broadcast.is_some() && !n.loopback) {
            list.push(Interface::V4(Ipv4Addr::BROADCAST));
        }
        list
    }

    /// Whether a datagram from there may be looked at.
    pub(crate) fn admits(&self, remote: IpAddr) -> bool {
        self.only.is_empty() || self.known.iter().any(|network| network.contains(remote))
    }

    /// The interface behind which an address is.
    pub(crate) fn interface_of(&self, remote: SocketAddr) -> Option<&str> {
        if let SocketAddr::V6(v6) = remote
            && v6.scope_id() != 0
        {
            return self.known.iter().find(|n| n.index == v6.scope_id()).map(|n| n.name.as_str());
        }
        // The narrowest network; the own addresses are spoken to over loopback, but belong to their interface.
        let within = self.known.iter().filter(|network| network.contains(remote.ip()));
        within.max_by_key(|network| network.prefix).map(|n| n.name.as_str())
    }

    /// Addresses for host candidates: every concrete one of a family, the loopback ones where no family has another.
    fn hosts(&self, v6: bool) -> Vec<IpAddr> {
        let usable = |n: &&Network| match n.ip {
            IpAddr::V4(ip) => !ip.is_link_local(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        let alone = !self.known.iter().filter(usable).any(|n| !n.loopback);
        let chosen = self.known.iter().filter(usable).filter(|n| n.loopback == alone && n.ip.is_ipv6() == v6);
        chosen.map(|n| n.ip).collect()
    }
}

/// Opens every socket of a node.
pub(crate) fn open(options: &Options, networks: &Networks) -> Result<Sockets, OpenError> {
    let port = options.discovery.port;
    let mut all = vec![bind(OWN_V4, (Ipv4Addr::UNSPECIFIED, 0).into(), false)?];
    let mut unheard = None;
    match bind(SHARED_V4, (Ipv4Addr::UNSPECIFIED, port).into(), true) {
        Ok(socket) => all.push(socket),
        Err(OpenError::Socket(_, error)) if error.kind() == io::ErrorKind::AddrInUse => {
            unheard = Some(format!(
                "another program holds UDP port {port} for itself, so nobody finds this host; close it, or let it share \
                 the port"
            ));
        }
        Err(error) => return Err(error),
    }
    // A system without IPv6 does without.
    all.extend(bind(OWN_V6, (Ipv6Addr::UNSPECIFIED, 0).into(), false).ok());
    all.extend(bind(SHARED_V6, (Ipv6Addr::UNSPECIFIED, port).into(), true).ok());
    let mut sessions = Vec::new();
    for (id, v6) in [(SESSION_V4, false), (SESSION_V6, true)] {
        let hosts = networks.hosts(v6);
        let Some(first) = hosts.first().copied() else { continue };
        let bound = match (hosts.as_slice(), v6) {
            ([only], _) if options.only.len() == 1 => *only,
            (_, true) => Ipv6Addr::UNSPECIFIED.into(),
            (_, false) => Ipv4Addr::UNSPECIFIED.into(),
        };
        let socket = match bind(id, (bound, options.session_port).into(), false) {
            Ok(socket) => socket,
            Err(_) if v6 && !sessions.is_empty() => continue,
            Err(error) => return Err(error),
        };
        let port = socket.local_addr().port();
        let announced = options.announce.iter().filter(|address| address.is_ipv6() == v6);
        let mut announce: Vec<SocketAddr> = announced
            .map(|address| SocketAddr::new(address.ip(), if address.port() == 0 { port } else { address.port() }))
            .collect();
        if options.announce.is_empty() {
            announce = hosts.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        }
        sessions.push(Socket { id, base: SocketAddr::new(first, port), announce, purpose: Use::Both });
        all.push(socket);
    }
    if sessions.is_empty() {
        return Err(OpenError::NoNetwork);
    }
    Ok(Sockets { all, sessions, unheard })
}

fn bind(id: SocketId, address: SocketAddr, shared: bool) -> Result<UdpSocket, OpenError> {
    UdpSocket::bind_broadcast(id, address, shared).map_err(|error| OpenError::Socket(address, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str, index: u32, ip: &str, prefix: u8) -> Network {
        let ip: IpAddr = ip.parse().unwrap();
        let broadcast = match ip {
            IpAddr::V4(ip) if prefix < 31 => Some(Ipv4Addr::from(u32::from(ip) | (u32::MAX >> prefix))),
            _ => None,
        };
        Network { name: name.to_owned(), index, ip, prefix, broadcast, loopback: name == "lo" }
    }

    fn home() -> Networks {
        let known = vec![
            network("lo", 1, "127.0.0.1", 8),
            network("lo", 1, "::1", 128),
            network("eth0", 2, "192.168.1.7", 24),
            network("eth0", 2, "fe80::7", 64),
            network("wlan0", 3, "192.168.1.8", 25),
            network("tun0", 4, "10.8.0.2", 32),
        ];
        Networks { known, only: Vec::new() }
    }

    #[test]
    fn pain_22_requests_go_into_every_network_and_to_oneself() {
        let v4 = |text: &str| Interface::V4(text.parse().unwrap());
        assert_eq!(
            home().interfaces(),
            [v4("127.255.255.255"), v4("192.168.1.255"), v4("192.168.1.127"), Interface::V6(2), v4("255.255.255.255")]
        );
        let alone = Networks { known: vec![network("lo", 1, "127.0.0.1", 8)], only: Vec::new() };
        assert_eq!(alone.interfaces(), [v4("127.255.255.255")]);
    }

    #[test]
    fn an_address_belongs_to_its_narrowest_network_or_its_scope() {
        let home = home();
        let of = |text: &str| home.interface_of(text.parse().unwrap());
        assert_eq!(of("192.168.1.20:1"), Some("wlan0"));
        assert_eq!(of("192.168.1.200:1"), Some("eth0"));
        assert_eq!(of("[fe80::9%2]:1"), Some("eth0"));
        assert_eq!(of("172.16.0.1:1"), None);
    }

    #[test]
    fn candidates_are_real_addresses_and_loopback_only_where_there_is_no_other() {
        let text = |list: Vec<IpAddr>| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(home().hosts(false)), ["192.168.1.7", "192.168.1.8", "10.8.0.2"]);
        assert_eq!(text(home().hosts(true)), [""; 0]);
        let alone = Networks { known: home().known[..2].to_vec(), only: Vec::new() };
        assert_eq!(text(alone.hosts(false)), ["127.0.0.1"]);
        assert_eq!(text(alone.hosts(true)), ["::1"]);
    }

    #[test]
    fn who_is_restricted_hears_its_own_networks_alone() {
        let only = Networks::of(&[Ipv4Addr::LOCALHOST.into()]);
        assert!(only.admits(Ipv4Addr::new(127, 0, 0, 9).into()));
        assert!(!only.admits(Ipv4Addr::new(192, 168, 1, 1).into()));
        assert_eq!(only.interfaces(), [Interface::V4(Ipv4Addr::new(127, 255, 255, 255))]);
    }
}
