//! The player's half against the master's half, in virtual time.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anywire_rendezvous as rendezvous;
use rendezvous::client::Event;
use rendezvous::relay::RelayAt;
use rendezvous::words::{Announce, Game, Tag};
use rendezvous::{Call, Client, Limits, Local, Step};
use seam::{HttpMethod, Reply, Request, RequestId};

const TAG: &str = "d02c31189fe2f64c0a20e521";

/// A client and the requests it made, answered by a master, or by a word of the test's.
struct Wire {
    client: Client,
    master: Local,
    start: Instant,
    now: Instant,
    asked: Vec<(Duration, String, String)>,
    held: Option<(RequestId, Instant)>,
    old: bool,
    down: Option<(u16, &'static str)>,
    events: Vec<Event>,
}

impl Wire {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let at = RelayAt { ip: "192.0.2.1".parse().unwrap(), ports: (29600..=29699).collect(), shared: Some(29599) };
        Self {
            client: Client::new("https://master.example/tpf2mp/", [1; 32], now),
            master: Local::new(limits, Some(at), None, [2; 32], now),
            start: now,
            now,
            asked: Vec::new(),
            held: None,
            old: false,
            down: None,
            events: Vec::new(),
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            while let Some((id, request)) = self.client.poll_request() {
                self.serve(id, request);
            }
            while let Some(event) = self.client.poll_event() {
                if event == Event::SealKnock {
                    self.client.sealed(self.now, format!("sealed at {:?}", self.now - self.start).as_bytes());
                }
                self.events.push(event);
            }
            let due = self.client.poll_timeout().map(|(at, _)| at).into_iter().chain(self.held.map(|(_, at)| at)).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            if let Some((id, _)) = self.held.take_if(|(_, at)| *at <= self.now) {
                self.client.handle_reply(self.now, id, ok(br#"{"knocks": [], "now": 1, "aw": ["wait"]}"#.to_vec()));
            }
            self.client.handle_timeout(self.now);
        }
        self.now = end;
    }

    fn serve(&mut self, id: RequestId, request: Request) {
        let Request::Http { method, url, body, .. } = request else { panic!("{request:?}") };
        let path = url.strip_prefix("https://master.example/tpf2mp").unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        self.asked.push((self.now - self.start, path.to_owned(), String::from_utf8(body.clone()).unwrap()));
        if let Some((status, error)) = self.down {
            let body = format!("{{\"ok\": false, \"error\": \"{error}\"}}").into_bytes();
            let reply = if status == 0 { Reply::Unreachable(error.to_owned()) } else { Reply::Http { status, body } };
            return self.client.handle_reply(self.now, id, reply);
        }
        let query = if self.old { query.split("&wait").next().unwrap() } else { query };
        let method = if method == HttpMethod::Get { "GET" } else { "POST" };
        let call = Call { method, path, query, body: Some(&body), html: false };
        let wall = Duration::from_secs(1_700_000_000) + (self.now - self.start);
        let from: IpAddr = "203.0.113.5".parse().unwrap();
        match self.master.handle(self.now, wall, from, &call) {
            Step::Answer(answer) => {
                let mut body = answer.json_body().to_vec();
                if self.old {
                    body = String::from_utf8(body).unwrap().replace(r#", "aw": ["wait"]"#, "").into_bytes();
                }
                self.client.handle_reply(self.now, id, Reply::Http { status: answer.status, body });
            }
            Step::Hold { until, .. } => self.held = Some((id, until)),
            step => panic!("{step:?}"),
        }
    }

    fn times(&self, path: &str) -> Vec<u64> {
        self.asked.iter().filter(|(_, asked, _)| asked == path).map(|(at, _, _)| at.as_secs()).collect()
    }
}

fn ok(body: Vec<u8>) -> Reply {
    Reply::Http { status: 200, body }
}

fn row(name: &str) -> Announce {
    let game = Game { name: name.to_owned(), code: "AAAA".to_owned(), max: 8, ..Game::default() };
    Announce { id: "secret".to_owned(), game }
}

fn tag() -> Tag {
    Tag::new(TAG).unwrap()
}

#[test]
fn a_game_is_announced_every_ten_seconds_and_leaves_when_told() {
    let mut wire = Wire::new(Limits::default());
    wire.client.publish(wire.now, Some(row("a")));
    wire.run(25);
    assert_eq!(wire.times("/announce"), [0, 10, 20]);
    assert_eq!(wire.events, [Event::Published]);
    assert_eq!(wire.master.memory.len(), (1, 0));
    wire.client.publish(wire.now, Some(row("b")));
    wire.run(1);
    assert_eq!(wire.times("/announce"), [0, 10, 20, 25]);
    wire.client.close(wire.now);
    wire.run(60);
    assert_eq!((wire.times("/leave"), wire.master.memory.len()), (vec![26], (0, 0)));
    assert_eq!(wire.times("/announce").len(), 4);
}

#[test]
fn a_row_that_changes_all_the_time_is_announced_once_a_second() {
    let mut wire = Wire::new(Limits::default());
    for n in 0..50 {
        wire.client.publish(wire.now, Some(row(&n.to_string())));
        wire.run(0);
        wire.now += Duration::from_millis(100);
        wire.client.handle_timeout(wire.now);
    }
    assert!((4..=6).contains(&wire.times("/announce").len()), "{:?}", wire.asked);
}

#[test]
fn a_master_that_comes_back_has_the_game_within_fifteen_seconds() {
    let mut wire = Wire::new(Limits::default());
    wire.client.publish(wire.now, Some(row("a")));
    wire.run(1);
    wire.down = Some((0, "connection refused"));
    wire.run(300);
    assert!(matches!(wire.events[..], [Event::Published, Event::NotPublished(_)]), "{:?}", wire.events);
    wire.down = None;
    wire.run(15);
    assert_eq!(wire.events.last(), Some(&Event::Published));
}

#[test]
fn a_knock_asks_for_the_shared_port_first_and_for_a_scarce_one_from_the_second_on() {
    let mut wire = Wire::new(Limits::default());
    wire.client.knock(wire.now, tag());
    wire.run(5);
    let bodies: Vec<_> = wire.asked.iter().map(|(at, _, body)| (at.as_secs(), body.contains("\"relay\": 1"))).collect();
    assert_eq!(bodies, [(0, false), (2, true), (4, true)]);
    assert!(wire.asked.iter().all(|(_, _, body)| body.contains(r#""aw": ["shared"]"#)));
    let granted = wire.events.iter().filter_map(|event| match event {
        Event::Knocked(grants) => Some((grants.relay.is_some(), grants.shared.is_some())),
        _ => None,
    });
    assert_eq!(granted.collect::<Vec<_>>(), [(false, true), (true, true), (true, true)]);
    assert_eq!(wire.master.relay.as_ref().unwrap().len(), (1, 1));
}

#[test]
fn no_scarce_port_is_asked_for_once_both_ends_met_on_the_shared_one() {
    let mut wire = Wire::new(Limits::default());
    wire.client.knock(wire.now, tag());
    wire.run(1);
    wire.client.both_bound();
    wire.run(5);
    assert!(wire.asked.len() >= 3 && wire.asked.iter().all(|(_, _, body)| !body.contains("\"relay\"")));
}

#[test]
fn pain_9_a_full_relay_does_not_cost_the_knock() {
    let mut wire = Wire::new(Limits::default());
    wire.client.knock(wire.now, tag());
    wire.run(1);
    wire.down = Some((503, "relay full"));
    // The test's master refuses everything, so only the first refusal and what follows at once are looked at.
    wire.run(1);
    let last: Vec<_> = wire.asked.iter().map(|(at, _, body)| (at.as_secs(), body.contains("\"relay\": 1"))).collect();
    assert_eq!(last, [(0, false), (2, true), (2, false)]);
}

#[test]
fn pain_11_those_behind_one_address_back_off_and_share() {
    let mut wire = Wire::new(Limits { knocks: 2, ..Limits::default() });
    wire.client.knock(wire.now, tag());
    wire.run(120);
    let times = wire.times("/knock");
    assert!((8..=25).contains(&times.len()), "{times:?}");
    assert!(wire.events.iter().any(|event| matches!(event, Event::NotKnocked(why) if why.contains("429 too many"))));
    assert!(wire.events.iter().filter(|event| matches!(event, Event::Knocked(_))).count() >= 3);
}

#[test]
fn a_held_poll_is_asked_again_when_it_ends_and_brings_each_note_once() {
    let mut host = Wire::new(Limits::default());
    host.client.listen(host.now, tag());
    host.run(60);
    assert_eq!(host.times("/knock"), [0, 25, 50]);
    let body = br#"{"knocks": [{"t": 5.5, "blob": "QQ=="}, {"t": 6, "blob": "QQ=="}, {"t": 7, "blob": "!"}], "now": 9, "aw": ["wait"]}"#;
    let (id, _) = host.held.take().unwrap();
    host.client.handle_reply(host.now, id, ok(body.to_vec()));
    host.run(0);
    assert!(matches!(&host.events[..], [Event::Note { blob, .. }] if blob == b"A"), "{:?}", host.events);
    assert_eq!(host.times("/knock"), [0, 25, 50, 60]);
}

#[test]
fn an_old_master_is_asked_once_a_second() {
    let mut host = Wire::new(Limits::default());
    host.old = true;
    host.client.listen(host.now, tag());
    host.run(10);
    assert_eq!(host.times("/knock"), (0..=10).collect::<Vec<_>>());
}

#[test]
fn a_master_that_claims_to_hold_polls_and_does_not_is_not_flooded() {
    let mut host = Wire::new(Limits::default());
    host.client.listen(host.now, tag());
    for _ in 0..20 {
        host.client.handle_timeout(host.now);
        while let Some((id, request)) = host.client.poll_request() {
            let Request::Http { url, .. } = request else { panic!() };
            host.asked.push((host.now - host.start, "/knock".to_owned(), url));
            host.client.handle_reply(host.now, id, ok(br#"{"knocks": [], "now": 1, "aw": ["wait"]}"#.to_vec()));
        }
        host.now += Duration::from_millis(100);
    }
    assert_eq!(host.asked.len(), 2);
}

#[test]
fn a_master_that_tells_the_same_note_again_and_again_is_not_flooded() {
    let mut host = Wire::new(Limits::default());
    host.client.listen(host.now, tag());
    let mut asked = 0;
    for _ in 0..50 {
        host.client.handle_timeout(host.now);
        while let Some((id, _)) = host.client.poll_request() {
            asked += 1;
            let body = br#"{"knocks": [{"t": 5.5, "blob": "QQ=="}], "now": 9, "aw": ["wait"]}"#;
            host.client.handle_reply(host.now, id, ok(body.to_vec()));
        }
        host.now += Duration::from_millis(100);
    }
    // The first brought something, so the second follows at once; then one a second.
    assert!((5..=7).contains(&asked), "{asked}");
}

#[test]
fn a_joiners_knock_reaches_the_host_with_its_relay() {
    let mut joiner = Wire::new(Limits::default());
    joiner.client.knock(joiner.now, tag());
    joiner.run(3);
    let mut host = Wire::new(Limits::default());
    std::mem::swap(&mut host.master, &mut joiner.master);
    host.client.listen(host.now, tag());
    host.run(1);
    let notes = host.events.iter().filter_map(|event| match event {
        Event::Note { blob, grants } => Some((String::from_utf8(blob.clone()).unwrap(), *grants)),
        _ => None,
    });
    let notes: Vec<_> = notes.collect();
    assert_eq!(notes.iter().map(|(blob, _)| blob.as_str()).collect::<Vec<_>>(), ["sealed at 0ns", "sealed at 2s"]);
    let granted = joiner.events.iter().rev().find_map(|event| match event {
        Event::Knocked(grants) => Some(*grants),
        _ => None,
    });
    assert_eq!(notes.last().map(|(_, grants)| *grants), granted);
}

#[test]
fn the_list_comes_back_as_rows_or_as_a_reason() {
    let mut wire = Wire::new(Limits::default());
    wire.client.publish(wire.now, Some(row("a")));
    wire.run(1);
    wire.client.list(wire.now);
    wire.run(0);
    wire.down = Some((502, ""));
    wire.client.list(wire.now);
    wire.run(0);
    let listed: Vec<_> = wire
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Listed(rows) => Some(rows.as_ref().map(|rows| rows[0].game.name.clone()).map_err(String::clone)),
            _ => None,
        })
        .collect();
    assert_eq!(listed, [Ok("a".to_owned()), Err("the master answered 502 ".to_owned())]);
}

#[test]
fn answers_of_any_kind_are_survived() {
    for body in
        ["", "{", "[]", "{\"knocks\": 1}", "{\"knocks\": [1, {\"t\": \"x\"}]}", "{\"relay\": {\"ip\": 7}}", "\u{fffd}"]
    {
        for status in [0u16, 200, 204, 301, 400, 429, 500, 503, 999] {
            let mut wire = Wire::new(Limits::default());
            wire.client.listen(wire.now, tag());
            wire.client.knock(wire.now, tag());
            wire.client.publish(wire.now, Some(row("a")));
            wire.client.list(wire.now);
            if let Some(Event::SealKnock) = wire.client.poll_event() {
                wire.client.sealed(wire.now, b"x");
            }
            let mut answered = 0;
            while let Some((id, _)) = wire.client.poll_request() {
                wire.client.handle_reply(wire.now, id, Reply::Http { status, body: body.as_bytes().to_vec() });
                answered += 1;
            }
            assert!(answered >= 4, "{answered}");
            assert!(wire.client.poll_timeout().is_some());
        }
    }
}
