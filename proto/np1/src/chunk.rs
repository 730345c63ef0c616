//! A piece of a file, and how large pieces are (netpunch wire, sections 9.3 and 9.4).
//!
//! ```text
//! "NPF1" | sid u32 | index u32 | data
//! ```

use std::net::{IpAddr, SocketAddr};

use codec::Reader;
use seam::Refused;

/// What a chunk begins with.
pub const CHUNK_MAGIC: [u8; 4] = *b"NPF1";

/// Bytes before a chunk's data.
pub const CHUNK_HEADER: usize = 12;

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The transfer it belongs to.
    pub sid: u32,
    /// Its place: at `index` times the transfer's chunk size.
    pub index: u32,
    /// Its bytes; only the last chunk of a transfer is meant to be shorter than the chunk size.
    pub data: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Reads a payload that begins with [`CHUNK_MAGIC`].
    ///
    /// # Errors
    /// [`Refused::Malformed`] under [`CHUNK_HEADER`] bytes or with another magic.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(payload);
        let fields = (r.array::<4>("magic"), r.u32("sid"), r.u32("index"));
        match fields {
            (Ok(CHUNK_MAGIC), Ok(sid), Ok(index)) => Ok(Self { sid, index, data: r.rest() }),
            _ => Err(Refused::Malformed),
        }
    }

    /// The bytes before the data, for whoever writes the data in place behind them.
    #[must_use]
    pub fn head(sid: u32, index: u32) -> [u8; CHUNK_HEADER] {
        let mut out = [0; CHUNK_HEADER];
        let fields = CHUNK_MAGIC.into_iter().chain(sid.to_be_bytes()).chain(index.to_be_bytes());
        for (slot, byte) in out.iter_mut().zip(fields) {
            *slot = byte;
        }
        out
    }

    /// The whole payload.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        [&Self::head(self.sid, self.index), self.data].concat()
    }
}

/// Ports on 127.0.0.1 at which a Steam tunnel presents its peers.
const TUNNEL_PORTS: std::ops::RangeInclusive<u16> = 62_100..=62_199;

/// Whether an address stands for a Steam peer (netpunch wire, section 1).
#[must_use]
pub fn is_tunnel(address: SocketAddr) -> bool {
    address.ip() == IpAddr::from([127, 0, 0, 1]) && TUNNEL_PORTS.contains(&address.port())
}

/// Data bytes per chunk towards these receivers of one transfer.
#[must_use]
pub fn chunk_size(targets: &[SocketAddr]) -> u32 {
    let tunnel = targets.iter().any(|target| is_tunnel(*target));
    let local = !targets.is_empty() && targets.iter().all(|target| target.ip().is_loopback());
    match (tunnel, local) {
        (true, true) => 32_000,
        (true, false) => 1100,
        (false, true) => 8192,
        (false, false) => 1350,
    }
}

/// Chunks in flight, which both ends derive from the chunk size alone.
#[must_use]
pub const fn window(chunk: u32) -> u32 {
    match chunk {
        8192 => 16_384,
        32_000 => 128,
        _ => 2048,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_cut_in_the_header_is_refused() {
        let whole = Chunk { sid: 1, index: 2, data: b"ab" }.write();
        for cut in 0..whole.len() {
            assert_eq!(Chunk::parse(&whole[..cut]).is_ok(), cut >= CHUNK_HEADER, "cut at {cut}");
        }
    }

    #[test]
    fn nobody_to_send_to_is_not_local() {
        assert_eq!(chunk_size(&[]), 1350);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(sid: u32, index: u32, data: Vec<u8>) {
            let chunk = Chunk { sid, index, data: &data };
            let bytes = chunk.write();
            prop_assert_eq!(Chunk::parse(&bytes), Ok(chunk));
        }
    }
}
