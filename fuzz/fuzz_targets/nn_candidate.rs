//! ICE candidates in all their forms: what is read and written again reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nethernet::engine::candidate::{Parsed, parse};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let Ok(Parsed::Candidate(read)) = parse(&text) else { return };
    assert!((1..=0x7FFF_FFFF).contains(&read.priority) && read.addr.port() != 0);
    assert_eq!(parse(&read.to_string()), Ok(Parsed::Candidate(read)));
});
