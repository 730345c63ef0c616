//! A payload on its way to another player, by name (netpunch wire, section 8.2).
//!
//! ```text
//! 'r' | length u8 | to, UTF-8 | length u8 | from, UTF-8 | inner payload
//! ```

use codec::{Reader, Writer};
use seam::Refused;

/// First byte of an envelope's payload.
pub const ENVELOPE: u8 = b'r';

/// Longest name an envelope can carry, in bytes of UTF-8.
pub const NAME_MAX: usize = 255;

/// A payload for `to`, said to be from `from`; the name is not proof of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Name of the player it is for.
    pub to: &'a str,
    /// Name of the player who wrote it.
    pub from: &'a str,
    /// The payload inside; a game frame in every envelope sent today.
    pub inner: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads a payload that begins with [`ENVELOPE`]. A `from` cut short by the end of the packet is taken as it is,
    /// as old peers take it; nothing can follow it then.
    ///
    /// # Errors
    /// [`Refused::Malformed`] for a missing length, a cut `to`, or a name that is not UTF-8.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(payload);
        if r.u8("tag") != Ok(ENVELOPE) {
            return Err(Refused::Malformed);
        }
        let to = r.u8("to length").and_then(|n| r.take(usize::from(n), "to")).map_err(|_| Refused::Malformed)?;
        let length = usize::from(r.u8("from length").map_err(|_| Refused::Malformed)?);
        let from = r.take(length.min(r.remaining()), "from").map_err(|_| Refused::Malformed)?;
        let name = |bytes| str::from_utf8(bytes).map_err(|_| Refused::Malformed);
        Ok(Self { to: name(to)?, from: name(from)?, inner: r.rest() })
    }

    /// Everything before the inner payload, for whoever seals head and payload as two parts.
    ///
    /// # Errors
    /// [`Refused::OverLimit`] when a name is over [`NAME_MAX`] bytes: its length would not fit its byte.
    pub fn head(to: &str, from: &str) -> Result<Vec<u8>, Refused> {
        if to.len().max(from.len()) > NAME_MAX {
            return Err(Refused::OverLimit);
        }
        let mut w = Writer::with_capacity(3 + to.len() + from.len());
        w.u8(ENVELOPE);
        for name in [to, from] {
            w.sized_u8(|w| {
                w.bytes(name.as_bytes());
            });
        }
        Ok(w.into_vec())
    }

    /// The whole payload.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn write(&self) -> Result<Vec<u8>, Refused> {
        let mut out = Self::head(self.to, self.from)?;
        out.extend_from_slice(self.inner);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cut_in_from_leaves_no_payload_and_any_earlier_cut_is_refused() {
        let whole = Envelope { to: "bob", from: "al", inner: b"g!" }.write().unwrap();
        for cut in 0..whole.len() {
            match Envelope::parse(&whole[..cut]) {
                Err(why) => assert!(why == Refused::Malformed && cut < 6, "cut at {cut}"),
                Ok(got) => {
                    assert!(cut >= 6);
                    assert_eq!((got.to, got.inner), ("bob", &whole[8.min(cut)..cut]));
                }
            }
        }
    }

    /// Pain 47: a longer name ended old peers' relay loop.
    #[test]
    fn a_name_over_255_bytes_is_refused_in_either_place() {
        let long = "n".repeat(NAME_MAX + 1);
        assert_eq!(Envelope::head(&long, "a"), Err(Refused::OverLimit));
        assert_eq!(Envelope::head("a", &long), Err(Refused::OverLimit));
        assert!(Envelope::head(&long[1..], &long[1..]).is_ok());
    }

    #[test]
    fn a_cut_in_the_middle_of_a_character_is_refused() {
        let whole = Envelope { to: "a", from: "\u{fc}", inner: b"" }.write().unwrap();
        assert_eq!(Envelope::parse(&whole[..whole.len() - 1]), Err(Refused::Malformed));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(to in "\\PC{0,60}", from in "\\PC{0,60}", inner: Vec<u8>) {
            let envelope = Envelope { to: &to, from: &from, inner: &inner };
            let bytes = envelope.write().unwrap();
            prop_assert_eq!(Envelope::parse(&bytes), Ok(envelope));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let tagged = [&[ENVELOPE], &bytes[..]].concat();
            if let Ok(got) = Envelope::parse(&tagged) {
                prop_assert!(got.to.len() + got.from.len() + got.inner.len() + 3 <= tagged.len());
            }
        }
    }
}
