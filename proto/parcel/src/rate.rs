//! How fast a transfer goes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time a rate is taken over.
const SPAN: Duration = Duration::from_secs(3);
/// Between two samples.
const EVERY: Duration = Duration::from_millis(250);

/// Bytes per second over the last three seconds; 13 samples at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// So many bytes are through by now.
    pub(crate) fn set(&mut self, now: Instant, bytes: u64) {
        if self
            .samples
            .back()
            .is_some_and(|(at, before)| now.saturating_duration_since(*at) < EVERY && *before <= bytes)
        {
            return;
        }
        // Fewer than before: it began again.
        if self.samples.back().is_some_and(|(_, before)| *before > bytes) {
            self.samples.clear();
        }
        self.samples.push_back((now, bytes));
        while self.samples.len() > 2
            && self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= SPAN)
        {
            self.samples.pop_front();
        }
    }

    pub(crate) fn bytes_per_second(&self) -> u64 {
        let (Some((from, before)), Some((to, after))) = (self.samples.front(), self.samples.back()) else { return 0 };
        let millis = u64::try_from(to.saturating_duration_since(*from).as_millis()).unwrap_or(u64::MAX);
        after.saturating_sub(*before).saturating_mul(1000).checked_div(millis).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_transfer_has_its_rate_and_a_new_beginning_forgets_it() {
        let start = Instant::now();
        let mut rate = Rate::default();
        for n in 0..200u64 {
            rate.set(start + Duration::from_millis(50 * n), n * 50_000);
        }
        assert_eq!(rate.bytes_per_second(), 1_000_000);
        assert!(rate.samples.len() <= 14);
        rate.set(start + Duration::from_secs(11), 0);
        assert_eq!(rate.bytes_per_second(), 0);
    }
}
