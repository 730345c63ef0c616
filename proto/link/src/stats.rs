//! Which way was first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// A packet that came on one way alone for this long came on no other.
const ALONE_AFTER: Duration = Duration::from_secs(3);
/// Packets of a player whose second copy is awaited; beyond them the oldest count as alone.
const PENDING_MAX: usize = 4096;
/// Delays kept for one line.
const LAGS_MAX: usize = 4096;

/// The way a copy came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// As a datagram.
    Udp,
    /// On the link.
    Tcp,
}

/// The arrivals of one player's sealed packets since the last line.
#[derive(Debug, Default)]
pub struct Arrivals {
    pending: BTreeMap<([u8; 4], u32), (Via, Instant)>,
    /// Every packet counted first, those whose second copy came among them.
    order: VecDeque<(Instant, [u8; 4], u32)>,
    firsts: [u64; 2],
    alone: [u64; 2],
    /// How much later the second copy came, by its way, in microseconds.
    later: [Vec<u32>; 2],
}

const fn index(via: Via) -> usize {
    match via {
        Via::Udp => 0,
        Via::Tcp => 1,
    }
}

impl Arrivals {
    /// A copy of packet `counter` of `salt` came; only of authentic packets, whether new or seen before.
    pub fn heard(&mut self, now: Instant, salt: [u8; 4], counter: u32, via: Via) {
        self.expire(now);
        match self.pending.remove(&(salt, counter)) {
            None => {
                add(&mut self.firsts, via);
                self.pending.insert((salt, counter), (via, now));
                self.order.push_back((now, salt, counter));
                if self.order.len() > PENDING_MAX {
                    self.drop_oldest();
                }
            }
            // The same way twice: a duplicate of the network says nothing about the other way.
            Some((first, at)) if first == via => {
                self.pending.insert((salt, counter), (first, at));
            }
            Some((_, at)) => {
                let lag = u32::try_from(now.saturating_duration_since(at).as_micros()).unwrap_or(u32::MAX);
                if let Some(lags) = self.later.get_mut(index(via)).filter(|lags| lags.len() < LAGS_MAX) {
                    lags.push(lag);
                }
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(at, _, _)| now.saturating_duration_since(*at) >= ALONE_AFTER) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, salt, counter)) = self.order.pop_front()
            && let Some((via, _)) = self.pending.remove(&(salt, counter))
        {
            add(&mut self.alone, via);
        }
    }

    /// Packets whose first copy came by `via`.
    #[must_use]
    pub fn firsts(&self, via: Via) -> u64 {
        self.firsts.get(index(via)).copied().unwrap_or_default()
    }

    /// Packets that came by `via` alone.
    #[must_use]
    pub fn alone(&self, via: Via) -> u64 {
        self.alone.get(index(via)).copied().unwrap_or_default()
    }

    /// Ends a line: what was counted, and zeros from now on. Copies still awaited stay awaited.
    pub fn take(&mut self, now: Instant) -> Self {
        self.expire(now);
        Self {
            firsts: std::mem::take(&mut self.firsts),
            alone: std::mem::take(&mut self.alone),
            later: std::mem::take(&mut self.later),
            ..Self::default()
        }
    }

    /// Whether nothing came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.firsts == [0, 0] && self.alone == [0, 0]
    }
}

fn add(counts: &mut [u64; 2], via: Via) {
    if let Some(count) = counts.get_mut(index(via)) {
        *count += 1;
    }
}

impl fmt::Display for Arrivals {
    /// The line of netpunch wire, section 13, without its beginning and its `queue_drops`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (udp, tcp) = (self.firsts(Via::Udp), self.firsts(Via::Tcp));
        let share = |count: u64| count * 100 / (udp + tcp).max(1);
        write!(f, "udp_first={udp} tcp_first={tcp}")?;
        for (name, via) in [("tcp_only", Via::Tcp), ("udp_only", Via::Udp)] {
            write!(f, " {name}={} ({}%)", self.alone(via), share(self.alone(via)))?;
        }
        let [udp_later, tcp_later] = &self.later;
        write!(f, "; tcp later by {}, udp later by {}", Lags(tcp_later), Lags(udp_later))
    }
}

struct Lags<'a>(&'a [u32]);

impl fmt::Display for Lags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.to_vec();
        sorted.sort_unstable();
        let at = |part: usize| sorted.get(sorted.len() * part / 100).or(sorted.last()).copied().unwrap_or_default();
        let (p50, p90, max) = (at(50), at(90), at(100));
        let ms = |us: u32| f64::from(us) / 1000.0;
        write!(f, "p50={:.1}ms p90={:.1}ms max={:.1}ms (n={})", ms(p50), ms(p90), ms(max), sorted.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; 4] = [1, 2, 3, 4];

    #[test]
    fn a_line_tells_who_was_first_how_much_later_the_other_was_and_who_came_alone() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut arrivals = Arrivals::default();
        for n in 0..10 {
            arrivals.heard(at(0), SALT, n, Via::Udp);
        }
        for n in 0..8 {
            arrivals.heard(at(5), SALT, n, Via::Tcp);
        }
        arrivals.heard(at(10), SALT, 20, Via::Tcp);
        arrivals.heard(at(12), SALT, 20, Via::Udp);
        arrivals.heard(at(20), SALT, 21, Via::Tcp);
        let line = arrivals.take(at(4_000));
        assert_eq!(
            line.to_string(),
            "udp_first=10 tcp_first=2 tcp_only=1 (8%) udp_only=2 (16%); tcp later by p50=5.0ms p90=5.0ms max=5.0ms \
             (n=8), udp later by p50=2.0ms p90=2.0ms max=2.0ms (n=1)"
        );
        assert!(arrivals.take(at(9_000)).is_empty());
    }

    #[test]
    fn the_same_way_twice_is_no_second_way() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        arrivals.heard(now, SALT, 1, Via::Udp);
        arrivals.heard(now, SALT, 1, Via::Udp);
        let line = arrivals.take(now + ALONE_AFTER);
        assert_eq!((line.firsts(Via::Udp), line.alone(Via::Udp), line.firsts(Via::Tcp)), (1, 1, 0));
    }

    #[test]
    fn what_is_awaited_is_bounded() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        for n in 0..20_000 {
            arrivals.heard(now, SALT, n, Via::Udp);
        }
        assert_eq!((arrivals.pending.len(), arrivals.order.len()), (PENDING_MAX, PENDING_MAX));
        assert_eq!(arrivals.alone(Via::Udp), 20_000 - PENDING_MAX as u64);
    }
}
