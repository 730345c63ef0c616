//! One direction of a wire.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use seam::Dice;

/// Most datagrams in flight on one link.
const HELD_MAX: usize = 16_384;
/// Most bytes in flight on one link.
const HELD_BYTES_MAX: usize = 32 << 20;

/// How datagrams get lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None does.
    #[default]
    None,
    /// Each with this probability, independent of the others.
    Random(f64),
    /// In bursts (Gilbert and Elliott): the wire is good or bad, and changes its mind once per datagram.
    Bursts {
        /// Probability that a good wire turns bad.
        enter: f64,
        /// Probability that a bad wire turns good; bursts are `1 / leave` datagrams long on average.
        leave: f64,
        /// Loss while the wire is good.
        good: f64,
        /// Loss while it is bad.
        bad: f64,
    },
}

/// What a link does to its datagrams. The default passes them on at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// Loss.
    pub loss: Loss,
    /// Time in flight.
    pub delay: Duration,
    /// Up to this much more, drawn anew for every datagram: they may overtake each other.
    pub jitter: Duration,
    /// Probability that a datagram is held back by `hold`, so that those behind it arrive first.
    pub reorder: f64,
    /// How long such a datagram is held back.
    pub hold: Duration,
    /// Probability that a datagram arrives twice, each copy with a flight time of its own.
    pub duplicate: f64,
    /// Bits per second, when limited.
    pub rate: Option<u64>,
    /// Bytes that may wait for the rate; what comes then is dropped at the tail.
    pub queue: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            loss: Loss::None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: 0.0,
            hold: Duration::from_millis(20),
            duplicate: 0.0,
            rate: None,
            queue: 256 << 10,
        }
    }
}

/// What became of the datagrams given to a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Given to the link.
    pub sent: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped because a queue was full.
    pub overflowed: u64,
    /// Delivered once more than sent.
    pub duplicated: u64,
    /// Held back behind others.
    pub reordered: u64,
    /// Taken out at the far end.
    pub delivered: u64,
}

/// The size of a thing on the wire.
pub trait Weigh {
    /// Bytes.
    fn weight(&self) -> usize;
}

impl Weigh for Vec<u8> {
    fn weight(&self) -> usize {
        self.len()
    }
}

/// Bytes with a label, such as a path.
impl<L, B: Weigh> Weigh for (L, B) {
    fn weight(&self) -> usize {
        self.1.weight()
    }
}

/// Bytes with two labels, such as source and destination.
impl<L, M, B: Weigh> Weigh for (L, M, B) {
    fn weight(&self) -> usize {
        self.2.weight()
    }
}

/// One direction of a wire. At most 16,384 datagrams and 32 MiB are in flight; what comes then is dropped and counted.
///
/// ```
/// # use std::time::{Duration, Instant};
/// use anywire_netem::{Link, LinkConfig};
/// # fn demo(now: Instant) {
/// let ms = Duration::from_millis;
/// let mut link = Link::new(LinkConfig { delay: ms(30), ..LinkConfig::default() }, [1; 32]);
/// link.push(now, b"hello".to_vec());
/// assert_eq!(link.pop(now + ms(29)), None);
/// assert_eq!(link.pop(now + ms(30)), Some(b"hello".to_vec()));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Link<T = Vec<u8>> {
    config: LinkConfig,
    dice: Dice,
    /// Arrivals in order; the number keeps datagrams of one instant in the order they were sent.
    flight: BTreeMap<(Instant, u64), T>,
    flight_bytes: usize,
    next: u64,
    /// Whether the wire is in a burst of loss.
    bad: bool,
    /// When the last datagram has left the sender's end.
    busy_until: Option<Instant>,
    traffic: Traffic,
}

impl<T: Weigh + Clone> Link<T> {
    /// A link with its own stream of chance.
    #[must_use]
    pub fn new(config: LinkConfig, seed: [u8; 32]) -> Self {
        Self {
            config,
            dice: Dice::new(seed),
            flight: BTreeMap::new(),
            flight_bytes: 0,
            next: 0,
            bad: false,
            busy_until: None,
            traffic: Traffic::default(),
        }
    }

    /// Changes what the link does from the next datagram on; what is in flight stays as it is.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// What the link does.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What became of the datagrams so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Sends a datagram.
    pub fn push(&mut self, now: Instant, item: T) {
        self.traffic.sent += 1;
        let Some(departure) = self.departure(now, item.weight()) else {
            self.traffic.overflowed += 1;
            return;
        };
        if self.is_lost() {
            self.traffic.lost += 1;
            return;
        }
        if self.dice.chance(self.config.duplicate) {
            self.traffic.duplicated += 1;
            self.fly(departure, item.clone());
        }
        self.fly(departure, item);
    }

    /// The next datagram that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<T> {
        let entry = self.flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        let item = entry.remove();
        self.flight_bytes = self.flight_bytes.saturating_sub(item.weight());
        self.traffic.delivered += 1;
        Some(item)
    }

    /// When the next datagram arrives.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.flight.first_key_value().map(|((due, _), _)| (*due, "a datagram arrives"))
    }

    /// When a datagram of `size` bytes has left the sender; `None` when it finds the queue full.
    fn departure(&mut self, now: Instant, size: usize) -> Option<Instant> {
        let Some(rate) = self.config.rate.filter(|rate| *rate > 0) else { return Some(now) };
        let start = self.busy_until.map_or(now, |busy| busy.max(now));
        let waiting = start.duration_since(now).as_nanos() * u128::from(rate) / 8_000_000_000;
        let queue = u128::try_from(self.config.queue).unwrap_or(u128::MAX);
        if waiting > 0 && waiting + bits(size) / 8 > queue {
            return None;
        }
        let takes = bits(size) * 1_000_000_000 / u128::from(rate);
        let departure = start.checked_add(Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX)))?;
        self.busy_until = Some(departure);
        Some(departure)
    }

    fn is_lost(&mut self) -> bool {
        match self.config.loss {
            Loss::None => false,
            Loss::Random(share) => self.dice.chance(share),
            Loss::Bursts { enter, leave, good, bad } => {
                let turns = self.dice.chance(if self.bad { leave } else { enter });
                self.bad ^= turns;
                self.dice.chance(if self.bad { bad } else { good })
            }
        }
    }

    fn fly(&mut self, departure: Instant, item: T) {
        let size = item.weight();
        if self.flight.len() >= HELD_MAX || self.flight_bytes + size > HELD_BYTES_MAX {
            self.traffic.overflowed += 1;
            return;
        }
        let jitter = u64::try_from(self.config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let mut arrival = departure + self.config.delay + Duration::from_nanos(self.dice.below(jitter));
        if self.dice.chance(self.config.reorder) {
            self.traffic.reordered += 1;
            arrival += self.config.hold;
        }
        self.flight.insert((arrival, self.next), item);
        self.flight_bytes += size;
        self.next += 1;
    }
}

fn bits(size: usize) -> u128 {
    u128::try_from(size).unwrap_or(u128::MAX / 8).saturating_mul(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Sends `count` numbered datagrams `every` apart; what arrived, as (number, when since the start).
    fn run(config: LinkConfig, seed: u8, count: u32, every: Duration) -> (Vec<(u32, Duration)>, Traffic) {
        let start = Instant::now();
        let mut link = Link::new(config, [seed; 32]);
        let mut got = Vec::new();
        let drain = |link: &mut Link, until: Option<Instant>, got: &mut Vec<(u32, Duration)>| {
            while let Some((due, _)) = link.poll_timeout().filter(|(due, _)| until.is_none_or(|until| *due <= until)) {
                while let Some(bytes) = link.pop(due) {
                    got.push((u32::from_be_bytes(bytes[..4].try_into().unwrap()), due - start));
                }
            }
        };
        for n in 0..count {
            let now = start + every * n;
            drain(&mut link, Some(now), &mut got);
            let mut bytes = n.to_be_bytes().to_vec();
            bytes.resize(100, 0);
            link.push(now, bytes);
        }
        drain(&mut link, None, &mut got);
        (got, link.traffic())
    }

    fn numbers(got: &[(u32, Duration)]) -> Vec<u32> {
        got.iter().map(|(n, _)| *n).collect()
    }

    #[test]
    fn a_plain_link_delivers_all_in_order_after_exactly_its_delay() {
        let (got, traffic) = run(LinkConfig { delay: MS(30), ..LinkConfig::default() }, 1, 100, MS(1));
        assert_eq!(numbers(&got), (0..100).collect::<Vec<_>>());
        assert!(got.iter().all(|(n, at)| *at == MS(30) + MS(1) * *n));
        assert_eq!((traffic.sent, traffic.delivered, traffic.lost), (100, 100, 0));
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_another_gives_another() {
        let config = LinkConfig {
            loss: Loss::Random(0.2),
            jitter: MS(20),
            reorder: 0.1,
            duplicate: 0.1,
            ..LinkConfig::default()
        };
        assert_eq!(run(config, 4, 500, MS(1)), run(config, 4, 500, MS(1)));
        assert_ne!(run(config, 4, 500, MS(1)), run(config, 5, 500, MS(1)));
    }

    #[test]
    fn random_loss_is_near_its_share() {
        let (got, traffic) = run(LinkConfig { loss: Loss::Random(0.3), ..LinkConfig::default() }, 2, 10_000, MS(1));
        assert!((2_800..3_200).contains(&traffic.lost), "{traffic:?}");
        assert_eq!(got.len() as u64 + traffic.lost, 10_000);
    }

    #[test]
    fn bursts_lose_neighbours_together() {
        let share = |loss| {
            let (got, traffic) = run(LinkConfig { loss, ..LinkConfig::default() }, 3, 20_000, MS(1));
            let holes = numbers(&got).windows(2).filter(|pair| pair[1] != pair[0] + 1).count() as f64;
            (traffic.lost as f64 / 20_000.0, traffic.lost as f64 / holes)
        };
        // Both lose about a fifth; a burst averages 1 / leave = 10 datagrams.
        let (lost, run_length) = share(Loss::Bursts { enter: 0.025, leave: 0.1, good: 0.0, bad: 1.0 });
        assert!((0.15..0.25).contains(&lost), "{lost}");
        assert!((8.0..12.0).contains(&run_length), "{run_length}");
        let (_, alone) = share(Loss::Random(0.2));
        assert!(alone < 1.5, "{alone}");
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let (got, _) = run(LinkConfig { delay: MS(10), jitter: MS(5), ..LinkConfig::default() }, 6, 1_000, MS(20));
        let flights: Vec<Duration> = got.iter().map(|(n, at)| *at - MS(20) * *n).collect();
        assert!(flights.iter().all(|flight| (MS(10)..MS(15)).contains(flight)));
        assert!(flights.iter().any(|flight| *flight > MS(14)) && flights.iter().any(|flight| *flight < MS(11)));
    }

    #[test]
    fn a_reordered_datagram_arrives_behind_its_followers() {
        let (got, traffic) = run(LinkConfig { reorder: 0.1, ..LinkConfig::default() }, 7, 1_000, MS(1));
        assert_eq!(got.len(), 1_000);
        assert!(traffic.reordered > 50);
        assert!(numbers(&got).windows(2).any(|pair| pair[1] < pair[0]));
    }

    #[test]
    fn a_duplicate_is_one_more_copy() {
        let (got, traffic) = run(LinkConfig { duplicate: 0.25, ..LinkConfig::default() }, 8, 1_000, MS(1));
        assert_eq!(got.len() as u64, 1_000 + traffic.duplicated);
        assert!((200..300).contains(&traffic.duplicated));
    }

    #[test]
    fn a_rate_spaces_datagrams_and_a_full_queue_drops_the_tail() {
        // 100 bytes at 80 kbit/s take 10 ms each; five fit into the queue behind the one being sent.
        let config = LinkConfig { rate: Some(80_000), queue: 600, ..LinkConfig::default() };
        let (got, traffic) = run(config, 9, 20, Duration::ZERO);
        assert_eq!(numbers(&got), [0, 1, 2, 3, 4, 5]);
        assert_eq!(got.iter().map(|(_, at)| at.as_millis()).collect::<Vec<_>>(), [10, 20, 30, 40, 50, 60]);
        assert_eq!(traffic.overflowed, 14);
    }

    #[test]
    fn a_flight_is_bounded() {
        let (got, traffic) = run(LinkConfig { delay: MS(1_000), ..LinkConfig::default() }, 1, 20_000, Duration::ZERO);
        assert_eq!((got.len(), traffic.overflowed), (HELD_MAX, 20_000 - HELD_MAX as u64));
    }
}
