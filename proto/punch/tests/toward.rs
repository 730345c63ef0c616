//! Punching toward who knocked.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "the first instant of a virtual time has to come from somewhere")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anywire_punch::{Config, Punch, TOWARD_FOR, TOWARD_MAX};
use np1::{Kind, Packet};
use seam::{Path, SocketId};

fn at(n: u16) -> SocketAddr {
    ([198, 51, 100, 7], n).into()
}

fn drain(punch: &mut Punch, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    punch.poll_transmit(now, &mut out);
    out.into_iter().map(|(path, bytes)| (path.remote, bytes)).collect()
}

/// Everything sent until nothing is due any more.
fn run(punch: &mut Punch, mut now: Instant) -> Vec<(Instant, SocketAddr, Vec<u8>)> {
    let mut sent = Vec::new();
    loop {
        sent.extend(drain(punch, now).into_iter().map(|(to, bytes)| (now, to, bytes)));
        let Some((due, _)) = punch.poll_timeout() else { return sent };
        now = now.max(due);
        punch.handle_timeout(now);
    }
}

#[test]
fn a_target_gets_a_hello_every_200_ms_for_15_s() {
    let start = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], start);
    punch.punch_toward(start, [at(5), at(0)]);
    let sent = run(&mut punch, start);
    assert_eq!(sent.len(), 75);
    assert!(sent.iter().all(|(_, to, bytes)| *to == at(5) && Packet::parse(bytes).unwrap().kind == Kind::Hello));
    assert!(sent.last().unwrap().0 < start + TOWARD_FOR);
    assert!(sent.windows(2).all(|pair| pair[1].0 - pair[0].0 == Duration::from_millis(200)));
}

#[test]
fn a_target_that_is_a_peer_is_left_alone_and_its_answer_means_nothing() {
    let start = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], start);
    punch.punch_toward(start, [at(5)]);
    let (_, hello) = drain(&mut punch, start).remove(0);
    let payload = Packet::parse(&hello).unwrap().payload.to_vec();
    let from = Path::new(SocketId(0), at(5));
    let answer = np1::packet(Kind::Ack, &payload);
    assert_eq!(punch.handle_packet(start, from, Packet::parse(&answer).unwrap()), Ok(()));
    assert_eq!(punch.poll_event(), None);
    punch.met(at(5));
    assert_eq!(punch.handle_packet(start, from, Packet::parse(&answer).unwrap()), Ok(()));
    assert!(run(&mut punch, start).is_empty());
}

#[test]
fn our_own_hello_toward_ourselves_is_not_answered() {
    let start = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], start);
    punch.punch_toward(start, [at(5)]);
    let (_, hello) = drain(&mut punch, start).remove(0);
    let from = Path::new(SocketId(0), at(9));
    assert!(punch.handle_packet(start, from, Packet::parse(&hello).unwrap()).is_err());
    assert!(drain(&mut punch, start).is_empty());
}

#[test]
fn a_flood_of_knocks_keeps_the_newest_targets() {
    let start = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], start);
    for n in 1..=200u16 {
        punch.punch_toward(start + Duration::from_micros(n.into()), [at(n)]);
    }
    drain(&mut punch, start);
    let later = start + Duration::from_secs(1);
    punch.handle_timeout(later);
    let to: Vec<u16> = drain(&mut punch, later).iter().map(|(to, _)| to.port()).collect();
    assert_eq!(to.len(), TOWARD_MAX);
    assert!(to.iter().all(|port| *port > 200 - 64));
}

#[test]
fn the_next_ports_are_guessed_for_4_s_and_not_past_the_last_port() {
    let start = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], start);
    punch.guess(start, at(65_530));
    let sent = run(&mut punch, start);
    assert_eq!(sent.len(), 5 * 20);
    assert!(sent.iter().all(|(_, to, _)| (65_531..=65_535).contains(&to.port())));
}

#[test]
fn a_peer_at_a_guessed_port_ends_the_guesses_at_its_address() {
    let start = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], start);
    punch.guess(start, at(100));
    assert_eq!(drain(&mut punch, start).len(), usize::from(anywire_punch::GUESSES));
    punch.met(at(107));
    assert!(run(&mut punch, start).is_empty());
}
