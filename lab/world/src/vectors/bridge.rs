//! Group `bridge`.

use bridge::{Body, Datagram, Header};
use codec::Value;

use super::case::{Case, Fields, Wrong, same, same_bytes};

/// What a vector means by fields it does not name.
const PLAIN: Header =
    Header { world: *b"0123456789abcdef0123456789abcdef", session: 1, ack_session: 0, seq: 0, ack: None, ack_bits: 0 };

pub(super) fn check(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("datagram") {
        let bytes = case.inputs.bytes("datagram")?;
        return match case.plain_outcome(Datagram::parse(&bytes))? {
            None => Ok(()),
            Some(got) => as_described(&got, &mut case.expect),
        };
    }
    let header = header(&mut case.inputs, PLAIN)?;
    let text = case.inputs.maybe("text", |v| v.as_str().map(str::to_owned))?;
    let (index, count) = (case.inputs.maybe("chunk_index", small)?, case.inputs.maybe("chunk_count", small)?);
    let body = match &text {
        None => Body::Keepalive,
        Some(text) => Body::Event { index: index.unwrap_or(0), count: count.unwrap_or(1), text: text.as_bytes() },
    };
    let datagram = Datagram { header, body };
    let mut out = vec![0; datagram.size()];
    let written = datagram.write(&mut out);
    same("len", &written, &case.expect.number("len")?)?;
    same_bytes("datagram", &out, &case.expect.bytes("datagram")?)?;
    same("read back", &Datagram::parse(&out), &Ok(datagram))
}

fn as_described(got: &Datagram<'_>, want: &mut Fields) -> Result<(), Wrong> {
    same("header", &got.header, &header(want, got.header)?)?;
    let text = want.maybe("text", |v| v.as_str().map(str::to_owned))?;
    let (index, count) = (want.maybe("chunk_index", small)?, want.maybe("chunk_count", small)?);
    match (got.body, text) {
        (Body::Event { index: i, count: c, text: t }, text) => {
            same("chunk", &(i, c), &(index.unwrap_or(i), count.unwrap_or(c)))?;
            same_bytes("text", t, text.as_deref().map_or(t, str::as_bytes))
        }
        (Body::Keepalive, None) => Ok(()),
        (Body::Keepalive, Some(_)) => Err(Wrong("a keepalive instead of a text".to_owned())),
    }
}

/// The header a vector describes; what it leaves out is as in `plain`.
fn header(fields: &mut Fields, plain: Header) -> Result<Header, Wrong> {
    let world = |v: &Value| v.as_str()?.as_bytes().try_into().ok();
    let ack = |v: &Value| match v.as_str() {
        Some("none") => Some(None),
        Some(_) => None,
        None => number(v).map(Some),
    };
    Ok(Header {
        world: fields.maybe("world", world)?.unwrap_or(plain.world),
        session: fields.maybe("session", number)?.unwrap_or(plain.session),
        ack_session: fields.maybe("ack_session", number)?.unwrap_or(plain.ack_session),
        seq: fields.maybe("seq", number)?.unwrap_or(plain.seq),
        ack: fields.maybe("ack", ack)?.unwrap_or(plain.ack),
        ack_bits: fields.maybe("ack_bits", number)?.unwrap_or(plain.ack_bits),
    })
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn small(value: &Value) -> Option<u16> {
    u16::try_from(value.as_u64()?).ok()
}
