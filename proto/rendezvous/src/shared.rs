//! Datagrams of the shared relay port (docs/wire/extensions.md, "shared relay port").
//!
//! ```text
//! ask     "AWRB" | id 16 | 'J' or 'H' | cookie 8      29 bytes; the first ask has a cookie of zeros
//! proof   "AWRC" | id 16 | cookie 8                   28 bytes; to be repeated from the same address
//! bound   "AWRA" | id 16 | session 4 | other 1        25 bytes; other is 1 when the other end is bound as well
//! data    "AWRD" | session 4 | datagram               both ways
//! ```
//!
//! No answer is longer than its question, and nothing is forwarded to an address that has not repeated its cookie.

use std::net::{Ipv6Addr, SocketAddr};

use codec::Reader;
use np1::Role;
use seam::Refused;

/// Bytes before the datagram in `data`.
pub const DATA_HEADER: usize = 8;

const ASK: [u8; 4] = *b"AWRB";
const PROOF: [u8; 4] = *b"AWRC";
const BOUND: [u8; 4] = *b"AWRA";
const DATA: [u8; 4] = *b"AWRD";

/// How the other end of a session is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Other {
    /// Not at all.
    #[default]
    Absent,
    /// By datagrams.
    Datagrams,
    /// By a stream: nothing else gets out of where it is.
    Stream,
}

impl Other {
    /// Whether it is bound.
    #[must_use]
    pub fn is_bound(self) -> bool {
        self != Self::Absent
    }

    fn number(self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Datagrams => 1,
            Self::Stream => 2,
        }
    }
}

/// A datagram to or from the shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A player binds its address.
    Ask {
        /// The session's id.
        id: [u8; 16],
        /// Which end binds.
        role: Role,
        /// Zeros at first, then the one from `Proof`.
        cookie: [u8; 8],
    },
    /// The relay wants its cookie back.
    Proof {
        /// The session's id.
        id: [u8; 16],
        /// To be repeated.
        cookie: [u8; 8],
    },
    /// The address is bound.
    Bound {
        /// The session's id.
        id: [u8; 16],
        /// Names the session in `Data`.
        session: u32,
        /// Whether the other end is bound, and how.
        other: Other,
    },
    /// Something between the ends.
    Data {
        /// Which session.
        session: u32,
        /// What the ends say to each other.
        datagram: &'a [u8],
    },
}

impl<'a> Word<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Refused::NotOurs`] for another magic, [`Refused::Malformed`] for another length or a field out of range.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(datagram);
        let magic = r.array::<4>("magic").map_err(|_| Refused::NotOurs)?;
        let word = match magic {
            ASK => {
                let id = r.array("id").map_err(|_| Refused::Malformed)?;
                let role = match r.u8("role") {
                    Ok(b'J') => Role::Joiner,
                    Ok(b'H') => Role::Host,
                    Ok(_) | Err(_) => return Err(Refused::Malformed),
                };
                Self::Ask { id, role, cookie: r.array("cookie").map_err(|_| Refused::Malformed)? }
            }
            PROOF => {
                let id = r.array("id").map_err(|_| Refused::Malformed)?;
                Self::Proof { id, cookie: r.array("cookie").map_err(|_| Refused::Malformed)? }
            }
            BOUND => {
                let id = r.array("id").map_err(|_| Refused::Malformed)?;
                let session = r.u32("session").map_err(|_| Refused::Malformed)?;
                let other = match r.u8("other") {
                    Ok(0) => Other::Absent,
                    Ok(1) => Other::Datagrams,
                    Ok(2) => Other::Stream,
                    Ok(_) | Err(_) => return Err(Refused::Malformed),
                };
                Self::Bound { id, session, other }
            }
            DATA => {
                let session = r.u32("session").map_err(|_| Refused::Malformed)?;
                return Ok(Self::Data { session, datagram: r.rest() });
            }
            _ => return Err(Refused::NotOurs),
        };
        if r.is_empty() { Ok(word) } else { Err(Refused::Malformed) }
    }

    /// The datagram.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Ask { id, role, cookie } => {
                let letter: &[u8] = match role {
                    Role::Joiner => b"J",
                    Role::Host => b"H",
                };
                [&ASK, &id[..], letter, cookie].concat()
            }
            Self::Proof { id, cookie } => [&PROOF, &id[..], cookie].concat(),
            Self::Bound { id, session, other } => [&BOUND, &id[..], &session.to_be_bytes(), &[other.number()]].concat(),
            Self::Data { session, datagram } => [&data_header(*session), *datagram].concat(),
        }
    }
}

/// What goes before a datagram of `session`.
#[must_use]
pub fn data_header(session: u32) -> [u8; DATA_HEADER] {
    let [a, b, c, d] = session.to_be_bytes();
    let [m, n, o, p] = DATA;
    [m, n, o, p, a, b, c, d]
}

/// The address that stands for the other end of `session` in rooms that know a peer by its address: in 100::/64,
/// which is never routed (RFC 6666).
#[must_use]
pub fn stand_in(session: u32) -> SocketAddr {
    let [a, b, c, d] = session.to_be_bytes();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    SocketAddr::from((Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, high, low), 1))
}

/// The session whose other end `address` stands for.
#[must_use]
pub fn session_of(address: SocketAddr) -> Option<u32> {
    let SocketAddr::V6(v6) = address else { return None };
    let [0x100, 0, 0, 0, 0, 0, high, low] = v6.ip().segments() else { return None };
    (v6.port() == 1).then_some(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_and_no_other_length_is() {
        let (id, cookie) = (*b"0123456789abcdef", *b"cookie!!");
        for word in [
            Word::Ask { id, role: Role::Host, cookie },
            Word::Ask { id, role: Role::Joiner, cookie: [0; 8] },
            Word::Proof { id, cookie },
            Word::Bound { id, session: 0x0102_0304, other: Other::Datagrams },
            Word::Bound { id, session: 7, other: Other::Stream },
        ] {
            let mut bytes = word.write();
            assert_eq!(Word::parse(&bytes), Ok(word));
            assert!((0..bytes.len()).all(|cut| Word::parse(&bytes[..cut]).is_err()));
            bytes.push(0);
            assert_eq!(Word::parse(&bytes), Err(Refused::Malformed));
        }
        let data = Word::Data { session: 7, datagram: b"NP1:" };
        assert_eq!(data.write(), b"AWRD\0\0\0\x07NP1:");
        assert_eq!(Word::parse(&data.write()), Ok(data));
        assert_eq!(Word::parse(b"AWRD\0\0\0\x07"), Ok(Word::Data { session: 7, datagram: b"" }));
    }

    #[test]
    fn fields_out_of_range_are_malformed() {
        let mut ask = Word::Ask { id: [1; 16], role: Role::Host, cookie: [0; 8] }.write();
        ask[20] = b'X';
        assert_eq!(Word::parse(&ask), Err(Refused::Malformed));
        let mut bound = Word::Bound { id: [1; 16], session: 1, other: Other::Absent }.write();
        bound[24] = 3;
        assert_eq!(Word::parse(&bound), Err(Refused::Malformed));
    }

    #[test]
    fn a_stand_in_names_its_session_and_no_other_address_does() {
        for session in [0, 7, 0x0001_0000, u32::MAX] {
            assert_eq!(session_of(stand_in(session)), Some(session));
        }
        for other in ["192.0.2.1:1", "[100::1]:2", "[101::1]:1", "[100:0:0:1::1]:1"] {
            assert_eq!(session_of(other.parse().unwrap()), None);
        }
    }
}
