//! Two ends over a seeded wire in virtual time, which jumps exactly to the next deadline.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::expect_used, reason = "test helpers")]
#![allow(clippy::disallowed_methods, reason = "virtual time begins at a real instant")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anywire_lanes::{Config, End, Event, FRAME_MAX, Lanes, QUEUE_MAX, RELIABLE_MAX, UNRELIABLE_MAX};
use bytes::Bytes;
use netem::{Link, LinkConfig, Loss};
use seam::{Channel, Delivery, Dice, SendError};

const MS: Duration = Duration::from_millis(1);

struct Pair {
    now: Instant,
    ends: [Lanes; 2],
    /// What end k sent.
    wires: [Link; 2],
    got: [Vec<(u8, Delivery, Bytes)>; 2],
    other: [Vec<Event>; 2],
    frames: u64,
}

fn wire(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: Loss::Random(loss),
        delay: 20 * MS,
        jitter: 5 * MS,
        reorder: 0.05,
        duplicate: 0.03,
        ..LinkConfig::default()
    }
}

impl Pair {
    fn new(config: LinkConfig, seed: u8) -> Self {
        let now = Instant::now();
        let end = |n: u8| Lanes::new(Config::default(), [seed.wrapping_mul(2).wrapping_add(n); 32], now);
        Self {
            now,
            ends: [end(0), end(1)],
            wires: [Link::new(config, [seed; 32]), Link::new(config, [seed ^ 0x55; 32])],
            got: Default::default(),
            other: Default::default(),
            frames: 0,
        }
    }

    fn drain(&mut self) {
        let mut frame = Vec::new();
        for me in 0..2 {
            while self.ends[me].poll_frame(self.now, &mut frame) {
                assert!(frame.len() <= FRAME_MAX, "{}", frame.len());
                self.frames += 1;
                self.wires[me].push(self.now, frame.clone());
            }
            while let Some(event) = self.ends[me].poll_event() {
                match event {
                    Event::Packet { channel, delivery, data } => self.got[me].push((channel.0, delivery, data)),
                    event => self.other[me].push(event),
                }
            }
        }
    }

    /// One jump to the next deadline, not past `limit`.
    fn step(&mut self, limit: Instant) -> bool {
        self.drain();
        let next =
            self.ends.iter().filter_map(Lanes::poll_timeout).chain(self.wires.iter().filter_map(Link::poll_timeout));
        let Some((at, why)) = next.min_by_key(|(at, _)| *at) else { return false };
        assert!(at > self.now, "{why}: drained, and yet it is due");
        if at > limit {
            self.now = limit;
            return false;
        }
        self.now = at;
        for me in 0..2 {
            while let Some(frame) = self.wires[me].pop(self.now) {
                let _ = self.ends[1 - me].handle_frame(self.now, &Bytes::from(frame));
            }
        }
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
        true
    }

    fn run(&mut self, time: Duration) {
        let limit = self.now + time;
        while self.step(limit) {}
        self.drain();
    }

    /// Runs until `done`; panics after `most`.
    fn until(&mut self, most: Duration, mut done: impl FnMut(&Self) -> bool) {
        let limit = self.now + most;
        self.drain();
        while !done(self) {
            assert!(self.step(limit), "not within {most:?}");
            self.drain();
        }
    }

    fn send(&mut self, from: usize, channel: u8, delivery: Delivery, data: impl Into<Bytes>) -> Result<(), SendError> {
        self.ends[from].send(self.now, Channel(channel), delivery, &data.into())
    }
}

fn number(data: &[u8]) -> u32 {
    u32::from_be_bytes(data[..4].try_into().unwrap())
}

#[test]
fn reliable_packets_arrive_once_and_in_order_at_any_loss_up_to_a_third() {
    for (loss, seed) in [(0.0, 1), (0.05, 2), (0.1, 3), (0.2, 4), (0.3, 5), (0.33, 6)] {
        let mut pair = Pair::new(wire(loss), seed);
        let mut dice = Dice::new([seed; 32]);
        for n in 0..3_000_u32 {
            for from in 0..2 {
                let channel = u8::try_from(n % 32).unwrap();
                let mut data = n.to_be_bytes().to_vec();
                data.resize(4 + usize::try_from(dice.u32() % 200).unwrap(), channel);
                pair.send(from, channel, Delivery::Reliable, data).unwrap();
            }
            if n % 50 == 0 {
                pair.run(16 * MS);
            }
        }
        pair.until(Duration::from_secs(120), |pair| pair.got.iter().all(|got| got.len() >= 3_000));
        for got in &pair.got {
            let mut last: BTreeMap<u8, u32> = BTreeMap::new();
            for (channel, delivery, data) in got {
                assert_eq!(*delivery, Delivery::Reliable);
                let n = number(data);
                assert_eq!(u32::from(*channel), n % 32);
                let before = last.insert(*channel, n);
                assert_eq!(n, before.map_or(n % 32, |before| before + 32), "loss {loss}, channel {channel}");
            }
            assert_eq!(got.len(), 3_000);
        }
        assert!(pair.other.iter().all(|other| *other == [Event::Up]), "{:?}", pair.other);
    }
}

#[test]
fn unreliable_packets_arrive_at_most_once_and_ordered_ones_never_go_back() {
    let mut pair = Pair::new(wire(0.2), 7);
    pair.run(200 * MS);
    for n in 0..4_000_u32 {
        let delivery = if n % 2 == 0 { Delivery::Unreliable } else { Delivery::UnreliableOrdered };
        pair.send(0, 3, delivery, n.to_be_bytes().to_vec()).unwrap();
        if n % 4 == 0 {
            pair.run(2 * MS);
        }
    }
    pair.run(Duration::from_secs(1));
    let got = |wanted| pair.got[1].iter().filter(move |got| got.1 == wanted).map(|got| number(&got.2));
    let loose: Vec<u32> = got(Delivery::Unreliable).collect();
    assert_eq!(loose.iter().collect::<BTreeSet<_>>().len(), loose.len(), "never twice");
    assert!((1_400..=1_800).contains(&loose.len()), "four fifths of 2,000: {}", loose.len());
    assert!(!loose.is_sorted(), "this wire reorders");
    let ordered: Vec<u32> = got(Delivery::UnreliableOrdered).collect();
    assert!(ordered.is_sorted_by(|a, b| a < b) && ordered.len() > 900, "{}", ordered.len());
}

#[test]
fn every_size_arrives_whole_from_nothing_to_the_most() {
    let mut pair = Pair::new(wire(0.1), 8);
    let sizes = [0, 1, 2, 1_173, 1_174, 1_175, 2_348, 2_349, 65_536, RELIABLE_MAX - 1, RELIABLE_MAX];
    for size in sizes {
        let data: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
        assert_eq!(pair.send(0, 9, Delivery::Reliable, data.clone()), Ok(()));
        pair.until(Duration::from_secs(60), |pair| !pair.got[1].is_empty());
        assert!(pair.got[1].remove(0).2 == data, "{size} bytes");
    }
    let mut clean = Pair::new(LinkConfig { delay: MS, ..LinkConfig::default() }, 9);
    for (size, delivery) in [0, 1, 1_174, 1_175, UNRELIABLE_MAX]
        .into_iter()
        .flat_map(|size| [(size, Delivery::Unreliable), (size, Delivery::UnreliableOrdered)])
    {
        assert_eq!(clean.send(0, 9, delivery, vec![7; size]), Ok(()));
        clean.until(Duration::from_secs(1), |pair| !pair.got[1].is_empty());
        assert_eq!(clean.got[1].remove(0), (9, delivery, vec![7; size].into()));
    }
}

#[test]
fn what_is_over_the_most_is_refused_with_the_limit() {
    let mut pair = Pair::new(LinkConfig::default(), 10);
    let too_large = |size, max| Err(SendError::TooLarge { size, max });
    let over = RELIABLE_MAX + 1;
    assert_eq!(pair.send(0, 0, Delivery::Reliable, vec![0; over]), too_large(over, RELIABLE_MAX));
    let over = UNRELIABLE_MAX + 1;
    assert_eq!(pair.send(0, 0, Delivery::Unreliable, vec![0; over]), too_large(over, UNRELIABLE_MAX));
}

#[test]
fn a_channel_that_waits_for_a_lost_packet_stops_no_other() {
    let mut pair = Pair::new(LinkConfig { delay: 10 * MS, ..LinkConfig::default() }, 11);
    pair.run(100 * MS);
    let before = *pair.wires[0].config();
    pair.wires[0].set_config(LinkConfig { loss: Loss::Random(1.0), ..before });
    pair.send(0, 1, Delivery::Reliable, b"lost".to_vec()).unwrap();
    pair.drain();
    pair.wires[0].set_config(before);
    pair.send(0, 1, Delivery::Reliable, b"waits".to_vec()).unwrap();
    pair.send(0, 2, Delivery::Reliable, b"goes on".to_vec()).unwrap();
    pair.until(Duration::from_secs(5), |pair| pair.got[1].len() == 3);
    let order: Vec<&[u8]> = pair.got[1].iter().map(|got| &got.2[..]).collect();
    assert_eq!(order, [&b"goes on"[..], b"lost", b"waits"]);
}

#[test]
fn small_packets_of_one_turn_share_frames() {
    let mut pair = Pair::new(LinkConfig { delay: 10 * MS, ..LinkConfig::default() }, 12);
    pair.run(Duration::from_secs(2));
    let before = pair.frames;
    for n in 0..160_u32 {
        pair.send(0, 0, Delivery::Reliable, vec![u8::try_from(n).unwrap(); 64]).unwrap();
    }
    pair.drain();
    assert_eq!(pair.frames - before, 10, "16 packets of 64 bytes to a frame");
    pair.run(100 * MS);
    assert_eq!(pair.got[1].len(), 160);
    assert!(pair.frames - before <= 13, "acknowledged together: {}", pair.frames - before);
}

#[test]
fn a_full_queue_says_so_and_says_when_there_is_room_again() {
    let mut pair = Pair::new(LinkConfig { delay: 10 * MS, ..LinkConfig::default() }, 13);
    pair.run(100 * MS);
    let mut taken = 0;
    while pair.send(0, 0, Delivery::Reliable, vec![1; 32 << 10]).is_ok() {
        taken += 32 << 10;
    }
    assert_eq!(taken, QUEUE_MAX);
    assert_eq!(pair.send(0, 0, Delivery::Reliable, vec![1; 32 << 10]), Err(SendError::WouldBlock));
    assert!(pair.ends[0].relay(pair.now, Channel(0), Delivery::Reliable, &vec![1; 100].into()).is_ok(), "for others");
    pair.until(Duration::from_secs(20), |pair| pair.other[0].contains(&Event::Writable));
    assert_eq!(pair.send(0, 0, Delivery::Reliable, vec![1; 32 << 10]), Ok(()));
    pair.run(Duration::from_secs(5));
    let bytes: usize = pair.got[1].iter().map(|got| got.2.len()).sum();
    assert_eq!(bytes, taken + 100 + (32 << 10));
    assert!(pair.ends[0].is_idle());
}

#[test]
fn a_reader_that_stands_still_holds_the_sender_up_and_loses_nothing() {
    let mut pair = Pair::new(LinkConfig { delay: MS, ..LinkConfig::default() }, 14);
    pair.run(100 * MS);
    let packet = Bytes::from(vec![5; 60_000]);
    let (mut sent, mut frame, mut blocked) = (0, Vec::new(), 0);
    // Frames go both ways, and nobody asks the receiver for its packets.
    for _ in 0..4_000 {
        while pair.ends[0].send(pair.now, Channel(0), Delivery::Reliable, &packet).is_ok() {
            sent += 1;
        }
        blocked += 1;
        for me in 0..2 {
            while pair.ends[me].poll_frame(pair.now, &mut frame) {
                let _ = pair.ends[1 - me].handle_frame(pair.now, &Bytes::copy_from_slice(&frame));
            }
            pair.ends[me].handle_timeout(pair.now);
        }
        pair.now += 5 * MS;
    }
    assert!(blocked == 4_000 && sent < 300, "bounded by what one side queues and the other holds: {sent}");
    pair.run(Duration::from_secs(20));
    assert_eq!(pair.got[1].len(), sent, "all of it comes once somebody reads");
}

#[test]
fn the_round_trip_and_the_loss_are_measured() {
    let config = LinkConfig { loss: Loss::Random(0.1), delay: 40 * MS, ..LinkConfig::default() };
    let mut pair = Pair::new(config, 15);
    pair.run(200 * MS);
    for _ in 0..600 {
        pair.send(0, 0, Delivery::Unreliable, vec![0; 20]).unwrap();
        pair.run(16 * MS);
    }
    let stats = pair.ends[0].stats();
    let rtt = stats.rtt.unwrap();
    assert!(rtt >= 78 * MS && rtt <= 95 * MS, "{rtt:?}");
    let loss = stats.loss.unwrap();
    assert!((0.03..0.2).contains(&loss), "{loss}");
    assert!(stats.sent > 20_000 && stats.received > 0 && stats.queued == 0, "{stats:?}");
}

#[test]
fn a_silent_wire_ends_the_link() {
    let mut pair = Pair::new(LinkConfig { delay: MS, ..LinkConfig::default() }, 16);
    pair.run(Duration::from_secs(60));
    assert!(pair.other.iter().all(|other| *other == [Event::Up]), "pings keep it alive: {:?}", pair.other);
    for wire in &mut pair.wires {
        wire.set_config(LinkConfig { loss: Loss::Random(1.0), ..LinkConfig::default() });
    }
    pair.send(0, 0, Delivery::Reliable, b"into the void".to_vec()).unwrap();
    let end = pair.now + Duration::from_secs(25);
    while pair.ends.iter().any(|end| end.poll_timeout().is_some()) && pair.step(end) {}
    for me in 0..2 {
        assert_eq!(pair.other[me], [Event::Up, Event::Ended(End::Silent)]);
    }
    assert_eq!(pair.send(0, 0, Delivery::Reliable, b"x".to_vec()), Err(SendError::NotConnected));
}

#[test]
fn an_end_that_begins_anew_is_noticed_and_met_again() {
    let mut pair = Pair::new(wire(0.1), 17);
    pair.send(0, 0, Delivery::Reliable, b"before".to_vec()).unwrap();
    pair.until(Duration::from_secs(10), |pair| pair.got[1].len() == 1);
    pair.ends[0] = Lanes::new(Config::default(), [99; 32], pair.now);
    pair.other[0].clear();
    pair.until(Duration::from_secs(10), |pair| pair.other[1].contains(&Event::Ended(End::Restarted)));
    pair.ends[1] = Lanes::new(Config::default(), [98; 32], pair.now);
    pair.other[1].clear();
    pair.send(0, 0, Delivery::Reliable, b"after".to_vec()).unwrap();
    pair.until(Duration::from_secs(10), |pair| pair.got[1].len() == 2);
    assert_eq!(&pair.got[1][1].2[..], b"after");
    assert!(pair.other.iter().all(|other| *other == [Event::Up]), "{:?}", pair.other);
}

#[test]
fn a_seeded_world_repeats_itself() {
    let run = || {
        let mut pair = Pair::new(wire(0.15), 18);
        for n in 0..500_u32 {
            pair.send(0, u8::try_from(n % 5).unwrap(), Delivery::Reliable, vec![1; 300]).unwrap();
            pair.send(1, 0, Delivery::UnreliableOrdered, vec![2; 30]).unwrap();
            pair.run(3 * MS);
        }
        pair.run(Duration::from_secs(3));
        (pair.frames, pair.got[0].len(), pair.got[1].len(), pair.ends[0].stats().sent)
    };
    let first = run();
    assert_eq!(first.2, 500);
    assert_eq!(first, run());
}
