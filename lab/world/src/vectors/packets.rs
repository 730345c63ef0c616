//! Groups `np1`, `chunk`, `fragment`, `game` and `envelope`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use codec::Value;
use np1::{Bounds, Chunk, Envelope, Fragment, Kind, Packet, Payload, PlainTake, Reassembly};
use seam::{Path, Refused, SocketId};

use super::case::{Case, Wrong, hex, pair, same, same_bytes};

pub(super) fn np1(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("received") {
        return handshake(case);
    }
    if case.inputs.has("message") {
        return plain_reject(case);
    }
    if case.inputs.has("type") {
        let kind = case.inputs.must("type", kind)?;
        let payload = case.inputs.bytes("payload")?;
        return same_bytes("packet", &np1::packet(kind, &payload), &case.expect.bytes("packet")?);
    }
    let datagram = case.inputs.bytes("packet")?;
    if case.inputs.has("payload") {
        let payload = case.inputs.bytes("payload")?;
        same_bytes("packet", &np1::packet(Kind::Plain, &payload), &datagram)?;
        let taken = np1::read_plain(&payload) != PlainTake::Nothing;
        return same("accept", &taken, &case.expect.bool("accept")?);
    }
    let word = |error: &Refused| (*error == Refused::NotOurs).then_some("not-np1");
    match case.outcome(Packet::parse(&datagram), word, &["not-np1"])? {
        None => Ok(()),
        Some(packet) => {
            same("type", &packet.kind, &case.expect.must("type", kind)?)?;
            same_bytes("payload", packet.payload, &case.expect.bytes("payload")?)
        }
    }
}

fn kind(value: &Value) -> Option<Kind> {
    match value.as_str()?.as_bytes() {
        [letter] => Some(Kind::from_letter(*letter)),
        _ => None,
    }
}

fn handshake(case: &mut Case) -> Result<(), Wrong> {
    let received = case.inputs.bytes("received")?;
    let hello = Packet::parse(&received).map_err(|error| Wrong(format!("{error:?}")))?;
    same("kind", &hello.kind, &Kind::Hello)?;
    let token = case.inputs.bytes("joiner_token")?;
    same_bytes("token", hello.payload, &token)?;
    same_bytes("reply", &np1::packet(Kind::Ack, hello.payload), &case.expect.bytes("reply")?)?;
    same_bytes("then", &np1::packet(Kind::Connected, &token), &case.expect.bytes("then_joiner_sends")?)
}

fn plain_reject(case: &mut Case) -> Result<(), Wrong> {
    let mut message = case.inputs.object("message")?;
    same("message.t", message.text("t")?.as_str(), "reject")?;
    let packet = np1::plain_reject(&message.text("reason")?);
    message.all_read()?;
    same_bytes("packet", &packet, &case.expect.bytes("packet")?)?;
    let payload = packet.get(np1::HEADER..).unwrap_or_default();
    same_bytes("payload", payload, &case.expect.bytes("payload")?)
}

pub(super) fn chunk(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("already_have") {
        return super::parcels::rule(case);
    }
    if case.inputs.has("targets") {
        let targets: Vec<SocketAddr> = case.inputs.must("targets", |v| v.as_array()?.iter().map(pair).collect())?;
        let size = np1::chunk_size(&targets);
        same("chunk", &size, &case.expect.number("chunk")?)?;
        return same("window", &np1::window(size), &case.expect.number("window")?);
    }
    if case.inputs.has("payload") {
        let payload = case.inputs.bytes("payload")?;
        return match case.plain_outcome(Chunk::parse(&payload))? {
            None => Ok(()),
            Some(chunk) => {
                same("sid", &chunk.sid, &case.expect.number("sid")?)?;
                same("seq", &chunk.index, &case.expect.number("seq")?)?;
                same_bytes("data", chunk.data, &case.expect.bytes("data")?)
            }
        };
    }
    let data = case.inputs.bytes("data")?;
    let chunk = Chunk { sid: case.inputs.number("sid")?, index: case.inputs.number("seq")?, data: &data };
    let payload = chunk.write();
    same_bytes("payload", &payload, &case.expect.bytes("payload")?)?;
    same("read back", &Payload::parse(&payload), &Ok(Payload::Chunk(chunk)))?;
    same_bytes("packet", &np1::packet(Kind::Plain, &payload), &case.expect.bytes("packet")?)
}

pub(super) fn fragment(case: &mut Case) -> Result<(), Wrong> {
    let frames = |v: &Value| v.as_array()?.iter().map(hex).collect::<Option<Vec<_>>>();
    if case.inputs.has("frames") {
        let frames = case.inputs.must("frames", frames)?;
        let got = reassembled(&frames)?;
        let accept = case.expect.bool("accept")?;
        same("accept", &got.is_some(), &accept)?;
        return match got {
            Some(payload) => same_bytes("payload", &payload, &case.expect.bytes("payload")?),
            None => Ok(()),
        };
    }
    same("limit", &np1::FRAGMENT_DATA, &case.inputs.number("limit")?)?;
    let payload = case.inputs.bytes("payload")?;
    let id = case.inputs.number("id")?;
    let sent: Vec<Vec<u8>> = np1::split(id, &payload).collect();
    same("count", &sent.len(), &case.expect.number("count")?)?;
    let want = case.expect.must("frames", frames)?;
    for (got, want) in sent.iter().zip(&want) {
        same_bytes("frame", got, want)?;
    }
    same("frames", &sent.len(), &want.len())
}

/// What a receiver makes of payloads in the order they come: the first message that is whole.
fn reassembled(frames: &[Vec<u8>]) -> Result<Option<Vec<u8>>, Wrong> {
    let (now, from) = (Instant::now(), Path::new(SocketId(0), SocketAddr::from((Ipv4Addr::LOCALHOST, 5))));
    let mut messages = Reassembly::new(Bounds::default());
    for (frame, number) in frames.iter().zip(1..) {
        let taken = Fragment::parse(frame).and_then(|piece| messages.push(now, from, &piece));
        match taken {
            Ok(Some(_)) if number < frames.len() => {
                return Err(Wrong(format!("whole after piece {number} of {}", frames.len())));
            }
            Ok(Some(whole)) => return Ok(Some(whole.to_vec())),
            Ok(None) | Err(_) => {}
        }
    }
    Ok(None)
}

pub(super) fn game(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("bridge_datagram_len") {
        let len: u16 = case.inputs.number("bridge_datagram_len")?;
        let taken = np1::game_frame(&vec![0; usize::from(len)]).is_ok();
        return same("accept", &taken, &case.expect.bool("accept")?);
    }
    let frame = case.inputs.bytes("bridge_datagram")?;
    let payload = np1::game_frame(&frame).map_err(|error| Wrong(format!("{error:?}")))?;
    same_bytes("payload", &payload, &case.expect.bytes("payload")?)?;
    same("read back", &Payload::parse(&payload), &Ok(Payload::Game(&frame)))
}

pub(super) fn envelope(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("envelope") {
        let bytes = case.inputs.bytes("envelope")?;
        return match case.plain_outcome(Envelope::parse(&bytes))? {
            None => Ok(()),
            Some(got) => {
                let text = |v: &Value| v.as_str().map(str::to_owned);
                same("to", got.to, &case.expect.must("to", text)?)?;
                same("from", got.from, &case.expect.must("from", text)?)?;
                same_bytes("payload", got.inner, &case.expect.bytes("payload")?)
            }
        };
    }
    let (to, from) = (case.inputs.text("to")?, case.inputs.text("from")?);
    let inner = case.inputs.bytes("payload")?;
    let envelope = Envelope { to: &to, from: &from, inner: &inner };
    match case.plain_outcome(envelope.write())? {
        None => Ok(()),
        Some(bytes) => {
            same_bytes("envelope", &bytes, &case.expect.bytes("envelope")?)?;
            same("read back", &Envelope::parse(&bytes), &Ok(envelope))
        }
    }
}
