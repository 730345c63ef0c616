//! What the reassembly of long messages keeps, for how long and for whom.

#![cfg(test)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anywire_np1::{Bounds, FRAGMENT_DATA, Fragment, MESSAGE_MAX, Payload, Reassembly, split};
use proptest::prelude::*;
use seam::{Path, Refused, SocketId};

fn path(port: u16) -> Path {
    Path::new(SocketId(0), SocketAddr::from(([192, 0, 2, 1], port)))
}

fn piece(id: u32, index: u32, count: u32, data: &[u8]) -> Fragment<'_> {
    Fragment { id, index, count, data }
}

#[test]
fn a_duplicate_replaces_and_another_count_is_ignored() {
    let now = Instant::now();
    let mut r = Reassembly::new(Bounds::default());
    assert_eq!(r.push(now, path(1), &piece(1, 0, 2, b"old")), Ok(None));
    assert_eq!(r.push(now, path(1), &piece(1, 1, 3, b"stray")), Err(Refused::Malformed));
    assert_eq!(r.push(now, path(1), &piece(1, 0, 2, b"new")), Ok(None));
    let done = r.push(now, path(1), &piece(1, 1, 2, b"!")).unwrap();
    assert_eq!(done.as_deref(), Some(&b"new!"[..]));
    assert_eq!(r.held(), 0);
}

#[test]
fn the_same_number_from_two_addresses_is_two_messages() {
    let now = Instant::now();
    let mut r = Reassembly::new(Bounds::default());
    assert_eq!(r.push(now, path(1), &piece(9, 0, 2, b"a")), Ok(None));
    assert_eq!(r.push(now, path(2), &piece(9, 1, 2, b"b")), Ok(None));
    assert_eq!(r.push(now, path(1), &piece(9, 1, 2, b"A")).unwrap().as_deref(), Some(&b"aA"[..]));
}

#[test]
fn a_message_expires_after_its_last_piece_not_its_first() {
    let start = Instant::now();
    let at = |s| start + Duration::from_secs(s);
    let mut r = Reassembly::new(Bounds::default());
    r.push(at(0), path(1), &piece(1, 0, 3, b"a")).unwrap();
    r.push(at(10), path(1), &piece(1, 1, 3, b"b")).unwrap();
    r.handle_timeout(at(24));
    assert_eq!(r.poll_timeout().map(|t| t.0), Some(at(25)));
    r.handle_timeout(at(25));
    assert_eq!((r.poll_timeout(), r.held()), (None, 0));
    assert_eq!(r.push(at(25), path(1), &piece(1, 2, 3, b"c")), Ok(None));
}

#[test]
fn the_sixty_fifth_message_of_an_address_costs_its_oldest() {
    let now = Instant::now();
    let mut r = Reassembly::new(Bounds::default());
    for id in 0..65 {
        r.push(now, path(1), &piece(id, 0, 2, b"x")).unwrap();
    }
    assert_eq!(r.push(now, path(1), &piece(1, 1, 2, b"y")).unwrap().as_deref(), Some(&b"xy"[..]));
    assert_eq!(r.push(now, path(1), &piece(0, 1, 2, b"y")), Ok(None), "the first was given up");
}

/// Pain 32: what is announced costs nothing, what arrives is bounded.
#[test]
fn memory_follows_what_arrives_within_the_bounds() {
    let now = Instant::now();
    let bounds = Bounds::default();
    let mut r = Reassembly::new(bounds);
    r.push(now, path(1), &piece(1, 8191, 8192, b"")).unwrap();
    assert!(r.held() < 1000);
    let full = [7; FRAGMENT_DATA];
    for port in 0..20 {
        for id in 0..3 {
            for index in 0..2000 {
                let _ = r.push(now, path(port), &piece(id, index, 8192, &full));
                assert!(r.held() <= bounds.bytes_total);
            }
        }
    }
    for port in 0..20 {
        r.forget(path(port));
    }
    assert_eq!((r.held(), r.poll_timeout()), (0, None));
}

#[test]
fn a_flood_from_one_address_costs_the_others_nothing() {
    let now = Instant::now();
    let bounds = Bounds { bytes_total: 200_000, bytes_per_address: 150_000, ..Bounds::default() };
    let mut r = Reassembly::new(bounds);
    for port in 1..=10 {
        r.push(now, path(port), &piece(1, 0, 2, &[b'x'; 1300])).unwrap();
    }
    for id in 0..1000 {
        for flood in [100, 101] {
            let _ = r.push(now, path(flood), &piece(id, 0, 2, &[0; 1300]));
        }
    }
    for port in 1..=10 {
        let done = r.push(now, path(port), &piece(1, 1, 2, b"y")).unwrap();
        assert_eq!(done.map(|message| message.len()), Some(1301));
    }
}

#[test]
fn a_piece_over_every_bound_is_refused() {
    let now = Instant::now();
    let mut r = Reassembly::new(Bounds { bytes_per_address: 1000, ..Bounds::default() });
    assert_eq!(r.push(now, path(1), &piece(1, 0, 2, &[0; 1300])), Err(Refused::OverLimit));
    assert_eq!(r.push(now, path(1), &piece(2, 0, 3, &[0; 400])), Ok(None));
    assert_eq!(r.push(now, path(1), &piece(2, 1, 3, &[0; 400])), Err(Refused::OverLimit));
    assert_eq!(r.held(), 0);
}

#[test]
fn a_fragment_made_by_hand_outside_its_message_is_refused() {
    let mut r = Reassembly::new(Bounds::default());
    for bad in [piece(1, 2, 2, b""), piece(1, 0, 0, b""), piece(1, 0, 8193, b"")] {
        assert_eq!(r.push(Instant::now(), path(1), &bad), Err(Refused::Malformed));
    }
}

fn shuffled(mut frames: Vec<Vec<u8>>, order: &[u16]) -> Vec<Vec<u8>> {
    for (i, pick) in order.iter().enumerate().take(frames.len()) {
        let j = usize::from(*pick) % frames.len();
        frames.swap(i, j);
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_puts_a_split_message_together(
        id: u32, len in 0..20_000usize, order in prop::collection::vec(any::<u16>(), 16),
    ) {
        let message: Vec<u8> = (0..len).map(|i| if i == 0 { b'{' } else { (i % 251) as u8 }).collect();
        let now = Instant::now();
        let mut r = Reassembly::new(Bounds::default());
        let mut done = Vec::new();
        for frame in shuffled(split(id, &message).collect(), &order) {
            match Payload::parse(&frame).unwrap() {
                Payload::Json(json) => done.push(json.to_vec()),
                Payload::Fragment(piece) => done.extend(r.push(now, path(1), &piece).unwrap().map(|m| m.to_vec())),
                other => prop_assert_eq!(other, Payload::Unknown),
            }
        }
        let want = if message.is_empty() { vec![] } else { vec![message] };
        prop_assert_eq!(done, want);
        prop_assert_eq!(r.held(), 0);
    }

    #[test]
    fn any_pieces_keep_the_books_right(
        pieces in prop::collection::vec((0..4u16, 0..6u32, 0..5u32, 1..6u32, 0..900usize, 0..4u64), 0..200),
    ) {
        let bounds = Bounds { open_per_address: 3, bytes_per_address: 3000, bytes_total: 7000, ..Bounds::default() };
        let mut r = Reassembly::new(bounds);
        let mut now = Instant::now();
        for (port, id, index, count, len, wait) in pieces {
            now += Duration::from_secs(wait);
            r.handle_timeout(now);
            let _ = r.push(now, path(port), &piece(id, index, count, &vec![1; len]));
            prop_assert!(r.held() <= bounds.bytes_total);
            prop_assert_eq!(r.held() == 0, r.poll_timeout().is_none());
            prop_assert!(r.poll_timeout().is_none_or(|(at, _)| at > now));
        }
        r.handle_timeout(now + bounds.lifetime);
        prop_assert_eq!((r.held(), r.poll_timeout()), (0, None));
    }

    #[test]
    fn any_payload_is_told_or_refused(payload in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Payload::parse(&payload);
        for first in [b'g', b'r', b'F', b'N', b'{'] {
            let mut tagged = payload.clone();
            tagged.insert(0, first);
            let told = Payload::parse(&tagged);
            prop_assert_eq!(matches!(told, Ok(Payload::Game(_))), first == b'g');
        }
    }
}

#[test]
fn the_longest_message_is_8192_full_pieces() {
    assert_eq!(MESSAGE_MAX, 8192 * FRAGMENT_DATA);
}
