//! A host's row in the public list, seen from the driver.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::time::{Duration, Instant};

use anywire_session::{Command, Event, HostConfig, Local, Publish, RELEASE, Session};
use codec::Map;
use seam::{HttpMethod, Reply, Request, RequestId, Secret};

fn session(now: Instant) -> Session {
    let config = HostConfig {
        lobby_name: "Tuesday".to_owned(),
        local: Local { port: 29_471, ..Local::default() },
        ..HostConfig::new("ada", [9; 12])
    };
    Session::host(config, [1; 32], now, 1_790_000_000)
}

fn publish(url: &str) -> Command {
    Command::Publish(Some(Publish { url: url.to_owned(), id: "row".to_owned(), dedicated: true }))
}

type Asked = (RequestId, String, Map<String, codec::Value>);

/// The next request, which is a POST with an object.
fn asked(session: &mut Session) -> Option<Asked> {
    let (id, request) = session.poll_request()?;
    let Request::Http { method: HttpMethod::Post, url, body, .. } = request else { panic!("{request:?}") };
    Some((id, url, codec::object(&body).unwrap()))
}

fn answer(session: &mut Session, now: Instant, id: RequestId) {
    session.handle_reply(now, id, Reply::Http { status: 200, body: br#"{"ok": true, "ttl": 30}"#.to_vec() });
}

fn logs(session: &mut Session) -> Vec<String> {
    std::iter::from_fn(|| session.poll_event())
        .filter_map(|event| if let Event::Log(line) = event { Some(line) } else { None })
        .collect()
}

/// Runs to `until`; what was asked on the way, each answered at once.
fn run(session: &mut Session, mut now: Instant, until: Instant) -> Vec<Asked> {
    let mut all = Vec::new();
    loop {
        while let Some(asked) = asked(session) {
            answer(session, now, asked.0);
            all.push(asked);
        }
        while session.poll_event().is_some() {}
        let due = session.poll_timeout().map_or(until, |(due, _)| due);
        if due >= until {
            return all;
        }
        now = now.max(due);
        session.handle_timeout(now);
    }
}

#[test]
fn a_listed_lobby_is_announced_with_its_code_and_taken_out_when_it_closes() {
    let start = Instant::now();
    let mut host = session(start);
    host.command(start, publish("http://master.example/"));
    let (id, url, row) = asked(&mut host).unwrap();
    let code = std::iter::from_fn(|| host.poll_event())
        .find_map(|event| if let Event::Code(code) = event { Some(code) } else { None })
        .unwrap();
    assert_eq!(url, "http://master.example/announce");
    assert_eq!((row["id"].as_str(), row["name"].as_str()), (Some("row"), Some("Tuesday")));
    assert_eq!((row["code"].as_str(), row["version"].as_str()), (Some(&*code), Some(RELEASE)));
    assert_eq!(
        (row["players"].as_u64(), row["max"].as_u64(), row["locked"].as_bool()),
        (Some(1), Some(200), Some(false))
    );
    assert_eq!(row["type"].as_str(), Some("dedicated"));
    answer(&mut host, start, id);
    assert_eq!(logs(&mut host), ["[publish] the lobby is in the public list"]);
    let announced = run(&mut host, start, start + Duration::from_secs(35));
    assert_eq!(announced.len(), 3, "every ten seconds");

    let end = start + Duration::from_secs(35);
    host.command(end, Command::Quit);
    let after = run(&mut host, end, end + Duration::from_secs(5));
    let words: Vec<_> = after.iter().map(|(_, url, body)| (&**url, body["id"].as_str())).collect();
    assert_eq!(words, [("http://master.example/leave", Some("row"))]);
    assert!(host.is_over());
}

#[test]
fn an_announce_under_way_is_waited_for_so_that_the_row_does_not_come_back() {
    let start = Instant::now();
    let mut host = session(start);
    host.command(start, publish("http://master.example"));
    let (id, ..) = asked(&mut host).unwrap();
    host.command(start, Command::Quit);
    let end = start + Duration::from_secs(5);
    assert!(run(&mut host, start, end).is_empty());
    assert!(host.is_over());
    answer(&mut host, end, id);
    assert_eq!(asked(&mut host).unwrap().1, "http://master.example/leave");
}

#[test]
fn a_lobby_is_listed_and_unlisted_as_often_as_its_host_says() {
    let start = Instant::now();
    let mut host = session(start);
    for _ in 0..3 {
        for (command, word) in [(publish("http://m"), "http://m/announce"), (Command::Publish(None), "http://m/leave")]
        {
            host.command(start, command.clone());
            let (id, url, _) = asked(&mut host).unwrap();
            assert_eq!(url, word);
            answer(&mut host, start, id);
            host.command(start, command);
            assert!(asked(&mut host).is_none(), "said already");
        }
    }
}

#[test]
fn a_changed_name_of_the_list_moves_the_row() {
    let start = Instant::now();
    let mut host = session(start);
    host.command(start, publish("http://one"));
    let (id, ..) = asked(&mut host).unwrap();
    answer(&mut host, start, id);
    host.command(start, publish("http://two"));
    let urls: Vec<String> = std::iter::from_fn(|| asked(&mut host)).map(|(_, url, _)| url).collect();
    assert_eq!(urls, ["http://one/leave", "http://two/announce"]);
}

#[test]
fn a_master_that_refuses_is_told_of_once_and_asked_again() {
    let start = Instant::now();
    let mut host = session(start);
    while host.poll_event().is_some() {}
    host.command(start, publish("http://m"));
    let (id, ..) = asked(&mut host).unwrap();
    host.handle_reply(start, id, Reply::Unreachable("connection refused".to_owned()));
    assert_eq!(logs(&mut host), ["[publish] the lobby is not in the public list: connection refused"]);
    let again = run(&mut host, start, start + Duration::from_secs(3));
    assert_eq!(again.len(), 1);
}

#[test]
fn a_joiner_lists_nothing_and_the_rows_name_is_no_text_for_a_log() {
    let now = Instant::now();
    let config = anywire_session::JoinConfig {
        password: Some(Secret::new("")),
        timeout: Duration::from_secs(5),
        ..anywire_session::JoinConfig::new(
            "lin",
            joincode::Code::Plain(joincode::Profile { secret: Some([1; 12]), ..Default::default() }),
        )
    };
    let mut joiner = Session::join(config, [1; 32], now, 1_790_000_000);
    joiner.command(now, publish("http://m"));
    assert!(joiner.poll_request().is_none());
    assert!(!format!("{:?}", publish("http://m")).contains("row"));
}
