//! Dialling and answering over bad links.

mod common;

use std::time::Duration;

use anywire_punch::{DialId, Event};
use common::{MS, World, at, path};
use netem::{LinkConfig, Loss, NatConfig};
use np1::Kind;

const HOST: &str = "198.51.100.1:29471";
const JOINER: &str = "198.51.100.2:5000";

fn bad_link() -> LinkConfig {
    LinkConfig {
        loss: Loss::Random(0.3),
        delay: MS(40),
        jitter: MS(30),
        reorder: 0.1,
        duplicate: 0.1,
        ..LinkConfig::default()
    }
}

#[test]
fn two_machines_reach_each_other_both_ways_over_a_bad_link() {
    for seed in 0..50 {
        let mut world = World::new(bad_link(), seed);
        let (a, b) = (world.machine(HOST, None), world.machine(JOINER, None));
        world.dial(a, 1, &[JOINER], MS(8_000));
        world.dial(b, 2, &[HOST], MS(8_000));
        world.run(MS(8_000));
        for (node, other) in [(a, JOINER), (b, HOST)] {
            let events = world.events(node);
            assert_eq!(events.len(), 1, "seed {seed}: {events:?}");
            let (when, to, rtt) = world.opened(node).unwrap();
            assert_eq!(to, path(other));
            assert!(when < MS(3_000), "seed {seed}: {when:?}");
            assert!(rtt >= MS(80) && rtt <= when, "seed {seed}: {rtt:?}");
        }
    }
}

#[test]
fn a_host_that_never_dials_answers_and_remembers_nobody() {
    let mut world = World::delayed(MS(25));
    let (host, joiner) = (world.machine(HOST, None), world.machine(JOINER, None));
    world.dial(joiner, 7, &[HOST], MS(40_000));
    world.run(MS(1_000));
    assert_eq!(world.events(joiner), [(MS(50), Event::Opened { id: DialId(7), path: path(HOST), rtt: MS(50) })]);
    assert_eq!(world.sent(joiner, Kind::Hello), [(MS(0), at(HOST))]);
    assert_eq!(world.sent(joiner, Kind::Connected), [(MS(50), at(HOST))]);
    assert_eq!(world.sent(host, Kind::Ack), [(MS(25), at(JOINER))]);
    assert_eq!(world.events(host), []);
    assert_eq!(world.call(host, |punch, _| punch.poll_timeout()), None);
}

#[test]
fn every_candidate_is_dialled_every_100_ms_in_order_until_the_deadline() {
    let mut world = World::delayed(MS(5));
    let joiner = world.machine(JOINER, None);
    let candidates = ["25.1.1.1:1", "10.0.0.9:2", "203.0.113.9:3"];
    world.dial(joiner, 1, &candidates, MS(350));
    world.run(MS(1_000));
    let want: Vec<_> = (0..4).flat_map(|n| candidates.map(|to| (MS(100) * n, at(to)))).collect();
    assert_eq!(world.sent(joiner, Kind::Hello), want);
    assert_eq!(world.events(joiner), [(MS(350), Event::Failed { id: DialId(1) })]);
}

#[test]
fn candidates_nobody_can_be_at_are_passed_over() {
    let mut world = World::delayed(MS(5));
    let (_, joiner) = (world.machine(HOST, None), world.machine(JOINER, None));
    world.dial(joiner, 1, &["192.168.0.4:0", "0.0.0.0:29471", "255.255.255.255:9", HOST, HOST], MS(1_000));
    world.run(MS(1_000));
    assert_eq!(world.sent(joiner, Kind::Hello), [(MS(0), at(HOST))]);
    assert_eq!(world.opened(joiner).unwrap().1, path(HOST));
}

#[test]
fn losers_are_left_alone_once_one_candidate_answered() {
    let mut world = World::delayed(MS(30));
    let (slow, _, joiner) =
        (world.machine(HOST, None), world.machine("198.51.100.9:29471", None), world.machine(JOINER, None));
    world.set_link(slow, LinkConfig { delay: MS(40), ..LinkConfig::default() });
    world.dial(joiner, 1, &[HOST, "198.51.100.9:29471"], MS(8_000));
    world.run(MS(8_000));
    assert_eq!(world.sent(slow, Kind::Ack).len(), 1, "the loser answered too");
    assert_eq!(world.events(joiner).len(), 1);
    assert_eq!(world.opened(joiner).unwrap().1, path("198.51.100.9:29471"));
    assert_eq!(world.sent(joiner, Kind::Hello).len(), 2);
    assert_eq!(world.sent(joiner, Kind::Connected), [(MS(60), at("198.51.100.9:29471"))]);
}

#[test]
fn behind_one_router_the_lan_wins_and_the_public_address_is_no_longer_dialled() {
    // Pain 5.
    let mut world = World::delayed(MS(2));
    let home = world.router(NatConfig::PORT_RESTRICTED, "203.0.113.5");
    let (host, joiner) =
        (world.machine("192.168.0.2:29471", Some(home)), world.machine("192.168.0.3:5000", Some(home)));
    // The host once asked somebody outside, so that its public address exists.
    world.dial(host, 9, &["198.51.100.77:1"], MS(150));
    world.run(MS(200));
    world.dial(joiner, 1, &["192.168.0.2:29471", "203.0.113.5:29471"], MS(8_000));
    world.run(MS(1_000));
    assert_eq!(world.opened(joiner).unwrap().1, path("192.168.0.2:29471"));
    assert_eq!(world.sent(joiner, Kind::Hello).len(), 2);
}

#[test]
fn a_late_candidate_is_dialled_at_once() {
    let mut world = World::delayed(MS(10));
    let (_, joiner) = (world.machine(HOST, None), world.machine(JOINER, None));
    world.dial(joiner, 1, &[], MS(40_000));
    world.run(MS(1_234));
    assert_eq!(world.wire, []);
    assert!(world.call(joiner, |punch, now| punch.add_candidate(now, DialId(1), at(HOST))));
    assert!(!world.call(joiner, |punch, now| punch.add_candidate(now, DialId(1), at(HOST))), "known already");
    assert!(!world.call(joiner, |punch, now| punch.add_candidate(now, DialId(2), at(HOST))), "no such dial");
    world.run(MS(1_000));
    assert_eq!(world.opened(joiner), Some((MS(1_254), path(HOST), MS(20))));
}

#[test]
fn a_cancelled_dial_sends_and_tells_nothing_more() {
    let mut world = World::delayed(MS(50));
    let (_, joiner) = (world.machine(HOST, None), world.machine(JOINER, None));
    world.dial(joiner, 1, &[HOST], MS(8_000));
    world.run(MS(60));
    assert!(world.call(joiner, |punch, _| punch.cancel(DialId(1))));
    assert!(!world.call(joiner, |punch, _| punch.cancel(DialId(1))));
    world.run(MS(10_000));
    assert_eq!((world.events(joiner).len(), world.sent(joiner, Kind::Hello).len()), (0, 1));
}

#[test]
fn a_machine_never_opens_a_path_to_itself() {
    // Two homes with the same private addresses: the host's LAN candidate is the joiner's own address.
    let mut world = World::delayed(MS(10));
    let (home, other) = (world.router(NatConfig::OPEN, "203.0.113.5"), world.router(NatConfig::OPEN, "203.0.113.6"));
    let (joiner, host) =
        (world.machine("192.168.0.2:29471", Some(home)), world.machine("192.168.0.2:29471", Some(other)));
    world.dial(host, 9, &["203.0.113.5:29471"], MS(150));
    world.run(MS(200));
    world.dial(joiner, 1, &["192.168.0.2:29471", "203.0.113.6:29471"], MS(8_000));
    world.run(MS(1_000));
    assert_eq!(world.opened(joiner).unwrap().1, path("203.0.113.6:29471"));
    let to_itself = world.sent(joiner, Kind::Hello).iter().filter(|(_, to)| *to == at("192.168.0.2:29471")).count();
    assert_eq!(to_itself, 1);
}

#[test]
fn an_answer_from_another_address_than_dialled_names_the_path_that_works() {
    let mut world = World::delayed(MS(10));
    let (joiner, puppet) = (world.machine(JOINER, None), world.puppet(HOST));
    let elsewhere = world.puppet("198.51.100.3:4000");
    world.dial(joiner, 1, &[HOST], MS(8_000));
    world.run(MS(15));
    let (_, _, hello) = world.got(puppet)[0].clone();
    assert_eq!(hello.len(), 13);
    let token = hello[5..].to_vec();
    world.speak(elsewhere, JOINER, &np1::packet(Kind::Ack, &[9; 8]));
    world.speak(elsewhere, JOINER, &np1::packet(Kind::Ack, &token[..7]));
    world.run(MS(20));
    assert_eq!(world.events(joiner), [], "neither is the token");
    world.speak(elsewhere, JOINER, &np1::packet(Kind::Ack, &token));
    world.run(MS(20));
    assert_eq!(world.opened(joiner).unwrap().1, path("198.51.100.3:4000"));
}

#[test]
fn a_dial_of_the_same_name_begins_anew() {
    let mut world = World::delayed(MS(10));
    let (_, joiner) = (world.machine(HOST, None), world.machine(JOINER, None));
    world.dial(joiner, 1, &["203.0.113.9:3"], MS(500));
    world.run(MS(400));
    world.dial(joiner, 1, &[HOST], MS(500));
    world.run(MS(1_000));
    assert_eq!(world.events(joiner), [(MS(420), Event::Opened { id: DialId(1), path: path(HOST), rtt: MS(20) })]);
}

#[test]
fn dials_and_candidates_are_bounded() {
    let mut world = World::delayed(MS(10));
    let joiner = world.machine(JOINER, None);
    let many: Vec<_> = (1..=40).map(|n| at(&format!("203.0.113.{n}:9"))).collect();
    for id in 0..600 {
        let many = many.clone();
        world.call(joiner, |punch, now| punch.dial(now, DialId(id), many, Duration::from_secs(40)));
    }
    let failed = world.events(joiner).iter().filter(|(_, event)| matches!(event, Event::Failed { .. })).count();
    assert_eq!(failed, 600 - anywire_punch::DIALS_MAX);
    assert_eq!(world.sent(joiner, Kind::Hello).len(), anywire_punch::DIALS_MAX * anywire_punch::CANDIDATES_MAX);
}
