//! NetherNet's part of SDP: what is read and written again reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nethernet::engine::sdp;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let Ok(read) = sdp::parse(&text) else { return };
    assert!(read.candidates.len() <= sdp::CANDIDATES_MAX && !read.fingerprints.is_empty());
    // What this side never writes does not have to come back.
    let mut written = read.clone();
    written.ice_lite = false;
    written.identity = written.identity.filter(|identity| identity.bytes().all(|b| b.is_ascii_graphic()));
    for candidate in &mut written.candidates {
        candidate.related = None;
    }
    let again = sdp::parse(&written.to_string()).map(|mut again| {
        again.candidates.iter_mut().for_each(|candidate| candidate.related = None);
        again
    });
    assert_eq!(again, Ok(written));
});
