//! The rest of what a topology can say, a test each.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use super::{ANSWER, DISCOVERY, PUNCH, Report, equal, must};
use crate::lab::{Handle, Lab};
use crate::nat::Dependence::AddressPort;
use crate::net::Result;
use crate::probe::{self, TcpIn};

type Test = (&'static str, fn(&Handle) -> Result<()>);

const ALL: &[Test] = &[
    ("neighbours meet at their public address with hairpin", |l| {
        equal(probe::punch(l, "hair-a", "hair-b", PUNCH)?, true)
    }),
    ("hairpin=internal shows the inside address", |l| hairpin_internal(l)),
    ("two homes behind one carrier with hairpin meet", |l| equal(probe::punch(l, "loop-1", "loop-2", PUNCH)?, true)),
    ("two homes behind one carrier without hairpin do not", |l| {
        equal(probe::punch(l, "flat-1", "flat-2", PUNCH)?, false)
    }),
    ("carrier-side addresses connect only with 'local'", |l| carrier_local(l)),
    ("homes with the same private subnet meet", |l| equal(probe::punch(l, "twin-1", "twin-2", PUNCH)?, true)),
    ("neighbours with the same source port get two outside ports", |l| port_conflict(l)),
    ("a mapping ends after udp-timeout, and refresh=outbound holds", |l| timeout(l)),
    ("a router with 'reject' answers unwanted TCP with RST", |l| {
        equal(probe::discover(l, "loud", ANSWER)?.tcp_in, Some(TcpIn::Refused))
    }),
    ("web-only lets TCP to port 80 out", |l| web_only(l)),
    ("ICMP errors come through the NAT", |l| icmp_errors(l)),
    ("large datagrams cross in fragments", |l| fragments(l, "port-restricted-2", 4000)),
    ("datagrams cross a smaller MTU", |l| fragments(l, "pppoe", 1480)),
    ("TCP hole punching: port-restricted with port-restricted", |l| {
        equal(probe::tcp_punch(l, "port-restricted-1a", "port-restricted-2", PUNCH * 3)?, true)
    }),
    ("TCP hole punching: udp-blocked with full-cone", |l| {
        equal(probe::tcp_punch(l, "udp-blocked-1a", "full-cone-2", PUNCH * 3)?, true)
    }),
    ("TCP hole punching: symmetric with open", |l| {
        equal(probe::tcp_punch(l, "symmetric-1a", "open-2", PUNCH * 3)?, true)
    }),
    ("TCP hole punching: symmetric with port-restricted cannot", |l| {
        equal(probe::tcp_punch(l, "symmetric-1a", "port-restricted-2", PUNCH)?, false)
    }),
    ("a forward from the topology lets strangers in", |l| forward(l)),
    ("UPnP maps, lists and removes a port", |l| upnp(l, "igd-a", "igd", 19132)),
    ("UPnP v2 behind a symmetric NAT", |l| upnp(l, "igd-s", "igd-s", 19132)),
    ("UPnP behind a carrier shows a carrier address and opens nothing", |l| upnp_carrier(l)),
    ("UPnP with permanent leases only", |l| upnp_permanent(l)),
    ("UPnP that refuses", |l| upnp_refuse(l)),
    ("UPnP that lies", |l| upnp_lie(l)),
    ("no UPnP where there is none", |l| {
        must(probe::find_gateway(l, "quick", Duration::from_millis(300))?.is_none(), || "a gateway answered".into())
    }),
    ("NAT-PMP maps a port", |l| natpmp(l)),
    ("delay and jitter", |l| delay(l)),
    ("loss in one direction", |l| loss(l)),
    ("rate limit", |l| rate(l)),
    ("a host's own link inside its home", |l| host_link(l)),
    ("a virtual LAN carries broadcasts, to members only", |l| vlan(l)),
    ("a virtual LAN without broadcasts carries the rest", |l| vlan_quiet(l)),
    ("broadcasts to the subnet stay at home", |l| subnet_broadcast(l)),
    ("IPv6 behind firewalls: strangers stay out, punching works", |l| ipv6(l)),
];

const KERNEL: &[Test] = &[("TCP hole punching: linux with port-restricted", |l| {
    equal(probe::tcp_punch(l, "linux-1a", "port-restricted-2", PUNCH * 3)?, true)
})];

const MINIUPNPD: &[Test] = &[("miniupnpd on a kernel router maps a port", |l| upnp(l, "mini", "mini", 19133))];

/// Runs them all at once, but what changes a running lab last and alone.
pub(super) fn check(lab: &Lab, kernel: bool, miniupnpd: bool, r: &mut Report) {
    println!("\nthe rest:");
    let mut tests: Vec<Test> = ALL.to_vec();
    if kernel {
        tests.extend(KERNEL);
    }
    if miniupnpd {
        tests.extend(MINIUPNPD);
    }
    let handle: &Handle = lab;
    let outcomes: Vec<Result<()>> = thread::scope(|s| {
        let threads: Vec<_> = tests.iter().map(|(_, f)| s.spawn(move || f(handle))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("the test panicked".into()))).collect()
    });
    for ((what, f), outcome) in tests.iter().zip(outcomes) {
        // A busy machine answers late: what failed among forty others is asked once more, alone.
        r.check(what, outcome.or_else(|first| f(handle).map_err(|e| format!("{first}; and alone: {e}"))));
    }
    r.check("set changes a link while it runs", change(lab));
    r.check("reset and renumber take the mappings away", restart(lab));
}

fn mapped(l: &Handle, s: &UdpSocket) -> Result<SocketAddr> {
    probe::mapped(s, l.stun_servers()[0][0], Duration::from_secs(1))
}

fn hairpin_internal(l: &Handle) -> Result<()> {
    let (a, b) = (probe::udp_socket(l, "hairf-a", 0)?, probe::udp_socket(l, "hairf-b", 0)?);
    let to = mapped(l, &a)?;
    mapped(l, &b)?;
    b.send_to(b"hello", to).map_err(|e| e.to_string())?;
    a.set_read_timeout(Some(Duration::from_secs(1))).map_err(|e| e.to_string())?;
    let (_, from) = a.recv_from(&mut [0; 16]).map_err(|e| format!("nothing came: {e}"))?;
    equal(Some(from.ip()), l.topology.ip("hairf-b").map(IpAddr::V4))
}

fn carrier_local(l: &Handle) -> Result<()> {
    for (a, b, want) in [("near-1", "near-2", true), ("flat-1", "flat-2", false)] {
        let (x, y) = (probe::udp_socket(l, a, 5555)?, probe::udp_socket(l, b, 5555)?);
        let inner = |node: &str| {
            let home = l.topology.homes.iter().find(|h| h.name == node);
            home.map(|h| SocketAddr::from((h.wan, 5555))).ok_or_else(|| format!("no home {node}"))
        };
        let targets = [inner(b)?, inner(a)?];
        equal(probe::meet(&[x, y], targets, PUNCH / 2)?, want)?;
    }
    Ok(())
}

fn port_conflict(l: &Handle) -> Result<()> {
    for kind in ["full-cone", "port-restricted", "symmetric", "cgnat"] {
        let a = probe::udp_socket(l, &format!("{kind}-1a"), 33333)?;
        let b = probe::udp_socket(l, &format!("{kind}-1b"), 33333)?;
        let (x, y) = (mapped(l, &a)?, mapped(l, &b)?);
        must(x != y, || format!("{kind}: both are {x}"))?;
        equal(mapped(l, &a)? == x, true)?;
    }
    Ok(())
}

fn timeout(l: &Handle) -> Result<()> {
    let s = probe::udp_socket(l, "quick", 0)?;
    let first = mapped(l, &s)?;
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(400));
        equal(mapped(l, &s)?, first)?;
    }
    thread::sleep(Duration::from_millis(1300));
    let second = mapped(l, &s)?;
    must(second != first, || "the mapping did not run out".into())
}

fn web_only(l: &Handle) -> Result<()> {
    let listener = l.inside("master", || probe::tcp_listen(80))?.map_err(|e| format!("cannot listen: {e}"))?;
    let at = listener.local_addr().map_err(|e| e.to_string())?;
    let ip = l.topology.ip("master").ok_or("no master")?;
    let to = SocketAddr::from((ip, at.port()));
    let open = l.inside("web-only-1a", || probe::tcp_connect(0, to, Duration::from_secs(1)))?;
    open.map_err(|e| format!("port 80: {e}"))?;
    let shut = SocketAddr::from((ip, 81));
    let closed = l.inside("web-only-1a", || probe::tcp_connect(0, shut, ANSWER))?;
    equal(closed.err().map(|e| e.kind()), Some(std::io::ErrorKind::TimedOut))
}

fn icmp_errors(l: &Handle) -> Result<()> {
    let ip = l.topology.ip("master").ok_or("no master")?;
    let s = probe::udp_socket(l, "port-restricted-2", 0)?;
    s.connect((ip, 9)).map_err(|e| e.to_string())?;
    s.set_read_timeout(Some(Duration::from_secs(1))).map_err(|e| e.to_string())?;
    s.send(b"nobody there").map_err(|e| e.to_string())?;
    let e = s.recv(&mut [0; 16]).err().map(|e| e.kind());
    equal(e, Some(std::io::ErrorKind::ConnectionRefused))
}

fn fragments(l: &Handle, host: &str, size: usize) -> Result<()> {
    let ip = l.topology.ip("master").ok_or("no master")?;
    let server = l.inside("master", || UdpSocket::bind((ip, 0)))?.map_err(|e| e.to_string())?;
    let s = probe::udp_socket(l, host, 0)?;
    let limit = Some(Duration::from_secs(1));
    let data: Vec<u8> = (0..size).map(|i| i as u8).collect();
    s.send_to(&data, server.local_addr().map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    server.set_read_timeout(limit).map_err(|e| e.to_string())?;
    s.set_read_timeout(limit).map_err(|e| e.to_string())?;
    let mut buf = vec![0; 65536];
    let (n, from) = server.recv_from(&mut buf).map_err(|e| format!("not there: {e}"))?;
    must(buf[..n] == data, || "it came out different".into())?;
    server.send_to(&data, from).map_err(|e| e.to_string())?;
    let (n, _) = s.recv_from(&mut buf).map_err(|e| format!("not back: {e}"))?;
    must(buf[..n] == data, || "it came back different".into())
}

fn forward(l: &Handle) -> Result<()> {
    let at = SocketAddr::new(l.topology.public_ip("igd-b").ok_or("no address")?, 4000);
    equal(probe::reachable(l, "igd-b", 4001, at, PUNCH)?, true)
}

fn gateway(l: &Handle, host: &str) -> Result<probe::Gateway> {
    probe::find_gateway(l, host, Duration::from_secs(1))?.ok_or_else(|| "no gateway answered".into())
}

fn upnp(l: &Handle, host: &str, home: &str, port: u16) -> Result<()> {
    let g = gateway(l, host)?;
    let public = l.topology.homes.iter().find(|h| h.name == home).map(|h| IpAddr::V4(h.wan));
    equal(g.external_ip(l, host)?, public)?;
    let at = SocketAddr::new(public.ok_or("no address")?, port);
    equal(probe::reachable(l, host, port, at, ANSWER)?, false)?;
    g.map(l, host, port, 600)?.map_err(|e| format!("AddPortMapping failed with {e}"))?;
    equal(probe::reachable(l, host, port, at, PUNCH)?, true)?;
    let index = [("NewPortMappingIndex", "0")];
    let listed =
        g.call(l, host, "GetGenericPortMappingEntry", &index)?.map_err(|e| format!("listing failed with {e}"))?;
    must(listed.contains("NewInternalClient"), || "the list is empty".into())?;
    g.unmap(l, host, port)?.map_err(|e| format!("DeletePortMapping failed with {e}"))?;
    equal(probe::reachable(l, host, port, at, ANSWER)?, false)
}

fn upnp_carrier(l: &Handle) -> Result<()> {
    let g = gateway(l, "loop-1")?;
    let ip = g.external_ip(l, "loop-1")?;
    must(matches!(ip, Some(IpAddr::V4(a)) if a.octets()[..2] == [100, 64]), || format!("{ip:?}"))?;
    g.map(l, "loop-1", 19134, 0)?.map_err(|e| format!("AddPortMapping failed with {e}"))?;
    let at = SocketAddr::new(l.topology.public_ip("loop-1").ok_or("no address")?, 19134);
    equal(probe::reachable(l, "loop-1", 19134, at, ANSWER)?, false)
}

fn upnp_permanent(l: &Handle) -> Result<()> {
    let g = gateway(l, "igd-p")?;
    equal(g.map(l, "igd-p", 19135, 600)?.err(), Some(725))?;
    g.map(l, "igd-p", 19135, 0)?.map_err(|e| format!("{e}"))?;
    let at = SocketAddr::new(l.topology.public_ip("igd-p").ok_or("no address")?, 19135);
    equal(probe::reachable(l, "igd-p", 19135, at, PUNCH)?, true)
}

fn upnp_refuse(l: &Handle) -> Result<()> {
    equal(gateway(l, "igd-r")?.map(l, "igd-r", 19136, 0)?.err(), Some(606))
}

fn upnp_lie(l: &Handle) -> Result<()> {
    gateway(l, "igd-l")?.map(l, "igd-l", 19137, 0)?.map_err(|e| format!("{e}"))?;
    let at = SocketAddr::new(l.topology.public_ip("igd-l").ok_or("no address")?, 19137);
    equal(probe::reachable(l, "igd-l", 19137, at, ANSWER)?, false)
}

fn natpmp(l: &Handle) -> Result<()> {
    let s = probe::udp_socket(l, "igd-a", 0)?;
    s.set_read_timeout(Some(Duration::from_secs(1))).map_err(|e| e.to_string())?;
    let gateway = l.topology.ip("igd.router").ok_or("no router")?;
    let ask = |m: &[u8]| -> Result<Vec<u8>> {
        s.send_to(m, (gateway, 5351)).map_err(|e| e.to_string())?;
        let mut buf = [0; 64];
        let (n, _) = s.recv_from(&mut buf).map_err(|e| format!("no answer: {e}"))?;
        Ok(buf[..n].to_vec())
    };
    let public = l.topology.public_ip("igd-a");
    let a = ask(&[0, 0])?;
    equal(a.get(8..12).map(|o| IpAddr::from([o[0], o[1], o[2], o[3]])), public)?;
    let mut m = vec![0, 1, 0, 0];
    m.extend_from_slice(&20000u16.to_be_bytes());
    m.extend_from_slice(&20001u16.to_be_bytes());
    m.extend_from_slice(&600u32.to_be_bytes());
    let a = ask(&m)?;
    equal(a.get(10..12), Some(&20001u16.to_be_bytes()[..]))?;
    let at = SocketAddr::new(public.ok_or("no address")?, 20001);
    equal(probe::reachable(l, "igd-a", 20000, at, PUNCH)?, true)
}

fn delay(l: &Handle) -> Result<()> {
    let q = probe::quality(l, "slow", 60, Duration::from_millis(10))?;
    equal(q.received, 60)?;
    let (low, high) = (q.round_trips[0], q.round_trips[55]);
    must(low >= Duration::from_millis(50) && high <= Duration::from_millis(85), || {
        format!("round trips from {low:?} to {high:?}, expected 50 to 70 ms")
    })
}

fn loss(l: &Handle) -> Result<()> {
    let q = probe::quality(l, "lossy", 500, Duration::from_millis(1))?;
    must((350..=450).contains(&q.received), || format!("{} of 500 came back, expected 400", q.received))
}

fn rate(l: &Handle) -> Result<()> {
    let rate = probe::throughput(l, "narrow", Duration::from_millis(1500))?;
    must((5e6..8.5e6).contains(&rate), || format!("{:.1} Mbit/s, expected a little under 8", rate / 1e6))
}

fn host_link(l: &Handle) -> Result<()> {
    let far = probe::quality(l, "radio-b", 20, Duration::from_millis(10))?;
    equal(far.received, 20)?;
    let middle = far.round_trips[10];
    must((Duration::from_millis(40)..Duration::from_millis(55)).contains(&middle), || {
        format!("round trip {middle:?}, expected 40 ms")
    })?;
    let heard = probe::broadcast(l, "radio-a", SocketAddr::from((Ipv4Addr::BROADCAST, DISCOVERY)), &["radio-b"])?;
    equal(heard, vec![true])
}

fn vlan(l: &Handle) -> Result<()> {
    let everyone = SocketAddr::from((Ipv4Addr::new(25, 255, 255, 255), DISCOVERY + 1));
    let heard = probe::broadcast(l, "loop-1", everyone, &["hair-a", "twin-1", "hair-b", "twin-2"])?;
    equal(heard, vec![true, true, false, false])
}

fn vlan_quiet(l: &Handle) -> Result<()> {
    let v = l.topology.vlans.iter().find(|v| v.name == "tail").ok_or("no vlan")?;
    let mut o = u32::from(v.net) | (u32::MAX >> v.len);
    let heard = probe::broadcast(l, "flat-1", SocketAddr::from((Ipv4Addr::from(o), DISCOVERY + 2)), &["twin-2"])?;
    equal(heard, vec![false])?;
    o = u32::from(v.members[1].1);
    let to = SocketAddr::from((Ipv4Addr::from(o), 6666));
    let (a, b) = (probe::udp_socket(l, "flat-1", 6666)?, probe::udp_socket(l, "twin-2", 6666)?);
    equal(probe::meet(&[a, b], [to, SocketAddr::from((v.members[0].1, 6666))], PUNCH)?, true)
}

fn subnet_broadcast(l: &Handle) -> Result<()> {
    let home = l.topology.home_of("hair-a").ok_or("no home")?;
    let last = u32::from(home.lan) | (u32::MAX >> home.lan_len);
    let to = SocketAddr::from((Ipv4Addr::from(last), DISCOVERY + 3));
    equal(probe::broadcast(l, "hair-a", to, &["hair-b", "quick"])?, vec![true, false])
}

fn ipv6(l: &Handle) -> Result<()> {
    let bind = |node: &str| -> Result<(UdpSocket, SocketAddr)> {
        let ip = l.topology.v6(node).ok_or_else(|| format!("{node} has no IPv6"))?;
        let s =
            l.inside(node, || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 7777)))?.map_err(|e| format!("{node}: {e}"))?;
        Ok((s, SocketAddr::from((ip, 7777))))
    };
    let (a, at_a) = bind("six-1")?;
    let (b, at_b) = bind("six-2")?;
    let (c, at_c) = bind("six-o")?;
    let (m, _) = bind("master")?;
    for (to, s, want) in [(at_a, &a, false), (at_c, &c, true)] {
        m.send_to(b"hello", to).map_err(|e| e.to_string())?;
        s.set_read_timeout(Some(ANSWER)).map_err(|e| e.to_string())?;
        equal(s.recv_from(&mut [0; 16]).is_ok(), want)?;
    }
    equal(probe::meet(&[a, b], [at_b, at_a], PUNCH)?, true)
}

fn change(l: &Handle) -> Result<()> {
    l.control("set full-cone-1 delay=20ms")?;
    let q = probe::quality(l, "full-cone-1a", 10, Duration::from_millis(5))?;
    let got = q.round_trips.first().copied().unwrap_or_default();
    must(got >= Duration::from_millis(40), || format!("round trip {got:?}"))?;
    l.control("set full-cone-1 delay=0ms link=down")?;
    equal(probe::quality(l, "full-cone-1a", 5, Duration::from_millis(5))?.received, 0)?;
    l.control("set full-cone-1 link=up")?;
    equal(probe::quality(l, "full-cone-1a", 5, Duration::from_millis(5))?.received, 5)?;
    l.control("set full-cone-1 mapping=address-port filter=address-port ports=random")?;
    equal(probe::discover(l, "full-cone-1b", ANSWER)?.mapping, Some(AddressPort))?;
    match l.control("set full-cone-1 dleay=1ms") {
        Err(_) => Ok(()),
        Ok(_) => Err("a wrong key was taken".into()),
    }
}

fn restart(l: &Handle) -> Result<()> {
    let s = probe::udp_socket(l, "symmetric-2", 0)?;
    let first = mapped(l, &s)?;
    equal(mapped(l, &s)?, first)?;
    l.control("reset symmetric-2")?;
    let second = mapped(l, &s)?;
    must(second != first && second.ip() == first.ip(), || format!("{first} became {second}"))?;
    let ip = l.control("renumber symmetric-2")?;
    let third = mapped(l, &s)?;
    equal(third.ip().to_string(), ip.trim().to_string())?;
    must(third.ip() != first.ip(), || "the address stayed".into())?;
    // A TCP connection through the old address is dead, a new one works.
    let server = l.stun_servers()[0][0];
    let mut stream = l.inside("symmetric-2", || probe::tcp_connect(0, server, PUNCH))?.map_err(|e| e.to_string())?;
    l.control("renumber symmetric-2 44.128.1.250")?;
    stream.set_read_timeout(Some(ANSWER)).map_err(|e| e.to_string())?;
    let _ = stream.write_all(&crate::stun::request(&crate::stun::numbered(1), 0));
    must(!matches!(stream.read(&mut [0; 64]), Ok(n) if n > 0), || "an old connection lived on".into())
}
