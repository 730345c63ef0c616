//! Starts that go with a save (netpunch wire, sections 6.8 and 9.8).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod common;

use anywire_lobby::Event;
use common::*;

fn starts(world: &World, port: u16) -> Vec<(bool, bool)> {
    let starts = world.events_of(port).iter().filter_map(|event| match event {
        Event::Start { save, switch } => Some((*save, *switch)),
        _ => None,
    });
    starts.collect()
}

#[test]
fn a_start_with_a_save_counts_only_for_those_who_have_one() {
    let mut world = World::new(1, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.join(2, join_config("lin"));
    world.run(secs(1));
    let now = world.now;
    world.joiner(1).save_ready(now);
    world.host.start_with_save(now, &[path(1), path(2)]);
    world.run(secs(3));
    assert_eq!((starts(&world, 1), starts(&world, 2)), (vec![(true, false)], vec![]));
    // It is not remembered as done: the same start, said again by a roster, counts when the save is there.
    let now = world.now;
    world.joiner(2).save_ready(now);
    world.run(secs(3));
    assert_eq!(starts(&world, 2), [(true, false)]);
    let own = world.host_events.iter().filter(|event| matches!(event, Event::Start { save: true, .. })).count();
    assert_eq!(own, 1);
}

#[test]
fn who_waits_is_told_by_age_and_who_was_started_does_not() {
    let mut world = World::new(2, PERFECT, host_config());
    world.join(9, join_config("bob"));
    world.run(secs(1));
    world.join(1, join_config("lin"));
    world.run(secs(1));
    let names = |world: &World| world.host.waiting().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(&world), ["bob", "lin"]);
    let now = world.now;
    world.host.start_with_save(now, &[path(9)]);
    assert_eq!((names(&world), world.host.is_running()), (vec!["lin".to_owned()], true));
    assert!(world.host.speaks_quic(path(1)) && world.host.is_ours(path(1)) && !world.host.is_ours(path(7)));
}

#[test]
fn another_world_is_started_once_more_by_those_who_play_and_their_old_save_does_not_do() {
    for (seed, link) in [(3, PERFECT), (4, ROUGH), (5, ROUGH)] {
        let mut world = World::new(seed, link, host_config());
        world.join(1, join_config("bob"));
        world.run(secs(10));
        let now = world.now;
        assert!(!world.host.switch_world(now), "none runs");
        world.joiner(1).save_ready(now);
        world.host.start_with_save(now, &[path(1)]);
        world.run(secs(10));
        let now = world.now;
        assert!(world.host.switch_world(now));
        world.run(secs(10));
        assert_eq!(starts(&world, 1), [(true, false)], "nothing starts before the new save is there");
        let now = world.now;
        world.joiner(1).save_ready(now);
        world.host.start_with_save(now, &[path(1)]);
        world.run(secs(10));
        assert_eq!(starts(&world, 1), [(true, false), (true, true)]);
        let worlds = world.events_of(1).iter().filter(|event| matches!(event, Event::TransportLobby(_))).count();
        assert_eq!(worlds, 2);
    }
}

#[test]
fn an_old_joiner_is_told_of_the_save_in_start_and_roster() {
    let mut world = World::new(6, PERFECT, host_config());
    world.script(5);
    world.say(5, r#"{"t": "join", "version": "0.7.1.4", "name": "bob", "mesh": true, "recovery": 0}"#);
    world.run(secs(1));
    let now = world.now;
    world.host.start_with_save(now, &[path(5)]);
    world.run(secs(3));
    let starts = world.told(5, "start");
    assert_eq!((starts.len(), &starts[0]["save"], starts[0].get("switch")), (3, &true.into(), None));
    let roster = world.told(5, "roster").pop().unwrap();
    assert_eq!((&roster["started"], &roster["start_save"]), (&true.into(), &true.into()));
}

#[test]
fn a_late_copy_of_the_first_start_does_not_start_the_next_world() {
    let mut world = World::new(7, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.joiner(1).save_ready(now);
    world.host.start_with_save(now, &[path(1)]);
    world.run(ms(50));
    // The further copies of that start are still to come.
    let now = world.now;
    assert!(world.host.switch_world(now));
    world.run(secs(5));
    assert_eq!(starts(&world, 1), [(true, false)]);
    let now = world.now;
    world.joiner(1).save_ready(now);
    world.host.start_with_save(now, &[path(1)]);
    world.run(secs(5));
    assert_eq!(starts(&world, 1), [(true, false), (true, true)]);
}
