//! The sending half: segments, what is in flight, what is lost, how much may fly.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::{Delivery, SendError};

use crate::frame::{Ack, FRAME_MAX, HEADER, MESSAGE, Message, PIECE, Part};
use crate::incoming::{low, widen};
use crate::rtt::Rtt;

/// Most bytes of a reliable packet.
pub const RELIABLE_MAX: usize = 1 << 20;
/// Most bytes of an unreliable packet, 14 pieces.
pub const UNRELIABLE_MAX: usize = 14 * (FRAME_MAX - HEADER - PIECE);
/// Bytes of reliable data that may wait or fly before a sender is told to wait.
pub const QUEUE_MAX: usize = 2 << 20;
/// The same where packets are passed on for others: the link ends rather than lose one.
const RELAY_MAX: usize = 6 << 20;
const SEGMENTS_MAX: usize = 8_192;
const RELAY_SEGMENTS_MAX: usize = 16_384;
/// Bytes of unreliable data that wait for the next frames.
const LOOSE_MAX: usize = 256 << 10;
/// Most pieces of an unreliable packet.
pub(crate) const PIECES_MAX: usize = 14;
const FLIGHT_MAX: usize = 4_096;
/// Frames remembered as lost, to notice that they were only late.
const GONE_MAX: usize = 512;
const SEGMENT: usize = FRAME_MAX - HEADER - MESSAGE;
/// Bytes in flight: at first, at least, at most. The least carries a game through a network that loses a third.
const WINDOW_FIRST: usize = 32 * FRAME_MAX;
const WINDOW_LEAST: usize = 24 * FRAME_MAX;
const WINDOW_MOST: usize = 1 << 20;

/// Whether a packet is the own game's or passed on for another player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Own,
    Relay,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    channels: BTreeMap<u8, Channel>,
    /// Reliable segments never sent, and those to be sent again.
    fresh: VecDeque<Ref>,
    again: VecDeque<Ref>,
    loose: VecDeque<Loose>,
    loose_bytes: usize,
    /// Bytes and segments of reliable packets until the other end has them and all before them.
    queued: usize,
    segments: usize,
    next_number: u64,
    flight_base: u64,
    /// Frames from `flight_base` on; `None` for those that want no acknowledgement or have it.
    flight: VecDeque<Option<Flown>>,
    flying: usize,
    flying_bytes: usize,
    largest_acked: Option<u64>,
    gone: VecDeque<u64>,
    window: usize,
    slow_start_until: usize,
    recovery_until: u64,
    pub(crate) backoff: u32,
    /// A probe may leave although the window is full.
    probe: bool,
    last_elicited: Option<Instant>,
    pub(crate) rtt: Rtt,
    spare: Vec<Vec<Ref>>,
    pub(crate) blocked: bool,
    pub(crate) dropped: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ref {
    channel: u8,
    sequence: u64,
}

#[derive(Debug, Default)]
struct Channel {
    base: u64,
    segments: VecDeque<Segment>,
    loose_next: u16,
    ordered_next: u16,
}

#[derive(Debug)]
struct Segment {
    data: Bytes,
    more: bool,
    /// Bytes of the packet that end with this segment.
    releases: usize,
    acked: bool,
}

#[derive(Debug)]
struct Loose {
    delivery: Delivery,
    channel: u8,
    sequence: u16,
    part: Option<Part>,
    data: Bytes,
}

#[derive(Debug)]
struct Flown {
    at: Instant,
    bytes: usize,
    segments: Vec<Ref>,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self {
            channels: BTreeMap::new(),
            fresh: VecDeque::new(),
            again: VecDeque::new(),
            loose: VecDeque::new(),
            loose_bytes: 0,
            queued: 0,
            segments: 0,
            next_number: 0,
            flight_base: 0,
            flight: VecDeque::new(),
            flying: 0,
            flying_bytes: 0,
            largest_acked: None,
            gone: VecDeque::new(),
            window: WINDOW_FIRST,
            slow_start_until: WINDOW_MOST,
            recovery_until: 0,
            backoff: 0,
            probe: false,
            last_elicited: None,
            rtt: Rtt::default(),
            spare: Vec::new(),
            blocked: false,
            dropped: 0,
        }
    }

    /// Bytes that wait or fly.
    pub(crate) fn queued(&self) -> usize {
        self.queued + self.loose_bytes
    }

    /// Whether a reliable packet of this size would be taken.
    pub(crate) fn has_room(&self, len: usize, limit: Limit) -> bool {
        let (bytes, segments) = match limit {
            Limit::Own => (QUEUE_MAX, SEGMENTS_MAX),
            Limit::Relay => (RELAY_MAX, RELAY_SEGMENTS_MAX),
        };
        self.queued + len <= bytes && self.segments + len / SEGMENT < segments
    }

    /// Whether a sender that was told to wait may go on.
    pub(crate) fn has_drained(&self) -> bool {
        self.queued <= QUEUE_MAX / 2 && self.segments <= SEGMENTS_MAX / 2
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queued == 0 && self.loose.is_empty() && self.segments == 0
    }

    pub(crate) fn send(
        &mut self,
        channel: u8,
        delivery: Delivery,
        data: &Bytes,
        limit: Limit,
    ) -> Result<(), SendError> {
        let max = if delivery == Delivery::Reliable { RELIABLE_MAX } else { UNRELIABLE_MAX };
        if data.len() > max {
            return Err(SendError::TooLarge { size: data.len(), max });
        }
        if delivery == Delivery::Reliable {
            if !self.has_room(data.len(), limit) {
                self.blocked = true;
                return Err(SendError::WouldBlock);
            }
            self.reliable(channel, data);
            return Ok(());
        }
        if self.loose_bytes + data.len() > LOOSE_MAX {
            self.dropped += 1;
            self.blocked = true;
            return Err(SendError::WouldBlock);
        }
        self.loose(channel, delivery, data);
        Ok(())
    }

    fn reliable(&mut self, channel: u8, data: &Bytes) {
        let out = self.channels.entry(channel).or_default();
        let mut from = 0;
        loop {
            let to = (from + SEGMENT).min(data.len());
            let more = to < data.len();
            let sequence = out.base + count(out.segments.len());
            let releases = if more { 0 } else { data.len() };
            out.segments.push_back(Segment { data: data.slice(from..to), more, releases, acked: false });
            self.fresh.push_back(Ref { channel, sequence });
            self.segments += 1;
            from = to;
            if !more {
                break;
            }
        }
        self.queued += data.len();
    }

    fn loose(&mut self, channel: u8, delivery: Delivery, data: &Bytes) {
        let out = self.channels.entry(channel).or_default();
        let next = if delivery == Delivery::Unreliable { &mut out.loose_next } else { &mut out.ordered_next };
        let sequence = *next;
        *next = next.wrapping_add(1);
        self.loose_bytes += data.len();
        if data.len() <= SEGMENT {
            self.loose.push_back(Loose { delivery, channel, sequence, part: None, data: data.clone() });
            return;
        }
        let piece = FRAME_MAX - HEADER - PIECE;
        let count = u16::try_from(data.len().div_ceil(piece)).unwrap_or(u16::MAX);
        for index in 0..count {
            let from = usize::from(index) * piece;
            let data = data.slice(from..(from + piece).min(data.len()));
            self.loose.push_back(Loose { delivery, channel, sequence, part: Some(Part { index, count }), data });
        }
    }

    /// Whether a frame with messages could leave now.
    pub(crate) fn has_messages(&self) -> bool {
        if self.flight.len() >= FLIGHT_MAX {
            return false;
        }
        !self.loose.is_empty() || self.has_reliable() && (self.flying_bytes < self.window || self.probe)
    }

    fn has_reliable(&self) -> bool {
        !self.again.is_empty() || !self.fresh.is_empty()
    }

    /// Appends messages to a frame while they fit and may leave. The frame's bytes so far are its header.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>) -> Vec<Ref> {
        let mut taken = self.spare.pop().unwrap_or_default();
        let open = self.flying_bytes < self.window || std::mem::take(&mut self.probe);
        if open {
            self.fill_reliable(out, &mut taken);
        }
        while let Some(loose) = self.loose.front() {
            let head = if loose.part.is_some() { PIECE } else { MESSAGE };
            if out.len() + head + loose.data.len() > FRAME_MAX {
                break;
            }
            let Loose { delivery, channel, sequence, part, ref data } = *loose;
            Message { delivery, channel, sequence, more: false, part, data }.write(out);
            self.loose_bytes = self.loose_bytes.saturating_sub(data.len());
            self.loose.pop_front();
        }
        taken
    }

    fn fill_reliable(&mut self, out: &mut Vec<u8>, taken: &mut Vec<Ref>) {
        loop {
            let again = !self.again.is_empty();
            let queue = if again { &self.again } else { &self.fresh };
            let Some(next) = queue.front().copied() else { return };
            let segment = self.channels.get(&next.channel).and_then(|channel| channel.segment(next.sequence));
            if let Some(segment) = segment.filter(|segment| !segment.acked) {
                if out.len() + MESSAGE + segment.data.len() > FRAME_MAX {
                    return;
                }
                let sequence = low(next.sequence);
                let (more, data) = (segment.more, &segment.data[..]);
                let delivery = Delivery::Reliable;
                Message { delivery, channel: next.channel, sequence, more, part: None, data }.write(out);
                taken.push(next);
            }
            if again {
                self.again.pop_front();
            } else {
                self.fresh.pop_front();
            }
        }
    }

    /// The number of the next frame.
    pub(crate) fn number(&self) -> u16 {
        low(self.next_number)
    }

    /// A frame has left.
    pub(crate) fn flown(&mut self, now: Instant, bytes: usize, elicits: bool, segments: Vec<Ref>) {
        self.next_number += 1;
        if !elicits {
            self.spare.push(segments);
            if self.flight.is_empty() {
                self.flight_base = self.next_number;
            } else {
                self.flight.push_back(None);
            }
            return;
        }
        self.last_elicited = Some(now);
        self.flying += 1;
        let bytes = if segments.is_empty() { 0 } else { bytes };
        self.flying_bytes += bytes;
        if self.flight.is_empty() {
            self.flight_base = self.next_number - 1;
        }
        self.flight.push_back(Some(Flown { at: now, bytes, segments }));
    }

    /// An acknowledgement came.
    pub(crate) fn acked(&mut self, now: Instant, ack: Ack) {
        let Some(highest) = widen(self.next_number, ack.number).filter(|number| *number < self.next_number) else {
            return;
        };
        let mut fresh = false;
        for offset in 0..=64_u64 {
            let Some(number) = highest.checked_sub(offset) else { break };
            if offset > 0 && ack.gaps >> (offset - 1) & 1 == 0 {
                continue;
            }
            if number < self.flight_base {
                self.late(number);
                if self.gone.is_empty() {
                    break;
                }
                continue;
            }
            let Some(flown) = self.flight_at(number).and_then(Option::take) else {
                self.late(number);
                continue;
            };
            fresh = true;
            if offset == 0 {
                let delay = Duration::from_micros(u64::from(ack.delay) * 100);
                self.rtt.sample(now.saturating_duration_since(flown.at).saturating_sub(delay));
            }
            self.landed(flown);
        }
        if fresh {
            self.backoff = 0;
            self.largest_acked = self.largest_acked.max(Some(highest));
        }
        self.detect(now);
    }

    fn landed(&mut self, flown: Flown) {
        self.rtt.outcome(false);
        self.flying -= 1;
        self.flying_bytes = self.flying_bytes.saturating_sub(flown.bytes);
        if self.window < self.slow_start_until {
            self.window += flown.bytes;
        } else {
            self.window += FRAME_MAX * flown.bytes / self.window.max(1);
        }
        self.window = self.window.min(WINDOW_MOST);
        let mut segments = flown.segments;
        for at in segments.drain(..) {
            self.confirm(at);
        }
        if self.spare.len() < 64 {
            self.spare.push(segments);
        }
    }

    fn confirm(&mut self, at: Ref) {
        let Some(channel) = self.channels.get_mut(&at.channel) else { return };
        if let Some(segment) = channel.segment_mut(at.sequence) {
            segment.acked = true;
        }
        while channel.segments.front().is_some_and(|segment| segment.acked) {
            if let Some(done) = channel.segments.pop_front() {
                channel.base += 1;
                self.segments = self.segments.saturating_sub(1);
                self.queued = self.queued.saturating_sub(done.releases);
            }
        }
    }

    /// A frame that counted as lost arrived after all.
    fn late(&mut self, number: u64) {
        if let Ok(at) = self.gone.binary_search(&number) {
            self.gone.remove(at);
            self.rtt.was_late();
        }
    }

    /// Marks as lost what a later frame overtook long ago.
    fn detect(&mut self, now: Instant) {
        let reordering = self.rtt.reordering();
        while let Some((number, at)) = self.first_flown() {
            if self.largest_acked.is_none_or(|largest| number > largest) || at + reordering > now {
                break;
            }
            self.lose(number);
        }
    }

    fn lose(&mut self, number: u64) {
        let Some(flown) = self.flight_at(number).and_then(Option::take) else { return };
        self.rtt.outcome(true);
        self.flying -= 1;
        self.flying_bytes = self.flying_bytes.saturating_sub(flown.bytes);
        if self.gone.back().is_none_or(|last| *last < number) {
            self.gone.push_back(number);
        }
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
        if !flown.segments.is_empty() && number >= self.recovery_until {
            self.recovery_until = self.next_number;
            self.window = (self.window * 7 / 10).max(WINDOW_LEAST);
            self.slow_start_until = self.window;
        }
        self.again.extend(flown.segments);
    }

    fn flight_at(&mut self, number: u64) -> Option<&mut Option<Flown>> {
        let place = usize::try_from(number.checked_sub(self.flight_base)?).ok()?;
        self.flight.get_mut(place)
    }

    /// The oldest frame without an answer.
    fn first_flown(&mut self) -> Option<(u64, Instant)> {
        while self.flight.front().is_some_and(Option::is_none) {
            self.flight.pop_front();
            self.flight_base += 1;
        }
        self.flight.front()?.as_ref().map(|flown| (self.flight_base, flown.at))
    }

    /// When to look at what is in flight.
    pub(crate) fn timeout(&self) -> Option<(Instant, &'static str)> {
        let mut first = self.flight.iter().zip(self.flight_base..);
        let (flown, number) = first.find_map(|(flown, number)| Some((flown.as_ref()?, number)))?;
        if self.largest_acked.is_some_and(|largest| number <= largest) {
            return Some((flown.at + self.rtt.reordering(), "lanes loss"));
        }
        Some((self.last_elicited? + self.rtt.timeout(self.backoff), "lanes probe"))
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.detect(now);
        let Some(last) = self.last_elicited else { return };
        if self.flying > 0 && now >= last + self.rtt.timeout(self.backoff) {
            // Two of the oldest leave again; were all of them marked, a network that only pauses would get them twice.
            for _ in 0..2 {
                if let Some((number, _)) = self.first_flown() {
                    self.lose(number);
                }
            }
            self.backoff += 1;
            self.probe = true;
            self.last_elicited = Some(now);
        }
    }

    pub(crate) fn last_elicited(&self) -> Option<Instant> {
        self.last_elicited
    }
}

impl Channel {
    fn segment(&self, sequence: u64) -> Option<&Segment> {
        self.segments.get(usize::try_from(sequence.checked_sub(self.base)?).ok()?)
    }

    fn segment_mut(&mut self, sequence: u64) -> Option<&mut Segment> {
        self.segments.get_mut(usize::try_from(sequence.checked_sub(self.base)?).ok()?)
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
