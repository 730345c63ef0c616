//! The question.

use codec::{Reader, Short};
use thiserror::Error;

use crate::{BINDING_REQUEST, HEADER, MAGIC_COOKIE};

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

/// A binding request. Attributes of a received one are skipped: none changes what a plain server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the answer repeats.
    pub id: TransactionId,
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
        Self { id }
    }

    /// A request in the form of RFC 8489.
    #[must_use]
    pub fn with_cookie(random: [u8; 12]) -> Self {
        let mut id = [0; 16];
        let (cookie, rest) = id.split_at_mut(4);
        cookie.copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        rest.copy_from_slice(&random);
        Self { id: TransactionId(id) }
    }

    /// The datagram: a header without attributes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let (head, id) = out.split_at_mut(4);
        let [a, b] = BINDING_REQUEST.to_be_bytes();
        head.copy_from_slice(&[a, b, 0, 0]);
        id.copy_from_slice(&self.id.0);
        out
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
        Ok(Self { id })
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
        let mut answer = bytes;
        answer[0] = 1;
        assert_eq!(Request::parse(&answer), Err(RequestError::NotARequest));
        let mut long = bytes;
        long[2..4].copy_from_slice(&0xFFFC_u16.to_be_bytes());
        assert_eq!(Request::parse(&long), Err(RequestError::Length));
    }

    #[test]
    fn attributes_of_a_request_are_skipped() {
        let mut bytes = Request::classic([1; 16]).encode().to_vec();
        bytes.extend_from_slice(&[0x80, 0x22, 0, 4, b't', b'e', b's', b't']);
        bytes[3] = 8;
        assert_eq!(Request::parse(&bytes), Ok(Request::classic([1; 16])));
    }
}
