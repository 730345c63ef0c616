//! The examples in docs/wire/extensions.md are messages of this code.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod common;

use common::*;
use serde_json::Value;

fn examples() -> Vec<Value> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire/extensions.md")).unwrap();
    page.split("```json\n")
        .skip(1)
        .flat_map(|rest| rest.split("```").next().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()))
        .collect()
}

#[test]
fn the_page_in_the_document_makes_a_roster_and_is_acknowledged() {
    let examples = examples();
    let mut world = World::new(1, PERFECT, host_config());
    world.cut.push(1);
    world.join(1, join_config("lin"));
    let now = world.now;
    let joiner = world.joiner(1);
    joiner.handle_message(now, path(HOST), &codec::to_json(&examples[0])).unwrap();
    let acknowledged = std::iter::from_fn(|| joiner.poll_message())
        .map(|(_, bytes)| serde_json::from_slice::<Value>(&bytes).unwrap())
        .find(|message| message["t"] == "aw_have")
        .unwrap();
    assert_eq!((&acknowledged["of"], &acknowledged["rev"]), (&examples[1]["of"], &examples[1]["rev"]));
    let roster = joiner.roster();
    assert_eq!((roster.you.as_str(), roster.host.as_str(), roster.lobby.as_str()), ("lin", "ada", "Tuesday"));
    assert_eq!(roster.players["lin"].letter, "b");
}

#[test]
fn the_keys_of_a_page_are_those_of_the_document_in_that_order() {
    let mut world = World::new(2, PERFECT, host_config());
    world.script(5);
    world.say(5, r#"{"t": "join", "version": "0.7.1.4", "name": "lin", "aw": ["roster"]}"#);
    world.run(ms(300));
    let sent = world.told(5, "aw_roster").remove(0);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&sent), keys(&examples()[0]));
    let lobby = |page: &Value| page["facts"].as_array().unwrap().iter().find(|fact| fact[1] == "g").unwrap()[2].clone();
    assert_eq!(keys(&lobby(&sent)), keys(&lobby(&examples()[0])));
    let acknowledgement = examples()[1].to_string();
    assert_eq!(world.host.handle_message(world.now, path(5), acknowledgement.as_bytes()), Ok(()));
}
