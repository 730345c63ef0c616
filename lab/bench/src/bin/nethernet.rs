//! NetherNet sessions over loopback: bulk throughput, connects, memory. One Markdown table.
//!
//! `nethernet [seconds] [dials] [sessions]`; two threads in one process, a socket each, batches with GSO and GRO as the
//! product sends them, signals handed over in memory.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anywire_bench::{cpu_seconds, memory};
use bytes::Bytes;
use net::{Poller, RecvPool, SendBatch, SendErrors, UdpSocket, Wake};
use nethernet::NetworkId;
use nethernet::engine::Certificate;
use nethernet::frame::Channel;
use nethernet::session::{Config, Endpoint, Event, SessionId, Socket, Use};
use seam::{Path, SocketId};

const SOCKET: SocketId = SocketId(0);
const PACKET: usize = 256 << 10;

type Signals = (NetworkId, String);

/// An endpoint on a socket of its own.
struct Node {
    me: NetworkId,
    endpoint: Endpoint,
    socket: UdpSocket,
    batch: SendBatch,
    pool: RecvPool,
    poller: Poller,
    errors: SendErrors,
    signals: Receiver<Signals>,
    other: Option<(Sender<Signals>, Wake)>,
    events: Vec<Event>,
    /// The kernel took no more.
    stuck: bool,
    datagrams: Vec<(SocketAddr, bytes::BytesMut)>,
}

impl Node {
    fn new(me: u64) -> (Self, Sender<Signals>, Wake) {
        let mut socket = UdpSocket::bind(SOCKET, "127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = socket.local_addr();
        let mut poller = Poller::new().unwrap();
        poller.add(&mut socket).unwrap();
        let config = Config::new(vec![Socket { id: SOCKET, base: addr, announce: vec![addr], purpose: Use::Both }]);
        let endpoint = Endpoint::new(config, Certificate::generate().unwrap(), [me as u8; 32], Instant::now()).unwrap();
        let (send, signals) = channel();
        let wake = poller.wake();
        let node = Self {
            me: NetworkId::P2p(me),
            endpoint,
            batch: SendBatch::new(&socket),
            socket,
            pool: RecvPool::new(),
            poller,
            errors: SendErrors::default(),
            signals,
            other: None,
            events: Vec::new(),
            stuck: false,
            datagrams: Vec::new(),
        };
        (node, send, wake)
    }

    /// Everything that waits goes in and out.
    fn turn(&mut self) {
        let now = Instant::now();
        while let Ok((from, text)) = self.signals.try_recv() {
            self.endpoint.handle_signal(now, &from, &text);
        }
        while self.socket.recv_batch(&mut self.pool, &mut self.datagrams).unwrap() {}
        for (from, datagram) in self.datagrams.drain(..) {
            self.endpoint.handle_datagram(now, Path::new(SOCKET, from), &datagram);
        }
        if self.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.flush(now);
        while let Some((_, text)) = self.endpoint.poll_signal() {
            if let Some((send, wake)) = &self.other {
                let _ = send.send((self.me.clone(), text));
                wake.wake();
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.events.push(event);
        }
    }

    fn flush(&mut self, now: Instant) {
        let stuck = loop {
            let any = self.endpoint.poll_transmit(now, &mut self.batch);
            if !self.batch.flush(now, &self.socket, &mut self.errors) {
                break true;
            }
            if !any {
                break false;
            }
        };
        if stuck != self.stuck {
            self.stuck = stuck;
            self.poller.want_writable(&mut self.socket, stuck).unwrap();
        }
    }

    fn wait(&mut self, most: Duration) {
        let now = Instant::now();
        let until = self.endpoint.poll_timeout().map_or(now + most, |(at, _)| at.min(now + most));
        let _ = self.poller.wait(Some(until)).unwrap();
    }

    fn opened(&self) -> Option<SessionId> {
        self.events.iter().rev().find_map(|e| if let Event::Opened { session, .. } = e { Some(*session) } else { None })
    }
}

fn two() -> (Node, Node) {
    let (mut a, to_a, wake_a) = Node::new(1);
    let (mut b, to_b, wake_b) = Node::new(2);
    a.other = Some((to_b, wake_b));
    b.other = Some((to_a, wake_a));
    (a, b)
}

/// MB/s and processor seconds per GB of 256 KiB packets.
fn throughput(time: Duration) -> (f64, f64) {
    let (mut a, mut b) = two();
    let receiver = thread::spawn(move || {
        let mut bytes = 0_usize;
        loop {
            b.turn();
            let now = Instant::now();
            if let Some(id) = b.opened() {
                while let Some((_, packet)) = b.endpoint.recv(now, id) {
                    bytes += packet.len();
                }
                b.flush(now);
            }
            if b.events.iter().any(|e| matches!(e, Event::Closed { .. })) {
                return bytes;
            }
            b.wait(Duration::from_millis(50));
        }
    });
    let id = a.endpoint.connect(Instant::now(), NetworkId::P2p(2)).unwrap();
    while a.opened().is_none() {
        a.turn();
        a.wait(Duration::from_millis(50));
    }
    let packet = Bytes::from(vec![7; PACKET]);
    let (start, before) = (Instant::now(), cpu_seconds());
    let mut sent = 0_usize;
    while start.elapsed() < time {
        a.turn();
        let now = Instant::now();
        while a.endpoint.send(now, id, Channel::Reliable, packet.clone()).is_ok() {
            sent += PACKET;
        }
        a.flush(now);
        a.wait(Duration::from_millis(50));
    }
    a.endpoint.close(Instant::now(), id);
    while !a.events.iter().any(|e| matches!(e, Event::Closed { .. })) {
        a.turn();
        a.wait(Duration::from_millis(50));
    }
    let (elapsed, used) = (start.elapsed().as_secs_f64(), cpu_seconds() - before);
    let got = receiver.join().unwrap();
    assert_eq!(got, sent, "every packet arrives");
    (got as f64 / 1e6 / elapsed, used / (got as f64 / 1e9))
}

/// Milliseconds from `connect` to both channels open at the dialler, sorted.
fn connects(dials: usize) -> Vec<f64> {
    let (mut a, mut b) = two();
    let (stop, stopped) = channel::<()>();
    let listener = thread::spawn(move || {
        while stopped.try_recv().is_err() {
            b.turn();
            b.events.clear();
            b.wait(Duration::from_millis(50));
        }
    });
    let mut took = Vec::new();
    for _ in 0..dials {
        let start = Instant::now();
        let id = a.endpoint.connect(start, NetworkId::P2p(2)).unwrap();
        a.turn();
        while a.opened().is_none() {
            a.wait(Duration::from_millis(50));
            a.turn();
            let ended = a.events.iter().find(|e| matches!(e, Event::Closed { .. }));
            assert!(ended.is_none(), "dial {} of {dials}: {ended:?}", took.len());
        }
        took.push(start.elapsed().as_secs_f64() * 1e3);
        a.endpoint.close(Instant::now(), id);
        while !a.endpoint.is_empty() {
            a.turn();
            a.wait(Duration::from_millis(50));
        }
        a.events.clear();
    }
    stop.send(()).unwrap();
    listener.join().unwrap();
    took.sort_by(f64::total_cmp);
    took
}

/// Bytes of memory per end of a session, after some traffic; datagrams are handed over in memory.
fn memory_each(sessions: u64) -> u64 {
    let now = Instant::now();
    let make = |n: usize| {
        let addr: SocketAddr = format!("10.{}.{}.{}:4000", n >> 16 & 255, n >> 8 & 255, n & 255).parse().unwrap();
        let config = Config::new(vec![Socket { id: SOCKET, base: addr, announce: vec![addr], purpose: Use::Both }]);
        (addr, config)
    };
    let certificate = Certificate::generate().unwrap();
    let mut nodes = Vec::new();
    for n in 0..=usize::try_from(sessions).unwrap() {
        let (addr, config) = make(n + 1);
        nodes.push((addr, Endpoint::new(config, certificate.clone(), [n as u8; 32], now).unwrap()));
    }
    let before = memory();
    for (_, node) in nodes.iter_mut().skip(1) {
        node.connect(now, NetworkId::P2p(0)).unwrap();
    }
    let mut open = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut rounds = 0;
    while Instant::now() < deadline && rounds < 200 {
        let now = Instant::now();
        let mut wires = Vec::new();
        let mut signals = Vec::new();
        for (n, (addr, node)) in nodes.iter_mut().enumerate() {
            if node.poll_timeout().is_some_and(|(at, _)| at <= now) {
                node.handle_timeout(now);
            }
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Opened { session, .. } => {
                        open += 1;
                        let _ = node.send(now, session, Channel::Reliable, Bytes::from_static(&[7; 100]));
                    }
                    Event::Readable(session) => while node.recv(now, session).is_some() {},
                    _ => {}
                }
            }
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            node.poll_transmit(now, &mut out);
            wires.extend(out.into_iter().map(|(path, bytes)| (*addr, path.remote, bytes)));
            while let Some((to, text)) = node.poll_signal() {
                signals.push((NetworkId::P2p(n as u64), to, text));
            }
        }
        for (from, to, bytes) in wires {
            if let Some((_, node)) = nodes.iter_mut().find(|(addr, _)| *addr == to) {
                node.handle_datagram(now, Path::new(SOCKET, from), &bytes);
            }
        }
        for (from, to, text) in signals {
            let at = usize::try_from(to.p2p().unwrap()).unwrap();
            nodes[at].1.handle_signal(now, &from, &text);
        }
        if open == 2 * sessions {
            rounds += 1;
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(open, 2 * sessions, "every session opens");
    (memory() - before) / (2 * sessions)
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().unwrap());
    let seconds = args.next().unwrap_or(5);
    let dials = args.next().unwrap_or(1000);
    let sessions = args.next().unwrap_or(200);
    println!("| NetherNet over loopback | |\n|---|---|");
    let kib = memory_each(sessions as u64) / 1024;
    println!("| memory per session and end, {sessions} sessions | {kib} KiB |");
    let took = connects(dials);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "| connect over {dials} dials, p50 / p90 / p99 / longest | {:.2} / {:.2} / {:.2} / {:.1} ms |",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    let mut runs: Vec<_> = (0..3).map(|_| throughput(Duration::from_secs(seconds as u64))).collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, cpu) = runs[1];
    println!("| reliable packets of 256 KiB, median of three | {rate:.0} MB/s, {cpu:.2} CPU s/GB |");
}
