//! Guessing ports: many sockets at one end, many probes at the other.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "the first instant of a virtual time has to come from somewhere")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anywire_punch::{Config, Event, GUESS_FOR, PROBES, Punch, SOCKETS};
use netem::{Nat, NatConfig, Ports};
use np1::{Kind, Packet};
use seam::{Path, SocketId};

const FIRST: SocketId = SocketId(32);

fn other() -> SocketAddr {
    ([198, 51, 100, 7], 4_000).into()
}

fn punch(seed: u8, now: Instant) -> Punch {
    Punch::new(Config::default(), [seed; 32], now)
}

type Sent = Vec<(Instant, Path, Vec<u8>)>;

/// Everything sent until the attempt is over, and the events.
fn run(punch: &mut Punch, mut now: Instant) -> (Sent, Vec<Event>) {
    let (mut sent, mut events) = (Vec::new(), Vec::new());
    loop {
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        punch.poll_transmit(now, &mut out);
        sent.extend(out.into_iter().map(|(path, bytes)| (now, path, bytes)));
        events.extend(std::iter::from_fn(|| punch.poll_event()));
        let Some((due, _)) = punch.poll_timeout() else { return (sent, events) };
        now = now.max(due);
        punch.handle_timeout(now);
    }
}

#[test]
fn an_attempt_says_hello_to_1200_ports_in_3_s_and_is_over_after_4() {
    let start = Instant::now();
    let mut punch = punch(1, start);
    assert!(punch.probe_ports(start, other().ip()));
    let (sent, events) = run(&mut punch, start);
    let ports: BTreeSet<u16> = sent.iter().map(|(_, path, _)| path.remote.port()).collect();
    assert_eq!((sent.len(), ports.len()), (PROBES as usize, PROBES as usize));
    assert!(sent.iter().all(|(_, path, _)| path.socket == SocketId(0) && path.remote.ip() == other().ip()));
    assert!(sent.iter().all(|(_, _, bytes)| bytes.len() == 13 && Packet::parse(bytes).unwrap().kind == Kind::Hello));
    assert!(sent.last().unwrap().0 < start + Duration::from_secs(3));
    // Never more than 400 a second.
    assert!(sent.windows(5).all(|five| five[4].0 > five[0].0));
    assert_eq!(events, [Event::GuessOver]);
}

#[test]
fn each_socket_speaks_twice_and_no_more_sockets_than_256_do() {
    let start = Instant::now();
    let mut punch = punch(2, start);
    assert!(punch.spray(start, FIRST, 1_000, other()));
    let (sent, events) = run(&mut punch, start);
    let mut times: BTreeMap<SocketId, usize> = BTreeMap::new();
    for (_, path, _) in &sent {
        assert_eq!(path.remote, other());
        *times.entry(path.socket).or_default() += 1;
    }
    assert_eq!((times.len(), times.first_key_value(), sent.len()), (256, Some((&FIRST, &2)), 512));
    assert!(sent[255].0 < start + Duration::from_millis(100));
    assert_eq!(events, [Event::GuessOver]);
    assert_eq!(SOCKETS, 256);
}

#[test]
fn fewer_sockets_are_a_smaller_attempt_and_none_is_none() {
    let start = Instant::now();
    let mut punch = punch(2, start);
    assert!(!punch.spray(start, FIRST, 0, other()));
    assert!(punch.spray(start, FIRST, 20, other()));
    assert_eq!(run(&mut punch, start).0.len(), 40);
}

#[test]
fn one_attempt_at_a_time_and_a_bounded_number_of_them() {
    let start = Instant::now();
    let mut punch = punch(3, start);
    assert!(punch.probe_ports(start, other().ip()));
    assert!(!punch.probe_ports(start, other().ip()) && !punch.spray(start, FIRST, 256, other()));
    let mut sent = run(&mut punch, start).0.len();
    let mut attempts = 1;
    for second in 5..600 {
        let now = start + Duration::from_secs(second);
        if punch.probe_ports(now, other().ip()) {
            attempts += 1;
            sent += run(&mut punch, now).0.len();
        }
    }
    assert!((19..=21).contains(&attempts), "{attempts} in ten minutes");
    assert_eq!(sent, attempts * PROBES as usize);
}

#[test]
fn an_attempt_that_was_stopped_costs_only_what_it_sent() {
    let start = Instant::now();
    let mut punch = punch(3, start);
    for _ in 0..50 {
        assert!(punch.probe_ports(start, other().ip()));
        punch.stop_guessing();
    }
    assert!(run(&mut punch, start).1.is_empty(), "no event");
}

#[test]
fn who_answers_or_says_hello_there_is_told_once_and_strangers_are_not() {
    let start = Instant::now();
    let mut punch = punch(4, start);
    punch.probe_ports(start, other().ip());
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    punch.poll_transmit(start, &mut out);
    let token = Packet::parse(&out[0].1).unwrap().payload.to_vec();
    let ack = np1::packet(Kind::Ack, &token);
    let from = out[0].0;
    for _ in 0..3 {
        assert_eq!(punch.handle_packet(start, from, Packet::parse(&ack).unwrap()), Ok(()));
    }
    assert_eq!(punch.poll_event(), Some(Event::Guessed { path: from }));
    assert_eq!(punch.poll_event(), None);
    // Its hello from another port is one as well; somebody else's is only answered.
    let hello = np1::packet(Kind::Hello, &[7; 8]);
    let met = Path::new(SocketId(0), SocketAddr::new(other().ip(), 9));
    for path in [met, Path::new(SocketId(0), ([192, 0, 2, 1], 9).into())] {
        punch.handle_packet(start, path, Packet::parse(&hello).unwrap()).unwrap();
    }
    assert_eq!(punch.poll_event(), Some(Event::Guessed { path: met }));
    assert_eq!(punch.poll_event(), None);
    // Another token is nobody's answer, ours that comes back is not answered.
    let wrong = np1::packet(Kind::Ack, &[1; 8]);
    assert!(punch.handle_packet(start, from, Packet::parse(&wrong).unwrap()).is_err());
    assert!(punch.handle_packet(start, from, Packet::parse(&out[0].1).unwrap()).is_err());
    // However many ports say hello, eight are told of.
    for port in 100..200 {
        let path = Path::new(SocketId(0), SocketAddr::new(other().ip(), port));
        let _limited = punch.handle_packet(start, path, Packet::parse(&hello).unwrap());
    }
    assert_eq!(std::iter::from_fn(|| punch.poll_event()).count(), 6);
}

/// Both ends behind their routers. Whether anybody was met, and by then how many probes were sent.
fn meet(seed: u8) -> (bool, u32) {
    let mut now = Instant::now();
    let start = now;
    let mut random = Nat::new(NatConfig::SYMMETRIC, [203, 0, 113, 5].into(), [seed; 32]);
    let mut kept = Nat::new(NatConfig::PORT_RESTRICTED, [203, 0, 113, 6].into(), [seed + 1; 32]);
    let (mut a, mut b) = (punch(seed, now), punch(seed + 100, now));
    let b_inner: SocketAddr = ([192, 168, 0, 2], 4_000).into();
    let b_outer = kept.outbound(now, b_inner, ([192, 0, 2, 1], 3_478).into()).unwrap();
    let a_inner = |socket: SocketId| SocketAddr::from(([192, 168, 1, 2], 10_000 + socket.0));
    a.spray(now, FIRST, SOCKETS, b_outer);
    b.probe_ports(now, random.external());
    let mut probes = 0;
    while now < start + GUESS_FOR {
        loop {
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            a.poll_transmit(now, &mut out);
            let mut quiet = out.is_empty();
            for (path, bytes) in out {
                let from = random.outbound(now, a_inner(path.socket), path.remote).unwrap();
                if kept.inbound(now, from, path.remote).is_some() {
                    let _ = b.handle_packet(now, Path::new(SocketId(0), from), Packet::parse(&bytes).unwrap());
                }
            }
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            b.poll_transmit(now, &mut out);
            quiet &= out.is_empty();
            for (path, bytes) in out {
                probes += 1;
                let from = kept.outbound(now, b_inner, path.remote).unwrap();
                if let Some(inner) = random.inbound(now, from, path.remote) {
                    let to = Path::new(SocketId(inner.port() - 10_000), from);
                    let _ = a.handle_packet(now, to, Packet::parse(&bytes).unwrap());
                }
            }
            if quiet {
                break;
            }
        }
        let guessed =
            |punch: &mut Punch| std::iter::from_fn(|| punch.poll_event()).any(|e| matches!(e, Event::Guessed { .. }));
        if guessed(&mut a) & guessed(&mut b) {
            return (true, probes);
        }
        now = [a.poll_timeout(), b.poll_timeout()].into_iter().flatten().map(|(at, _)| at).min().unwrap();
        a.handle_timeout(now);
        b.handle_timeout(now);
    }
    (false, probes)
}

#[test]
fn nine_of_ten_pairs_meet_and_most_long_before_the_last_probe() {
    let mut probes: Vec<u32> = (0..100).map(meet).filter(|(met, _)| *met).map(|(_, probes)| probes).collect();
    probes.sort_unstable();
    assert!(probes.len() >= 90, "{} of 100", probes.len());
    assert!(probes[probes.len() / 2] < 400, "{probes:?}");
}

/// Two routers that count, `gone` ports further than they were observed: which pair of datagrams meets.
fn stride(gone: [u16; 2]) -> bool {
    let now = Instant::now();
    let config = NatConfig { ports: Ports::Sequential(20_000), ..NatConfig::SYMMETRIC };
    let ips = [[203, 0, 113, 5], [203, 0, 113, 6]];
    let mut ends: Vec<(Nat, Punch)> =
        (0..2).map(|n| (Nat::new(config, ips[n].into(), [1; 32]), punch(n as u8, now))).collect();
    let inner: SocketAddr = ([192, 168, 0, 2], 4_000).into();
    let seen: Vec<SocketAddr> = (0..2)
        .map(|n| {
            let nat = &mut ends[n].0;
            let seen = nat.outbound(now, inner, ([192, 0, 2, 1], 3_478).into()).unwrap();
            for other in 0..gone[n] {
                nat.outbound(now, inner, ([192, 0, 2, 2], 1 + other).into());
            }
            seen
        })
        .collect();
    for n in 0..2 {
        ends[n].1.stride(now, seen[1 - n], n as u16 + 1);
    }
    let mut air: Vec<Vec<(SocketAddr, SocketAddr)>> = Vec::new();
    for (nat, punch) in &mut ends {
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        punch.poll_transmit(now, &mut out);
        air.push(out.iter().map(|(path, _)| (nat.outbound(now, inner, path.remote).unwrap(), path.remote)).collect());
    }
    (0..2).any(|n| air[n].iter().any(|(from, to)| ends[1 - n].0.inbound(now, *from, *to).is_some()))
}

#[test]
fn two_routers_that_count_meet_whatever_both_gave_out_in_between() {
    for a in 0..16 {
        for b in 0..11 {
            // The end with step 2 gave out b, the other a.
            assert_eq!(stride([a, b]), 2 * b + a < 32, "{a} and {b} ports further");
        }
    }
}
