//! What an opened packet carries, told by its first bytes (netpunch wire, section 5).

use seam::Refused;

use crate::{CHUNK_MAGIC, Chunk, ENVELOPE, Envelope, FRAGMENT, Fragment};

/// First byte of a game frame's payload.
pub const GAME: u8 = b'g';

/// Longest frame taken from the own game. One that arrives longer is delivered as it is.
pub const GAME_FRAME_MAX: usize = 1400;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The bytes of a lobby message, which begin with `{`.
    Json(&'a [u8]),
    /// A piece of a file.
    Chunk(Chunk<'a>),
    /// A datagram of the game, without the leading `g`.
    Game(&'a [u8]),
    /// A payload for another player.
    Envelope(Envelope<'a>),
    /// A piece of a long lobby message.
    Fragment(Fragment<'a>),
    /// None of these: ignored, as a later release may know it.
    Unknown,
}

impl<'a> Payload<'a> {
    /// Tells what a payload is.
    ///
    /// # Errors
    /// [`Refused::Malformed`] when it begins like a chunk, an envelope or a fragment and is none.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Refused> {
        Ok(match payload.split_first() {
            Some((&b'{', _)) => Self::Json(payload),
            Some((&GAME, frame)) => Self::Game(frame),
            Some((&ENVELOPE, _)) => Self::Envelope(Envelope::parse(payload)?),
            Some((&FRAGMENT, _)) => Self::Fragment(Fragment::parse(payload)?),
            Some(_) if payload.starts_with(&CHUNK_MAGIC) => Self::Chunk(Chunk::parse(payload)?),
            Some(_) | None => Self::Unknown,
        })
    }
}

/// The payload that carries a datagram of the own game.
///
/// # Errors
/// [`Refused::OverLimit`] over [`GAME_FRAME_MAX`] bytes.
pub fn game_frame(frame: &[u8]) -> Result<Vec<u8>, Refused> {
    if frame.len() > GAME_FRAME_MAX {
        return Err(Refused::OverLimit);
    }
    let mut out = Vec::with_capacity(1 + frame.len());
    out.push(GAME);
    out.extend_from_slice(frame);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_kind() {
        assert_eq!(Payload::parse(b"{}"), Ok(Payload::Json(b"{}")));
        assert_eq!(Payload::parse(b"g"), Ok(Payload::Game(b"")));
        assert_eq!(Payload::parse(b"gabc"), Ok(Payload::Game(b"abc")));
        assert!(matches!(Payload::parse(b"NPF1........"), Ok(Payload::Chunk(_))));
        for unknown in [&b""[..], b"N", b"NPF", b"NPF2........", b"[1]", b"\x00"] {
            assert_eq!(Payload::parse(unknown), Ok(Payload::Unknown));
        }
    }

    #[test]
    fn a_known_kind_cut_short_is_malformed() {
        for cut in [&b"NPF1......."[..], b"F...........", b"r", b"r\x00"] {
            assert_eq!(Payload::parse(cut), Err(Refused::Malformed));
        }
    }

    #[test]
    fn an_arriving_frame_may_be_longer_than_a_sent_one() {
        let long = vec![GAME; 5000];
        assert_eq!(Payload::parse(&long), Ok(Payload::Game(&long[1..])));
    }
}
