//! The datagrams of protocol 5. Integers are **little-endian**, unlike everywhere else on this wire.
//!
//! ```text
//!  0  "FPT5"            4
//!  4  world            32  ASCII hexadecimal, names the shared save
//! 36  session           4  of the sender, random per process, never 0
//! 40  ack session       4  whose stream is acknowledged, 0 nobody's
//! 44  seq               4  event: its number; keepalive: the oldest event still kept
//! 48  ack               4  newest event received, 0xFFFFFFFF none
//! 52  ack bits          4  bit k: event ack-k-1 was received
//! 56  type              1  0 keepalive, 1 event
//!     -- events only --
//! 57  type              1  1, text
//! 58  chunk index       2
//! 60  chunk count       2
//! 62  text, NUL         1..1024
//! ```

use codec::Reader;
use seam::Refused;

/// What every datagram begins with; the digit is the protocol's number.
pub const MAGIC: [u8; 4] = *b"FPT5";

/// Length of a keepalive, and of what precedes an event's own fields.
pub const HEADER: usize = 57;

/// Most text bytes of one event, without the NUL.
pub const CHUNK_MAX: usize = 1023;

/// Shortest event: no text, only its NUL.
pub const EVENT_MIN: usize = HEADER + 6;

/// Longest event.
pub const DATAGRAM_MAX: usize = EVENT_MIN + CHUNK_MAX;

const _: () = assert!(HEADER == 4 + 32 + 5 * 4 + 1 && DATAGRAM_MAX == 1086);

const KEEPALIVE: u8 = 0;
const EVENT: u8 = 1;
const TEXT: u8 = 1;
const NO_ACK: u32 = u32::MAX;

/// What every datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The shared save's name; datagrams of another world are not for us.
    pub world: [u8; 32],
    /// The sender's process.
    pub session: u32,
    /// The process whose stream `ack` and `ack_bits` are about; 0 for nobody's.
    pub ack_session: u32,
    /// The event's number, or in a keepalive the oldest one still kept.
    pub seq: u32,
    /// Newest event received from `ack_session`.
    pub ack: Option<u32>,
    /// Bit k: event `ack - k - 1` was received too.
    pub ack_bits: u32,
}

/// What follows the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Nothing.
    Keepalive,
    /// A piece of a text. What is parsed keeps `index < count`.
    Event {
        /// Place of this piece in its text, from 0.
        index: u16,
        /// Pieces of the text.
        count: u16,
        /// The bytes before the NUL.
        text: &'a [u8],
    },
}

/// One datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header,
    /// The rest.
    pub body: Body<'a>,
}

impl<'a> Datagram<'a> {
    /// Reads a datagram. What follows a keepalive's header or an event's NUL is ignored: earlier protocols padded.
    ///
    /// # Errors
    /// [`Refused::NotOurs`] for another magic or protocol; [`Refused::Malformed`] when cut short, of an unknown type,
    /// for a piece outside its text, a number that no acknowledgement could name, or a text whose NUL is not among the
    /// first 1024 bytes.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(datagram);
        if r.array("magic") != Ok(MAGIC) {
            return Err(Refused::NotOurs);
        }
        let (header, kind) = read_header(&mut r).map_err(|_| Refused::Malformed)?;
        let body = match kind {
            KEEPALIVE => Body::Keepalive,
            EVENT if header.seq != NO_ACK => read_event(&mut r)?,
            _ => return Err(Refused::Malformed),
        };
        Ok(Self { header, body })
    }

    /// How long [`write`](Self::write) makes it.
    #[must_use]
    pub fn size(&self) -> usize {
        match self.body {
            Body::Keepalive => HEADER,
            Body::Event { text, .. } => EVENT_MIN + text.len(),
        }
    }

    /// Writes the datagram to the start of `out` and returns its length, or 0 when `out` is too short. The caller keeps
    /// texts within [`CHUNK_MAX`] bytes and free of NULs.
    pub fn write(&self, out: &mut [u8]) -> usize {
        let h = &self.header;
        let numbers = [h.session, h.ack_session, h.seq, h.ack.unwrap_or(NO_ACK), h.ack_bits].map(u32::to_le_bytes);
        let [session, ack_session, seq, ack, bits] = &numbers;
        let mut at = Cursor { out, len: 0 };
        at.put(&[&MAGIC, &h.world[..], session, ack_session, seq, ack, bits]);
        match self.body {
            Body::Keepalive => at.put(&[&[KEEPALIVE]]),
            Body::Event { index, count, text } => {
                at.put(&[&[EVENT, TEXT], &index.to_le_bytes(), &count.to_le_bytes(), text, &[0]]);
            }
        }
        if at.len == self.size() { at.len } else { 0 }
    }
}

/// Fills a slice front to back and stops at the first part that does not fit.
struct Cursor<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Cursor<'_> {
    fn put(&mut self, parts: &[&[u8]]) {
        for part in parts {
            let Some(slot) = self.out.get_mut(self.len..self.len + part.len()) else { return };
            slot.copy_from_slice(part);
            self.len += part.len();
        }
    }
}

fn read_header(r: &mut Reader<'_>) -> Result<(Header, u8), codec::Short> {
    let world = r.array("world")?;
    let session = r.u32_le("session")?;
    let ack_session = r.u32_le("ack session")?;
    let seq = r.u32_le("seq")?;
    let ack = r.u32_le("ack")?;
    let ack_bits = r.u32_le("ack bits")?;
    let kind = r.u8("type")?;
    let ack = (ack != NO_ACK).then_some(ack);
    Ok((Header { world, session, ack_session, seq, ack, ack_bits }, kind))
}

fn read_event<'a>(r: &mut Reader<'a>) -> Result<Body<'a>, Refused> {
    let fields = (r.u8("event type"), r.u16_le("chunk index"), r.u16_le("chunk count"));
    let (Ok(TEXT), Ok(index), Ok(count)) = fields else { return Err(Refused::Malformed) };
    let rest = r.rest();
    let end = rest.iter().take(CHUNK_MAX + 1).position(|byte| *byte == 0).ok_or(Refused::Malformed)?;
    let text = rest.get(..end).unwrap_or_default();
    if index < count { Ok(Body::Event { index, count, text }) } else { Err(Refused::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(seq: u32, ack: Option<u32>) -> Header {
        Header { world: [b'7'; 32], session: 1, ack_session: 2, seq, ack, ack_bits: 3 }
    }

    fn bytes(datagram: &Datagram<'_>) -> Vec<u8> {
        let mut out = vec![0xEE; datagram.size()];
        assert_eq!(datagram.write(&mut out), out.len());
        out
    }

    #[test]
    fn every_truncation_is_refused() {
        for body in [Body::Keepalive, Body::Event { index: 0, count: 1, text: b"cmd=x" }] {
            let whole = bytes(&Datagram { header: header(5, None), body });
            for cut in 0..whole.len() {
                assert!(Datagram::parse(&whole[..cut]).is_err(), "cut at {cut}");
            }
            assert!(Datagram::parse(&whole).is_ok());
        }
    }

    #[test]
    fn an_event_whose_nul_comes_too_late_is_refused() {
        let longest = [b'x'; CHUNK_MAX];
        let event = Datagram { header: header(5, None), body: Body::Event { index: 0, count: 1, text: &longest } };
        let mut out = bytes(&event);
        assert_eq!(out.len(), DATAGRAM_MAX);
        assert_eq!(Datagram::parse(&out), Ok(event));
        out.insert(HEADER + 5, b'x');
        assert_eq!(Datagram::parse(&out), Err(Refused::Malformed));
    }

    #[test]
    fn padding_after_the_nul_is_ignored() {
        let event = Datagram { header: header(5, None), body: Body::Event { index: 0, count: 1, text: b"a" } };
        let mut out = bytes(&event);
        out.resize(DATAGRAM_MAX, b'z');
        assert_eq!(Datagram::parse(&out), Ok(event));
    }

    #[test]
    fn fields_out_of_their_range_are_refused() {
        for (seq, index, count) in [(5, 0, 0), (5, 1, 1), (5, u16::MAX, 3), (u32::MAX, 0, 1)] {
            let body = Body::Event { index, count, text: b"" };
            let out = bytes(&Datagram { header: header(seq, None), body });
            assert_eq!(Datagram::parse(&out), Err(Refused::Malformed), "{seq} {index} {count}");
        }
        let mut out = bytes(&Datagram { header: header(5, None), body: Body::Event { index: 0, count: 1, text: b"" } });
        for at in [HEADER - 1, HEADER] {
            let right = std::mem::replace(&mut out[at], 9);
            assert_eq!(Datagram::parse(&out), Err(Refused::Malformed), "type at {at}");
            out[at] = right;
        }
    }

    #[test]
    fn too_short_a_place_takes_nothing() {
        let event = Datagram { header: header(5, None), body: Body::Event { index: 0, count: 1, text: b"ab" } };
        for len in 0..event.size() {
            assert_eq!(event.write(&mut vec![0; len]), 0);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            world: [u8; 32], numbers: [u32; 4], ack in prop::option::of(0..u32::MAX), index in 0..9u16,
            text in prop::collection::vec(1..=255u8, 0..=CHUNK_MAX), event: bool,
        ) {
            let [session, ack_session, seq, ack_bits] = numbers;
            let header = Header { world, session, ack_session, seq: seq.min(u32::MAX - 1), ack, ack_bits };
            let body = if event { Body::Event { index, count: 9, text: &text } } else { Body::Keepalive };
            let datagram = Datagram { header, body };
            let out = bytes(&datagram);
            prop_assert_eq!(Datagram::parse(&out), Ok(datagram));
        }

        #[test]
        fn any_bytes_are_read_or_refused(tail: Vec<u8>) {
            let bytes = [&MAGIC[..], &tail].concat();
            if let Ok(read) = Datagram::parse(&bytes) {
                prop_assert!(read.size() <= bytes.len());
            }
        }
    }
}
