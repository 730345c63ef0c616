//! ENet against a C program linked to the system's libenet, which knows nothing of us. Without `gcc` and libenet's headers the tests say
//! so and pass.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "test helpers")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anywire::{
    Channel, CloseReason, Delivery, EnetTransport, Event, HostOptions, JoinOptions, Peer, PeerId, SendError, Target,
    Transport,
};

/// The built program; `None` where it cannot be built.
fn program() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let out = std::env::temp_dir().join(format!("anywire-stock-{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stock.c");
        let gcc = Command::new("gcc").args(["-O1", "-o"]).arg(&out).args([source, "-lenet"]).output();
        gcc.is_ok_and(|gcc| gcc.status.success()).then_some(out)
    });
    if built.is_none() {
        eprintln!("skipped: no gcc with libenet (Debian: apt install gcc libenet-dev)");
    }
    built.as_ref()
}

struct Stock {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Stock {
    fn start(args: &[&str]) -> Option<Self> {
        let mut child = Command::new(program()?).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let (tx, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _gone = tx.send(line);
            }
        });
        Some(Self { child, lines, heard: Vec::new() })
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _over_already = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls both until `done`.
fn until(peer: &mut dyn Peer, stock: &mut Stock, seen: &mut Vec<Event>, done: impl Fn(&[Event], &[String]) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done(seen, &stock.heard) {
        seen.extend(std::iter::from_fn(|| peer.poll()));
        stock.heard.extend(stock.lines.try_iter());
        assert!(Instant::now() < end, "{seen:?}\n{:?}", stock.heard);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wire() -> EnetTransport {
    EnetTransport { bind: SocketAddr::from(([127, 0, 0, 1], 0)), ..EnetTransport::default() }
}

fn host() -> (Box<dyn Peer>, String) {
    let host = wire().host(&HostOptions::default()).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(invite) = host.invite() {
            return (host, invite.rsplit(':').next().unwrap().to_owned());
        }
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn heard(lines: &[String], line: &str) -> bool {
    lines.iter().any(|heard| heard == line)
}

fn packets(seen: &[Event]) -> Vec<(u32, u8, String)> {
    let packets = seen.iter().filter_map(|event| match event {
        Event::Packet { from, channel, data, .. } => {
            Some((from.get(), channel.0, String::from_utf8_lossy(data).into_owned()))
        }
        _ => None,
    });
    packets.collect()
}

#[test]
fn a_stock_program_joins_a_host_of_ours() {
    let (mut host, port) = host();
    let Some(mut stock) = Stock::start(&["join", &port, "1234567"]) else { return };
    let id = PeerId::new(1_234_567).unwrap();
    let mut seen = Vec::new();
    until(&mut *host, &mut stock, &mut seen, |seen, _| packets(seen).len() == 3);
    assert!(seen.contains(&Event::Joined(id)), "{seen:?}");
    let mut got = packets(&seen);
    got.sort();
    let from = id.get();
    assert_eq!(got, [(from, 0, "loose".to_owned()), (from, 0, "ping".to_owned()), (from, 5, "far".to_owned())]);
    for (channel, delivery, text) in [
        (0, Delivery::Reliable, "zero"),
        (0, Delivery::Unreliable, "loose"),
        (7, Delivery::Reliable, "seven"),
        (7, Delivery::UnreliableOrdered, "ordered"),
    ] {
        host.send(Target::One(id), Channel(channel), delivery, text.as_bytes()).unwrap();
    }
    let lines = ["heard 0 zero", "heard 1 loose", "heard 8 seven", "heard 8 ordered"];
    until(&mut *host, &mut stock, &mut seen, |_, lines_heard| lines.iter().all(|line| heard(lines_heard, line)));
    assert!(heard(&stock.heard, "connected 0 channels 255 mtu 1388"), "{:?}", stock.heard);
    host.kick(id, 42, "stock programs read numbers").unwrap();
    until(&mut *host, &mut stock, &mut seen, |_, lines| heard(lines, "disconnected 42"));
}

#[test]
fn a_stock_program_that_leaves_is_told_of_and_an_id_of_1_is_not_taken() {
    let (mut host, port) = host();
    let Some(mut stock) = Stock::start(&["join", &port, "77"]) else { return };
    let id = PeerId::new(77).unwrap();
    let mut seen = Vec::new();
    until(&mut *host, &mut stock, &mut seen, |seen, _| seen.contains(&Event::Joined(id)));
    host.send(Target::All, Channel(0), Delivery::Reliable, b"bye").unwrap();
    until(&mut *host, &mut stock, &mut seen, |seen, _| seen.contains(&Event::Left(id, CloseReason::ByPeer)));
    let mut impostor = Stock::start(&["join", &port, "1"]).unwrap();
    until(&mut *host, &mut impostor, &mut seen, |_, lines| heard(lines, "disconnected 0"));
    assert!(host.peers().is_empty());
}

#[test]
fn one_of_ours_joins_a_stock_host() {
    let Some(mut stock) = Stock::start(&["host"]) else { return };
    let mut seen = Vec::new();
    let line = stock.lines.recv_timeout(Duration::from_secs(10)).unwrap();
    let port = line.strip_prefix("port ").unwrap();
    let options = JoinOptions { address: format!("127.0.0.1:{port}"), ..JoinOptions::default() };
    let wire = EnetTransport { id: PeerId::new(4_711), ..wire() };
    let mut peer = wire.join(&options).unwrap();
    until(&mut *peer, &mut stock, &mut seen, |seen, _| seen.contains(&Event::Joined(PeerId::HOST)));
    assert_eq!(seen.first(), Some(&Event::Connected(PeerId::new(4_711).unwrap())));
    assert!(peer.peers() == [PeerId::HOST] && peer.id().get() == 4_711);
    peer.send(Target::All, Channel(0), Delivery::Reliable, b"hello").unwrap();
    peer.send(Target::One(PeerId::HOST), Channel(9), Delivery::Reliable, b"nine").unwrap();
    until(&mut *peer, &mut stock, &mut seen, |seen, _| packets(seen).len() == 2);
    let mut got = packets(&seen);
    got.sort();
    assert_eq!(got, [(1, 0, "echo:hello".to_owned()), (1, 9, "echo:nine".to_owned())]);
    assert!(heard(&stock.heard, "connected 4711 channels 254 mtu 1392"), "{:?}", stock.heard);
    assert!(heard(&stock.heard, "heard 0 hello") && heard(&stock.heard, "heard 10 nine"), "{:?}", stock.heard);
    let nobody = PeerId::new(9).unwrap();
    let refused = peer.send(Target::One(nobody), Channel(0), Delivery::Reliable, b"x");
    assert_eq!(refused, Err(SendError::NoSuchPeer(nobody)));
    peer.send(Target::All, Channel(0), Delivery::Reliable, b"leave").unwrap();
    until(&mut *peer, &mut stock, &mut seen, |seen, _| matches!(seen.last(), Some(Event::Closed(_))));
    assert_eq!(seen.last(), Some(&Event::Closed(CloseReason::Kicked(77, String::new()))));
}
