//! Discovery packets: Request, Response, Message (NetherNet, sections 7.2 and 7.3).
//!
//! Numbers are little-endian. Reading follows what programs in the field send: the length field at the front is written
//! in two ways and never looked at, padding is ignored, bytes after the data are ignored.

use std::borrow::Cow;

use codec::{Reader, Writer};
use thiserror::Error;

/// Bytes of the header that every packet begins with, and of a whole Request.
pub const HEADER: usize = 20;
/// Most bytes of data in a Response that is sent: characters of hexadecimal text on the wire.
pub const RESPONSE_MAX: usize = 1_148;
/// Most bytes of application data that [`Packet::Response`] carries as hexadecimal text.
pub const APPLICATION_MAX: usize = RESPONSE_MAX / 2;
/// Bytes of data in a Message that every peer takes. A longer one is legal to receive, and sent where it must be.
pub const MESSAGE_USUAL: usize = 1_140;
/// Most bytes of a packet, so that its envelope fits a datagram.
pub const PACKET_MAX: usize = 65_471;

const RESPONSE_HEADER: usize = HEADER + 4;
const MESSAGE_HEADER: usize = HEADER + 12;

const REQUEST: u16 = 0;
const RESPONSE: u16 = 1;
const MESSAGE: u16 = 2;

/// What begins the one message whose length retail hosts get wrong.
const UNDERCOUNTED: &[u8] = b"CONNECTRESPONSE ";

/// One discovery packet, borrowing from what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Who is there?
    Request {
        /// Who asks.
        sender: u64,
    },
    /// I am.
    Response {
        /// Who answers.
        sender: u64,
        /// What is on the wire: mostly hexadecimal text. [`application_data`] reads it.
        data: &'a [u8],
    },
    /// A signalling message.
    Message {
        /// Who says it; 0 in the optional probe.
        sender: u64,
        /// Whom it is for.
        recipient: u64,
        /// The text.
        data: &'a [u8],
    },
}

/// Why a packet cannot be read. It is dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Cut short, or its data longer than what is there.
    #[error(transparent)]
    Short(#[from] codec::Short),
    /// None of the three.
    #[error("no packet of type {0}")]
    Type(u16),
}

/// A packet over its bound was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what} of {size} bytes; at most {max}")]
pub struct TooLong {
    /// What is too long.
    pub what: &'static str,
    /// Its bytes.
    pub size: usize,
    /// The bound.
    pub max: usize,
}

impl<'a> Packet<'a> {
    /// Reads a packet that came out of an envelope.
    ///
    /// Hosts in the field undercount the length of a long CONNECTRESPONSE: there, what follows belongs to it (unless it
    /// holds a NUL, which no SDP does).
    ///
    /// # Errors
    /// [`PacketError`]: the packet is to be dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let mut r = Reader::new(bytes);
        let _length = r.u16_le("length")?;
        let kind = r.u16_le("type")?;
        let sender = r.u64_le("sender")?;
        let _pad = r.u64_le("pad")?;
        match kind {
            REQUEST => Ok(Self::Request { sender }),
            RESPONSE => Ok(Self::Response { sender, data: sized(&mut r, "application data")? }),
            MESSAGE => {
                let recipient = r.u64_le("recipient")?;
                let all = r.clone();
                let mut data = sized(&mut r, "message data")?;
                if data.starts_with(UNDERCOUNTED) && !r.is_empty() && !r.clone().rest().contains(&0) {
                    let mut all = all;
                    let _count = all.u32_le("message data")?;
                    data = all.rest();
                }
                Ok(Self::Message { sender, recipient, data })
            }
            kind => Err(PacketError::Type(kind)),
        }
    }

    /// Who sent it.
    #[must_use]
    pub const fn sender(&self) -> u64 {
        match *self {
            Self::Request { sender } | Self::Response { sender, .. } | Self::Message { sender, .. } => sender,
        }
    }

    /// The bytes to seal, exact in every length.
    ///
    /// # Errors
    /// [`TooLong`]: a Response with more than [`RESPONSE_MAX`] bytes of data, or a packet over [`PACKET_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let (kind, head, data): (u16, usize, &[u8]) = match *self {
            Self::Request { .. } => (REQUEST, HEADER, &[]),
            Self::Response { data, .. } => (RESPONSE, RESPONSE_HEADER, data),
            Self::Message { data, .. } => (MESSAGE, MESSAGE_HEADER, data),
        };
        let max = if kind == RESPONSE { RESPONSE_MAX } else { PACKET_MAX - head };
        let too_long = TooLong { what: "discovery data", size: data.len(), max };
        if data.len() > max {
            return Err(too_long);
        }
        let (Ok(total), Ok(count)) = (u16::try_from(head + data.len()), u32::try_from(data.len())) else {
            return Err(too_long);
        };
        let mut w = Writer::with_capacity(head + data.len());
        w.u16_le(total).u16_le(kind).u64_le(self.sender()).u64_le(0);
        match self {
            Self::Request { .. } => {}
            Self::Response { .. } => {
                w.u32_le(count).bytes(data);
            }
            Self::Message { recipient, .. } => {
                w.u64_le(*recipient).u32_le(count).bytes(data);
            }
        }
        Ok(w.into_vec())
    }
}

fn sized<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], codec::Short> {
    let count = r.u32_le(what)?;
    r.take(usize::try_from(count).unwrap_or(usize::MAX), what)
}

/// What a Response's data means: the bytes its hexadecimal text stands for, in either case, or the bytes as they are
/// where it is no such text.
#[must_use]
pub fn application_data(wire: &[u8]) -> Cow<'_, [u8]> {
    match data_encoding::HEXLOWER_PERMISSIVE.decode(wire) {
        Ok(data) if !wire.is_empty() => Cow::Owned(data),
        _ => Cow::Borrowed(wire),
    }
}

/// A Response's data as programs in the field want it: lower-case hexadecimal text.
///
/// # Errors
/// [`TooLong`] over [`APPLICATION_MAX`] bytes.
pub fn response_text(data: &[u8]) -> Result<String, TooLong> {
    if data.len() > APPLICATION_MAX {
        return Err(TooLong { what: "an advertisement", size: data.len(), max: APPLICATION_MAX });
    }
    Ok(codec::hex(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENDER: u64 = 0x1122_3344_5566_7788;

    fn hex(packet: Packet<'_>) -> String {
        codec::hex(&packet.encode().unwrap())
    }

    #[test]
    fn pain_2_golden_bytes_of_all_three() {
        assert_eq!(hex(Packet::Request { sender: SENDER }), "1400000088776655443322110000000000000000");
        assert_eq!(
            hex(Packet::Response { sender: SENDER, data: b"ab" }),
            "1a0001008877665544332211000000000000000002000000\
             6162"
        );
        assert_eq!(
            hex(Packet::Message { sender: SENDER, recipient: 1, data: b"Ping" }),
            "240002008877665544332211000000000000000001000000000000000400000050696e67"
        );
    }

    #[test]
    fn pain_1_the_length_field_is_never_looked_at() {
        let mut bytes = Packet::Request { sender: SENDER }.encode().unwrap();
        for length in [20_u16, 18, 0, 65_535] {
            bytes[..2].copy_from_slice(&length.to_le_bytes());
            assert_eq!(Packet::parse(&bytes), Ok(Packet::Request { sender: SENDER }));
        }
    }

    #[test]
    fn pain_11_an_undercounted_answer_is_taken_whole() {
        let whole = b"CONNECTRESPONSE 7 v=0\r\na=candidate:1 1 udp 1 10.0.0.1 1 typ host\r\n";
        let mut bytes = Packet::Message { sender: SENDER, recipient: 1, data: whole }.encode().unwrap();
        bytes[28] = 30;
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Message { sender: SENDER, recipient: 1, data: whole }));
        // A NUL behind it is somebody's padding.
        bytes.push(0);
        let cut = Packet::Message { sender: SENDER, recipient: 1, data: &whole[..30] };
        assert_eq!(Packet::parse(&bytes), Ok(cut));
    }

    #[test]
    fn bytes_behind_other_messages_are_ignored() {
        let data = b"CANDIDATEADD 7 candidate:1";
        let mut bytes = Packet::Message { sender: SENDER, recipient: 1, data }.encode().unwrap();
        bytes.extend_from_slice(b"trailing");
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Message { sender: SENDER, recipient: 1, data }));
        let mut bytes = Packet::Response { sender: SENDER, data: b"00" }.encode().unwrap();
        bytes.push(7);
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Response { sender: SENDER, data: b"00" }));
    }

    #[test]
    fn every_truncation_is_refused() {
        for packet in [
            Packet::Request { sender: SENDER },
            Packet::Response { sender: SENDER, data: b"abc" },
            Packet::Message { sender: SENDER, recipient: 9, data: b"abc" },
        ] {
            let bytes = packet.encode().unwrap();
            for end in 0..bytes.len() {
                assert!(Packet::parse(&bytes[..end]).is_err(), "{packet:?} cut to {end}");
            }
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        for count in [4_u32, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
            let mut bytes = Packet::Response { sender: SENDER, data: b"abc" }.encode().unwrap();
            bytes[20..24].copy_from_slice(&count.to_le_bytes());
            assert!(matches!(Packet::parse(&bytes), Err(PacketError::Short(_))), "{count}");
            let mut bytes = Packet::Message { sender: SENDER, recipient: 9, data: b"abc" }.encode().unwrap();
            bytes[28..32].copy_from_slice(&count.to_le_bytes());
            assert!(matches!(Packet::parse(&bytes), Err(PacketError::Short(_))), "{count}");
        }
    }

    #[test]
    fn nothing_over_a_bound_is_written() {
        let long = vec![b'x'; PACKET_MAX];
        let response = Packet::Response { sender: 1, data: &long[..RESPONSE_MAX + 1] };
        assert_eq!(response.encode().unwrap_err().max, RESPONSE_MAX);
        let message = |len: usize| Packet::Message { sender: 1, recipient: 2, data: &long[..len] }.encode();
        assert_eq!(message(PACKET_MAX - MESSAGE_HEADER).unwrap().len(), PACKET_MAX);
        assert!(message(PACKET_MAX - MESSAGE_HEADER + 1).is_err());
        assert!(response_text(&long[..APPLICATION_MAX]).is_ok());
        assert!(response_text(&long[..APPLICATION_MAX + 1]).is_err());
    }

    #[test]
    fn application_data_is_hexadecimal_text_in_either_case_or_raw() {
        assert_eq!(application_data(b"0a0B"), &b"\x0A\x0B"[..]);
        assert_eq!(application_data(b"0a0"), &b"0a0"[..], "odd");
        assert_eq!(application_data(b"MCPE;name;0"), &b"MCPE;name;0"[..]);
        assert_eq!(application_data(b""), &b""[..]);
        assert_eq!(response_text(&[0x0A, 0xFF]).unwrap(), "0aff");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(sender: u64, recipient: u64, data in proptest::collection::vec(any::<u8>(), 0..1148)) {
            for packet in [
                Packet::Request { sender },
                Packet::Response { sender, data: &data },
                Packet::Message { sender, recipient, data: &data },
            ] {
                let bytes = packet.encode().unwrap();
                prop_assert_eq!(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])), bytes.len());
                prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
            }
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(packet) = Packet::parse(&bytes) {
                let written = packet.encode().unwrap();
                prop_assert_eq!(Packet::parse(&written), Ok(packet));
            }
        }
    }
}
