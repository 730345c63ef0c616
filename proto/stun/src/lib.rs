//! STUN binding: request, answer, NAT class.
//!
//! A peer asks public servers which address its socket has on their side of the router. Two forms are spoken:
//!
//! * **classic** (RFC 3489): sixteen random bytes, the form old peers send (netpunch wire, section 12.1). The answer
//!   carries MAPPED-ADDRESS.
//! * **cookie** (RFC 8489): the magic cookie and twelve random bytes. The answer carries XOR-MAPPED-ADDRESS too, which
//!   routers that rewrite addresses inside datagrams leave alone.
//!
//! To tell how the router behaves (RFC 5780), a server says where else it is (OTHER-ADDRESS), and answers from there when
//! asked to (CHANGE-REQUEST). [`Behaviour`] is what the answers come to.
//!
//! Codecs and pure rules only: sockets, retries and clocks belong to whoever asks. Nothing here allocates more than
//! one answer of at most [`ANSWER_MAX`] bytes, whatever a server sends.

mod allocation;
mod answer;
mod behaviour;
mod observation;
mod request;

pub use allocation::Allocation;
pub use answer::{ANSWER_MAX, Answer, AnswerError, Rules};
pub use behaviour::{Behaviour, Changed, Filtering, Mapping};
pub use observation::{ANSWERS_MAX, Observation};
pub use request::{Change, REQUEST_MAX, Request, RequestError, TransactionId};

use codec::{Reader, Short};

/// The first four bytes of a transaction in the form of RFC 8489.
pub const MAGIC_COOKIE: u32 = 0x2112_A442;

/// Bytes of a plain request and of every message header.
pub const HEADER: usize = 20;

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_ANSWER: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;

/// Whether a datagram has the shape of a STUN message: two leading zero bits, a length field that is a multiple of
/// four and says exactly how long the datagram is. An NP1 packet never does.
#[must_use]
pub fn looks_like(datagram: &[u8]) -> bool {
    let Some(([first, _, high, low], _)) = datagram.split_first_chunk::<4>() else { return false };
    let body = usize::from(u16::from_be_bytes([*high, *low]));
    first & 0xC0 == 0 && body % 4 == 0 && datagram.len() == HEADER + body
}

/// The next attribute and its value. The last one's padding may be missing: some classic servers do not pad.
fn attribute<'a>(body: &mut Reader<'a>) -> Result<(u16, &'a [u8]), Short> {
    let kind = body.u16("attribute type")?;
    let len = usize::from(body.u16("attribute length")?);
    let value = body.take(len, "attribute")?;
    let padding = (len.next_multiple_of(4) - len).min(body.remaining());
    body.take(padding, "padding")?;
    Ok((kind, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_message_looks_like_stun() {
        let request = Request::classic([7; 16]).encode();
        assert!(looks_like(&request));
        assert!(!looks_like(&request[..19]));
        assert!(!looks_like(&[&request[..], &[0]].concat()));
        assert!(!looks_like(b"NP1:H1122334455667788"));
        assert!(!looks_like(b""));
        let mut odd = request.clone();
        odd[3] = 1;
        assert!(!looks_like(&[&odd[..], &[0]].concat()), "a length that is no multiple of four");
    }
}
