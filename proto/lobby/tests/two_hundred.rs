//! Two hundred players who all reach each other directly, over a link that loses 30 % of everything.

mod common;

use common::*;

#[test]
fn two_hundred_meshed_players_agree_within_ten_seconds_after_the_loss_stops() {
    let mut world = World::new(1, ROUGH, host_config());
    let code = "A".repeat(47);
    for port in 1..=199 {
        let config =
            anywire_lobby::JoinConfig { profile: Some(code.clone()), ..join_config(&format!("player {port}")) };
        world.join(port, config);
    }
    world.run(secs(15));
    let names: Vec<String> = (1..=199).map(|port| format!("player {port}")).collect();
    for port in 1..=199u16 {
        let me = world.roster(port).you.clone();
        let direct = names.iter().filter(|name| **name != me).cloned().collect();
        let now = world.now;
        world.joiner(port).links(now, direct);
    }
    world.run(secs(10));
    world.link = PERFECT;
    world.run(secs(10));
    world.assert_agreement();
    let roster = world.host.roster();
    assert_eq!(roster.players.len(), 200);
    assert!(roster.players.iter().all(|(name, player)| name == "ada" || player.links.len() == 198));
    assert!(world.longest["aw_roster"] <= 1_250);
    // Quiet again: beacons only, one per player every two seconds.
    let before = world.host_datagrams;
    world.run(secs(10));
    let per_second = (world.host_datagrams - before) / 10;
    assert!((90..=110).contains(&per_second), "{per_second}");
}

#[test]
fn pain_30_an_old_peer_among_two_hundred_gets_rosters_that_survive() {
    let mut world = World::new(2, PERFECT, host_config());
    world.script(500);
    world.say(500, r#"{"t": "join", "version": "0.7.1.4", "name": "old", "mesh": true, "recovery": 0}"#);
    let code = "A".repeat(47);
    for port in 1..=198 {
        let config =
            anywire_lobby::JoinConfig { profile: Some(code.clone()), ..join_config(&format!("player {port}")) };
        world.join(port, config);
    }
    world.run(secs(2));
    for port in 1..=198u16 {
        let direct = (1..=198).filter(|other| *other != port).map(|other| format!("player {other}")).collect();
        let now = world.now;
        world.joiner(port).links(now, direct);
        world.say(500, r#"{"t": "ping"}"#);
    }
    world.run(secs(3));
    let last = world.told(500, "roster").pop().unwrap();
    assert_eq!(last["players"].as_array().unwrap().len(), 200);
    assert_eq!(last["letters"].as_object().unwrap().len(), 200);
    assert!(last.get("links").is_none(), "left out first");
    assert!(world.longest["roster"] <= 16 * 1_300, "{}", world.longest["roster"]);
}
