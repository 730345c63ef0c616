//! Several bridges round one carrier that loses, repeats, delays and reorders, in virtual time. The clock jumps exactly
//! to the next deadline, so a forgotten wake-up shows as a test that ends without its texts.

#![cfg(test)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anywire_bridge::{Body, Bridge, Config, Datagram, Event, Header, PENDING_MAX, SENDERS_MAX};
use seam::{Dice, Outbox, Path, Refused, SocketId};

const WORLD: [u8; 32] = [b'a'; 32];

fn carrier() -> Path {
    Path::new(SocketId(1), SocketAddr::from(([127, 0, 0, 1], 7773)))
}

/// A lobby as a bridge sees it: what one sends, every other gets, or not.
struct World {
    start: Instant,
    now: Instant,
    dice: Dice,
    bridges: Vec<Bridge>,
    heard: Vec<Vec<Event>>,
    /// By arrival and then by when it was sent.
    air: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    loss: f64,
    duplication: f64,
    jitter_ms: u64,
    /// Directions that are dead: from, to.
    cut: Vec<(usize, usize)>,
}

impl World {
    fn new(bridges: usize, seed: u8) -> Self {
        let start = Instant::now();
        let mut dice = Dice::new([seed; 32]);
        let config = Config { world: WORLD, peer: carrier() };
        let bridges: Vec<Bridge> = (0..bridges).map(|_| Bridge::new(config, dice.bytes(), start)).collect();
        let heard = bridges.iter().map(|_| Vec::new()).collect();
        let air = BTreeMap::new();
        Self {
            start,
            now: start,
            dice,
            bridges,
            heard,
            air,
            sent: 0,
            loss: 0.0,
            duplication: 0.0,
            jitter_ms: 0,
            cut: vec![],
        }
    }

    fn rough(bridges: usize, seed: u8) -> Self {
        Self { loss: 0.3, duplication: 0.2, jitter_ms: 300, ..Self::new(bridges, seed) }
    }

    fn drain(&mut self) {
        for from in 0..self.bridges.len() {
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            while self.bridges[from].poll_transmit(self.now, &mut out) {}
            while let Some(event) = self.bridges[from].poll_event() {
                self.heard[from].push(event);
            }
            for (path, datagram) in out {
                assert_eq!(path, carrier());
                for to in (0..self.bridges.len()).filter(|to| *to != from) {
                    self.carry(from, to, &datagram);
                }
            }
        }
    }

    fn carry(&mut self, from: usize, to: usize, datagram: &[u8]) {
        if self.cut.contains(&(from, to)) || self.dice.chance(self.loss) {
            return;
        }
        let copies = if self.dice.chance(self.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_millis(5 + self.dice.below(self.jitter_ms + 1));
            self.sent += 1;
            self.air.insert((self.now + delay, self.sent), (to, datagram.to_vec()));
        }
    }

    /// Runs until `until` after the start, jumping from deadline to deadline.
    fn run(&mut self, until: Duration) {
        let end = self.start + until;
        let mut idle = 0;
        loop {
            self.drain();
            let wake = self.bridges.iter().filter_map(Bridge::poll_timeout).min();
            let arrival = self.air.keys().next().map(|key| key.0);
            let (timer, reason) = wake.expect("a bridge always has a next keepalive");
            let next = timer.min(arrival.unwrap_or(timer));
            idle = if next <= self.now { idle + 1 } else { 0 };
            assert!(idle < 10, "nothing moves: {reason}");
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.air.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, datagram) = entry.remove();
                // Refusals are part of a rough link: what comes too early or again.
                let _ = self.bridges[to].handle_datagram(self.now, carrier(), &datagram);
            }
            for bridge in &mut self.bridges {
                bridge.handle_timeout(self.now);
            }
        }
    }

    fn run_for(&mut self, time: Duration) {
        self.run(self.now + time - self.start);
    }

    fn say(&mut self, who: usize, text: &str) {
        self.bridges[who].send_event(self.now, text).unwrap();
    }

    /// Texts `to` heard from `from`, in order.
    fn texts(&self, to: usize, from: usize) -> Vec<String> {
        let whose = self.bridges[from].session();
        let text = |event: &Event| match event {
            Event::Text { session, text } if *session == whose => Some(text.clone()),
            _ => None,
        };
        self.heard[to].iter().filter_map(text).collect()
    }

    fn count(&self, at: usize, pick: impl Fn(&Event) -> bool) -> usize {
        self.heard[at].iter().filter(|event| pick(event)).count()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn two_bridges_find_each_other_and_then_only_keep_alive() {
    let mut world = World::new(2, 1);
    world.run(2 * SECOND);
    let (a, b) = (world.bridges[0].session(), world.bridges[1].session());
    assert_eq!(world.heard[0], [Event::SenderJoined { session: b }]);
    assert_eq!(world.heard[1], [Event::SenderJoined { session: a }]);
    let before = world.bridges[0].stats().keepalives;
    world.run_for(10 * SECOND);
    let sent = world.bridges[0].stats().keepalives - before;
    assert!((19..=21).contains(&sent), "one each half second, not {sent}");
}

#[test]
fn over_a_rough_link_every_text_comes_once_and_in_order() {
    for seed in 0..20 {
        let mut world = World::rough(2, seed);
        let mut said = [Vec::new(), Vec::new()];
        for n in 0..200 {
            for (who, said) in said.iter_mut().enumerate() {
                let text = format!("{who}:{n}");
                world.say(who, &text);
                said.push(text);
            }
            world.run_for(Duration::from_millis(40));
        }
        world.run_for(40 * SECOND);
        assert_eq!(world.texts(1, 0), said[0], "seed {seed}");
        assert_eq!(world.texts(0, 1), said[1], "seed {seed}");
        assert_eq!(world.bridges.iter().map(Bridge::pending).sum::<usize>(), 0, "seed {seed}");
    }
}

/// Pain 96: with one stream for all senders, order and acknowledgement meant nothing among three.
#[test]
fn among_four_each_hears_each_once_and_in_order() {
    for seed in 0..20 {
        let mut world = World::rough(4, seed);
        // Acquainted first: what all of those known have is not kept for somebody still to come.
        world.run(5 * SECOND);
        for n in 0..60 {
            for who in 0..4 {
                world.say(who, &format!("{who}:{n}"));
            }
            world.run_for(Duration::from_millis(100));
        }
        world.run_for(40 * SECOND);
        for (to, from) in (0..4).flat_map(|to| (0..4).map(move |from| (to, from))) {
            let want: Vec<_> = (0..60).filter(|_| to != from).map(|n| format!("{from}:{n}")).collect();
            assert_eq!(world.texts(to, from), want, "{from} to {to}, seed {seed}");
        }
    }
}

#[test]
fn on_a_clean_link_acknowledgements_come_before_any_resend() {
    let mut world = World::new(2, 1);
    world.run(SECOND);
    for n in 0..100 {
        world.say(n % 2, "x");
        world.run_for(Duration::from_millis(70));
    }
    world.run_for(5 * SECOND);
    for bridge in &world.bridges {
        let stats = bridge.stats();
        assert_eq!((stats.sent, stats.resent, stats.received, stats.duplicates), (50, 0, 50, 0));
    }
}

#[test]
fn long_texts_arrive_whole_over_a_rough_link() {
    let mut world = World::rough(2, 7);
    let long: String = (0..30_000).map(|n| if n % 7 == 0 { '\u{6771}' } else { 'x' }).collect();
    for text in ["", "short", &long, "after"] {
        world.say(0, text);
    }
    world.run(60 * SECOND);
    assert_eq!(world.texts(1, 0), ["", "short", &long, "after"]);
}

#[test]
fn what_is_said_before_anybody_is_there_waits_for_the_first() {
    let mut world = World::new(2, 1);
    world.cut = vec![(0, 1), (1, 0)];
    world.say(0, "early");
    world.run(20 * SECOND);
    assert_eq!(world.bridges[0].stats().sent, 0);
    world.cut.clear();
    world.run_for(SECOND);
    assert_eq!(world.texts(1, 0), ["early"]);
}

#[test]
fn a_late_receiver_starts_at_the_oldest_kept_and_hears_all_from_there() {
    let mut world = World::new(3, 1);
    world.cut = vec![(0, 2), (1, 2), (2, 0), (2, 1)];
    for n in 0..50 {
        world.say(0, &format!("{n}"));
    }
    world.run(5 * SECOND);
    world.cut.clear();
    world.run_for(SECOND);
    for n in 50..100 {
        world.say(0, &format!("{n}"));
    }
    world.run_for(5 * SECOND);
    assert_eq!(world.texts(1, 0), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(world.texts(2, 0), (50..100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(world.count(2, |event| matches!(event, Event::Gap { .. })), 0);
}

#[test]
fn a_sender_is_gone_after_ten_silent_seconds_and_goes_on_when_it_returns() {
    let mut world = World::new(2, 1);
    world.say(0, "one");
    world.run(3 * SECOND);
    world.cut = vec![(0, 1)];
    world.say(0, "two");
    world.run_for(Duration::from_millis(9_400));
    assert_eq!(world.count(1, |event| matches!(event, Event::SenderGone { .. })), 0);
    world.run_for(SECOND);
    assert_eq!(world.count(1, |event| matches!(event, Event::SenderGone { .. })), 1);
    assert!(world.bridges[1].senders().is_empty());
    world.cut.clear();
    world.run_for(2 * SECOND);
    assert_eq!(world.count(1, |event| matches!(event, Event::SenderJoined { .. })), 2);
    assert_eq!(world.texts(1, 0), ["one", "two"]);
}

#[test]
fn acknowledgements_lost_around_a_silence_bring_nothing_twice() {
    let mut world = World::new(2, 1);
    world.run(2 * SECOND);
    world.cut = vec![(1, 0)];
    for n in 0..10 {
        world.say(0, &format!("{n}"));
    }
    world.run_for(3 * SECOND);
    world.cut = vec![(0, 1), (1, 0)];
    world.run_for(15 * SECOND);
    world.cut.clear();
    world.run_for(5 * SECOND);
    assert_eq!(world.texts(1, 0), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(world.bridges[0].pending(), 0);
}

#[test]
fn a_sender_forgotten_while_silent_goes_on_where_it_was() {
    let mut world = World::new(2, 1);
    world.run(2 * SECOND);
    world.cut = vec![(1, 0)];
    for n in 0..3 {
        world.say(0, &format!("{n}"));
    }
    world.run_for(SECOND);
    world.cut = vec![(0, 1), (1, 0)];
    world.run_for(11 * SECOND);
    // Strangers fill the table, so that the silent one makes way.
    let (now, bridge) = (world.now, &mut world.bridges[1]);
    for session in 1..=300 {
        let _ = hand(bridge, now, header(session, 0), Body::Keepalive);
    }
    world.cut.clear();
    world.run_for(15 * SECOND);
    assert_eq!(world.count(1, |event| matches!(event, Event::SenderGone { .. })), 257, "strangers went too");
    assert_eq!(world.texts(1, 0), ["0", "1", "2"]);
    assert_eq!(world.bridges[0].pending(), 0, "what was handed out before is acknowledged");
    world.say(0, "3");
    world.run_for(SECOND);
    assert_eq!(world.texts(1, 0), ["0", "1", "2", "3"]);
}

#[test]
fn one_that_is_gone_no_longer_holds_up_the_others() {
    let mut world = World::new(3, 1);
    world.run(2 * SECOND);
    world.cut = vec![(0, 2), (2, 0), (1, 2), (2, 1)];
    for n in 0..100 {
        world.say(0, &format!("{n}"));
    }
    world.run_for(5 * SECOND);
    assert_eq!(world.texts(1, 0).len(), 32, "the window waits for the silent one");
    world.run_for(10 * SECOND);
    assert_eq!(world.texts(1, 0).len(), 100);
    assert_eq!(world.bridges[0].pending(), 0);
}

#[test]
fn a_dropped_backlog_is_counted_and_receivers_skip_it() {
    let mut world = World::new(2, 1);
    world.run(2 * SECOND);
    for n in 0..=PENDING_MAX {
        world.say(0, &format!("{n}"));
    }
    world.run_for(2 * SECOND);
    assert_eq!(world.bridges[0].stats().dropped, PENDING_MAX as u64);
    assert_eq!(world.texts(1, 0), [PENDING_MAX.to_string()]);
    assert_eq!(world.count(1, |event| matches!(event, Event::Gap { missing: 512, .. })), 1);
}

/// A batch with room for a few datagrams.
struct Small(Vec<(Path, Vec<u8>)>);

impl Outbox for Small {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        self.0.len() < 3 && self.0.datagram(path, len, fill)
    }
}

#[test]
fn a_full_batch_keeps_the_rest_due() {
    let mut world = World::new(2, 1);
    world.run(SECOND);
    for n in 0..8 {
        world.say(0, &format!("{n}"));
    }
    let now = world.now;
    let bridge = &mut world.bridges[0];
    let mut numbers = Vec::new();
    loop {
        let mut batch = Small(Vec::new());
        if !bridge.poll_transmit(now, &mut batch) {
            break;
        }
        for (_, datagram) in &batch.0 {
            let read = Datagram::parse(datagram).unwrap();
            numbers.extend(matches!(read.body, Body::Event { .. }).then_some(read.header.seq));
        }
        assert!(numbers.len() == 8 || bridge.poll_timeout().is_some_and(|(at, _)| at <= now));
    }
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
}

fn header(session: u32, seq: u32) -> Header {
    Header { world: WORLD, session, ack_session: 0, seq, ack: None, ack_bits: 0 }
}

fn hand(bridge: &mut Bridge, now: Instant, header: Header, body: Body<'_>) -> Result<(), Refused> {
    let datagram = Datagram { header, body };
    let mut bytes = vec![0; datagram.size()];
    datagram.write(&mut bytes);
    bridge.handle_datagram(now, carrier(), &bytes)
}

#[test]
fn invented_senders_are_bounded_and_the_silent_make_way() {
    let mut world = World::new(1, 1);
    let now = world.now;
    let bridge = &mut world.bridges[0];
    let flood = |bridge: &mut Bridge, now, first: u32| {
        (first..first + 1000).filter(|n| hand(bridge, now, header(*n, 0), Body::Keepalive).is_ok()).count()
    };
    assert_eq!(flood(bridge, now, 1), SENDERS_MAX);
    while bridge.poll_event().is_some() {}
    let later = now + 11 * SECOND;
    bridge.handle_timeout(later);
    assert!(bridge.senders().is_empty());
    while bridge.poll_event().is_some() {}
    assert_eq!(flood(bridge, later, 5000), SENDERS_MAX);
}

#[test]
fn a_game_that_does_not_fetch_is_not_flooded() {
    let mut world = World::new(1, 1);
    let now = world.now;
    let bridge = &mut world.bridges[0];
    hand(bridge, now, header(9, 0), Body::Keepalive).unwrap();
    let body = Body::Event { index: 0, count: 1, text: b"x" };
    let taken = (0..5000).filter(|seq| hand(bridge, now, header(9, *seq), body).is_ok()).count();
    assert!(taken < 1100);
    assert!(bridge.poll_timeout().is_some_and(|(at, _)| at <= now));
    while bridge.poll_event().is_some() {}
    let next = u32::try_from(taken).unwrap();
    assert_eq!(hand(bridge, now, header(9, next), body), Ok(()), "what was refused is taken when it comes again");
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_datagrams_leave_a_working_machine(
            inputs in prop::collection::vec(
                (1..4u32, 0..3u8, any::<u32>(), any::<u32>(), 0..6u16, 0..6u16, any::<Vec<u8>>(), 0..3000u64), 0..200),
        ) {
            let mut world = World::new(1, 1);
            let mut now = world.now;
            let bridge = &mut world.bridges[0];
            for (session, kind, seq, ack, index, count, text, wait) in inputs {
                now += Duration::from_millis(wait);
                bridge.handle_timeout(now);
                let seq = if kind == 0 { seq } else { seq % 100 };
                let own = Header { ack_session: bridge.session(), ack: Some(ack % 40), ack_bits: ack, ..header(session, seq) };
                let body = if kind < 2 { Body::Keepalive } else { Body::Event { index, count, text: &text } };
                let _ = hand(bridge, now, own, body);
                let _ = bridge.handle_datagram(now, carrier(), &text);
                let _ = bridge.send_event(now, "said");
                let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
                while bridge.poll_transmit(now, &mut out) {}
                while bridge.poll_event().is_some() {}
                prop_assert!(out.iter().all(|(_, datagram)| Datagram::parse(datagram).is_ok()));
                prop_assert!(bridge.poll_timeout().is_some_and(|(at, _)| at > now));
                prop_assert!(bridge.pending() <= PENDING_MAX);
            }
        }
    }
}
