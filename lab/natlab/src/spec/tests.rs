//! The language: what it says, and what it says about mistakes.

use super::*;

#[test]
fn a_full_topology() {
    let t = Topology::parse(
        "seed 9\n\
         carrier isp kind=symmetric hairpin\n\
         home a kind=port-restricted hosts=alice,alan upnp delay=20ms up-rate=5mbit # x\n\
         home b kind=full-cone via=isp\n\
         home c kind=cgnat\n\
         home d kind=open hosts=dora,dirk\n\
         host alan loss=1%\n\
         vlan vpn hosts=alice,b\n\
         server extra delay=5ms\n",
    )
    .unwrap();
    assert_eq!(t.seed, 9);
    assert_eq!(t.ip("alan"), Some(Ipv4Addr::new(192, 168, 1, 3)));
    assert_eq!(t.public_ip("alice"), Some("44.128.1.3".parse().unwrap()));
    assert_eq!(t.public_ip("b"), Some(IpAddr::V4(t.carriers[0].wan)));
    assert_eq!(t.public_ip("dirk"), Some("44.128.2.3".parse().unwrap()));
    assert!(t.vlans[0].members[1].1.octets()[0] == 25);
    assert_eq!(t.homes[0].link.up.rate, 5_000_000);
    assert_eq!(t.homes[0].link.down.rate, 0);
    assert_eq!(t.servers.len(), 4);
    assert!(t.hosts_file().contains("stun2.lab"));
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("home a kind=port-resticted", "did you mean 'port-restricted'"),
        ("home a dealy=3ms", "did you mean 'delay'"),
        ("hom a", "did you mean 'home'"),
        ("home a delay=3", "no duration"),
        ("home a loss=150%", "no share"),
        ("home a\nhome a", "two homes 'a'"),
        ("home a via=x", "no carrier 'x'"),
        ("home a hosts=b\nhome b hosts=c", "a home and a host of another"),
        ("home master", "'master' names a host and a server"),
        ("home a kind=linux mapping=endpoint", "cannot be chosen"),
        ("home a upnp=miniupnpd", "needs kind=linux"),
        ("vlan v hosts=nobody", "no host 'nobody'"),
        ("home", "needs a name"),
        ("home a forward=udp:1:bob:1", "not in this home"),
        ("pool homes=10.0.0.0/28", "a /24 or larger"),
    ] {
        let e = Topology::parse(text).unwrap_err();
        assert!(e.contains(part), "{text}: {e}");
    }
}

#[test]
fn pools_move_the_public_addresses() {
    let t = Topology::parse(
        "home a\nhome o kind=open\npool homes=198.51.100.0/24 servers=203.0.113.0/24 open=192.0.2.0/24",
    )
    .unwrap();
    assert_eq!(t.ip("stun"), Some(Ipv4Addr::new(203, 0, 113, 2)));
    assert_eq!(t.public_ip("a"), Some("198.51.100.2".parse().unwrap()));
    assert_eq!(t.public_ip("o"), Some("192.0.2.2".parse().unwrap()));
}

#[test]
fn the_short_form() {
    assert_eq!(expand("alice=symmetric,delay=20ms,upnp"), "home alice kind=symmetric delay=20ms upnp");
    assert_eq!(expand("home a kind=open"), "home a kind=open");
}
