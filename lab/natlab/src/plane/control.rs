//! What can be asked of a running lab, one line a question.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Core, lock};
use crate::nat::NatConfig;
use crate::packet;
use crate::spec::{self, LinkPair};

impl Core {
    pub(super) fn serve(&mut self, stream: UnixStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line).is_err() {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match self.command(&words) {
            Ok(body) => format!("ok\n{body}"),
            Err(e) => format!("error: {e}\n"),
        };
        let _ = (&stream).write_all(answer.as_bytes());
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        self.ports.iter().position(|p| p.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.ports.iter().map(|p| p.name.as_str()).collect();
            spec::unknown("home, carrier or server", name, &names)
        })
    }

    fn command(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["status"] => Ok(self.status()),
            ["nat", name] => self.table(name),
            ["set", name, rest @ ..] if !rest.is_empty() => self.set(name, rest),
            ["reset", name] => {
                let p = self.find(name)?;
                let nats: Vec<_> = [&self.ports[p].nat4, &self.ports[p].nat6].into_iter().flatten().cloned().collect();
                if nats.is_empty() {
                    return Err(format!("'{name}' has no NAT of the lab's"));
                }
                for nat in nats {
                    lock(&nat).reset();
                }
                Ok(String::new())
            }
            ["renumber", name, rest @ ..] => self.renumber(name, rest.first().copied()),
            _ => Err(format!("unknown command '{}'", words.join(" "))),
        }
    }

    fn renumber(&mut self, name: &str, wanted: Option<&str>) -> Result<String, String> {
        let p = self.find(name)?;
        let nat = self.ports[p]
            .nat4
            .clone()
            .filter(|n| lock(n).cfg.translate)
            .ok_or_else(|| format!("'{name}' has no NAT of the lab's, so no address to change"))?;
        let domain = self.ports[p].domain;
        let old = lock(&nat).wan();
        let IpAddr::V4(old4) = old else {
            return Err("only IPv4 addresses change".into());
        };
        let new = match wanted {
            Some(text) => text.parse().map_err(|_| format!("'{text}' is no IPv4 address"))?,
            None => loop {
                let o = old4.octets();
                let ip = Ipv4Addr::new(o[0], o[1], o[2], self.spare_ip);
                self.spare_ip = if self.spare_ip <= 2 { 254 } else { self.spare_ip - 1 };
                if !self.domains[domain].hosts.contains_key(&IpAddr::V4(ip)) {
                    break ip;
                }
            },
        };
        let new = IpAddr::V4(new);
        if new != old && self.domains[domain].hosts.contains_key(&new) {
            return Err(format!("{new} is taken"));
        }
        self.domains[domain].hosts.remove(&old);
        self.domains[domain].hosts.insert(new, p);
        lock(&nat).renumber(new);
        Ok(format!("{new}\n"))
    }

    fn set(&mut self, name: &str, words: &[&str]) -> Result<String, String> {
        let pairs: Vec<(&str, &str)> = words.iter().map(|w| w.split_once('=').unwrap_or((w, "yes"))).collect();
        // A host's own link inside its home, or on a virtual LAN, by
        // 'NAME.lan' and 'NAME.VLAN'; else the port of a home, carrier, server.
        if let Some((host, part)) = name.rsplit_once('.') {
            let pipes = if part == "lan" {
                self.wires.iter_mut().find(|w| w.name == host).map(|w| (&mut w.up, &mut w.down))
            } else {
                self.switches
                    .iter_mut()
                    .filter(|s| s.name == part)
                    .flat_map(|s| s.ports.iter_mut())
                    .find(|p| p.name == host)
                    .map(|p| (&mut p.up, &mut p.down))
            };
            let Some((up, down)) = pipes else {
                return Err(format!(
                    "there is no link '{name}' (a 'host {host} …' line makes {host}.lan, a vlan makes {host}.VLAN)"
                ));
            };
            let mut link = LinkPair { up: up.cfg.clone(), down: down.cfg.clone() };
            for (k, v) in pairs {
                if !spec::set_link(&mut link, k, v)? {
                    return Err(format!("'{k}' is no key of a link"));
                }
            }
            (up.cfg, down.cfg) = (link.up, link.down);
            return Ok(String::new());
        }
        let p = self.find(name)?;
        let port = &mut self.ports[p];
        let mut link = LinkPair { up: port.up.cfg.clone(), down: port.down.cfg.clone() };
        let mut nat: Option<NatConfig> = port.nat4.as_ref().map(|n| lock(n).cfg.clone());
        for (k, v) in pairs {
            if spec::set_link(&mut link, k, v)? {
                continue;
            }
            let known = match &mut nat {
                Some(n) => spec::set_nat(n, k, v)?,
                None => false,
            };
            if !known {
                return Err(format!("'{k}' cannot be set on '{name}'"));
            }
        }
        (port.up.cfg, port.down.cfg) = (link.up, link.down);
        if let (Some(n), Some(cfg)) = (&port.nat4, nat) {
            lock(n).cfg = cfg;
        }
        Ok(String::new())
    }

    fn table(&self, name: &str) -> Result<String, String> {
        let p = self.find(name)?;
        let mut out = String::new();
        for nat in [&self.ports[p].nat4, &self.ports[p].nat6].into_iter().flatten() {
            for e in lock(nat).entries() {
                let proto = match e.proto {
                    packet::UDP => "udp",
                    packet::TCP => "tcp",
                    _ => "icmp",
                };
                let remotes: Vec<String> = e.remotes.iter().map(ToString::to_string).collect();
                let _ = write!(
                    out,
                    "{proto} {} <-> {} for {} remotes [{}]",
                    e.inside,
                    e.outside,
                    e.scope,
                    remotes.join(" ")
                );
                if let Some(f) = e.forward {
                    let _ = write!(out, " forward '{}'", f.description);
                }
                out.push('\n');
            }
        }
        Ok(out)
    }

    fn status(&self) -> String {
        let mut out = String::new();
        for p in &self.ports {
            let wan = p.nat4.as_ref().map(|n| lock(n).wan().to_string());
            let _ = writeln!(
                out,
                "{} wan={} up_packets={} up_bytes={} up_lost={} up_overflowed={} \
                 down_packets={} down_bytes={} down_lost={} down_overflowed={} dropped={:?}",
                p.name,
                wan.as_deref().unwrap_or("-"),
                p.up.count.packets,
                p.up.count.bytes,
                p.up.count.lost,
                p.up.count.overflowed,
                p.down.count.packets,
                p.down.count.bytes,
                p.down.count.lost,
                p.down.count.overflowed,
                p.dropped,
            );
        }
        out
    }
}
