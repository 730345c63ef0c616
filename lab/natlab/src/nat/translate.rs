//! A packet's way through the NAT, in both directions.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::{Dependence, FRAGMENT_TIMEOUT, Hairpin, ICMP_TIMEOUT, Nat, Session, TCP_CLOSING, TCP_OPENING, Verdict};
use crate::packet::{self, Header, IcmpReason, Kind};

impl Nat {
    fn touch(&mut self, id: u64, remote: SocketAddr, outbound: bool, flags: u8, now: Instant) {
        let (udp, tcp, inbound_counts) = (self.cfg.udp_timeout, self.cfg.tcp_timeout, self.cfg.refresh_inbound);
        let Some(b) = self.bindings.get_mut(&id) else {
            return;
        };
        let proto = b.proto;
        let fresh =
            Session { expires: now, sent: false, received: false, fin_sent: false, fin_received: false, reset: false };
        let forwarded = b.forward.is_some();
        let endpoint_filter = self.cfg.filtering != Dependence::AddressPort;
        // Inbound traffic makes a session only where it got through a filter
        // that lets strangers in: it must not open the filter by itself.
        if !outbound && !b.sessions.contains_key(&remote) && !forwarded && !endpoint_filter {
            return;
        }
        let s = b.sessions.entry(remote).or_insert(fresh);
        if s.expires <= now {
            (s.sent, s.received) = (false, false);
            (s.fin_sent, s.fin_received, s.reset) = (false, false, false);
        }
        if proto == packet::TCP && flags & packet::TCP_SYN != 0 {
            // A new connection between the same endpoints.
            if s.reset || (s.fin_sent && s.fin_received) {
                (s.sent, s.received) = (false, false);
            }
            (s.fin_sent, s.fin_received, s.reset) = (false, false, false);
        }
        if outbound {
            s.sent = true;
        } else {
            s.received = true;
        }
        match proto {
            packet::TCP => {
                if flags & packet::TCP_FIN != 0 {
                    if outbound {
                        s.fin_sent = true;
                    } else {
                        s.fin_received = true;
                    }
                }
                s.reset |= flags & packet::TCP_RST != 0;
                let keep = if s.reset || (s.fin_sent && s.fin_received) {
                    TCP_CLOSING
                } else if s.sent && s.received {
                    tcp
                } else {
                    TCP_OPENING
                };
                s.expires = now + keep;
            }
            packet::UDP => {
                if outbound || inbound_counts || forwarded {
                    s.expires = now + udp;
                }
            }
            _ => s.expires = now + ICMP_TIMEOUT,
        }
    }

    fn passes(&self, id: u64, remote: SocketAddr, now: Instant) -> bool {
        let b = &self.bindings[&id];
        if let Some(f) = &b.forward {
            return f.remote.is_none() || f.remote == Some(remote.ip());
        }
        let known =
            |test: &dyn Fn(&SocketAddr) -> bool| b.sessions.iter().any(|(r, s)| s.expires > now && s.sent && test(r));
        match self.cfg.filtering {
            Dependence::Independent => true,
            Dependence::Address => known(&|r| r.ip() == remote.ip()),
            Dependence::AddressPort => known(&|r| *r == remote),
        }
    }

    fn refuse(&self, pkt: &[u8], h: &Header, outbound: bool, why: &'static str) -> Verdict {
        if !self.cfg.reject {
            return Verdict::Drop(why);
        }
        let answer = if h.proto == packet::TCP {
            packet::tcp_reset(pkt, h)
        } else if outbound {
            packet::icmp_error(self.wan, pkt, IcmpReason::Prohibited)
        } else {
            packet::icmp_error(self.wan, pkt, IcmpReason::PortUnreachable)
        };
        match answer {
            Some(a) if outbound => Verdict::Inside(a),
            Some(a) => Verdict::Outside(a),
            None => Verdict::Drop(why),
        }
    }

    fn fragment_key(h: &Header) -> Option<(IpAddr, IpAddr, u8, u32)> {
        Some((h.src, h.dst, h.proto, h.frag?.id))
    }

    fn note_fragment(&mut self, h: &Header, to: SocketAddr, now: Instant) {
        if let Some(key) = Self::fragment_key(h) {
            self.fragments.insert(key, (to, now + FRAGMENT_TIMEOUT));
        }
    }

    fn known_fragment(&self, h: &Header, now: Instant) -> Option<SocketAddr> {
        let (to, at) = self.fragments.get(&Self::fragment_key(h)?)?;
        (*at > now).then_some(*to)
    }

    /// A packet from the inside.
    pub(crate) fn outbound(&mut self, mut pkt: Vec<u8>, now: Instant) -> Verdict {
        let Some(h) = packet::parse(&pkt) else {
            return Verdict::Drop("malformed");
        };
        if !self.cfg.fragments && h.frag.is_some() {
            return Verdict::Drop("fragment");
        }
        let to_self = self.cfg.translate && h.dst == self.wan;
        match h.kind {
            Kind::Fragment => {
                return match self.known_fragment(&h, now) {
                    Some(to) => {
                        packet::set_source(&mut pkt, &h, to);
                        Verdict::Forward(pkt)
                    }
                    None => Verdict::Drop("fragment without its first part"),
                };
            }
            Kind::IcmpError => return self.outbound_error(pkt, &h, now),
            Kind::Other => {
                return if self.cfg.translate {
                    Verdict::Drop("protocol not translated")
                } else {
                    Verdict::Forward(pkt)
                };
            }
            Kind::Echo { request } if to_self => {
                return match request.then(|| packet::echo_reply(&pkt, &h)).flatten() {
                    Some(reply) => Verdict::Inside(reply),
                    None => Verdict::Drop("addressed to the router"),
                };
            }
            _ => {}
        }
        let remote = self.remote_of(&h, true);
        let inside = h.source();
        let existing = self.find_out(h.proto, inside, remote, now);
        let answering = existing.is_some_and(|id| {
            let b = &self.bindings[&id];
            b.sessions.get(&remote).is_some_and(|s| s.expires > now)
        });
        if !answering {
            if h.proto == packet::UDP && !self.cfg.udp {
                return self.refuse(&pkt, &h, true, "UDP is blocked");
            }
            if h.proto == packet::TCP
                && let Some(ports) = &self.cfg.tcp_ports
                && !ports.contains(&h.dport)
            {
                return self.refuse(&pkt, &h, true, "TCP port is blocked");
            }
        }
        if to_self {
            return self.hairpin(pkt, &h, now);
        }
        let Some(id) = existing.or_else(|| self.open(h.proto, inside, remote, now)) else {
            return Verdict::Drop("no free outside port");
        };
        self.touch(id, remote, true, h.flags, now);
        if self.cfg.translate {
            let outside = self.bindings[&id].outside;
            self.note_fragment(&h, outside, now);
            packet::set_source(&mut pkt, &h, outside);
        } else {
            self.note_fragment(&h, inside, now);
        }
        Verdict::Forward(pkt)
    }

    fn remote_of(&self, h: &Header, outbound: bool) -> SocketAddr {
        let mut remote = if outbound { h.target() } else { h.source() };
        if matches!(h.kind, Kind::Echo { .. }) {
            remote.set_port(0);
        }
        remote
    }

    /// From the inside to the NAT's own outside address, and back in.
    fn hairpin(&mut self, mut pkt: Vec<u8>, h: &Header, now: Instant) -> Verdict {
        if self.cfg.hairpin == Hairpin::Off {
            return Verdict::Drop("hairpin is off");
        }
        let (inside, target) = (h.source(), h.target());
        let Some(id) = self.find_out(h.proto, inside, target, now).or_else(|| self.open(h.proto, inside, target, now))
        else {
            return Verdict::Drop("no free outside port");
        };
        self.touch(id, target, true, h.flags, now);
        let outside = self.bindings[&id].outside;
        let Some(to) = self.live_outside(h.proto, target, now) else {
            return self.refuse(&pkt, h, true, "unsolicited");
        };
        if !self.passes(to, outside, now) {
            return self.refuse(&pkt, h, true, "filtered");
        }
        self.touch(to, outside, false, h.flags, now);
        if self.cfg.hairpin == Hairpin::External {
            packet::set_source(&mut pkt, h, outside);
        }
        let receiver = self.bindings[&to].inside;
        packet::set_target(&mut pkt, h, receiver);
        Verdict::Inside(pkt)
    }

    /// A packet from the outside.
    pub(crate) fn inbound(&mut self, mut pkt: Vec<u8>, now: Instant) -> Verdict {
        let Some(h) = packet::parse(&pkt) else {
            return Verdict::Drop("malformed");
        };
        if !self.cfg.fragments && h.frag.is_some() {
            return Verdict::Drop("fragment");
        }
        if self.cfg.translate && h.dst != self.wan {
            return Verdict::Drop("not for this router");
        }
        match h.kind {
            Kind::Fragment => {
                return match self.known_fragment(&h, now) {
                    Some(to) => {
                        if self.cfg.translate {
                            packet::set_target(&mut pkt, &h, to);
                        }
                        Verdict::Forward(pkt)
                    }
                    None => Verdict::Drop("fragment without its first part"),
                };
            }
            Kind::IcmpError => return self.inbound_error(pkt, &h, now),
            Kind::Echo { request: true } if self.cfg.translate => {
                return match packet::echo_reply(&pkt, &h) {
                    Some(reply) if self.cfg.ping => Verdict::Outside(reply),
                    _ => Verdict::Drop("ping not answered"),
                };
            }
            Kind::Other if self.cfg.translate => return Verdict::Drop("protocol not translated"),
            Kind::Other => return Verdict::Forward(pkt),
            _ => {}
        }
        let remote = self.remote_of(&h, false);
        let found = self.live_outside(h.proto, h.target(), now);
        let Some(id) = found else {
            if !self.cfg.translate && self.cfg.filtering == Dependence::Independent {
                return Verdict::Forward(pkt);
            }
            return self.refuse(&pkt, &h, false, "unsolicited");
        };
        if !self.passes(id, remote, now) {
            return self.refuse(&pkt, &h, false, "filtered");
        }
        self.touch(id, remote, false, h.flags, now);
        let inside = self.bindings[&id].inside;
        self.note_fragment(&h, inside, now);
        if self.cfg.translate {
            packet::set_target(&mut pkt, &h, inside);
        }
        Verdict::Forward(pkt)
    }

    fn outbound_error(&mut self, mut pkt: Vec<u8>, h: &Header, now: Instant) -> Verdict {
        let Some(quoted) = packet::parse_quoted(&pkt, h) else {
            return Verdict::Drop("malformed");
        };
        if !self.cfg.translate {
            return Verdict::Forward(pkt);
        }
        // It complains about a packet that came in: that went to the inside.
        let mut remote = quoted.source();
        if matches!(quoted.kind, Kind::Echo { .. }) {
            remote.set_port(0);
        }
        let Some(id) = self.find_out(quoted.proto, quoted.target(), remote, now) else {
            return Verdict::Drop("error about nothing known");
        };
        let outside = self.bindings[&id].outside;
        packet::translate_icmp_error(&mut pkt, h, Some(self.wan), None, None, Some(outside));
        Verdict::Forward(pkt)
    }

    fn inbound_error(&mut self, mut pkt: Vec<u8>, h: &Header, now: Instant) -> Verdict {
        let Some(quoted) = packet::parse_quoted(&pkt, h) else {
            return Verdict::Drop("malformed");
        };
        let Some(id) = self.live_outside(quoted.proto, quoted.source(), now) else {
            if !self.cfg.translate && self.cfg.filtering == Dependence::Independent {
                return Verdict::Forward(pkt);
            }
            return Verdict::Drop("error about nothing known");
        };
        if !self.cfg.translate {
            return Verdict::Forward(pkt);
        }
        let inside = self.bindings[&id].inside;
        packet::translate_icmp_error(&mut pkt, h, None, Some(inside.ip()), Some(inside), None);
        Verdict::Forward(pkt)
    }
}
