//! One direction of a link: delay, jitter, loss, duplication, reordering, rate.

use std::time::{Duration, Instant};

use crate::rng::Rng;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinkConfig {
    pub(crate) delay: Duration,
    /// Uniform, plus or minus. Packets stay in order.
    pub(crate) jitter: Duration,
    /// Share of packets lost, 0 to 1.
    pub(crate) loss: f64,
    /// Mean number of packets lost in a row.
    pub(crate) burst: f64,
    pub(crate) duplicate: f64,
    /// Share of packets held back so that later ones overtake them.
    pub(crate) reorder: f64,
    /// Bits a second; 0 for no limit.
    pub(crate) rate: u64,
    /// How much time's worth of packets waits before the rate limit.
    pub(crate) queue: Duration,
    /// Hops that crossing this link costs a packet.
    pub(crate) hops: u8,
    pub(crate) up: bool,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: 1.0,
            duplicate: 0.0,
            reorder: 0.0,
            rate: 0,
            queue: Duration::from_millis(200),
            hops: 1,
            up: true,
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) overflowed: u64,
}

pub(crate) struct Pipe {
    pub(crate) cfg: LinkConfig,
    pub(crate) count: Counters,
    rng: Rng,
    busy_until: Option<Instant>,
    last_out: Option<Instant>,
    losing: bool,
}

/// When a packet comes out of the pipe: not at all, once or twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) first: Option<Instant>,
    pub(crate) second: Option<Instant>,
}

impl Pipe {
    pub(crate) fn new(cfg: LinkConfig, rng: Rng) -> Self {
        Pipe { cfg, count: Counters::default(), rng, busy_until: None, last_out: None, losing: false }
    }

    fn lost(&mut self) -> bool {
        let p = self.cfg.loss;
        if p <= 0.0 {
            return false;
        }
        if self.cfg.burst <= 1.0 {
            return self.rng.chance(p);
        }
        // Two states (Gilbert): losing packets ends with 1/burst, and starts
        // often enough that the share of losses comes out as asked.
        let end = 1.0 / self.cfg.burst;
        let start = (end * p / (1.0 - p).max(1e-9)).min(1.0);
        self.losing = if self.losing { !self.rng.chance(end) } else { self.rng.chance(start) };
        self.losing
    }

    pub(crate) fn pass(&mut self, now: Instant, bytes: usize) -> Exit {
        const NOT: Exit = Exit { first: None, second: None };
        if !self.cfg.up || self.lost() {
            self.count.lost += 1;
            return NOT;
        }
        let mut at = now;
        if self.cfg.rate > 0 {
            let start = self.busy_until.map_or(now, |b| b.max(now));
            let took = Duration::from_secs_f64(bytes as f64 * 8.0 / self.cfg.rate as f64);
            if start - now > self.cfg.queue {
                self.count.overflowed += 1;
                return NOT;
            }
            at = start + took;
            self.busy_until = Some(at);
        }
        self.count.packets += 1;
        self.count.bytes += bytes as u64;
        at += self.cfg.delay;
        if !self.cfg.jitter.is_zero() {
            let swing = self.cfg.jitter.mul_f64(2.0 * self.rng.unit());
            at = (at + swing).checked_sub(self.cfg.jitter).map_or(now, |t| t.max(now));
        }
        if self.rng.chance(self.cfg.reorder) {
            let held = Duration::from_millis(10).max(self.cfg.jitter * 2);
            return Exit { first: Some(at + held), second: None };
        }
        if let Some(last) = self.last_out {
            at = at.max(last);
        }
        self.last_out = Some(at);
        let second = self.rng.chance(self.cfg.duplicate).then_some(at);
        Exit { first: Some(at), second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(edit: impl Fn(&mut LinkConfig)) -> Pipe {
        let mut cfg = LinkConfig::default();
        edit(&mut cfg);
        Pipe::new(cfg, Rng::new(7))
    }

    #[test]
    fn delay_and_jitter_stay_in_bounds_and_in_order() {
        let mut p = pipe(|c| {
            c.delay = Duration::from_millis(20);
            c.jitter = Duration::from_millis(5);
        });
        let mut now = Instant::now();
        let mut last = now;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            let at = p.pass(now, 100).first.unwrap();
            assert!(at >= last);
            assert!(at - now >= Duration::from_millis(15));
            assert!(at - now <= Duration::from_millis(25));
            last = at;
        }
    }

    #[test]
    fn losses_come_out_as_asked() {
        for burst in [1.0, 4.0] {
            let mut p = pipe(|c| {
                c.loss = 0.1;
                c.burst = burst;
            });
            let now = Instant::now();
            let n = 40_000;
            let (mut lost, mut runs, mut before) = (0, 0, false);
            for _ in 0..n {
                let gone = p.pass(now, 100).first.is_none();
                lost += u32::from(gone);
                runs += u32::from(gone && !before);
                before = gone;
            }
            let share = f64::from(lost) / f64::from(n);
            assert!((0.085..0.115).contains(&share), "burst {burst}: {share}");
            let mean = f64::from(lost) / f64::from(runs);
            assert!((mean - burst).abs() < 0.6, "burst {burst}: mean run {mean}");
        }
    }

    #[test]
    fn the_rate_limit_spaces_packets_and_drops_when_full() {
        let mut p = pipe(|c| {
            c.rate = 8_000_000;
            c.queue = Duration::from_millis(10);
        });
        let now = Instant::now();
        let exits: Vec<_> = (0..30).map(|_| p.pass(now, 1000).first).collect();
        let through = exits.iter().flatten().count();
        assert_eq!(through, 11);
        assert_eq!(exits[4].unwrap() - now, Duration::from_millis(5));
        assert_eq!(p.count.overflowed, 19);
    }

    #[test]
    fn reordering_and_duplication_happen() {
        let mut p = pipe(|c| {
            c.reorder = 0.1;
            c.duplicate = 0.1;
        });
        let mut now = Instant::now();
        let (mut early, mut twice, mut last) = (0, 0, now);
        for _ in 0..2000 {
            now += Duration::from_millis(1);
            let e = p.pass(now, 10);
            let at = e.first.unwrap();
            early += u32::from(at < last);
            twice += u32::from(e.second.is_some());
            last = at;
        }
        assert!((100..300).contains(&early), "{early}");
        assert!((100..300).contains(&twice), "{twice}");
    }

    #[test]
    fn a_link_that_is_down_passes_nothing() {
        let mut p = pipe(|c| c.up = false);
        assert!(p.pass(Instant::now(), 1).first.is_none());
    }
}
