//! HTTP for machines: against a server that behaves as told, and against a real master.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anywire_driver::{self as driver, Handle, Setup, fetch};
use master::{Background, Port, PortRange, Settings};
use seam::{HttpMethod, Reply, Request};
use session::{Command, Event, HostConfig, Publish};

/// A server that answers each connection with these bytes, and hands out what it was asked.
fn server(answers: Vec<Vec<u8>>) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (tell, told) = channel();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let _gone = tell.send(asked(&mut stream));
            stream.write_all(&answer).unwrap();
        }
    });
    (at, told)
}

/// Head and body of one request.
fn asked(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1);
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn request(method: HttpMethod, url: String, body: &[u8]) -> Request {
    Request::Http { method, url, body: body.to_vec(), timeout: Duration::from_secs(5), answer_max: 100 }
}

fn get(at: SocketAddr) -> Reply {
    fetch(&request(HttpMethod::Get, format!("http://{at}/list?a=1"), b"")).unwrap()
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into()
}

#[test]
fn a_question_and_a_word_arrive_as_they_are() {
    let (at, told) = server(vec![answer("200 OK", "", "{}"), answer("503 Service Unavailable", "", "full")]);
    assert_eq!(get(at), Reply::Http { status: 200, body: b"{}".to_vec() });
    let head = told.recv().unwrap();
    assert!(head.starts_with("get /list?a=1 http/1.1\r\n") && head.contains("\r\nuser-agent: anywire/"), "{head}");
    let word = fetch(&request(HttpMethod::Post, format!("http://{at}/announce"), br#"{"id": "x"}"#)).unwrap();
    assert_eq!(word, Reply::Http { status: 503, body: b"full".to_vec() }, "a refusal is an answer");
    let head = told.recv().unwrap();
    assert!(head.contains("content-type: application/json") && head.ends_with(r#"{"id": "x"}"#), "{head}");
}

#[test]
fn a_redirect_is_handed_over_and_not_followed() {
    let (at, told) = server(vec![answer("302 Found", "location: http://127.0.0.1:1/\r\n", "")]);
    assert_eq!(get(at), Reply::Http { status: 302, body: Vec::new() });
    assert_eq!(told.iter().count(), 1);
}

#[test]
fn an_answer_of_exactly_the_allowed_length_is_taken_and_a_longer_one_is_not() {
    let endless = [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec(), vec![b'x'; 100_000]].concat();
    let (at, _told) =
        server(vec![answer("200 OK", "", &"x".repeat(100)), answer("200 OK", "", &"x".repeat(101)), endless]);
    assert_eq!(get(at), Reply::Http { status: 200, body: vec![b'x'; 100] });
    let over = Reply::Unreachable("the answer is over 100 bytes".to_owned());
    assert_eq!((get(at), get(at)), (over.clone(), over));
}

#[test]
fn silence_and_dribble_end_at_the_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (silent, _) = listener.accept().unwrap();
        let (mut slow, _) = listener.accept().unwrap();
        slow.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n").unwrap();
        while slow.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
        drop(silent);
    });
    for _ in 0..2 {
        let begun = Instant::now();
        let mut request = request(HttpMethod::Get, format!("http://{at}/"), b"");
        let Request::Http { timeout, .. } = &mut request else { panic!() };
        *timeout = Duration::from_millis(300);
        assert_eq!(fetch(&request), Some(Reply::Unreachable("no answer within 0.3 s".to_owned())));
        assert!(begun.elapsed() >= Duration::from_millis(300) && begun.elapsed() < Duration::from_secs(4));
    }
}

#[test]
fn what_cannot_be_reached_says_why() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Reply::Unreachable(why) = get(free) else { panic!() };
    assert!(why.to_lowercase().contains("refused"), "{why}");
    let (at, _told) = server(vec![b"SSH-2.0-x\r\n\r\n".to_vec()]);
    assert!(matches!(get(at), Reply::Unreachable(_)));
    for url in ["nonsense", "http://", "ftp://127.0.0.1/", "http://127.0.0.1:99999/"] {
        let answer = fetch(&request(HttpMethod::Get, url.to_owned(), b"")).unwrap();
        assert!(matches!(answer, Reply::Unreachable(_)), "{url}: {answer:?}");
    }
    // A certificate that nobody vouches for, or none at all, is no master.
    let (at, _told) = server(vec![answer("200 OK", "", "{}")]);
    let secure = fetch(&request(HttpMethod::Get, format!("https://{at}/"), b"")).unwrap();
    assert!(matches!(secure, Reply::Unreachable(_)));
    assert_eq!(fetch(&Request::Resolve { host: String::new(), port: 1 }), None);
}

fn master() -> Background {
    let mut settings = Settings::quiet();
    settings.port = 0;
    settings.relay_bind = [127, 0, 0, 1].into();
    settings.relay_ip = Some([127, 0, 0, 1].into());
    settings.relay_ports = PortRange { first: 0, last: 0 };
    (settings.shared_port, settings.stun_port, settings.stun_other_port) = (Port::At(0), Port::At(0), Port::Off);
    Background::start(settings).unwrap()
}

fn host(rendezvous: Option<String>) -> Handle {
    let mut setup =
        Setup::host(HostConfig { lobby_name: "Tuesday".to_owned(), rendezvous, ..HostConfig::new("ada", [9; 12]) });
    setup.bind = "127.0.0.1:0".parse().unwrap();
    driver::spawn(setup).unwrap()
}

/// The first log line with this in it.
fn line(handle: &Handle, wanted: &str) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    let mut seen = Vec::new();
    while let Some(event) = handle.event_timeout(until.saturating_duration_since(Instant::now())) {
        match event {
            Event::Log(line) if line.contains(wanted) => return line,
            other => seen.push(other),
        }
    }
    panic!("nobody said '{wanted}': {seen:#?}");
}

#[test]
fn a_lobby_is_in_a_real_masters_list_until_it_ends() {
    let master = master();
    let url = format!("http://{}", master.running().http);
    let list = || match fetch(&Request::Http {
        method: HttpMethod::Get,
        url: format!("{url}/list"),
        body: Vec::new(),
        timeout: Duration::from_secs(5),
        answer_max: 10_000,
    }) {
        Some(Reply::Http { status: 200, body }) => String::from_utf8(body).unwrap(),
        other => panic!("{other:?}"),
    };
    // It holds a poll at the same master all the while, and neither waits for the other.
    let host = host(Some(url.clone()));
    let publish = Publish { url: url.clone(), id: "secret row".to_owned(), dedicated: false };
    host.command(Command::Publish(Some(publish))).unwrap();
    line(&host, "is in the public list");
    let listed = list();
    assert!(listed.contains(r#""name": "Tuesday""#) && !listed.contains("secret row"), "{listed}");
    host.command(Command::Quit).unwrap();
    assert_eq!(host.join(), lobby::End::Quit);
    assert!(list().contains(r#""servers": []"#), "the row is gone when the session is");
    master.stop();
}

#[test]
fn a_master_that_is_not_there_is_told_of_and_ends_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let host = host(Some(format!("http://{free}")));
    let said = line(&host, "[rendezvous]");
    assert!(said.contains("no knocks can be heard") && said.to_lowercase().contains("refused"), "{said}");
    let begun = Instant::now();
    host.command(Command::Quit).unwrap();
    assert_eq!(host.join(), lobby::End::Quit);
    assert!(begun.elapsed() < Duration::from_secs(3));
}
