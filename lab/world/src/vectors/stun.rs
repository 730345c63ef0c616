//! Group `stun`, read by an old peer's rules.

use stun::{Answer, AnswerError, Request, Rules, TransactionId};

use super::case::{Case, Wrong, parsed, same, same_bytes};

pub(super) fn check(case: &mut Case) -> Result<(), Wrong> {
    let id = TransactionId(case.inputs.array("transaction_id")?);
    if case.expect.has("datagram") {
        same("a classic id", &id.has_cookie(), &false)?;
        return same_bytes("datagram", &Request::classic(id.0).encode(), &case.expect.bytes("datagram")?);
    }
    let datagram = case.inputs.bytes("datagram")?;
    let word = |error: &AnswerError| (*error == AnswerError::NoAddress).then_some("no-address");
    match case.outcome(Answer::to_request(&datagram, id, Rules::Classic), word, &["no-address"])? {
        None => Ok(()),
        Some(address) => {
            same("ip", &address.ip(), &case.expect.must("ip", parsed)?)?;
            same("port", &address.port(), &case.expect.number("port")?)
        }
    }
}
