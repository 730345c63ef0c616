//! Peers of the old program, played by hand: what they send and what they must find in the answers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use anywire_lobby::{End, Event, JoinConfig, Joiner, Mode, State};
use common::*;
use seam::Refused;
use serde_json::{Value, json};

const JOIN: &str = r#"{"t": "join", "version": "0.7.1.4", "name": "bob", "mesh": true, "recovery": 0, "batches": 1, "terrain_stream": 1, "profile": "AEBAGBA"}"#;

fn old_joiner_in(world: &mut World) {
    world.script(5);
    world.say(5, JOIN);
    world.say(5, r#"{"t": "ping"}"#);
    world.run(ms(500));
}

/// Pings every three seconds, as the old program does.
fn run_pinging(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.say(5, r#"{"t": "ping"}"#);
        world.run(secs(1));
    }
}

#[test]
fn an_old_joiner_gets_welcome_and_rosters_with_every_field_it_reads() {
    let mut world = World::new(1, PERFECT, host_config());
    old_joiner_in(&mut world);
    let welcome = world.told(5, "welcome");
    assert_eq!(welcome.len(), 1);
    let keys: Vec<&str> = welcome[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["t", "version", "transport_lobby", "you", "host", "recovery", "lobby", "relay", "mods", "mods_unknown"],
        "nothing of our own words for a peer that named none"
    );
    let roster = world.told(5, "roster").pop().unwrap();
    let keys: Vec<&str> = roster.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "t",
            "version",
            "transport_lobby",
            "players",
            "recovery",
            "host",
            "lobby",
            "relay",
            "mods",
            "mods_unknown",
            "stored_age",
            "stored_max",
            "letters",
            "started",
            "start_save",
            "profiles",
            "links",
            "companies",
            "stages",
            "mode"
        ]
    );
    assert_eq!(roster["players"], json!(["ada", "bob"]));
    assert_eq!(roster["letters"], json!({"ada": "a", "bob": "b"}));
    assert_eq!(roster["companies"], json!({"ada": 1, "bob": 1}));
    assert_eq!(roster["profiles"], json!({"bob": "AEBAGBA"}));
    assert_eq!((&roster["recovery"], &roster["mods"], &roster["mods_unknown"]), (&json!(0), &json!([]), &json!(false)));
    assert_eq!(roster["transport_lobby"], welcome[0]["transport_lobby"]);
    assert_eq!(roster["transport_lobby"].as_str().unwrap().len(), 32);
}

#[test]
fn an_old_joiner_gets_a_roster_every_two_seconds_and_at_most_ten_a_second() {
    let mut world = World::new(2, PERFECT, host_config());
    old_joiner_in(&mut world);
    let before = world.told(5, "roster").len();
    run_pinging(&mut world, 20);
    let quiet = world.told(5, "roster").len() - before;
    assert!((9..=11).contains(&quiet), "{quiet}");
    for n in 0..1_000 {
        let now = world.now;
        world.host.stage(now, &format!("step {n}"));
        world.run(ms(1));
    }
    let busy = world.told(5, "roster").len() - before - quiet;
    assert!((9..=11).contains(&busy), "{busy}");
    world.run(ms(200));
    assert_eq!(world.told(5, "roster").pop().unwrap()["stages"], json!({"ada": "step 999"}));
}

#[test]
fn an_old_joiners_words_are_taken_as_it_writes_them() {
    let mut world = World::new(3, PERFECT, anywire_lobby::HostConfig { companies: true, ..host_config() });
    old_joiner_in(&mut world);
    world.say(5, r#"{"t": "chat", "text": "gr\u00fc\u00df \ud83d\ude82 \"q\" \\ /"}"#);
    world.say(5, r#"{"t": "company", "player": "bob", "id": 4}"#);
    world.say(5, r#"{"t": "stage", "text": "loading"}"#);
    world.say(5, r#"{"t": "links", "direct": []}"#);
    world.say(5, r#"{"t": "log", "lines": ["one", "two"]}"#);
    world.say(5, r#"{"t": "mesh_hi", "name": "bob"}"#);
    world.run(secs(1));
    let chats = world.told(5, "chat");
    assert_eq!(chats.len(), 3, "three copies");
    assert_eq!(
        chats[0],
        json!({"t": "chat", "from": "bob", "text": "gr\u{fc}\u{df} \u{1F682} \"q\" \\ /", "ts": WALL, "cid": 1})
    );
    let bob = &world.host.roster().players["bob"];
    assert_eq!((bob.company, bob.stage.as_str()), (4, "loading"));
    let lines = world.host_events.iter().filter(|event| matches!(event, Event::PeerLog { .. })).count();
    assert_eq!(lines, 2);
    let now = world.now;
    world.host.start(now, false);
    world.run(secs(1));
    assert_eq!(world.told(5, "start"), vec![json!({"t": "start", "save": false}); 3]);
    assert_eq!(world.told(5, "roster").pop().unwrap()["started"], json!(true));
    let now = world.now;
    world.host.close(now);
    world.run(secs(1));
    assert_eq!(world.told(5, "bye").len(), 3);
}

#[test]
fn an_old_joiners_rename_and_repetition_are_in_place() {
    let mut world = World::new(4, PERFECT, host_config());
    old_joiner_in(&mut world);
    world.say(5, JOIN);
    world.run(ms(300));
    assert_eq!(world.told(5, "welcome").len(), 2);
    world.say(
        5,
        r#"{"t": "join", "version": "0.7.1.4", "name": " ada ", "mesh": true, "recovery": 0, "terrain_stream": 1}"#,
    );
    world.run(ms(300));
    assert_eq!(world.told(5, "welcome").pop().unwrap()["you"], "ada#2");
    let roster = world.host.roster();
    assert_eq!((roster.players.len(), roster.players["ada#2"].letter.as_str()), (2, "b"));
    assert_eq!(roster.players["ada#2"].profile.as_deref(), Some("AEBAGBA"), "a rename without a code keeps the code");
    let joined = world.host_events.iter().filter(|event| matches!(event, Event::MemberJoined { .. })).count();
    assert_eq!(joined, 1);
}

#[test]
fn pain_47_a_name_is_cut_to_what_an_envelope_carries() {
    let mut world = World::new(5, PERFECT, host_config());
    world.script(5);
    let long = "\u{1F682}".repeat(100);
    world.say(5, &format!(r#"{{"t": "join", "version": "0.7.1.4", "name": "{long}"}}"#));
    world.script(6);
    world.say(6, &format!(r#"{{"t": "join", "version": "0.7.1.4", "name": "{long}"}}"#));
    world.run(ms(500));
    for port in [5, 6] {
        let name = world.host.name_of(path(port)).unwrap();
        assert!((240..=255).contains(&name.len()));
    }
}

#[test]
fn members_of_another_version_or_none_are_refused_with_both_versions() {
    let mut world = World::new(6, PERFECT, host_config());
    for (port, version) in [(5u16, r#""0.7.1.3""#), (6, "7"), (7, "null"), (8, r#"" 0.7.1.4""#)] {
        world.script(port);
        world.say(port, &format!(r#"{{"t": "join", "version": {version}, "name": "x"}}"#));
    }
    world.script(9);
    world.say(9, r#"{"t": "join", "name": "x"}"#);
    world.run(ms(500));
    for port in 5..=9 {
        let reason = world.told(port, "reject")[0]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("the host runs 0.7.1.4"), "{reason}");
        assert!(!world.host.is_member(path(port)));
    }
    old_joiner_in(&mut world);
    assert!(world.host.is_member(path(5)));
    world.say(5, r#"{"t": "join", "version": "0.7.1.3", "name": "bob"}"#);
    world.run(ms(500));
    assert!(!world.host.is_member(path(5)), "a member that says another version is removed");
}

#[test]
fn a_flood_of_refused_joins_is_answered_at_a_limited_rate() {
    let mut world = World::new(7, PERFECT, host_config());
    world.script(5);
    for _ in 0..500 {
        world.say(5, r#"{"t": "join", "version": "0.1", "name": "x"}"#);
    }
    world.run(secs(1));
    assert!(world.told(5, "reject").len() <= 3);
}

#[test]
fn a_host_without_extensions_answers_as_the_old_program_does() {
    let mut world = World::new(8, PERFECT, anywire_lobby::HostConfig { extensions: false, ..host_config() });
    world.join(1, join_config("bob"));
    world.run(secs(3));
    world.assert_agreement();
    assert!(!world.longest.contains_key("aw_roster"));
    world.script(5);
    world.say(5, r#"{"t": "ping"}"#);
    world.run(secs(1));
    assert!(world.told(5, "aw_again").is_empty());
}

#[test]
fn a_joiner_without_extensions_says_nothing_of_them() {
    let mut world = World::new(9, PERFECT, host_config());
    let config = JoinConfig { extensions: false, ..join_config("bob") };
    let mut joiner = Joiner::new(Arc::new(config.clone()), [1; 32], world.now);
    joiner.connected(world.now, path(HOST));
    let (_, join) = joiner.poll_message().unwrap();
    assert_eq!(
        String::from_utf8(join).unwrap(),
        r#"{"t": "join", "version": "0.7.1.4", "name": "bob", "mesh": true, "recovery": 0, "batches": 1, "terrain_stream": 1}"#
    );
    world.join(1, config);
    world.run(secs(3));
    world.assert_agreement();
    assert!(world.longest.contains_key("roster") && !world.longest.contains_key("aw_roster"));
}

/// An old host, played by the test, and one joiner of ours.
struct OldHost {
    now: std::time::Instant,
    joiner: Joiner,
    heard: Vec<Value>,
    events: Vec<Event>,
}

impl OldHost {
    fn new() -> Self {
        let now = std::time::Instant::now();
        let mut joiner = Joiner::new(Arc::new(join_config("lin")), [1; 32], now);
        joiner.connected(now, path(HOST));
        let mut host = Self { now, joiner, heard: Vec::new(), events: Vec::new() };
        host.pump();
        host
    }

    fn pump(&mut self) {
        while let Some((_, bytes)) = self.joiner.poll_message() {
            self.heard.push(serde_json::from_slice(&bytes).unwrap());
        }
        while let Some(event) = self.joiner.poll_event() {
            self.events.push(event);
        }
    }

    fn run(&mut self, time: std::time::Duration) {
        let end = self.now + time;
        self.pump();
        while let Some((at, _)) = self.joiner.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.joiner.handle_timeout(self.now);
            self.pump();
        }
        self.now = end;
    }

    fn say(&mut self, message: &Value) -> Result<(), Refused> {
        let taken = self.joiner.handle_message(self.now, path(HOST), message.to_string().as_bytes());
        self.pump();
        taken
    }

    fn welcome(&mut self) {
        let welcome = json!({"t": "welcome", "version": VERSION, "transport_lobby": "0".repeat(32), "you": "lin",
            "host": "ada", "recovery": 4, "lobby": "Tuesday", "relay": false, "mods": [["*2012345678", 1]],
            "mods_unknown": false});
        self.say(&welcome).unwrap();
        self.say(&roster(json!({}))).unwrap();
        self.run(ms(300));
    }

    fn count(&self, kind: &str) -> usize {
        self.heard.iter().filter(|message| message["t"] == kind).count()
    }

    fn starts(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Start { .. })).count()
    }
}

/// A roster as the old program writes it, with some fields changed.
fn roster(changes: Value) -> Value {
    let mut roster = json!({"t": "roster", "version": VERSION, "transport_lobby": "0".repeat(32),
        "players": ["ada", "lin"], "recovery": 4, "host": "ada", "lobby": "Tuesday", "relay": false,
        "mods": null, "mods_unknown": true, "stored_age": -1, "stored_max": -1, "letters": {"ada": "a", "lin": "b"},
        "started": false, "start_save": false, "profiles": {"lin": "AEBAGBA"}, "links": {"lin": []},
        "companies": {"ada": 1, "lin": 1}, "stages": {}, "mode": "coop"});
    roster.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    roster
}

#[test]
fn an_old_hosts_welcome_and_roster_are_read() {
    let mut host = OldHost::new();
    assert_eq!(host.heard[0]["t"], "join");
    assert_eq!(host.heard[1]["t"], "ping");
    host.welcome();
    let shown = host.joiner.roster();
    assert_eq!((shown.you.as_str(), shown.host.as_str(), shown.lobby.as_str()), ("lin", "ada", "Tuesday"));
    assert_eq!((shown.players["lin"].letter.as_str(), shown.players["lin"].company, shown.mode), ("b", 1, Mode::Coop));
    assert!(host.events.contains(&Event::Roster(shown)));
    let before = host.events.len();
    host.say(&roster(json!({}))).unwrap();
    host.run(secs(1));
    assert_eq!(host.events.len(), before, "the same roster is no news");
    host.run(secs(8));
    assert_eq!((host.count("join"), host.count("ping")), (1, 4));
}

#[test]
fn a_lost_welcome_is_asked_for_again_before_another_players_name_is_answered_to() {
    let twins = roster(json!({"players": ["ada", "lin", "lin#2"], "letters": {"ada": "a", "lin": "b", "lin#2": "c"}}));
    let mut host = OldHost::new();
    host.say(&twins).unwrap();
    host.run(secs(4));
    assert_eq!(host.joiner.roster().you, "");
    assert!(!host.events.iter().any(|event| matches!(event, Event::Roster(_))));
    assert!(host.count("join") >= 4, "one each second");
    host.say(&json!({"t": "welcome", "version": VERSION, "transport_lobby": "0".repeat(32), "you": "lin#2",
        "host": "ada", "recovery": 0, "lobby": "", "relay": false, "mods": [], "mods_unknown": false}))
        .unwrap();
    host.say(&twins).unwrap();
    host.run(secs(1));
    assert_eq!(host.joiner.roster().you, "lin#2");

    let mut host = OldHost::new();
    host.say(&roster(json!({}))).unwrap();
    assert_eq!(host.joiner.roster().you, "lin", "nobody else can be meant");

    let mut host = OldHost::new();
    for _ in 0..16 {
        host.say(&twins).unwrap();
        host.run(secs(2));
    }
    assert_eq!(host.joiner.roster().you, "lin", "a host that never says it");
}

#[test]
fn an_unanswered_join_is_repeated_every_second() {
    let mut host = OldHost::new();
    host.run(ms(9_500));
    assert_eq!(host.count("join"), 10);
}

#[test]
fn before_the_version_is_confirmed_only_what_can_confirm_or_end_is_heard() {
    let mut host = OldHost::new();
    for message in [
        json!({"t": "chat", "from": "ada", "text": "x", "ts": 1, "cid": 1}),
        json!({"t": "start", "save": false}),
        json!({"t": "status", "state": "waiting", "detail": "x"}),
    ] {
        assert_eq!(host.say(&message), Err(Refused::Unexpected));
    }
    assert_eq!(host.starts(), 0);
    assert!(!host.joiner.is_confirmed());
    host.welcome();
    assert!(host.joiner.is_confirmed());
}

#[test]
fn a_host_of_another_version_is_left_with_both_versions_named() {
    for version in [json!("0.7.1.5"), json!(7), Value::Null] {
        let mut host = OldHost::new();
        host.say(&roster(json!({"version": version}))).unwrap();
        assert_eq!(host.count("leave"), 1);
        let Some(Event::Ended(End::Version { mine, theirs })) = host.events.last() else { panic!("goes on") };
        assert_eq!((mine.as_str(), theirs.as_str()), (VERSION, version.as_str().unwrap_or("unknown")));
    }
}

#[test]
fn a_start_with_a_save_is_passed_over_and_a_later_one_counts() {
    let mut host = OldHost::new();
    host.welcome();
    host.say(&json!({"t": "start", "save": true})).unwrap();
    host.say(&roster(json!({"started": true, "start_save": true}))).unwrap();
    assert_eq!(host.starts(), 0);
    for _ in 0..3 {
        host.say(&json!({"t": "start", "save": false})).unwrap();
    }
    host.say(&roster(json!({"started": true}))).unwrap();
    assert_eq!(host.starts(), 1);
}

#[test]
fn a_started_roster_heals_a_lost_start_and_an_old_one_after_it_starts_nothing_again() {
    let mut host = OldHost::new();
    host.welcome();
    host.say(&roster(json!({"started": true}))).unwrap();
    host.say(&roster(json!({"started": false}))).unwrap();
    host.say(&roster(json!({"started": true}))).unwrap();
    assert_eq!(host.starts(), 1);
}

#[test]
fn pain_42_each_world_nonce_is_told_once_and_an_old_one_never_again() {
    let mut host = OldHost::new();
    host.welcome();
    let nonce = |c: &str| roster(json!({"transport_lobby": c.repeat(32)}));
    for c in ["1", "0", "1", "2", "0", "A", "xyz"] {
        host.say(&nonce(c)).unwrap();
    }
    let told: Vec<String> = host
        .events
        .iter()
        .filter_map(|event| match event {
            Event::TransportLobby(nonce) => Some(nonce.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["0".repeat(32), "1".repeat(32), "2".repeat(32)]);
}

#[test]
fn chat_of_an_old_host_is_shown_once_per_id() {
    let mut host = OldHost::new();
    host.welcome();
    for cid in [1, 1, 2, 1, 2] {
        host.say(&json!({"t": "chat", "from": "ada", "text": "hi", "ts": 5, "cid": cid})).unwrap();
    }
    let shown = host.events.iter().filter(|event| matches!(event, Event::Chat { .. })).count();
    assert_eq!(shown, 2);
}

#[test]
fn reject_bye_and_status_of_an_old_host_are_understood() {
    let mut host = OldHost::new();
    host.welcome();
    host.say(&json!({"t": "status", "state": "connected", "detail": "loading"})).unwrap();
    assert!(host.events.contains(&Event::Status { state: State::Connected, detail: "loading".into() }));
    host.say(&json!({"t": "reject", "reason": "lobby full"})).unwrap();
    assert_eq!(host.events.last(), Some(&Event::Ended(End::Rejected("lobby full".into()))));
    assert_eq!(host.say(&json!({"t": "bye"})), Err(Refused::Unexpected), "nothing follows the end");
    let mut host = OldHost::new();
    host.say(&json!({"t": "bye"})).unwrap();
    assert_eq!(host.events.last(), Some(&Event::Ended(End::HostClosed)));
}

#[test]
fn words_of_an_old_host_that_are_not_built_change_nothing() {
    let mut host = OldHost::new();
    host.welcome();
    let before = host.events.len();
    for kind in ["fbegin", "fack", "mods_manifest", "bulk_pipe", "sync_state", "sync_ready_state", "from_the_future"] {
        assert_eq!(host.say(&json!({"t": kind})), Err(Refused::Unexpected));
    }
    assert_eq!(host.events.len(), before);
}

#[test]
fn links_are_reported_when_they_change_and_the_first_time_even_when_empty() {
    let mut host = OldHost::new();
    host.welcome();
    let now = host.now;
    host.joiner.links(now, Vec::new());
    host.run(ms(10));
    host.joiner.links(host.now, Vec::new());
    host.run(secs(1));
    assert_eq!(host.count("links"), 1);
    host.say(&roster(json!({"players": ["ada", "lin", "zed"], "links": {"lin": ["zed"]}}))).unwrap();
    host.joiner.links(host.now, vec!["zed".into()]);
    host.run(ms(300));
    assert_eq!(host.heard.last().unwrap(), &json!({"t": "links", "direct": ["zed"]}));
    host.run(secs(5));
    assert_eq!(host.count("links"), 2);
}
