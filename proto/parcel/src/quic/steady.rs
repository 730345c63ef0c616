//! Congestion control for files beside a game's frames.
//!
//! The rate and the round trip of the path are measured, as BBR does it (draft-cardwell-iccrg-bbr-congestion-control), and
//! as much is kept in flight as the path holds: a full path keeps a short queue, so that a frame finds it nearly empty,
//! and a lossy one is filled, because loss alone says nothing of its rate. What is lost is in flight all the same, so the
//! window grows by the share that is lost.
//!
//! ```text
//! begin    the window grows by what arrives, until three rounds bring no more, or a queue builds up
//! hold     window = gain x rate x round trip / (1 - loss); the gain is 1, in one round of eight 9/8 to look for more, as
//!          long as there is more, and in the next 7/8 to let the queue of that drain
//! ```

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

/// Rounds over which the highest rate counts.
const ROUNDS: usize = 10;
/// For so long the lowest round trip counts.
const TRIP_FOR: Duration = Duration::from_secs(10);
/// Gains of a round in eighths.
const GAINS: [u64; 8] = [9, 7, 8, 8, 8, 8, 8, 8];
/// Most loss that is made up for, in thousandths.
const LOSS_MAX: u64 = 400;
const WINDOW_FIRST: u64 = 64 << 10;
const WINDOW_MAX: u64 = 64 << 20;

/// Makes a controller for each connection.
#[derive(Debug, Default)]
pub(crate) struct SteadyConfig;

impl ControllerFactory for SteadyConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Steady::new(now, current_mtu))
    }
}

#[derive(Clone, Debug)]
enum Phase {
    /// The best rate so far, and rounds that did not better it by a quarter.
    Begin {
        best: u64,
        same: u32,
    },
    Hold {
        turn: usize,
    },
}

/// One round: until a packet sent after its beginning is acknowledged.
#[derive(Clone, Debug)]
struct Round {
    began: Instant,
    ends_at: u64,
    acked: u64,
    lost: u64,
    /// Lowest round trip seen in it.
    trip: Option<Duration>,
    limited: bool,
}

#[derive(Clone, Debug)]
struct Steady {
    mtu: u64,
    phase: Phase,
    round: Round,
    last_sent: u64,
    /// Bytes per second of the last rounds.
    rates: VecDeque<u64>,
    trip: Option<(Duration, Instant)>,
    /// Share lost, in thousandths.
    loss: u64,
    window: u64,
}

impl Steady {
    fn new(now: Instant, mtu: u16) -> Self {
        Self {
            mtu: u64::from(mtu),
            phase: Phase::Begin { best: 0, same: 0 },
            round: Round::new(now, 0),
            last_sent: 0,
            rates: VecDeque::new(),
            trip: None,
            loss: 0,
            window: WINDOW_FIRST,
        }
    }

    fn rate(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or_default()
    }

    /// What the path holds at this gain.
    fn hold(&self, eighths: u64) -> u64 {
        let trip = self.trip.map_or(Duration::ZERO, |(trip, _)| trip);
        let product = u128::from(self.rate()) * trip.as_micros() / 1_000_000;
        let product = u64::try_from(product).unwrap_or(WINDOW_MAX).min(WINDOW_MAX);
        let filled = product * eighths / 8 * 1000 / (1000 - self.loss.min(LOSS_MAX));
        (filled + 4 * self.mtu).clamp(4 * self.mtu, WINDOW_MAX)
    }

    fn end_round(&mut self, now: Instant) {
        let round = std::mem::replace(&mut self.round, Round::new(now, self.last_sent));
        let micros = now.saturating_duration_since(round.began).as_micros().max(1);
        let rate = u64::try_from(u128::from(round.acked) * 1_000_000 / micros).unwrap_or(u64::MAX);
        let before = self.rate();
        // A sender with nothing to send measures itself.
        if !round.limited || rate > self.rate() {
            self.rates.push_back(rate);
            if self.rates.len() > ROUNDS {
                self.rates.pop_front();
            }
        }
        if let Some(share) = (round.lost * 1000).checked_div(round.lost + round.acked) {
            self.loss = (self.loss * 7 + share) / 8;
        }
        let queued = match (round.trip, self.trip) {
            (Some(now), Some((least, _))) => now > least + least / 4 + Duration::from_millis(4),
            _ => false,
        };
        match &mut self.phase {
            Phase::Begin { best, same } => {
                let better = rate > *best + *best / 4;
                *same = if better || round.limited { 0 } else { *same + 1 };
                *best = rate.max(*best);
                if *same >= 3 || queued {
                    self.phase = Phase::Hold { turn: 1 };
                }
            }
            Phase::Hold { turn: 0 } if rate > before + before / 20 => {}
            Phase::Hold { turn } => *turn = (*turn + 1) % GAINS.len(),
        }
        if let Phase::Hold { turn } = self.phase {
            self.window = self.hold(GAINS.get(turn).copied().unwrap_or(8));
        }
    }
}

impl Round {
    const fn new(now: Instant, ends_at: u64) -> Self {
        Self { began: now, ends_at, acked: 0, lost: 0, trip: None, limited: false }
    }
}

impl Controller for Steady {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, last_packet_number: u64) {
        self.last_sent = last_packet_number;
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, _rtt: &RttEstimator) {
        let trip = now.saturating_duration_since(sent);
        if self.trip.is_none_or(|(least, at)| trip <= least || now.saturating_duration_since(at) > TRIP_FOR) {
            self.trip = Some((trip, now));
        }
        self.round.trip = Some(self.round.trip.map_or(trip, |least| least.min(trip)));
        self.round.acked += bytes;
        self.round.limited |= app_limited;
        if matches!(self.phase, Phase::Begin { .. }) {
            self.window = (self.window + bytes).min(WINDOW_MAX);
        }
    }

    fn on_end_acks(&mut self, now: Instant, _in_flight: u64, _app_limited: bool, largest: Option<u64>) {
        if largest.is_some_and(|largest| largest > self.round.ends_at) {
            self.end_round(now);
        }
    }

    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, persistent: bool, lost_bytes: u64) {
        self.round.lost += lost_bytes;
        if persistent {
            // Nothing came through for long: whatever was known of the path is not true any more.
            self.rates.clear();
            self.window = WINDOW_FIRST;
            self.phase = Phase::Begin { best: 0, same: 0 };
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW_FIRST
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
