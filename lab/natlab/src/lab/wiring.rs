//! From a topology to the data plane and the services beside it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Lab;
use crate::igd::Igd;
use crate::link::{LinkConfig, Pipe};
use crate::nat::{Forward, Hairpin, Nat, NatConfig};
use crate::net::Result;
use crate::plane::{Core, Domain, Inside, Port, SharedNat, Switch, SwitchPort, Wire, lock};
use crate::rng::Rng;
use crate::spec::{Home, LinkPair, Router, STUN_PORTS, Upnp, V6};
use crate::stun;

/// What the topology forwards, for good.
fn add_forwards(home: &Home, nat: &SharedNat) -> Result<()> {
    for f in &home.forwards {
        let Some(host) = home.hosts.iter().find(|h| h.name == f.host) else {
            continue;
        };
        let forward = Forward {
            proto: f.proto,
            outside_port: f.outside,
            inside: SocketAddr::new(IpAddr::V4(host.ip), f.inside),
            remote: None,
            expires: None,
            description: "from the topology".into(),
            fixed: true,
        };
        lock(nat)
            .add_forward(forward, Instant::now())
            .map_err(|_| format!("two forwards of {} use port {}", home.name, f.outside))?;
    }
    Ok(())
}

impl Lab {
    pub(super) fn data_plane(
        &self,
        devices: &mut HashMap<(String, String), OwnedFd>,
    ) -> Result<(Core, HashMap<String, SharedNat>)> {
        let t = &self.topology;
        let mut take = |node: &str, device: &str| {
            devices
                .remove(&(node.to_string(), device.to_string()))
                .ok_or_else(|| format!("{node} has no device {device}"))
        };
        let shared = |cfg: &NatConfig, wan: Ipv4Addr, name: &str| {
            let rng = Rng::named(t.seed, &format!("{name} nat"));
            Arc::new(Mutex::new(Nat::new(cfg.clone(), IpAddr::V4(wan), rng)))
        };
        let mut domains = vec![Domain {
            hosts: HashMap::new(),
            nets: Vec::new(),
            uplink: None,
            gateway: IpAddr::V4(t.core),
            local: true,
        }];
        let mut ports = Vec::new();
        let mut nats = HashMap::new();
        for s in &t.servers {
            for a in &s.addrs {
                domains[0].hosts.insert(IpAddr::V4(*a), ports.len());
            }
            domains[0].hosts.insert(IpAddr::V6(s.v6), ports.len());
            let inside = Inside::Device(take(&s.name, "wan0")?);
            ports.push(Port::new(&s.name, 0, None, None, &s.link, inside, t.seed));
        }
        let mut domain_of = HashMap::new();
        for c in &t.carriers {
            let domain = domains.len();
            domain_of.insert(c.name.clone(), domain);
            domains[0].hosts.insert(IpAddr::V4(c.wan), ports.len());
            domains.push(Domain {
                hosts: HashMap::new(),
                nets: Vec::new(),
                uplink: Some(ports.len()),
                gateway: IpAddr::V4(Ipv4Addr::from(u32::from(c.net) + 1)),
                local: c.local,
            });
            let nat = shared(&c.nat, c.wan, &c.name);
            ports.push(Port::new(&c.name, 0, Some(nat), None, &c.link, Inside::Domain(domain), t.seed));
        }
        for home in &t.homes {
            let domain = home.carrier.as_ref().map_or(0, |c| domain_of[c]);
            let at = ports.len();
            domains[domain].hosts.insert(IpAddr::V4(home.wan), at);
            let nat4 = match &home.router {
                Router::Lab(cfg) => {
                    let nat = shared(cfg, home.wan, &home.name);
                    add_forwards(home, &nat)?;
                    if !cfg.translate {
                        domains[0].nets.push((IpAddr::V4(home.lan), home.lan_len, at));
                    }
                    nats.insert(home.name.clone(), nat.clone());
                    Some(nat)
                }
                Router::Open => {
                    domains[0].nets.push((IpAddr::V4(home.lan), home.lan_len, at));
                    None
                }
                Router::Kernel(_) => None,
            };
            let nat6 = match home.v6 {
                V6::Firewall => {
                    let cfg = NatConfig { translate: false, hairpin: Hairpin::Off, ..NatConfig::default() };
                    Some(shared(&cfg, home.wan, &format!("{} v6", home.name)))
                }
                _ => None,
            };
            if home.v6 != V6::No {
                domains[0].nets.push((IpAddr::V6(home.v6_net), 64, at));
            }
            let inside = Inside::Device(take(&home.router_node(), "wan0")?);
            ports.push(Port::new(&home.name, domain, nat4, nat6, &home.link, inside, t.seed));
        }
        let wires = self.wires(&mut take)?;
        let switches = self.switches(&mut take)?;
        Ok((Core::new(ports, domains, wires, switches), nats))
    }

    /// The two directions of a link inside a home or a vlan.
    fn pipes(&self, link: &LinkPair, name: &str) -> (Pipe, Pipe) {
        let pipe = |cfg: &LinkConfig, way: &str| {
            Pipe::new(cfg.clone(), Rng::named(self.topology.seed, &format!("{name} {way}")))
        };
        (pipe(&link.up, "up"), pipe(&link.down, "down"))
    }

    fn wires(&self, take: &mut impl FnMut(&str, &str) -> Result<OwnedFd>) -> Result<Vec<Wire>> {
        let mut wires = Vec::new();
        for home in &self.topology.homes {
            for (i, h) in Self::wired(home) {
                let Some(link) = &h.link else { continue };
                let (up, down) = self.pipes(link, &format!("{} lan", h.name));
                wires.push(Wire {
                    name: h.name.clone(),
                    host: take(&h.name, "eth0")?,
                    home: take(&home.router_node(), &format!("lan{i}"))?,
                    up,
                    down,
                });
            }
        }
        Ok(wires)
    }

    fn switches(&self, take: &mut impl FnMut(&str, &str) -> Result<OwnedFd>) -> Result<Vec<Switch>> {
        let mut switches = Vec::new();
        for v in &self.topology.vlans {
            let mut members = Vec::new();
            for (host, _) in &v.members {
                let (up, down) = self.pipes(&v.link, &format!("{host} {}", v.name));
                let device = take(host, &v.name)?;
                members.push(SwitchPort { name: host.clone(), device, up, down });
            }
            switches.push(Switch {
                name: v.name.clone(),
                broadcast: v.broadcast,
                ports: members,
                learned: HashMap::new(),
            });
        }
        Ok(switches)
    }

    pub(super) fn services(&mut self, watch: &UnixStream, nats: &HashMap<String, SharedNat>) -> Result<()> {
        let clone = || watch.try_clone().map_err(|e| e.to_string());
        let stuns: Vec<(String, Vec<IpAddr>)> = self
            .topology
            .servers
            .iter()
            .filter(|s| s.stun)
            .map(|s| {
                let mut all: Vec<IpAddr> = s.addrs.iter().map(|a| IpAddr::V4(*a)).collect();
                all.push(IpAddr::V6(s.v6));
                (s.name.clone(), all)
            })
            .collect();
        for (name, addrs) in stuns {
            let server = self
                .inside(&name, || stun::Server::bind(&addrs, &STUN_PORTS))?
                .map_err(|e| format!("the STUN server cannot bind: {e}"))?;
            let stop = clone()?;
            self.spawn("natlab-stun", move || server.run(&stop))?;
        }
        for home in self.topology.homes.clone() {
            if home.upnp == Upnp::Miniupnpd {
                let child = self.miniupnpd(&home)?;
                self.children.push(child);
                continue;
            }
            if home.upnp == Upnp::No && !home.natpmp {
                continue;
            }
            let nat = nats[&home.name].clone();
            let igd = self
                .inside(&home.router_node(), || {
                    Igd::bind(nat, home.upnp, home.natpmp, &home.name, home.gateway(), (home.lan, home.lan_len))
                })?
                .map_err(|e| format!("the UPnP responder of {} cannot bind: {e}", home.name))?;
            let stop = clone()?;
            self.spawn("natlab-igd", move || igd.run(&stop))?;
        }
        Ok(())
    }

    /// Debian's UPnP daemon, on a kernel router.
    fn miniupnpd(&self, home: &Home) -> Result<Child> {
        let dir = &self.handle.dir;
        let config = dir.join(format!("{}.miniupnpd.conf", home.name));
        let text = format!(
            "ext_ifname=wan0\nlistening_ip=br0\nport={}\nenable_natpmp=yes\n\
             enable_upnp=yes\nsecure_mode=yes\nlease_file={}\nsystem_uptime=yes\nnotify_interval=60\n\
             uuid=00000000-0000-4000-a000-{:012x}\nserial=1\nmodel_number=1\n\
             upnp_table_name=natlab\nupnp_nat_table_name=natlab\nupnp_forward_chain=upnp_forward\n\
             upnp_nat_chain=upnp_prerouting\nupnp_nat_postrouting_chain=upnp_postrouting\n\
             allow 1-65535 0.0.0.0/0 1-65535\n",
            5000,
            dir.join(format!("{}.leases", home.name)).display(),
            u32::from(home.wan),
        );
        fs::write(&config, text).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
        let log = File::create(dir.join(format!("{}.miniupnpd.log", home.name)))
            .map_err(|e| format!("cannot write a log: {e}"))?;
        let err = log.try_clone().map_err(|e| e.to_string())?;
        let pid_file = dir.join(format!("{}.miniupnpd.pid", home.name));
        let program = ["/usr/sbin/miniupnpd", "/usr/local/sbin/miniupnpd"]
            .into_iter()
            .find(|p| Path::new(p).exists())
            .ok_or("'miniupnpd' is not installed (Debian package: miniupnpd-nftables)")?;
        let mut child = self
            .command(&home.router_node(), program)?
            .args(["-d", "-f"])
            .arg(&config)
            .arg("-P")
            .arg(pid_file)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err)
            .spawn()
            .map_err(|e| format!("cannot run miniupnpd: {e}"))?;
        // It answers once its socket is there.
        let gateway = home.gateway();
        for _ in 0..100 {
            if let Ok(Some(status)) = child.try_wait() {
                let log = fs::read_to_string(dir.join(format!("{}.miniupnpd.log", home.name)));
                return Err(format!("miniupnpd stopped ({status}):\n{}", log.unwrap_or_default()));
            }
            let up = self.inside(&home.router_node(), || std::net::TcpStream::connect((gateway, 5000)).is_ok())?;
            if up {
                return Ok(child);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        Err("miniupnpd did not start listening".into())
    }
}
