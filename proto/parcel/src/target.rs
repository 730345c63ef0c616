//! One receiver as its sender sees it.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use seam::StreamId;

use crate::quic::Giver;
use crate::rate::Rate;
use crate::words::Feedback;
use crate::{Failure, Offer};

/// An offer is repeated until it is acknowledged.
const OFFER_EVERY: Duration = Duration::from_millis(200);
/// Without feedback for so long the sender begins again at the receiver's base.
const REWIND_AFTER: Duration = Duration::from_millis(500);
/// The last chunk again, to a receiver that has everything and says nothing.
const NUDGE_EVERY: Duration = Duration::from_secs(1);
/// No progress for so long: failed.
const STALL: Duration = Duration::from_secs(30);
const STALL_VERIFYING: Duration = Duration::from_secs(300);
/// Everything is in the stream, and the receiver has not got it: the rest goes as chunks after this, if it also came no
/// further for [`STREAM_STILL`].
const STREAM_SLACK: Duration = Duration::from_secs(5);
const STREAM_STILL: Duration = Duration::from_secs(2);
/// A chunk reported missing is not sent again sooner than this, or one and a quarter round trips: what is on its way is
/// reported missing as well.
const AGAIN_AFTER: Duration = Duration::from_millis(60);

/// How far a receiver is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not acknowledged the offer.
    Offered {
        again: Instant,
    },
    /// It takes what comes.
    Serving,
    Done,
    Failed(Failure),
    /// It left.
    Dropped,
}

/// A byte stream that carries the files to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub(crate) stream: StreamId,
    /// Everything was written at this instant.
    pub(crate) written: Option<Instant>,
}

/// How far a meeting at the master's pipe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    Idle,
    Dialling(StreamId),
    Paired { stream: StreamId, greeted: bool },
    Over,
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) base: u32,
    pub(crate) verifying: bool,
    pub(crate) carrier: Option<Carrier>,
    pub(crate) pipe: Pipe,
    pub(crate) gave_up_tcp: bool,
    /// It speaks the word `quic`; what serves it that way, and its key.
    pub(crate) quic: bool,
    pub(crate) giver: Option<Box<Giver>>,
    pub(crate) peer: Option<[u8; 32]>,
    /// When it acknowledged.
    pub(crate) ready: Option<Instant>,
    pub(crate) rate: Rate,
    /// Chunks wait for the disk.
    pub(crate) starved: bool,
    pub(crate) turn: Instant,
    cursor: u32,
    holes: BTreeSet<u32>,
    /// When each chunk from `base` up to `cursor` was last sent.
    sent: VecDeque<Instant>,
    round_trip: Option<Duration>,
    /// Last feedback, or last rewinding.
    heard: Instant,
    rewound: Instant,
    moved: Instant,
    progress: Option<i64>,
    nudge: Instant,
}

impl Target {
    pub(crate) fn new(now: Instant, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            phase: Phase::Offered { again: now },
            base: 0,
            verifying: false,
            carrier: None,
            pipe: Pipe::Idle,
            gave_up_tcp: false,
            quic: false,
            giver: None,
            peer: None,
            ready: None,
            rate: Rate::default(),
            starved: false,
            turn: now,
            cursor: 0,
            holes: BTreeSet::new(),
            sent: VecDeque::new(),
            round_trip: None,
            heard: now,
            rewound: now,
            moved: now,
            progress: None,
            nudge: now,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Offered { .. } | Phase::Serving)
    }

    /// Whether an offer is due; the next one is in 200 ms.
    pub(crate) fn offer_due(&mut self, now: Instant, empty: bool) -> bool {
        // A stream of no bytes has no chunks that would ask for the end: its offer is repeated to the end.
        if self.phase == Phase::Serving && empty && now >= self.nudge {
            self.nudge = now + OFFER_EVERY;
            return true;
        }
        let Phase::Offered { again } = &mut self.phase else { return false };
        let due = *again <= now;
        if due {
            *again = now + OFFER_EVERY;
        }
        due
    }

    pub(crate) fn acknowledged(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Offered { .. }) {
            self.phase = Phase::Serving;
            self.ready = Some(now);
            (self.heard, self.moved, self.turn, self.nudge) = (now, now, now, now + NUDGE_EVERY);
        }
    }

    pub(crate) fn feedback(&mut self, now: Instant, word: &Feedback, offer: &Offer, window: u32) {
        if self.phase != Phase::Serving || word.base > offer.total_chunks {
            return;
        }
        if word.base == 0 && self.base > 0 {
            // Pain 70: it begins again.
            self.restart(now);
        } else if word.base < self.base {
            // Pain 69: a late one.
            return;
        }
        self.heard = now;
        if word.base > self.base {
            self.advance(now, word.base);
        }
        if self.verifying && word.progress != self.progress {
            self.moved = now;
        }
        self.progress = word.progress;
        self.verifying = word.verifying;
        self.rate.set(now, self.bytes_done(offer));
        let guard = self.round_trip.map_or(AGAIN_AFTER, |trip| (trip * 5 / 4).max(AGAIN_AFTER));
        for &missing in &word.nack {
            let inside = missing >= self.base && missing - self.base < window && missing < self.cursor;
            let sent = self.sent_at(missing);
            if inside && sent.is_none_or(|at| now.saturating_duration_since(at) >= guard) {
                self.holes.insert(missing);
            }
        }
    }

    fn advance(&mut self, now: Instant, base: u32) {
        if let Some(at) = self.sent_at(base - 1) {
            let sample = now.saturating_duration_since(at);
            self.round_trip = Some(self.round_trip.map_or(sample, |old| (old * 7 + sample) / 8));
        }
        let passed = usize::try_from(base - self.base).unwrap_or(usize::MAX).min(self.sent.len());
        self.sent.drain(..passed);
        self.base = base;
        self.cursor = self.cursor.max(base);
        self.holes = self.holes.split_off(&base);
        self.moved = now;
        self.nudge = now + NUDGE_EVERY;
    }

    /// The receiver holds nothing any more.
    fn restart(&mut self, now: Instant) {
        (self.base, self.cursor) = (0, 0);
        self.holes.clear();
        self.sent.clear();
        (self.heard, self.moved, self.turn) = (now, now, now);
    }

    fn sent_at(&self, index: u32) -> Option<Instant> {
        let place = usize::try_from(index.checked_sub(self.base)?).ok()?;
        self.sent.get(place).copied()
    }

    /// Whether chunks go to it.
    pub(crate) fn takes_chunks(&self) -> bool {
        let carried = self.carrier.is_some() || self.giver.is_some();
        self.phase == Phase::Serving && !carried && !self.verifying
    }

    /// The chunk to be sent next.
    pub(crate) fn next_chunk(&self, window: u32, total: u32) -> Option<u32> {
        let new = || (self.cursor < total && self.cursor - self.base < window).then_some(self.cursor);
        self.holes.first().copied().or_else(new)
    }

    pub(crate) fn sent_chunk(&mut self, now: Instant, index: u32) {
        self.holes.remove(&index);
        let Some(place) = index.checked_sub(self.base).and_then(|place| usize::try_from(place).ok()) else { return };
        if let Some(at) = self.sent.get_mut(place) {
            *at = now;
        } else {
            self.sent.push_back(now);
        }
        self.cursor = self.cursor.max(index + 1);
    }

    /// What time alone brings about: beginning again at the base, or the last chunk once more.
    pub(crate) fn tick(&mut self, now: Instant, window: u32, total: u32) {
        if self.takes_chunks() && now >= self.rewind_at(window, total) && self.base < total {
            (self.heard, self.rewound) = (now, now);
            self.cursor = self.base;
            self.sent.clear();
            self.holes.clear();
        }
        if self.takes_chunks() && self.base == total && now >= self.nudge && total > 0 {
            self.nudge = now + NUDGE_EVERY;
            self.holes.insert(total - 1);
        }
        if let Some(Carrier { written: Some(at), .. }) = self.carrier
            && now >= self.stream_late(at)
        {
            self.carrier = None;
            self.turn = now;
        }
    }

    /// No feedback comes, or all is sent and the receiver gets no further and does not say what it lacks.
    fn rewind_at(&self, window: u32, total: u32) -> Instant {
        let unheard = self.heard + REWIND_AFTER;
        match self.sent.back() {
            Some(last) if self.next_chunk(window, total).is_none() => {
                unheard.min((*last).max(self.moved).max(self.rewound) + REWIND_AFTER)
            }
            _ => unheard,
        }
    }

    fn stream_late(&self, written: Instant) -> Instant {
        (written + STREAM_SLACK).max(self.moved + STREAM_STILL)
    }

    pub(crate) fn stall_at(&self) -> Instant {
        self.moved + if self.verifying { STALL_VERIFYING } else { STALL }
    }

    pub(crate) fn next_tick(&self, window: u32, total: u32) -> (Instant, &'static str) {
        let stall = (self.stall_at(), "a receiver stalls");
        let next = match (&self.phase, &self.carrier) {
            (Phase::Offered { again }, _) => (*again, "an offer is repeated"),
            (Phase::Serving, _) if total == 0 => (self.nudge, "an offer of nothing is repeated"),
            (Phase::Serving, Some(Carrier { written: Some(at), .. })) => (self.stream_late(*at), "a stream is late"),
            (Phase::Serving, None) if self.takes_chunks() => {
                if !self.starved && self.next_chunk(window, total).is_some() {
                    (self.turn, "chunks are sent")
                } else if self.base == total {
                    (self.nudge, "the last chunk is repeated")
                } else {
                    (self.rewind_at(window, total), "no feedback comes")
                }
            }
            _ => stall,
        };
        if next.0 <= stall.0 { next } else { stall }
    }

    /// Bytes that the receiver has confirmed.
    pub(crate) fn bytes_done(&self, offer: &Offer) -> u64 {
        (u64::from(self.base) * u64::from(offer.chunk)).min(offer.total_bytes)
    }
}
