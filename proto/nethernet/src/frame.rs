//! Packets as fragments of data channel messages (NetherNet, section 6.3): one byte that counts how many fragments of
//! the packet follow, then up to 262,143 bytes of it.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Most bytes of a packet in one fragment.
pub const FRAGMENT_MAX: usize = 262_143;
/// What `a=max-message-size` says (NetherNet, section 6.1).
pub const MESSAGE_SIZE: u64 = 262_144;
/// Most fragments of a packet that is sent: 255 times 262,143 is exactly [`PACKET_MAX`].
pub const FRAGMENTS_MAX: usize = 255;
/// Most bytes of a packet (NetherNet, section 6.3).
pub const PACKET_MAX: usize = 0x3FB_FF01;
/// Bytes of a packet in one fragment where the other side announces no size. RFC 8841 calls the default 65,536, but
/// a stack in the field closes the channel at a message of that size.
pub const UNANNOUNCED: usize = 65_534;

/// Which of the two data channels (NetherNet, section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Everything arrives, once and in order.
    Reliable,
    /// Anything may be lost or overtaken.
    Unreliable,
}

impl Channel {
    /// The channel's label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reliable => "ReliableDataChannel",
            Self::Unreliable => "UnreliableDataChannel",
        }
    }

    /// The channel of a label, which must match exactly. Channels with other labels are left alone, as every program in
    /// the field does.
    #[must_use]
    pub fn of(label: &str) -> Option<Self> {
        [Self::Reliable, Self::Unreliable].into_iter().find(|channel| channel.label() == label)
    }

    /// `ESendType` (NetherNet, section 4).
    #[must_use]
    pub const fn send_type(self) -> u8 {
        match self {
            Self::Unreliable => 0,
            Self::Reliable => 1,
        }
    }
}

/// Why a packet is not sent, or what arrived is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Programs in the field close the session at an empty packet.
    #[error("an empty packet cannot be sent; put at least one byte into it")]
    Empty,
    /// Over 255 fragments of the size the other side takes.
    #[error("a packet of {size} bytes cannot be sent; this peer takes at most {max}")]
    TooLarge {
        /// Bytes asked for.
        size: usize,
        /// Most bytes.
        max: usize,
    },
    /// More than one fragment, on the channel that has no order.
    #[error("an unreliable packet of {size} bytes cannot be sent; at most {max}, or send it reliably")]
    UnreliableTooLarge {
        /// Bytes asked for.
        size: usize,
        /// Most bytes.
        max: usize,
    },
    /// The other side announced a message size that carries nothing.
    #[error("the other side takes messages of at most {0} bytes, which carry nothing")]
    Unusable(u64),
    /// The other side's countdown has a gap: a torn packet is never delivered.
    #[error("a fragment with {got} to follow arrived where {want} were due")]
    Gap {
        /// What was due.
        want: u8,
        /// What came.
        got: u8,
    },
    /// The other side's packet passes the bound.
    #[error("a packet of more than {0} bytes arrived")]
    Overflow(usize),
}

/// How packets are cut for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    payload: usize,
}

impl Default for Framing {
    /// Of a peer that announces what the protocol says.
    fn default() -> Self {
        Self { payload: FRAGMENT_MAX }
    }
}

impl Framing {
    /// For a peer whose SDP announces `max-message-size`, or not. 0 means no limit (RFC 8841, section 6).
    ///
    /// # Errors
    /// [`FrameError::Unusable`] for a size of 1.
    pub fn announced(size: Option<u64>) -> Result<Self, FrameError> {
        let payload = match size {
            None => UNANNOUNCED,
            Some(0) => FRAGMENT_MAX,
            Some(1) => return Err(FrameError::Unusable(1)),
            Some(size) => usize::try_from(size - 1).unwrap_or(FRAGMENT_MAX).min(FRAGMENT_MAX),
        };
        Ok(Self { payload })
    }

    /// Most bytes of a packet in one fragment.
    #[must_use]
    pub const fn payload(self) -> usize {
        self.payload
    }

    /// Most bytes of a packet.
    #[must_use]
    pub const fn packet_max(self, channel: Channel) -> usize {
        match channel {
            Channel::Reliable => self.payload * FRAGMENTS_MAX,
            Channel::Unreliable => self.payload,
        }
    }

    /// Whether a packet of `size` bytes may be sent, and in how many fragments.
    ///
    /// # Errors
    /// [`FrameError::Empty`], [`FrameError::TooLarge`] or [`FrameError::UnreliableTooLarge`].
    pub const fn admit(self, channel: Channel, size: usize) -> Result<usize, FrameError> {
        let max = self.packet_max(channel);
        match channel {
            _ if size == 0 => Err(FrameError::Empty),
            Channel::Reliable if size > max => Err(FrameError::TooLarge { size, max }),
            Channel::Unreliable if size > max => Err(FrameError::UnreliableTooLarge { size, max }),
            _ => Ok(size.div_ceil(self.payload)),
        }
    }

    /// The fragments of a packet: their first byte and the part of the packet behind it, which is not copied. An empty
    /// packet is one empty fragment. Packets that [`admit`](Self::admit) refuses yield nothing.
    #[must_use]
    pub fn fragments(self, channel: Channel, packet: Bytes) -> Fragments {
        let left = match self.admit(channel, packet.len()) {
            Ok(count) => count,
            Err(FrameError::Empty) => 1,
            Err(_) => 0,
        };
        Fragments { packet, payload: self.payload, left }
    }
}

/// The fragments of one packet, in the order to send them.
#[derive(Clone, Debug)]
pub struct Fragments {
    packet: Bytes,
    payload: usize,
    left: usize,
}

impl Iterator for Fragments {
    type Item = (u8, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let part = self.packet.split_to(self.payload.min(self.packet.len()));
        Some((u8::try_from(self.left).unwrap_or(u8::MAX), part))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fragments {}

/// Puts fragments of the reliable channel together. Memory follows what arrives, at most `max` bytes.
#[derive(Clone, Debug)]
pub struct Reassembly {
    max: usize,
    whole: BytesMut,
    /// What the next fragment must say; `None` between packets.
    due: Option<u8>,
}

impl Default for Reassembly {
    /// Takes packets of any legal size.
    fn default() -> Self {
        Self::new(PACKET_MAX)
    }
}

impl Reassembly {
    /// Takes packets of at most `max` bytes, and never more than [`PACKET_MAX`].
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max: max.min(PACKET_MAX), whole: BytesMut::new(), due: None }
    }

    /// Takes one message of the reliable channel, and hands out the packet it completes. A packet of one fragment is not
    /// copied. An empty message is ignored; a packet may be empty.
    ///
    /// # Errors
    /// [`FrameError::Gap`] or [`FrameError::Overflow`]: the session must be closed. What was collected is dropped.
    pub fn push(&mut self, mut message: Bytes) -> Result<Option<Bytes>, FrameError> {
        let Some(&header) = message.first() else { return Ok(None) };
        let part = message.split_off(1);
        if let Some(want) = self.due.take()
            && want != header
        {
            self.whole = BytesMut::new();
            return Err(FrameError::Gap { want, got: header });
        }
        if self.whole.len() + part.len() > self.max {
            self.whole = BytesMut::new();
            return Err(FrameError::Overflow(self.max));
        }
        self.due = header.checked_sub(1);
        if self.due.is_none() && self.whole.is_empty() {
            return Ok(Some(part));
        }
        self.whole.extend_from_slice(&part);
        if self.due.is_some() {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.whole).freeze()))
    }

    /// Bytes collected of a packet that is not complete.
    #[must_use]
    pub fn held(&self) -> usize {
        self.whole.len()
    }
}

/// The packet in a message of the unreliable channel, which is always whole: its first byte is not looked at. `None` for
/// an empty message.
#[must_use]
pub fn unreliable(mut message: Bytes) -> Option<Bytes> {
    (!message.is_empty()).then(|| message.split_off(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages(framing: Framing, packet: &[u8]) -> Vec<Bytes> {
        let message = |(header, part): (u8, Bytes)| Bytes::from([&[header][..], &part].concat());
        framing.fragments(Channel::Reliable, Bytes::copy_from_slice(packet)).map(message).collect()
    }

    #[test]
    fn pain_3_fragments_follow_what_the_other_side_announces() {
        for (size, payload) in [
            (None, 65_534),
            (Some(0), 262_143),
            (Some(65_536), 65_535),
            (Some(262_144), 262_143),
            (Some(1 << 40), 262_143),
        ] {
            assert_eq!(Framing::announced(size).unwrap().payload(), payload, "{size:?}");
        }
        assert_eq!(Framing::announced(Some(2)).unwrap().payload(), 1);
        assert_eq!(Framing::announced(Some(1)), Err(FrameError::Unusable(1)));
    }

    #[test]
    fn pain_3_more_than_255_fragments_are_refused_and_never_wrapped() {
        let framing = Framing::default();
        assert_eq!(framing.packet_max(Channel::Reliable), PACKET_MAX);
        assert_eq!(framing.admit(Channel::Reliable, PACKET_MAX), Ok(255));
        assert_eq!(
            framing.admit(Channel::Reliable, PACKET_MAX + 1),
            Err(FrameError::TooLarge { size: PACKET_MAX + 1, max: PACKET_MAX })
        );
        let small = Framing::announced(None).unwrap();
        assert_eq!(small.packet_max(Channel::Reliable), 16_711_170);
        assert_eq!(
            small.admit(Channel::Reliable, 16_711_171).unwrap_err().to_string(),
            "a packet of 16711171 bytes cannot be sent; this peer takes at most 16711170"
        );
        let tiny = Framing::announced(Some(2)).unwrap();
        assert_eq!(tiny.fragments(Channel::Reliable, Bytes::from_static(&[0; 256])).count(), 0);
    }

    #[test]
    fn pain_28_a_size_is_refused_before_it_is_sent() {
        let framing = Framing::default();
        assert_eq!(framing.admit(Channel::Unreliable, FRAGMENT_MAX), Ok(1));
        assert_eq!(
            framing.admit(Channel::Unreliable, FRAGMENT_MAX + 1),
            Err(FrameError::UnreliableTooLarge { size: FRAGMENT_MAX + 1, max: FRAGMENT_MAX })
        );
        assert_eq!(framing.admit(Channel::Reliable, 0), Err(FrameError::Empty));
        assert_eq!(framing.fragments(Channel::Unreliable, Bytes::from(vec![0; FRAGMENT_MAX + 1])).count(), 0);
    }

    #[test]
    fn one_fragment_is_handed_on_without_a_copy() {
        let message = Bytes::from_static(b"\0hello");
        let place = message.as_ptr().wrapping_add(1);
        let packet = Reassembly::default().push(message).unwrap().unwrap();
        assert_eq!((&packet[..], packet.as_ptr()), (&b"hello"[..], place));
    }

    #[test]
    fn a_gap_in_the_countdown_is_an_error_and_delivers_nothing() {
        let mut r = Reassembly::default();
        assert_eq!(r.push(Bytes::from_static(b"\x05A")), Ok(None));
        assert_eq!(r.push(Bytes::from_static(b"\0B")), Err(FrameError::Gap { want: 4, got: 0 }));
        assert_eq!(r.held(), 0);
        assert_eq!(r.push(Bytes::from_static(b"\0C")), Ok(Some(Bytes::from_static(b"C"))));
    }

    #[test]
    fn a_packet_over_the_bound_is_an_error_and_frees_what_it_took() {
        let mut r = Reassembly::new(4);
        assert_eq!(r.push(Bytes::from_static(b"\x02abc")), Ok(None));
        assert_eq!(r.held(), 3);
        assert_eq!(r.push(Bytes::from_static(b"\x01de")), Err(FrameError::Overflow(4)));
        assert_eq!(r.held(), 0);
        assert_eq!(Reassembly::new(usize::MAX).max, PACKET_MAX);
    }

    #[test]
    fn channels_are_found_by_their_exact_labels() {
        assert_eq!(Channel::of("ReliableDataChannel"), Some(Channel::Reliable));
        assert_eq!(Channel::of("UnreliableDataChannel"), Some(Channel::Unreliable));
        assert_eq!(Channel::of("reliabledatachannel"), None);
        assert_eq!([Channel::Unreliable, Channel::Reliable].map(Channel::send_type), [0, 1]);
    }

    proptest! {
        #[test]
        fn fragments_come_back_as_the_packet(size in 2_u64..40, packet in proptest::collection::vec(any::<u8>(), 0..250)) {
            let framing = Framing::announced(Some(size)).unwrap();
            prop_assume!(packet.len() <= framing.packet_max(Channel::Reliable));
            let messages = messages(framing, &packet);
            prop_assert!(messages.iter().all(|m| u64::try_from(m.len()).unwrap() <= size));
            let mut r = Reassembly::default();
            let mut out = Vec::new();
            for message in messages {
                out.extend(r.push(message).unwrap());
            }
            prop_assert_eq!(out, vec![Bytes::from(packet)]);
            prop_assert_eq!(r.held(), 0);
        }
    }
}
