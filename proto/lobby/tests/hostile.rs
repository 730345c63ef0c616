//! Input nobody should send.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod common;

use anywire_lobby::{Event, JoinConfig};
use common::*;
use seam::Refused;
use serde_json::{Map, Value, json};

/// A value of every other type than the one that belongs in `field`.
fn wrong(field: &Value) -> Vec<Value> {
    [json!(null), json!(true), json!(-7.5), json!("text"), json!(["x", 1]), json!({"k": []})]
        .into_iter()
        .filter(|value| std::mem::discriminant(value) != std::mem::discriminant(field))
        .collect()
}

fn to_host() -> Vec<Value> {
    vec![
        json!({"t": "join", "version": VERSION, "name": "bob", "mesh": true, "recovery": 0, "batches": 1,
            "terrain_stream": 1, "profile": "AEBAGBA", "aw": ["roster"], "aw_resume": "00", "aw_of": "00", "aw_rev": 1}),
        json!({"t": "chat", "text": "x"}),
        json!({"t": "company", "player": "bob", "id": 1}),
        json!({"t": "mode", "mode": "coop"}),
        json!({"t": "stage", "text": "x"}),
        json!({"t": "links", "direct": ["ada"]}),
        json!({"t": "log", "lines": ["x"]}),
        json!({"t": "aw_have", "of": "00", "rev": 1, "got": [[2, 3]]}),
        json!({"t": "ping"}),
        json!({"t": "leave"}),
        json!({"t": "start"}),
    ]
}

fn to_joiner() -> Vec<Value> {
    let nonce = "0".repeat(32);
    vec![
        json!({"t": "welcome", "version": VERSION, "transport_lobby": nonce, "you": "bob", "host": "ada", "recovery": 0,
            "lobby": "x", "relay": false, "mods": [], "mods_unknown": false, "aw": ["roster"], "aw_resume": "00"}),
        json!({"t": "roster", "version": VERSION, "transport_lobby": nonce, "players": ["ada"], "recovery": 0,
            "host": "ada", "lobby": "x", "relay": false, "mods": [], "mods_unknown": false, "stored_age": -1,
            "stored_max": -1, "letters": {"ada": "a"}, "started": false, "start_save": false, "profiles": {"ada": "A"},
            "links": {"ada": ["bob"]}, "companies": {"ada": 1}, "stages": {"ada": "x"}, "mode": "coop"}),
        json!({"t": "chat", "from": "ada", "text": "x", "ts": 1, "cid": 1}),
        json!({"t": "start", "save": false, "switch": true}),
        json!({"t": "status", "state": "waiting", "detail": "x"}),
        json!({"t": "reject", "reason": "x"}),
        json!({"t": "aw_roster", "version": VERSION, "of": "00", "from": 0, "to": 1, "now": 1, "you": 1,
            "started": false, "start_save": false, "facts": [[1, "s", 1, "x"]]}),
    ]
}

/// Every message with every field replaced by every wrong type, and with every field left out.
fn mutilated(messages: &[Value]) -> Vec<Value> {
    let mut out = Vec::new();
    for message in messages {
        let fields = message.as_object().unwrap();
        for (key, field) in fields {
            for value in wrong(field) {
                let mut broken: Map<String, Value> = fields.clone();
                broken.insert(key.clone(), value);
                out.push(Value::Object(broken));
            }
            let mut broken = fields.clone();
            broken.remove(key);
            out.push(Value::Object(broken));
        }
    }
    out
}

fn nasty() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"{}".to_vec(),
        br#"{"t": 7}"#.to_vec(),
        vec![b'{', b'"', 0xFF, b'"', b':', b'1', b'}'],
        br#"{"t": "roster", "players": ["#.iter().copied().chain(b"[".repeat(100_000)).collect(),
        [br#"{"t": "links", "direct": "#.as_slice(), &b"[".repeat(127), &b"]".repeat(127), b"}"].concat(),
        br#"{"t": "company", "player": "bob", "id": 99999999999999999999999999}"#.to_vec(),
        br#"{"t": "company", "player": "bob", "id": 1e400}"#.to_vec(),
        br#"{"t": "chat", "text": "\ud800"}"#.to_vec(),
    ]
}

#[test]
fn pain_34_no_message_of_a_member_ends_the_lobby_or_harms_another() {
    let mut world = World::new(1, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    for message in mutilated(&to_host()) {
        // A leave is a leave whatever else it says, and a join of another version is an answer, not a fault.
        if message["t"] == "leave" || message["version"] != VERSION && message["t"] == "join" {
            continue;
        }
        let _ = world.host.handle_message(now, path(1), message.to_string().as_bytes());
    }
    for bytes in nasty() {
        assert!(world.host.handle_message(now, path(1), &bytes).is_err());
        assert!(world.host.handle_message(now, path(9), &bytes).is_err());
    }
    world.run(secs(3));
    assert!(world.host.is_member(path(1)));
    world.assert_agreement();
}

#[test]
fn a_field_of_the_wrong_type_refuses_the_message_and_changes_nothing() {
    let mut world = World::new(2, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let (now, before) = (world.now, world.host.roster());
    let mut refused = 0;
    for message in to_host() {
        let fields = message.as_object().unwrap();
        for (key, field) in fields.iter().filter(|(key, _)| !["t", "version"].contains(&key.as_str())) {
            // Null stands for an absent value where a field may be absent.
            for value in wrong(field).into_iter().filter(|value| !value.is_null()) {
                let mut broken = fields.clone();
                broken.insert(key.clone(), value);
                let json = Value::Object(broken).to_string();
                assert_eq!(world.host.handle_message(now, path(1), json.as_bytes()), Err(Refused::Malformed), "{json}");
                refused += 1;
            }
        }
    }
    assert!(refused > 60);
    world.run(secs(1));
    assert_eq!(world.host.roster(), before);
}

#[test]
fn no_message_of_a_host_breaks_a_joiner() {
    for message in mutilated(&to_joiner()) {
        let mut world = World::new(3, PERFECT, host_config());
        world.join(1, join_config("bob"));
        world.run(ms(100));
        let now = world.now;
        let _ = world.joiner(1).handle_message(now, path(HOST), message.to_string().as_bytes());
        for bytes in nasty() {
            assert!(world.joiner(1).handle_message(now, path(HOST), &bytes).is_err());
        }
        world.run(secs(2));
        let ended = world.events_of(1).iter().any(|event| matches!(event, Event::Ended(_)));
        let may_end = ["reject", "bye"].iter().any(|kind| message["t"] == *kind) || message["version"] != VERSION;
        assert!(!ended || may_end, "{message}");
    }
}

#[test]
fn a_joiner_hears_nobody_but_its_host() {
    let mut world = World::new(4, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    for message in to_joiner() {
        let taken = world.joiner(1).handle_message(now, path(99), message.to_string().as_bytes());
        assert_eq!(taken, Err(Refused::NotAllowed));
    }
}

#[test]
fn anything_but_a_join_from_a_stranger_is_refused() {
    let mut world = World::new(5, PERFECT, host_config());
    let now = world.now;
    for message in to_host().into_iter().filter(|message| message["t"] != "join") {
        let taken = world.host.handle_message(now, path(9), message.to_string().as_bytes());
        assert_eq!(taken, Err(Refused::NotAllowed), "{message}");
    }
    assert!(!world.host.is_member(path(9)));
}

#[test]
fn companies_out_of_range_and_not_ones_own_are_refused() {
    let mut world = World::new(6, PERFECT, anywire_lobby::HostConfig { companies: true, ..host_config() });
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    let mut say = |json: Value| world.host.handle_message(now, path(1), json.to_string().as_bytes());
    for id in [json!(0), json!(201), json!(-1), json!(1u64 << 40)] {
        assert_eq!(say(json!({"t": "company", "player": "bob", "id": id})), Err(Refused::Malformed));
    }
    assert_eq!(say(json!({"t": "company", "player": "ada", "id": 5})), Err(Refused::NotAllowed));
    assert_eq!(say(json!({"t": "mode", "mode": "coop"})), Err(Refused::NotAllowed));
    assert_eq!(say(json!({"t": "mode", "mode": "chaos"})), Err(Refused::Malformed));
    assert_eq!(say(json!({"t": "start"})), Err(Refused::NotAllowed));
    assert_eq!(say(json!({"t": "nonsense"})), Err(Refused::Unexpected));
}

#[test]
fn of_a_repeated_key_the_last_counts() {
    let mut world = World::new(7, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    let json = br#"{"t": "leave", "t": "stage", "text": "a", "text": "b"}"#;
    assert_eq!(world.host.handle_message(now, path(1), json), Ok(()));
    world.run(secs(1));
    assert_eq!(world.host.roster().players["bob"].stage, "b");
}

#[test]
fn messages_over_their_bound_are_refused_before_they_are_read() {
    let mut world = World::new(8, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    let big = json!({"t": "chat", "text": "x".repeat(300 * 1024)}).to_string();
    assert_eq!(world.host.handle_message(now, path(1), big.as_bytes()), Err(Refused::OverLimit));
    let big = json!({"t": "chat", "from": "ada", "text": "x".repeat(3 * 1024 * 1024)}).to_string();
    assert_eq!(world.joiner(1).handle_message(now, path(HOST), big.as_bytes()), Err(Refused::OverLimit));
    let crowd: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let roster = json!({"t": "roster", "version": VERSION, "players": crowd}).to_string();
    assert_eq!(world.joiner(1).handle_message(now, path(HOST), roster.as_bytes()), Err(Refused::OverLimit));
}

#[test]
fn a_member_that_talks_too_much_is_cut_short() {
    let mut world = World::new(9, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    let results: Vec<_> = (0..20)
        .map(|n| world.host.handle_message(now, path(1), format!(r#"{{"t": "chat", "text": "{n}"}}"#).as_bytes()))
        .collect();
    assert_eq!(results.iter().filter(|taken| taken.is_ok()).count(), 8);
    assert_eq!(results.last(), Some(&Err(Refused::OverLimit)));
    let lines = json!({"t": "log", "lines": vec!["x"; 1_000]}).to_string();
    let logs: Vec<_> = (0..20).map(|_| world.host.handle_message(now, path(1), lines.as_bytes())).collect();
    assert_eq!(logs.iter().filter(|taken| taken.is_ok()).count(), 8);
    world.pump();
    let told = world.host_events.iter().filter(|event| matches!(event, Event::PeerLog { .. })).count();
    assert_eq!(told, 8 * 64);
}

#[test]
fn names_that_would_move_a_terminals_cursor_are_disarmed() {
    let mut world = World::new(10, PERFECT, host_config());
    world.join(1, JoinConfig { name: "\u{1b}[2Jbob\u{202e}".into(), ..join_config("") });
    world.join(2, join_config("MULTIPLAYER"));
    world.run(secs(1));
    assert_eq!(world.host.name_of(path(1)), Some("_[2Jbob_"));
    assert_eq!(world.host.name_of(path(2)), Some("MULTIPLAYER#2"), "notes of the program are signed so");
    world.assert_agreement();
}
