//! The tunnel against servers that behave as told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use net::Poller;

use super::*;

const SOCKET: SocketId = SocketId(9);
const LONG: Duration = Duration::from_secs(30);

/// A server for one connection, which has read the question's head when `serve` is called.
fn server(serve: impl FnOnce(TcpStream, String) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        serve(stream, String::from_utf8(head).unwrap());
    });
    at
}

fn tunnels(poller: &Poller, at: &str) -> Tunnels {
    let mut tunnels = Tunnels::new(poller.wake());
    let url = format!("http://{at}/deep/relay");
    let request = Request::OpenTunnel { socket: SOCKET, url, protocol: "anywire-relay/1", timeout: LONG };
    assert_eq!(tunnels.submit(RequestId(5), request), None);
    tunnels
}

fn came(tunnels: &mut Tunnels, poller: &mut Poller) -> Came {
    let until = Instant::now() + LONG;
    loop {
        if let Some(came) = tunnels.poll() {
            return came;
        }
        assert!(Instant::now() < until);
        poller.wait(Some(until)).unwrap();
    }
}

fn over(tunnels: &mut Tunnels, poller: &mut Poller) -> String {
    loop {
        if let Came::Reply(RequestId(5), Reply::Unreachable(why)) = came(tunnels, poller) {
            return why;
        }
    }
}

#[test]
fn datagrams_go_both_ways_however_the_bytes_are_cut_and_the_end_is_told() {
    let at = server(|mut stream, head| {
        assert!(head.starts_with("GET /deep/relay HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
        assert!(head.contains("\r\nConnection: Upgrade\r\nUpgrade: anywire-relay/1\r\n"), "{head}");
        // Bytes behind the head belong to the stream already.
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n\0\x05ear").unwrap();
        thread::sleep(Duration::from_millis(20));
        stream.write_all(b"ly").unwrap();
        let mut bytes = [0; 9];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\x03abc\0\x02de");
        stream.write_all(b"\0\x04done").unwrap();
    });
    let mut poller = Poller::new().unwrap();
    let mut tunnels = tunnels(&poller, &at.to_string());
    assert!(matches!(came(&mut tunnels, &mut poller), Came::Reply(RequestId(5), Reply::TunnelOpen)));
    let Came::Datagram(path, data) = came(&mut tunnels, &mut poller) else { panic!() };
    assert_eq!((path, &data[..]), (Path::new(SOCKET, at), &b"early"[..]));
    assert!(tunnels.is_at(SOCKET) && !tunnels.is_at(SocketId(1)));
    for text in [&b"abc"[..], b"", b"de"] {
        tunnels.send(text.len(), |buffer| {
            buffer.copy_from_slice(text);
            text.len()
        });
    }
    tunnels.flush();
    let Came::Datagram(_, data) = came(&mut tunnels, &mut poller) else { panic!() };
    assert_eq!(&data[..], b"done");
    assert!(tunnels.is_drained());
    assert!(over(&mut tunnels, &mut poller).contains("closed"));
    assert!(!tunnels.is_at(SOCKET));
}

#[test]
fn whoever_does_not_consent_is_told_of() {
    let mut poller = Poller::new().unwrap();
    for (answer, wanted) in [
        (&b"HTTP/1.1 404 Not Found\r\n\r\n"[..], "answered 404"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "answered 200"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 101", "closed before the answer"),
        (&[b'x'; 9000], "over 8192 bytes"),
        (b"HTTP/1.1 101 Yes\r\n\r\n\xff\xff", "over 9216"),
    ] {
        let at = server(move |mut stream, _| {
            let _gone = stream.write_all(answer);
            let _end = stream.shutdown(std::net::Shutdown::Write);
            let _rest = stream.read_to_end(&mut Vec::new());
        });
        let why = over(&mut tunnels(&poller, &at.to_string()), &mut poller);
        assert!(why.contains(wanted), "{why}");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let why = over(&mut tunnels(&poller, &free.to_string()), &mut poller);
    assert!(why.to_lowercase().contains("refused"), "{why}");
    let why = over(&mut tunnels(&poller, "127.0.0.1:99999"), &mut poller);
    assert!(why.contains("no address"), "{why}");
}

#[test]
fn a_tunnel_that_is_replaced_or_closed_ends_and_is_answered_no_more() {
    let (tell, told) = std::sync::mpsc::channel();
    let at = server(move |mut stream, _| {
        stream.write_all(b"HTTP/1.1 101 Yes\r\n\r\n").unwrap();
        let _gone = tell.send(stream.read(&mut [0; 1]).unwrap_or(0));
    });
    let mut poller = Poller::new().unwrap();
    let mut tunnels = tunnels(&poller, &at.to_string());
    assert!(matches!(came(&mut tunnels, &mut poller), Came::Reply(RequestId(5), Reply::TunnelOpen)));
    assert_eq!(tunnels.submit(RequestId(6), Request::CloseTunnel), None);
    assert_eq!(told.recv_timeout(LONG), Ok(0), "the connection is closed");
    assert!(tunnels.poll().is_none() && tunnels.is_drained());
    let other = Request::Resolve { host: String::new(), port: 1 };
    assert_eq!(tunnels.submit(RequestId(7), other.clone()), Some(other));
}

#[test]
fn a_proxy_is_asked_to_connect_onward_with_its_password() {
    let at = server(|mut stream, head| {
        assert!(head.starts_with("CONNECT master.example:443 HTTP/1.1\r\nHost: master.example:443\r\n"), "{head}");
        assert!(head.contains("\r\nProxy-Authorization: Basic YWRhOnNlY3JldA==\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\nbehind").unwrap();
    });
    let proxy = ureq::Proxy::new(&format!("http://ada:secret@{at}")).unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    line::through(&mut stream, &proxy, "master.example", 443, Instant::now() + LONG).unwrap();
    let mut rest = [0; 6];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"behind");
    let at = server(|mut stream, _| stream.write_all(b"HTTP/1.1 407 Who\r\n\r\n").unwrap());
    let proxy = ureq::Proxy::new(&format!("http://{at}")).unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    let why = line::through(&mut stream, &proxy, "master.example", 443, Instant::now() + LONG).unwrap_err();
    assert!(why.contains("answered 407"), "{why}");
}

#[test]
fn datagrams_are_cut_as_they_were_put_together_and_a_long_one_ends_the_stream() {
    let mut inward = BytesMut::new();
    inward.extend_from_slice(&[0, 3, b'a', b'b', b'c', 0, 0, 0, 1]);
    assert_eq!(next(&mut inward).unwrap().as_deref(), Some(&b"abc"[..]));
    assert_eq!(next(&mut inward).unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(next(&mut inward), Ok(None));
    inward.extend_from_slice(b"x");
    assert_eq!(next(&mut inward).unwrap().as_deref(), Some(&b"x"[..]));
    inward.extend_from_slice(&[0x24, 0x01]);
    assert!(next(&mut inward).unwrap_err().contains("9217"));
}

#[test]
fn what_waits_is_bounded_in_number_and_bytes_and_the_oldest_goes() {
    let poll = Poll::new().unwrap();
    let shared = Shared {
        out: Mutex::default(),
        unsent: AtomicUsize::new(0),
        ending: AtomicBool::new(false),
        over: AtomicBool::new(false),
        waker: Waker::new(poll.registry(), WAKE).unwrap(),
    };
    for number in 0..2 * QUEUE {
        shared.push(number.to_be_bytes().to_vec());
    }
    assert_eq!(shared.queue().len(), QUEUE);
    assert_eq!(shared.queue().front(), Some(&QUEUE.to_be_bytes().to_vec()));
    for _ in 0..QUEUE {
        shared.push(vec![0; DATAGRAM_MAX]);
    }
    assert!(shared.unsent.load(Ordering::Acquire) <= QUEUE_BYTES);
    assert_eq!(shared.queue().iter().map(Vec::len).sum::<usize>(), shared.unsent.load(Ordering::Acquire));
}
