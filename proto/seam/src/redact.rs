//! Addresses are private by default: what may be read by others shows networks, not hosts.
//!
//! IPv4 addresses lose their last octet and IPv6 addresses everything after the third group, except loopback, private
//! and link-local ranges, which say nothing about where a person lives.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Shows an address with its host part replaced by `x`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Masked(pub SocketAddr);

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port();
        match self.0.ip() {
            IpAddr::V4(ip) if is_public_v4(ip) => {
                let [a, b, c, _] = ip.octets();
                write!(f, "{a}.{b}.{c}.x:{port}")
            }
            IpAddr::V6(ip) if is_public_v6(ip) => {
                let [a, b, c, ..] = ip.segments();
                write!(f, "[{a:x}:{b:x}:{c:x}:x]:{port}")
            }
            IpAddr::V4(_) | IpAddr::V6(_) => self.0.fmt(f),
        }
    }
}

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    // 0.0.0.0/8 is nobody's host, and release strings such as 0.7.1.4 must stay readable.
    let [first, ..] = ip.octets();
    !(first == 0 || ip.is_loopback() || ip.is_private() || ip.is_link_local())
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified())
}

/// Masks every public address in a line of text. This is what stands in front of every log, panel and file.
///
/// ```
/// assert_eq!(anywire_seam::mask("peer 203.0.113.47:51299"), "peer 203.0.113.x:51299");
/// ```
#[must_use]
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit() || c == ':') {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let end = from.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':'))).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        push_word(&mut out, word);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Appends a run of hexadecimal digits, dots and colons, masked where it begins with an address.
fn push_word(out: &mut String, word: &str) {
    let head = word.split(':').next().unwrap_or_default();
    let dotted = head.trim_end_matches('.');
    if let Ok(ip) = dotted.parse::<Ipv4Addr>() {
        if is_public_v4(ip) {
            let [a, b, c, _] = ip.octets();
            out.push_str(&format!("{a}.{b}.{c}.x"));
            out.push_str(word.get(dotted.len()..).unwrap_or_default());
        } else {
            out.push_str(word);
        }
        return;
    }
    let colons = word.trim_end_matches('.');
    let colons = if colons.ends_with(':') && !colons.ends_with("::") { colons.trim_end_matches(':') } else { colons };
    match colons.parse::<Ipv6Addr>() {
        Ok(ip) if is_public_v6(ip) && word.matches(':').count() >= 2 => {
            let [a, b, c, ..] = ip.segments();
            out.push_str(&format!("{a:x}:{b:x}:{c:x}:x"));
            out.push_str(word.get(colons.len()..).unwrap_or_default());
        }
        Ok(_) | Err(_) => out.push_str(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_hosts_are_masked_and_private_ones_are_not() {
        for (text, want) in [
            ("127.0.0.1 192.168.0.4 10.1.2.3 169.254.9.9", "127.0.0.1 192.168.0.4 10.1.2.3 169.254.9.9"),
            ("172.15.0.1 172.16.0.1 172.31.9.9 172.32.0.1", "172.15.0.x 172.16.0.1 172.31.9.9 172.32.0.x"),
            ("100.64.1.2 25.1.2.3", "100.64.1.x 25.1.2.x"),
            ("from 198.51.100.7.", "from 198.51.100.x."),
            ("[2001:db8:1:2::9]:29471", "[2001:db8:1:x]:29471"),
            ("at 12:30:01 version 0.7.1.4 of fe80::1", "at 12:30:01 version 0.7.1.4 of fe80::1"),
            ("no address: here", "no address: here"),
        ] {
            assert_eq!(mask(text), want);
        }
    }

    #[test]
    fn an_address_never_shows_its_host_part() {
        let v4 = Masked(SocketAddr::from(([203, 0, 113, 9], 5)));
        assert_eq!(format!("{v4} {v4:?}"), "203.0.113.x:5 203.0.113.x:5");
        let v6: SocketAddr = "[2001:db8::77]:9".parse().unwrap();
        assert_eq!(Masked(v6).to_string(), "[2001:db8:0:x]:9");
    }
}
