//! Counts by address range in a sliding minute, bounded in memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Prefix;

const WINDOW: Duration = Duration::from_secs(60);

/// Most ranges that are counted apart. When all are in use, a newcomer is refused rather than an offender forgotten.
const RANGES_MAX: usize = 65_536;

/// How often each range did something in the last minute: the count of the current minute plus the share of the one
/// before that the sliding minute still covers. Never more than `limit` in the first minute of a range.
#[derive(Debug, Default)]
pub struct Rates {
    counts: BTreeMap<Prefix, Count>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Count {
    since: Instant,
    now: u32,
    before: u32,
}

impl Rates {
    /// Whether every `(range, limit)` allows one more now. Counts only when all do; a limit of 0 is none.
    pub fn allow(&mut self, now: Instant, limits: &[(Prefix, u32)]) -> bool {
        self.sweep(now);
        let fits = limits.iter().all(|(range, limit)| *limit == 0 || self.used(now, *range) < *limit);
        let room = self.counts.len() + limits.len() <= RANGES_MAX
            || limits.iter().all(|(range, limit)| *limit == 0 || self.counts.contains_key(range));
        if fits && room {
            for (range, _) in limits.iter().filter(|(_, limit)| *limit > 0) {
                let count = self.counts.entry(*range).or_insert(Count { since: now, now: 0, before: 0 });
                count.now = count.now.saturating_add(1);
            }
        }
        fits && room
    }

    fn used(&mut self, now: Instant, range: Prefix) -> u32 {
        let Some(count) = self.counts.get_mut(&range) else { return 0 };
        let mut age = now.saturating_duration_since(count.since);
        if age >= WINDOW {
            count.before = if age < WINDOW * 2 { count.now } else { 0 };
            count.now = 0;
            count.since = if age < WINDOW * 2 { count.since + WINDOW } else { now };
            age = now.saturating_duration_since(count.since);
        }
        let left = u64::try_from(WINDOW.saturating_sub(age).as_millis()).unwrap_or(0);
        let share = u64::from(count.before) * left / 60_000;
        count.now.saturating_add(u32::try_from(share).unwrap_or(u32::MAX))
    }

    fn sweep(&mut self, now: Instant) {
        let due = self.swept.is_none_or(|at| now.saturating_duration_since(at) >= WINDOW);
        if due {
            self.swept = Some(now);
            self.counts.retain(|_, count| now.saturating_duration_since(count.since) < WINDOW * 2);
        }
    }

    /// Ranges counted now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(n: u32) -> Prefix {
        Prefix::caller(std::net::Ipv4Addr::from(n).into())
    }

    #[test]
    fn the_limit_is_exact_within_a_minute_and_returns_gradually() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut rates = Rates::default();
        let allowed = |rates: &mut Rates, s, n: u32| (0..n).filter(|_| rates.allow(at(s), &[(range(1), 40)])).count();
        assert_eq!(allowed(&mut rates, 0, 30), 30);
        assert_eq!(allowed(&mut rates, 30, 30), 10);
        assert_eq!(allowed(&mut rates, 59, 5), 0);
        assert_eq!(allowed(&mut rates, 90, 100), 20);
        assert_eq!(allowed(&mut rates, 600, 100), 40);
    }

    #[test]
    fn a_refusal_by_one_range_counts_in_none() {
        let now = Instant::now();
        let mut rates = Rates::default();
        assert!(rates.allow(now, &[(range(1), 1), (range(9), 10)]));
        assert!((0..20).all(|_| !rates.allow(now, &[(range(1), 1), (range(9), 10)])));
        assert_eq!((0..20).filter(|_| rates.allow(now, &[(range(9), 10)])).count(), 9);
    }

    #[test]
    fn a_flood_of_addresses_is_bounded_and_forgotten() {
        let now = Instant::now();
        let mut rates = Rates::default();
        let allowed = (0..100_000).filter(|n| rates.allow(now, &[(range(*n), 5)])).count();
        assert!(allowed <= RANGES_MAX && rates.len() <= RANGES_MAX);
        assert!(rates.allow(now + WINDOW * 3, &[(range(200_000), 5)]));
        assert_eq!(rates.len(), 1);
    }
}
