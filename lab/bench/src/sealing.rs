//! Sealing and opening a frame: ours, the same format straight from the hash crates, and two ciphers made for speed.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use seal::{OVERHEAD, Opener, Sealer, SessionKey, compressions};
use seam::Dice;
use sha2::block_api::compress256;

use crate::plain::Rival;
use crate::{Clock, Contestant, Score, Table, interleaved, load, machine};

/// The format written down with the hash crates.
const PLAIN: &str = "sha2 + hmac";
/// The same by somebody who knows that a keyed `Hmac` can be kept and cloned.
const KEYED: &str = "sha2 + hmac, keyed once";

const RUNS: usize = 5;
const EACH: Duration = Duration::from_millis(300);
/// Frames sealed ahead for the opening contestants, which never see one twice: the windows are part of the work.
const STOCK: usize = 4_096;

/// Measures, and says so in Markdown.
#[must_use]
pub fn report() -> String {
    let key = SessionKey::derive(b"twelve bytes", "");
    let before = machine();
    let (chained, side_by_side) = bare();
    let columns = [
        "",
        ">bytes",
        ">ns/frame",
        ">frames/s",
        ">times ours",
        ">compressions",
        ">ns/compression",
        ">of the chained bound",
    ];
    let mut table = Table::new(&columns);
    for plain in [100, 1_200] {
        for (verb, scores) in [("seal", sealing(&key, plain)), ("open", opening(&key, plain))] {
            rows(&mut table, verb, plain, chained, &scores);
        }
    }
    format!(
        "{before}\n{RUNS} interleaved runs, medians, processor time\n\n\
         One compression of SHA-256: {chained:.1} ns in a chain (`sha2`), {side_by_side:.1} ns in frames of 64 KiB \
         (ours, several at once, ten rounds of each keystream block left out)\n\n{table}\n\nload afterwards: {:.2?}",
        load()
    )
}

fn rows(table: &mut Table, verb: &str, plain: usize, chained: f64, scores: &[Score]) {
    for score in scores {
        let ns = score.median();
        let spent: Option<usize> = match score.name.as_str() {
            "anywire" | KEYED => Some(compressions(plain)),
            // HMAC hashes its two key blocks again for each frame.
            PLAIN => Some(compressions(plain) + 2),
            _ => None,
        };
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let (per, bound) = match spent {
            Some(n) => {
                let bound = compressions(plain) as f64 * chained;
                (format!("{:.1}", ns / n as f64), format!("{:.2}", ns / bound))
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        table.row(&[
            &format!("{verb}, {}", score.name),
            &plain,
            &format!("{ns:.0}"),
            &format!("{:.0}", 1e9 / ns),
            &format!("{:.2}", score.ratio(&scores[0])),
            &spent.map_or("-".to_owned(), |n| n.to_string()),
            &per,
            &bound,
        ]);
    }
}

/// Nanoseconds per compression: `sha2` over a long chain, and ours over frames so large that their ends do not count.
fn bare() -> (f64, f64) {
    let blocks = vec![[0x55; 64]; 1_024];
    let mut state = [1; 8];
    let mut sealer = Sealer::new(&SessionKey::from_bytes([1; 32]), Dice::new([1; 32]));
    let large = vec![0x55; 65_536];
    let mut out = vec![0; large.len() + OVERHEAD];
    let scores = interleaved(
        Clock::Processor,
        RUNS,
        EACH,
        &mut [
            Contestant::new("chain", || {
                compress256(&mut state, &blocks);
                state
            }),
            Contestant::new("ours", || sealer.seal(&[&large], &mut out)),
        ],
    );
    #[allow(clippy::cast_precision_loss, reason = "small")]
    (scores[0].median() / blocks.len() as f64, scores[1].median() / compressions(large.len()) as f64)
}

fn sealing(key: &SessionKey, plain: usize) -> Vec<Score> {
    let body = vec![0x5A; plain];
    let out = || vec![0; plain + OVERHEAD];
    let mut sealer = Sealer::new(key, Dice::new([7; 32]));
    let (mut plainly, mut keyed) = (Rival::new(key, false), Rival::new(key, true));
    let (mut a, mut b, mut c) = (out(), out(), out());
    let mut list = vec![
        Contestant::new("anywire", || sealer.seal(&[&body], &mut a)),
        Contestant::new(PLAIN, || plainly.seal(&body, &mut b)),
        Contestant::new(KEYED, || keyed.seal(&body, &mut c)),
    ];
    for (name, algorithm) in CIPHERS {
        let (cipher, body, mut out, mut counter) = (aead(algorithm), &body, out(), 0);
        list.push(Contestant::new(*name, move || {
            counter += 1;
            let (text, tag) = out.split_at_mut(plain);
            text.copy_from_slice(body);
            let made = cipher.seal_in_place_separate_tag(nonce(counter), Aad::empty(), text).unwrap();
            tag[..16].copy_from_slice(made.as_ref());
            tag[0]
        }));
    }
    interleaved(Clock::Processor, RUNS, EACH, &mut list)
}

fn opening(key: &SessionKey, plain: usize) -> Vec<Score> {
    let body = vec![0x5A; plain];
    let mut sealer = Sealer::new(key, Dice::new([8; 32]));
    let stock: Vec<Vec<u8>> = (0..STOCK)
        .map(|_| {
            let mut out = vec![0; plain + OVERHEAD];
            sealer.seal(&[&body], &mut out);
            out
        })
        .collect();
    // Copying a frame out of the stock stands for receiving it, and is part of every contestant's work. An opener
    // that has seen the whole stock is replaced by a fresh one.
    let (now, mut at, mut frame) = (Instant::now(), 0, vec![0; plain + OVERHEAD]);
    let mut opener = Opener::new(key);
    let mut list = vec![Contestant::new("anywire", || {
        if at == STOCK {
            (opener, at) = (Opener::new(key), 0);
        }
        frame.copy_from_slice(&stock[at]);
        at += 1;
        opener.open(now, &mut frame).unwrap().plain[0]
    })];
    for (name, once) in [(PLAIN, false), (KEYED, true)] {
        let (mut rival, mut at, mut frame, stock) = (Rival::new(key, once), 0, stock[0].clone(), &stock);
        list.push(Contestant::new(name, move || {
            at = (at + 1) % STOCK;
            frame.copy_from_slice(&stock[at]);
            assert!(rival.open(&mut frame));
            frame[8]
        }));
    }
    for (name, algorithm) in CIPHERS {
        let cipher = aead(algorithm);
        let stock: Vec<Vec<u8>> = (0..STOCK)
            .map(|counter| {
                let mut text = body.clone();
                cipher.seal_in_place_append_tag(nonce(counter as u64), Aad::empty(), &mut text).unwrap();
                text
            })
            .collect();
        let (mut at, mut frame) = (0, stock[0].clone());
        list.push(Contestant::new(*name, move || {
            at = (at + 1) % STOCK;
            frame.copy_from_slice(&stock[at]);
            cipher.open_in_place(nonce(at as u64), Aad::empty(), &mut frame).unwrap()[0]
        }));
    }
    interleaved(Clock::Processor, RUNS, EACH, &mut list)
}

const CIPHERS: &[(&str, &Algorithm)] = &[
    ("ChaCha20-Poly1305 (aws-lc)", &CHACHA20_POLY1305),
    ("AES-128-GCM (aws-lc)", &AES_128_GCM),
    ("AES-256-GCM (aws-lc)", &AES_256_GCM),
];

fn aead(algorithm: &'static Algorithm) -> LessSafeKey {
    let key = vec![0x42; algorithm.key_len()];
    LessSafeKey::new(UnboundKey::new(algorithm, &key).unwrap())
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
