//! Groups `bulk` and `dual`, and the rules of group `chunk` that a receiver keeps.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use codec::Value;
use link::Frames;
use np1::{Chunk, Role};
use parcel::{Answer, Ask, Intake, Kind, Offer, OfferedFile, Receiver};
use seal::{Opener, SessionKey};
use seam::{Path, SocketId};

use super::case::{Case, Wrong, hex, same, same_bytes};

const SID: u32 = 7;

/// What a receiver that holds some chunks makes of another one.
pub(super) fn rule(case: &mut Case) -> Result<(), Wrong> {
    let (total_bytes, chunk, total_chunks) =
        (case.inputs.number("total_bytes")?, case.inputs.number("chunk")?, case.inputs.number("total_chunks")?);
    let hash = "00".repeat(32);
    let file = OfferedFile { name: parcel::SAVE_NAMES[0].to_owned(), size: total_bytes, sha256: hash.clone() };
    let offer = Offer {
        sid: SID,
        total_bytes,
        chunk,
        total_chunks,
        files: vec![file],
        sha256: hash,
        kind: Kind::Save,
        mods: None,
        mods_unknown: true,
        batch: None,
        tcp: None,
        aw_quic: None,
    };
    let now = Instant::now();
    let from = Path::new(SocketId(0), SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
    let intake = Intake { name: "lin".to_owned(), most_bytes: 1 << 20, tcp: None, quic: None, first_stream: 0 };
    let made = Receiver::new(offer, from, intake, now);
    let mut receiver = made.map_err(|error| Wrong(error.to_string()))?;
    receiver.handle_answer(now, Answer::Created { upto: 0 });
    let held =
        case.inputs.must("already_have", |v| v.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>())?;
    for index in held {
        let index = u32::try_from(index).map_err(|error| Wrong(error.to_string()))?;
        let data = vec![1; usize::try_from(chunk).unwrap_or_default()];
        same("held", &receiver.handle_chunk(now, &Chunk { sid: SID, index, data: &data }), &Ok(()))?;
    }
    let written = |receiver: &mut Receiver| -> Vec<(u64, usize)> {
        // What was gathered goes to the disk when feedback is due.
        receiver.handle_timeout(now);
        let asks = std::iter::from_fn(|| receiver.poll_ask());
        asks.filter_map(|ask| if let Ask::Write { at, data } = ask { Some((at, data.len())) } else { None }).collect()
    };
    written(&mut receiver);
    let data: Vec<u8> = vec![2; case.inputs.number("data_len")?];
    let got = receiver.handle_chunk(now, &Chunk { sid: SID, index: case.inputs.number("seq")?, data: &data });
    same("accept", &got.is_ok(), &case.expect.bool("accept")?)?;
    let want: Vec<(u64, usize)> = match got {
        Ok(()) => vec![(case.expect.number("offset")?, data.len())],
        Err(_) => Vec::new(),
    };
    receiver.handle_timeout(now + std::time::Duration::from_millis(50));
    same("written", &written(&mut receiver), &want)
}

pub(super) fn bulk(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("line") {
        let line = case.inputs.bytes("line")?;
        let taken = parcel::Hello::parse(&line).is_ok() || rendezvous::read_pipe_hello(&line).is_some();
        same("taken", &taken, &false)?;
        return same("error", case.expect.text("error")?.as_str(), "closed");
    }
    if case.inputs.has("pair") {
        let (pair, role) = (case.inputs.text("pair")?, case.inputs.text("role")?);
        let line = case.expect.bytes("line")?;
        let side = if role == "H" { Role::Host } else { Role::Joiner };
        let raw = codec::unhex(&pair).and_then(|pair| pair.try_into().ok());
        same("read", &rendezvous::read_pipe_hello(&line), &raw.map(|raw| (raw, side)))?;
        same_bytes("line", &parcel::pipe_line(&pair, role == "H"), &line)?;
        return same_bytes("reply", parcel::PAIRED, &case.expect.bytes("reply_when_paired")?);
    }
    let role = match case.inputs.text("role")?.as_str() {
        "recv" => parcel::Role::Receive,
        "send" => parcel::Role::Send,
        other => return Err(Wrong(format!("role {other:?}"))),
    };
    let hello = parcel::Hello {
        role,
        sid: case.inputs.number("sid")?,
        token: case.inputs.text("token")?,
        name: case.inputs.text("name")?,
    };
    let line = case.expect.bytes("line")?;
    same_bytes("line", &hello.write(), &line)?;
    same("read", &parcel::Hello::parse(&line), &Ok(hello))?;
    same_bytes("reply", parcel::ANSWER, &case.expect.bytes("reply")?)
}

pub(super) fn dual(case: &mut Case) -> Result<(), Wrong> {
    if case.inputs.has("frames") {
        let frames = case.inputs.must("frames", |v| v.as_array()?.iter().map(hex).collect::<Option<Vec<_>>>())?;
        let stream = case.expect.bytes("stream")?;
        let written: Vec<u8> = frames.iter().filter_map(|frame| link::frame(frame)).flatten().collect();
        same_bytes("stream", &written, &stream)?;
        let mut read = Frames::new(&stream);
        let next = || read.next_packet().ok().flatten().map(|packet| packet.to_vec());
        return same("frames", &std::iter::from_fn(next).collect::<Vec<_>>(), &frames);
    }
    let key = SessionKey::from_bytes(case.inputs.array("session_key")?);
    let mut opener = Opener::new(&key);
    let now = Instant::now();
    if case.inputs.has("line") {
        let line = case.inputs.bytes("line")?;
        let taken = link::Hello::parse(&line).and_then(|hello| hello.open(now, &mut opener));
        case.plain_outcome(taken)?;
        return Ok(());
    }
    let (line, sealed) = (case.expect.bytes("line")?, case.expect.bytes("sealed")?);
    let head = [case.inputs.bytes("salt")?, case.inputs.number::<u32>("counter")?.to_be_bytes().to_vec()].concat();
    same_bytes("salt and counter", sealed.get(..8).unwrap_or_default(), &head)?;
    let hello = link::Hello { name: case.inputs.text("name")?, sealed };
    same_bytes("line", &hello.write(), &line)?;
    let read = link::Hello::parse(&line).and_then(|hello| hello.open(now, &mut opener));
    same("name", &read, &Ok(case.expect.text("name_on_wire")?))
}
