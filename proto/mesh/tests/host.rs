//! Routing at a host and at a relay, rule by rule.

mod common;

use std::time::Duration;

use anywire_mesh::{Event, Mesh, Outgoing, Role, Send};
use bytes::{Bytes, BytesMut};
use common::{delivered, drain, envelope, frame, game, new, path, sends};
use seam::{Refused, Route};

/// A host named `h` with mesh members `a` (1), `b` (2) and a star member `s` (3).
fn host(relay_only: bool) -> (Mesh, std::time::Instant) {
    let (mut mesh, now) = new(Role::Host { relay_only });
    if !relay_only {
        mesh.set_me(now, "h");
    }
    for (name, port, meshed) in [("a", 1, true), ("b", 2, true), ("s", 3, false)] {
        mesh.member_joined(now, name, path(port), meshed);
    }
    (mesh, now)
}

#[test]
fn a_local_frame_is_one_payload_for_every_joiner() {
    let (mut mesh, now) = host(false);
    mesh.local_frame(now, frame("x"));
    assert_eq!(mesh.poll_timeout(), Some((now, "mesh output")));
    assert_eq!(sends(&mut mesh), [game(&[1, 2, 3], "x")]);
    assert_eq!((mesh.stats().local, mesh.stats().sent), (1, 3));
    assert_eq!(mesh.poll_timeout(), None);
}

#[test]
fn a_frame_of_a_mesh_joiner_is_for_the_game_alone_and_a_star_clients_for_all() {
    let (mut mesh, now) = host(false);
    mesh.handle_frame(now, path(1), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh), (vec![], vec![delivered("a", "x")]));
    mesh.handle_frame(now, path(3), frame("y")).unwrap();
    assert_eq!(drain(&mut mesh), (vec![game(&[1, 2], "y")], vec![delivered("s", "y")]));
}

#[test]
fn an_envelope_goes_on_as_it_came_or_unwrapped_for_a_star_client() {
    let (mut mesh, now) = host(false);
    let whole = envelope("b", "a", b"gx");
    mesh.handle_envelope(now, path(1), whole.clone()).unwrap();
    assert_eq!(sends(&mut mesh), [Send { to: vec![path(2)], payload: Outgoing::Raw(whole.freeze()) }]);
    mesh.handle_envelope(now, path(1), envelope("s", "a", b"gx")).unwrap();
    assert_eq!(sends(&mut mesh), [game(&[3], "x")]);
    mesh.handle_envelope(now, path(1), envelope("h", "a", b"gx")).unwrap();
    assert_eq!(drain(&mut mesh), (vec![], vec![delivered("a", "x")]));
    assert_eq!((mesh.stats().forwarded, mesh.stats().delivered), (2, 1));
}

#[test]
fn an_envelope_to_nobody_or_to_its_own_sender_is_dropped_and_counted() {
    let (mut mesh, now) = host(false);
    for to in ["nobody", "", "a"] {
        mesh.handle_envelope(now, path(1), envelope(to, "a", b"gx")).unwrap();
    }
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    assert_eq!(mesh.stats().no_peer, 3);
}

#[test]
fn an_envelope_under_another_name_is_refused_pain_56() {
    let (mut mesh, now) = host(false);
    for from in ["b", "h", ""] {
        let taken = mesh.handle_envelope(now, path(1), envelope("b", from, b"gx"));
        assert_eq!(taken, Err(Refused::NotAllowed));
    }
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    assert_eq!(mesh.stats().refused, 3);
}

#[test]
fn strangers_and_leavers_are_refused() {
    let (mut mesh, now) = host(false);
    mesh.member_left(now, path(2));
    for port in [2, 9] {
        assert_eq!(mesh.handle_frame(now, path(port), frame("x")), Err(Refused::NotAllowed));
        assert_eq!(mesh.handle_envelope(now, path(port), envelope("a", "b", b"gx")), Err(Refused::NotAllowed));
    }
    mesh.local_frame(now, frame("y"));
    assert_eq!(drain(&mut mesh), (vec![game(&[1, 3], "y")], vec![]));
}

#[test]
fn an_envelope_without_a_game_frame_is_malformed() {
    let (mut mesh, now) = host(false);
    for inner in [&b""[..], b"x", b"{}", b"ra"] {
        assert_eq!(mesh.handle_envelope(now, path(1), envelope("b", "a", inner)), Err(Refused::Malformed));
    }
    let whole = envelope("b", "a", b"gx");
    // Up to and including the letter of the frame: shorter ones have none.
    for cut in 0..whole.len() - 2 {
        let taken = mesh.handle_envelope(now, path(1), BytesMut::from(&whole[..cut]));
        assert_eq!(taken, Err(Refused::Malformed), "cut at {cut}");
    }
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
}

#[test]
fn the_envelope_that_old_peers_cut_short_is_taken_and_dropped() {
    let vector =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/vectors/netpunch/envelope/cut-in-from-is-accepted.json");
    let text = std::fs::read_to_string(vector).unwrap();
    let hex = text.split("\"envelope\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
    let (mut mesh, now) = host(false);
    mesh.member_joined(now, "bob", path(4), true);
    mesh.member_joined(now, "al", path(5), true);
    let taken = mesh.handle_envelope(now, path(5), BytesMut::from(bytes.as_slice()));
    assert_eq!((taken, drain(&mut mesh)), (Err(Refused::Malformed), (vec![], vec![])));
}

#[test]
fn both_names_work_while_a_rename_spreads() {
    let (mut mesh, now) = host(false);
    mesh.rename(now, path(2), "bee");
    let early = now + Duration::from_secs(29);
    for (to, from, by) in [("b", "a", 1), ("bee", "a", 1), ("a", "b", 2), ("a", "bee", 2)] {
        mesh.handle_envelope(early, path(by), envelope(to, from, b"gx")).unwrap();
        assert_eq!(sends(&mut mesh).len(), 1, "{from} to {to}");
    }
    let late = now + Duration::from_secs(31);
    mesh.handle_envelope(late, path(1), envelope("b", "a", b"gx")).unwrap();
    assert_eq!(mesh.handle_envelope(late, path(2), envelope("a", "b", b"gx")), Err(Refused::NotAllowed));
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    // A newcomer takes the old name: it means the newcomer from now on.
    mesh.member_joined(late, "b", path(4), true);
    mesh.handle_envelope(late, path(1), envelope("b", "a", b"gx")).unwrap();
    assert_eq!(sends(&mut mesh)[0].to, [path(4)]);
}

#[test]
fn a_member_that_moves_is_the_same_member() {
    let (mut mesh, now) = host(false);
    mesh.rekey(now, path(1), path(7));
    assert_eq!(mesh.handle_frame(now, path(1), frame("x")), Err(Refused::NotAllowed));
    mesh.handle_frame(now, path(7), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh).1, [delivered("a", "x")]);
    // The same by name, as after a resumed join.
    mesh.member_joined(now, "a", path(8), true);
    mesh.local_frame(now, frame("y"));
    assert_eq!(sends(&mut mesh), [game(&[2, 3, 8], "y")]);
    assert_eq!(mesh.route_to("a"), Route::Direct);
}

#[test]
fn a_relay_passes_on_and_keeps_nothing() {
    let (mut mesh, now) = host(true);
    mesh.local_frame(now, frame("x"));
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    mesh.handle_frame(now, path(3), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh), (vec![game(&[1, 2], "x")], vec![]));
    mesh.handle_envelope(now, path(2), envelope("a", "b", b"gx")).unwrap();
    assert_eq!(sends(&mut mesh).len(), 1);
    mesh.handle_envelope(now, path(2), envelope("", "b", b"gx")).unwrap();
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    assert_eq!(mesh.route_to("a"), Route::Direct);
}

#[test]
fn a_relay_gives_a_mesh_joiners_frame_to_the_leader() {
    let (mut mesh, now) = host(true);
    mesh.handle_frame(now, path(2), frame("x")).unwrap();
    assert_eq!((drain(&mut mesh), mesh.stats().no_peer), ((vec![], vec![]), 1));
    mesh.set_leader(now, Some("a"));
    mesh.handle_frame(now, path(2), frame("x")).unwrap();
    assert_eq!(sends(&mut mesh), [game(&[1], "x")]);
    mesh.handle_frame(now, path(1), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
}

#[test]
fn a_frame_over_1400_bytes_of_the_own_game_is_dropped_and_said_every_5_s() {
    let (mut mesh, now) = host(false);
    let long = || BytesMut::from(&[0; 1401][..]);
    mesh.local_frame(now, long());
    mesh.local_frame(now + Duration::from_millis(4_999), long());
    assert_eq!(drain(&mut mesh), (vec![], vec![Event::Oversize { size: 1401 }]));
    mesh.local_frame(now + Duration::from_secs(5), long());
    assert_eq!(drain(&mut mesh).1, [Event::Oversize { size: 1401 }]);
    assert_eq!((mesh.stats().oversize, mesh.stats().local), (3, 0));
    mesh.local_frame(now, BytesMut::from(&[0; 1400][..]));
    assert_eq!(sends(&mut mesh).len(), 1);
    // One that arrives is delivered as it is.
    mesh.handle_frame(now, path(1), long()).unwrap();
    assert_eq!(drain(&mut mesh).1, [Event::Deliver { from: Some("a".into()), frame: Bytes::from(vec![0; 1401]) }]);
}

#[test]
fn full_queues_drop_the_newest_and_count_it() {
    let (mut mesh, now) = host(false);
    for n in 0..20_000u32 {
        mesh.local_frame(now, BytesMut::from(&n.to_le_bytes()[..]));
        mesh.handle_frame(now, path(1), BytesMut::from(&n.to_le_bytes()[..])).unwrap();
    }
    let (sends, events) = drain(&mut mesh);
    assert_eq!((sends.len(), events.len()), (16_384, 4_096));
    let last = sends.last().map(|send| send.payload.clone());
    assert_eq!(last, Some(Outgoing::Game(Bytes::copy_from_slice(&16_383u32.to_le_bytes()))));
    assert_eq!(mesh.stats().overflow, 3 * (20_000 - 16_384) + 20_000 - 4_096);
    assert_eq!(mesh.stats().sent, 3 * 16_384);
    // Room again once it was drained.
    mesh.handle_frame(now, path(1), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh).1, [delivered("a", "x")]);
}

#[test]
fn hi_is_ignored_by_a_host() {
    let (mut mesh, now) = host(false);
    assert_eq!(mesh.handle_hi(now, path(1), "a"), Ok(()));
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
}

#[test]
fn the_statistics_line_is_the_one_log_readers_know() {
    let (mut mesh, now) = host(false);
    let before = mesh.stats();
    mesh.handle_frame(now, path(3), frame("x")).unwrap();
    mesh.handle_envelope(now, path(1), envelope("nobody", "a", b"gx")).unwrap();
    assert_eq!(
        mesh.stats().line(&before),
        "[relay] stats: forwarded=2 (+2) delivered=1 (+1) in 10s; no_peer=1 oversize=0"
    );
}
