//! The values of the topology language, and the keys of links and NATs.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::LinkPair;
use crate::link::LinkConfig;
use crate::nat::{Dependence, Hairpin, NatConfig, Ports};
use crate::net::Result;

pub(crate) fn duration(text: &str) -> Result<Duration> {
    let (number, scale) = if let Some(n) = text.strip_suffix("ms") {
        (n, 1e-3)
    } else if let Some(n) = text.strip_suffix("us") {
        (n, 1e-6)
    } else if let Some(n) = text.strip_suffix('s') {
        (n, 1.0)
    } else {
        return Err(format!("'{text}' is no duration (write 20ms, 1.5s or 300us)"));
    };
    match number.parse::<f64>() {
        Ok(n) if (0.0..1e6).contains(&n) => Ok(Duration::from_secs_f64(n * scale)),
        _ => Err(format!("'{text}' is no duration (write 20ms, 1.5s or 300us)")),
    }
}

pub(super) fn share(text: &str) -> Result<f64> {
    let bad = || format!("'{text}' is no share (write 2% or 0.02)");
    let p = match text.strip_suffix('%') {
        Some(n) => n.parse::<f64>().map_err(|_| bad())? / 100.0,
        None => text.parse::<f64>().map_err(|_| bad())?,
    };
    if (0.0..=1.0).contains(&p) { Ok(p) } else { Err(bad()) }
}

pub(super) fn rate(text: &str) -> Result<u64> {
    let low = text.to_ascii_lowercase();
    let (number, scale) = if let Some(n) = low.strip_suffix("gbit") {
        (n, 1e9)
    } else if let Some(n) = low.strip_suffix("mbit") {
        (n, 1e6)
    } else if let Some(n) = low.strip_suffix("kbit") {
        (n, 1e3)
    } else if low == "0" || low == "none" {
        ("0", 1.0)
    } else {
        return Err(format!("'{text}' is no rate (write 20mbit, 512kbit or none)"));
    };
    match number.parse::<f64>() {
        Ok(n) if n >= 0.0 => Ok((n * scale) as u64),
        _ => Err(format!("'{text}' is no rate (write 20mbit, 512kbit or none)")),
    }
}

pub(super) fn yes(text: &str) -> Result<bool> {
    match text {
        "yes" | "on" | "true" | "1" => Ok(true),
        "no" | "off" | "false" | "0" => Ok(false),
        _ => Err(format!("'{text}' is neither yes nor no")),
    }
}

pub(super) fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T> {
    text.parse().map_err(|_| format!("'{text}' is no {what}"))
}

pub(super) fn subnet(text: &str) -> Result<(Ipv4Addr, u8)> {
    let bad = || format!("'{text}' is no IPv4 subnet (write 192.168.1.0/24)");
    let (ip, len) = text.split_once('/').ok_or_else(bad)?;
    let ip: Ipv4Addr = ip.parse().map_err(|_| bad())?;
    let len: u8 = len.parse().map_err(|_| bad())?;
    if !(1..=30).contains(&len) {
        return Err(bad());
    }
    let mask = u32::MAX << (32 - len);
    if u32::from(ip) & !mask != 0 {
        return Err(format!("'{text}' has host bits set"));
    }
    Ok((ip, len))
}

pub(super) fn dependence(text: &str) -> Result<Dependence> {
    match text {
        "endpoint" | "independent" => Ok(Dependence::Independent),
        "address" => Ok(Dependence::Address),
        "address-port" => Ok(Dependence::AddressPort),
        _ => Err(format!("'{text}' is not one of endpoint, address, address-port")),
    }
}

/// Sets one link key; `up-` and `down-` in front mean that direction only.
/// Ok(false) when the key is none of a link's.
pub(crate) fn set_link(link: &mut LinkPair, key: &str, value: &str) -> Result<bool> {
    let (up, down, bare) = if let Some(k) = key.strip_prefix("up-") {
        (true, false, k)
    } else if let Some(k) = key.strip_prefix("down-") {
        (false, true, k)
    } else {
        (true, true, key)
    };
    let mut sides: Vec<&mut LinkConfig> = Vec::new();
    let LinkPair { up: u, down: d } = link;
    if up {
        sides.push(u);
    }
    if down {
        sides.push(d);
    }
    for side in sides {
        match bare {
            "delay" => side.delay = duration(value)?,
            "jitter" => side.jitter = duration(value)?,
            "loss" => side.loss = share(value)?,
            "burst" => {
                side.burst = number(value, "number of packets")?;
                if side.burst < 1.0 {
                    return Err("burst is the mean run of losses, 1 or more".into());
                }
            }
            "duplicate" => side.duplicate = share(value)?,
            "reorder" => side.reorder = share(value)?,
            "rate" => side.rate = rate(value)?,
            "queue" => side.queue = duration(value)?,
            "hops" => side.hops = number(value, "hop count")?,
            "link" => {
                side.up = match value {
                    "up" => true,
                    "down" => false,
                    _ => return Err(format!("link is up or down, not '{value}'")),
                }
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

pub(super) const LINK_KEYS: &[&str] =
    &["delay", "jitter", "loss", "burst", "duplicate", "reorder", "rate", "queue", "hops", "link"];

/// Sets one NAT key. Ok(false) when the key is none of a NAT's.
pub(crate) fn set_nat(nat: &mut NatConfig, key: &str, value: &str) -> Result<bool> {
    match key {
        "mapping" => nat.mapping = dependence(value)?,
        "filter" => nat.filtering = dependence(value)?,
        "ports" => {
            nat.ports = match value {
                "preserve" => Ports::Preserve,
                "random" => Ports::Random,
                "sequential" => Ports::Sequential,
                _ => return Err(format!("'{value}' is not one of preserve, random, sequential")),
            }
        }
        "port-range" => {
            let bad = || format!("'{value}' is no port range (write 20000-20999)");
            let (low, high) = value.split_once('-').ok_or_else(bad)?;
            let (low, high): (u16, u16) = (low.parse().map_err(|_| bad())?, high.parse().map_err(|_| bad())?);
            if low == 0 || low > high {
                return Err(bad());
            }
            nat.port_range = (low, high);
        }
        "hairpin" => {
            nat.hairpin = match value {
                "internal" => Hairpin::Internal,
                v if yes(v)? => Hairpin::External,
                _ => Hairpin::Off,
            }
        }
        "udp-timeout" => nat.udp_timeout = duration(value)?,
        "tcp-timeout" => nat.tcp_timeout = duration(value)?,
        "refresh" => {
            nat.refresh_inbound = match value {
                "both" => true,
                "outbound" => false,
                _ => return Err(format!("refresh is both or outbound, not '{value}'")),
            }
        }
        "udp" => nat.udp = yes(value)?,
        "tcp-ports" => {
            nat.tcp_ports = if value == "any" {
                None
            } else {
                let ports: Result<Vec<u16>> = value.split(',').map(|p| number(p, "port")).collect();
                Some(ports?)
            }
        }
        "reject" => nat.reject = yes(value)?,
        "fragments" => nat.fragments = yes(value)?,
        "ping" => nat.ping = yes(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

pub(super) const NAT_KEYS: &[&str] = &[
    "mapping",
    "filter",
    "ports",
    "port-range",
    "hairpin",
    "udp-timeout",
    "tcp-timeout",
    "refresh",
    "udp",
    "tcp-ports",
    "reject",
    "fragments",
    "ping",
];

pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let step = corner + usize::from(ca != *cb);
            corner = row[j + 1];
            row[j + 1] = step.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

pub(crate) fn unknown(what: &str, got: &str, known: &[&str]) -> String {
    let near = known.iter().map(|k| (distance(got, k), k)).min().filter(|(d, _)| *d <= 3);
    let hint = match near {
        Some((_, k)) => format!(" (did you mean '{k}'?)"),
        None => String::new(),
    };
    format!("unknown {what} '{got}'{hint}; known: {}", known.join(", "))
}

pub(super) fn name_ok(name: &str) -> Result<()> {
    let ok = !name.is_empty()
        && name.len() <= 40
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.starts_with('-');
    if ok { Ok(()) } else { Err(format!("'{name}' is no name (small letters, digits and '-', 40 at most)")) }
}

pub(super) struct Words<'a>(pub(super) Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    /// Splits `key=value` words; a bare word means `word=yes`.
    pub(super) fn new(words: &[&'a str]) -> Self {
        Words(words.iter().map(|w| w.split_once('=').unwrap_or((w, "yes"))).collect())
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.0.iter().rposition(|(k, _)| *k == key)?;
        let value = self.0[at].1;
        self.0.retain(|(k, _)| *k != key);
        Some(value)
    }
}
