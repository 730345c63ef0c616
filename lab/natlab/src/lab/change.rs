//! Where things are in a running lab, and what can be changed there: links, routers, addresses, places.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use super::Handle;
use crate::net::{self, Result};
use crate::spec::{Home, Host, Router};

/// Where hosts are that have moved, one `HOST HOME ADDRESS` a line; of one host, the last line holds.
const MOVED: &str = "moved";

/// What has crossed the link of a home, carrier or server; `up` leaves it. Losses are those of the link itself: what a
/// NAT refuses is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// IP packets that left.
    pub up_packets: u64,
    /// Their bytes, IP headers included.
    pub up_bytes: u64,
    /// Packets that were lost on the way out, by chance or from a full queue.
    pub up_lost: u64,
    /// IP packets that came.
    pub down_packets: u64,
    /// Their bytes, IP headers included.
    pub down_bytes: u64,
    /// Packets that were lost on the way in.
    pub down_lost: u64,
}

impl Handle {
    /// The address of a server or host now, as its neighbours see it.
    pub fn ip(&self, node: &str) -> Result<Ipv4Addr> {
        match self.moved().into_iter().rev().find(|m| m.host == node) {
            Some(moved) => Ok(moved.ip),
            None => self.topology.ip(node).ok_or_else(|| self.no_node(node)),
        }
    }

    /// The address under which the public segment sees a host now.
    pub fn public_ip(&self, host: &str) -> Result<IpAddr> {
        let home = self.home_of(host)?;
        let translated = match &home.router {
            Router::Open => false,
            Router::Lab(nat) => nat.translate,
            Router::Kernel(_) => true,
        };
        if !translated {
            return self.ip(host).map(IpAddr::V4);
        }
        let edge = home.carrier.as_ref().unwrap_or(&home.name);
        match self.word(edge, "wan")?.as_str() {
            // The kernel's NAT has one address for good.
            "-" => Ok(IpAddr::V4(home.wan)),
            ip => ip.parse().map_err(|_| format!("'{ip}' is no address")),
        }
    }

    /// Changes a link or a router while it runs, by the keys of the topology: `set("a", "loss=5% delay=80ms")`,
    /// `set("a", "link=down")`, `set("a", "filter=address-port")`, `set("alan.lan", "rate=1mbit")`.
    pub fn set(&self, name: &str, keys: &str) -> Result<()> {
        self.control(&format!("set {name} {keys}")).map(drop)
    }

    /// A router restarts: its mappings and UPnP forwards are gone. One that keeps ports will choose the same again.
    pub fn restart(&self, home: &str) -> Result<()> {
        self.control(&format!("reset {home}")).map(drop)
    }

    /// A router forgets its mappings and from now on chooses outside ports at random: the next packet of every flow
    /// comes from the same address and another port, as happens when a mapping has run out.
    pub fn rebind(&self, home: &str) -> Result<()> {
        self.set(home, "ports=random")?;
        self.restart(home)
    }

    /// A router gets another public address, which is answered. Its mappings are gone.
    pub fn renumber(&self, home: &str) -> Result<Ipv4Addr> {
        let ip = self.control(&format!("renumber {home}"))?;
        ip.trim().parse().map_err(|_| format!("'{ip}' is no address"))
    }

    /// Plugs a host into another home's network, as when a player goes from Wi-Fi to a phone: another address inside,
    /// which is answered, another router, another address outside. Its programs and sockets live on. The same home
    /// again means a new address there. IPv4 only; a host with a link of its own stays where it is.
    pub fn roam(&self, host: &str, home: &str) -> Result<Ipv4Addr> {
        let topology = &self.topology;
        let known = topology.hosts().find(|h| h.name == host).ok_or_else(|| self.no_node(host))?;
        if known.link.is_some() {
            return Err(format!("'{host}' has a link of its own, so it cannot move"));
        }
        let to = self.home(home)?;
        let moved = self.moved();
        let ip = free_address(to, &moved).ok_or_else(|| format!("'{home}' has no room for another host"))?;
        let device = format!("roam{}", moved.len());
        let (inside, router) = (net::namespace(&self.name, host), net::namespace(&self.name, &to.router_node()));
        let step = |node: &str, lines: String| self.inside(node, || net::ip_batch(&lines))?;
        step(host, "link del eth0\n".to_owned())?;
        net::ip_batch(&format!("link add name {device} netns {router} type veth peer name eth0 netns {inside}\n"))?;
        step(&to.router_node(), format!("link set {device} master br0 up\n"))?;
        let (len, gateway) = (to.lan_len, to.gateway());
        step(
            host,
            format!("link set eth0 up\naddr add {ip}/{len} broadcast + dev eth0\nroute add 0.0.0.0/0 via {gateway}\n"),
        )?;
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(MOVED))
            .map_err(|e| format!("cannot note where '{host}' is: {e}"))?;
        writeln!(file, "{host} {home} {ip}").map_err(|e| format!("cannot note where '{host}' is: {e}"))?;
        Ok(ip)
    }

    /// What has crossed the link of a home, carrier or server.
    pub fn traffic(&self, name: &str) -> Result<Traffic> {
        let number = |word: &str| -> Result<u64> { Ok(self.word(name, word)?.parse().unwrap_or(0)) };
        Ok(Traffic {
            up_packets: number("up_packets")?,
            up_bytes: number("up_bytes")?,
            up_lost: number("up_lost")? + number("up_overflowed")?,
            down_packets: number("down_packets")?,
            down_bytes: number("down_bytes")?,
            down_lost: number("down_lost")? + number("down_overflowed")?,
        })
    }

    /// The home in which a host is now.
    pub(crate) fn home_of(&self, host: &str) -> Result<&Home> {
        match self.moved().into_iter().rev().find(|m| m.host == host) {
            Some(moved) => self.home(&moved.home),
            None => self.topology.home_of(host).ok_or_else(|| self.no_node(host)),
        }
    }

    fn home(&self, name: &str) -> Result<&Home> {
        let known = || -> Vec<&str> { self.topology.homes.iter().map(|h| h.name.as_str()).collect() };
        let found = self.topology.homes.iter().find(|h| h.name == name);
        found.ok_or_else(|| crate::spec::unknown("home", name, &known()))
    }

    fn no_node(&self, name: &str) -> String {
        let nodes = self.topology.nodes();
        let known: Vec<&str> = nodes.iter().map(String::as_str).collect();
        crate::spec::unknown("node", name, &known)
    }

    /// A word of a line of `status`.
    fn word(&self, name: &str, key: &str) -> Result<String> {
        let status = self.control("status")?;
        let line = status
            .lines()
            .find(|l| l.split(' ').next() == Some(name))
            .ok_or_else(|| format!("there is no home, carrier or server '{name}'"))?;
        let value = line.split(' ').find_map(|w| w.strip_prefix(key)?.strip_prefix('='));
        Ok(value.unwrap_or("-").to_owned())
    }

    fn moved(&self) -> Vec<Moved> {
        let text = fs::read_to_string(self.dir.join(MOVED)).unwrap_or_default();
        text.lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some(Moved {
                    host: words.next()?.to_owned(),
                    home: words.next()?.to_owned(),
                    ip: words.next()?.parse().ok()?,
                })
            })
            .collect()
    }
}

struct Moved {
    host: String,
    home: String,
    ip: Ipv4Addr,
}

/// From the top of the home's network, one that nobody there ever had: an address that comes back would be no change.
fn free_address(home: &Home, moved: &[Moved]) -> Option<Ipv4Addr> {
    let size = 1u32.checked_shl(32 - u32::from(home.lan_len))?;
    let taken = |ip: Ipv4Addr| {
        home.hosts.iter().any(|h: &Host| h.ip == ip) || moved.iter().any(|m| m.home == home.name && m.ip == ip)
    };
    (2..size - 1).rev().map(|n| Ipv4Addr::from(u32::from(home.lan) + n)).find(|ip| !taken(*ip))
}
