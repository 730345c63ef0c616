//! The receiving half: what was seen, order per channel, reassembly.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use seam::Delivery;

use crate::RELIABLE_MAX;
use crate::frame::{Ack, Message};
use crate::outgoing::PIECES_MAX;

/// Bytes received that wait for an earlier packet or for the reader. A frame with reliable data that comes on top is not
/// taken, and so comes again.
pub(crate) const HELD_MAX: usize = 8 << 20;
/// Packets that wait for the reader before unreliable ones are dropped.
const UNREAD_MAX: usize = 16_384;
/// How far ahead of the next expected one a reliable message may be.
const AHEAD_MAX: u64 = 16_384;
/// Unreliable packets in reassembly.
const PARTIALS_MAX: usize = 32;
/// Frames that are remembered as seen, below the highest.
const SEEN: u64 = 1_024;
const SEEN_WORDS: usize = 16;

/// A packet that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) channel: u8,
    pub(crate) delivery: Delivery,
    pub(crate) data: Bytes,
}

#[derive(Debug)]
pub(crate) struct Incoming {
    highest: Option<u64>,
    highest_at: Option<Instant>,
    /// Ring of bits, by frame number modulo [`SEEN`].
    seen: [u64; SEEN_WORDS],
    channels: BTreeMap<u8, Channel>,
    partials: VecDeque<Partial>,
    pub(crate) unread: VecDeque<Arrived>,
    held: usize,
    /// Unreliable packets dropped because nobody read.
    pub(crate) dropped: u64,
}

#[derive(Debug, Default)]
struct Channel {
    next: u64,
    ahead: BTreeMap<u64, (bool, Bytes)>,
    partial: BytesMut,
    ordered: Option<u16>,
}

#[derive(Debug)]
struct Partial {
    delivery: Delivery,
    channel: u8,
    sequence: u16,
    missing: usize,
    pieces: Vec<Option<Bytes>>,
}

/// The other end does not keep to the protocol.
#[derive(Debug)]
pub(crate) struct Broken;

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            highest: None,
            highest_at: None,
            seen: [0; SEEN_WORDS],
            channels: BTreeMap::new(),
            partials: VecDeque::new(),
            unread: VecDeque::new(),
            held: 0,
            dropped: 0,
        }
    }

    /// The whole number of a frame, and whether it is new.
    pub(crate) fn place(&self, low: u16) -> Option<u64> {
        let number = match self.highest {
            None => u64::from(low),
            Some(highest) => widen(highest, low)?,
        };
        match self.highest {
            Some(highest) if number <= highest && (highest - number >= SEEN || self.has(number)) => None,
            _ => Some(number),
        }
    }

    /// Remembers a frame. True when those before it are all there.
    pub(crate) fn note(&mut self, now: Instant, number: u64) -> bool {
        let before = self.highest;
        if before.is_none_or(|highest| number > highest) {
            let from = before
                .map_or(number.saturating_sub(SEEN - 1), |highest| (highest + 1).max(number.saturating_sub(SEEN - 1)));
            for skipped in from..=number {
                self.set(skipped, false);
            }
            self.highest = Some(number);
            self.highest_at = Some(now);
        }
        self.set(number, true);
        before.is_none_or(|highest| number == highest + 1)
    }

    pub(crate) fn ack(&self, now: Instant) -> Option<Ack> {
        let highest = self.highest?;
        let mut gaps = 0;
        for bit in 0..64_u64 {
            if highest > bit && self.has(highest - 1 - bit) {
                gaps |= 1 << bit;
            }
        }
        let since = self.highest_at.map_or(0, |at| now.saturating_duration_since(at).as_micros() / 100);
        Some(Ack { number: low(highest), gaps, delay: u16::try_from(since).unwrap_or(u16::MAX) })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held >= HELD_MAX
    }

    /// Takes a message; `data` is the same bytes as the message's, sharing the frame's memory.
    pub(crate) fn take(&mut self, message: &Message<'_>, data: Bytes) -> Result<(), Broken> {
        match (message.delivery, message.part) {
            (Delivery::Reliable, _) => self.reliable(message, data),
            (_, Some(part)) => {
                let count = usize::from(part.count);
                if count > PIECES_MAX {
                    return Err(Broken);
                }
                self.piece(message, usize::from(part.index), count, data);
                Ok(())
            }
            (_, None) => {
                self.loose(message.delivery, message.channel, message.sequence, data);
                Ok(())
            }
        }
    }

    fn reliable(&mut self, message: &Message<'_>, data: Bytes) -> Result<(), Broken> {
        let channel = self.channels.entry(message.channel).or_default();
        let Some(sequence) = widen(channel.next, message.sequence).filter(|sequence| *sequence >= channel.next) else {
            return Ok(());
        };
        if sequence > channel.next {
            if sequence - channel.next > AHEAD_MAX {
                return Err(Broken);
            }
            self.held += cost(&data);
            if let Some((_, old)) = channel.ahead.insert(sequence, (message.more, data)) {
                self.held = self.held.saturating_sub(cost(&old));
            }
            return Ok(());
        }
        let mut next = Some((message.more, data));
        while let Some((more, data)) = next {
            channel.next += 1;
            let whole = if more || !channel.partial.is_empty() {
                if channel.partial.len() + data.len() > RELIABLE_MAX {
                    return Err(Broken);
                }
                self.held += data.len();
                channel.partial.extend_from_slice(&data);
                let done = (!more).then(|| std::mem::take(&mut channel.partial).freeze());
                self.held = self.held.saturating_sub(done.as_ref().map_or(0, Bytes::len));
                done
            } else {
                Some(data)
            };
            if let Some(data) = whole {
                self.held += cost(&data);
                self.unread.push_back(Arrived { channel: message.channel, delivery: Delivery::Reliable, data });
            }
            next = channel.ahead.remove(&channel.next);
            self.held = self.held.saturating_sub(next.as_ref().map_or(0, |(_, data)| cost(data)));
        }
        Ok(())
    }

    fn loose(&mut self, delivery: Delivery, channel: u8, sequence: u16, data: Bytes) {
        if delivery == Delivery::UnreliableOrdered {
            let ordered = &mut self.channels.entry(channel).or_default().ordered;
            if ordered.is_some_and(|last| !is_after(sequence, last)) {
                return;
            }
            *ordered = Some(sequence);
        }
        if self.unread.len() >= UNREAD_MAX || self.held >= HELD_MAX {
            self.dropped += 1;
            return;
        }
        self.held += cost(&data);
        self.unread.push_back(Arrived { channel, delivery, data });
    }

    fn piece(&mut self, message: &Message<'_>, index: usize, count: usize, data: Bytes) {
        let same = |partial: &Partial| {
            (partial.delivery, partial.channel, partial.sequence)
                == (message.delivery, message.channel, message.sequence)
        };
        let at = self.partials.iter().position(|partial| same(partial) && partial.pieces.len() == count);
        let at = at.unwrap_or_else(|| {
            if self.partials.len() >= PARTIALS_MAX {
                self.partials.pop_front();
            }
            self.partials.push_back(Partial {
                delivery: message.delivery,
                channel: message.channel,
                sequence: message.sequence,
                missing: count,
                pieces: vec![None; count],
            });
            self.partials.len() - 1
        });
        let Some(partial) = self.partials.get_mut(at) else { return };
        let Some(piece) = partial.pieces.get_mut(index).filter(|piece| piece.is_none()) else { return };
        *piece = Some(data);
        partial.missing -= 1;
        if partial.missing == 0
            && let Some(done) = self.partials.remove(at)
        {
            let whole: Vec<u8> = done.pieces.into_iter().flatten().flatten().collect();
            self.loose(done.delivery, done.channel, done.sequence, whole.into());
        }
    }

    /// The next packet that is whole and in order.
    pub(crate) fn read(&mut self) -> Option<Arrived> {
        let arrived = self.unread.pop_front()?;
        self.held = self.held.saturating_sub(cost(&arrived.data));
        Some(arrived)
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = slot(number);
        self.seen.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn set(&mut self, number: u64, seen: bool) {
        let (word, bit) = slot(number);
        if let Some(bits) = self.seen.get_mut(word) {
            if seen {
                *bits |= bit;
            } else {
                *bits &= !bit;
            }
        }
    }
}

/// What a waiting piece counts for: its bytes and the place it takes.
fn cost(data: &Bytes) -> usize {
    data.len() + 32
}

fn slot(number: u64) -> (usize, u64) {
    let place = number % SEEN;
    (usize::try_from(place / 64).unwrap_or(0), 1 << (place % 64))
}

/// The low 16 bits.
pub(crate) fn low(number: u64) -> u16 {
    let [.., a, b] = number.to_be_bytes();
    u16::from_be_bytes([a, b])
}

/// The number with these low 16 bits that is nearest to `near`; `None` below zero.
pub(crate) fn widen(near: u64, low_bits: u16) -> Option<u64> {
    let ahead = low_bits.wrapping_sub(low(near));
    if ahead < 0x8000 { Some(near + u64::from(ahead)) } else { near.checked_sub(u64::from(ahead.wrapping_neg())) }
}

fn is_after(a: u16, b: u16) -> bool {
    a != b && a.wrapping_sub(b) < 0x8000
}
