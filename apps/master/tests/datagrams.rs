//! STUN, relay, probe and pipe on real sockets.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use codec::Value;
use common::{Master, TAG, connect, quiet, read, receive, settings, udp};
use rendezvous::shared::Word;
use rendezvous::words::{Grant, Grants};
use stun::{Answer, AnswerError, Change, Request, Rules};

#[test]
fn stun_is_answered_in_both_forms_and_to_nothing_else() {
    let master = Master::new(settings());
    let at = master.part().stun.unwrap();
    let socket = udp();
    for request in [Request::classic([9; 16]), Request::with_cookie([7; 12])] {
        socket.send_to(&request.encode(), at).unwrap();
        let seen = Answer::to_request(&receive(&socket), request.id, Rules::Classic);
        assert_eq!(seen, Ok(socket.local_addr().unwrap()));
    }
    socket.send_to(b"not a question", at).unwrap();
    assert!(quiet(&socket));
}

/// Asks, and says who answered what.
fn ask_stun(socket: &UdpSocket, at: SocketAddr, change: Change) -> (SocketAddr, Result<Answer, AnswerError>) {
    let request = Request::with_cookie([5; 12]).from_elsewhere(change);
    socket.send_to(&request.encode(), at).unwrap();
    let mut buffer = [0; 200];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    assert!(len <= 68, "{len} bytes");
    (from, Answer::parse(&buffer[..len]))
}

#[test]
fn stun_answers_from_its_other_port_and_refuses_what_it_does_not_have() {
    let master = Master::new(settings());
    let at = master.part().stun.unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], at.port()));
    let socket = udp();
    let (from, plain) = ask_stun(&socket, at, Change::NONE);
    let plain = plain.unwrap();
    let other = plain.other.unwrap();
    assert_eq!((from, plain.origin), (at, Some(at)));
    assert!(other.ip() == at.ip() && other.port() != at.port());
    let (from, changed) = ask_stun(&socket, at, Change::PORT);
    assert_eq!((from, changed.unwrap().origin), (other, Some(other)));
    let (from, back) = ask_stun(&socket, other, Change::PORT);
    assert_eq!((from, back.unwrap().other), (at, Some(at)));
    assert_eq!(ask_stun(&socket, at, Change::BOTH), (at, Err(AnswerError::Refused { code: 420 })));
}

#[test]
fn stun_with_a_second_address_answers_from_all_four_places() {
    let mut four = settings();
    four.stun_other_address = Some([127, 0, 0, 2].into());
    let master = Master::new(four);
    let at = master.part().stun.unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let other = ask_stun(&socket, at, Change::NONE).1.unwrap().other.unwrap();
    assert_eq!((at.ip().to_string(), other.ip().to_string()), ("127.0.0.1".into(), "127.0.0.2".into()));
    let cross = |ip: SocketAddr, port: SocketAddr| SocketAddr::new(ip.ip(), port.port());
    for (change, from) in
        [(Change::BOTH, other), (Change::PORT, cross(at, other)), (Change { ip: true, port: false }, cross(other, at))]
    {
        assert_eq!(ask_stun(&socket, at, change).0, from, "{change:?}");
        let (_, answer) = ask_stun(&socket, from, Change::NONE);
        assert!(answer.is_ok(), "it is asked there as well");
    }
}

#[test]
fn one_table_limits_all_places_of_stun() {
    let master = Master::new(settings());
    let at = SocketAddr::from(([127, 0, 0, 1], master.part().stun.unwrap().port()));
    let socket = udp();
    let other = ask_stun(&socket, at, Change::NONE).1.unwrap().other.unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for round in 0..100 {
        let to = if round % 2 == 0 { at } else { other };
        socket.send_to(&Request::with_cookie([round; 12]).encode(), to).unwrap();
    }
    let answers = std::iter::from_fn(|| socket.recv(&mut [0; 200]).ok()).count();
    assert!((10..60).contains(&answers), "{answers} of 100");
}

fn knock(master: &Master, nonce: &str, shared: bool) -> Grants {
    let words = if shared { r#", "aw": ["shared"]"# } else { "" };
    let body = format!(r#"{{"s": "{TAG}", "blob": "QQ==", "relay": 1, "j": "{nonce}"{words}}}"#);
    Grants::read(&master.post("/knock", &body).json())
}

/// Binds at the shared port and answers with the session's number.
fn bind(socket: &UdpSocket, grant: Grant, role: np1::Role) -> u32 {
    let mut cookie = [0; 8];
    for _ in 0..3 {
        socket.send_to(&Word::Ask { id: grant.id, role, cookie }.write(), grant.at).unwrap();
        match Word::parse(&receive(socket)).unwrap() {
            Word::Proof { cookie: fresh, .. } => cookie = fresh,
            Word::Bound { session, .. } => return session,
            word => panic!("{word:?}"),
        }
    }
    panic!("not bound")
}

#[test]
fn an_old_pair_swaps_datagrams_on_a_port_of_its_own() {
    let master = Master::new(settings());
    let grant = knock(&master, "01234567", false).relay.unwrap();
    let (joiner, host, stranger) = (udp(), udp(), udp());
    for (socket, role) in [(&joiner, np1::Role::Joiner), (&host, np1::Role::Host)] {
        socket.send_to(&np1::relay_bind(&grant.id, role), grant.at).unwrap();
        assert_eq!(receive(socket), np1::relay_bound(&grant.id));
    }
    joiner.send_to(b"NP1:H", grant.at).unwrap();
    assert_eq!(receive(&host), b"NP1:H");
    host.send_to(b"NP1:A", grant.at).unwrap();
    assert_eq!(receive(&joiner), b"NP1:A");
    stranger.send_to(b"NP1:H", grant.at).unwrap();
    assert!(quiet(&host) && quiet(&joiner) && quiet(&stranger));
}

#[test]
fn pairs_of_ours_share_one_port_without_hearing_each_other() {
    let master = Master::new(settings());
    let host = udp();
    let mut joiners = Vec::new();
    for nonce in ["00000001", "00000002"] {
        let grant = knock(&master, nonce, true).shared.unwrap();
        assert_eq!(grant.at.port(), master.part().shared.unwrap().port());
        let joiner = udp();
        let session = bind(&joiner, grant, np1::Role::Joiner);
        assert_eq!(bind(&host, grant, np1::Role::Host), session);
        joiners.push((joiner, session, grant.at));
    }
    for (joiner, session, at) in &joiners {
        let data = Word::Data { session: *session, datagram: &session.to_be_bytes() }.write();
        host.send_to(&data, at).unwrap();
        assert_eq!(receive(joiner), data);
        joiner.send_to(&data, at).unwrap();
        assert_eq!(receive(&host), data);
    }
    let (first, _, at) = &joiners[0];
    let foreign = Word::Data { session: joiners[1].1, datagram: b"x" }.write();
    first.send_to(&foreign, at).unwrap();
    assert!(quiet(&host) && quiet(&joiners[1].0));
}

#[test]
fn a_player_without_udp_relays_over_the_http_port() {
    let mut master = Master::new(settings());
    let grants = knock(&master, "01234567", true);
    let mut stream = master.connect();
    stream
        .write_all(b"GET /tpf2mp/relay HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: anywire-relay/1\r\n\r\n")
        .unwrap();
    assert_eq!(read(&mut stream).status, 101);
    let ask = |stream: &mut TcpStream, word: Word<'_>| {
        let bytes = word.write();
        stream.write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&bytes).unwrap();
    };
    let hear = |stream: &mut TcpStream| {
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    };
    let shared = grants.shared.unwrap();
    ask(&mut stream, Word::Ask { id: shared.id, role: np1::Role::Joiner, cookie: [0; 8] });
    let bound = hear(&mut stream);
    let Ok(Word::Bound { session, .. }) = Word::parse(&bound) else { panic!("{bound:?}") };
    // The host is an old peer on a port of its own.
    let (host, port) = (udp(), grants.relay.unwrap());
    host.send_to(&np1::relay_bind(&port.id, np1::Role::Host), port.at).unwrap();
    receive(&host);
    ask(&mut stream, Word::Data { session, datagram: b"NP1:H" });
    assert_eq!(receive(&host), b"NP1:H");
    host.send_to(b"NP1:A", port.at).unwrap();
    assert_eq!(hear(&mut stream), Word::Data { session, datagram: b"NP1:A" }.write());
    master.stop();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_master_without_a_relay_has_no_stream_and_no_pipe() {
    let mut bare = settings();
    bare.relay_ip = None;
    let master = Master::new(bare);
    assert_eq!([master.get("/relay").status, master.get("/pipe").status], [404, 404]);
    assert_eq!(knock(&master, "01234567", true), Grants::default());
}

#[test]
fn a_probe_reaches_the_callers_own_ports() {
    let master = Master::new(settings());
    let token = "00112233445566778899aabbccddeeff";
    let want = [b"AWPB", &codec::unhex(token).unwrap()[..]].concat();
    let ask = |proto: &str, at: SocketAddr| {
        master.post("/probe", &format!(r#"{{"proto": "{proto}", "port": {}, "token": "{token}"}}"#, at.port()))
    };
    let socket = udp();
    assert_eq!(ask("udp", socket.local_addr().unwrap()).status, 200);
    assert_eq!(receive(&socket), want);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    assert_eq!(ask("tcp", at).json()["reached"], Value::Bool(true));
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    assert_eq!(got, want);
    drop(listener);
    assert_eq!(ask("tcp", at).json()["reached"], Value::Bool(false));
}

fn pipe_end(master: &Master, letter: char) -> TcpStream {
    let answer = master.get("/pipe").json();
    let port = u16::try_from(answer["port"].as_u64().unwrap()).unwrap();
    let mut stream = connect(SocketAddr::from(([127, 0, 0, 1], port)));
    writeln!(stream, "TPF2PIPE1 0f1e2d3c4b5a69788796a5b4c3d2e1f0 {letter}").unwrap();
    stream
}

#[test]
fn two_ends_of_a_pipe_are_joined_and_carry_bytes_both_ways() {
    let master = Master::new(settings());
    let (mut host, mut joiner) = (pipe_end(&master, 'H'), pipe_end(&master, 'J'));
    for stream in [&mut host, &mut joiner] {
        let mut paired = [0; 7];
        stream.read_exact(&mut paired).unwrap();
        assert_eq!(&paired, b"PAIRED\n");
    }
    joiner.write_all(b"TPF2BULK1 recv\n").unwrap();
    let mut line = [0; 15];
    host.read_exact(&mut line).unwrap();
    let file: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_be_bytes).collect();
    let sent = file.clone();
    let writer = std::thread::spawn(move || {
        host.write_all(&sent).unwrap();
        host
    });
    let mut got = vec![0; file.len()];
    joiner.read_exact(&mut got).unwrap();
    assert!(got == file);
    // One direction may end before the other.
    let mut host = writer.join().unwrap();
    host.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(joiner.read(&mut [0]).unwrap(), 0);
    joiner.write_all(b"done").unwrap();
    drop(joiner);
    let mut last = Vec::new();
    host.read_to_end(&mut last).unwrap();
    assert_eq!(last, b"done");
}

#[test]
fn a_wrong_greeting_closes_the_pipe_without_a_word() {
    let master = Master::new(settings());
    let at = master.part().pipe.unwrap();
    for greeting in ["TPF2PIPE1 0F1E2D3C4B5A69788796A5B4C3D2E1F0 H\n", "TPF2PIPE1 x\n", &"y".repeat(100)] {
        let mut stream = connect(at);
        let _ = stream.write_all(greeting.as_bytes());
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "{greeting}");
    }
}

#[test]
fn an_end_that_hangs_up_while_it_waits_leaves_no_pair() {
    let master = Master::new(settings());
    drop(pipe_end(&master, 'H'));
    std::thread::sleep(Duration::from_millis(200));
    let mut joiner = pipe_end(&master, 'J');
    joiner.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(joiner.read(&mut [0]).is_err());
    let mut host = pipe_end(&master, 'H');
    let mut paired = [0; 7];
    host.read_exact(&mut paired).unwrap();
}
