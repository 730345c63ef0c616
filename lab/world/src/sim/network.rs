//! Datagrams on their way, with seeded faults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use seam::{Dice, PooledBuf};

use super::strangers::is_stranger;

/// What a network does to datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Share of datagrams that vanish.
    pub loss: f64,
    /// Share that arrives twice.
    pub duplicate: f64,
    /// Least time on the way.
    pub delay: Duration,
    /// Up to this much more; datagrams overtake each other.
    pub jitter: Duration,
}

struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// A flat network in which every address reaches every other, unless a pair is cut.
pub struct Network {
    /// What happens to datagrams from now on.
    pub faults: Faults,
    dice: Dice,
    flights: BTreeMap<(Instant, u64), Flight>,
    count: u64,
    cut: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Bytes put on the wire so far.
    pub bytes: u64,
    /// What was sent to addresses outside of the session.
    pub outside: Vec<Vec<u8>>,
}

impl Network {
    /// A network without traffic.
    #[must_use]
    pub fn new(faults: Faults, dice: Dice) -> Self {
        Self { faults, dice, flights: BTreeMap::new(), count: 0, cut: BTreeSet::new(), bytes: 0, outside: Vec::new() }
    }

    /// Nothing passes between these two any more.
    pub fn cut(&mut self, a: SocketAddr, b: SocketAddr) {
        self.cut.insert((a.min(b), a.max(b)));
    }

    /// Puts a datagram on its way.
    pub fn send(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.bytes += bytes.len() as u64;
        if is_stranger(to) {
            return self.outside.push(bytes);
        }
        if self.cut.contains(&(from.min(to), from.max(to))) || self.dice.chance(self.faults.loss) {
            return;
        }
        if self.dice.chance(self.faults.duplicate) {
            self.fly(now, from, to, bytes.clone());
        }
        self.fly(now, from, to, bytes);
    }

    /// Puts a datagram on its way that the faults spare.
    pub fn inject(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.fly(now, from, to, bytes);
    }

    fn fly(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let jitter = self.dice.below(self.faults.jitter.as_micros() as u64 + 1);
        let at = now + self.faults.delay + Duration::from_micros(jitter);
        self.count += 1;
        self.flights.insert((at, self.count), Flight { from, to, bytes });
    }

    /// When the next datagram arrives.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.flights.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next datagram that has arrived: from, to, bytes.
    pub fn arrived(&mut self, now: Instant) -> Option<(SocketAddr, SocketAddr, PooledBuf)> {
        let entry = self.flights.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let flight = entry.remove();
        Some((flight.from, flight.to, PooledBuf::from(flight.bytes.as_slice())))
    }
}
