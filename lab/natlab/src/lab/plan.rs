//! What each node's namespace must hold.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use super::Lab;
use crate::net::{self, Result};
use crate::spec::{Home, Host, KernelNat, Router, V6};
use crate::sys;

pub(super) struct Node {
    sysctls: Vec<(String, String)>,
    /// Name, and whether it carries Ethernet frames.
    devices: Vec<(String, bool)>,
    /// Lines for `ip -batch`, after the devices exist.
    batch: String,
    rules: Option<String>,
}

impl Node {
    fn new() -> Self {
        let mut n = Node { sysctls: Vec::new(), devices: Vec::new(), batch: String::new(), rules: None };
        for part in ["all", "default"] {
            n.set(&format!("ipv4/conf/{part}/rp_filter"), "0");
            n.set(&format!("ipv4/conf/{part}/send_redirects"), "0");
            n.set(&format!("ipv6/conf/{part}/accept_dad"), "0");
            n.set(&format!("ipv6/conf/{part}/accept_ra"), "0");
        }
        n.line("link set lo up");
        n
    }

    fn set(&mut self, key: &str, value: &str) {
        self.sysctls.push((key.into(), value.into()));
    }

    fn line(&mut self, text: &str) {
        self.batch.push_str(text);
        self.batch.push('\n');
    }

    fn wan(&mut self, addrs: &[IpAddr], mtu: u32) {
        self.devices.push(("wan0".into(), false));
        self.set("ipv6/conf/wan0/addr_gen_mode", "1");
        self.line(&format!("link set wan0 up mtu {mtu} txqueuelen 4000"));
        for a in addrs {
            // Without `nodad` the kernel takes an IPv6 address into use some time later, even with accept_dad=0: a service
            // that binds at once is refused on a busy machine.
            let len = if a.is_ipv4() { "32" } else { "128 nodad" };
            self.line(&format!("addr add {a}/{len} dev wan0"));
        }
        self.line("route add 0.0.0.0/0 dev wan0");
    }
}

impl Lab {
    /// Which hosts have a link of their own through the data plane.
    pub(super) fn wired(home: &Home) -> impl Iterator<Item = (usize, &Host)> {
        home.hosts.iter().enumerate().filter(|(_, h)| h.link.is_some())
    }

    /// The veth pairs of hosts whose link is a plain cable.
    pub(super) fn cables(&self) -> String {
        let mut lines = String::new();
        for home in &self.topology.homes {
            for (i, h) in home.hosts.iter().enumerate() {
                if h.link.is_none() {
                    let router = net::namespace(&self.name, &home.router_node());
                    let host = net::namespace(&self.name, &h.name);
                    lines += &format!("link add name lan{i} netns {router} type veth peer name eth0 netns {host}\n");
                }
            }
        }
        lines
    }

    pub(super) fn plan(&self) -> HashMap<String, Node> {
        let t = &self.topology;
        let mut nodes = HashMap::new();
        for s in &t.servers {
            let mut n = Node::new();
            let mut addrs: Vec<IpAddr> = s.addrs.iter().map(|a| IpAddr::V4(*a)).collect();
            addrs.push(IpAddr::V6(s.v6));
            n.wan(&addrs, 1500);
            n.line("route add ::/0 dev wan0");
            nodes.insert(s.name.clone(), n);
        }
        for home in &t.homes {
            let mut n = Node::new();
            n.set("ipv4/ip_forward", "1");
            let own = match &home.router {
                Router::Lab(nat) if nat.translate => vec![],
                _ => vec![IpAddr::V4(home.wan)],
            };
            n.wan(&own, home.mtu);
            n.line("link add br0 type bridge forward_delay 0 mcast_snooping 0");
            for (i, h) in home.hosts.iter().enumerate() {
                if h.link.is_some() {
                    n.devices.push((format!("lan{i}"), true));
                }
                n.line(&format!("link set lan{i} master br0 up"));
            }
            n.line("link set br0 up");
            n.line(&format!("addr add {}/{} dev br0", home.gateway(), home.lan_len));
            let gateway6 = {
                let mut o = home.v6_net.segments();
                o[7] = 1;
                std::net::Ipv6Addr::from(o)
            };
            if home.v6 != V6::No {
                n.set("ipv6/conf/all/forwarding", "1");
                n.line(&format!("addr add {gateway6}/64 nodad dev br0"));
                n.line("route add ::/0 dev wan0");
            }
            if let Router::Kernel(kind) = home.router {
                n.rules = Some(kernel_rules(kind));
            }
            nodes.insert(home.router_node(), n);
            for h in &home.hosts {
                let mut n = Node::new();
                if h.link.is_some() {
                    n.devices.push(("eth0".into(), true));
                }
                n.line("link set eth0 up");
                n.line(&format!("addr add {}/{} broadcast + dev eth0", h.ip, home.lan_len));
                n.line(&format!("route add 0.0.0.0/0 via {}", home.gateway()));
                if let Some(v6) = h.v6 {
                    n.line(&format!("addr add {v6}/64 nodad dev eth0"));
                    n.line(&format!("route add ::/0 via {gateway6}"));
                }
                nodes.insert(h.name.clone(), n);
            }
        }
        for v in &t.vlans {
            for (host, ip) in &v.members {
                if let Some(n) = nodes.get_mut(host) {
                    n.devices.push((v.name.clone(), true));
                    n.line(&format!("link set {} up mtu {} txqueuelen 4000", v.name, v.mtu));
                    n.line(&format!("addr add {ip}/{} broadcast + dev {}", v.len, v.name));
                }
            }
        }
        nodes
    }
}

/// Configures the calling thread's namespace; gives back the devices it made.
pub(super) fn set_up(node: &Node) -> Result<Vec<(String, OwnedFd)>> {
    let mut made = Vec::new();
    for (name, ethernet) in &node.devices {
        let device = sys::tunnel(name, *ethernet).map_err(|e| format!("cannot make the device {name}: {e}"))?;
        made.push((name.clone(), device));
    }
    for (key, value) in &node.sysctls {
        net::sysctl(key, value)?;
    }
    net::ip_batch(&node.batch)?;
    if let Some(rules) = &node.rules {
        net::nft(rules)?;
    }
    Ok(made)
}

/// Why the kernel's own NAT cannot be had on this machine, for the kinds `linux` and `linux-random`.
pub(crate) fn lacks_kernel_nat() -> Option<String> {
    let rules = kernel_rules(KernelNat::Random);
    let tried = std::thread::scope(|s| s.spawn(|| sys::enter_new().map(|()| net::nft(&rules))).join());
    match tried {
        Ok(Ok(Err(e))) => Some(e.lines().next().unwrap_or_default().to_string()),
        _ => None,
    }
}

fn kernel_rules(kind: KernelNat) -> String {
    let masquerade = match kind {
        KernelNat::Masquerade => "masquerade",
        KernelNat::Random => "masquerade fully-random",
    };
    format!(
        "table inet natlab {{\n\
         chain upnp_forward {{}}\n\
         chain upnp_prerouting {{}}\n\
         chain upnp_postrouting {{}}\n\
         chain forward {{\n\
           type filter hook forward priority 0; policy accept;\n\
           ct state established,related accept\n\
           iifname != \"wan0\" accept\n\
           ct status dnat accept\n\
           jump upnp_forward\n\
           drop\n\
         }}\n\
         chain input {{\n\
           type filter hook input priority 0; policy accept;\n\
           iifname != \"wan0\" accept\n\
           ct state established,related accept\n\
           icmp type echo-request accept\n\
           drop\n\
         }}\n\
         chain prerouting {{\n\
           type nat hook prerouting priority -100;\n\
           iifname \"wan0\" jump upnp_prerouting\n\
         }}\n\
         chain postrouting {{\n\
           type nat hook postrouting priority 100;\n\
           oifname \"wan0\" jump upnp_postrouting\n\
           oifname \"wan0\" {masquerade}\n\
         }}\n\
         }}\n"
    )
}
