//! The topology language: one line a part, `key=value` words.

mod parse;
#[cfg(test)]
mod tests;
mod words;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::LinkConfig;
use crate::nat::NatConfig;

pub(crate) use parse::expand;
pub(crate) use words::{set_link, set_nat, unknown};

/// The two directions of a link, seen from the part that it belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkPair {
    pub(crate) up: LinkConfig,
    pub(crate) down: LinkConfig,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) addrs: Vec<Ipv4Addr>,
    pub(crate) v6: Ipv6Addr,
    pub(crate) link: LinkPair,
    pub(crate) stun: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    pub(crate) name: String,
    pub(crate) wan: Ipv4Addr,
    pub(crate) net: Ipv4Addr,
    pub(crate) nat: NatConfig,
    /// Subscribers reach each other's carrier-side addresses.
    pub(crate) local: bool,
    pub(crate) link: LinkPair,
}

#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) v6: Option<Ipv6Addr>,
    pub(crate) link: Option<LinkPair>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelNat {
    /// nftables masquerade: keeps ports where it can.
    Masquerade,
    /// nftables masquerade with random ports.
    Random,
}

#[derive(Clone, Debug)]
pub(crate) enum Router {
    /// Routed public addresses, no NAT.
    Open,
    /// The lab's own NAT.
    Lab(NatConfig),
    /// The kernel's NAT in the router's namespace.
    Kernel(KernelNat),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upnp {
    No,
    /// The lab's responder, version 1 or 2 of the device.
    Version(u8),
    /// Refuses leases other than permanent ones (error 725).
    Permanent,
    /// Answers discovery but refuses every mapping (error 606).
    Refuse,
    /// Refuses TCP mappings (error 606).
    UdpOnly,
    /// Reports success and does nothing.
    Lie,
    /// Debian's miniupnpd, with a kernel router.
    Miniupnpd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum V6 {
    No,
    Open,
    Firewall,
}

#[derive(Clone, Debug)]
pub(crate) struct ForwardSpec {
    pub(crate) proto: u8,
    pub(crate) outside: u16,
    pub(crate) host: String,
    pub(crate) inside: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) wan: Ipv4Addr,
    pub(crate) lan: Ipv4Addr,
    pub(crate) lan_len: u8,
    pub(crate) carrier: Option<String>,
    pub(crate) router: Router,
    pub(crate) hosts: Vec<Host>,
    pub(crate) upnp: Upnp,
    pub(crate) natpmp: bool,
    pub(crate) v6: V6,
    pub(crate) v6_net: Ipv6Addr,
    pub(crate) mtu: u32,
    pub(crate) link: LinkPair,
    pub(crate) forwards: Vec<ForwardSpec>,
}

impl Home {
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        plus(self.lan, 1)
    }

    pub(crate) fn router_node(&self) -> String {
        format!("{}.router", self.name)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Vlan {
    pub(crate) name: String,
    pub(crate) net: Ipv4Addr,
    pub(crate) len: u8,
    pub(crate) broadcast: bool,
    pub(crate) mtu: u32,
    pub(crate) members: Vec<(String, Ipv4Addr)>,
    pub(crate) link: LinkPair,
}

/// What stands where, and how it behaves.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) seed: u64,
    /// Who speaks for the public segment itself, in ICMP errors.
    pub(crate) core: Ipv4Addr,
    pub(crate) servers: Vec<Server>,
    pub(crate) carriers: Vec<Carrier>,
    pub(crate) homes: Vec<Home>,
    pub(crate) vlans: Vec<Vlan>,
}

/// The first group of the lab's IPv6 addresses. Programs hold addresses of the documentation blocks for no addresses; these
/// were an experiment's and are nobody's now (RFC 3701).
pub(crate) const V6_LAB: u16 = 0x3ffe;

pub(crate) const STUN_PORTS: [u16; 2] = [3478, 3479];

/// The kinds, in the order in which they are shown.
pub(crate) const KINDS: &[(&str, &str)] = &[
    ("open", "public addresses, no NAT, no filter"),
    ("firewall", "public addresses behind a stateful firewall"),
    ("full-cone", "EIM, EIF, ports kept"),
    ("restricted-cone", "EIM, address-dependent filter, ports kept"),
    ("port-restricted", "EIM, address-and-port-dependent filter, ports kept"),
    ("symmetric", "APDM, APDF, random ports"),
    ("symmetric-seq", "APDM, APDF, each mapping takes the next port"),
    ("cgnat", "port-restricted home router behind a carrier NAT"),
    ("udp-blocked", "port-restricted for TCP, no UDP leaves"),
    ("web-only", "as udp-blocked, and TCP to ports 80 and 443 only"),
    ("linux", "the kernel's masquerade: ports kept where possible"),
    ("linux-random", "the kernel's masquerade with random ports"),
];

fn plus(ip: Ipv4Addr, n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(ip).wrapping_add(n))
}

impl Topology {
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.homes.iter().flat_map(|h| h.hosts.iter())
    }

    pub(crate) fn home_of(&self, host: &str) -> Option<&Home> {
        self.homes.iter().find(|h| h.hosts.iter().any(|x| x.name == host))
    }

    /// Every namespace of the lab.
    pub fn nodes(&self) -> Vec<String> {
        let mut all: Vec<String> = self.servers.iter().map(|s| s.name.clone()).collect();
        for h in &self.homes {
            all.push(h.router_node());
            all.extend(h.hosts.iter().map(|x| x.name.clone()));
        }
        all
    }

    /// The address of a server or host, as its neighbours see it.
    pub fn ip(&self, node: &str) -> Option<Ipv4Addr> {
        if let Some(s) = self.servers.iter().find(|s| s.name == node) {
            return s.addrs.first().copied();
        }
        if let Some(h) = self.hosts().find(|h| h.name == node) {
            return Some(h.ip);
        }
        self.homes.iter().find(|h| h.router_node() == node).map(Home::gateway)
    }

    /// The IPv6 address of a server or host.
    pub fn v6(&self, node: &str) -> Option<Ipv6Addr> {
        if let Some(s) = self.servers.iter().find(|s| s.name == node) {
            return Some(s.v6);
        }
        self.hosts().find(|h| h.name == node)?.v6
    }

    /// The address under which the public segment sees a host.
    pub fn public_ip(&self, host: &str) -> Option<IpAddr> {
        let home = self.home_of(host)?;
        Some(IpAddr::V4(match (&home.carrier, &home.router) {
            (Some(c), _) => self.carriers.iter().find(|x| x.name == *c)?.wan,
            (None, Router::Open) => self.ip(host)?,
            (None, Router::Lab(n)) if !n.translate => self.ip(host)?,
            _ => home.wan,
        }))
    }

    /// `/etc/hosts` for the whole lab: servers by name, and `.lab` behind it.
    pub(crate) fn hosts_file(&self) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for s in &self.servers {
            for (i, a) in s.addrs.iter().enumerate() {
                let n = if i == 0 { String::new() } else { (i + 1).to_string() };
                text += &format!("{a} {0}{n}.lab {0}{n}\n", s.name);
            }
        }
        text
    }
}
