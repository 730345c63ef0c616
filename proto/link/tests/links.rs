//! Backup links between whole machines.

// A harness: it indexes what it made itself, panics on its own mistakes, and takes an instant to begin from.
#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use anywire_link::{Event, HELLO_GAP, QUEUE_MAX, STREAMS_MAX, Via, hello};
use common::{DELAY, World, address, path};
use netem::{Link, LinkConfig, Loss};
use seam::{ACCEPTED, StreamAsk, StreamId};

const SEC: fn(u64) -> Duration = Duration::from_secs;

/// A host that listens and a joiner that dials it.
fn pair() -> World {
    let mut world = World::new();
    let host = world.end("ada", 7, address(1));
    let joiner = world.end("bob", 7, address(2));
    world.ends[joiner].listens = false;
    let now = world.now;
    world.ends[host].links.set_peer(now, path(address(2)), &["bob"]);
    world.ends[joiner].links.set_peer(now, path(address(1)), &["ada"]);
    world
}

fn send(world: &mut World, from: usize, to: u8, text: &str) {
    let packet = world.packet(from, text.as_bytes());
    world.ends[from].links.send(path(address(to)), &packet);
}

#[test]
fn packets_travel_both_ways_and_are_said_to_come_from_the_players_datagram_address() {
    let mut world = pair();
    world.run(SEC(1));
    send(&mut world, 0, 2, "from the host");
    send(&mut world, 1, 1, "from the joiner");
    world.run(SEC(1));
    assert_eq!(world.ends[0].got[0].0, path(address(2)));
    assert_eq!(world.texts(0), ["from the joiner"]);
    assert_eq!(world.texts(1), ["from the host"]);
    assert!(world.logs(1)[0].contains("[dual] TCP link with 192.0.2.x:4001 up (this end connected)"));
    assert!(world.logs(0)[0].contains("up (the other end connected)"), "{:?}", world.logs(0));
}

#[test]
fn pain_92_the_first_frame_keeps_off_the_greeting() {
    let mut world = pair();
    world.run(DELAY);
    send(&mut world, 1, 1, "early");
    assert!(world.ends[1].links.is_up(path(address(1))));
    world.run(HELLO_GAP - DELAY / 2);
    assert_eq!(world.texts(0), [""; 0]);
    world.run(DELAY * 3);
    assert_eq!(world.texts(0), ["early"]);
}

#[test]
fn pain_91_both_dial_and_meet_in_one_connection() {
    let mut world = pair();
    world.ends[1].listens = true;
    world.meet = true;
    world.run(SEC(1));
    send(&mut world, 0, 2, "a");
    send(&mut world, 1, 1, "b");
    world.run(SEC(1));
    assert_eq!((world.texts(0), world.texts(1)), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert!(!world.ends.iter().any(|end| end.events.iter().any(|event| matches!(event, Event::Down { .. }))));
}

#[test]
fn both_dial_and_two_connections_come_about_neither_is_lost() {
    let mut world = pair();
    world.ends[1].listens = true;
    world.run(SEC(1));
    for n in 0..20 {
        send(&mut world, 0, 2, &format!("h{n}"));
        send(&mut world, 1, 1, &format!("j{n}"));
    }
    world.run(SEC(1));
    assert_eq!(world.texts(0), (0..20).map(|n| format!("j{n}")).collect::<Vec<_>>());
    assert_eq!(world.texts(1), (0..20).map(|n| format!("h{n}")).collect::<Vec<_>>());
    assert_eq!(world.dials.len(), 2);
}

#[test]
fn pain_93_a_dropped_link_is_dialled_again_with_growing_pauses() {
    let mut world = pair();
    world.run(SEC(1));
    world.ends[0].listens = false;
    world.cut();
    world.dials.clear();
    world.run(SEC(120));
    let joiner: Vec<u64> = world.dials.iter().filter(|(who, _)| *who == 1).map(|(_, at)| at.as_secs()).collect();
    assert_eq!(joiner, [2, 4, 8, 16, 32, 62, 92]);
    world.ends[0].listens = true;
    world.run(SEC(31));
    send(&mut world, 1, 1, "again");
    world.run(SEC(1));
    assert_eq!(world.texts(0), ["again"]);
}

#[test]
fn pain_93_an_address_that_stands_for_a_steam_peer_is_never_dialled() {
    let mut world = World::new();
    let end = world.end("bob", 7, address(1));
    let now = world.now;
    world.ends[end].links.set_peer(now, path(SocketAddr::from(([127, 0, 0, 1], 62_150))), &["ada"]);
    world.run(SEC(60));
    assert_eq!(world.dials, []);
}

/// Greets a host by hand as `name` from `remote`, on a stream of its own.
fn greet(world: &mut World, host: usize, by: usize, stream: u64, name: &str, remote: SocketAddr) {
    let line = hello(name, &mut world.ends[by].sealer);
    let now = world.now;
    let end = &mut world.ends[host];
    end.links.handle_accepted(now, StreamId(ACCEPTED + stream), remote);
    end.links.handle_bytes(now, StreamId(ACCEPTED + stream), &line, &mut end.opener);
}

#[test]
fn pain_46_two_instances_of_one_name_are_told_apart_by_address() {
    let mut world = World::new();
    let host = world.end("ada", 7, address(1));
    let one = world.end("bob", 7, SocketAddr::from(([192, 0, 2, 9], 1001)));
    let two = world.end("bob", 7, SocketAddr::from(([192, 0, 2, 9], 1002)));
    let now = world.now;
    let paths = [one, two].map(|end| path(world.ends[end].address));
    world.ends[host].links.set_peer(now, paths[0], &["bob"]);
    world.ends[host].links.set_peer(now, paths[1], &["bob#2", "bob"]);
    greet(&mut world, host, two, 1, "bob", paths[1].remote);
    assert_eq!(paths.map(|path| world.ends[host].links.is_up(path)), [false, true]);
    // The other is the only one left that may be meant, from whatever port.
    greet(&mut world, host, one, 2, "bob", SocketAddr::from(([192, 0, 2, 9], 7)));
    assert!(world.ends[host].links.is_up(paths[0]));
}

#[test]
fn pain_46_a_name_that_several_may_bear_is_refused_rather_than_guessed() {
    let mut world = World::new();
    let host = world.end("ada", 7, address(1));
    let by = world.end("bob", 7, address(2));
    let now = world.now;
    for port in [1, 2] {
        let remote = SocketAddr::from(([192, 0, 2, 9], port));
        world.ends[host].links.set_peer(now, path(remote), &["bob"]);
    }
    greet(&mut world, host, by, 1, "bob", SocketAddr::from(([192, 0, 2, 9], 3)));
    let ask = std::iter::from_fn(|| world.ends[host].links.poll_stream(now))
        .find(|ask| matches!(ask, StreamAsk::Close { .. }));
    assert_eq!(ask, Some(StreamAsk::Close { stream: StreamId(ACCEPTED + 1) }));
}

#[test]
fn pain_89_a_renamed_joiner_is_known_by_the_name_it_asked_for() {
    let mut world = World::new();
    let host = world.end("ada", 7, address(1));
    let by = world.end("bob", 7, address(2));
    let now = world.now;
    world.ends[host].links.set_peer(now, path(address(2)), &["bob#2", "bob"]);
    greet(&mut world, host, by, 1, "bob", address(2));
    assert!(world.ends[host].links.is_up(path(address(2))));
}

#[test]
fn a_greeting_before_the_join_waits_ten_seconds_and_keeps_what_came_behind_it() {
    let mut world = World::new();
    let host = world.end("ada", 7, address(1));
    let by = world.end("bob", 7, address(2));
    greet(&mut world, host, by, 1, "bob", address(2));
    let packet = world.packet(by, b"hello");
    let bytes = anywire_link::frame(&packet).unwrap();
    let now = world.now;
    let end = &mut world.ends[host];
    end.links.handle_bytes(now, StreamId(ACCEPTED + 1), &bytes, &mut end.opener);
    world.run(SEC(9));
    let now = world.now;
    world.ends[host].links.set_peer(now, path(address(2)), &["bob"]);
    world.run(SEC(0));
    assert_eq!(world.texts(host), ["hello"]);
    greet(&mut world, host, by, 2, "eve", address(3));
    world.run(SEC(11));
    assert!(world.logs(host).iter().any(|line| line.contains("nobody greeted or joined in time")));
}

#[test]
fn a_greeting_of_another_session_a_copied_one_and_none_get_nothing() {
    let mut world = pair();
    world.ends[0].listens = false;
    let stranger = world.end("bob", 8, address(2));
    greet(&mut world, 0, stranger, 1, "bob", address(2));
    assert!(!world.ends[0].links.is_up(path(address(2))));
    let line = hello("bob", &mut world.ends[1].sealer);
    let now = world.now;
    for (stream, up) in [(2, true), (3, true)] {
        let end = &mut world.ends[0];
        end.links.handle_accepted(now, StreamId(ACCEPTED + stream), address(2));
        end.links.handle_bytes(now, StreamId(ACCEPTED + stream), &line, &mut end.opener);
        assert_eq!(end.links.is_up(path(address(2))), up);
    }
    let end = &mut world.ends[0];
    end.links.handle_accepted(now, StreamId(ACCEPTED + 4), address(3));
    end.links.handle_bytes(now, StreamId(ACCEPTED + 4), &[b'x'; 5000], &mut end.opener);
    world.run(SEC(0));
    let lines = world.logs(0);
    assert!(lines.iter().any(|l| l.ends_with("no greeting")), "{lines:?}");
    assert_eq!(lines.iter().filter(|l| l.contains("another session, or a copied one")).count(), 2, "{lines:?}");
}

#[test]
fn streams_that_never_greet_are_bounded_and_closed_after_five_seconds() {
    let mut world = World::new();
    let host = world.end("ada", 7, address(1));
    let now = world.now;
    let links = &mut world.ends[host].links;
    for n in 0..1000 {
        links.handle_accepted(now, StreamId(ACCEPTED + n), address(9));
    }
    let refused = std::iter::from_fn(|| links.poll_stream(now)).count();
    assert_eq!(refused, 1000 - STREAMS_MAX);
    links.handle_timeout(now + SEC(5));
    let closed = std::iter::from_fn(|| links.poll_stream(now)).count();
    assert_eq!(closed, STREAMS_MAX);
}

#[test]
fn a_full_stream_holds_the_newest_packets_and_the_line_says_what_was_dropped() {
    let mut world = pair();
    world.run(SEC(1));
    world.ends[1].links.handle_full(StreamId(0), true);
    for n in 0..QUEUE_MAX + 10 {
        send(&mut world, 1, 1, &n.to_string());
    }
    world.run(DELAY * 2);
    assert_eq!(world.texts(0), [""; 0]);
    world.ends[1].links.handle_full(StreamId(0), false);
    world.run(SEC(10));
    // The replay window is as wide as the queue.
    assert_eq!(world.texts(0).first().map(String::as_str), Some("10"));
    assert!(world.logs(1).iter().any(|line| line.starts_with("[dual] ada: ") && line.ends_with("queue_drops=10")));
}

#[test]
fn a_player_that_moves_keeps_its_link() {
    let mut world = pair();
    world.run(SEC(1));
    world.ends[0].links.rekey(path(address(2)), path(address(77)));
    let packet = world.packet(0, b"to the new address");
    world.ends[0].links.send(path(address(77)), &packet);
    send(&mut world, 1, 1, "from it");
    world.run(SEC(1));
    assert_eq!(world.ends[0].got[0].0, path(address(77)));
    assert_eq!(world.texts(1), ["to the new address"]);
}

/// Frames of one end that arrive, of 2,000 on a wire that loses 30 %.
fn arrivals(with_link: bool) -> (usize, String) {
    let mut world = pair();
    world.run(SEC(1));
    let config = LinkConfig { loss: Loss::Random(0.3), delay: DELAY * 2, ..LinkConfig::default() };
    let mut wire: Link = Link::new(config, [3; 32]);
    let mut opened = 0;
    for n in 0..2_000u32 {
        let packet = world.packet(1, &n.to_be_bytes());
        wire.push(world.now, packet.clone());
        if with_link {
            world.ends[1].links.send(path(address(1)), &packet);
        }
        world.run(Duration::from_millis(4));
        let now = world.now;
        let from = path(address(2));
        let host = &mut world.ends[0];
        let by_link = std::mem::take(&mut host.got).into_iter().map(|(_, packet)| (packet, Via::Tcp));
        let by_wire = std::iter::from_fn(|| wire.pop(now)).map(|packet| (packet, Via::Udp));
        for (mut packet, via) in by_link.chain(by_wire).collect::<Vec<_>>() {
            let frame = &mut packet[np1::HEADER..];
            let salt: [u8; 4] = frame[..4].try_into().unwrap();
            let counter = u32::from_be_bytes(frame[4..8].try_into().unwrap());
            opened += usize::from(host.opener.open(now, frame).is_ok());
            host.links.heard(now, from, salt, counter, via);
        }
    }
    world.run(SEC(10));
    (opened, world.logs(0).last().cloned().unwrap_or_default())
}

#[test]
fn with_the_link_every_frame_arrives_at_30_percent_loss_and_without_it_70_percent_do() {
    let (without, _) = arrivals(false);
    assert!((1_320..1_480).contains(&without), "{without}");
    let (with, line) = arrivals(true);
    // The last few are still in flight when the sending ends.
    assert!(with >= 1_990, "{with}");
    assert!(line.starts_with("[dual] bob: udp_first=0 tcp_first="), "{line}");
}
