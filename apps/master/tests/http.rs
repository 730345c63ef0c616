//! The HTTP service on real sockets: statuses, headers, bounds, the page, draining.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anywire_master::Range;
use common::{Master, TAG, connect, post, read, row, settings};

#[test]
fn a_row_is_announced_listed_and_left_over_one_connection() {
    let master = Master::new(settings());
    let mut stream = master.connect();
    let mut ask = |method: &str, path: &str, body: &str| {
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        read(&mut stream)
    };
    assert_eq!(ask("POST", "/tpf2mp/announce", &row("a", "one")).text(), r#"{"ok": true, "ttl": 30}"#);
    let list = ask("GET", "/tpf2mp/list", "");
    assert_eq!(list.json()["servers"][0]["name"], "one");
    for header in ["cache-control: no-store", "access-control-allow-origin: *", "content-type: application/json"] {
        assert!(list.head.contains(header), "{}", list.head);
    }
    assert_eq!(ask("POST", "/leave", r#"{"id": "a"}"#).status, 200);
    assert_eq!(ask("GET", "/", "").json()["servers"].as_array().unwrap().len(), 0);
    assert_eq!(ask("GET", "/health", "").text(), "ok");
    assert_eq!(ask("OPTIONS", "/list", "").status, 204);
}

#[test]
fn bodies_that_are_missing_too_long_or_broken_are_400() {
    let master = Master::new(settings());
    let pad = |n: usize| format!(r#"{{"id": "a", "code": "b", "name": "{}"}}"#, "x".repeat(n - 36));
    let fits = pad(4096);
    assert_eq!((fits.len(), master.post("/announce", &fits).status), (4096, 200));
    assert_eq!(master.post("/announce", &pad(4097)).status, 400);
    assert_eq!(master.post("/announce", "").status, 400);
    assert_eq!(master.post("/announce", "{").status, 400);
    assert_eq!(master.send("POST /announce HTTP/1.1\r\nhost: x\r\n\r\n").status, 400);
    let chunk = "x".repeat(3000);
    let chunked = format!(
        "POST /announce HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nbb8\r\n{chunk}\r\nbb8\r\n{chunk}\r\n0\r\n\r\n"
    );
    assert_eq!(master.send(&chunked).status, 400);
    let claimed = "POST /announce HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n{}";
    assert_eq!(master.send(claimed).status, 400);
}

#[test]
fn other_paths_methods_and_garbage_get_their_status() {
    let master = Master::new(settings());
    assert_eq!([master.get("/nothing").status, master.get("/announce").status], [404, 405]);
    assert_eq!(master.get("/knock?s=abc").status, 400);
    assert_eq!(master.send("GARBAGE\r\n\r\n").status, 400);
    assert_eq!(master.send(&format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(40_000))).status, 431);
    assert_eq!(master.get("/relay").status, 426);
}

#[test]
fn the_forty_first_knock_is_429_and_a_proxy_is_believed_only_when_it_is_trusted() {
    let knock = format!(r#"{{"s": "{TAG}", "blob": "QQ=="}}"#);
    let from = |n: u8| post("/knock", &knock, &format!("x-real-ip: 203.0.113.{n}\r\n"));
    let master = Master::new(settings());
    let statuses: Vec<u16> = (0..41).map(|n| master.send(&from(n)).status).collect();
    assert_eq!((statuses[39], statuses[40]), (200, 429));
    let mut trusting = settings();
    trusting.trusted_proxy = vec!["127.0.0.0/8".parse::<Range>().unwrap()];
    let master = Master::new(trusting);
    assert!((0..41).all(|n| master.send(&from(n)).status == 200));
    assert!((0..39).all(|_| master.send(&from(1)).status == 200));
    assert_eq!(master.send(&from(1)).status, 429);
}

#[test]
fn a_held_poll_is_answered_the_moment_a_knock_comes() {
    let master = Master::new(settings());
    let mut poll = master.connect();
    write!(poll, "GET /knock?s={TAG}&since=0&wait=20 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    poll.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(poll.read(&mut [0]).is_err());
    poll.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let knocked = Instant::now();
    let knock = format!(r#"{{"s": "{TAG}", "blob": "QQ==", "relay": 1, "j": "01234567", "aw": ["shared"]}}"#);
    let answer = master.post("/knock", &knock).json();
    let notes = read(&mut poll).json();
    assert!(knocked.elapsed() < Duration::from_secs(2));
    assert_eq!(notes["knocks"][0]["blob"], "QQ==");
    assert_eq!((&notes["knocks"][0]["relay"], &notes["knocks"][0]["shared"]), (&answer["relay"], &answer["shared"]));
}

#[test]
fn polls_over_the_bound_are_answered_at_once() {
    let mut few = settings();
    few.held_polls = 1;
    let master = Master::new(few);
    let path = format!("/knock?s={TAG}&since=0&wait=20");
    let mut held = master.connect();
    write!(held, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    assert_eq!(master.get(&path).json()["knocks"].as_array().unwrap().len(), 0);
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(held);
}

#[test]
fn a_browser_gets_a_page_that_escapes_what_players_write() {
    let master = Master::new(settings());
    master.post("/announce", &row("a", "<img src=x onerror=alert(1)>"));
    let browse = |path: &str| {
        let accept = "accept: text/html,application/xhtml+xml;q=0.9\r\n";
        master.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n{accept}connection: close\r\n\r\n"))
    };
    let page = browse("/");
    assert!(page.head.contains("content-type: text/html") && page.head.contains("default-src 'none'"));
    let text = page.text();
    assert!(text.contains("&lt;img src=x onerror=alert(1)&gt;") && !text.contains("<img"));
    assert!(browse("/?q=nobody").text().contains("No game matches."));
    assert_eq!(browse("/list").json()["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn slow_and_silent_connections_are_closed_and_counted_against_a_bound() {
    let mut strict = settings();
    strict.request_seconds = 1;
    strict.address_connections = 4;
    let master = Master::new(strict);
    let start = Instant::now();
    let mut slow: Vec<_> = (0..4).map(|_| master.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET / HT").unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    // The fifth of one address is closed without a word.
    assert!(matches!(connect(master.at).read(&mut [0]), Ok(0) | Err(_)));
    for stream in &mut slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let mut body = master.connect();
    body.write_all(b"POST /announce HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{").unwrap();
    assert_eq!(read(&mut body).status, 400);
}

#[test]
fn more_connections_than_the_bound_wait_their_turn() {
    let mut few = settings();
    few.connections = 2;
    let master = Master::new(few);
    let held: Vec<_> = (0..2).map(|_| master.connect()).collect();
    let mut third = master.connect();
    third.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(third.read(&mut [0]).is_err());
    drop(held);
    third.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(read(&mut third).status, 200);
}

#[test]
fn health_readiness_and_metrics_are_told_to_those_who_may_know() {
    let master = Master::new(settings());
    master.get("/list");
    assert_eq!([master.get("/healthz").text(), master.get("/readyz").text()], ["ok\n", "ok\n"]);
    let metrics = master.get("/metrics").text();
    for line in [
        "anywire_master_requests_total{endpoint=\"list\",status=\"200\"} 1",
        "anywire_master_rows 0",
        "anywire_master_relay_sessions 0",
        "anywire_master_request_seconds_count",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let mut closed = settings();
    closed.metrics_from = vec!["192.0.2.1".parse::<Range>().unwrap()];
    assert_eq!(Master::new(closed).get("/metrics").status, 403);
}

#[test]
fn stopping_answers_what_is_under_way_and_takes_nothing_new() {
    let mut master = Master::new(settings());
    let mut poll = master.connect();
    write!(poll, "GET /knock?s={TAG}&since=0&wait=20 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let idle = master.connect();
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    master.stop();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(read(&mut poll).json()["knocks"].as_array().unwrap().len(), 0);
    assert!(std::net::TcpStream::connect(master.at).is_err());
    drop(idle);
}

#[test]
fn a_restarted_master_lists_who_announces_again() {
    let mut master = Master::new(settings());
    master.post("/announce", &row("a", "one"));
    master.stop();
    let mut again = settings();
    again.port = master.at.port();
    let master = Master::new(again);
    assert_eq!(master.get("/list").json()["servers"].as_array().unwrap().len(), 0);
    master.post("/announce", &row("a", "one"));
    assert_eq!(master.get("/list").json()["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn tls_is_served_with_the_given_certificate() {
    let dir = std::env::temp_dir().join(format!("anywire-master-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: openssl is not installed, so there is no certificate to serve");
        return;
    }
    let mut secure = settings();
    secure.tls_cert = Some(cert.clone());
    secure.tls_key = Some(key.clone());
    let master = Master::new(secure);
    // A file that is broken later does not take the good certificate away.
    let trusted = dir.join("trusted.pem");
    std::fs::copy(&cert, &trusted).unwrap();
    std::fs::write(&cert, "nothing").unwrap();
    master.part().reload();
    let client = std::process::Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost", "-CAfile"])
        .arg(&trusted)
        .args(["-connect", &master.at.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut client = client.unwrap();
    client.stdin.as_mut().unwrap().write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answer = read(client.stdout.as_mut().unwrap());
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    client.wait().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
