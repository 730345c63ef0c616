//! A joiner's routes, links, dials and reports, rule by rule.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anywire_mesh::{Down, Event, Mesh, Outgoing, Role, RosterView, Seat, Send};
use bytes::Bytes;
use common::{HOST, delivered, drain, envelope, frame, game, new, path, relayed, roster, sends};
use seam::{Path, Refused, Route};

/// Joiner `me` of `h b c d`, its dials begun.
fn joiner() -> (Mesh, Instant) {
    let (mut mesh, now) = new(Role::Joiner { mesh: true });
    mesh.host_link(now, Some(path(HOST)));
    roster(&mut mesh, now, "me", "h me b c d", &[]);
    mesh.handle_timeout(now);
    let dials = ["b", "c", "d"].map(dial);
    assert_eq!(drain(&mut mesh).1, [&dials[..], &[Event::Direct(vec![])]].concat());
    (mesh, now)
}

/// The same with a link to `b` on port 1.
fn linked() -> (Mesh, Instant) {
    let (mut mesh, now) = joiner();
    mesh.link_opened(now, "b", path(1));
    mesh.handle_hi(now, path(1), "b").unwrap();
    mesh.handle_timeout(now);
    drain(&mut mesh);
    (mesh, now)
}

fn dial(name: &str) -> Event {
    Event::Dial { name: name.into(), profile: name.into() }
}

fn up(name: &str, port: u16) -> Event {
    Event::LinkUp { name: name.into(), path: path(port) }
}

fn down(name: &str, port: u16, why: Down) -> Event {
    Event::LinkDown { name: name.into(), path: path(port), why }
}

fn direct(names: &[&str]) -> Event {
    Event::Direct(names.iter().map(|name| (*name).to_owned()).collect())
}

fn hi(port: u16) -> Send {
    Send { to: vec![path(port)], payload: Outgoing::Hi("me".into()) }
}

fn wrapped(port: u16, to: &str) -> Send {
    let frame = Bytes::from_static(b"x");
    Send { to: vec![path(port)], payload: Outgoing::Envelope { to: to.into(), from: "me".into(), frame } }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Events without the reports.
fn but_reports(events: Vec<Event>) -> Vec<Event> {
    events.into_iter().filter(|event| !matches!(event, Event::Direct(_))).collect()
}

/// Runs timers until `until`, keeping `alive` paths alive, and gives back everything that came out.
fn run(mesh: &mut Mesh, until: Instant, alive: &[Path]) -> (Vec<Send>, Vec<Event>) {
    let mut out = drain(mesh);
    while let Some((at, reason)) = mesh.poll_timeout().filter(|(at, _)| *at <= until) {
        for path in alive {
            mesh.heard(at, *path);
        }
        mesh.handle_timeout(at);
        let (sends, events) = drain(mesh);
        out.0.extend(sends);
        out.1.extend(events);
        assert!(mesh.poll_timeout().is_none_or(|(next, _)| next > at), "{reason} does not pass");
    }
    out
}

#[test]
fn a_frame_goes_direct_where_it_can_and_in_envelopes_by_the_host_elsewhere() {
    let (mut mesh, now) = linked();
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh), [game(&[1, HOST], "x"), wrapped(HOST, "c"), wrapped(HOST, "d")]);
    assert_eq!(mesh.route_to("b"), Route::Direct);
    assert_eq!(mesh.route_to("c"), Route::ThroughHost);
    assert_eq!((mesh.route_to("me"), mesh.route_to("h")), (Route::Local, Route::Direct));
}

#[test]
fn a_relay_gets_no_frame_of_its_own_and_its_leader_is_linked_like_anybody() {
    let (mut mesh, now) = new(Role::Joiner { mesh: true });
    mesh.host_link(now, Some(path(HOST)));
    relayed(&mut mesh, now, "me", "me b c", &[], true);
    mesh.handle_timeout(now);
    assert_eq!(drain(&mut mesh).1, [dial("b"), dial("c"), direct(&[])]);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh), [wrapped(HOST, "b"), wrapped(HOST, "c")]);
    assert_eq!(mesh.route_to("b"), Route::ThroughHost);
}

#[test]
fn without_a_mesh_everything_goes_to_the_host_and_nobody_is_dialled() {
    let (mut mesh, now) = new(Role::Joiner { mesh: false });
    mesh.host_link(now, Some(path(HOST)));
    roster(&mut mesh, now, "me", "h me b", &[]);
    mesh.handle_timeout(now);
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh), [game(&[HOST], "x")]);
    mesh.handle_frame(now, path(HOST), frame("y")).unwrap();
    mesh.handle_envelope(now, path(HOST), envelope("me", "b", b"gz")).unwrap();
    assert_eq!(drain(&mut mesh).1, [delivered("h", "y"), delivered("b", "z")]);
    assert_eq!(mesh.handle_frame(now, path(1), frame("y")), Err(Refused::NotAllowed));
    assert_eq!(mesh.handle_hi(now, path(1), "b"), Err(Refused::NotAllowed));
    assert_eq!((mesh.route_to("h"), mesh.route_to("b")), (Route::Direct, Route::ThroughHost));
}

#[test]
fn before_the_first_roster_nothing_of_the_game_goes_in_or_out() {
    let (mut mesh, now) = new(Role::Joiner { mesh: true });
    mesh.host_link(now, Some(path(HOST)));
    assert_eq!(mesh.handle_frame(now, path(HOST), frame("x")), Err(Refused::Unexpected));
    assert_eq!(mesh.handle_envelope(now, path(HOST), envelope("me", "b", b"gx")), Err(Refused::Unexpected));
    assert_eq!(mesh.handle_hi(now, path(1), "b"), Err(Refused::Unexpected));
    mesh.local_frame(now, frame("x"));
    assert_eq!(run(&mut mesh, now + secs(60), &[]), (vec![], vec![]));
}

#[test]
fn a_quiet_host_is_routed_around_by_whoever_reaches_the_player() {
    let (mut mesh, now) = linked();
    roster(&mut mesh, now, "me", "h me b c d", &["b: c me"]);
    let before = now + millis(11_999);
    mesh.heard(before, path(1));
    mesh.local_frame(before, frame("x"));
    assert_eq!(sends(&mut mesh)[1..], [wrapped(HOST, "c"), wrapped(HOST, "d")]);
    let quiet = now + secs(12);
    mesh.local_frame(quiet, frame("x"));
    // Nobody reaches d: the frame is lost to it, and counted.
    assert_eq!(sends(&mut mesh), [game(&[1, HOST], "x"), wrapped(1, "c")]);
    assert_eq!((mesh.stats().no_peer, mesh.route_to("c")), (1, Route::Through("b".into())));
    mesh.heard(quiet, path(HOST));
    mesh.local_frame(quiet, frame("x"));
    assert_eq!(sends(&mut mesh)[1..], [wrapped(HOST, "c"), wrapped(HOST, "d")]);
}

#[test]
fn without_a_host_link_the_rest_of_the_mesh_goes_on() {
    let (mut mesh, now) = linked();
    roster(&mut mesh, now, "me", "h me b c d", &["b: c"]);
    mesh.host_link(now, None);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh), [game(&[1], "x"), wrapped(1, "c")]);
    assert_eq!(mesh.route_to("h"), Route::None);
}

#[test]
fn an_envelope_is_passed_on_to_a_direct_link_only_and_only_for_its_true_sender() {
    let (mut mesh, now) = linked();
    mesh.handle_hi(now, path(2), "c").unwrap();
    drain(&mut mesh);
    let whole = envelope("c", "b", b"gx");
    mesh.handle_envelope(now, path(1), whole.clone()).unwrap();
    assert_eq!(sends(&mut mesh), [Send { to: vec![path(2)], payload: Outgoing::Raw(whole.freeze()) }]);
    // The host may pass on for anybody.
    mesh.handle_envelope(now, path(HOST), envelope("c", "d", b"gx")).unwrap();
    assert_eq!(sends(&mut mesh).len(), 1);
    // No link to d; back to where it came from; under another's name; from a link without a name.
    mesh.handle_envelope(now, path(1), envelope("d", "b", b"gx")).unwrap();
    mesh.handle_envelope(now, path(1), envelope("b", "b", b"gx")).unwrap();
    assert_eq!(mesh.handle_envelope(now, path(1), envelope("c", "d", b"gx")), Err(Refused::NotAllowed));
    assert_eq!(mesh.handle_envelope(now, path(9), envelope("c", "d", b"gx")), Err(Refused::NotAllowed));
    assert_eq!(drain(&mut mesh), (vec![], vec![]));
    assert_eq!((mesh.stats().no_peer, mesh.stats().refused), (2, 2));
}

#[test]
fn an_envelope_for_me_is_taken_from_its_sender_the_host_or_a_carrier() {
    let (mut mesh, now) = linked();
    for (by, from) in [(1, "b"), (HOST, "d"), (1, "d"), (HOST, "not in the roster yet")] {
        mesh.handle_envelope(now, path(by), envelope("me", from, b"gx")).unwrap();
        assert_eq!(drain(&mut mesh), (vec![], vec![delivered(from, "x")]));
    }
    // A player carries nothing of the host, of me, or of nobody.
    for from in ["h", "me", "nobody"] {
        assert_eq!(mesh.handle_envelope(now, path(1), envelope("me", from, b"gx")), Err(Refused::NotAllowed));
    }
    assert_eq!(mesh.handle_envelope(now, path(1), envelope("me", "b", b"")), Err(Refused::Malformed));
}

#[test]
fn a_failed_dial_is_tried_again_thirty_seconds_after_it_began() {
    let (mut mesh, now) = joiner();
    for name in ["b", "c", "d"] {
        mesh.dial_failed(now + secs(8), name);
    }
    assert_eq!(but_reports(run(&mut mesh, now + millis(29_999), &[]).1), []);
    assert_eq!(but_reports(run(&mut mesh, now + secs(30), &[]).1), ["b", "c", "d"].map(dial));
}

#[test]
fn a_dial_nobody_reports_on_counts_as_failed() {
    let (mut mesh, now) = joiner();
    let events = but_reports(run(&mut mesh, now + secs(30), &[]).1);
    let cancel = |name: &str| Event::CancelDial { name: name.into() };
    assert_eq!(events, [cancel("b"), dial("b"), cancel("c"), dial("c"), cancel("d"), dial("d")]);
}

#[test]
fn a_changed_profile_is_dialled_at_once_but_not_all_the_time() {
    let (mut mesh, now) = joiner();
    let view = |mesh: &mut Mesh, at: Instant, code: &str| {
        let seat = |slot, profile| Seat { slot, profile, ..Seat::default() };
        let players = BTreeMap::from([("h", seat(0, None)), ("me", seat(1, None)), ("b", seat(2, Some(code)))]);
        mesh.roster(at, &RosterView { me: "me", host: Some("h"), players, ..RosterView::default() });
    };
    view(&mut mesh, now + secs(1), "new");
    let again = Event::Dial { name: "b".into(), profile: "new".into() };
    let events = run(&mut mesh, now + secs(3), &[]).1;
    let cancelled = ["b", "c", "d"].map(|name| Event::CancelDial { name: name.into() });
    assert!(cancelled.iter().all(|event| events.contains(event)) && events.last() == Some(&again), "{events:?}");
    let mut dials = 0;
    for n in 0..100 {
        let at = now + secs(10) + millis(100 * n);
        view(&mut mesh, at, &n.to_string());
        dials += run(&mut mesh, at, &[]).1.iter().filter(|event| matches!(event, Event::Dial { .. })).count();
    }
    assert_eq!(dials, 5);
}

#[test]
fn an_open_path_says_the_own_name_until_it_has_one() {
    let (mut mesh, now) = joiner();
    mesh.link_opened(now, "b", path(1));
    let (sends, events) = run(&mut mesh, now + millis(1_600), &[]);
    assert_eq!((sends, events), (vec![hi(1); 4], vec![]));
    let named = now + millis(1_700);
    mesh.handle_hi(named, path(1), "b").unwrap();
    let (sends, events) = run(&mut mesh, named + secs(3), &[path(1), path(HOST)]);
    // Answered once, and reported at once.
    assert_eq!(sends, [hi(1)]);
    assert_eq!(events, [up("b", 1), direct(&["b"])]);
}

#[test]
fn a_named_link_is_answered_again_only_while_the_other_end_still_asks() {
    let (mut mesh, now) = linked();
    // One hi long after the naming is an answer to ours: answering it would never end.
    mesh.handle_hi(now + secs(5), path(1), "b").unwrap();
    assert_eq!(sends(&mut mesh), []);
    mesh.handle_hi(now + millis(5_500), path(1), "b").unwrap();
    assert_eq!(sends(&mut mesh), [hi(1)]);
}

#[test]
fn two_ends_name_each_other_and_fall_silent() {
    let (mut a, now) = joiner();
    let (mut b, _) = new(Role::Joiner { mesh: true });
    b.host_link(now, Some(path(HOST)));
    roster(&mut b, now, "b", "h me b c d", &[]);
    a.link_opened(now, "b", path(1));
    let mut said = 0;
    for step in 0..100 {
        let at = now + millis(step * 100);
        a.handle_timeout(at);
        b.handle_timeout(at);
        let mut pass = |from: &mut Mesh, to: &mut Mesh, there: u16| {
            for send in sends(from) {
                let Outgoing::Hi(name) = send.payload else { panic!("{send:?}") };
                to.handle_hi(at, path(there), &name).unwrap();
                said += 1;
            }
        };
        pass(&mut a, &mut b, 2);
        pass(&mut b, &mut a, 1);
    }
    a.heard(now + secs(10), path(1));
    b.heard(now + secs(10), path(2));
    assert_eq!((a.route_to("b"), b.route_to("me")), (Route::Direct, Route::Direct));
    assert!(said <= 3, "{said} times");
    // Also on a path whose round trip looks like somebody asking.
    let mut at = now + secs(60);
    let mut said = 0;
    a.handle_hi(at, path(1), "b").unwrap();
    a.handle_hi(at + millis(500), path(1), "b").unwrap();
    for _ in 0..100 {
        at += millis(500);
        let answers = sends(&mut a).len() + sends(&mut b).len();
        said += answers;
        if answers > 0 {
            b.handle_hi(at, path(2), "me").unwrap();
            a.handle_hi(at + millis(250), path(1), "b").unwrap();
        }
    }
    assert!(said < 50, "{said} times");
}

#[test]
fn a_name_that_cannot_be_another_joiners_names_nothing() {
    let (mut mesh, now) = joiner();
    let long = "x".repeat(256);
    for name in ["", "me", "h", &long] {
        assert_eq!(mesh.handle_hi(now, path(1), name), Err(Refused::NotAllowed));
    }
    assert_eq!(mesh.handle_hi(now, path(HOST), "b"), Ok(()));
    assert_eq!(mesh.route_to("b"), Route::ThroughHost);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh).first(), Some(&game(&[HOST], "x")));
}

#[test]
fn a_link_unheard_for_thirty_seconds_is_dead_and_dialled_again() {
    let (mut mesh, now) = linked();
    let at = now + millis(29_999);
    let (_, events) = run(&mut mesh, at, &[path(HOST)]);
    assert!(!events.iter().any(|event| matches!(event, Event::LinkDown { .. })));
    let dead = now + secs(30);
    let (_, events) = run(&mut mesh, dead, &[path(HOST)]);
    let first: Vec<_> = events.iter().take(2).collect();
    assert_eq!(first, [&down("b", 1, Down::Silent), &dial("b")]);
    mesh.local_frame(dead, frame("x"));
    assert_eq!(sends(&mut mesh)[1], wrapped(HOST, "b"));
    let (_, events) = run(&mut mesh, dead + secs(2), &[path(HOST)]);
    assert!(events.contains(&direct(&[])), "{events:?}");
}

#[test]
fn a_link_silent_for_six_seconds_is_gone_around_while_there_is_another_way() {
    let (mut mesh, now) = linked();
    for (after, route) in [(5_999, Route::Direct), (6_000, Route::ThroughHost)] {
        mesh.heard(now + millis(after), path(HOST));
        mesh.local_frame(now + millis(after), frame("x"));
        assert_eq!((sends(&mut mesh).contains(&wrapped(HOST, "b")), mesh.route_to("b")), (after == 6_000, route));
    }
    // Without a host and a carrier it is better than nothing.
    mesh.host_link(now + secs(7), None);
    mesh.local_frame(now + secs(7), frame("x"));
    assert_eq!(sends(&mut mesh), [game(&[1], "x")]);
    // One sign of life, and the link is used again.
    mesh.host_link(now + secs(7), Some(path(HOST)));
    mesh.heard(now + secs(8), path(1));
    mesh.local_frame(now + secs(8), frame("x"));
    assert_eq!(sends(&mut mesh)[0], game(&[1, HOST], "x"));
}

#[test]
fn a_link_that_carries_a_game_is_gone_around_after_half_a_second_and_a_quiet_one_is_not() {
    let (mut mesh, mut now) = linked();
    for _ in 0..200 {
        now += millis(20);
        mesh.heard(now, path(HOST));
        mesh.handle_frame(now, path(1), frame("y")).unwrap();
    }
    drain(&mut mesh);
    for (after, route) in [(400, Route::Direct), (600, Route::ThroughHost)] {
        mesh.local_frame(now + millis(after), frame("x"));
        assert_eq!((sends(&mut mesh).contains(&wrapped(HOST, "b")), mesh.route_to("b")), (after == 600, route));
    }
    // The game stops: answered probes are enough soon.
    for n in 1..20 {
        now += secs(2);
        mesh.heard(now, path(HOST));
        mesh.local_frame(now, frame("x"));
        assert_eq!(mesh.route_to("b") == Route::Direct, n > 1, "{n}");
        mesh.heard(now, path(1));
        assert_eq!(mesh.route_to("b"), Route::Direct, "one sign of life, and it is used again");
    }
}

#[test]
fn a_doubted_link_is_gone_around_until_it_is_heard_or_moves() {
    let (mut mesh, now) = linked();
    mesh.doubt(now, path(1));
    assert_eq!(mesh.route_to("b"), Route::ThroughHost);
    mesh.heard(now, path(1));
    assert_eq!(mesh.route_to("b"), Route::Direct);
    mesh.doubt(now, path(1));
    mesh.rekey(now, path(1), path(2));
    assert_eq!(mesh.route_to("b"), Route::Direct);
}

#[test]
fn frames_keep_a_link_alive() {
    let (mut mesh, now) = linked();
    mesh.handle_frame(now + secs(29), path(1), frame("x")).unwrap();
    let (_, events) = run(&mut mesh, now + secs(58), &[]);
    assert!(!events.iter().any(|event| matches!(event, Event::LinkDown { .. })), "{events:?}");
}

#[test]
fn a_player_who_leaves_takes_link_and_dial_along() {
    let (mut mesh, now) = linked();
    assert_eq!(run(&mut mesh, now + millis(200), &[]).1, [direct(&["b"])]);
    let now = now + millis(200);
    roster(&mut mesh, now, "me", "h me d", &[]);
    let (_, events) = run(&mut mesh, now, &[]);
    assert_eq!(events, [down("b", 1, Down::Left), Event::CancelDial { name: "c".into() }]);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh), [game(&[HOST], "x"), wrapped(HOST, "d")]);
    // Frames still under way are taken; later the path is nobody's, whatever it says, until a roster knows the name.
    mesh.handle_frame(now + secs(1), path(1), frame("y")).unwrap();
    assert!(run(&mut mesh, now + secs(4), &[]).1.contains(&direct(&[])));
    let later = now + secs(4);
    assert_eq!(mesh.handle_frame(later, path(1), frame("y")), Err(Refused::NotAllowed));
    assert_eq!(mesh.handle_hi(later, path(1), "b"), Err(Refused::NotAllowed));
    roster(&mut mesh, later, "me", "h me d b", &[]);
    mesh.handle_hi(later, path(1), "b").unwrap();
    assert_eq!(mesh.route_to("b"), Route::Direct);
}

#[test]
fn a_rename_keeps_the_link() {
    let (mut mesh, now) = linked();
    roster(&mut mesh, now, "me", "h me bee c d", &[]);
    // The link is asked for its name at once.
    let (said, events) = run(&mut mesh, now, &[]);
    assert!(said.contains(&hi(1)) && events.contains(&down("b", 1, Down::Left)), "{events:?}");
    mesh.handle_hi(now + millis(50), path(1), "bee").unwrap();
    let events = drain(&mut mesh).1;
    assert!(events.contains(&up("bee", 1)), "{events:?}");
    mesh.handle_envelope(now + millis(60), path(1), envelope("me", "b", b"gx")).unwrap();
    // The own rename is said on every link, and the old name still means me.
    roster(&mut mesh, now + secs(1), "myself", "h myself bee c d", &[]);
    let renamed = Send { to: vec![path(1)], payload: Outgoing::Hi("myself".into()) };
    assert_eq!(sends(&mut mesh), [renamed]);
    drain(&mut mesh);
    mesh.handle_envelope(now + secs(2), path(HOST), envelope("me", "d", b"gx")).unwrap();
    assert_eq!(drain(&mut mesh).1, [delivered("d", "x")]);
}

#[test]
fn of_two_paths_the_first_name_keeps_its_own_and_the_other_follows() {
    // b < me: b's path is followed.
    let (mut mesh, now) = linked();
    let later = now + secs(3);
    mesh.heard(later, path(1));
    mesh.handle_hi(later, path(2), "b").unwrap();
    mesh.handle_frame(later, path(2), frame("x")).unwrap();
    let (_, events) = drain(&mut mesh);
    assert_eq!(events, [down("b", 1, Down::Replaced), up("b", 2), delivered("b", "x")]);
    // A late frame on the old path does not turn it back; frames are taken on both.
    mesh.handle_frame(later + millis(100), path(1), frame("y")).unwrap();
    assert_eq!(drain(&mut mesh).1, [delivered("b", "y")]);
    mesh.local_frame(later, frame("z"));
    assert_eq!(sends(&mut mesh)[0], game(&[2, HOST], "z"));

    // z > me: the own path is kept while anything is heard there.
    let (mut mesh, now) = joiner();
    roster(&mut mesh, now, "me", "h me z", &[]);
    mesh.handle_hi(now, path(1), "z").unwrap();
    mesh.handle_hi(now, path(2), "z").unwrap();
    drain(&mut mesh);
    for n in 0..50 {
        let at = now + millis(100 * n);
        mesh.handle_frame(at, path(2), frame("x")).unwrap();
        mesh.heard(at, path(1));
    }
    assert!(!drain(&mut mesh).1.contains(&up("z", 2)));
    let silent = now + secs(7);
    mesh.handle_frame(silent, path(2), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh).1[..2], [down("z", 1, Down::Replaced), up("z", 2)]);
}

#[test]
fn a_player_back_on_another_path_replaces_a_silent_link() {
    let (mut mesh, now) = linked();
    mesh.handle_hi(now + secs(3), path(5), "b").unwrap();
    let events = drain(&mut mesh).1;
    assert_eq!(events, [down("b", 1, Down::Replaced), up("b", 5)]);
}

#[test]
fn a_dead_primary_path_leaves_the_link_to_another_one() {
    let (mut mesh, now) = linked();
    mesh.handle_hi(now, path(2), "b").unwrap();
    mesh.heard(now + secs(4), path(2));
    assert_eq!(mesh.poll_event(), None);
    mesh.heard(now + secs(20), path(2));
    assert_eq!(drain(&mut mesh).1, [down("b", 1, Down::Replaced), up("b", 2)]);
}

#[test]
fn an_address_that_changes_moves_the_link_without_a_word() {
    let (mut mesh, now) = linked();
    mesh.rekey(now, path(1), path(6));
    mesh.rekey(now, path(HOST), path(HOST + 1));
    assert_eq!(drain(&mut mesh).1, []);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh)[0], game(&[6, HOST + 1], "x"));
    // The new path may already be known by its own frames.
    mesh.handle_frame(now, path(7), frame("y")).unwrap();
    mesh.rekey(now, path(6), path(7));
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh)[0], game(&[7, HOST + 1], "x"));
    assert_eq!(mesh.handle_envelope(now, path(7), envelope("me", "b", b"gx")), Ok(()));
}

#[test]
fn a_path_that_turns_out_to_be_the_hosts_is_no_joiners() {
    let (mut mesh, now) = linked();
    mesh.host_link(now, Some(path(1)));
    assert_eq!(drain(&mut mesh).1, [down("b", 1, Down::Replaced)]);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh)[0], game(&[1], "x"));
}

#[test]
fn a_frame_from_an_unnamed_path_is_taken_and_asks_for_its_name_six_times_pain_48() {
    let (mut mesh, now) = joiner();
    mesh.handle_frame(now, path(1), frame("x")).unwrap();
    assert_eq!(drain(&mut mesh).1, [Event::Deliver { from: None, frame: Bytes::from_static(b"x") }]);
    let (said, _) = run(&mut mesh, now + secs(20), &[]);
    assert_eq!(said, vec![hi(1); 6]);
    assert_eq!(mesh.handle_frame(now + secs(20), path(1), frame("x")), Err(Refused::NotAllowed));
}

#[test]
fn a_nameless_path_on_which_frames_come_is_asked_again_and_refused_once_shunned() {
    let (mut mesh, now) = joiner();
    mesh.handle_frame(now, path(7), frame("x")).unwrap();
    assert_eq!(run(&mut mesh, now + secs(5), &[]).0, vec![hi(7); 6]);
    mesh.handle_frame(now + secs(6), path(7), frame("x")).unwrap();
    assert_eq!(run(&mut mesh, now + secs(10), &[]).0, vec![hi(7); 6]);
    let at = now + secs(11);
    assert_eq!(mesh.handle_frame(at, path(7), frame("x")), Err(Refused::NotAllowed));
    assert_eq!(run(&mut mesh, at + secs(3), &[]).0, [], "not at once");
    let at = now + secs(16);
    assert_eq!(mesh.handle_frame(at, path(7), frame("x")), Err(Refused::NotAllowed));
    assert_eq!(run(&mut mesh, at + secs(4), &[]).0, vec![hi(7); 6]);
    mesh.handle_hi(at + secs(4), path(7), "b").unwrap();
    mesh.handle_frame(at + secs(4), path(7), frame("x")).unwrap();
}

#[test]
fn nameless_paths_are_bounded_pain_48() {
    let (mut mesh, now) = linked();
    for port in 1_000..3_000 {
        mesh.handle_frame(now, path(port), frame("x")).unwrap();
    }
    let (said, events) = run(&mut mesh, now, &[path(1)]);
    assert_eq!(said.len(), 256);
    assert!(!events.iter().any(|event| matches!(event, Event::LinkDown { .. })));
    assert_eq!(mesh.route_to("b"), Route::Direct);
}

#[test]
fn named_links_are_bounded() {
    let (mut mesh, now) = joiner();
    let taken = (0..400).filter(|n| mesh.handle_hi(now, path(1_000 + n), &format!("n{n}")).is_ok()).count();
    assert_eq!(taken, 256);
    for port in 2_000..2_100 {
        mesh.handle_hi(now, path(port), "n0").unwrap();
    }
    let ups = drain(&mut mesh).1.iter().filter(|event| matches!(event, Event::LinkUp { .. })).count();
    assert_eq!(ups, 256);
}

#[test]
fn a_name_no_roster_knows_is_closed_after_ten_seconds() {
    let (mut mesh, now) = joiner();
    mesh.handle_hi(now, path(1), "ghost").unwrap();
    let alive = [path(1), path(HOST)];
    assert!(drain(&mut mesh).1.contains(&up("ghost", 1)));
    let (_, events) = run(&mut mesh, now + secs(11), &alive);
    assert!(events.contains(&down("ghost", 1, Down::Left)), "{events:?}");
    assert_eq!(mesh.handle_frame(now + secs(11), path(1), frame("x")), Err(Refused::NotAllowed));
}

#[test]
fn a_report_that_the_roster_does_not_show_is_repeated_ever_more_slowly() {
    let (mut mesh, now) = linked();
    let alive = [path(1), path(HOST)];
    let (_, events) = run(&mut mesh, now + secs(130), &alive);
    let repeats = events.iter().filter(|event| **event == direct(&["b"])).count();
    assert!((4..=6).contains(&repeats), "{repeats}");
    roster(&mut mesh, now + secs(130), "me", "h me b c d", &["me: b h"]);
    let (_, events) = run(&mut mesh, now + secs(300), &alive);
    assert!(!events.iter().any(|event| matches!(event, Event::Direct(_))));
    // A host that was away begins from nothing.
    mesh.host_link(now + secs(300), None);
    mesh.host_link(now + secs(301), Some(path(HOST)));
    let (_, events) = run(&mut mesh, now + secs(301), &alive);
    assert!(events.contains(&direct(&["b"])), "{events:?}");
}

#[test]
fn names_that_do_not_fit_an_envelope_are_counted_not_sent() {
    let (mut mesh, now) = new(Role::Joiner { mesh: true });
    mesh.host_link(now, Some(path(HOST)));
    let long = "x".repeat(256);
    roster(&mut mesh, now, "me", &format!("h me {long}"), &[]);
    mesh.local_frame(now, frame("x"));
    assert_eq!(sends(&mut mesh), [game(&[HOST], "x")]);
    assert_eq!(mesh.stats().no_peer, 1);
}
