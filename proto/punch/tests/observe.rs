//! What STUN servers say of the lobby socket.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests fail their test")]

mod common;

use std::time::Duration;

use anywire_punch::{Event, Observation};
use common::{MS, World, at, path};
use netem::{LinkConfig, Loss, NatConfig};

const SERVERS: [&str; 4] = ["198.51.100.10:19302", "198.51.100.11:3478", "198.51.100.12:3478", "198.51.100.13:3478"];
const ME: &str = "192.168.0.2:29471";

fn world(link: LinkConfig, kind: NatConfig, seed: u8, alive: usize) -> (World, usize) {
    let mut world = World::new(link, seed);
    let home = world.router(kind, "203.0.113.5");
    for server in &SERVERS[..alive] {
        world.stun_server(server);
    }
    let me = world.machine(ME, Some(home));
    (world, me)
}

fn only(world: &World, node: usize) -> (Duration, Observation) {
    match world.events(node) {
        [(when, Event::Observed(observation))] => (*when, observation.clone()),
        other => panic!("one observation is wanted: {other:?}"),
    }
}

#[test]
fn two_answers_end_the_round_at_once() {
    let link = LinkConfig { delay: MS(30), ..LinkConfig::default() };
    let (mut world, me) = world(link, NatConfig::PORT_RESTRICTED, 1, 4);
    world.observe(me, &SERVERS);
    world.run(MS(5_000));
    let (when, seen) = only(&world, me);
    assert_eq!(when, MS(60));
    assert_eq!(seen.public, ["203.0.113.5:29471".parse().unwrap()]);
    assert!(!seen.symmetric && !seen.cgnat);
    assert_eq!(world.wire.iter().filter(|(_, by, ..)| *by == me).count(), 4, "each server was asked once");
}

#[test]
fn an_answer_comes_under_a_second_over_a_bad_link() {
    for seed in 0..50 {
        let link = LinkConfig { loss: Loss::Random(0.25), delay: MS(60), jitter: MS(40), ..LinkConfig::default() };
        let (mut world, me) = world(link, NatConfig::PORT_RESTRICTED, seed, 4);
        world.observe(me, &SERVERS);
        world.run(MS(5_000));
        let (when, seen) = only(&world, me);
        assert!(when < MS(1_000) && seen.public.len() == 1, "seed {seed}: {when:?} {seen:?}");
    }
}

#[test]
fn silent_servers_cost_under_two_seconds_and_are_asked_with_doubling_pauses() {
    // Pain 2.
    let (mut world, me) = world(LinkConfig::default(), NatConfig::OPEN, 1, 0);
    world.observe(me, &SERVERS[..1]);
    world.run(MS(5_000));
    assert_eq!(only(&world, me), (MS(1_900), Observation::default()));
    let asked: Vec<_> = world.wire.iter().map(|(when, ..)| *when).collect();
    assert_eq!(asked, [0, 100, 300, 700, 1_500].map(MS));
    let ids: std::collections::BTreeSet<_> = world.wire.iter().map(|(.., bytes)| bytes[4..].to_vec()).collect();
    assert_eq!(ids.len(), 1, "a repeat is the same question");
}

#[test]
fn one_living_server_of_four_is_enough_for_the_address() {
    let link = LinkConfig { delay: MS(30), ..LinkConfig::default() };
    let (mut world, me) = world(link, NatConfig::SYMMETRIC, 1, 1);
    world.observe(me, &SERVERS);
    world.run(MS(5_000));
    let (when, seen) = only(&world, me);
    assert_eq!((when, seen.public.len(), seen.symmetric), (MS(1_900), 1, false));
}

#[test]
fn a_single_server_that_answers_ends_the_round_at_once() {
    let link = LinkConfig { delay: MS(30), ..LinkConfig::default() };
    let (mut world, me) = world(link, NatConfig::OPEN, 1, 1);
    world.observe(me, &SERVERS[..1]);
    world.run(MS(5_000));
    assert_eq!(only(&world, me).0, MS(60));
}

#[test]
fn a_symmetric_router_shows_in_two_answers() {
    let (mut world, me) = world(LinkConfig::default(), NatConfig::SYMMETRIC, 1, 2);
    world.observe(me, &SERVERS[..2]);
    world.run(MS(100));
    assert!(only(&world, me).1.symmetric);
}

#[test]
fn nobody_to_ask_is_an_answer() {
    let (mut world, me) = world(LinkConfig::default(), NatConfig::OPEN, 1, 0);
    world.observe(me, &["[2001:db8::1]:3478", "198.51.100.1:0"]);
    assert_eq!(only(&world, me), (MS(0), Observation::default()));
}

#[test]
fn stray_datagrams_do_not_disturb_a_round() {
    // Pain 3: a joiner's H at a restarting host, a forged answer, an answer to another question, noise.
    let mut world = World::delayed(MS(10));
    let (server, stranger) = (world.puppet(SERVERS[0]), world.puppet("198.51.100.66:3478"));
    let me = world.machine("198.51.100.2:29471", None);
    world.observe(me, &SERVERS[..1]);
    world.run(MS(20));
    let (_, from, bytes) = world.got(server)[0].clone();
    let request = stun::Request::parse(&bytes).unwrap();
    let forged = stun::Answer::of(&request, at("203.0.113.66:6")).encode();
    let other = stun::Answer::of(&stun::Request::with_cookie([1; 12]), at("203.0.113.66:6")).encode();
    let to = from.to_string();
    world.speak(stranger, &to, &forged);
    world.speak(stranger, &to, &np1::packet(np1::Kind::Hello, &[1; 8]));
    world.speak(server, &to, &other);
    world.speak(server, &to, b"noise");
    world.speak(server, &to, &forged[..20]);
    world.run(MS(50));
    assert_eq!(world.events(me), []);
    assert_eq!(world.sent(me, np1::Kind::Ack).len(), 1, "the H was answered");
    world.speak(server, &to, &stun::Answer::of(&request, from).encode());
    world.run(MS(50));
    assert_eq!(only(&world, me).1.public, ["198.51.100.2:29471".parse().unwrap()]);
}

#[test]
fn a_late_answer_is_neither_an_error_nor_an_event() {
    let mut world = World::delayed(MS(10));
    let servers = [0, 1, 2].map(|n| world.puppet(SERVERS[n]));
    let me = world.machine("198.51.100.2:29471", None);
    world.observe(me, &SERVERS[..3]);
    world.run(MS(20));
    let answers = servers.map(|server| {
        let (_, from, bytes) = world.got(server)[0].clone();
        stun::Answer::of(&stun::Request::parse(&bytes).unwrap(), from).encode()
    });
    for (server, answer) in SERVERS.iter().zip(&answers) {
        world.call(me, |punch, now| assert_eq!(punch.handle_stun(now, path(server), answer), Ok(())));
    }
    only(&world, me);
    world.call(me, |punch, now| {
        assert!(punch.handle_stun(now, path("198.51.100.99:1"), &answers[0]).is_err());
        assert_eq!(punch.poll_timeout(), None);
    });
}

#[test]
fn another_round_takes_the_place_of_the_first() {
    let link = LinkConfig { delay: MS(30), ..LinkConfig::default() };
    let (mut world, me) = world(link, NatConfig::OPEN, 1, 2);
    world.observe(me, &SERVERS[2..]);
    world.run(MS(500));
    world.observe(me, &SERVERS[..2]);
    world.run(MS(5_000));
    let (when, seen) = only(&world, me);
    assert_eq!((when, seen.public.len()), (MS(560), 1));
}
