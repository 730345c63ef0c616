//! Every endpoint with its limits and exactly the specified refusals (netpunch wire, sections 16 and 24).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use codec::{Value, to_json};
use rendezvous::relay::RelayAt;
use rendezvous::{Call, Limits, Local, Probe, Response, ResponseBody, Step};
use serde_json::json;

use anywire_rendezvous as rendezvous;

const TAG: &str = "d02c31189fe2f64c0a20e521";

struct Master {
    local: Local,
    start: Instant,
    now: Instant,
}

impl Master {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let at = RelayAt { ip: ip(9), ports: (29600..=29699).collect(), shared: Some(29599) };
        Self { local: Local::new(limits, Some(at), None, [3; 32], now), start: now, now }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn step(&mut self, from: IpAddr, call: &Call<'_>) -> Step {
        let wall = Duration::from_secs(1_700_000_000) + (self.now - self.start);
        self.local.handle(self.now, wall, from, call)
    }

    fn answer(&mut self, from: IpAddr, call: &Call<'_>) -> Response {
        match self.step(from, call) {
            Step::Answer(response) => response,
            other => panic!("{other:?}"),
        }
    }

    fn post(&mut self, from: IpAddr, path: &str, body: &Value) -> (u16, Value) {
        let body = to_json(body);
        read(&self.answer(from, &call("POST", path, "", Some(&body))))
    }

    fn get(&mut self, path: &str, query: &str) -> (u16, Value) {
        read(&self.answer(ip(1), &call("GET", path, query, None)))
    }

    fn names(&mut self) -> Vec<String> {
        let (_, list) = self.get("/list", "");
        let rows = list["servers"].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn read(response: &Response) -> (u16, Value) {
    (response.status, serde_json::from_slice(response.json_body()).unwrap_or(Value::Null))
}

fn call<'a>(method: &'a str, path: &'a str, query: &'a str, body: Option<&'a [u8]>) -> Call<'a> {
    Call { method, path, query, body, html: false }
}

fn ip(n: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, n).into()
}

fn row(n: usize) -> Value {
    json!({"id": format!("id-{n}"), "name": format!("game {n}"), "code": "AAAA", "players": 1, "max": 4,
           "type": "host", "version": "0.7", "locked": false})
}

fn knock(nonce: u32) -> Value {
    json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": format!("{nonce:08x}")})
}

#[test]
fn a_row_is_listed_with_the_fields_of_old_panels_and_without_its_id() {
    let mut master = Master::new(Limits::default());
    assert_eq!(master.post(ip(1), "/tpf2mp/announce", &row(1)), (200, json!({"ok": true, "ttl": 30})));
    master.wait(7);
    let want = json!({"name": "game 1", "code": "AAAA", "players": 1, "max": 4, "game": "player hosted", "type": "host",
                      "version": "0.7", "locked": false, "age": 7});
    for path in ["/list", "/", "/tpf2mp/list", "/tpf2mp/"] {
        let (status, list) = master.get(path, "");
        assert_eq!((status, &list["ttl"], &list["now"]), (200, &json!(30), &json!(1_700_000_007)));
        assert_eq!(list["servers"], json!([want]));
    }
}

#[test]
fn fields_are_cut_clamped_and_filled() {
    let mut master = Master::new(Limits::default());
    let long = "x".repeat(1000);
    let rows = [
        json!({"id": &long, "name": &long, "code": &long, "version": &long, "players": -5, "max": 99999}),
        json!({"id": "b", "name": "  \u{7}", "code": "C", "players": "12", "type": "nonsense", "game": "dedicated relay", "locked": 1}),
        json!({"id": "c", "code": "C", "type": "dedicated", "players": 2.9}),
    ];
    for row in &rows {
        assert_eq!(master.post(ip(1), "/announce", row).0, 200);
    }
    let (_, list) = master.get("/list", "");
    let rows = list["servers"].as_array().unwrap();
    assert_eq!(rows[0]["game"], "dedicated server");
    assert_eq!((&rows[0]["players"], &rows[0]["max"], &rows[0]["locked"]), (&json!(2), &json!(8), &json!(false)));
    assert_eq!(
        (&rows[1]["name"], &rows[1]["players"], &rows[1]["locked"]),
        (&json!("unnamed"), &json!(12), &json!(true))
    );
    assert_eq!((&rows[1]["type"], &rows[1]["game"]), (&json!("relay"), &json!("dedicated server")));
    let lengths = ["name", "code", "version"].map(|key| rows[2][key].as_str().unwrap().len());
    assert_eq!((lengths, &rows[2]["players"], &rows[2]["max"]), ([40, 400, 20], &json!(0), &json!(10_000)));
    // Cut to 64 characters, the id is still the same row's.
    assert_eq!(master.post(ip(1), "/leave", &json!({"id": "x".repeat(64)})).0, 200);
    assert_eq!(master.names().len(), 2);
}

#[test]
fn a_row_goes_with_leave_or_thirty_seconds_after_its_last_announce() {
    let mut master = Master::new(Limits::default());
    for n in 0..3 {
        master.post(ip(1), "/announce", &row(n));
    }
    assert_eq!(master.names(), ["game 2", "game 1", "game 0"]);
    assert_eq!(master.post(ip(1), "/leave", &json!({"id": "id-1"})), (200, json!({"ok": true})));
    assert_eq!(master.post(ip(1), "/leave", &json!({"id": "never was"})), (200, json!({"ok": true})));
    master.wait(29);
    master.post(ip(1), "/announce", &row(0));
    assert_eq!(master.names(), ["game 0", "game 2"]);
    master.wait(1);
    assert_eq!(master.names(), ["game 0"]);
    master.wait(29);
    assert_eq!(master.names(), Vec::<String>::new());
}

#[test]
fn the_list_takes_500_rows_and_refuses_one_more() {
    let mut master = Master::new(Limits::default());
    assert!((0..500).all(|n| master.post(ip(1), "/announce", &row(n)).0 == 200));
    assert_eq!(master.post(ip(1), "/announce", &row(500)), (503, json!({"ok": false, "error": "full"})));
    assert_eq!(master.post(ip(1), "/announce", &row(499)).0, 200);
    assert_eq!(master.names().len(), 500);
}

#[test]
fn one_network_cannot_keep_others_out_of_a_full_list() {
    let mut master = Master::new(Limits::default());
    assert!((0..500).all(|n| master.post(ip(1), "/announce", &row(n)).0 == 200));
    let elsewhere = Ipv4Addr::new(203, 0, 113, 5).into();
    assert_eq!(master.post(elsewhere, "/announce", &row(1000)).0, 200);
    let names = master.names();
    assert_eq!((names.len(), names[0].as_str()), (500, "game 1000"));
    assert!(!names.contains(&"game 0".to_owned()));
    assert_eq!(master.post(ip(2), "/announce", &row(0)).0, 503);
}

#[test]
fn every_malformed_request_gets_its_status() {
    let mut master = Master::new(Limits::default());
    let huge = json!({"id": "a", "code": "b", "name": "x".repeat(5000)});
    for (path, body) in [
        ("/announce", json!({"code": "A"})),
        ("/announce", json!({"id": "", "code": "A"})),
        ("/announce", json!({"id": 7, "code": "A"})),
        ("/announce", json!({"id": "a"})),
        ("/announce", json!({"id": "a", "code": ""})),
        ("/announce", json!([])),
        ("/leave", json!({})),
        ("/leave", json!("id")),
        ("/knock", json!({"blob": "QQ=="})),
        ("/knock", json!({"s": &TAG[1..], "blob": "QQ=="})),
        ("/knock", json!({"s": TAG.to_uppercase(), "blob": "QQ=="})),
        ("/knock", json!({"s": TAG})),
        ("/knock", json!({"s": TAG, "blob": ""})),
        ("/knock", json!({"s": TAG, "blob": "QQ"})),
        ("/knock", json!({"s": TAG, "blob": "ab-_"})),
        ("/knock", json!({"s": TAG, "blob": "A".repeat(1028)})),
        ("/knock", json!({"s": TAG, "blob": "QQ==", "relay": 1})),
        ("/knock", json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": "1234567"})),
        ("/knock", json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": "0123456789abcdef0"})),
        ("/knock", json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": "ABCDEF01"})),
        ("/knock", json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": 12345678})),
        ("/probe", json!({"proto": "udp", "port": 1023, "token": "00112233445566778899"})),
        ("/probe", json!({"proto": "udp", "port": 70000, "token": "00112233445566778899"})),
        ("/probe", json!({"proto": "icmp", "port": 2000, "token": "00112233445566778899"})),
        ("/probe", json!({"proto": "tcp", "port": 2000, "token": "0011"})),
    ] {
        assert_eq!(master.post(ip(1), path, &body).0, 400, "{path} {body}");
    }
    for path in ["/announce", "/leave", "/knock", "/probe"] {
        for body in [None, Some(&b""[..]), Some(b"{"), Some(b"\xff\xfe"), Some(b"null")] {
            assert_eq!(master.answer(ip(1), &call("POST", path, "", body)).status, 400, "{path} {body:?}");
        }
    }
    // A shell hands on no body over the limit; a body within it may still hold too long a field.
    assert_eq!(master.post(ip(1), "/announce", &huge).0, 200);
    assert_eq!([master.get("/knock", ""), master.get("/knock", "s=abc&since=1")].map(|(status, _)| status), [400, 400]);
    assert_eq!(
        [master.get("/nothing", "").0, master.get("/listing", "").0, master.get("/announce", "").0],
        [404, 404, 405]
    );
    assert_eq!(master.post(ip(1), "/list", &json!({})).0, 405);
    assert_eq!(master.answer(ip(1), &call("DELETE", "/list", "", None)).status, 405);
}

#[test]
fn health_and_pipe_say_what_there_is() {
    let mut master = Master::new(Limits::default());
    let health = master.answer(ip(1), &call("GET", "/tpf2mp/health", "", None));
    assert_eq!((health.status, health.body), (200, ResponseBody::Text("ok")));
    assert_eq!(master.get("/pipe", "").0, 404);
    let at = "192.0.2.9:8472".parse().unwrap();
    let mut with_pipe = Local::new(Limits::default(), None, Some(at), [0; 32], Instant::now());
    let Step::Answer(answer) = with_pipe.handle(Instant::now(), Duration::ZERO, ip(1), &call("GET", "/pipe", "", None))
    else {
        panic!("answers at once")
    };
    assert_eq!(read(&answer), (200, json!({"ip": "192.0.2.9", "port": 8472})));
}

#[test]
fn a_note_is_read_as_often_as_wanted_until_it_is_a_minute_old() {
    let mut master = Master::new(Limits::default());
    for blob in ["QQ==", "Qg=="] {
        let (status, answer) = master.post(ip(1), "/knock", &json!({"s": TAG, "blob": blob}));
        assert_eq!((status, answer), (200, json!({"ok": true, "ttl": 60})));
    }
    let query = format!("s={TAG}&since=0");
    let (_, first) = master.get("/knock", &query);
    assert_eq!(first["knocks"].as_array().unwrap().len(), 2);
    assert_eq!(master.get("/knock", &query).1["knocks"], first["knocks"]);
    let since = first["knocks"][0]["t"].as_f64().unwrap();
    let (_, later) = master.get("/knock", &format!("s={TAG}&since={since}"));
    assert_eq!((later["knocks"].as_array().unwrap().len(), &later["knocks"][0]["blob"]), (1, &json!("Qg==")));
    assert_eq!(master.get("/knock", "s=ffffffffffffffffffffffff&since=0").1["knocks"], json!([]));
    master.wait(60);
    assert_eq!(master.get("/knock", &query).1["knocks"], json!([]));
}

#[test]
fn a_note_is_never_after_its_own_time_however_that_is_written() {
    let mut master = Master::new(Limits::default());
    for step in 0..200u64 {
        master.now += Duration::from_nanos(step * 1_234_567);
        master.post(ip((step % 200) as u8), "/knock", &json!({"s": TAG, "blob": "QQ=="}));
        let (_, all) = master.get("/knock", &format!("s={TAG}&since=0"));
        let t = all["knocks"].as_array().unwrap().last().unwrap()["t"].as_f64().unwrap();
        for since in [format!("{t}"), format!("{t:.6}"), format!("{t:.7}")] {
            assert_eq!(master.get("/knock", &format!("s={TAG}&since={since}")).1["knocks"], json!([]), "{since}");
        }
    }
}

#[test]
fn a_tag_keeps_sixteen_notes_and_the_oldest_makes_room() {
    let mut master = Master::new(Limits::default());
    for n in 0..20u8 {
        let blob = data(n);
        assert_eq!(master.post(ip(1), "/knock", &json!({"s": TAG, "blob": blob})).0, 200);
    }
    let (_, all) = master.get("/knock", &format!("s={TAG}&since=0"));
    let blobs: Vec<&str> =
        all["knocks"].as_array().unwrap().iter().map(|note| note["blob"].as_str().unwrap()).collect();
    assert_eq!(blobs, (4..20).map(data).collect::<Vec<_>>());
}

fn data(n: u8) -> String {
    format!("QUF{}", char::from(b'A' + n))
}

#[test]
fn the_forty_first_knock_of_an_address_is_too_many_and_costs_nothing() {
    let mut master = Master::new(Limits::default());
    let ok = |master: &mut Master, from, n: u32| {
        (0..n)
            .filter(|n| master.post(from, "/knock", &json!({"s": TAG, "blob": "QQ==", "relay": 0, "j": n})).0 == 200)
            .count()
    };
    assert_eq!(ok(&mut master, ip(1), 60), 40);
    assert_eq!(master.post(ip(1), "/knock", &knock(1)).0, 429);
    assert_eq!(master.local.relay.as_ref().unwrap().len(), (0, 0));
    assert_eq!(master.post(ip(2), "/knock", &knock(1)).0, 200);
    master.wait(121);
    assert_eq!(ok(&mut master, ip(1), 60), 40);
}

#[test]
fn a_network_is_limited_as_a_whole() {
    let mut master = Master::new(Limits::default());
    let posts = (0..20u8).flat_map(|host| std::iter::repeat_n(host, 40));
    let taken =
        posts.filter(|host| master.post(ip(*host), "/knock", &json!({"s": TAG, "blob": "QQ=="})).0 == 200).count();
    assert_eq!(taken, 400);
    let elsewhere = Ipv4Addr::new(203, 0, 113, 1).into();
    assert_eq!(master.post(elsewhere, "/knock", &json!({"s": TAG, "blob": "QQ=="})).0, 200);
}

#[test]
fn two_thousand_tags_fill_the_master_and_known_ones_still_knock() {
    let limits = Limits { knocks: 0, network_knocks: 0, ..Limits::default() };
    let mut master = Master::new(limits);
    let tag = |n: usize| json!({"s": format!("{n:024x}"), "blob": "QQ=="});
    assert!((0..2000).all(|n| master.post(ip(1), "/knock", &tag(n)).0 == 200));
    assert_eq!(master.post(ip(1), "/knock", &tag(2000)), (503, json!({"ok": false, "error": "full"})));
    // What was granted for a note that is not kept is given back.
    assert_eq!(master.post(ip(1), "/knock", &knock(1)), (503, json!({"ok": false, "error": "full"})));
    assert_eq!(master.local.relay.as_ref().unwrap().len(), (0, 0));
    assert_eq!(master.post(ip(1), "/knock", &tag(5)).0, 200);
    master.wait(60);
    assert_eq!(master.post(ip(1), "/knock", &tag(2000)).0, 200);
}

#[test]
fn the_same_pair_gets_the_same_port_and_the_host_is_told_of_it() {
    let mut master = Master::new(Limits::default());
    let (_, first) = master.post(ip(1), "/knock", &knock(1));
    let (_, again) = master.post(ip(1), "/knock", &knock(1));
    let (_, other) = master.post(ip(1), "/knock", &knock(2));
    assert_eq!(first["relay"], again["relay"]);
    assert_ne!(first["relay"]["port"], other["relay"]["port"]);
    assert_ne!(first["relay"]["id"], other["relay"]["id"]);
    assert_eq!(first["relay"]["ip"], "198.51.100.9");
    assert!((29600..=29699).contains(&first["relay"]["port"].as_u64().unwrap()));
    let (_, notes) = master.get("/knock", &format!("s={TAG}&since=0"));
    assert_eq!(notes["knocks"][0]["relay"], first["relay"]);
    assert_eq!(first.get("shared"), None);
}

#[test]
fn without_a_port_left_the_note_is_not_kept() {
    let mut master = Master::new(Limits { address_ports: 1000, knocks: 0, network_knocks: 0, ..Limits::default() });
    assert!((0..100).all(|n| master.post(ip(1), "/knock", &knock(n)).0 == 200));
    let lone = json!({"s": "ffffffffffffffffffffffff", "blob": "QQ==", "relay": 1, "j": "ffffffff"});
    assert_eq!(master.post(ip(1), "/knock", &lone), (503, json!({"ok": false, "error": "relay full"})));
    assert_eq!(master.get("/knock", "s=ffffffffffffffffffffffff&since=0").1["knocks"], json!([]));
    let plain = json!({"s": "ffffffffffffffffffffffff", "blob": "QQ=="});
    assert_eq!(master.post(ip(1), "/knock", &plain).0, 200);
    // Nobody came to those ports: after a while they serve others.
    master.wait(15);
    assert_eq!(master.post(ip(1), "/knock", &lone).0, 200);
}

#[test]
fn one_address_cannot_hold_every_port() {
    let mut master = Master::new(Limits::default());
    assert_eq!((0..40).filter(|n| master.post(ip(1), "/knock", &knock(*n)).0 == 200).count(), 16);
    assert_eq!(master.post(ip(2), "/knock", &knock(99)).0, 200);
}

#[test]
fn a_master_without_a_relay_ignores_its_fields() {
    let now = Instant::now();
    let mut local = Local::new(Limits::default(), None, None, [0; 32], now);
    for body in [
        knock(1),
        json!({"s": TAG, "blob": "QQ==", "relay": 1}),
        json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": "!"}),
    ] {
        let body = to_json(&body);
        let Step::Answer(answer) = local.handle(now, Duration::ZERO, ip(1), &call("POST", "/knock", "", Some(&body)))
        else {
            panic!("answers at once")
        };
        assert_eq!(read(&answer), (200, json!({"ok": true, "ttl": 60})));
    }
}

#[test]
fn a_peer_of_ours_gets_the_shared_port_and_does_without_a_scarce_one() {
    let mut master = Master::new(Limits { address_ports: 0, ..Limits::default() });
    let ask = json!({"s": TAG, "blob": "QQ==", "relay": 1, "j": "01234567", "aw": ["shared"]});
    let (status, answer) = master.post(ip(1), "/knock", &ask);
    assert_eq!((status, answer.get("relay")), (200, None));
    assert_eq!((&answer["shared"]["port"], &answer["shared"]["ip"]), (&json!(29599), &json!("198.51.100.9")));
    let (_, notes) = master.get("/knock", &format!("s={TAG}&since=0"));
    assert_eq!(notes["knocks"][0]["shared"], answer["shared"]);
}

#[test]
fn a_poll_is_held_until_there_is_a_note_or_its_time_is_up() {
    let mut master = Master::new(Limits::default());
    let query = format!("s={TAG}&since=0&wait=3600");
    let Step::Hold { until, op, then, tag } = master.step(ip(1), &call("GET", "/knock", &query, None)) else {
        panic!("nothing to tell yet")
    };
    assert_eq!((until - master.now, tag.as_str()), (Duration::from_secs(25), TAG));
    master.post(ip(2), "/knock", &json!({"s": TAG, "blob": "QQ=="}));
    let wall = Duration::from_secs(1_700_000_000);
    let Step::Answer(answer) = master.local.resume(master.now, wall, op.clone(), then.clone()) else { panic!("told") };
    assert_eq!(read(&answer).1["knocks"][0]["blob"], "QQ==");
    let mut empty = Master::new(Limits::default());
    assert!(matches!(empty.local.resume(until, wall, op.clone(), then.clone()), Step::Answer(_)));
    let mut then = then;
    then.give_up();
    assert!(matches!(empty.local.resume(empty.now, wall, op, then), Step::Answer(_)));
}

#[test]
fn a_probe_goes_to_the_callers_own_address_whatever_the_body_says() {
    let mut master = Master::new(Limits::default());
    let body =
        to_json(&json!({"proto": "udp", "port": 4000, "token": "0011223344556677", "ip": "203.0.113.1", "host": "x"}));
    let ask = call("POST", "/probe", "", Some(&body));
    let Step::Probe(Probe { to, datagram, .. }) = master.step(ip(7), &ask) else { panic!("a probe") };
    assert_eq!((to.to_string().as_str(), datagram.len()), ("198.51.100.7:4000", 12));
    assert_eq!((1..20).filter(|_| matches!(master.step(ip(7), &ask), Step::Probe(_))).count(), 9);
    assert_eq!(master.answer(ip(7), &ask).status, 429);
    // The probe is shorter than what was paid for it.
    assert!(datagram.len() < body.len());
}

#[test]
fn requests_of_any_kind_can_be_limited() {
    let mut master = Master::new(Limits { requests: 5, ..Limits::default() });
    assert_eq!((0..9).filter(|_| master.get("/list", "").0 == 200).count(), 5);
}

#[test]
fn what_was_answered_is_counted() {
    let mut master = Master::new(Limits::default());
    master.get("/list", "");
    master.get("/list", "");
    master.get("/x", "");
    master.post(ip(1), "/announce", &json!({}));
    let counts: Vec<_> = master.local.server.counts().iter().map(|((name, status), n)| (*name, *status, *n)).collect();
    assert_eq!(counts, [("announce", 400, 1), ("list", 200, 2), ("other", 404, 1)]);
}
