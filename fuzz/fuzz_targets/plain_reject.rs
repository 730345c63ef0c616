//! What a joiner of a sealed session takes from a packet in the clear: next to nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use np1::{HEADER, PlainTake};

fuzz_target!(|input: &[u8]| {
    match np1::read_plain(input) {
        PlainTake::Chunk(chunk) => assert_eq!(chunk.write(), input),
        PlainTake::Reject(reason) => {
            assert!(input.starts_with(br#"{"t": "reject""#), "a byte form that old joiners drop");
            let map = codec::object(input).expect("a reject is an object");
            assert_eq!(map.get("t").and_then(codec::Value::as_str), Some("reject"), "something else was smuggled");
            assert_eq!(map.get("reason").and_then(codec::Value::as_str).unwrap_or_default(), reason);
        }
        PlainTake::Nothing => assert!(!input.starts_with(&np1::CHUNK_MAGIC) || input.len() < np1::CHUNK_HEADER),
    }
    let reason = String::from_utf8_lossy(input);
    let packet = np1::plain_reject(&reason);
    assert_eq!(np1::read_plain(&packet[HEADER..]), PlainTake::Reject(reason.into_owned()));
});
