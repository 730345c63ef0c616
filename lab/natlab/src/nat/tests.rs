//! RFC 4787, behaviour by behaviour.

use super::*;
use crate::packet::tests::{udp, valid};

const A: &str = "192.168.1.2:5000";
const B: &str = "192.168.1.3:5000";
const S1: &str = "203.0.113.2:3478";
const S1B: &str = "203.0.113.2:3479";
const S2: &str = "203.0.113.3:3478";
const WAN: &str = "198.51.100.9";

fn nat(mapping: Dependence, filtering: Dependence, ports: Ports) -> Nat {
    let cfg = NatConfig { mapping, filtering, ports, ..NatConfig::default() };
    Nat::new(cfg, WAN.parse().unwrap(), Rng::new(1))
}

fn out(n: &mut Nat, from: &str, to: &str, now: Instant) -> SocketAddr {
    match n.outbound(udp(from, to, b"hi"), now) {
        Verdict::Forward(p) => {
            assert!(valid(&p));
            packet::parse(&p).unwrap().source()
        }
        v => panic!("{v:?}"),
    }
}

fn into(n: &mut Nat, from: &str, to: SocketAddr, now: Instant) -> Option<SocketAddr> {
    match n.inbound(udp(from, &to.to_string(), b"hi"), now) {
        Verdict::Forward(p) => {
            assert!(valid(&p));
            Some(packet::parse(&p).unwrap().target())
        }
        _ => None,
    }
}

#[test]
fn mapping_behaviours() {
    use Dependence::*;
    let now = Instant::now();
    for (mapping, same_addr, same_all) in
        [(Independent, true, true), (Address, true, false), (AddressPort, false, false)]
    {
        let mut n = nat(mapping, AddressPort, Ports::Random);
        let first = out(&mut n, A, S1, now);
        assert_eq!(first, out(&mut n, A, S1, now), "stable");
        assert_eq!(first == out(&mut n, A, S1B, now), same_addr, "{mapping:?}");
        assert_eq!(first == out(&mut n, A, S2, now), same_all, "{mapping:?}");
        assert_ne!(first, out(&mut n, B, S1, now), "one outside port each");
    }
}

#[test]
fn filtering_behaviours() {
    use Dependence::*;
    let now = Instant::now();
    for (filtering, port, addr) in [(Independent, true, true), (Address, true, false), (AddressPort, false, false)] {
        let mut n = nat(Independent, filtering, Ports::Preserve);
        let mapped = out(&mut n, A, S1, now);
        assert_eq!(mapped.port(), 5000);
        assert_eq!(into(&mut n, S1, mapped, now), Some(A.parse().unwrap()));
        assert_eq!(into(&mut n, S1B, mapped, now).is_some(), port);
        assert_eq!(into(&mut n, S2, mapped, now).is_some(), addr);
        // Being let in, or refused, opens nothing more.
        assert_eq!(into(&mut n, "203.0.113.3:9", mapped, now).is_some(), addr);
    }
}

#[test]
fn refused_inbound_opens_no_filter() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(Independent, Address, Ports::Preserve);
    let mapped = out(&mut n, A, S1, now);
    for _ in 0..3 {
        assert_eq!(into(&mut n, S2, mapped, now), None);
    }
}

#[test]
fn mappings_run_out_and_traffic_keeps_them() {
    use Dependence::*;
    let start = Instant::now();
    let mut n = nat(Independent, AddressPort, Ports::Random);
    n.cfg.udp_timeout = Duration::from_secs(10);
    let first = out(&mut n, A, S1, start);
    let t = start + Duration::from_secs(9);
    assert!(into(&mut n, S1, first, t).is_some());
    let t = t + Duration::from_secs(9);
    assert_eq!(first, out(&mut n, A, S1, t), "inbound traffic kept it");
    n.cfg.refresh_inbound = false;
    let t = t + Duration::from_secs(9);
    assert!(into(&mut n, S1, first, t).is_some());
    let t = t + Duration::from_secs(2);
    assert!(into(&mut n, S1, first, t).is_none(), "only outbound counts now");
    assert_ne!(first, out(&mut n, A, S1, t), "a new mapping");
}

#[test]
fn preserving_falls_back_when_the_port_is_taken() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(Independent, AddressPort, Ports::Preserve);
    assert_eq!(out(&mut n, A, S1, now).port(), 5000);
    assert_ne!(out(&mut n, B, S1, now).port(), 5000);
}

#[test]
fn sequential_ports_follow_each_other() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(AddressPort, AddressPort, Ports::Sequential);
    let first = out(&mut n, A, S1, now).port();
    assert_eq!(out(&mut n, A, S1B, now).port(), first + 1);
    assert_eq!(out(&mut n, A, S2, now).port(), first + 2);
}

#[test]
fn a_small_port_range_runs_dry() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(Independent, AddressPort, Ports::Random);
    n.cfg.port_range = (2000, 2003);
    for i in 0..4 {
        let port = out(&mut n, &format!("192.168.1.2:{}", 5000 + i), S1, now).port();
        assert!((2000..=2003).contains(&port));
    }
    assert!(matches!(n.outbound(udp("192.168.1.2:6000", S1, b""), now), Verdict::Drop("no free outside port")));
}

#[test]
fn hairpin_needs_the_filter_to_agree() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(Independent, AddressPort, Ports::Random);
    let (a, b) = (out(&mut n, A, S1, now), out(&mut n, B, S1, now));
    let pkt = udp(A, &b.to_string(), b"x");
    assert!(matches!(n.outbound(pkt.clone(), now), Verdict::Drop("hairpin is off")));
    n.cfg.hairpin = Hairpin::External;
    assert!(matches!(n.outbound(pkt.clone(), now), Verdict::Drop("filtered")));
    let back = n.outbound(udp(B, &a.to_string(), b"y"), now);
    let Verdict::Inside(p) = back else { panic!("{back:?}") };
    let h = packet::parse(&p).unwrap();
    assert_eq!((h.source(), h.target()), (b, A.parse().unwrap()));
    assert!(valid(&p));
    assert!(matches!(n.outbound(pkt, now), Verdict::Inside(_)));
}

#[test]
fn forwards_let_strangers_in_and_run_out() {
    use Dependence::*;
    let now = Instant::now();
    for mapping in [Independent, AddressPort] {
        let mut n = nat(mapping, AddressPort, Ports::Random);
        let f = Forward {
            proto: packet::UDP,
            outside_port: 19132,
            inside: A.parse().unwrap(),
            remote: None,
            expires: Some(now + Duration::from_secs(60)),
            description: "game".into(),
            fixed: false,
        };
        n.add_forward(f.clone(), now).unwrap();
        let at: SocketAddr = format!("{WAN}:19132").parse().unwrap();
        assert_eq!(into(&mut n, S2, at, now), Some(A.parse().unwrap()));
        assert_eq!(out(&mut n, A, S2, now), at, "answers come from the forwarded port");
        assert_eq!(out(&mut n, A, S1, now) == at, mapping == Independent);
        let mut other = f.clone();
        other.inside = B.parse().unwrap();
        assert_eq!(n.add_forward(other, now), Err(ForwardError::Conflict));
        assert_eq!(into(&mut n, S2, at, now + Duration::from_secs(61)), None);
        n.add_forward(f, now).unwrap();
        assert!(n.remove_forward(packet::UDP, 19132));
        assert_eq!(into(&mut n, S2, at, now), None);
    }
}

#[test]
fn a_firewall_filters_without_translating() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(Independent, AddressPort, Ports::Preserve);
    n.cfg.translate = false;
    assert_eq!(into(&mut n, S1, A.parse().unwrap(), now), None);
    assert_eq!(out(&mut n, A, S1, now), A.parse().unwrap());
    assert_eq!(into(&mut n, S1, A.parse().unwrap(), now), Some(A.parse().unwrap()));
    assert_eq!(into(&mut n, S2, A.parse().unwrap(), now), None);
}

#[test]
fn fragments_follow_their_first_part() {
    use Dependence::*;
    let now = Instant::now();
    let mut n = nat(Independent, AddressPort, Ports::Random);
    let mut first = udp(A, S1, &[7; 64]);
    first[6] = 0x20;
    let mut second = udp(A, S1, &[7; 64]);
    second[7] = 9;
    assert!(matches!(n.outbound(second.clone(), now), Verdict::Drop(_)));
    assert!(matches!(n.outbound(first, now), Verdict::Forward(_)));
    let Verdict::Forward(p) = n.outbound(second, now) else { panic!() };
    assert_eq!(packet::parse(&p).unwrap().src, WAN.parse::<IpAddr>().unwrap());
}
