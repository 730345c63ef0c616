//! Files between our own ends, over links that lose, in virtual time.

// A harness: it indexes what it made itself, panics on its own mistakes, and takes an instant to begin from.
#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::print_stdout)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anywire_parcel::Ask;
use anywire_parcel::quic::{BLOCK, BlockList, Giver, Identity, TakeEvent, Taker};
use bytes::{Bytes, BytesMut};
use netem::{Link, LinkConfig, Loss};
use seam::{Path, SocketId};

const HEAD: usize = 5;

fn path() -> Path {
    Path::new(SocketId(0), SocketAddr::from(([192, 0, 2, 1], 4000)))
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut dice = seam::Dice::new([seed; 32]);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&dice.u64().to_be_bytes());
    }
    out.truncate(len);
    out
}

fn list(data: &[u8]) -> Arc<BlockList> {
    let hash = |part: &[u8]| (u32::try_from(part.len()).unwrap(), *blake3::hash(part).as_bytes());
    Arc::new(BlockList::new(data.chunks(BLOCK as usize).map(hash)))
}

/// A giver, a taker, their wire and their disks.
struct World {
    now: Instant,
    start: Instant,
    data: Vec<u8>,
    giver: Giver,
    taker: Taker,
    /// With when each was sent.
    down: Link<(Instant, Vec<u8>)>,
    up: Link,
    disk: Vec<u8>,
    events: Vec<TakeEvent>,
    reads: VecDeque<(Instant, u64, Bytes)>,
    found: Vec<u32>,
    /// Blocks that are read wrong, once each.
    rot: Vec<u32>,
    /// Bytes of blocks that were written.
    kept: usize,
    largest: usize,
    cut: bool,
    /// The longest a packet was under way beyond the flight time, once the beginning is over.
    longest: Duration,
}

impl World {
    fn new(data: Vec<u8>, config: LinkConfig, seed: u8) -> Self {
        Self::with_keys(data, config, seed, seed)
    }

    fn with_keys(data: Vec<u8>, config: LinkConfig, seed: u8, pinned: u8) -> Self {
        let now = Instant::now();
        let list = list(&data);
        let (a, b) = (Identity::new(&[seed; 32]).unwrap(), Identity::new(&[seed + 100; 32]).unwrap());
        let expected = Identity::new(&[pinned + 100; 32]).unwrap().public();
        let giver = Giver::new(&a, expected, Arc::clone(&list), [seed; 32], now).unwrap();
        let taker = Taker::new(b, a.public(), list.root(), data.len() as u64, [seed; 32], now).unwrap();
        Self {
            now,
            start: now,
            disk: vec![0; data.len()],
            data,
            giver,
            taker,
            down: Link::new(config, [seed; 32]),
            up: Link::new(config, [seed + 1; 32]),
            events: Vec::new(),
            reads: VecDeque::new(),
            found: Vec::new(),
            rot: Vec::new(),
            kept: 0,
            largest: 0,
            cut: false,
            longest: Duration::ZERO,
        }
    }

    fn drain(&mut self) {
        let now = self.now;
        loop {
            let mut quiet = true;
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            quiet &= !self.giver.poll_transmit(now, path(), &mut out);
            for (_, packet) in out.drain(..) {
                self.largest = self.largest.max(packet.len());
                if !self.cut {
                    self.down.push(now, (now, packet));
                }
            }
            quiet &= !self.taker.poll_transmit(now, path(), &mut out);
            for (_, packet) in out {
                if !self.cut {
                    self.up.push(now, packet);
                }
            }
            while let Some(Ask::Read { at, len }) = self.giver.poll_ask() {
                quiet = false;
                let mut data = self.data[at as usize..at as usize + len].to_vec();
                let index = (at / u64::from(BLOCK)) as u32;
                if let Some(place) = self.rot.iter().position(|rot| *rot == index) {
                    self.rot.remove(place);
                    data[7] ^= 1;
                }
                self.reads.push_back((now, at, data.into()));
            }
            while let Some((_, at, data)) = self.reads.pop_front() {
                self.giver.handle_data(at, &data);
            }
            while let Some(ask) = self.taker.poll_ask() {
                quiet = false;
                match ask {
                    Ask::Look { .. } => self.taker.handle_found(now, &self.found),
                    Ask::Keep { index, at, hash, data } => {
                        let good = blake3::hash(&data) == hash;
                        if good {
                            self.kept += data.len();
                            self.disk[at as usize..at as usize + data.len()].copy_from_slice(&data);
                        }
                        self.taker.handle_kept(now, index, good);
                    }
                    other => panic!("{other:?}"),
                }
            }
            while let Some(event) = self.taker.poll_event() {
                quiet = false;
                self.events.push(event);
            }
            if quiet {
                return;
            }
        }
    }

    fn run(&mut self, most: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + most;
        let mut still = 0;
        loop {
            self.drain();
            if done(self) {
                return true;
            }
            let timers = [self.giver.poll_timeout(), self.taker.poll_timeout()];
            let links = [self.down.poll_timeout(), self.up.poll_timeout()];
            let next = timers.into_iter().chain(links).flatten().map(|(at, _)| at).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return false;
            };
            still = if next <= self.now { still + 1 } else { 0 };
            assert!(still < 1000, "stands still {timers:?}");
            self.now = next.max(self.now);
            while let Some((sent, packet)) = self.down.pop(self.now) {
                if self.now > self.start + ms(1_500) {
                    self.longest = self.longest.max(self.now - sent - self.down.config().delay);
                }
                self.taker.handle_datagram(self.now, BytesMut::from(&packet[HEAD..]));
            }
            while let Some(packet) = self.up.pop(self.now) {
                self.giver.handle_datagram(self.now, BytesMut::from(&packet[HEAD..]));
            }
            self.giver.handle_timeout(self.now);
            self.taker.handle_timeout(self.now);
        }
    }

    fn finish(&mut self, most: Duration) -> bool {
        self.run(most, |world| world.events.contains(&TakeEvent::Complete))
    }
}

fn wire(loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Random(loss), delay: ms(20), ..LinkConfig::default() }
}

#[test]
fn every_block_arrives_verified_at_any_loss_up_to_30_percent() {
    for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.15), (4, 0.3)] {
        let mut world = World::new(bytes(3_000_001, seed), wire(loss), seed);
        assert!(world.finish(Duration::from_secs(300)), "loss {loss}: {:?}", world.events);
        assert!(world.disk == world.data, "loss {loss}");
        assert_eq!(world.kept, world.data.len(), "loss {loss}");
    }
}

#[test]
fn packets_grow_to_what_the_path_takes_from_1200_up() {
    let mut world = World::new(bytes(4_000_000, 1), wire(0.0), 1);
    assert!(world.finish(Duration::from_secs(60)));
    assert!((1_430..=1_452).contains(&world.largest), "{}", world.largest);
}

#[test]
fn a_wrong_block_costs_one_block() {
    let mut world = World::new(bytes(5_000_000, 1), wire(0.0), 1);
    world.rot = vec![3, 9];
    assert!(world.finish(Duration::from_secs(60)));
    assert!(world.disk == world.data);
    assert!(world.rot.is_empty());
}

#[test]
fn a_block_that_is_wrong_three_times_ends_it() {
    let mut world = World::new(bytes(2_000_000, 1), wire(0.0), 1);
    world.rot = vec![3; 3];
    assert!(world.run(Duration::from_secs(60), |w| w.events.iter().any(|e| matches!(e, TakeEvent::GaveUp(_)))));
    assert!(!world.events.contains(&TakeEvent::Complete));
}

#[test]
fn what_is_on_the_disk_already_is_not_asked_for() {
    let mut world = World::new(bytes(10_000_000, 1), wire(0.01), 1);
    world.found = (0..30).collect();
    let data = world.data.clone();
    world.disk[..30 * BLOCK as usize].copy_from_slice(&data[..30 * BLOCK as usize]);
    assert!(world.finish(Duration::from_secs(60)));
    assert!(world.disk == world.data);
    assert_eq!(world.kept, world.data.len() - 30 * BLOCK as usize);
}

#[test]
fn a_path_that_is_dead_for_seconds_costs_that_time_and_no_block_twice() {
    let mut world = World::new(bytes(20_000_000, 1), LinkConfig { rate: Some(50_000_000), ..wire(0.0) }, 1);
    world.run(Duration::from_secs(1), |_| false);
    world.cut = true;
    world.run(Duration::from_secs(8), |_| false);
    world.cut = false;
    assert!(world.finish(Duration::from_secs(60)));
    assert_eq!(world.kept, world.data.len());
    assert!(!world.events.iter().any(|event| matches!(event, TakeEvent::Lost(_))));
}

#[test]
fn another_key_than_the_sealed_channel_named_gets_nothing() {
    let mut world = World::with_keys(bytes(100_000, 1), wire(0.0), 1, 2);
    assert!(world.run(Duration::from_secs(200), |w| w.events.iter().any(|e| matches!(e, TakeEvent::GaveUp(_)))));
    assert_eq!(world.kept, 0);
    assert!(!world.giver.is_connected());
}

#[test]
fn hostile_datagrams_change_nothing() {
    let mut world = World::new(bytes(2_000_000, 1), wire(0.0), 1);
    let mut dice = seam::Dice::new([9; 32]);
    for n in 0..400 {
        world.run(ms(1), |_| false);
        let junk: Vec<u8> = std::iter::repeat_with(|| dice.bytes::<1>()[0]).take(n * 4).collect();
        world.giver.handle_datagram(world.now, BytesMut::from(&junk[..]));
        world.taker.handle_datagram(world.now, BytesMut::from(&junk[..]));
    }
    assert!(world.finish(Duration::from_secs(60)));
    assert!(world.disk == world.data);
}

/// Goodput as a share of the link, of 150 MB at 200 Mbit/s and 40 ms there and back.
fn share(loss: f64) -> f64 {
    let config = LinkConfig { rate: Some(200_000_000), queue: 1 << 20, ..wire(loss) };
    let mut world = World::new(bytes(150_000_000, 1), config, 1);
    assert!(world.finish(Duration::from_secs(120)));
    assert!(world.disk == world.data);
    let share = world.data.len() as f64 * 8.0 / (world.now - world.start).as_secs_f64() / 200e6;
    let queued = world.longest.as_millis();
    println!("loss {loss}: {:.1} % of the link, up to {queued} ms in its queue", share * 100.0);
    share
}

#[test]
fn a_lossy_link_is_filled() {
    // Virtual time: no machine's speed is in this.
    let shares = [0.0, 0.01, 0.05, 0.15].map(share);
    assert!(shares[0] > 0.85 && shares[1] > 0.85 && shares[2] > 0.75, "{shares:?}");
}
