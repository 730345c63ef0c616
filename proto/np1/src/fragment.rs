//! A piece of a lobby message too long for one datagram (netpunch wire, section 5).
//!
//! ```text
//! 'F' | id u32 | index u32 | count u32 | up to 1300 bytes
//! ```

use codec::{Reader, Writer};
use seam::Refused;

/// First byte of a fragment's payload.
pub const FRAGMENT: u8 = b'F';

/// Bytes before a fragment's data.
pub const FRAGMENT_HEADER: usize = 13;

/// Message bytes in every fragment but the last; a message up to this long is sent bare.
pub const FRAGMENT_DATA: usize = 1300;

/// Most pieces one message may have.
pub const FRAGMENTS_MAX: u32 = 8192;

/// Longest message that can be sent at all: [`FRAGMENTS_MAX`] full pieces.
pub const MESSAGE_MAX: usize = FRAGMENT_DATA * 8192;

/// A piece of a message. What is parsed keeps `index < count` and `0 < count <= FRAGMENTS_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Names the message, among those of its sender.
    pub id: u32,
    /// Place of this piece, from 0.
    pub index: u32,
    /// Pieces in all.
    pub count: u32,
    /// The bytes; they may be none.
    pub data: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Reads a payload that begins with [`FRAGMENT`].
    ///
    /// # Errors
    /// [`Refused::Malformed`] under [`FRAGMENT_HEADER`] bytes, without pieces, or with a piece beyond the last;
    /// [`Refused::OverLimit`] for more than [`FRAGMENTS_MAX`] pieces.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(payload);
        let (Ok(FRAGMENT), Ok(id), Ok(index), Ok(count)) = (r.u8("tag"), r.u32("id"), r.u32("index"), r.u32("count"))
        else {
            return Err(Refused::Malformed);
        };
        if count > FRAGMENTS_MAX {
            return Err(Refused::OverLimit);
        }
        if index >= count {
            return Err(Refused::Malformed);
        }
        Ok(Self { id, index, count, data: r.rest() })
    }

    /// The whole payload.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(FRAGMENT_HEADER + self.data.len());
        w.u8(FRAGMENT).u32(self.id).u32(self.index).u32(self.count).bytes(self.data);
        w.into_vec()
    }
}

/// The payloads that carry a lobby message: the message itself up to [`FRAGMENT_DATA`] bytes, its fragments above.
/// `id` differs for each message of one sender and is unused for a bare one. Nothing is yielded for a message over
/// [`MESSAGE_MAX`], which no receiver would take.
pub fn split(id: u32, json: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let bare = (json.len() <= FRAGMENT_DATA).then(|| json.to_vec());
    let long = if (FRAGMENT_DATA + 1..=MESSAGE_MAX).contains(&json.len()) { json } else { &[] };
    let count = u32::try_from(long.len().div_ceil(FRAGMENT_DATA)).unwrap_or(FRAGMENTS_MAX);
    let pieces = long.chunks(FRAGMENT_DATA);
    bare.into_iter().chain((0..count).zip(pieces).map(move |(index, data)| Fragment { id, index, count, data }.write()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_cut_in_the_header_is_refused() {
        let whole = Fragment { id: 7, index: 0, count: 1, data: b"{}" }.write();
        for cut in 0..whole.len() {
            assert_eq!(Fragment::parse(&whole[..cut]).is_ok(), cut >= FRAGMENT_HEADER, "cut at {cut}");
        }
    }

    /// Pain 32: a count of 2³² made memory grow for ever.
    #[test]
    fn counts_beyond_the_limit_are_refused() {
        for (index, count, want) in [
            (0, 0, Refused::Malformed),
            (1, 1, Refused::Malformed),
            (u32::MAX, FRAGMENTS_MAX, Refused::Malformed),
            (0, FRAGMENTS_MAX + 1, Refused::OverLimit),
            (0, u32::MAX, Refused::OverLimit),
        ] {
            let bytes = Fragment { id: 1, index, count, data: b"x" }.write();
            assert_eq!(Fragment::parse(&bytes), Err(want), "{index} of {count}");
        }
        assert!(Fragment::parse(&Fragment { id: 1, index: 8191, count: 8192, data: b"" }.write()).is_ok());
    }

    #[test]
    fn an_empty_message_is_one_empty_payload_and_a_hopeless_one_is_none() {
        assert_eq!(split(0, b"").collect::<Vec<_>>(), [Vec::<u8>::new()]);
        assert_eq!(split(0, &vec![b' '; MESSAGE_MAX]).count(), 8192);
        assert_eq!(split(0, &vec![b' '; MESSAGE_MAX + 1]).count(), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(id: u32, index in 0..8192u32, data: Vec<u8>) {
            let fragment = Fragment { id, index, count: FRAGMENTS_MAX, data: &data };
            let bytes = fragment.write();
            prop_assert_eq!(Fragment::parse(&bytes), Ok(fragment));
        }
    }
}
