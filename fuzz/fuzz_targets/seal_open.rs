//! Sealed and signed frames: what nobody sealed does not open, what somebody sealed opens once.

#![no_main]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anywire_fuzz::Script;
use libfuzzer_sys::fuzz_target;
use seal::{OVERHEAD, Opener, SALTS, Sealer, SessionKey};
use seam::{Dice, Refused};

/// A frame that was made, and what is inside.
struct Made {
    frame: Vec<u8>,
    plain: Vec<u8>,
    signed: bool,
}

fuzz_target!(|input: &[u8]| {
    let key = SessionKey::from_bytes([3; 32]);
    let mut now = Instant::now();
    let mut opener = Opener::new(&key);
    let mut sealers: Vec<Sealer> = (0..3).map(|n| Sealer::new(&key, Dice::new([n; 32]))).collect();
    let mut made: Vec<Made> = Vec::new();
    let mut taken: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut script = Script::new(input);
    while let Some(kind) = script.next_move() {
        match kind % 6 {
            0 => made.push(make(&mut sealers, &mut script)),
            1 => arbitrary(&mut opener, now, script.bytes()),
            2 => now += script.step(),
            3 | 4 => {
                let Some(one) = pick(&made, script.byte()) else { continue };
                let fresh = taken.insert(one.frame.get(..8).unwrap_or_default().to_vec());
                let mut frame = one.frame.clone();
                let opened = open(&mut opener, now, &mut frame, one.signed);
                match opened {
                    Ok(plain) => {
                        assert!(fresh, "a frame opened twice");
                        assert_eq!(plain, one.plain, "another plaintext");
                    }
                    Err(Refused::Replayed) => assert!(!fresh, "a new frame is called a replay"),
                    Err(Refused::TooOld) => {}
                    Err(other) => panic!("a real frame is refused: {other}"),
                }
            }
            _ => {
                let Some(one) = pick(&made, script.byte()) else { continue };
                let (mut frame, as_signed) = (one.frame.clone(), script.flag() ^ one.signed);
                let before = spoil(&mut frame, &mut script);
                if before || as_signed != one.signed {
                    let copy = frame.clone();
                    let refused = open(&mut opener, now, &mut frame, as_signed);
                    assert!(matches!(refused, Err(Refused::NotAuthentic | Refused::Malformed)), "spoiled: {refused:?}");
                    assert_eq!(frame, copy, "a refused frame was changed");
                }
            }
        }
        assert!(opener.salts() <= SALTS);
    }
    now += Duration::from_secs(1);
    arbitrary(&mut opener, now, input);
});

fn pick(made: &[Made], n: u8) -> Option<&Made> {
    made.get(usize::from(n) % made.len().max(1))
}

fn make(sealers: &mut [Sealer], script: &mut Script<'_>) -> Made {
    let who = script.below(sealers.len());
    let signed = script.flag();
    let (a, b) = (script.short(), script.bytes());
    let mut frame = vec![0xAA; a.len() + b.len() + OVERHEAD];
    let sealer = &mut sealers[who];
    let used = if signed { sealer.sign(&[a, b], &mut frame) } else { sealer.seal(&[a, b], &mut frame) };
    assert_eq!(used, frame.len());
    Made { frame, plain: [a, b].concat(), signed }
}

fn open(opener: &mut Opener, now: Instant, frame: &mut [u8], signed: bool) -> Result<Vec<u8>, Refused> {
    let opened = if signed { opener.verify_signed(now, frame) } else { opener.open(now, frame) };
    opened.map(|opened| opened.plain.to_vec())
}

/// Bytes of a stranger, who has no key.
fn arbitrary(opener: &mut Opener, now: Instant, bytes: &[u8]) {
    let salts = opener.salts();
    for signed in [false, true] {
        let mut frame = bytes.to_vec();
        let want = if bytes.len() < OVERHEAD { Refused::Malformed } else { Refused::NotAuthentic };
        assert_eq!(open(opener, now, &mut frame, signed), Err(want));
        assert_eq!(frame, bytes);
    }
    assert_eq!(opener.salts(), salts, "a stranger is remembered");
}

/// Changes, cuts or lengthens a frame. False when nothing came of it.
fn spoil(frame: &mut Vec<u8>, script: &mut Script<'_>) -> bool {
    match script.below(3) {
        0 => {
            let (at, with) = (usize::from(script.u16()) % frame.len(), script.byte());
            frame[at] ^= with;
            with != 0
        }
        1 => {
            let keep = usize::from(script.u16()) % frame.len();
            frame.truncate(keep);
            true
        }
        _ => {
            frame.push(script.byte());
            true
        }
    }
}
