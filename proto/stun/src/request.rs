//! The question.

use codec::{Reader, Short, Writer};
use thiserror::Error;

use crate::{BINDING_REQUEST, HEADER, MAGIC_COOKIE, attribute};

const CHANGE_REQUEST: u16 = 0x0003;
const CHANGE_IP: u8 = 4;
const CHANGE_PORT: u8 = 2;

/// Longest request of ours: a header and CHANGE-REQUEST.
pub const REQUEST_MAX: usize = HEADER + 8;

/// Sixteen bytes that an answer repeats. In the cookie form the first four are the magic cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub [u8; 16]);

impl TransactionId {
    /// Whether this is a transaction of RFC 8489: it begins with the magic cookie.
    #[must_use]
    pub fn has_cookie(&self) -> bool {
        self.0.starts_with(&MAGIC_COOKIE.to_be_bytes())
    }
}

/// Why a datagram is no binding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The datagram ends early.
    #[error("request {0}")]
    Short(#[from] Short),
    /// Another kind of message.
    #[error("not a binding request")]
    NotARequest,
    /// The length field and the datagram disagree.
    #[error("the request's length field disagrees with the datagram")]
    Length,
}

/// Where an answer is to come from instead of where the request went (CHANGE-REQUEST, RFC 5780, section 7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// From the server's other address.
    pub ip: bool,
    /// From its other port.
    pub port: bool,
}

impl Change {
    /// From where the request went.
    pub const NONE: Self = Self { ip: false, port: false };
    /// From another port of the same address.
    pub const PORT: Self = Self { ip: false, port: true };
    /// From another address and port.
    pub const BOTH: Self = Self { ip: true, port: true };
}

/// A binding request. Of a received one's attributes CHANGE-REQUEST counts, the last of several; others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the answer repeats.
    pub id: TransactionId,
    /// Where the answer is to come from.
    pub change: Change,
}

impl Request {
    /// A request in the form old peers send. Sixteen random bytes that happen to begin with the magic cookie have it
    /// broken, so that the form is never mistaken.
    #[must_use]
    pub fn classic(random: [u8; 16]) -> Self {
        let mut id = TransactionId(random);
        if id.has_cookie() {
            let [first, ..] = &mut id.0;
            *first = !*first;
        }
        Self { id, change: Change::NONE }
    }

    /// A request in the form of RFC 8489.
    #[must_use]
    pub fn with_cookie(random: [u8; 12]) -> Self {
        let mut id = [0; 16];
        let (cookie, rest) = id.split_at_mut(4);
        cookie.copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        rest.copy_from_slice(&random);
        Self { id: TransactionId(id), change: Change::NONE }
    }

    /// The same question, answered from elsewhere.
    #[must_use]
    pub fn from_elsewhere(self, change: Change) -> Self {
        Self { change, ..self }
    }

    /// The datagram: a header, and CHANGE-REQUEST where there is a change; at most [`REQUEST_MAX`] bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Change { ip, port } = self.change;
        let flags = if ip { CHANGE_IP } else { 0 } | if port { CHANGE_PORT } else { 0 };
        let mut out = Writer::with_capacity(REQUEST_MAX);
        out.u16(BINDING_REQUEST).u16(if flags == 0 { 0 } else { 8 }).bytes(&self.id.0);
        if flags != 0 {
            out.u16(CHANGE_REQUEST).u16(4).bytes(&[0, 0, 0, flags]);
        }
        out.into_vec()
    }

    /// Reads a request, for a server. Any bytes may be given.
    ///
    /// # Errors
    /// [`RequestError`] for anything that is not exactly one binding request.
    pub fn parse(datagram: &[u8]) -> Result<Self, RequestError> {
        let mut r = Reader::new(datagram);
        let kind = r.u16("type")?;
        let body = usize::from(r.u16("length")?);
        let id = TransactionId(r.array("transaction id")?);
        if kind != BINDING_REQUEST {
            return Err(RequestError::NotARequest);
        }
        if body != r.remaining() || body % 4 != 0 {
            return Err(RequestError::Length);
        }
        let mut change = Change::NONE;
        while !r.is_empty() {
            if let (CHANGE_REQUEST, [_, _, _, flags]) = attribute(&mut r)? {
                change = Change { ip: flags & CHANGE_IP != 0, port: flags & CHANGE_PORT != 0 };
            }
        }
        Ok(Self { id, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_back() {
        for request in [Request::classic([9; 16]), Request::with_cookie([9; 12])] {
            assert_eq!(Request::parse(&request.encode()), Ok(request));
        }
        assert!(Request::with_cookie([0; 12]).id.has_cookie());
    }

    #[test]
    fn a_classic_id_never_begins_with_the_cookie() {
        let mut unlucky = [5; 16];
        unlucky[..4].copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        assert!(!Request::classic(unlucky).id.has_cookie());
    }

    #[test]
    fn truncations_answers_and_wrong_lengths_are_refused() {
        let bytes = Request::classic([1; 16]).encode();
        for cut in 0..bytes.len() {
            assert!(matches!(Request::parse(&bytes[..cut]), Err(RequestError::Short(_))), "cut at {cut}");
        }
        let mut answer = bytes.clone();
        answer[0] = 1;
        assert_eq!(Request::parse(&answer), Err(RequestError::NotARequest));
        let mut long = bytes.clone();
        long[2..4].copy_from_slice(&0xFFFC_u16.to_be_bytes());
        assert_eq!(Request::parse(&long), Err(RequestError::Length));
    }

    #[test]
    fn attributes_of_a_request_are_skipped_unless_they_are_cut_short() {
        let mut bytes = Request::classic([1; 16]).encode();
        bytes.extend_from_slice(&[0x80, 0x22, 0, 4, b't', b'e', b's', b't']);
        bytes[3] = 8;
        assert_eq!(Request::parse(&bytes), Ok(Request::classic([1; 16])));
        bytes[23] = 9;
        assert!(matches!(Request::parse(&bytes), Err(RequestError::Short(_))));
    }

    #[test]
    fn a_change_request_is_written_as_in_rfc_5780_and_read_back() {
        for (change, flags) in [(Change::BOTH, 6), (Change::PORT, 2), (Change { ip: true, port: false }, 4)] {
            let request = Request::with_cookie([3; 12]).from_elsewhere(change);
            let bytes = request.encode();
            assert_eq!(bytes[20..], [0, 3, 0, 4, 0, 0, 0, flags]);
            assert_eq!((bytes.len(), bytes[3]), (REQUEST_MAX, 8));
            assert_eq!(Request::parse(&bytes), Ok(request));
            for cut in 0..bytes.len() {
                assert!(Request::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
        let mut odd = Request::with_cookie([3; 12]).from_elsewhere(Change::PORT).encode();
        odd[23] = 3;
        assert_eq!(Request::parse(&odd), Ok(Request::with_cookie([3; 12])), "of another length it says nothing");
    }
}
