//! One sender's stream: events put in order, pieces put together.

use std::collections::BTreeMap;
use std::time::Instant;

use seam::Refused;

use crate::outbound::PENDING_MAX;

/// How far ahead of order an event may be; a sender's window is half of it.
const AHEAD: u32 = 64;

/// What all streams together keep, in bytes of text.
#[derive(Debug)]
pub(crate) struct Budget {
    used: usize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: 0, limit }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes <= self.limit;
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(crate) fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// What a stream hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// A whole text; its bytes still count in the budget.
    Text(String),
    /// Events that will never come.
    Gap(u32),
    /// Pieces of a text that cannot become whole, or are no text.
    Torn,
}

#[derive(Debug)]
struct Piece {
    index: u16,
    count: u16,
    text: Box<[u8]>,
}

/// The text that is being put together. Between texts `count` is 0.
#[derive(Debug, Default)]
struct Partial {
    count: u16,
    next: u16,
    text: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// Whether the sender is there; one that went silent may come back.
    pub(crate) present: bool,
    pub(crate) heard: Instant,
    pub(crate) keepalive_at: Instant,
    /// When an acknowledgement is due at the latest.
    pub(crate) ack_at: Option<Instant>,
    /// Next number in order; unknown until a keepalive named the oldest event kept.
    next: Option<u32>,
    /// Newest number received.
    newest: Option<u32>,
    held: BTreeMap<u32, Piece>,
    partial: Partial,
}

impl Stream {
    /// A stream that goes on at `next`, or where its sender's first keepalive says.
    pub(crate) fn new(now: Instant, next: Option<u32>) -> Self {
        Self {
            present: true,
            heard: now,
            keepalive_at: now,
            ack_at: None,
            next,
            newest: next.and_then(|next| next.checked_sub(1)),
            held: BTreeMap::new(),
            partial: Partial::default(),
        }
    }

    /// What to tell the sender: the newest event received and which of the 32 before it.
    pub(crate) fn ack(&self) -> (Option<u32>, u32) {
        let Some(newest) = self.newest else { return (None, 0) };
        let next = self.next.unwrap_or(0);
        let received = |seq: &u32| *seq < next || self.held.contains_key(seq);
        let bits = (0..32).filter(|k| newest.checked_sub(k + 1).as_ref().is_some_and(received));
        (Some(newest), bits.fold(0, |all, k| all | 1 << k))
    }

    /// The number whose turn it is.
    pub(crate) fn next(&self) -> Option<u32> {
        self.next
    }

    /// Bytes that a removed stream gives back.
    pub(crate) fn kept(&self) -> usize {
        self.partial.text.len() + self.held.values().map(|piece| piece.text.len()).sum::<usize>()
    }

    /// The sender keeps nothing older than `oldest`: start there, or go on there when behind.
    pub(crate) fn keepalive(&mut self, oldest: u32, budget: &mut Budget, out: &mut Vec<Out>) {
        let Some(mut next) = self.next else {
            self.next = Some(oldest);
            return;
        };
        if oldest <= next {
            return;
        }
        let early = self.held.range(..oldest).count();
        let missing = (oldest - next).saturating_sub(u32::try_from(early).unwrap_or(u32::MAX));
        if missing > 0 {
            out.push(Out::Gap(missing));
        }
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() < oldest) {
            let (seq, piece) = entry.remove_entry();
            if seq != next {
                self.partial.tear(budget, out);
            }
            next = seq + 1;
            self.partial.add(piece, budget, out);
        }
        if next != oldest {
            self.partial.tear(budget, out);
        }
        self.next = Some(oldest);
        self.in_order(budget, out);
    }

    /// Takes one event; false when it is here already.
    pub(crate) fn event(
        &mut self,
        seq: u32,
        (index, count, text): (u16, u16, &[u8]),
        budget: &mut Budget,
        out: &mut Vec<Out>,
    ) -> Result<bool, Refused> {
        // Events before the first keepalive come again; to start at one would lose those before it.
        let next = self.next.ok_or(Refused::Unexpected)?;
        let Some(ahead) = seq.checked_sub(next) else { return Ok(false) };
        if self.held.contains_key(&seq) {
            return Ok(false);
        }
        // A whole text whose turn it is waits for nothing, so that nobody stops others by filling the budget.
        if ahead == 0 && count == 1 {
            budget.used += text.len();
        } else if ahead >= AHEAD || !budget.take(text.len()) {
            return Err(Refused::OverLimit);
        }
        self.newest = self.newest.max(Some(seq));
        self.held.insert(seq, Piece { index, count, text: text.into() });
        self.in_order(budget, out);
        Ok(true)
    }

    fn in_order(&mut self, budget: &mut Budget, out: &mut Vec<Out>) {
        while let Some(next) = self.next
            && let Some(piece) = self.held.remove(&next)
        {
            self.next = Some(next + 1);
            self.partial.add(piece, budget, out);
        }
    }
}

impl Partial {
    /// Takes the next piece in order; its bytes are in the budget already.
    fn add(&mut self, piece: Piece, budget: &mut Budget, out: &mut Vec<Out>) {
        let goes_on = self.count == piece.count && self.next == piece.index;
        if !goes_on {
            self.tear(budget, out);
        }
        let fits = usize::from(piece.count) <= PENDING_MAX;
        if !(goes_on || piece.index == 0) || !fits {
            budget.give(piece.text.len());
            // One report per text, at its last piece, or each lost piece would look like a lost text.
            if piece.index + 1 == piece.count {
                out.push(Out::Torn);
            }
            return;
        }
        self.count = piece.count;
        self.next = piece.index + 1;
        self.text.extend_from_slice(&piece.text);
        if self.next < self.count {
            return;
        }
        let whole = std::mem::take(self);
        match String::from_utf8(whole.text) {
            Ok(text) => out.push(Out::Text(text)),
            Err(bad) => {
                budget.give(bad.as_bytes().len());
                out.push(Out::Torn);
            }
        }
    }

    fn tear(&mut self, budget: &mut Budget, out: &mut Vec<Out>) {
        let torn = std::mem::take(self);
        budget.give(torn.text.len());
        if torn.count > 0 {
            out.push(Out::Torn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 10_000;

    struct Rig {
        stream: Stream,
        budget: Budget,
        out: Vec<Out>,
    }

    impl Rig {
        fn started_at(oldest: u32) -> Self {
            let (stream, budget) = (Stream::new(Instant::now(), None), Budget::new(BYTES));
            let mut rig = Self { stream, budget, out: Vec::new() };
            rig.keepalive(oldest);
            rig
        }

        fn keepalive(&mut self, oldest: u32) {
            self.stream.keepalive(oldest, &mut self.budget, &mut self.out);
        }

        fn event(&mut self, seq: u32, index: u16, count: u16, text: &[u8]) -> Result<bool, Refused> {
            self.stream.event(seq, (index, count, text), &mut self.budget, &mut self.out)
        }
    }

    fn text(text: &str) -> Out {
        Out::Text(text.to_owned())
    }

    #[test]
    fn events_come_out_in_order_and_once() {
        let mut rig = Rig::started_at(7);
        assert_eq!(rig.event(9, 0, 1, b"c"), Ok(true));
        assert_eq!(rig.event(8, 0, 1, b"b"), Ok(true));
        assert_eq!(rig.event(8, 0, 1, b"b"), Ok(false));
        assert_eq!(rig.event(6, 0, 1, b"before the start"), Ok(false));
        assert!(rig.out.is_empty());
        assert_eq!(rig.event(7, 0, 1, b"a"), Ok(true));
        assert_eq!(rig.event(7, 0, 1, b"a"), Ok(false));
        assert_eq!(rig.out, [text("a"), text("b"), text("c")]);
    }

    #[test]
    fn the_acknowledgement_names_the_newest_and_the_32_before() {
        let mut rig = Rig::started_at(3);
        assert_eq!(rig.stream.ack(), (None, 0));
        rig.event(5, 0, 1, b"").unwrap();
        assert_eq!(rig.stream.ack(), (Some(5), 0b11100), "3 and 4 are missing, older ones are not wanted");
        rig.event(3, 0, 1, b"").unwrap();
        assert_eq!(rig.stream.ack(), (Some(5), 0b11110));
        for seq in [4].into_iter().chain(6..50) {
            rig.event(seq, 0, 1, b"").unwrap();
        }
        assert_eq!(rig.stream.ack(), (Some(49), u32::MAX));
    }

    #[test]
    fn an_event_before_any_keepalive_is_not_taken() {
        let mut rig = Rig::started_at(0);
        rig.stream = Stream::new(Instant::now(), None);
        assert_eq!(rig.event(3, 0, 1, b"x"), Err(Refused::Unexpected));
        rig.keepalive(2);
        rig.event(3, 0, 1, b"x").unwrap();
        rig.event(2, 0, 1, b"w").unwrap();
        assert_eq!(rig.out, [text("w"), text("x")]);
    }

    #[test]
    fn an_event_too_far_ahead_is_refused() {
        let mut rig = Rig::started_at(0);
        assert_eq!(rig.event(AHEAD, 0, 1, b""), Err(Refused::OverLimit));
        assert_eq!(rig.event(u32::MAX - 1, 0, 1, b""), Err(Refused::OverLimit));
        assert_eq!(rig.event(AHEAD - 1, 0, 1, b""), Ok(true));
    }

    #[test]
    fn a_stream_that_is_behind_skips_what_is_no_longer_kept() {
        let mut rig = Rig::started_at(0);
        rig.event(2, 0, 1, b"two").unwrap();
        rig.event(11, 0, 1, b"eleven").unwrap();
        rig.keepalive(10);
        rig.keepalive(4);
        rig.event(10, 0, 1, b"ten").unwrap();
        assert_eq!(rig.out, [Out::Gap(9), text("two"), text("ten"), text("eleven")]);
    }

    #[test]
    fn a_text_of_several_pieces_becomes_one() {
        let mut rig = Rig::started_at(0);
        rig.event(1, 1, 3, b"b").unwrap();
        rig.event(2, 2, 3, b"c").unwrap();
        rig.event(0, 0, 3, b"a").unwrap();
        assert_eq!(rig.out, [text("abc")]);
        assert_eq!((rig.budget.used, rig.stream.kept()), (3, 0));
    }

    #[test]
    fn a_text_torn_by_a_gap_is_reported_once_and_costs_nothing() {
        let mut rig = Rig::started_at(0);
        rig.event(0, 0, 4, b"a").unwrap();
        rig.keepalive(2);
        rig.event(2, 2, 4, b"c").unwrap();
        rig.event(3, 0, 1, b"next").unwrap();
        assert_eq!(rig.out, [Out::Gap(1), Out::Torn, text("next")]);
        assert_eq!(rig.budget.used, 4);
    }

    #[test]
    fn pieces_that_do_not_follow_each_other_make_no_text() {
        for (index, count) in [(0, 3), (2, 3), (1, 4)] {
            let mut rig = Rig::started_at(0);
            rig.event(0, 0, 3, b"a").unwrap();
            rig.event(1, index, count, b"b").unwrap();
            assert!(rig.out.iter().all(|out| *out == Out::Torn) && !rig.out.is_empty(), "{index} of {count}");
        }
    }

    #[test]
    fn what_is_no_utf8_or_too_many_pieces_is_torn() {
        let mut rig = Rig::started_at(0);
        rig.event(0, 0, 1, &[0xFF]).unwrap();
        rig.event(1, 512, 513, b"x").unwrap();
        assert_eq!(rig.out, [Out::Torn, Out::Torn]);
        assert_eq!(rig.budget.used, 0);
    }

    #[test]
    fn a_spent_budget_refuses_without_acknowledging() {
        let mut rig = Rig::started_at(0);
        rig.budget.limit = 5;
        for (seq, count) in [(1, 1), (0, 2)] {
            assert_eq!(rig.event(seq, 0, count, b"123456"), Err(Refused::OverLimit));
        }
        assert_eq!(rig.stream.ack(), (None, 0));
        assert_eq!(rig.budget.used, 0);
    }

    #[test]
    fn a_spent_budget_does_not_stop_whole_texts_in_order() {
        let mut rig = Rig::started_at(0);
        rig.budget.limit = 0;
        assert_eq!(rig.event(0, 0, 1, b"a"), Ok(true));
        assert_eq!(rig.event(1, 0, 1, b"b"), Ok(true));
        assert_eq!(rig.out, [text("a"), text("b")]);
    }

    proptest! {
        #[test]
        fn whatever_comes_the_budget_adds_up(
            moves in prop::collection::vec((0..80u32, 0..4u16, 1..4u16, 0..200usize, any::<bool>()), 0..200),
        ) {
            let mut rig = Rig::started_at(0);
            for (seq, index, count, len, keepalive) in moves {
                if keepalive {
                    rig.keepalive(seq / 2);
                } else {
                    let _ = rig.event(seq, index.min(count - 1), count, &vec![b'x'; len]);
                }
                let out: usize = rig.out.iter().map(|o| if let Out::Text(t) = o { t.len() } else { 0 }).sum();
                prop_assert_eq!(rig.stream.kept() + out, rig.budget.used);
            }
        }
    }
}
