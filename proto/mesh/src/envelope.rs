//! Envelopes as the mesh reads them: a game frame with the names of two players.

use bytes::Bytes;
use np1::{Envelope, GAME};
use seam::Refused;

pub(crate) struct Wrapped<'a> {
    pub(crate) to: &'a str,
    pub(crate) from: &'a str,
    /// The frame without its letter, a slice of the envelope's own memory.
    pub(crate) frame: Bytes,
}

/// Reads an envelope, letter `r` included. Envelopes carry game frames and nothing else.
pub(crate) fn open(payload: &Bytes) -> Result<Wrapped<'_>, Refused> {
    let Envelope { to, from, inner } = Envelope::parse(payload)?;
    let Some((&GAME, frame)) = inner.split_first() else { return Err(Refused::Malformed) };
    // The frame is the tail of the payload.
    let start = payload.len().saturating_sub(frame.len());
    Ok(Wrapped { to, from, frame: payload.slice(start..) })
}
