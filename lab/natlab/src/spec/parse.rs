//! From lines to a topology.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::words::{LINK_KEYS, NAT_KEYS, Words, name_ok, number, set_link, set_nat, subnet, unknown, yes};
use super::{
    Carrier, ForwardSpec, Home, Host, KINDS, KernelNat, LinkPair, Router, Server, Topology, Upnp, V6, V6_LAB, Vlan,
    plus,
};
use crate::nat::{Dependence, NatConfig, Ports};
use crate::net::Result;
use crate::packet;

fn preset(kind: &str) -> Option<Router> {
    use Dependence::{Address, AddressPort, Independent};
    let base = NatConfig::default();
    let nat = |mapping, filtering, ports| Router::Lab(NatConfig { mapping, filtering, ports, ..base.clone() });
    Some(match kind {
        "open" => Router::Open,
        "firewall" => Router::Lab(NatConfig { translate: false, ..base }),
        "full-cone" => nat(Independent, Independent, Ports::Preserve),
        "restricted-cone" => nat(Independent, Address, Ports::Preserve),
        "port-restricted" | "cgnat" => nat(Independent, AddressPort, Ports::Preserve),
        "symmetric" => nat(AddressPort, AddressPort, Ports::Random),
        "symmetric-seq" => nat(AddressPort, AddressPort, Ports::Sequential),
        "udp-blocked" => Router::Lab(NatConfig { udp: false, ..base }),
        "web-only" => Router::Lab(NatConfig { udp: false, tcp_ports: Some(vec![80, 443]), ..base }),
        "linux" => Router::Kernel(KernelNat::Masquerade),
        "linux-random" => Router::Kernel(KernelNat::Random),
        _ => return None,
    })
}

struct Pools {
    home_net: (Ipv4Addr, u8),
    server_net: (Ipv4Addr, u8),
    open_net: (Ipv4Addr, u8),
    home: u32,
    server: u32,
    open: u32,
    carrier: u32,
    lan: u32,
    v6: u16,
    subscriber: HashMap<String, u32>,
}

// These must look public: UPnP clients and daemons take a router whose outside
// address is private, shared or kept for documents (192.0.2.0/24 and so on) for
// one without internet. Nothing real is ever reached: the namespaces have no
// way out of the lab.
const SERVER_NET: Ipv4Addr = Ipv4Addr::new(44, 128, 0, 0);
const HOME_NET: Ipv4Addr = Ipv4Addr::new(44, 128, 1, 0);
const OPEN_NET: Ipv4Addr = Ipv4Addr::new(44, 128, 2, 0);
const CARRIER_NET: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);

fn room((_, len): (Ipv4Addr, u8)) -> u32 {
    (1u32 << (32 - u32::from(len))) - 2
}

/// The next free outside address of a home or carrier.
fn next_home_ip(pools: &mut Pools, taken: &[Ipv4Addr]) -> Result<Ipv4Addr> {
    loop {
        if pools.home > room(pools.home_net) {
            return Err(format!(
                "too many homes for {}/{} (choose a larger one with 'pool homes=…')",
                pools.home_net.0, pools.home_net.1
            ));
        }
        let ip = plus(pools.home_net.0, pools.home);
        pools.home += 1;
        if !taken.contains(&ip) {
            return Ok(ip);
        }
    }
}

impl Pools {
    /// `pool homes=NET servers=NET open=NET`.
    fn set(&mut self, words: &[&str]) -> Result<()> {
        for (k, v) in Words::new(words).0 {
            let net = subnet(v)?;
            if net.1 > 24 {
                return Err(format!("a pool is a /24 or larger, not {v}"));
            }
            match k {
                "homes" => self.home_net = net,
                "servers" => self.server_net = net,
                "open" => self.open_net = net,
                _ => return Err(unknown("key", k, &["homes", "servers", "open"])),
            }
        }
        Ok(())
    }
}

fn upnp(w: &mut Words, router: &Router) -> Result<Upnp> {
    let upnp = match w.take("upnp") {
        None => Upnp::No,
        Some("v2") => Upnp::Version(2),
        Some("permanent") => Upnp::Permanent,
        Some("refuse") => Upnp::Refuse,
        Some("udp-only") => Upnp::UdpOnly,
        Some("lie") => Upnp::Lie,
        Some("miniupnpd") => Upnp::Miniupnpd,
        Some("v1") => Upnp::Version(1),
        Some(v) => match yes(v) {
            Ok(true) if matches!(router, Router::Kernel(_)) => Upnp::Miniupnpd,
            Ok(true) => Upnp::Version(1),
            Ok(false) => Upnp::No,
            Err(_) => {
                return Err(format!(
                    "upnp is yes, no, v1, v2, permanent, refuse, udp-only, lie or miniupnpd, not '{v}'"
                ));
            }
        },
    };
    match (router, upnp) {
        (Router::Open, u) if u != Upnp::No => Err("a router of kind open has nothing to map".into()),
        (Router::Kernel(_), u) if !matches!(u, Upnp::No | Upnp::Miniupnpd) => {
            Err("a kernel router takes upnp=miniupnpd only".into())
        }
        (Router::Lab(_), Upnp::Miniupnpd) => Err("upnp=miniupnpd needs kind=linux or kind=linux-random".into()),
        _ => Ok(upnp),
    }
}

fn v6(w: &mut Words, router: &Router) -> Result<V6> {
    let v6 = match w.take("ipv6") {
        None => V6::No,
        Some("open") => V6::Open,
        Some("firewall") => V6::Firewall,
        Some(v) if yes(v) == Ok(false) => V6::No,
        Some(v) if yes(v) == Ok(true) => V6::Firewall,
        Some(v) => return Err(format!("ipv6 is no, open or firewall, not '{v}'")),
    };
    if v6 != V6::No && matches!(router, Router::Kernel(_)) {
        return Err("ipv6 needs one of the lab's own routers".into());
    }
    Ok(v6)
}

/// The network inside a home.
fn lan(public: bool, w: &mut Words, pools: &mut Pools) -> Result<(Ipv4Addr, u8)> {
    if let Some(text) = w.take("lan") {
        return subnet(text);
    }
    if !public {
        pools.lan += 1;
        return Ok((Ipv4Addr::new(192, 168, ((pools.lan - 1) % 256) as u8, 0), 24));
    }
    if (pools.open + 1) * 16 > room(pools.open_net) + 2 {
        return Err("too many homes with public hosts (choose a larger 'pool open=…')".into());
    }
    pools.open += 1;
    Ok((plus(pools.open_net.0, (pools.open - 1) * 16), 28))
}

fn hosts_of(names: &[&str], (lan, len): (Ipv4Addr, u8), v6: Option<Ipv6Addr>) -> Result<Vec<Host>> {
    let room = (1u64 << (32 - len)) - 3;
    if names.len() as u64 > room {
        return Err(format!("{} hosts do not fit into a /{len}", names.len()));
    }
    let host = |(i, name): (usize, &&str)| {
        name_ok(name)?;
        let n = i as u32 + 2;
        let v6 = v6.map(|net| {
            let mut o = net.segments();
            o[7] = n as u16;
            Ipv6Addr::from(o)
        });
        Ok(Host { name: (*name).into(), ip: plus(lan, n), v6, link: None })
    };
    names.iter().enumerate().map(host).collect()
}

fn forwards(list: &str, router: &Router, hosts: &[Host]) -> Result<Vec<ForwardSpec>> {
    let mut all = Vec::new();
    for item in list.split(',') {
        let parts: Vec<&str> = item.split(':').collect();
        let [proto, outside, host, inside] = parts[..] else {
            return Err(format!("'{item}' is no forward (write udp:19132:alice:19132)"));
        };
        all.push(ForwardSpec {
            proto: match proto {
                "udp" => packet::UDP,
                "tcp" => packet::TCP,
                _ => return Err(format!("a forward is udp or tcp, not '{proto}'")),
            },
            outside: number(outside, "port")?,
            host: host.into(),
            inside: number(inside, "port")?,
        });
    }
    if !matches!(router, Router::Lab(_)) {
        return Err("forward needs one of the lab's own routers".into());
    }
    match all.iter().find(|f| !hosts.iter().any(|h| h.name == f.host)) {
        Some(f) => Err(format!("a forward names '{}', who is not in this home", f.host)),
        None => Ok(all),
    }
}

/// Sets a key of a home's own NAT.
fn home_key(router: &mut Router, kind: &str, key: &str, value: &str) -> Result<()> {
    let known = match router {
        Router::Lab(nat) => set_nat(nat, key, value)?,
        _ if NAT_KEYS.contains(&key) => {
            return Err(format!("'{key}' cannot be chosen for a router of kind {kind}"));
        }
        _ => false,
    };
    if known { Ok(()) } else { Err(unknown("key", key, &[HOME_KEYS, LINK_KEYS, NAT_KEYS].concat())) }
}

const HOME_KEYS: &[&str] = &[
    "kind",
    "hosts",
    "via",
    "ip",
    "lan",
    "upnp",
    "natpmp",
    "ipv6",
    "mtu",
    "forward",
    "carrier-kind",
    "carrier-hairpin",
];

impl Topology {
    /// Parses a topology. The STUN pair and the servers `master` and `relay`
    /// are always there; a `server` line with one of these names changes it.
    pub fn parse(text: &str) -> Result<Topology> {
        let mut t = Topology {
            seed: 1,
            core: SERVER_NET,
            servers: Vec::new(),
            carriers: Vec::new(),
            homes: Vec::new(),
            vlans: Vec::new(),
        };
        let mut pools = Pools {
            home_net: (HOME_NET, 24),
            server_net: (SERVER_NET, 24),
            open_net: (OPEN_NET, 24),
            home: 2,
            server: 12,
            open: 0,
            carrier: 0,
            lan: 1,
            v6: 1,
            subscriber: HashMap::new(),
        };
        let mut lines: Vec<(usize, Vec<&str>)> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("");
            let words: Vec<&str> = line.split_whitespace().collect();
            if !words.is_empty() {
                lines.push((i + 1, words));
            }
        }
        for (number, words) in lines.iter().filter(|(_, w)| w[0] == "pool") {
            pools.set(&words[1..]).map_err(|e| format!("line {number}: {e}"))?;
        }
        t.core = plus(pools.server_net.0, 1);
        for (name, last, stun) in [("stun", 2, true), ("master", 10, false), ("relay", 11, false)] {
            let first = plus(pools.server_net.0, last);
            t.servers.push(Server {
                name: name.into(),
                addrs: if stun { vec![first, plus(first, 1)] } else { vec![first] },
                v6: server_v6(last as u16),
                link: LinkPair::default(),
                stun,
            });
        }
        // Carriers first, then homes, then what refers to hosts.
        for wanted in [&["seed", "server"][..], &["carrier"], &["home"], &["host", "vlan"]] {
            for (number, words) in &lines {
                if !wanted.contains(&words[0]) {
                    continue;
                }
                t.line(words, &mut pools).map_err(|e| format!("line {number}: {e}"))?;
            }
        }
        for (number, words) in &lines {
            let known = ["seed", "pool", "server", "carrier", "home", "host", "vlan"];
            if !known.contains(&words[0]) {
                return Err(format!("line {number}: {}", unknown("part", words[0], &known)));
            }
        }
        t.check()?;
        Ok(t)
    }

    fn line(&mut self, words: &[&str], pools: &mut Pools) -> Result<()> {
        let name = *words.get(1).ok_or_else(|| format!("{} needs a name", words[0]))?;
        let rest = Words::new(&words[2..]);
        match words[0] {
            "seed" => {
                self.seed = number(name, "seed")?;
                Ok(())
            }
            "server" => self.server(name, rest, pools),
            "carrier" => self.carrier(name, rest, pools),
            "home" => self.home(name, rest, pools),
            "host" => self.host_line(name, rest),
            "vlan" => self.vlan(name, rest),
            _ => Ok(()),
        }
    }

    fn server(&mut self, name: &str, mut w: Words, pools: &mut Pools) -> Result<()> {
        name_ok(name)?;
        let ip = w.take("ip");
        let at = match self.servers.iter().position(|s| s.name == name) {
            Some(at) => at,
            None => {
                if pools.server > room(pools.server_net) {
                    return Err("too many servers (choose a larger 'pool servers=…')".into());
                }
                self.servers.push(Server {
                    name: name.into(),
                    addrs: vec![plus(pools.server_net.0, pools.server)],
                    v6: server_v6(pools.server as u16),
                    link: LinkPair::default(),
                    stun: false,
                });
                pools.server += 1;
                self.servers.len() - 1
            }
        };
        let s = &mut self.servers[at];
        if let Some(ip) = ip {
            let addrs: Result<Vec<Ipv4Addr>> = ip.split(',').map(|a| number(a, "IPv4 address")).collect();
            s.addrs = addrs?;
            if s.stun && s.addrs.len() != 2 {
                return Err("the stun server needs two addresses".into());
            }
        }
        for (k, v) in w.0 {
            if !set_link(&mut s.link, k, v)? {
                return Err(unknown("key", k, &[&["ip"], LINK_KEYS].concat()));
            }
        }
        Ok(())
    }

    fn carrier(&mut self, name: &str, mut w: Words, pools: &mut Pools) -> Result<()> {
        name_ok(name)?;
        if self.carriers.iter().any(|c| c.name == name) {
            return Err(format!("there are two carriers '{name}'"));
        }
        let kind = w.take("kind").unwrap_or("port-restricted");
        let mut nat = match preset(kind) {
            Some(Router::Lab(mut nat)) if nat.translate => {
                if nat.ports == Ports::Preserve {
                    nat.ports = Ports::Random;
                }
                nat
            }
            _ => return Err(format!("a carrier cannot be of kind '{kind}'")),
        };
        let wan = match w.take("ip") {
            Some(ip) => number(ip, "IPv4 address")?,
            None => next_home_ip(pools, &self.outside())?,
        };
        let local = w.take("local").map_or(Ok(false), yes)?;
        let mut link = LinkPair::default();
        for (k, v) in w.0 {
            if !set_link(&mut link, k, v)? && !set_nat(&mut nat, k, v)? {
                let known = [&["kind", "ip", "local"], LINK_KEYS, NAT_KEYS].concat();
                return Err(unknown("key", k, &known));
            }
        }
        let net = plus(CARRIER_NET, pools.carrier << 16);
        pools.carrier += 1;
        self.carriers.push(Carrier { name: name.into(), wan, net, nat, local, link });
        Ok(())
    }

    fn outside(&self) -> Vec<Ipv4Addr> {
        let homes = self.homes.iter().map(|h| h.wan);
        homes.chain(self.carriers.iter().map(|c| c.wan)).collect()
    }

    fn home(&mut self, name: &str, mut w: Words, pools: &mut Pools) -> Result<()> {
        name_ok(name)?;
        if self.homes.iter().any(|h| h.name == name) {
            return Err(format!("there are two homes '{name}'"));
        }
        let kind = w.take("kind").unwrap_or("port-restricted");
        let names: Vec<&str> = KINDS.iter().map(|(k, _)| *k).collect();
        let mut router = preset(kind).ok_or_else(|| unknown("kind", kind, &names))?;
        let carrier = self.carrier_of(name, kind, &mut w, pools)?;
        let upnp = upnp(&mut w, &router)?;
        let public = matches!(&router, Router::Open) || matches!(&router, Router::Lab(n) if !n.translate);
        if public && carrier.is_some() {
            return Err(format!("a home of kind {kind} cannot be behind a carrier"));
        }
        let wan = self.wan(carrier.as_deref(), &mut w, pools)?;
        let (lan, lan_len) = lan(public, &mut w, pools)?;
        let natpmp = w.take("natpmp").map_or(Ok(false), yes)?;
        if natpmp && !matches!(router, Router::Lab(_)) {
            return Err(format!(
                "natpmp needs one of the lab's own routers, not kind {kind} (miniupnpd brings its own)"
            ));
        }
        let v6 = v6(&mut w, &router)?;
        let mtu = w.take("mtu").map_or(Ok(1500), |m| number(m, "MTU"))?;
        if !(576..=9000).contains(&mtu) || (v6 != V6::No && mtu < 1280) {
            return Err(format!("an MTU of {mtu} is out of range"));
        }
        let v6_net = Ipv6Addr::new(V6_LAB, 0, 1, pools.v6, 0, 0, 0, 0);
        pools.v6 += 1;
        let hosts: Vec<&str> = w.take("hosts").unwrap_or(name).split(',').collect();
        let hosts = hosts_of(&hosts, (lan, lan_len), (v6 != V6::No).then_some(v6_net))?;
        let forwards = w.take("forward").map_or(Ok(Vec::new()), |list| forwards(list, &router, &hosts))?;
        let mut link = LinkPair::default();
        for (k, v) in w.0 {
            if !set_link(&mut link, k, v)? {
                home_key(&mut router, kind, k, v)?;
            }
        }
        self.homes.push(Home {
            name: name.into(),
            kind: kind.into(),
            wan,
            lan,
            lan_len,
            carrier,
            router,
            hosts,
            upnp,
            natpmp,
            v6,
            v6_net,
            mtu,
            link,
            forwards,
        });
        Ok(())
    }

    /// The carrier that `via` names, or the one that kind `cgnat` brings.
    fn carrier_of(&mut self, home: &str, kind: &str, w: &mut Words, pools: &mut Pools) -> Result<Option<String>> {
        let via = w.take("via").map(str::to_string);
        if kind != "cgnat" || via.is_some() {
            return Ok(via);
        }
        let own = format!("{home}-isp");
        let mut words = Words(Vec::new());
        for (from, to) in [("carrier-kind", "kind"), ("carrier-hairpin", "hairpin")] {
            if let Some(v) = w.take(from) {
                words.0.push((to, v));
            }
        }
        self.carrier(&own, words, pools)?;
        Ok(Some(own))
    }

    /// A home's outside address: its carrier's to give, or a public one.
    fn wan(&self, carrier: Option<&str>, w: &mut Words, pools: &mut Pools) -> Result<Ipv4Addr> {
        let asked = w.take("ip").map(|ip| number(ip, "IPv4 address")).transpose()?;
        let Some(name) = carrier else {
            return asked.map_or_else(|| next_home_ip(pools, &self.outside()), Ok);
        };
        let found = self.carriers.iter().find(|x| x.name == name);
        let carrier = found.ok_or_else(|| format!("there is no carrier '{name}'"))?;
        let next = pools.subscriber.entry(name.to_owned()).or_insert(2);
        let ip = asked.unwrap_or_else(|| plus(carrier.net, *next));
        *next += 1;
        Ok(ip)
    }

    /// `host NAME delay=…`: the host's own link inside its home.
    fn host_line(&mut self, name: &str, w: Words) -> Result<()> {
        let host = self
            .homes
            .iter_mut()
            .flat_map(|h| h.hosts.iter_mut())
            .find(|h| h.name == name)
            .ok_or_else(|| format!("there is no host '{name}'"))?;
        let mut link = LinkPair::default();
        for (k, v) in w.0 {
            if !set_link(&mut link, k, v)? {
                return Err(unknown("key", k, LINK_KEYS));
            }
        }
        host.link = Some(link);
        Ok(())
    }

    fn vlan(&mut self, name: &str, mut w: Words) -> Result<()> {
        name_ok(name)?;
        if name.len() > 15 || ["eth0", "lo", "wan0"].contains(&name) {
            return Err(format!("'{name}' cannot be a vlan: it names the interface (15 letters at most)"));
        }
        if self.vlans.iter().any(|v| v.name == name) {
            return Err(format!("there are two vlans '{name}'"));
        }
        let (net, len) = subnet(w.take("net").unwrap_or("25.0.0.0/8"))?;
        let broadcast = w.take("broadcast").map_or(Ok(true), yes)?;
        let mtu = w.take("mtu").map_or(Ok(1400), |m| number(m, "MTU"))?;
        let hosts = w.take("hosts").ok_or("a vlan needs hosts=")?;
        let mut members = Vec::new();
        for (i, h) in hosts.split(',').enumerate() {
            if !self.hosts().any(|x| x.name == h) {
                return Err(format!("there is no host '{h}'"));
            }
            // Spread over the subnet, as such networks do.
            let span = (1u64 << (32 - len)) - 2;
            let n = 1 + (0x0001_6d2b_u64 * (i as u64 + 1)) % span;
            let ip = plus(net, n as u32);
            if members.iter().any(|(_, other)| *other == ip) {
                return Err(format!("too many hosts for a /{len}"));
            }
            members.push((h.to_string(), ip));
        }
        let mut link = LinkPair::default();
        for (k, v) in w.0 {
            if !set_link(&mut link, k, v)? {
                let own = ["net", "hosts", "broadcast", "mtu"];
                return Err(unknown("key", k, &[&own, LINK_KEYS].concat()));
            }
        }
        self.vlans.push(Vlan { name: name.into(), net, len, broadcast, mtu, members, link });
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let mut seen: HashMap<String, &str> = HashMap::new();
        let mut add = |name: String, what| match seen.insert(name.clone(), what) {
            Some(other) => Err(format!("'{name}' names a {what} and a {other}")),
            None => Ok(()),
        };
        for s in &self.servers {
            add(s.name.clone(), "server")?;
        }
        for c in &self.carriers {
            add(c.name.clone(), "carrier")?;
        }
        for h in self.hosts() {
            add(h.name.clone(), "host")?;
        }
        for h in &self.homes {
            if let Some(what) = seen.get(&h.name) {
                if *what != "host" {
                    return Err(format!("'{}' names a home and a {what}", h.name));
                }
                if !h.hosts.iter().any(|x| x.name == h.name) {
                    return Err(format!("'{}' names a home and a host of another home", h.name));
                }
            }
        }
        let mut outside = HashMap::new();
        let servers = self.servers.iter().flat_map(|s| s.addrs.iter().map(move |a| (*a, s.name.clone())));
        let homes = self.homes.iter().map(|h| (h.wan, h.name.clone()));
        let carriers = self.carriers.iter().map(|c| (c.wan, c.name.clone()));
        for (ip, name) in servers.chain(homes).chain(carriers) {
            if let Some(other) = outside.insert(ip, name.clone()) {
                return Err(format!("'{name}' and '{other}' have the same address {ip}"));
            }
        }
        Ok(())
    }
}

fn server_v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(V6_LAB, 0, 0, 0, 0, 0, 0, last)
}

/// Expands `NAME=KIND[,key=value…]`, the short form of a home with one host.
pub(crate) fn expand(argument: &str) -> String {
    let first = argument.split_whitespace().next().unwrap_or("");
    if argument.contains(char::is_whitespace) || !first.contains('=') {
        return argument.to_string();
    }
    let (name, rest) = first.split_once('=').unwrap_or((first, ""));
    let mut words = rest.split(',');
    let kind = words.next().unwrap_or("");
    format!("home {name} kind={kind} {}", words.collect::<Vec<_>>().join(" "))
}
