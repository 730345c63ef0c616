//! Many small worlds in which players come, go, move, rename themselves and fall silent, on links of every quality. Ten
//! seconds after the loss stops everybody agrees.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod common;

use anywire_lobby::{Event, JoinConfig, Mode};
use common::*;
use seam::Dice;

fn play(seed: u8) {
    let mut dice = Dice::new([seed; 32]);
    let link = Link {
        loss: [0.0, 0.05, 0.15, 0.3][usize::try_from(dice.below(4)).unwrap()],
        duplicate: [0.0, 0.2][usize::try_from(dice.below(2)).unwrap()],
        jitter: ms(dice.below(300)),
    };
    let mut config = host_config();
    config.companies = dice.chance(0.5);
    config.relay_only = dice.chance(0.3);
    let mut world = World::new(seed, link, config);
    let mut next_port = 100u16;
    let mut here: Vec<u16> = Vec::new();
    for _ in 0..40 {
        let now = world.now;
        let someone =
            (!here.is_empty()).then(|| usize::try_from(dice.below(u64::try_from(here.len()).unwrap())).unwrap());
        match (dice.below(10), someone) {
            (0..=2, _) if here.len() < 12 => {
                let names = ["bob", "lin", "eve", "zoe"];
                let name = names[usize::try_from(dice.below(4)).unwrap()];
                let config = JoinConfig { extensions: dice.chance(0.7), ..join_config(name) };
                world.join(next_port, config);
                here.push(next_port);
                next_port += 1;
            }
            (3, Some(at)) => {
                let port = here.swap_remove(at);
                world.joiner(port).leave(now);
                world.run(secs(1));
                world.nodes.remove(&port);
            }
            // A process that dies says nothing.
            (4, Some(at)) => {
                world.nodes.remove(&here.swap_remove(at));
            }
            (5, Some(at)) => {
                world.move_joiner(here[at], next_port);
                here[at] = next_port;
                world.joiner(next_port).connected(now, path(HOST));
                next_port += 1;
            }
            (6, Some(at)) => world.joiner(here[at]).rename(now, "mia"),
            (7, Some(at)) => world.joiner(here[at]).stage(now, &format!("step {}", dice.u32())),
            (8, _) => world.host.mode(now, if dice.chance(0.5) { Mode::Coop } else { Mode::Companies }),
            (9, _) => world.host.start(now, false),
            _ => {}
        }
        world.run(ms(dice.below(1_500)));
    }
    world.link = PERFECT;
    world.run(secs(10));
    // A dead process is dropped ten seconds after its last word, a sweep and a roster later.
    world.run(secs(2));
    let over = |world: &World, port: u16| world.events_of(port).iter().any(|event| matches!(event, Event::Ended(_)));
    for port in here.clone() {
        if over(&world, port) {
            world.nodes.remove(&port);
        }
    }
    // Whoever was never let in within its 15 seconds is the only one that may have ended.
    world.assert_agreement();
    let roster = world.host.roster();
    let letters: std::collections::BTreeSet<&str> =
        roster.players.values().map(|player| player.letter.as_str()).collect();
    assert_eq!(letters.len(), roster.players.len(), "one letter each");
    for port in world.nodes.keys() {
        let starts = world.events_of(*port).iter().filter(|event| matches!(event, Event::Start { .. })).count();
        assert!(starts <= 1, "started once at most");
    }
}

#[test]
fn everybody_agrees_ten_seconds_after_the_loss_stops() {
    for seed in 0..=255 {
        let result = std::panic::catch_unwind(|| play(seed));
        assert!(result.is_ok(), "the world of seed {seed} fails");
    }
}
