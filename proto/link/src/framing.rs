//! Packets in a byte stream: each after its length in two bytes, big-endian.

use bytes::{Buf, BytesMut};
use thiserror::Error;

use crate::links::Greeting;

/// Largest packet. What travels sealed is at most 1,429 bytes long; a length beyond this is a stream out of step.
pub const FRAME_MAX: usize = 4096;

/// A length beyond [`FRAME_MAX`], or of none: the stream is out of step and only good for closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a frame of {0} bytes")]
pub struct Overlong(
    /// The length it names.
    pub u16,
);

/// A packet behind its length; `None` when it is empty or over [`FRAME_MAX`].
#[must_use]
pub fn frame(packet: &[u8]) -> Option<Vec<u8>> {
    if packet.is_empty() || packet.len() > FRAME_MAX {
        return None;
    }
    let length = u16::try_from(packet.len()).ok()?;
    Some([&length.to_be_bytes(), packet].concat())
}

/// Takes packets out of a stream, however it was cut. It holds less than one packet between calls.
#[derive(Debug, Default)]
pub struct Frames {
    held: BytesMut,
}

impl Frames {
    /// A stream at its first frame, of which `bytes` have come already.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self { held: BytesMut::from(bytes) }
    }

    /// Takes bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next whole packet.
    ///
    /// # Errors
    /// [`Overlong`] at a length that no frame has; it says so from then on.
    pub fn next_packet(&mut self) -> Result<Option<BytesMut>, Overlong> {
        let Some(head) = self.held.first_chunk::<2>() else { return Ok(None) };
        let length = u16::from_be_bytes(*head);
        let size = usize::from(length);
        if size == 0 || size > FRAME_MAX {
            return Err(Overlong(length));
        }
        if self.held.len() < size + 2 {
            return Ok(None);
        }
        self.held.advance(2);
        Ok(Some(self.held.split_to(size)))
    }

    /// Takes a line off the front when it begins with `prefix`, at most `most` bytes long.
    pub(crate) fn take_greeting(&mut self, prefix: &[u8], most: usize) -> Greeting {
        let begun = self.held.len().min(prefix.len());
        if self.held.get(..begun) != prefix.get(..begun) {
            return Greeting::None;
        }
        match self.held.iter().take(most).position(|byte| *byte == b'\n') {
            Some(end) => Greeting::Line(self.held.split_to(end + 1).to_vec()),
            None if self.held.len() >= most => Greeting::Overlong,
            None => Greeting::More,
        }
    }

    /// Bytes of a packet that is not whole yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_and_overlong_packets_are_not_framed_and_not_taken() {
        assert_eq!(frame(b""), None);
        assert_eq!(frame(&vec![1; FRAME_MAX + 1]), None);
        assert_eq!(Frames::new(&[0, 0, 1]).next_packet(), Err(Overlong(0)));
        // Pain 91: an unread greeting, read as a length.
        assert_eq!(Frames::new(b"TPF2LINK1 bob").next_packet(), Err(Overlong(0x5450)));
    }

    #[test]
    fn every_cut_waits_for_the_rest() {
        let bytes = frame(b"NP1:Ehello").unwrap();
        for cut in 0..bytes.len() {
            let mut frames = Frames::new(&bytes[..cut]);
            assert_eq!(frames.next_packet(), Ok(None), "cut at {cut}");
            frames.push(&bytes[cut..]);
            assert_eq!(frames.next_packet().unwrap().as_deref(), Some(&b"NP1:Ehello"[..]));
        }
    }

    proptest! {
        #[test]
        fn packets_come_out_as_they_went_in_however_the_stream_is_cut(
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..20),
            gulp in 1usize..70,
        ) {
            let stream: Vec<u8> = packets.iter().flat_map(|packet| frame(packet).unwrap()).collect();
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in stream.chunks(gulp) {
                frames.push(piece);
                while let Some(packet) = frames.next_packet().unwrap() {
                    got.push(packet.to_vec());
                }
            }
            prop_assert_eq!(got, packets);
            prop_assert_eq!(frames.held(), 0);
        }
    }
}
