//! Round trips, cuts, tampering, replays and bounds, through the public door.

use std::time::{Duration, Instant};

use anywire_seal::{OVERHEAD, Opener, SALTS, Sealer, SessionKey, WINDOW};
use proptest::prelude::*;
use seam::{Dice, Refused};

fn key() -> SessionKey {
    SessionKey::derive(b"twelve bytes", "hunter2")
}

fn sealer(seed: u64) -> Sealer {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Sealer::new(&key(), Dice::new(bytes))
}

fn sealed(sealer: &mut Sealer, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; plain.len() + OVERHEAD];
    assert_eq!(sealer.seal(&[plain], &mut out), out.len());
    out
}

fn signed(sealer: &mut Sealer, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; plain.len() + OVERHEAD];
    assert_eq!(sealer.sign(&[plain], &mut out), out.len());
    out
}

/// Opens a copy.
fn open(opener: &mut Opener, frame: &[u8]) -> Result<Vec<u8>, Refused> {
    opener.open(Instant::now(), &mut frame.to_vec()).map(|opened| opened.plain.to_vec())
}

fn verify(opener: &mut Opener, frame: &[u8]) -> Result<Vec<u8>, Refused> {
    opener.verify_signed(Instant::now(), &mut frame.to_vec()).map(|opened| opened.plain.to_vec())
}

proptest! {
    #[test]
    fn what_is_sealed_in_parts_opens_whole(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..6),
        spare in 0usize..40,
        seed: u64,
    ) {
        let whole = parts.concat();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut sealer = sealer(seed);
        let mut out = vec![0xEE; whole.len() + OVERHEAD + spare];
        let len = sealer.seal(&parts, &mut out);
        prop_assert_eq!(len, whole.len() + OVERHEAD);
        prop_assert!(out[len..].iter().all(|byte| *byte == 0xEE));
        let mut opener = Opener::new(&key());
        let opened = opener.open(Instant::now(), &mut out[..len]).unwrap();
        prop_assert_eq!((opened.salt, opened.counter), (sealer.salt(), 1));
        prop_assert_eq!(&opened.plain[..], &whole[..]);

        let len = sealer.sign(&parts, &mut out);
        prop_assert_eq!(&out[8..len - 16], &whole[..]);
        let opened = opener.verify_signed(Instant::now(), &mut out[..len]).unwrap();
        prop_assert_eq!((opened.salt, opened.counter), (sealer.signing_salt(), 1));
        prop_assert_eq!(&opened.plain[..], &whole[..]);
    }

    #[test]
    fn bytes_of_a_stranger_are_refused_and_cost_nothing(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut opener = Opener::new(&key());
        let want = if frame.len() < OVERHEAD { Refused::Malformed } else { Refused::NotAuthentic };
        prop_assert_eq!(open(&mut opener, &frame), Err(want));
        prop_assert_eq!(verify(&mut opener, &frame), Err(want));
        prop_assert_eq!(opener.salts(), 0);
    }

    #[test]
    fn each_frame_is_taken_once_in_any_order(order in proptest::collection::vec(0usize..60, 1..200)) {
        let mut sealer = sealer(1);
        let frames: Vec<_> = (0..60u8).map(|n| sealed(&mut sealer, &[n])).collect();
        let mut opener = Opener::new(&key());
        let mut seen = std::collections::BTreeSet::new();
        for n in order {
            let want = if seen.insert(n) { Ok(frames[n][..].len()) } else { Err(Refused::Replayed) };
            prop_assert_eq!(open(&mut opener, &frames[n]).map(|plain| plain.len() + OVERHEAD), want);
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    let mut sealer = sealer(2);
    let (mut opener, plain) = (Opener::new(&key()), [7; 150]);
    let (e, s) = (sealed(&mut sealer, &plain), signed(&mut sealer, &plain));
    for len in 0..e.len() {
        let want = Err(if len < OVERHEAD { Refused::Malformed } else { Refused::NotAuthentic });
        assert_eq!(open(&mut opener, &e[..len]), want, "{len}");
        assert_eq!(verify(&mut opener, &s[..len]), want, "{len}");
    }
    assert_eq!(open(&mut opener, &e), Ok(plain.to_vec()));
    assert_eq!(verify(&mut opener, &s), Ok(plain.to_vec()));
}

#[test]
fn a_change_in_any_byte_is_refused_and_the_frame_left_alone() {
    let mut sealer = sealer(3);
    let mut opener = Opener::new(&key());
    for plain in [&[][..], &[1; 33], &[2; 100]] {
        let (e, s) = (sealed(&mut sealer, plain), signed(&mut sealer, plain));
        for at in 0..e.len() {
            for flip in [0x01, 0x80, 0xFF] {
                let (mut bad_e, mut bad_s) = (e.clone(), s.clone());
                bad_e[at] ^= flip;
                bad_s[at] ^= flip;
                let before = (bad_e.clone(), bad_s.clone());
                assert_eq!(opener.open(Instant::now(), &mut bad_e), Err(Refused::NotAuthentic));
                assert_eq!(opener.verify_signed(Instant::now(), &mut bad_s), Err(Refused::NotAuthentic));
                assert_eq!((bad_e, bad_s), before);
            }
        }
        assert_eq!(open(&mut opener, &e), Ok(plain.to_vec()));
        assert_eq!(verify(&mut opener, &s), Ok(plain.to_vec()));
    }
}

#[test]
fn a_longer_frame_is_refused() {
    let mut frame = sealed(&mut sealer(4), b"abc");
    frame.push(0);
    assert_eq!(open(&mut Opener::new(&key()), &frame), Err(Refused::NotAuthentic));
}

#[test]
fn sealed_and_signed_do_not_pass_for_each_other() {
    let mut sealer = sealer(5);
    let mut opener = Opener::new(&key());
    for len in [0, 1, 31, 32, 51, 52, 53, 100, 1_200] {
        let plain = vec![9; len];
        let (e, s) = (sealed(&mut sealer, &plain), signed(&mut sealer, &plain));
        assert_eq!(verify(&mut opener, &e), Err(Refused::NotAuthentic));
        assert_eq!(open(&mut opener, &s), Err(Refused::NotAuthentic));
    }
}

#[test]
fn another_password_opens_nothing() {
    let frame = sealed(&mut sealer(6), b"hello");
    for other in [SessionKey::derive(b"twelve bytes", ""), key().rendezvous()] {
        assert_eq!(open(&mut Opener::new(&other), &frame), Err(Refused::NotAuthentic));
    }
}

#[test]
fn one_frame_may_be_opened_by_many() {
    let frame = sealed(&mut sealer(7), b"to all");
    for _ in 0..3 {
        assert_eq!(open(&mut Opener::new(&key()), &frame), Ok(b"to all".to_vec()));
    }
}

/// Pain 23: frames that come late are lost silently when chunks and control share a narrow window.
#[test]
fn a_late_frame_is_taken_within_1024_and_counted_beyond() {
    let mut sealer = sealer(8);
    let window = WINDOW as usize;
    let frames: Vec<_> = (0..=window).map(|_| sealed(&mut sealer, b"x")).collect();
    let mut opener = Opener::new(&key());
    assert!(open(&mut opener, &frames[window]).is_ok());
    assert_eq!(open(&mut opener, &frames[0]), Err(Refused::TooOld));
    assert!(open(&mut opener, &frames[1]).is_ok());
    assert_eq!(open(&mut opener, &frames[1]), Err(Refused::Replayed));
    assert_eq!(opener.too_old(), 1);
}

/// Pain 23, the other half: bulk does not push control out of the window, for it has a salt of its own.
#[test]
fn signed_bulk_leaves_the_window_of_sealed_frames_alone() {
    let mut sealer = sealer(9);
    let mut opener = Opener::new(&key());
    let early = sealed(&mut sealer, b"early");
    assert!(open(&mut opener, &sealed(&mut sealer, b"later")).is_ok());
    for _ in 0..3_000 {
        let bulk = signed(&mut sealer, b"bulk");
        assert!(verify(&mut opener, &bulk).is_ok());
    }
    assert_eq!(open(&mut opener, &early), Ok(b"early".to_vec()));
    assert_eq!((opener.too_old(), opener.salts()), (0, 2));
}

#[test]
fn a_replayed_or_too_old_frame_is_left_as_it_came() {
    let mut sealer = sealer(10);
    let frames: Vec<_> = (0..1_100).map(|_| sealed(&mut sealer, b"secret")).collect();
    let mut opener = Opener::new(&key());
    assert!(open(&mut opener, &frames[1_099]).is_ok());
    for (at, want) in [(1_099, Refused::Replayed), (0, Refused::TooOld)] {
        let mut copy = frames[at].clone();
        assert_eq!(opener.open(Instant::now(), &mut copy), Err(want));
        assert_eq!(copy, frames[at]);
    }
}

#[test]
fn the_least_recently_used_salt_makes_room() {
    let start = Instant::now();
    let mut opener = Opener::new(&key());
    let mut senders: Vec<_> = (0..SALTS as u64).map(sealer).collect();
    let firsts: Vec<_> = senders.iter_mut().map(|sealer| sealed(sealer, b"first")).collect();
    for (at, frame) in firsts.iter().enumerate() {
        let now = start + Duration::from_millis(at as u64);
        opener.open(now, &mut frame.clone()).unwrap();
    }
    assert_eq!(opener.salts(), SALTS);

    // The first sender speaks again, so the second is the one that has been silent longest.
    let now = start + Duration::from_secs(10);
    opener.open(now, &mut sealed(&mut senders[0], b"second")).unwrap();
    opener.open(now, &mut sealed(&mut sealer(99_999), b"newcomer")).unwrap();
    assert_eq!(opener.salts(), SALTS);
    assert_eq!(opener.open(now, &mut firsts[0].clone()), Err(Refused::Replayed));
    assert_eq!(opener.open(now, &mut firsts[2].clone()), Err(Refused::Replayed));
    assert!(opener.open(now, &mut firsts[1].clone()).is_ok());
    assert_eq!(opener.salts(), SALTS);
}

#[test]
fn a_refused_frame_does_not_keep_its_salt_alive() {
    let start = Instant::now();
    let mut opener = Opener::new(&key());
    let frames: Vec<_> = (0..SALTS as u64).map(|seed| sealed(&mut sealer(seed), b"x")).collect();
    for (at, frame) in frames.iter().enumerate() {
        opener.open(start + Duration::from_millis(at as u64), &mut frame.clone()).unwrap();
    }
    let now = start + Duration::from_secs(10);
    assert_eq!(opener.open(now, &mut frames[0].clone()), Err(Refused::Replayed));
    opener.open(now, &mut sealed(&mut sealer(99_999), b"newcomer")).unwrap();
    assert_eq!(opener.open(now, &mut frames[1].clone()), Err(Refused::Replayed));
    assert!(opener.open(now, &mut frames[0].clone()).is_ok());
}
