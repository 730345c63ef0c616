//! Contestants that take turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// One way of doing the work under comparison.
pub struct Contestant<'a> {
    /// As it appears in the table.
    pub name: String,
    /// Does the work that many times.
    pub work: Box<dyn FnMut(u64) + 'a>,
}

impl<'a> Contestant<'a> {
    /// A contestant that does its work once per call of `once`.
    pub fn new<T>(name: impl Into<String>, mut once: impl FnMut() -> T + 'a) -> Self {
        let work = move |times| {
            for _ in 0..times {
                black_box(once());
            }
        };
        Self { name: name.into(), work: Box::new(work) }
    }
}

/// What a run is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time as it passes: for work that waits.
    Wall,
    /// Time on a processor: for work that only computes, so that neighbours on the machine count less. Where the
    /// system does not tell it, the wall clock stands in.
    Processor,
}

impl Clock {
    /// Time since some fixed moment.
    fn read(self, start: Instant) -> Duration {
        match self {
            Self::Processor if cfg!(unix) => crate::machine::cpu_time(),
            Self::Processor | Self::Wall => start.elapsed(),
        }
    }
}

/// What one contestant needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Of the contestant.
    pub name: String,
    /// Nanoseconds for the work once, one entry per run in the order they were run.
    pub runs: Vec<f64>,
}

impl Score {
    /// The middle run.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.runs)
    }

    /// The median over runs of how many times longer this took than `other` in the same run.
    #[must_use]
    pub fn ratio(&self, other: &Self) -> f64 {
        median(&self.runs.iter().zip(&other.runs).map(|(a, b)| a / b).collect::<Vec<_>>())
    }
}

/// Lets the contestants take turns, `runs` times each for about `each`, so that whatever else the machine does hits
/// all of them alike. Scores come back in the order of the contestants.
pub fn interleaved(clock: Clock, runs: usize, each: Duration, contestants: &mut [Contestant<'_>]) -> Vec<Score> {
    let batches: Vec<u64> = contestants.iter_mut().map(|contestant| batch(contestant, clock, each)).collect();
    let mut scores: Vec<Score> =
        contestants.iter().map(|contestant| Score { name: contestant.name.clone(), runs: Vec::new() }).collect();
    for _ in 0..runs {
        for ((contestant, score), times) in contestants.iter_mut().zip(&mut scores).zip(&batches) {
            let took = timed(contestant, clock, *times);
            #[allow(clippy::cast_precision_loss, reason = "batches are far below 2^52")]
            score.runs.push(took.as_secs_f64() * 1e9 / *times as f64);
        }
    }
    scores
}

/// How often a contestant's work fits into `each`, found by doubling, which warms it up as well.
fn batch(contestant: &mut Contestant<'_>, clock: Clock, each: Duration) -> u64 {
    let mut times = 1;
    loop {
        let took = timed(contestant, clock, times);
        if took * 2 >= each || times >= 1 << 40 {
            return times.max(1);
        }
        times *= 2;
    }
}

fn timed(contestant: &mut Contestant<'_>, clock: Clock, times: u64) -> Duration {
    let start = Instant::now();
    let before = clock.read(start);
    (contestant.work)(times);
    clock.read(start).saturating_sub(before)
}

/// The middle value; the lower of two middles, 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_taken_run_by_run() {
        let score = |runs: &[f64]| Score { name: String::new(), runs: runs.to_vec() };
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[])), (2.0, 0.0));
        let (slow, fast) = (score(&[4.0, 60.0, 6.0]), score(&[2.0, 30.0, 2.0]));
        assert_eq!((slow.median(), slow.ratio(&fast)), (6.0, 2.0));
    }

    #[test]
    fn contestants_take_turns() {
        let order = std::cell::RefCell::new(Vec::new());
        let turn = |name: &'static str| {
            let order = &order;
            Contestant { name: name.to_owned(), work: Box::new(move |_| order.borrow_mut().push(name)) }
        };
        let scores = interleaved(Clock::Wall, 3, Duration::ZERO, &mut [turn("a"), turn("b")]);
        assert_eq!(scores.iter().map(|score| score.runs.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b", "a", "b"]);
    }
}
