//! The answer, as a client reads it and as a server writes it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use codec::{Reader, Short, Writer};
use thiserror::Error;

use crate::{BINDING_ANSWER, BINDING_ERROR, HEADER, MAGIC_COOKIE, Request, TransactionId, attribute};

const MAPPED_ADDRESS: u16 = 0x0001;
const ERROR_CODE: u16 = 0x0009;
const UNKNOWN_ATTRIBUTES: u16 = 0x000A;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const RESPONSE_ORIGIN: u16 = 0x802B;
const OTHER_ADDRESS: u16 = 0x802C;
const FAMILY_V4: u8 = 1;
const FAMILY_V6: u8 = 2;

/// Longest answer a server of ours writes: four addresses, IPv6. Of IPv4 it is 68 bytes.
pub const ANSWER_MAX: usize = HEADER + 4 * (4 + 20);

/// Which attributes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// MAPPED-ADDRESS alone, as old peers read.
    Classic,
    /// XOR-MAPPED-ADDRESS where there is one, else MAPPED-ADDRESS.
    Modern,
}

/// Why a datagram gives no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The datagram, or a field in it, ends early.
    #[error("answer {0}")]
    Short(#[from] Short),
    /// Another kind of message.
    #[error("not an answer to a binding request")]
    NotAnAnswer,
    /// An answer to another question.
    #[error("answer to another transaction")]
    OtherTransaction,
    /// The server refused.
    #[error("the server answered with error {code}")]
    Refused {
        /// Error code of RFC 8489, 0 when the answer names none.
        code: u16,
    },
    /// No attribute that counts holds an address.
    #[error("answer without an address")]
    NoAddress,
}

/// A binding answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request's transaction.
    pub id: TransactionId,
    /// MAPPED-ADDRESS.
    pub mapped: Option<SocketAddr>,
    /// XOR-MAPPED-ADDRESS, decoded.
    pub xor_mapped: Option<SocketAddr>,
    /// RESPONSE-ORIGIN: where the server sent it from (RFC 5780, section 7.3).
    pub origin: Option<SocketAddr>,
    /// OTHER-ADDRESS: where else the server can answer from, and be asked (RFC 5780, section 7.4).
    pub other: Option<SocketAddr>,
}

impl Answer {
    /// Reads a binding answer. Any bytes may be given. Attributes of no interest are skipped, of a repeated one the
    /// first counts, address families other than IPv4 and IPv6 are ignored, bytes after the message too.
    ///
    /// # Errors
    /// [`AnswerError`] for anything else; a field that is cut short refuses the whole answer.
    pub fn parse(datagram: &[u8]) -> Result<Self, AnswerError> {
        let mut r = Reader::new(datagram);
        let kind = r.u16("type")?;
        let body = usize::from(r.u16("length")?);
        let id = TransactionId(r.array("transaction id")?);
        if kind != BINDING_ANSWER && kind != BINDING_ERROR {
            return Err(AnswerError::NotAnAnswer);
        }
        let mut body = Reader::new(r.take(body, "body")?);
        let mut answer = Self { id, mapped: None, xor_mapped: None, origin: None, other: None };
        let mut code = 0;
        while !body.is_empty() {
            let (kind, value) = attribute(&mut body)?;
            match kind {
                RESPONSE_ORIGIN if answer.origin.is_none() => answer.origin = address(value)?,
                OTHER_ADDRESS if answer.other.is_none() => answer.other = address(value)?,
                MAPPED_ADDRESS if answer.mapped.is_none() => answer.mapped = address(value)?,
                XOR_MAPPED_ADDRESS if answer.xor_mapped.is_none() => {
                    answer.xor_mapped = address(value)?.map(|a| toggled(a, &id));
                }
                ERROR_CODE => code = error_code(value)?,
                _ => {}
            }
        }
        if kind == BINDING_ERROR { Err(AnswerError::Refused { code }) } else { Ok(answer) }
    }

    /// The address that counts under `rules`.
    #[must_use]
    pub fn address(&self, rules: Rules) -> Option<SocketAddr> {
        match rules {
            Rules::Classic => self.mapped,
            Rules::Modern => self.xor_mapped.or(self.mapped),
        }
    }

    /// The address in the answer to one particular request.
    ///
    /// # Errors
    /// [`AnswerError`]; an answer to another transaction is told apart, since more may be under way on one socket.
    pub fn to_request(datagram: &[u8], id: TransactionId, rules: Rules) -> Result<SocketAddr, AnswerError> {
        let answer = Self::parse(datagram)?;
        if answer.id != id {
            return Err(AnswerError::OtherTransaction);
        }
        answer.address(rules).ok_or(AnswerError::NoAddress)
    }

    /// What a server answers to `request` from `seen`: MAPPED-ADDRESS always, since old peers read nothing else, and
    /// XOR-MAPPED-ADDRESS when the request had the magic cookie.
    #[must_use]
    pub fn of(request: &Request, seen: SocketAddr) -> Self {
        let seen = SocketAddr::new(seen.ip().to_canonical(), seen.port());
        let xor_mapped = request.id.has_cookie().then_some(seen);
        Self { id: request.id, mapped: Some(seen), xor_mapped, origin: None, other: None }
    }

    /// The same answer, with where it is sent from and where else the server is. Classic requests are answered without:
    /// old peers do not look for it.
    #[must_use]
    pub fn with_places(self, origin: Option<SocketAddr>, other: Option<SocketAddr>) -> Self {
        if self.id.has_cookie() { Self { origin, other, ..self } } else { self }
    }

    /// What a server answers that cannot send from where the request wants: error 420 with the attribute's number
    /// (RFC 5780, section 6.1). 36 bytes.
    #[must_use]
    pub fn refusal(request: &Request) -> Vec<u8> {
        let mut out = Writer::with_capacity(HEADER + 16);
        out.u16(BINDING_ERROR).u16(16).bytes(&request.id.0);
        out.u16(ERROR_CODE).u16(4).bytes(&[0, 0, 4, 20]);
        out.u16(UNKNOWN_ATTRIBUTES).u16(2).bytes(&[0, 3, 0, 0]);
        out.into_vec()
    }

    /// The datagram, at most [`ANSWER_MAX`] bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::with_capacity(ANSWER_MAX - HEADER);
        if let Some(address) = self.mapped {
            put_address(&mut body, MAPPED_ADDRESS, address);
        }
        if let Some(address) = self.xor_mapped {
            put_address(&mut body, XOR_MAPPED_ADDRESS, toggled(address, &self.id));
        }
        if let Some(address) = self.origin {
            put_address(&mut body, RESPONSE_ORIGIN, address);
        }
        if let Some(address) = self.other {
            put_address(&mut body, OTHER_ADDRESS, address);
        }
        let body = body.into_vec();
        let len = u16::try_from(body.len()).unwrap_or_default();
        let mut out = Writer::with_capacity(HEADER + body.len());
        out.u16(BINDING_ANSWER).u16(len).bytes(&self.id.0).bytes(&body);
        out.into_vec()
    }
}

/// An address attribute's value; `None` for an unknown family.
fn address(value: &[u8]) -> Result<Option<SocketAddr>, Short> {
    let mut r = Reader::new(value);
    r.u8("reserved byte")?;
    let family = r.u8("address family")?;
    let port = r.u16("port")?;
    let ip: IpAddr = match family {
        FAMILY_V4 => Ipv4Addr::from(r.array::<4>("IPv4 address")?).into(),
        FAMILY_V6 => Ipv6Addr::from(r.array::<16>("IPv6 address")?).into(),
        _ => return Ok(None),
    };
    Ok(Some(SocketAddr::new(ip, port)))
}

fn error_code(value: &[u8]) -> Result<u16, Short> {
    let mut r = Reader::new(value);
    r.u16("reserved bytes")?;
    let class = u16::from(r.u8("error class")? & 7);
    Ok(class * 100 + u16::from(r.u8("error number")?))
}

fn put_address(w: &mut Writer, attribute: u16, address: SocketAddr) {
    match address {
        SocketAddr::V4(a) => {
            w.u16(attribute).u16(8).u8(0).u8(FAMILY_V4).u16(a.port()).bytes(&a.ip().octets());
        }
        SocketAddr::V6(a) => {
            w.u16(attribute).u16(20).u8(0).u8(FAMILY_V6).u16(a.port()).bytes(&a.ip().octets());
        }
    }
}

/// To or from the XOR form: the port with the cookie's first half, IPv4 with the cookie, IPv6 with the cookie and the
/// twelve bytes after it (RFC 8489, section 14.2).
fn toggled(address: SocketAddr, id: &TransactionId) -> SocketAddr {
    let [a, b, ..] = MAGIC_COOKIE.to_be_bytes();
    let port = address.port() ^ u16::from_be_bytes([a, b]);
    let ip: IpAddr = match address.ip() {
        IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) ^ MAGIC_COOKIE).into(),
        IpAddr::V6(ip) => {
            let low = u128::from_be_bytes(id.0) & (u128::MAX >> 32);
            Ipv6Addr::from(u128::from(ip) ^ (u128::from(MAGIC_COOKIE) << 96 | low)).into()
        }
    };
    SocketAddr::new(ip, port)
}
