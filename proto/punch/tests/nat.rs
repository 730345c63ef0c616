//! Through home routers, both sides dialling (each needs the other's packets to have gone out first).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail their test")]

mod common;

use anywire_punch::{Event, Observation};
use common::{MS, World, at, path};
use netem::{Dependence, LinkConfig, Loss, NatConfig};

const STUN: [&str; 2] = ["198.51.100.10:3478", "198.51.100.11:3478"];

/// Two homes, each observed through STUN from the socket that dials, then dialled from both sides.
fn meet(a: NatConfig, b: NatConfig, seed: u8) -> [Option<seam::Path>; 2] {
    let lossy = LinkConfig { loss: Loss::Random(0.1), delay: MS(20), jitter: MS(10), ..LinkConfig::default() };
    let mut world = World::new(lossy, seed);
    for server in STUN {
        world.stun_server(server);
    }
    let homes = [(a, "203.0.113.5"), (b, "203.0.113.6")].map(|(kind, ip)| world.router(kind, ip));
    let nodes = homes.map(|home| world.machine("192.168.0.2:29471", Some(home)));
    for node in nodes {
        world.observe(node, &STUN);
    }
    world.run(MS(2_000));
    let publics = nodes.map(|node| observed(&world, node).public[0].to_string());
    world.dial(nodes[0], 1, &[&publics[1]], MS(8_000));
    world.dial(nodes[1], 1, &[&publics[0]], MS(8_000));
    world.run(MS(8_000));
    nodes.map(|node| world.opened(node).map(|(_, path, _)| path))
}

fn observed(world: &World, node: usize) -> Observation {
    let mut all = world.events(node).iter().filter_map(|(_, event)| match event {
        Event::Observed(observation) => Some(observation.clone()),
        _ => None,
    });
    all.next().unwrap()
}

#[test]
fn endpoint_independent_mappings_meet_whatever_their_filters() {
    use Dependence::{Address, AddressAndPort, Endpoint};
    for a in [Endpoint, Address, AddressAndPort] {
        for b in [Endpoint, Address, AddressAndPort] {
            for hairpin in [true, false] {
                let kind = |filtering| NatConfig { filtering, hairpin, ..NatConfig::OPEN };
                let got = meet(kind(a), kind(b), 3);
                assert_eq!(got, [Some(path("203.0.113.6:29471")), Some(path("203.0.113.5:29471"))], "{a:?} {b:?}");
            }
        }
    }
}

#[test]
fn a_symmetric_router_reaches_one_that_lets_its_address_in() {
    let [_, joiner] = meet(NatConfig::ADDRESS_RESTRICTED, NatConfig::SYMMETRIC, 4);
    assert_eq!(joiner, Some(path("203.0.113.5:29471")));
}

#[test]
fn a_symmetric_router_does_not_reach_a_port_restricted_one_by_dialling_alone() {
    assert_eq!(meet(NatConfig::PORT_RESTRICTED, NatConfig::SYMMETRIC, 5), [None, None]);
}

#[test]
fn a_rebinding_in_mid_session_is_proved_at_the_new_address() {
    // Pain 7.
    let mut world = World::delayed(MS(20));
    let host = world.machine("198.51.100.1:29471", None);
    let home = world.router(NatConfig::PORT_RESTRICTED, "203.0.113.5");
    let joiner = world.machine("192.168.0.2:5000", Some(home));
    world.dial(joiner, 1, &["198.51.100.1:29471"], MS(8_000));
    world.run(MS(100));
    world.call(joiner, |punch, now| punch.hold(now, path("198.51.100.1:29471"), true));
    world.call(host, |punch, now| punch.hold(now, path("203.0.113.5:5000"), false));
    world.run(MS(5_000));
    world.nat(home).rebind();
    world.run(MS(3_000));
    let (_, moved, _) = world.got(host).last().cloned().unwrap();
    assert_eq!(moved, at("203.0.113.5:5001"));
    let moved = path("203.0.113.5:5001");
    world.call(host, |punch, now| punch.challenge(now, moved));
    world.run(MS(1_000));
    assert!(world.events(host).iter().any(|(_, event)| *event == Event::Proved { path: moved }));
    world.call(host, |punch, now| punch.rekey(now, path("203.0.113.5:5000"), moved));
    world.run(MS(100));
    let stats = common::stats(&mut world, host, "203.0.113.5:5001");
    assert_eq!(stats.rtt, Some(MS(40)));
}
