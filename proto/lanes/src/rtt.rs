//! Round trip, its deviation, and the share of frames that were lost.

use std::time::Duration;

/// How long an acknowledgement may wait for company.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(10);
/// Before a first sample.
const FIRST: Duration = Duration::from_millis(250);
const LEAST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_secs(2);
/// Outcomes of frames that the share of losses looks back on, and how many it needs.
const OUTCOMES: u32 = 256;
const OUTCOMES_LEAST: u32 = 16;

/// Smoothed as in RFC 6298.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    pub(crate) smoothed: Option<Duration>,
    pub(crate) deviation: Duration,
    latest: Duration,
    outcomes: f32,
    lost: f32,
}

impl Rtt {
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.deviation = sample / 2;
            }
            Some(smoothed) => {
                let off = smoothed.abs_diff(sample);
                self.deviation = (self.deviation * 3 + off) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// After this long without an acknowledgement something was lost.
    pub(crate) fn timeout(&self, backoff: u32) -> Duration {
        let base = self.smoothed.map_or(FIRST, |smoothed| smoothed + (self.deviation * 4) + ACK_DELAY);
        base.clamp(LEAST, MOST).saturating_mul(1 << backoff.min(6)).min(MOST)
    }

    /// After this long a frame counts as lost when a later one arrived (RFC 8985, with QUIC's nine eighths).
    pub(crate) fn reordering(&self) -> Duration {
        let base = self.smoothed.map_or(FIRST, |smoothed| smoothed.max(self.latest));
        (base * 9 / 8 + self.deviation).max(Duration::from_millis(2))
    }

    pub(crate) fn outcome(&mut self, lost: bool) {
        let most = f32::from(u16::try_from(OUTCOMES).unwrap_or(u16::MAX));
        if self.outcomes >= most {
            let keep = (most - 1.0) / most;
            self.outcomes *= keep;
            self.lost *= keep;
        }
        self.outcomes += 1.0;
        if lost {
            self.lost += 1.0;
        }
    }

    /// A frame that counted as lost was only late.
    pub(crate) fn was_late(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
    }

    pub(crate) fn loss(&self) -> Option<f32> {
        let least = f32::from(u16::try_from(OUTCOMES_LEAST).unwrap_or(u16::MAX));
        (self.outcomes >= least).then(|| self.lost / self.outcomes)
    }
}
