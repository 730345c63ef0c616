//! The bytes of a frame (`docs/wire/lanes.md`).

use codec::{Reader, Short};
use seam::Delivery;

/// Most bytes of a frame that is sent: with seal and UDP headers it stays below every common path MTU.
pub const FRAME_MAX: usize = 1_200;
/// Bytes of a frame's header.
pub const HEADER: usize = 20;
/// Bytes in front of a whole message.
pub(crate) const MESSAGE: usize = 6;
/// Bytes in front of a piece of an unreliable message.
pub(crate) const PIECE: usize = 10;

/// The first byte of every frame: lanes, version 1.
const TAG: u8 = 0xA9;
const ELICITS: u8 = 1;
const ACKS: u8 = 2;

const CLASS: u8 = 3;
const MORE: u8 = 4;
const PARTED: u8 = 8;

/// What stands in front of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The receiver is to acknowledge this frame.
    pub elicits: bool,
    /// The sender's epoch: a number drawn when its end of the link began. Never 0.
    pub from: u16,
    /// The receiver's epoch as the sender knows it; 0 when it does not.
    pub to: u16,
    /// Counts the sender's frames; the low 16 bits.
    pub number: u16,
    /// What was received, if anything was.
    pub ack: Option<Ack>,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The highest number received.
    pub number: u16,
    /// Bit k: the frame `number - 1 - k` was received too.
    pub gaps: u64,
    /// Since that frame arrived, in units of 100 microseconds.
    pub delay: u16,
}

/// One message of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// How it travels.
    pub delivery: Delivery,
    /// Its channel.
    pub channel: u8,
    /// Its place in the channel's order for this delivery.
    pub sequence: u16,
    /// Reliable: the packet goes on in the next message of the channel.
    pub more: bool,
    /// Unreliable: which piece of a packet this is.
    pub part: Option<Part>,
    /// Its bytes.
    pub data: &'a [u8],
}

/// A piece of an unreliable packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which, from 0.
    pub index: u16,
    /// Of how many.
    pub count: u16,
}

/// A frame's header and its messages still to be read.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    left: Reader<'a>,
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let ack = self.ack.unwrap_or(Ack { number: 0, gaps: 0, delay: 0 });
        let flags = if self.elicits { ELICITS } else { 0 } | if self.ack.is_some() { ACKS } else { 0 };
        let mut out = [0; HEADER];
        let mut left = out.as_mut_slice();
        for field in [
            &[TAG, flags][..],
            &self.from.to_be_bytes(),
            &self.to.to_be_bytes(),
            &self.number.to_be_bytes(),
            &ack.number.to_be_bytes(),
            &ack.gaps.to_be_bytes(),
            &ack.delay.to_be_bytes(),
        ] {
            let (head, tail) = std::mem::take(&mut left).split_at_mut(field.len());
            head.copy_from_slice(field);
            left = tail;
        }
        out
    }
}

impl<'a> Frame<'a> {
    /// Reads a header. `None` when the bytes are no frame of ours: cut short, another tag, unknown flags, no epoch.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        Self::read(bytes).ok().flatten()
    }

    fn read(bytes: &'a [u8]) -> Result<Option<Self>, Short> {
        let mut left = Reader::new(bytes);
        let (tag, flags) = (left.u8("tag")?, left.u8("flags")?);
        let (from, to, number) = (left.u16("from")?, left.u16("to")?, left.u16("number")?);
        let ack = Ack { number: left.u16("ack")?, gaps: left.u64("gaps")?, delay: left.u16("delay")? };
        if tag != TAG || flags & !(ELICITS | ACKS) != 0 || from == 0 {
            return Ok(None);
        }
        let ack = (flags & ACKS != 0).then_some(ack);
        Ok(Some(Self { header: Header { elicits: flags & ELICITS != 0, from, to, number, ack }, left }))
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// `Err(())` in place of a message that is none; the rest of the frame cannot be read then.
    pub fn message(&mut self) -> Option<Result<Message<'a>, Malformed>> {
        if self.left.is_empty() {
            return None;
        }
        let message = self.read_message();
        if message.is_err() {
            self.left.rest();
        }
        Some(message)
    }

    fn read_message(&mut self) -> Result<Message<'a>, Malformed> {
        let left = &mut self.left;
        let kind = left.u8("kind")?;
        let delivery = match kind & CLASS {
            0 => Delivery::Reliable,
            1 => Delivery::Unreliable,
            2 => Delivery::UnreliableOrdered,
            _ => return Err(Malformed),
        };
        let (more, parted) = (kind & MORE != 0, kind & PARTED != 0);
        let reliable = delivery == Delivery::Reliable;
        if kind & !(CLASS | MORE | PARTED) != 0 || more && !reliable || parted && reliable {
            return Err(Malformed);
        }
        let (channel, sequence) = (left.u8("channel")?, left.u16("sequence")?);
        let part = if parted {
            let part = Part { index: left.u16("index")?, count: left.u16("count")? };
            if part.index >= part.count || part.count < 2 {
                return Err(Malformed);
            }
            Some(part)
        } else {
            None
        };
        let len = left.u16("length")?;
        let data = left.take(usize::from(len), "data")?;
        Ok(Message { delivery, channel, sequence, more, part, data })
    }
}

impl Message<'_> {
    /// Appends the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        let class = match self.delivery {
            Delivery::Reliable => 0,
            Delivery::Unreliable => 1,
            Delivery::UnreliableOrdered => 2,
        };
        let flags = if self.more { MORE } else { 0 } | if self.part.is_some() { PARTED } else { 0 };
        let [s0, s1] = self.sequence.to_be_bytes();
        out.extend_from_slice(&[class | flags, self.channel, s0, s1]);
        if let Some(part) = self.part {
            out.extend_from_slice(&part.index.to_be_bytes());
            out.extend_from_slice(&part.count.to_be_bytes());
        }
        // A message is cut to a frame before it gets here.
        let len = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(self.data);
    }
}

/// A message that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl From<Short> for Malformed {
    fn from(_: Short) -> Self {
        Self
    }
}
