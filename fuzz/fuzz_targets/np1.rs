//! NP1 packets and what they carry: what is read and written again reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use np1::{Chunk, Envelope, FRAGMENT_DATA, FRAGMENTS_MAX, Fragment, HEADER, Packet, Payload};

fuzz_target!(|input: &[u8]| {
    if let Ok(packet) = Packet::parse(input) {
        assert_eq!(np1::packet(packet.kind, packet.payload), input, "every packet has one form");
        assert_eq!(np1::header(packet.kind), input[..HEADER]);
        payload(packet.payload);
    } else {
        assert!(input.len() < HEADER || !input.starts_with(&np1::MAGIC));
    }
    payload(input);
    relay(input);
    split(input);
});

fn payload(bytes: &[u8]) {
    let Ok(read) = Payload::parse(bytes) else { return };
    match read {
        Payload::Json(json) => assert!(json == bytes && json.first() == Some(&b'{')),
        Payload::Game(frame) => {
            let sent = np1::game_frame(frame);
            assert_eq!(sent.is_ok(), frame.len() <= np1::GAME_FRAME_MAX);
            assert!(sent.is_err() || sent.as_deref() == Ok(bytes));
        }
        Payload::Chunk(chunk) => {
            assert_eq!(chunk.write(), bytes);
            assert_eq!(Chunk::parse(&chunk.write()), Ok(chunk));
        }
        Payload::Fragment(piece) => {
            assert!(piece.index < piece.count && piece.count <= FRAGMENTS_MAX);
            assert_eq!(piece.write(), bytes);
            assert_eq!(Fragment::parse(&piece.write()), Ok(piece));
        }
        Payload::Envelope(wrapped) => {
            let written = wrapped.write().expect("names that were read fit");
            assert_eq!(Envelope::parse(&written), Ok(wrapped));
            // A sender's name that was cut by the end of the packet is the only thing that is written otherwise.
            assert!(written == bytes || wrapped.inner.is_empty());
        }
        Payload::Unknown => assert!(!matches!(bytes.first(), Some(b'{' | b'g' | b'r' | b'F'))),
    }
}

fn relay(bytes: &[u8]) {
    if let Ok((id, role)) = np1::read_relay_bind(bytes) {
        assert_eq!(np1::relay_bind(&id, role), bytes);
    }
    if let Ok(id) = np1::read_relay_bound(bytes) {
        assert_eq!(np1::relay_bound(&id), bytes);
    }
}

/// Any message is put together again from what is sent.
fn split(bytes: &[u8]) {
    let mut whole = Vec::new();
    let mut pieces = 0;
    for sent in np1::split(7, bytes) {
        pieces += 1;
        if bytes.len() <= FRAGMENT_DATA {
            whole = sent;
            continue;
        }
        let piece = Fragment::parse(&sent).expect("what is sent is read");
        assert!(piece.id == 7 && piece.index == pieces - 1 && piece.data.len() <= FRAGMENT_DATA);
        whole.extend_from_slice(piece.data);
    }
    assert_eq!(whole, bytes);
}
