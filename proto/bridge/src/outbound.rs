//! The own stream: events numbered from 0, kept until every receiver has them.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::wire::CHUNK_MAX;

/// Most events pending; the next text drops them all.
pub const PENDING_MAX: usize = 512;

/// Events under way at once: as many as an acknowledgement's bits can tell of.
pub const WINDOW: usize = 32;

/// How often an event is repeated until all have it.
pub const RESEND: Duration = Duration::from_millis(250);

/// Longest text in bytes, as far as its characters let the pieces be filled.
pub const TEXT_MAX: usize = PENDING_MAX * CHUNK_MAX;

/// Why a text was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// A NUL ends a text on the wire.
    #[error("a text with a NUL inside cannot be sent")]
    Nul,
    /// More pieces than may be pending.
    #[error("a text of {0} bytes is over the limit of {TEXT_MAX}")]
    TooLong(usize),
    /// All numbers of this session are used.
    #[error("this session has sent all the events its numbers allow")]
    Exhausted,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) seq: u32,
    pub(crate) index: u16,
    pub(crate) count: u16,
    pub(crate) text: Box<[u8]>,
    queued: Instant,
    sent: Option<Instant>,
    acked: BTreeSet<u32>,
    /// Whether every receiver that is there has it.
    done: bool,
}

impl Pending {
    fn due(&self) -> Instant {
        self.sent.map_or(self.queued, |sent| sent + RESEND)
    }
}

/// Events without a gap between their numbers; the first is the oldest kept.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    pending: VecDeque<Pending>,
    /// Number of the next event. `u32::MAX` is no number: acknowledgements use it for "none".
    next: u32,
}

impl Outbound {
    /// Queues a text and returns how many events were dropped to make room for it.
    pub(crate) fn push(&mut self, now: Instant, text: &str) -> Result<usize, SendError> {
        if text.contains('\0') {
            return Err(SendError::Nul);
        }
        let chunks = chunks(text);
        let count = u16::try_from(chunks.len()).map_err(|_| SendError::TooLong(text.len()))?;
        if chunks.len() > PENDING_MAX {
            return Err(SendError::TooLong(text.len()));
        }
        let first = self.next;
        let next = first.checked_add(u32::from(count)).ok_or(SendError::Exhausted)?;
        let mut dropped = 0;
        if self.pending.len() + chunks.len() > PENDING_MAX {
            dropped = self.pending.len();
            self.pending.clear();
        }
        self.next = next;
        for ((seq, index), chunk) in (first..next).zip(0..count).zip(chunks) {
            let text = chunk.as_bytes().into();
            let acked = BTreeSet::new();
            self.pending.push_back(Pending { seq, index, count, text, queued: now, sent: None, acked, done: false });
        }
        Ok(dropped)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The number a new receiver starts at.
    pub(crate) fn oldest(&self) -> u32 {
        self.pending.front().map_or(self.next, |first| first.seq)
    }

    /// What `session` says it received.
    pub(crate) fn acknowledged(&mut self, session: u32, ack: u32, bits: u32) {
        for event in self.pending.iter_mut().take(WINDOW).filter(|event| event.sent.is_some()) {
            let received = match ack.checked_sub(event.seq) {
                Some(0) => true,
                Some(back) => bits.checked_shr(back - 1).is_some_and(|bits| bits & 1 == 1),
                None => false,
            };
            if received {
                event.acked.insert(session);
            }
        }
    }

    /// Releases what all of `present` have. Without anybody there, everything is kept.
    pub(crate) fn settle(&mut self, present: &[u32]) {
        loop {
            for event in self.pending.iter_mut().take(WINDOW) {
                event.done = !present.is_empty() && present.iter().all(|session| event.acked.contains(session));
            }
            let release = self.pending.iter().take_while(|event| event.done).count();
            if release == 0 {
                return;
            }
            self.pending.drain(..release);
        }
    }

    /// The next event to be sent now, with whether it was sent before.
    pub(crate) fn due(&self, now: Instant) -> Option<(&Pending, bool)> {
        let event = self.window().find(|event| event.due() <= now)?;
        Some((event, event.sent.is_some()))
    }

    /// The event with this number is on its way.
    pub(crate) fn sent(&mut self, now: Instant, seq: u32) {
        if let Some(event) = self.pending.iter_mut().take(WINDOW).find(|event| event.seq == seq) {
            event.sent = Some(now);
        }
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.window().map(Pending::due).min()
    }

    fn window(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().take(WINDOW).filter(|event| !event.done)
    }
}

/// Pieces of at most [`CHUNK_MAX`] bytes that never cut a character; one empty piece for an empty text.
fn chunks(text: &str) -> Vec<&str> {
    let mut out = Vec::with_capacity(text.len() / CHUNK_MAX + 1);
    let mut rest = text;
    loop {
        let mut end = rest.len().min(CHUNK_MAX);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (head, tail) = rest.split_at(end);
        out.push(head);
        rest = tail;
        if rest.is_empty() {
            return out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(texts: usize) -> (Outbound, Instant) {
        let now = Instant::now();
        let mut out = Outbound::default();
        for _ in 0..texts {
            out.push(now, "x").unwrap();
        }
        while let Some((event, _)) = out.due(now) {
            let seq = event.seq;
            out.sent(now, seq);
        }
        (out, now)
    }

    #[test]
    fn no_more_than_a_window_is_under_way() {
        let (mut out, now) = sent(100);
        assert_eq!(out.next_due(), Some(now + RESEND));
        out.acknowledged(1, 31, 0);
        out.settle(&[1]);
        assert_eq!(out.due(now).map(|(e, _)| e.seq), None, "the oldest holds the window");
        out.acknowledged(1, 5, 0b11111);
        out.settle(&[1]);
        assert_eq!(out.oldest(), 6);
        assert_eq!(out.due(now).map(|(e, again)| (e.seq, again)), Some((32, false)));
    }

    #[test]
    fn an_event_is_kept_until_everybody_there_has_it() {
        let (mut out, _) = sent(3);
        out.acknowledged(1, 2, 0b11);
        out.settle(&[1, 2]);
        assert_eq!(out.oldest(), 0);
        out.acknowledged(2, 0, 0);
        out.settle(&[1, 2]);
        assert_eq!(out.oldest(), 1);
        out.settle(&[1]);
        assert_eq!((out.oldest(), out.len()), (3, 0));
    }

    #[test]
    fn nobody_there_releases_nothing() {
        let (mut out, _) = sent(3);
        out.acknowledged(1, 2, 0b11);
        out.settle(&[]);
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
        let mut out = Outbound::default();
        out.push(Instant::now(), "x").unwrap();
        out.acknowledged(1, 0, u32::MAX);
        out.acknowledged(1, u32::MAX - 1, u32::MAX);
        out.settle(&[1]);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn more_than_512_pending_drops_the_backlog() {
        let (mut out, now) = sent(PENDING_MAX);
        assert_eq!(out.push(now, "last"), Ok(PENDING_MAX));
        assert_eq!((out.len(), out.oldest()), (1, 512));
    }

    #[test]
    fn texts_that_cannot_travel_are_refused_and_change_nothing() {
        let now = Instant::now();
        let mut out = Outbound::default();
        assert_eq!(out.push(now, "a\0b"), Err(SendError::Nul));
        assert_eq!(out.push(now, &"x".repeat(TEXT_MAX)), Ok(0));
        assert_eq!(out.push(now, &"x".repeat(TEXT_MAX + 1)), Err(SendError::TooLong(TEXT_MAX + 1)));
        assert_eq!(out.len(), PENDING_MAX);
        out.next = u32::MAX - 1;
        assert_eq!(out.push(now, "the last number"), Ok(PENDING_MAX));
        assert_eq!(out.push(now, "none left"), Err(SendError::Exhausted));
    }

    proptest! {
        #[test]
        fn pieces_are_whole_characters_and_make_up_the_text(text in "\\PC{0,3000}") {
            let pieces = chunks(&text);
            prop_assert_eq!(pieces.concat(), text.as_str());
            prop_assert!(pieces.iter().all(|piece| piece.len() <= CHUNK_MAX));
            prop_assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() > CHUNK_MAX - 4));
        }
    }
}
