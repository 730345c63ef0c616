//! Real sockets on the loopback interface.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "test helpers")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anywire_net::{self as net, Poller, RecvPool, SendBatch, SendErrors, UdpSocket, Wake};
use bytes::BytesMut;
use seam::{Outbox, Path, SocketId};

const PATIENCE: Duration = Duration::from_secs(5);

struct End {
    socket: UdpSocket,
    batch: SendBatch,
    errors: SendErrors,
    pool: RecvPool,
    poller: Poller,
}

impl End {
    fn new() -> Self {
        Self::bound("127.0.0.1:0".parse().unwrap())
    }

    fn bound(address: SocketAddr) -> Self {
        let mut socket = UdpSocket::bind(SocketId(0), address).unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&mut socket).unwrap();
        let batch = SendBatch::new(&socket);
        Self { socket, batch, errors: SendErrors::default(), pool: RecvPool::new(), poller }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn put(&mut self, to: SocketAddr, data: &[u8]) -> bool {
        self.batch.datagram(Path::new(SocketId(0), to), data.len(), |space| {
            space.copy_from_slice(data);
            data.len()
        })
    }

    fn flush(&mut self) -> bool {
        self.batch.flush(Instant::now(), &self.socket, &mut self.errors)
    }

    /// Everything up to `count` datagrams, or what came within the patience.
    fn take(&mut self, count: usize) -> Vec<(SocketAddr, BytesMut)> {
        let mut all = Vec::new();
        let until = Instant::now() + PATIENCE;
        while all.len() < count && Instant::now() < until {
            while self.socket.recv_batch(&mut self.pool, &mut all).unwrap() {}
            if all.len() < count {
                self.poller.wait(Some(until)).unwrap();
            }
        }
        all
    }
}

fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((number * 31 + at) % 251).unwrap()).collect()
}

fn arrives_whole_and_in_order(sizes: &[usize]) {
    let (mut a, mut b) = (End::new(), End::new());
    let to = b.address();
    for (number, &len) in sizes.iter().enumerate() {
        assert!(a.put(to, &pattern(number, len)));
    }
    assert!(a.flush());
    let got = b.take(sizes.len());
    assert_eq!(got.len(), sizes.len());
    for (number, (from, data)) in got.iter().enumerate() {
        assert_eq!(*from, a.address());
        assert!(data[..] == pattern(number, sizes[number])[..], "datagram {number} of {} bytes", sizes[number]);
    }
    assert_eq!(a.errors.total(), 0);
}

#[test]
fn a_train_of_equal_datagrams_arrives_whole_and_in_order() {
    arrives_whole_and_in_order(&[100; 150]);
    arrives_whole_and_in_order(&[1200; 150]);
}

#[test]
fn mixed_sizes_arrive_whole_and_in_order() {
    let sizes: Vec<usize> = (0..120).map(|n| [100, 100, 40, 1200, 1200, 1200, 7, 100][n % 8]).collect();
    arrives_whole_and_in_order(&sizes);
}

#[test]
fn every_size_from_1_to_1472_arrives() {
    let (mut a, mut b) = (End::new(), End::new());
    let to = b.address();
    for first in (1..=1472).step_by(64) {
        let sizes: Vec<usize> = (first..first + 64).filter(|len| *len <= 1472).collect();
        for &len in &sizes {
            assert!(a.put(to, &pattern(len, len)));
        }
        assert!(a.flush());
        let got = b.take(sizes.len());
        assert!(got.iter().map(|(_, data)| data.to_vec()).eq(sizes.iter().map(|len| pattern(*len, *len))));
    }
}

#[test]
fn datagrams_to_many_addresses_reach_only_their_own() {
    let mut a = End::new();
    let mut others: Vec<End> = (0..5).map(|_| End::new()).collect();
    let addresses: Vec<SocketAddr> = others.iter().map(End::address).collect();
    for round in 0..10 {
        for (number, to) in addresses.iter().enumerate() {
            assert!(a.put(*to, &pattern(number, 50 + round)));
        }
    }
    assert!(a.flush());
    for (number, other) in others.iter_mut().enumerate() {
        let got = other.take(10);
        assert!(got.iter().map(|(_, data)| data.to_vec()).eq((0..10).map(|round| pattern(number, 50 + round))));
    }
}

#[test]
fn what_fill_gives_back_is_not_sent_and_0_takes_the_reservation_back() {
    let (mut a, mut b) = (End::new(), End::new());
    let path = Path::new(SocketId(0), b.address());
    assert!(a.batch.datagram(path, 1400, |_| 0));
    assert!(a.batch.is_empty());
    assert!(a.batch.datagram(path, 1400, |space| {
        space[..3].copy_from_slice(b"abc");
        3
    }));
    assert!(a.flush());
    assert_eq!(&b.take(1)[0].1[..], b"abc");
}

#[test]
fn a_datagram_that_cannot_be_sent_does_not_stop_the_batch() {
    let (mut a, mut b) = (End::new(), End::new());
    let to = b.address();
    let port_0 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // A socket bound to loopback has no route there.
    let nowhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let segments = a.socket.max_segments();
    for number in 0..10 {
        assert!(a.put(port_0, &pattern(1, 30)));
        assert!(a.put(to, &pattern(number, 60)));
        assert!(a.put(nowhere, &pattern(2, 60)));
    }
    assert!(a.flush());
    let got = b.take(10);
    assert!(got.iter().map(|(_, data)| data.to_vec()).eq((0..10).map(|number| pattern(number, 60))));
    assert_eq!(a.errors.total(), 20);
    let lines: Vec<String> = std::iter::from_fn(|| a.errors.poll_line()).collect();
    assert_eq!(lines.len(), 2, "one line per address: {lines:?}");
    assert!(lines[1].starts_with("cannot send to 192.0.2.1:9: "));
    assert_eq!(a.socket.max_segments(), segments, "a bad address does not switch batching off");
}

#[test]
fn a_run_the_kernel_refuses_goes_out_one_by_one_and_is_noted_one_by_one() {
    let (mut a, mut b) = (End::new(), End::new());
    let nowhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    for _ in 0..5 {
        assert!(a.put(nowhere, &pattern(2, 60)));
    }
    let to = b.address();
    for number in 0..5 {
        assert!(a.put(to, &pattern(number, 60)));
    }
    assert!(a.flush());
    assert_eq!(a.errors.total(), 5);
    assert_eq!(b.take(5).len(), 5);
    // Whatever the kernel concluded from the refusal, trains still arrive.
    for number in 0..5 {
        assert!(a.put(to, &pattern(number, 60)));
    }
    assert!(a.flush());
    assert_eq!(b.take(5).len(), 5);
}

#[test]
fn sending_to_a_closed_port_harms_neither_sending_nor_receiving() {
    let (mut a, mut b) = (End::new(), End::new());
    let closed = {
        let gone = End::new();
        gone.address()
    };
    let to = b.address();
    for number in 0..20 {
        assert!(a.put(closed, b"anybody there?"));
        assert!(a.put(to, &pattern(number, 80)));
        assert!(a.flush());
    }
    assert_eq!(b.take(20).len(), 20);
    let back = a.address();
    assert!(b.put(back, b"here"));
    assert!(b.flush());
    assert_eq!(&a.take(1)[0].1[..], b"here");
}

#[test]
fn a_full_batch_says_so_and_takes_datagrams_again_after_a_flush() {
    let (mut a, b) = (End::new(), End::new());
    let to = b.address();
    let taken = (0..10_000).take_while(|_| a.put(to, &[7; 1000])).count();
    assert_eq!(taken, (256 << 10) / 1000);
    assert!(a.flush());
    assert!(a.put(to, &[7; 1000]));
    let mut called = false;
    assert!(a.batch.datagram(Path::new(SocketId(0), to), 65_508, |_| {
        called = true;
        0
    }));
    assert_eq!((called, a.batch.oversize()), (false, 1), "longer than UDP carries: dropped and counted");
}

#[test]
fn received_slices_outlive_the_pool_and_can_be_changed_in_place() {
    let (mut a, mut b) = (End::new(), End::new());
    let to = b.address();
    for number in 0..64 {
        assert!(a.put(to, &pattern(number, 1000)));
    }
    assert!(a.flush());
    let mut got = b.take(64);
    drop(b);
    got[3].1[0] ^= 0xFF;
    let expected = pattern(3, 1000);
    assert_eq!(got[3].1[0], expected[0] ^ 0xFF);
    assert_eq!(&got[3].1[1..], &expected[1..]);
    assert_eq!(&got[4].1[..], &pattern(4, 1000)[..]);
}

#[test]
fn an_ipv6_socket_names_ipv4_senders_as_ipv4_and_reaches_them() {
    let Ok(socket) = UdpSocket::bind(SocketId(0), "[::]:0".parse().unwrap()) else {
        println!("no IPv6 on this machine");
        return;
    };
    let port = socket.local_addr().port();
    drop(socket);
    let (mut a, mut b) = (End::new(), End::bound(SocketAddr::new("::".parse().unwrap(), port)));
    assert!(a.put(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), b"over"));
    assert!(a.flush());
    let got = b.take(1);
    assert_eq!(got[0].0, a.address());
    let to = a.address();
    assert!(b.put(to, b"and back"));
    assert!(b.flush());
    assert_eq!(&a.take(1)[0].1[..], b"and back");
}

#[test]
fn a_port_is_bound_once_unless_shared() {
    let first = End::new();
    let error = UdpSocket::bind(SocketId(1), first.address()).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let shared = UdpSocket::bind_shared(SocketId(1), "127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(UdpSocket::bind_shared(SocketId(1), shared.local_addr()).is_ok());
}

#[test]
fn pain_77_buffers_are_reported_and_a_shortfall_is_a_sentence() {
    let end = End::new();
    let (receive, send) = end.socket.granted();
    assert!(receive > 0 && send > 0);
    let short = receive < net::BUFFER_WANTED || send < net::BUFFER_WANTED;
    match end.socket.shortfall() {
        Some(text) => assert!(short && text.contains(&format!("{} KiB of receive", receive >> 10))),
        None => assert!(!short),
    }
}

#[test]
fn a_wait_ends_at_its_instant_neither_early_nor_much_late() {
    let mut poller = Poller::new().unwrap();
    let mut late = Vec::new();
    for micros in [0, 300, 1_000, 2_500, 7_000, 20_000] {
        let until = Instant::now() + Duration::from_micros(micros);
        let ready = poller.wait(Some(until)).unwrap();
        let now = Instant::now();
        assert!(now >= until, "{micros} us: early by {:?}", until - now);
        assert!(!ready.woken);
        late.push(now - until);
    }
    late.sort();
    // A busy machine may delay one or two; the middle one shows the precision of the timer.
    assert!(late[3] < Duration::from_millis(5), "{late:?}");
}

#[test]
fn a_wake_from_another_thread_ends_the_wait_and_many_wakes_are_one() {
    let mut poller = Poller::new().unwrap();
    let wake: Wake = poller.wake();
    let thread = std::thread::spawn({
        let wake = wake.clone();
        move || (0..1000).for_each(|_| wake.wake())
    });
    assert!(poller.wait(Some(Instant::now() + PATIENCE)).unwrap().woken);
    thread.join().unwrap();
    // Drain what came after the first wait; then nothing is left.
    while poller.wait(Some(Instant::now())).unwrap().woken {}
    assert!(!poller.wait(Some(Instant::now() + Duration::from_millis(5))).unwrap().woken);
    wake.wake();
    assert!(poller.wait(Some(Instant::now() + PATIENCE)).unwrap().woken, "a wake before the wait counts too");
}

#[test]
fn echo_round_trips_take_microseconds_not_timer_ticks() {
    let (mut a, mut b) = (End::new(), End::new());
    let (to_b, to_a) = (b.address(), a.address());
    let echo = std::thread::spawn(move || {
        for _ in 0..500 {
            let got = b.take(1);
            assert!(b.put(to_a, &got[0].1));
            assert!(b.flush());
        }
    });
    let mut trips = Vec::new();
    for number in 0..500 {
        let start = Instant::now();
        assert!(a.put(to_b, &pattern(number, 100)));
        assert!(a.flush());
        let got = a.take(1);
        trips.push(start.elapsed());
        assert_eq!(&got[0].1[..], &pattern(number, 100)[..]);
    }
    echo.join().unwrap();
    trips.sort();
    println!("echo p50 {:?}, p99 {:?}", trips[250], trips[495]);
    assert!(trips[250] < Duration::from_millis(2), "{:?}", trips[250]);
}
