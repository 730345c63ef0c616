//! The published vectors of packets, payload kinds, fragments, envelopes, chunks and relay bindings.

#![cfg(test)]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use anywire_np1 as np1;
use codec::{hex, unhex};
use np1::{Chunk, Envelope, Fragment, Kind, Packet, Payload, PlainTake, Reassembly, Role};
use serde_json::Value;

/// Every vector of a group whose file name begins with `prefix`, with the name for messages.
fn vectors(group: &str, prefix: &str) -> Vec<(String, Value, Value)> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/vectors/netpunch")).join(group);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let found: Vec<_> = paths
        .iter()
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(prefix))
        .map(|path| {
            let mut v: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            (path.display().to_string(), v["inputs"].take(), v["expect"].take())
        })
        .collect();
    assert!(!found.is_empty(), "no vectors {group}/{prefix}*");
    found
}

fn bytes(v: &Value) -> Vec<u8> {
    unhex(v.as_str().unwrap()).unwrap()
}

fn text(v: &Value) -> &str {
    v.as_str().unwrap()
}

fn number(v: &Value) -> u32 {
    u32::try_from(v.as_u64().unwrap()).unwrap()
}

#[test]
fn packets_are_written_and_read_as_published() {
    for (name, inputs, expect) in vectors("np1", "") {
        if inputs.get("type").is_some() {
            let kind = Kind::from_letter(text(&inputs["type"]).as_bytes()[0]);
            let payload = bytes(&inputs["payload"]);
            let packet = bytes(&expect["packet"]);
            assert_eq!(np1::packet(kind, &payload), packet, "{name}");
            assert_eq!(Packet::parse(&packet), Ok(Packet { kind, payload: &payload }), "{name}");
        } else if expect.get("error").is_some() {
            assert_eq!(Packet::parse(&bytes(&inputs["packet"])), Err(seam::Refused::NotOurs), "{name}");
        } else if expect.get("type").is_some() {
            let packet = bytes(&inputs["packet"]);
            let got = Packet::parse(&packet).unwrap();
            assert_eq!(got.kind.letter(), text(&expect["type"]).as_bytes()[0], "{name}");
            assert_eq!(hex(got.payload), text(&expect["payload"]), "{name}");
        }
    }
}

#[test]
fn the_handshake_echoes_and_confirms() {
    let (_, inputs, expect) = vectors("np1", "handshake").remove(0);
    let received = bytes(&inputs["received"]);
    let hello = Packet::parse(&received).unwrap();
    assert_eq!(hello.kind, Kind::Hello);
    assert_eq!(hex(&np1::packet(Kind::Ack, hello.payload)), text(&expect["reply"]));
    let token = bytes(&inputs["joiner_token"]);
    assert_eq!(hex(&np1::packet(Kind::Connected, &token)), text(&expect["then_joiner_sends"]));
}

#[test]
fn a_sealed_joiner_takes_from_the_clear_what_is_published() {
    for (name, inputs, expect) in vectors("np1", "plaintext-in-sealed") {
        let packet = bytes(&inputs["packet"]);
        let taken = np1::read_plain(Packet::parse(&packet).unwrap().payload);
        assert_eq!(taken != PlainTake::Nothing, expect["accept"].as_bool().unwrap(), "{name}");
    }
}

#[test]
fn the_plain_reject_is_the_published_one() {
    let (_, inputs, expect) = vectors("np1", "plain-reject").remove(0);
    let packet = np1::plain_reject(text(&inputs["message"]["reason"]));
    assert_eq!(hex(&packet), text(&expect["packet"]));
    assert_eq!(hex(&codec::to_json(&inputs["message"])), text(&expect["payload"]));
}

#[test]
fn chunks_are_written_and_read_as_published() {
    for (name, inputs, expect) in vectors("chunk", "sid-") {
        let data = bytes(&inputs["data"]);
        let chunk = Chunk { sid: number(&inputs["sid"]), index: number(&inputs["seq"]), data: &data };
        let payload = bytes(&expect["payload"]);
        assert_eq!(chunk.write(), payload, "{name}");
        assert_eq!(Payload::parse(&payload), Ok(Payload::Chunk(chunk)), "{name}");
        assert_eq!(hex(&np1::packet(Kind::Plain, &payload)), text(&expect["packet"]), "{name}");
    }
}

fn address(v: &Value) -> SocketAddr {
    let ip: IpAddr = text(&v[0]).parse().unwrap();
    SocketAddr::new(ip, u16::try_from(number(&v[1])).unwrap())
}

#[test]
fn chunk_sizes_follow_the_targets() {
    for (name, inputs, expect) in vectors("chunk", "pick-") {
        let targets: Vec<_> = inputs["targets"].as_array().unwrap().iter().map(address).collect();
        let chunk = np1::chunk_size(&targets);
        assert_eq!((chunk, np1::window(chunk)), (number(&expect["chunk"]), number(&expect["window"])), "{name}");
    }
}

#[test]
fn tunnel_addresses_are_told_apart() {
    for (name, inputs, expect) in vectors("rule", "tunnel-") {
        assert_eq!(np1::is_tunnel(address(&inputs["addr"])), expect["is_tunnel"].as_bool().unwrap(), "{name}");
    }
}

#[test]
fn game_frames_are_bounded_and_wrapped_as_published() {
    for (name, inputs, expect) in vectors("game", "") {
        if let Some(datagram) = inputs.get("bridge_datagram") {
            let payload = np1::game_frame(&bytes(datagram)).unwrap();
            assert_eq!(hex(&payload), text(&expect["payload"]), "{name}");
            assert_eq!(Payload::parse(&payload), Ok(Payload::Game(&payload[1..])), "{name}");
        } else {
            let frame = vec![0; number(&inputs["bridge_datagram_len"]) as usize];
            assert_eq!(np1::game_frame(&frame).is_ok(), expect["accept"].as_bool().unwrap(), "{name}");
        }
    }
}

#[test]
fn envelopes_are_written_and_read_as_published() {
    for (name, inputs, expect) in vectors("envelope", "") {
        if let Some(envelope) = inputs.get("envelope") {
            let envelope = bytes(envelope);
            match Envelope::parse(&envelope) {
                Err(_) => assert!(expect.get("error").is_some(), "{name}"),
                Ok(got) => {
                    assert_eq!(got.to, text(&expect["to"]), "{name}");
                    assert_eq!(got.from, text(&expect["from"]), "{name}");
                    assert_eq!(hex(got.inner), text(&expect["payload"]), "{name}");
                }
            }
        } else {
            let inner = bytes(&inputs["payload"]);
            let envelope = Envelope { to: text(&inputs["to"]), from: text(&inputs["from"]), inner: &inner };
            let payload = envelope.write().unwrap();
            assert_eq!(hex(&payload), text(&expect["envelope"]), "{name}");
            assert_eq!(Payload::parse(&payload), Ok(Payload::Envelope(envelope)), "{name}");
        }
    }
}

#[test]
fn long_messages_are_split_as_published() {
    let mut seen = 0;
    for (name, inputs, expect) in vectors("fragment", "") {
        let Some(frames) = expect.get("frames").and_then(Value::as_array) else { continue };
        let message = bytes(&inputs["payload"]);
        let got: Vec<String> = np1::split(number(&inputs["id"]), &message).map(|frame| hex(&frame)).collect();
        let want: Vec<&str> = frames.iter().map(text).collect();
        assert_eq!(got, want, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn fragments_are_put_together_as_published() {
    let now = Instant::now();
    let from = seam::Path::new(seam::SocketId(0), SocketAddr::from(([192, 0, 2, 1], 5)));
    let mut seen = 0;
    for (name, inputs, expect) in vectors("fragment", "") {
        let Some(frames) = inputs.get("frames").and_then(Value::as_array) else { continue };
        let mut reassembly = Reassembly::new(np1::Bounds::default());
        let mut done = None;
        for frame in frames {
            let frame = bytes(frame);
            if let Ok(piece) = Fragment::parse(&frame)
                && let Ok(Some(message)) = reassembly.push(now, from, &piece)
            {
                done = Some(hex(&message));
            }
        }
        assert_eq!(done.is_some(), expect["accept"].as_bool().unwrap(), "{name}");
        assert_eq!(done.as_deref(), expect.get("payload").and_then(Value::as_str), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 7);
}

#[test]
fn relay_bindings_are_the_published_ones() {
    let (_, inputs, expect) = vectors("relay", "bind-J").remove(0);
    let id: [u8; 16] = bytes(&inputs["id"]).try_into().unwrap();
    let bind = np1::relay_bind(&id, Role::Joiner);
    assert_eq!(hex(&bind), text(&expect["datagram"]));
    assert_eq!(np1::read_relay_bind(&bind), Ok((id, Role::Joiner)));
    assert_eq!(hex(&np1::relay_bound(&id)), text(&expect["reply"]));

    let (name, inputs, _) = vectors("relay", "wrong-id-or-role").remove(0);
    for datagram in inputs["datagrams"].as_array().unwrap() {
        let read = np1::read_relay_bind(&bytes(&datagram["data"]));
        assert!(!matches!(read, Ok((got, _)) if got == id), "{name}");
    }
}

#[test]
fn json_has_the_published_byte_form() {
    for (name, inputs, expect) in vectors("json", "") {
        let payload = codec::to_json(&inputs["message"]);
        assert_eq!(hex(&payload), text(&expect["payload"]), "{name}");
        assert_eq!(Payload::parse(&payload), Ok(Payload::Json(&payload)), "{name}");
    }
}
