//! One fixed-size table that limits answers to strangers. It holds no entry per stranger: an address hashes to a slot,
//! and addresses that share a slot share its allowance.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Token buckets by hashed address. Memory is fixed at creation: 16 bytes a slot.
#[derive(Clone, Debug)]
pub struct RateTable {
    slots: Box<[Slot]>,
    key: u64,
    burst: u32,
    every: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When the bucket is full again, as an offset from the table's start.
    full_at: Duration,
}

impl RateTable {
    /// A table of `slots` buckets, each of which allows `burst` answers at once and one more per `every`. `key` is
    /// secret, so that nobody can aim at another's slot.
    #[must_use]
    pub fn new(slots: usize, burst: u32, every: Duration, key: u64) -> Self {
        Self { slots: vec![Slot { full_at: Duration::ZERO }; slots.max(1)].into(), key, burst: burst.max(1), every }
    }

    /// Whether `who` may be answered now; an allowed answer is counted. `start` is any fixed instant of the owner's
    /// not after `now`.
    pub fn allow(&mut self, start: Instant, now: Instant, who: SocketAddr) -> bool {
        let index = self.index(who);
        let (every, burst) = (self.every, self.burst);
        let Some(slot) = self.slots.get_mut(index) else { return false };
        let now = now.saturating_duration_since(start);
        // Generic cell rate: each answer moves the instant of fullness one interval on, at most `burst` ahead.
        let next = slot.full_at.max(now) + every;
        if next > now + every * burst {
            return false;
        }
        slot.full_at = next;
        true
    }

    fn index(&self, who: SocketAddr) -> usize {
        let (high, low) = match who.ip() {
            IpAddr::V4(ip) => (0, u64::from(u32::from(ip))),
            IpAddr::V6(ip) => {
                let bits = u128::from(ip);
                (u64::try_from(bits >> 64).unwrap_or_default(), u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0))
            }
        };
        let mut hash = self.key;
        for part in [high, low, u64::from(who.port())] {
            hash = (hash ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^= hash >> 32;
            hash = hash.wrapping_mul(self.key | 1);
            hash ^= hash >> 29;
        }
        let slots = u64::try_from(self.slots.len()).unwrap_or(1);
        usize::try_from(hash % slots).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_one_per_interval() {
        let start = Instant::now();
        let who = SocketAddr::from(([198, 51, 100, 1], 4000));
        let mut table = RateTable::new(64, 3, Duration::from_secs(2), 99);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!([0, 0, 0, 0].map(|ms| table.allow(start, at(ms), who)), [true, true, true, false]);
        assert!(!table.allow(start, at(1_999), who));
        assert!(table.allow(start, at(2_000), who));
        assert!(!table.allow(start, at(2_001), who));
    }

    #[test]
    fn a_flood_of_addresses_gets_no_more_than_the_slots_allow() {
        let start = Instant::now();
        let mut table = RateTable::new(16, 1, Duration::from_secs(1), 5);
        let answered =
            (0..10_000u32).filter(|n| table.allow(start, start, SocketAddr::from((n.to_be_bytes(), 1)))).count();
        assert_eq!(answered, 16);
    }
}
