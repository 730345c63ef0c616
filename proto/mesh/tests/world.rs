//! Small worlds in virtual time: a host, joiners with and without a mesh, and a network that may lose, duplicate and
//! reorder. The lobby, the dialling and the replay window, which are other rooms' work, are modelled in `sim`.

mod sim;

use sim::{Faults, World};

/// Seeds of one kind of world; `MESH_SEEDS` runs more.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("MESH_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(30)
}

#[test]
fn in_a_steady_world_everybody_gets_each_frame_once_and_in_order() {
    let mut sure = 0;
    for seed in seeds() {
        let mut world = World::new(seed, Faults::default());
        world.run(60);
        sure += world.check_exactly_once();
        world.check_order_after(20);
        world.check_routes();
        world.check_links();
    }
    assert!(sure > 40_000, "only {sure} copies were sure to arrive");
}

#[test]
fn links_that_die_and_come_back_cost_frames_for_at_most_seven_seconds() {
    let mut sure = 0;
    for seed in seeds() {
        let mut world = World::new(seed, Faults { toggles: true, ..Faults::default() });
        world.run(240);
        sure += world.check_exactly_once();
    }
    assert!(sure > 80_000, "only {sure} copies were sure to arrive");
}

#[test]
fn a_silent_host_is_routed_around_after_twelve_seconds() {
    let (mut sure, mut carried) = (0, 0);
    for seed in seeds() {
        let mut world = World::new(seed, Faults { silence: true, ..Faults::default() });
        world.run(150);
        sure += world.check_exactly_once();
        carried += world.carried();
    }
    assert!(sure > 40_000, "only {sure} copies were sure to arrive");
    assert!(carried > 300, "only {carried} frames travelled through another player");
}

#[test]
fn players_who_come_go_and_change_their_names_lose_nothing_of_those_who_stay() {
    let mut sure = 0;
    for seed in seeds() {
        let mut world = World::new(seed, Faults { churn: true, ..Faults::default() });
        world.run(90);
        sure += world.check_exactly_once();
    }
    assert!(sure > 20_000, "only {sure} copies were sure to arrive");
}

#[test]
fn loss_duplication_and_reorder_never_make_a_second_copy() {
    for seed in seeds() {
        let faults = Faults { loss: true, toggles: seed % 2 == 0, silence: seed % 3 == 0, churn: seed % 5 < 2 };
        let mut world = World::new(seed, faults);
        world.run(120);
        world.check_at_most_once();
        world.check_deliveries_are_common();
    }
}

#[test]
fn one_seed_makes_one_world() {
    let faults = Faults { loss: true, toggles: true, silence: true, churn: true };
    let log = |seed| {
        let mut world = World::new(seed, faults);
        world.run(60);
        world.log()
    };
    assert_eq!(log(7), log(7));
    assert_ne!(log(7), log(8));
}
