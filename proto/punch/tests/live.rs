//! Held paths, challenges, strangers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod common;

use std::time::Duration;

use anywire_punch::{Config, DialId, Event, Punch};
use common::{MS, World, at, path, stats};
use netem::{LinkConfig, Loss};
use np1::{Kind, Packet};
use proptest::prelude::*;
use seam::{Outbox, Path, Refused, SocketId};

const HOST: &str = "198.51.100.1:29471";
const JOINER: &str = "198.51.100.2:5000";

fn held(link: LinkConfig, seed: u8) -> (World, usize, usize) {
    let mut world = World::new(link, seed);
    let (host, joiner) = (world.machine(HOST, None), world.machine(JOINER, None));
    assert!(world.call(host, |punch, now| punch.hold(now, path(JOINER), false)));
    assert!(world.call(joiner, |punch, now| punch.hold(now, path(HOST), true)));
    (world, host, joiner)
}

#[test]
fn the_joiners_side_keeps_the_path_alive_every_15_seconds() {
    let (mut world, host, joiner) = held(LinkConfig::default(), 1);
    world.run(Duration::from_secs(61));
    let kept: Vec<_> = world.sent(joiner, Kind::Keepalive).iter().map(|(when, _)| when.as_secs()).collect();
    assert_eq!(kept, [15, 30, 45, 60]);
    assert_eq!(world.sent(host, Kind::Keepalive), []);
    world.call(joiner, |punch, _| punch.release(path(HOST)));
    let before = world.wire.len();
    world.run(Duration::from_secs(1));
    world.call(host, |punch, _| punch.release(path(JOINER)));
    world.run(Duration::from_secs(60));
    assert!(world.wire.len() <= before + 2, "released paths are left alone");
}

#[test]
fn work_of_several_kinds_keeps_each_its_own_time() {
    let (mut world, host, _) = held(LinkConfig { delay: MS(10), ..LinkConfig::default() }, 1);
    world.dial(host, 1, &["203.0.113.9:9"], MS(3_000));
    world.call(host, |punch, now| punch.challenge(now, path("203.0.113.8:9")));
    world.observe(host, &["203.0.113.7:3478"]);
    world.run(Duration::from_secs(10));
    let events: Vec<_> = world.events(host).iter().map(|(when, _)| *when).collect();
    assert_eq!(events, [MS(1_000), MS(1_900), MS(3_000)]);
    let hellos = |to| world.sent(host, Kind::Hello).iter().filter(|(_, other)| *other == at(to)).count();
    assert_eq!([hellos("203.0.113.9:9"), hellos("203.0.113.8:9"), hellos(JOINER)], [30, 10, 5]);
}

#[test]
fn the_round_trip_is_within_a_millisecond_of_the_link() {
    let (mut world, host, joiner) = held(LinkConfig { delay: MS(37), ..LinkConfig::default() }, 1);
    world.run(Duration::from_secs(5));
    for (node, other) in [(host, JOINER), (joiner, HOST)] {
        let stats = stats(&mut world, node, other);
        assert!(stats.rtt.unwrap().abs_diff(MS(74)) < MS(1), "{stats:?}");
        assert_eq!(stats.route, seam::Route::Direct);
    }
}

#[test]
fn the_round_trip_follows_the_link_and_its_deviation_the_jitter() {
    let (mut world, host, joiner) = held(LinkConfig { delay: MS(20), ..LinkConfig::default() }, 1);
    world.run(Duration::from_secs(20));
    assert!(stats(&mut world, host, JOINER).jitter.unwrap() < MS(2));
    let slow = LinkConfig { delay: MS(80), jitter: MS(40), ..LinkConfig::default() };
    world.set_link(host, slow);
    world.set_link(joiner, slow);
    world.run(Duration::from_secs(60));
    let stats = stats(&mut world, host, JOINER);
    assert!((MS(180)..MS(225)).contains(&stats.rtt.unwrap()), "{stats:?}");
    assert!((MS(5)..MS(25)).contains(&stats.jitter.unwrap()), "{stats:?}");
}

#[test]
fn loss_is_estimated_from_probes_old_peers_answer_too() {
    // A probe is lost when either way loses it: 1 - 0.9 * 0.9 is near a fifth.
    let (mut total, seeds) = (0.0, 20);
    for seed in 0..seeds {
        let (mut world, host, _) = held(LinkConfig { loss: Loss::Random(0.1), ..LinkConfig::default() }, seed);
        world.run(Duration::from_secs(70));
        total += stats(&mut world, host, JOINER).loss.unwrap();
    }
    let mean = total / f32::from(seeds);
    assert!((0.12..0.26).contains(&mean), "{mean}");
    let (mut world, host, _) = held(LinkConfig::default(), 1);
    assert_eq!(stats(&mut world, host, JOINER).loss, None, "nothing is known yet");
    world.run(Duration::from_secs(10));
    assert_eq!(stats(&mut world, host, JOINER).loss, Some(0.0));
}

#[test]
fn a_dead_peer_shows_as_all_lost_and_a_slow_one_does_not() {
    let (mut world, host, joiner) = held(LinkConfig::default(), 1);
    world.set_link(joiner, LinkConfig { loss: Loss::Random(1.0), ..LinkConfig::default() });
    world.run(Duration::from_secs(70));
    assert_eq!(stats(&mut world, host, JOINER).loss, Some(1.0));
    world.set_link(joiner, LinkConfig { delay: MS(1_500), ..LinkConfig::default() });
    world.run(Duration::from_secs(70));
    let late = stats(&mut world, host, JOINER);
    assert!(late.loss.unwrap() < 0.05 && late.rtt.unwrap() > MS(1_400), "{late:?}");
}

#[test]
fn a_path_that_moves_is_measured_anew() {
    let (mut world, host, _) = held(LinkConfig { delay: MS(30), ..LinkConfig::default() }, 1);
    world.run(Duration::from_secs(10));
    let other = world.machine("198.51.100.3:6000", None);
    world.set_link(other, LinkConfig { delay: MS(10), ..LinkConfig::default() });
    world.call(host, |punch, now| punch.rekey(now, path(JOINER), path("198.51.100.3:6000")));
    assert!(!world.call(host, |punch, _| punch.holds(path(JOINER))));
    assert_eq!(stats(&mut world, host, "198.51.100.3:6000").rtt, None);
    world.run(MS(100));
    assert_eq!(stats(&mut world, host, "198.51.100.3:6000").rtt, Some(MS(40)));
}

#[test]
fn who_receives_at_an_address_passes_its_challenge() {
    for seed in 0..20 {
        let mut world =
            World::new(LinkConfig { loss: Loss::Random(0.3), delay: MS(40), ..LinkConfig::default() }, seed);
        let (host, _) = (world.machine(HOST, None), world.machine(JOINER, None));
        world.call(host, |punch, now| punch.challenge(now, path(JOINER)));
        world.run(MS(2_000));
        let events: Vec<_> = world.events(host).iter().map(|(_, event)| event.clone()).collect();
        assert_eq!(events, [Event::Proved { path: path(JOINER) }], "seed {seed}");
    }
}

#[test]
fn who_does_not_receive_there_cannot_pass_whatever_it_saw() {
    let mut world = World::delayed(MS(10));
    let host = world.machine(HOST, None);
    let (victim, attacker) = (world.puppet("198.51.100.8:1"), world.puppet("198.51.100.9:1"));
    world.call(host, |punch, now| punch.challenge(now, path("198.51.100.8:1")));
    world.call(host, |punch, now| punch.challenge(now, path("198.51.100.9:1")));
    world.run(MS(50));
    let token = |world: &World, node: usize| world.got(node)[0].2[5..].to_vec();
    let (at_victim, own) = (token(&world, victim), token(&world, attacker));
    assert_ne!(at_victim, own, "each address has a token of its own");
    // Its own token under the victim's address, the victim's token under its own, guesses.
    let ack = |payload: &[u8]| np1::packet(Kind::Ack, payload);
    world.call(host, |punch, now| {
        let mut try_from = |from: &str, payload: &[u8]| {
            let bytes = ack(payload);
            punch.handle_packet(now, path(from), Packet::parse(&bytes).unwrap())
        };
        assert_eq!(try_from("198.51.100.8:1", &own), Err(Refused::NotAllowed));
        assert_eq!(try_from("198.51.100.9:1", &at_victim), Err(Refused::NotAllowed));
        assert_eq!(try_from("198.51.100.8:1", &[0; 8]), Err(Refused::Unexpected));
        assert_eq!(try_from("198.51.100.8:1", &[]), Err(Refused::Unexpected));
    });
    world.run(MS(2_000));
    let events: Vec<_> = world.events(host).iter().map(|(when, event)| (*when, event.clone())).collect();
    assert_eq!(
        events,
        [
            (MS(1_000), Event::Unproved { path: path("198.51.100.8:1") }),
            (MS(1_000), Event::Unproved { path: path("198.51.100.9:1") })
        ]
    );
    assert_eq!(world.got(victim).len(), 10);
}

#[test]
fn challenges_are_bounded_and_one_per_address() {
    let mut world = World::delayed(MS(10));
    let host = world.machine(HOST, None);
    let started: Vec<bool> = (0..100)
        .map(|n| world.call(host, |punch, now| punch.challenge(now, path(&format!("198.51.100.8:{}", 1_000 + n)))))
        .collect();
    assert_eq!(started.iter().filter(|started| **started).count(), anywire_punch::CHALLENGES_MAX);
    assert!(world.call(host, |punch, now| punch.challenge(now, path("198.51.100.8:1000"))));
    assert_eq!(world.sent(host, Kind::Hello).len(), anywire_punch::CHALLENGES_MAX);
}

/// Gives a machine `count` H of a peer at one instant; how many were answered.
fn flood(punch: &mut Punch, now: std::time::Instant, from: Path, count: usize) -> usize {
    let hello = np1::packet(Kind::Hello, &[7; 8]);
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    for _ in 0..count {
        let _ = punch.handle_packet(now, from, Packet::parse(&hello).unwrap());
    }
    punch.poll_transmit(now, &mut out);
    out.len()
}

#[test]
fn strangers_share_a_rate_and_held_paths_do_not() {
    let mut world = World::delayed(MS(10));
    let host = world.machine(HOST, None);
    let (stranger, member) = (path("198.51.100.66:9"), path(JOINER));
    world.call(host, |punch, now| {
        assert_eq!(flood(punch, now, stranger, 500), 64);
        assert_eq!(flood(punch, now + MS(20), stranger, 500), 1);
        assert_eq!(flood(punch, now + MS(1_020), stranger, 500), 50);
        punch.hold(now, member, false);
        assert_eq!(flood(punch, now, member, 500), 501, "with its own probe");
    });
}

#[test]
fn spoofed_strangers_leave_no_state() {
    // Pain 48.
    let mut world = World::delayed(MS(10));
    let host = world.machine(HOST, None);
    world.call(host, |punch, now| {
        for n in 0..20_000u32 {
            let from = Path::new(SocketId(0), (n.to_be_bytes(), 9).into());
            for kind in [Kind::Hello, Kind::Connected, Kind::Keepalive, Kind::Ack] {
                let bytes = np1::packet(kind, &n.to_be_bytes());
                let _ = punch.handle_packet(now, from, Packet::parse(&bytes).unwrap());
            }
        }
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        punch.poll_transmit(now, &mut out);
        assert!(out.len() <= 16_384);
        assert_eq!((punch.poll_timeout(), punch.poll_event()), (None, None));
    });
}

#[test]
fn waiting_echoes_are_bounded_in_bytes() {
    let mut world = World::delayed(MS(10));
    let host = world.machine(HOST, None);
    world.call(host, |punch, now| {
        punch.hold(now, path(JOINER), false);
        let big = np1::packet(Kind::Hello, &[1; 60_000]);
        let taken =
            (0..100).filter(|_| punch.handle_packet(now, path(JOINER), Packet::parse(&big).unwrap()).is_ok()).count();
        assert_eq!(taken, 4);
    });
}

/// A batch with room for so many datagrams.
struct Narrow(usize, Vec<(Path, Vec<u8>)>);

impl Outbox for Narrow {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        self.1.len() < self.0 && self.1.datagram(path, len, fill)
    }
}

#[test]
fn what_a_full_batch_does_not_take_is_sent_with_the_next() {
    let now = std::time::Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], now);
    let candidates = (1..=5).map(|n| at(&format!("203.0.113.{n}:9"))).collect();
    punch.dial(now, DialId(1), candidates, MS(8_000));
    let mut sent = Vec::new();
    while punch.poll_timeout().is_some_and(|(due, _)| due <= now) {
        let mut batch = Narrow(2, Vec::new());
        assert!(punch.poll_transmit(now, &mut batch));
        sent.extend(batch.1);
    }
    let to: Vec<_> = sent.iter().map(|(path, _)| path.remote.to_string()).collect();
    assert_eq!(to, [1, 2, 3, 4, 5].map(|n| format!("203.0.113.{n}:9")));
}

#[test]
fn packets_of_other_rooms_are_refused() {
    let now = std::time::Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], now);
    for kind in [Kind::Sealed, Kind::Signed, Kind::Plain, Kind::KeyExchange, Kind::Other(b'Q')] {
        let packet = Packet { kind, payload: &[1; 8] };
        assert_eq!(punch.handle_packet(now, path(JOINER), packet), Err(Refused::NotOurs));
    }
}

proptest! {
    #[test]
    fn any_datagram_gets_at_most_one_answer_and_none_longer_than_itself(
        datagrams in proptest::collection::vec((0u8..8, proptest::collection::vec(any::<u8>(), 0..80)), 0..40)
    ) {
        let now = std::time::Instant::now();
        let mut punch = Punch::new(Config::default(), [1; 32], now);
        punch.dial(now, DialId(1), vec![at(HOST)], MS(8_000));
        punch.hold(now, path(JOINER), true);
        punch.observe(now, vec![at("198.51.100.10:3478")]);
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        punch.poll_transmit(now, &mut out);
        for (letter, payload) in datagrams {
            let kind = *Kind::ALL.get(usize::from(letter)).unwrap_or(&Kind::Hello);
            for from in [path(HOST), path(JOINER), path("198.51.100.10:3478")] {
                let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
                let _ = punch.handle_packet(now, from, Packet { kind, payload: &payload });
                let _ = punch.handle_stun(now, from, &payload);
                punch.poll_transmit(now, &mut out);
                prop_assert!(out.len() <= 1);
                prop_assert!(out.iter().all(|(to, bytes)| *to == from && bytes.len() <= payload.len() + np1::HEADER));
            }
        }
    }
}
