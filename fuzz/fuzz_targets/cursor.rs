//! The reader never reads past its slice or takes back what it gave; the writer writes what the reader reads.

#![no_main]

use anywire_fuzz::Script;
use codec::{Reader, Writer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let body = script.short();
    let mut reader = Reader::new(body);
    let mut copied = Writer::new();
    while let Some(kind) = script.next_move() {
        let before = reader.remaining();
        let want = match kind % 8 {
            0 => reader.u8("a").map(|v| copied.u8(v).len()).map(|_| 1),
            1 => reader.u16("b").map(|v| copied.u16(v).len()).map(|_| 2),
            2 => reader.u16_le("c").map(|v| copied.u16_le(v).len()).map(|_| 2),
            3 => reader.u32("d").map(|v| copied.u32(v).len()).map(|_| 4),
            4 => reader.u32_le("e").map(|v| copied.u32_le(v).len()).map(|_| 4),
            5 => reader.u64("f").map(|v| copied.u64(v).len()).map(|_| 8),
            6 => reader.array::<5>("g").map(|v| copied.bytes(&v).len()).map(|_| 5),
            _ => {
                let n = usize::from(script.byte());
                reader.take(n, "h").map(|v| copied.bytes(v).len()).map(|_| n)
            }
        };
        match want {
            Ok(n) => assert_eq!(reader.remaining() + n, before),
            Err(short) => {
                assert_eq!(reader.remaining(), before, "a refused read took something");
                assert!(short.have == before && short.need > before, "{short}");
            }
        }
    }
    copied.bytes(reader.rest());
    assert!(reader.is_empty());
    assert_eq!(copied.into_vec(), body);
    let hex = codec::hex(input);
    assert_eq!(codec::unhex(&hex).as_deref(), Some(input));
    if let Some(bytes) = std::str::from_utf8(input).ok().and_then(codec::unhex) {
        assert_eq!(codec::hex(&bytes).as_bytes(), input, "two texts for the same bytes");
    }
});
