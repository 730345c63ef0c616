//! Nodes on real sockets of this machine. All traffic stays on the loopback interface.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests stand outside of test functions")]

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use nethernet::SessionError;
use nethernet::frame::Channel;
use nethernet::signaling::identity::Policy;
use nethernet_io::{Advert, ConnectError, Http, Node, NodeEvent, Options, OwnKey, SendError};

/// Guards against hanging only.
const LONG: Duration = Duration::from_secs(20);

/// A port that is free just now: tests run beside each other, and each is a network of its own.
fn options() -> Options {
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut options = Options { only: vec![Ipv4Addr::LOCALHOST.into()], ..Options::default() };
    options.discovery.port = port;
    options.discovery.interval = Duration::from_millis(200);
    options
}

fn with_id(options: &Options, id: u64) -> Options {
    Options { id: Some(id), ..options.clone() }
}

#[test]
fn a_host_is_found_by_its_advertisement() {
    let options = options();
    let host = Node::open(with_id(&options, 7)).unwrap();
    let listener = host.listen(Advert::fixed(b"a world".to_vec()));
    assert_eq!(listener.unheard(), None);
    let seeker = Node::open(options).unwrap();
    seeker.discover(true);
    let found = seeker.next_host(LONG).unwrap();
    assert_eq!((found.id, &found.data()[..]), (7, &b"a world"[..]));
    assert!(found.address.ip().is_loopback());
    assert_eq!(seeker.hosts().len(), 1);
}

#[test]
fn two_hosts_of_one_machine_are_both_found() {
    let options = options();
    let hosts = [7, 8].map(|id| Node::open(with_id(&options, id)).unwrap());
    let _listeners = hosts.each_ref().map(|host| host.listen(Advert::fixed(host.id().to_string().into_bytes())));
    let seeker = Node::open(options).unwrap();
    seeker.discover(true);
    let mut found = [seeker.next_host(LONG).unwrap().id, seeker.next_host(LONG).unwrap().id];
    found.sort_unstable();
    assert_eq!(found, [7, 8]);
}

#[test]
fn packets_go_both_ways_and_the_end_is_told() {
    let options = options();
    let host = Node::open(with_id(&options, 7)).unwrap();
    let listener = host.listen(Advert::fixed(b"x".to_vec()));
    let dialer = Node::open(with_id(&options, 9)).unwrap();
    let session = dialer.connect(7).unwrap();
    let theirs = listener.accept(LONG).unwrap();
    assert_eq!((theirs.peer(), session.peer()), (&9.into(), &7.into()));
    let big: Vec<u8> = (0..=250).cycle().take(1_000_000).collect();
    session.send(Channel::Reliable, big.clone().into()).unwrap();
    session.send(Channel::Unreliable, "ping".into()).unwrap();
    let mut got = [theirs.recv_timeout(LONG).unwrap().unwrap(), theirs.recv_timeout(LONG).unwrap().unwrap()];
    got.sort();
    assert_eq!(got[0], (Channel::Reliable, big.into()));
    assert_eq!(got[1], (Channel::Unreliable, "ping".into()));
    theirs.send(Channel::Reliable, "pong".into()).unwrap();
    assert_eq!(session.recv().unwrap(), Some((Channel::Reliable, "pong".into())));
    assert!(matches!(session.try_send(Channel::Reliable, "".into()), Err(SendError::Frame(_))));
    theirs.send(Channel::Reliable, "last".into()).unwrap();
    drop(theirs);
    assert_eq!(session.recv().unwrap(), Some((Channel::Reliable, "last".into())));
    // However the other side ends, the session is over here.
    let end = session.recv_timeout(LONG).unwrap_err();
    assert!(matches!(session.send(Channel::Reliable, "late".into()), Err(SendError::Closed(_))), "{end}");
}

#[test]
fn the_end_is_told_as_soon_as_everything_is_read() {
    let options = options();
    let host = Node::open(with_id(&options, 7)).unwrap();
    let listener = host.listen(Advert::fixed(b"x".to_vec()));
    let dialer = Node::open(options).unwrap();
    let session = dialer.connect(7).unwrap();
    let theirs = listener.accept(LONG).unwrap();
    theirs.send(Channel::Reliable, "last".into()).unwrap();
    theirs.close();
    // Time for the farewell to arrive while the packet is unread: after it, no datagram wakes anybody.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(session.recv().unwrap(), Some((Channel::Reliable, "last".into())));
    // Less than the node's own rounds.
    let end = session.recv_timeout(Duration::from_secs(2)).unwrap_err();
    assert_eq!(end.error, SessionError::None);
}

#[test]
fn who_does_not_listen_refuses_by_name() {
    let options = options();
    let _quiet = Node::open(with_id(&options, 7)).unwrap();
    let dialer = Node::open(options).unwrap();
    let Err(ConnectError::Failed(_, info)) = dialer.connect(7) else { panic!("connected to who does not listen") };
    assert_eq!(info.error, SessionError::IncomingConnectionIgnored);
}

#[test]
fn pain_30_a_question_that_cannot_be_answered_is_told_to_the_host() {
    let options = options();
    let host = Node::open(with_id(&options, 7)).unwrap();
    let _listener = host.listen(Advert::fixed(vec![0; 600]));
    let seeker = Node::open(options).unwrap();
    seeker.discover(true);
    let line = loop {
        if let NodeEvent::Log(line) = host.event(LONG).unwrap() {
            break line;
        }
    };
    assert_eq!(line, "a question was heard and not answered: an advertisement of 600 bytes; at most 574");
}

#[test]
fn a_program_that_keeps_the_port_for_itself_does_not_stop_a_seeker() {
    let options = options();
    let _selfish = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, options.discovery.port)).unwrap();
    let node = Node::open(options).unwrap();
    node.discover(true);
    let listener = node.listen(Advert::fixed(b"x".to_vec()));
    let why = listener.unheard().unwrap();
    assert!(why.contains("nobody finds this host"), "{why}");
}

#[test]
fn a_trace_names_the_interface() {
    let mut options = options();
    options.discovery.trace = true;
    let node = Node::open(options.clone()).unwrap();
    let other = Node::open(options).unwrap();
    other.discover(true);
    let heard = loop {
        if let NodeEvent::Heard(heard) = node.event(LONG).unwrap() {
            break heard;
        }
    };
    assert_eq!(heard.sender, Some(other.id()));
    assert!(heard.interface.is_some_and(|name| name.starts_with("lo")));
}

/// A host that answers HTTP, and how a dialer is opened.
fn http(policy: Policy) -> (Node, Options) {
    let key = || Some(OwnKey::generate().unwrap().into());
    let mut host = options();
    let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    host.http = Some(Http { listen, policy, key: key(), ..Http::default() });
    let mut dialer = options();
    dialer.http = Some(Http { policy: Policy::Require, key: key(), ..Http::default() });
    (Node::open(host).unwrap(), dialer)
}

#[test]
fn pain_19_a_host_is_reached_by_http_alone_with_identities_on_both_sides() {
    let (host, dialer) = http(Policy::Require);
    let listener = host.listen(Advert::fixed(Vec::new()));
    let dialer = Node::open(dialer).unwrap();
    let address = format!("http://{}", host.http_address().unwrap());
    let session = dialer.connect_http(&address).unwrap();
    let theirs = listener.accept(LONG).unwrap();
    assert_eq!(theirs.peer(), &dialer.id().into());
    assert!(session.identity().is_some() && theirs.identity().is_some());
    session.send(Channel::Reliable, "over".into()).unwrap();
    assert_eq!(theirs.recv_timeout(LONG).unwrap(), Some((Channel::Reliable, "over".into())));
    assert_eq!(dialer.pins().iter().count(), 1, "its key is known from now on");
}

#[test]
fn a_host_that_answers_with_another_key_than_before_is_refused() {
    let (host, mut options) = http(Policy::Accept);
    let _listener = host.listen(Advert::fixed(Vec::new()));
    let at = host.http_address().unwrap().to_string();
    assert!(options.http.as_mut().unwrap().pins.keep(&at, [7; 32]));
    let dialer = Node::open(options).unwrap();
    let Err(ConnectError::Failed(_, info)) = dialer.connect_http(&format!("http://{at}")) else { panic!("connected") };
    assert_eq!(info.error, SessionError::IdentityVerificationFailed);
}

#[test]
fn pain_12_a_dialer_without_an_identity_is_told_so_by_a_host_that_wants_one() {
    let (host, mut options) = http(Policy::Require);
    let _listener = host.listen(Advert::fixed(Vec::new()));
    options.http.as_mut().unwrap().key = None;
    let dialer = Node::open(options).unwrap();
    let address = format!("http://{}", host.http_address().unwrap());
    let Err(ConnectError::Failed(_, info)) = dialer.connect_http(&address) else { panic!("connected") };
    assert_eq!(info.error, SessionError::IdentityVerificationFailed);
}

#[test]
fn strange_http_clients_are_answered_and_hold_up_nobody() {
    use std::io::{Read, Write};
    let (host, options) = http(Policy::Accept);
    let _listener = host.listen(Advert::fixed(Vec::new()));
    let at = host.http_address().unwrap();
    // Connected and silent: it keeps its own thread waiting, nobody else's.
    let _silent = std::net::TcpStream::connect(at).unwrap();
    let said = |text: &str| {
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(said("GET /v1/join HTTP/1.1\r\n\r\n"), "200");
    assert_eq!(said("GET / HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(said("nonsense\r\n\r\n"), "400");
    assert_eq!(said("POST /v1/join/7 HTTP/1.1\r\nContent-Length: 3\r\n\r\nv=0"), "400");
    let dialer = Node::open(options).unwrap();
    assert!(dialer.connect_http(&format!("http://{at}")).is_ok());
}
