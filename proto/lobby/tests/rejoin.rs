//! Losing the host and finding it again.

mod common;

use anywire_lobby::{End, Event, Player, State};
use common::*;

fn rejoins(events: &[Event]) -> usize {
    events.iter().filter(|event| **event == Event::Rejoin).count()
}

fn states(events: &[Event]) -> Vec<State> {
    let state = |event: &Event| match event {
        Event::Status { state, .. } => Some(*state),
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

#[test]
fn a_quiet_host_is_dialled_again_then_shown_as_lost_then_given_up() {
    let mut world = World::new(1, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(2));
    world.cut.push(1);
    // The host was last heard at most two seconds before the cut: these are seconds after it.
    world.run(ms(9_900));
    assert_eq!(rejoins(world.events_of(1)), 0);
    world.run(ms(2_300));
    assert_eq!(rejoins(world.events_of(1)), 1);
    world.run(ms(15_600));
    assert_eq!(states(world.events_of(1)).last(), Some(&State::Connected));
    world.run(ms(2_400));
    assert_eq!(states(world.events_of(1)).last(), Some(&State::Connecting));
    world.run(ms(117_600));
    assert!(!world.events_of(1).iter().any(|event| matches!(event, Event::Ended(_))));
    world.run(ms(2_500));
    assert_eq!(world.events_of(1).last(), Some(&Event::Ended(End::HostGone)));
    assert!((20..=24).contains(&rejoins(world.events_of(1))), "{}", rejoins(world.events_of(1)));
}

#[test]
fn pain_7_a_joiner_with_a_new_address_takes_its_seat_again_while_the_old_one_is_there() {
    let mut world = World::new(2, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.join(2, join_config("eve"));
    world.run(secs(1));
    let before = world.host.roster().players["bob"].clone();
    let now = world.now;
    world.host.start(now, false);
    world.run(secs(1));
    world.move_joiner(1, 77);
    let now = world.now;
    world.joiner(77).connected(now, path(HOST));
    world.run(secs(1));
    assert_eq!(world.host.roster().players["bob"], before);
    assert_eq!(world.host.roster().players.len(), 3);
    assert!(world.host.is_member(path(77)) && !world.host.is_member(path(1)));
    let moved = Event::MemberMoved { name: "bob".into(), old: path(1), new: path(77) };
    assert!(world.host_events.contains(&moved));
    assert!(!world.host_events.iter().any(|event| matches!(event, Event::MemberLeft { .. })));
    world.assert_agreement();
    let starts = world.events_of(77).iter().filter(|event| matches!(event, Event::Start { .. })).count();
    assert_eq!(starts, 1, "and is not started a second time");
}

#[test]
fn a_dropped_joiner_gets_back_seat_name_letter_and_company_within_its_time() {
    let mut world = World::new(3, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.host.start(now, false);
    world.joiner(1).stage(now, "playing");
    world.run(secs(1));
    let before = world.host.roster().players["bob"].clone();
    world.cut.push(1);
    world.run(secs(60));
    assert!(!world.host.is_member(path(1)));
    world.join(2, join_config("eve"));
    world.run(secs(1));
    world.move_joiner(1, 78);
    let now = world.now;
    world.joiner(78).connected(now, path(HOST));
    world.run(secs(3));
    let after = world.host.roster().players["bob"].clone();
    // Which of the table's slots the seat is in, nobody sees.
    assert_eq!(after, Player { slot: after.slot, ..before });
    assert!(world.roster(78).started);
    assert_eq!(states(world.events_of(78)).last(), Some(&State::Connected));
    world.assert_agreement();
}

#[test]
fn a_seat_somebody_else_has_taken_the_name_of_is_not_given_twice() {
    let mut world = World::new(4, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    world.cut.push(1);
    world.run(secs(20));
    world.join(2, join_config("bob"));
    world.run(secs(1));
    assert_eq!(world.host.roster().players["bob"].letter, "b");
    world.move_joiner(1, 79);
    let now = world.now;
    world.joiner(79).connected(now, path(HOST));
    world.run(secs(1));
    world.assert_agreement();
    let roster = world.host.roster();
    assert_eq!(roster.players.keys().map(String::as_str).collect::<Vec<_>>(), ["ada", "bob", "bob#2"]);
    assert_eq!(roster.players["bob#2"].letter, "c");
}

#[test]
fn a_member_the_host_forgot_is_told_to_join_again() {
    let mut world = World::new(5, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    // Cut for long enough to be dropped, too short to be noticed by the joiner's own timers.
    world.cut.push(1);
    world.run(ms(10_700));
    assert!(!world.host.is_member(path(1)));
    world.cut.clear();
    world.run(secs(4));
    assert!(world.host.is_member(path(1)));
    assert_eq!(world.host.roster().players["bob"].letter, "b");
    world.assert_agreement();
}

#[test]
fn a_host_that_comes_back_as_another_process_is_joined_anew() {
    let mut world = World::new(6, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(5));
    let first = world.roster(1).transport_lobby.clone();
    let config = std::sync::Arc::new(host_config());
    world.host = anywire_lobby::Host::new(config, [99; 32], world.now, WALL);
    world.run(secs(5));
    world.assert_agreement();
    assert_ne!(world.roster(1).transport_lobby, first);
    let worlds = world.events_of(1).iter().filter(|event| matches!(event, Event::TransportLobby(_))).count();
    assert_eq!(worlds, 2);
}

#[test]
fn a_moved_member_that_the_composer_recognised_keeps_everything() {
    let mut world = World::new(7, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let before = world.host.roster().players["bob"].clone();
    world.move_joiner(1, 80);
    let now = world.now;
    assert!(!world.host.rekey(now, path(9), path(80)));
    assert!(world.host.rekey(now, path(1), path(80)));
    world.run(secs(12));
    assert_eq!(world.host.roster().players["bob"], before);
    world.assert_agreement();
    assert_eq!(rejoins(world.events_of(80)), 0);
}

#[test]
fn a_stranger_without_an_extension_is_not_told_more_than_once_a_second() {
    let mut world = World::new(8, PERFECT, host_config());
    world.script(5);
    for _ in 0..50 {
        world.say(5, r#"{"t": "ping"}"#);
    }
    let now = world.now;
    (0..50).for_each(|_| world.host.unknown_member(now, path(5)));
    world.run(ms(500));
    assert!(world.told(5, "aw_again").len() <= 2);
    assert!(!world.host.is_member(path(5)));
}

#[test]
fn a_wrong_token_opens_nothing() {
    let mut world = World::new(9, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    world.script(5);
    for token in ["00".repeat(16), "zz".repeat(16), String::new(), "00".into()] {
        world.say(
            5,
            &format!(
                r#"{{"t": "join", "version": "0.7.1.4", "name": "bob", "aw": ["resume"], "aw_resume": "{token}"}}"#
            ),
        );
    }
    world.run(secs(1));
    assert_eq!(world.host.name_of(path(1)), Some("bob"));
    assert_eq!(world.host.name_of(path(5)), Some("bob#2"));
    let own = world.told(5, "welcome")[0]["aw_resume"].as_str().unwrap().len();
    assert_eq!(own, 32);
}
