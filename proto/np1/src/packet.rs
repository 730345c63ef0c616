//! The outermost layer: `"NP1:"`, one letter, a payload (netpunch wire, section 4).

use codec::Reader;
use seam::Refused;

use crate::Chunk;

/// What every packet begins with.
pub const MAGIC: [u8; 4] = *b"NP1:";

/// Bytes before the payload: the magic and the kind's letter.
pub const HEADER: usize = 5;

/// What a packet is. One letter each, in this one place; a letter once given is never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `H`: a token to be echoed; the knock of a dialler.
    Hello,
    /// `A`: the echoed token.
    Ack,
    /// `C`: the sender got its own token back.
    Connected,
    /// `K`: keeps a link and its NAT mapping alive.
    Keepalive,
    /// `E`: a sealed frame.
    Sealed,
    /// `S`: a signed frame, readable but authentic. Understood, never sent.
    Signed,
    /// `D`: a payload in the clear.
    Plain,
    /// `X`: key exchange over Steam.
    KeyExchange,
    /// `Q`: a datagram of QUIC between our own ends (`docs/wire/extensions.md`).
    Quic,
    /// A letter that is not ours: ignored, as a later release may use it.
    Other(u8),
}

impl Kind {
    /// Every kind with a letter of its own.
    pub const ALL: [Self; 9] = [
        Self::Hello,
        Self::Ack,
        Self::Connected,
        Self::Keepalive,
        Self::Sealed,
        Self::Signed,
        Self::Plain,
        Self::KeyExchange,
        Self::Quic,
    ];

    /// The letter on the wire.
    #[must_use]
    pub const fn letter(self) -> u8 {
        match self {
            Self::Hello => b'H',
            Self::Ack => b'A',
            Self::Connected => b'C',
            Self::Keepalive => b'K',
            Self::Sealed => b'E',
            Self::Signed => b'S',
            Self::Plain => b'D',
            Self::KeyExchange => b'X',
            Self::Quic => b'Q',
            Self::Other(letter) => letter,
        }
    }

    /// The kind a letter stands for.
    #[must_use]
    pub const fn from_letter(letter: u8) -> Self {
        match letter {
            b'H' => Self::Hello,
            b'A' => Self::Ack,
            b'C' => Self::Connected,
            b'K' => Self::Keepalive,
            b'E' => Self::Sealed,
            b'S' => Self::Signed,
            b'D' => Self::Plain,
            b'X' => Self::KeyExchange,
            b'Q' => Self::Quic,
            other => Self::Other(other),
        }
    }
}

/// One datagram, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it is.
    pub kind: Kind,
    /// Everything after the letter, possibly nothing.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Refused::NotOurs`] under [`HEADER`] bytes or with another magic: STUN, relay answers and noise end here.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(datagram);
        let magic = r.array::<4>("magic").map_err(|_| Refused::NotOurs)?;
        let letter = r.u8("kind").map_err(|_| Refused::NotOurs)?;
        if magic != MAGIC {
            return Err(Refused::NotOurs);
        }
        Ok(Self { kind: Kind::from_letter(letter), payload: r.rest() })
    }
}

/// The first [`HEADER`] bytes of a packet, for whoever writes the payload in place behind them.
#[must_use]
pub const fn header(kind: Kind) -> [u8; HEADER] {
    let [n, p, one, colon] = MAGIC;
    [n, p, one, colon, kind.letter()]
}

/// A whole packet.
#[must_use]
pub fn packet(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + payload.len());
    out.extend_from_slice(&header(kind));
    out.extend_from_slice(payload);
    out
}

/// What old joiners compare byte by byte before they parse; it has one space and ends with the closing quote.
const REJECT_PREFIX: &[u8] = br#"{"t": "reject""#;

/// The packet that tells somebody whose frames do not open why: the only lobby message ever sent in the clear in a
/// sealed session (netpunch wire, section 4.3). The byte form matters, a joiner drops a compact one.
#[must_use]
pub fn plain_reject(reason: &str) -> Vec<u8> {
    let reason = codec::to_json(&reason);
    let parts = [REJECT_PREFIX, br#", "reason": "#, &reason, b"}"].concat();
    packet(Kind::Plain, &parts)
}

/// What a joiner of a sealed session takes from a packet in the clear (netpunch wire, section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainTake<'a> {
    /// A piece of a file; its hash decides, not the packet.
    Chunk(Chunk<'a>),
    /// The host cannot open our frames, or somebody pretends to be it: worth believing only before the first frame
    /// from the host that opened (pain 26).
    Reject(String),
    /// Nothing: whatever it says, anybody may have said it.
    Nothing,
}

/// Reads the payload of a [`Kind::Plain`] packet as a joiner of a sealed session must. A text that only begins like a
/// reject is none: it has to parse, and of a repeated key the last decides (pain 24).
#[must_use]
pub fn read_plain(payload: &[u8]) -> PlainTake<'_> {
    if let Ok(chunk) = Chunk::parse(payload) {
        return PlainTake::Chunk(chunk);
    }
    if !payload.starts_with(REJECT_PREFIX) {
        return PlainTake::Nothing;
    }
    match codec::object(payload) {
        Ok(map) if map.get("t").and_then(codec::Value::as_str) == Some("reject") => {
            let reason = map.get("reason").and_then(codec::Value::as_str).unwrap_or_default();
            PlainTake::Reject(reason.to_owned())
        }
        Ok(_) | Err(_) => PlainTake::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pain 21: one letter was once given to two kinds.
    #[test]
    fn every_kind_has_a_letter_of_its_own() {
        let letters: std::collections::BTreeSet<u8> = Kind::ALL.iter().map(|kind| kind.letter()).collect();
        assert_eq!(letters.len(), Kind::ALL.len());
        for letter in 0..=u8::MAX {
            assert_eq!(Kind::from_letter(letter).letter(), letter);
        }
    }

    #[test]
    fn a_packet_cut_before_its_payload_is_not_ours() {
        let whole = packet(Kind::Hello, b"token");
        for cut in 0..whole.len() {
            let got = Packet::parse(&whole[..cut]);
            assert_eq!(got.is_ok(), cut >= HEADER, "cut at {cut}");
        }
    }

    #[test]
    fn the_plain_reject_is_byte_exact_and_read_back() {
        let bytes = plain_reject("wrong password");
        assert_eq!(bytes, br#"NP1:D{"t": "reject", "reason": "wrong password"}"#);
        let odd = plain_reject("a \"q\" \u{fc}");
        assert_eq!(read_plain(&odd[HEADER..]), PlainTake::Reject("a \"q\" \u{fc}".to_owned()));
    }

    #[test]
    fn a_reject_cut_anywhere_is_nothing() {
        let payload = plain_reject("lobby full").split_off(HEADER);
        for cut in 0..payload.len() {
            assert_eq!(read_plain(&payload[..cut]), PlainTake::Nothing, "cut at {cut}");
        }
    }

    #[test]
    fn a_reject_with_a_reason_of_another_type_has_no_reason() {
        assert_eq!(read_plain(br#"{"t": "reject", "reason": 5}"#), PlainTake::Reject(String::new()));
    }

    /// Pain 24: a second `t` smuggled a start into a sealed session.
    #[test]
    fn of_a_repeated_key_the_last_decides() {
        assert_eq!(read_plain(br#"{"t": "reject", "t": "start"}"#), PlainTake::Nothing);
        assert_eq!(read_plain(br#"{"t": "reject", "t": "start", "t": "reject"}"#), PlainTake::Reject(String::new()));
    }
}
