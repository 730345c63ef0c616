//! IP headers: parsing, rewriting in place with incremental checksums, and
//! the few packets the lab makes itself (ICMP errors, echo replies, TCP RST).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

pub(crate) const TCP_FIN: u8 = 0x01;
pub(crate) const TCP_SYN: u8 = 0x02;
pub(crate) const TCP_RST: u8 = 0x04;
pub(crate) const TCP_ACK: u8 = 0x10;

/// What the transport part of a packet is, as far as a NAT needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// UDP or TCP with its ports present.
    Ports,
    /// ICMP echo request or reply; the identifier stands in both port fields.
    Echo {
        request: bool,
    },
    /// An ICMP error quoting another packet.
    IcmpError,
    /// A fragment other than the first: no transport header.
    Fragment,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frag {
    pub(crate) id: u32,
    pub(crate) first: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) v6: bool,
    pub(crate) proto: u8,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Offset of the transport header.
    pub(crate) l4: usize,
    pub(crate) frag: Option<Frag>,
    pub(crate) kind: Kind,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    /// TCP flags, 0 for anything else.
    pub(crate) flags: u8,
}

impl Header {
    pub(crate) fn source(&self) -> SocketAddr {
        SocketAddr::new(self.src, self.sport)
    }

    pub(crate) fn target(&self) -> SocketAddr {
        SocketAddr::new(self.dst, self.dport)
    }
}

fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

fn put16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_be_bytes());
}

fn ip4(b: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(b[at], b[at + 1], b[at + 2], b[at + 3])
}

fn ip6(b: &[u8], at: usize) -> Ipv6Addr {
    let mut o = [0u8; 16];
    o.copy_from_slice(&b[at..at + 16]);
    Ipv6Addr::from(o)
}

/// Parses a packet. A packet quoted inside an ICMP error parses too: only the
/// headers have to be there, not the whole length that they claim.
pub(crate) fn parse(b: &[u8]) -> Option<Header> {
    if b.is_empty() {
        return None;
    }
    let (v6, proto, src, dst, l4, frag) = match b[0] >> 4 {
        4 => {
            if b.len() < 20 {
                return None;
            }
            let ihl = usize::from(b[0] & 15) * 4;
            if ihl < 20 || b.len() < ihl {
                return None;
            }
            let word = be16(b, 6);
            let offset = word & 0x1fff;
            let more = word & 0x2000 != 0;
            let frag = (offset != 0 || more).then(|| Frag { id: u32::from(be16(b, 4)), first: offset == 0 });
            (false, b[9], IpAddr::V4(ip4(b, 12)), IpAddr::V4(ip4(b, 16)), ihl, frag)
        }
        6 => {
            if b.len() < 40 {
                return None;
            }
            let mut next = b[6];
            let mut at = 40;
            let mut frag = None;
            // Hop-by-hop, routing, destination options and fragment headers.
            while matches!(next, 0 | 43 | 44 | 60) {
                if b.len() < at + 8 {
                    return None;
                }
                let length = if next == 44 {
                    frag = Some(Frag {
                        id: u32::from_be_bytes([b[at + 4], b[at + 5], b[at + 6], b[at + 7]]),
                        first: be16(b, at + 2) >> 3 == 0,
                    });
                    8
                } else {
                    8 + usize::from(b[at + 1]) * 8
                };
                next = b[at];
                at += length;
            }
            (true, next, IpAddr::V6(ip6(b, 8)), IpAddr::V6(ip6(b, 24)), at, frag)
        }
        _ => return None,
    };
    let mut h = Header { v6, proto, src, dst, l4, frag, kind: Kind::Other, sport: 0, dport: 0, flags: 0 };
    if frag.is_some_and(|f| !f.first) {
        h.kind = Kind::Fragment;
        return Some(h);
    }
    match proto {
        TCP | UDP => {
            if b.len() < l4 + 4 {
                return None;
            }
            h.kind = Kind::Ports;
            h.sport = be16(b, l4);
            h.dport = be16(b, l4 + 2);
            if proto == TCP && b.len() > l4 + 13 {
                h.flags = b[l4 + 13];
            }
        }
        ICMP | ICMPV6 => {
            if b.len() < l4 + 8 {
                return None;
            }
            h.kind = match (proto, b[l4]) {
                (ICMP, 8) | (ICMPV6, 128) => Kind::Echo { request: true },
                (ICMP, 0) | (ICMPV6, 129) => Kind::Echo { request: false },
                (ICMP, 3 | 4 | 11 | 12) | (ICMPV6, 1..=4) => Kind::IcmpError,
                _ => Kind::Other,
            };
            if matches!(h.kind, Kind::Echo { .. }) {
                h.sport = be16(b, l4 + 4);
                h.dport = h.sport;
            }
        }
        _ => {}
    }
    Some(h)
}

/// The header of the packet that an ICMP error quotes.
pub(crate) fn parse_quoted(b: &[u8], h: &Header) -> Option<Header> {
    parse(b.get(h.l4 + 8..)?)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn sum_words(b: &[u8]) -> u32 {
    let mut sum = 0u32;
    let mut words = b.chunks_exact(2);
    for w in &mut words {
        sum += u32::from(u16::from_be_bytes([w[0], w[1]]));
    }
    if let [last] = words.remainder() {
        sum += u32::from(*last) << 8;
    }
    sum
}

pub(crate) fn checksum(b: &[u8]) -> u16 {
    !fold(sum_words(b))
}

/// RFC 1624, equation 3: the checksum after one 16-bit word changed.
fn adjust(sum: u16, old: u16, new: u16) -> u16 {
    !fold(u32::from(!sum) + u32::from(!old) + u32::from(new))
}

fn transport_checksum_at(b: &[u8], h: &Header) -> Option<usize> {
    let at = match (h.kind, h.proto) {
        (Kind::Ports, TCP) => h.l4 + 16,
        (Kind::Ports, UDP) => h.l4 + 6,
        _ => return None,
    };
    // A UDP checksum of zero means 'none', and stays that way.
    (b.len() >= at + 2 && !(h.proto == UDP && be16(b, at) == 0)).then_some(at)
}

fn store_transport_checksum(b: &mut [u8], at: usize, proto: u8, sum: u16) {
    put16(b, at, if proto == UDP && sum == 0 { 0xffff } else { sum });
}

fn replace_addr(b: &mut [u8], h: &Header, at: usize, new: Ipv4Addr) {
    let transport = transport_checksum_at(b, h);
    let octets = new.octets();
    for i in [0, 2] {
        let old = be16(b, at + i);
        let new = u16::from_be_bytes([octets[i], octets[i + 1]]);
        let sum = adjust(be16(b, 10), old, new);
        put16(b, 10, sum);
        if let Some(t) = transport {
            let sum = adjust(be16(b, t), old, new);
            store_transport_checksum(b, t, h.proto, sum);
        }
        put16(b, at + i, new);
    }
}

fn replace_port(b: &mut [u8], h: &Header, source: bool, new: u16) {
    let (at, sum_at) = match h.kind {
        Kind::Ports => (if source { h.l4 } else { h.l4 + 2 }, transport_checksum_at(b, h)),
        Kind::Echo { .. } => (h.l4 + 4, Some(h.l4 + 2)),
        _ => return,
    };
    let old = be16(b, at);
    if let Some(s) = sum_at {
        let sum = adjust(be16(b, s), old, new);
        if h.kind == Kind::Ports {
            store_transport_checksum(b, s, h.proto, sum);
        } else {
            put16(b, s, sum);
        }
    }
    put16(b, at, new);
}

/// Rewrites the IPv4 source endpoint. Fragments get the new address only.
pub(crate) fn set_source(b: &mut [u8], h: &Header, to: SocketAddr) {
    if let IpAddr::V4(ip) = to.ip() {
        replace_addr(b, h, 12, ip);
        replace_port(b, h, true, to.port());
    }
}

/// Rewrites the IPv4 destination endpoint. Fragments get the new address only.
pub(crate) fn set_target(b: &mut [u8], h: &Header, to: SocketAddr) {
    if let IpAddr::V4(ip) = to.ip() {
        replace_addr(b, h, 16, ip);
        replace_port(b, h, false, to.port());
    }
}

/// Rewrites the packet that an ICMP error quotes and the error's own address,
/// so that the error makes sense on the other side of the NAT.
pub(crate) fn translate_icmp_error(
    b: &mut [u8],
    h: &Header,
    outer_source: Option<IpAddr>,
    outer_target: Option<IpAddr>,
    quoted_source: Option<SocketAddr>,
    quoted_target: Option<SocketAddr>,
) {
    let start = h.l4 + 8;
    if let Some(inner) = parse_quoted(b, h) {
        let quoted = &mut b[start..];
        if let Some(to) = quoted_source {
            set_source(quoted, &inner, to);
        }
        if let Some(to) = quoted_target {
            set_target(quoted, &inner, to);
        }
    }
    put16(b, h.l4 + 2, 0);
    let sum = checksum(&b[h.l4..]);
    put16(b, h.l4 + 2, sum);
    if let Some(IpAddr::V4(ip)) = outer_source {
        replace_addr(b, h, 12, ip);
    }
    if let Some(IpAddr::V4(ip)) = outer_target {
        replace_addr(b, h, 16, ip);
    }
}

/// Takes `by` off the hop count; false when the packet has no hops left.
pub(crate) fn spend_hops(b: &mut [u8], by: u8) -> bool {
    if by == 0 {
        return true;
    }
    match b[0] >> 4 {
        4 => {
            if b[8] <= by {
                return false;
            }
            let old = be16(b, 8);
            b[8] -= by;
            let new = be16(b, 8);
            let sum = adjust(be16(b, 10), old, new);
            put16(b, 10, sum);
            true
        }
        _ => {
            if b[7] <= by {
                return false;
            }
            b[7] -= by;
            true
        }
    }
}

fn ipv4_header(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, payload: usize) -> Vec<u8> {
    let mut b = vec![0u8; 20];
    b[0] = 0x45;
    put16(&mut b, 2, (20 + payload) as u16);
    b[8] = 64;
    b[9] = proto;
    b[12..16].copy_from_slice(&src.octets());
    b[16..20].copy_from_slice(&dst.octets());
    let sum = checksum(&b);
    put16(&mut b, 10, sum);
    b
}

fn ipv6_packet(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, sum_at: usize, payload: &[u8]) -> Vec<u8> {
    let mut b = vec![0u8; 40];
    b[0] = 0x60;
    put16(&mut b, 4, payload.len() as u16);
    b[6] = proto;
    b[7] = 64;
    b[8..24].copy_from_slice(&src.octets());
    b[24..40].copy_from_slice(&dst.octets());
    b.extend_from_slice(payload);
    let pseudo = sum_words(&b[8..40]) + payload.len() as u32 + u32::from(proto);
    let sum = !fold(pseudo + sum_words(&b[40..]));
    put16(&mut b, 40 + sum_at, sum);
    b
}

/// The reasons for which the lab sends an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IcmpReason {
    TimeExceeded,
    Prohibited,
    PortUnreachable,
}

/// An ICMP error about `about`, sent by `from` to the packet's source. None for
/// packets about which no error may be sent (errors, later fragments).
pub(crate) fn icmp_error(from: IpAddr, about: &[u8], reason: IcmpReason) -> Option<Vec<u8>> {
    let h = parse(about)?;
    if matches!(h.kind, Kind::IcmpError | Kind::Fragment) {
        return None;
    }
    match (from, h.src) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let quoted = &about[..about.len().min(h.l4 + 8)];
            let mut icmp = vec![0u8; 8];
            (icmp[0], icmp[1]) = match reason {
                IcmpReason::TimeExceeded => (11, 0),
                IcmpReason::Prohibited => (3, 13),
                IcmpReason::PortUnreachable => (3, 3),
            };
            icmp.extend_from_slice(quoted);
            let sum = checksum(&icmp);
            put16(&mut icmp, 2, sum);
            let mut b = ipv4_header(from, to, ICMP, icmp.len());
            b.extend_from_slice(&icmp);
            Some(b)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let quoted = &about[..about.len().min(1232)];
            let mut icmp = vec![0u8; 8];
            (icmp[0], icmp[1]) = match reason {
                IcmpReason::TimeExceeded => (3, 0),
                IcmpReason::Prohibited => (1, 1),
                IcmpReason::PortUnreachable => (1, 4),
            };
            icmp.extend_from_slice(quoted);
            Some(ipv6_packet(from, to, ICMPV6, 2, &icmp))
        }
        _ => None,
    }
}

/// Turns an ICMP echo request into its reply.
pub(crate) fn echo_reply(request: &[u8], h: &Header) -> Option<Vec<u8>> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (h.src, h.dst) else {
        return None;
    };
    let mut icmp = request[h.l4..].to_vec();
    icmp[0] = 0;
    put16(&mut icmp, 2, 0);
    let sum = checksum(&icmp);
    put16(&mut icmp, 2, sum);
    let mut b = ipv4_header(dst, src, ICMP, icmp.len());
    b.extend_from_slice(&icmp);
    Some(b)
}

/// The RST that answers an unwanted TCP segment.
pub(crate) fn tcp_reset(about: &[u8], h: &Header) -> Option<Vec<u8>> {
    if h.proto != TCP || h.kind != Kind::Ports || h.flags & TCP_RST != 0 {
        return None;
    }
    if about.len() < h.l4 + 20 {
        return None;
    }
    let seq = u32::from_be_bytes(about[h.l4 + 4..h.l4 + 8].try_into().ok()?);
    let header = usize::from(about[h.l4 + 12] >> 4) * 4;
    let data = about.len().saturating_sub(h.l4 + header) as u32;
    let length = data + u32::from(h.flags & TCP_SYN != 0) + u32::from(h.flags & TCP_FIN != 0);
    let mut tcp = vec![0u8; 20];
    put16(&mut tcp, 0, h.dport);
    put16(&mut tcp, 2, h.sport);
    if h.flags & TCP_ACK != 0 {
        tcp[4..8].copy_from_slice(&about[h.l4 + 8..h.l4 + 12]);
        tcp[13] = TCP_RST;
    } else {
        tcp[8..12].copy_from_slice(&seq.wrapping_add(length).to_be_bytes());
        tcp[13] = TCP_RST | TCP_ACK;
    }
    tcp[12] = 5 << 4;
    match (h.dst, h.src) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut b = ipv4_header(from, to, TCP, tcp.len());
            let pseudo = sum_words(&b[12..20]) + u32::from(TCP) + tcp.len() as u32;
            let sum = !fold(pseudo + sum_words(&tcp));
            put16(&mut tcp, 16, sum);
            b.extend_from_slice(&tcp);
            Some(b)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => Some(ipv6_packet(from, to, TCP, 16, &tcp)),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn udp(src: &str, dst: &str, payload: &[u8]) -> Vec<u8> {
        let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
        let (IpAddr::V4(s), IpAddr::V4(d)) = (src.ip(), dst.ip()) else { panic!("IPv4 only") };
        let mut u = vec![0u8; 8];
        put16(&mut u, 0, src.port());
        put16(&mut u, 2, dst.port());
        put16(&mut u, 4, (8 + payload.len()) as u16);
        u.extend_from_slice(payload);
        let mut b = ipv4_header(s, d, UDP, u.len());
        let pseudo = sum_words(&b[12..20]) + u32::from(UDP) + u.len() as u32;
        let sum = !fold(pseudo + sum_words(&u));
        put16(&mut u, 6, sum);
        b.extend_from_slice(&u);
        b
    }

    pub(crate) fn valid(b: &[u8]) -> bool {
        let h = parse(b).unwrap();
        let pseudo = sum_words(&b[12..20]) + u32::from(h.proto) + (b.len() - h.l4) as u32;
        checksum(&b[..h.l4]) == 0 && fold(pseudo + sum_words(&b[h.l4..])) == 0xffff
    }

    #[test]
    fn rewriting_keeps_checksums_right() {
        for port in [1u16, 255, 1024, 40000, 65535] {
            let mut b = udp("192.168.1.2:5000", "203.0.113.9:3478", b"odd");
            assert!(valid(&b));
            let h = parse(&b).unwrap();
            set_source(&mut b, &h, SocketAddr::new("198.51.100.7".parse().unwrap(), port));
            assert!(valid(&b), "port {port}");
            let h = parse(&b).unwrap();
            assert_eq!(h.source(), format!("198.51.100.7:{port}").parse().unwrap());
            set_target(&mut b, &h, "10.0.0.1:9".parse().unwrap());
            assert!(valid(&b));
            assert!(spend_hops(&mut b, 5));
            assert!(valid(&b));
        }
    }

    #[test]
    fn errors_quote_what_they_are_about() {
        let b = udp("192.168.1.2:5000", "203.0.113.9:3478", b"x");
        let mut e = icmp_error("203.0.113.9".parse().unwrap(), &b, IcmpReason::PortUnreachable).unwrap();
        let h = parse(&e).unwrap();
        assert_eq!(h.kind, Kind::IcmpError);
        translate_icmp_error(
            &mut e,
            &h,
            None,
            Some("10.9.9.9".parse().unwrap()),
            Some("10.9.9.9:77".parse().unwrap()),
            None,
        );
        assert_eq!(checksum(&e[..20]), 0);
        assert_eq!(checksum(&e[20..]), 0);
        let inner = parse_quoted(&e, &parse(&e).unwrap()).unwrap();
        assert_eq!(inner.source(), "10.9.9.9:77".parse().unwrap());
        assert!(icmp_error("203.0.113.9".parse().unwrap(), &e, IcmpReason::Prohibited).is_none());
    }

    #[test]
    fn short_or_strange_input_is_refused() {
        assert!(parse(&[]).is_none());
        assert!(parse(&[0x45, 0, 0]).is_none());
        assert!(parse(&[0x60; 30]).is_none());
        assert!(parse(&[0x10; 60]).is_none());
        let b = udp("192.168.1.2:5000", "203.0.113.9:3478", b"x");
        for n in 0..b.len() {
            let _ = parse(&b[..n]);
        }
    }
}
