//! Sealing and opening a frame: ours, the same format straight from the hash crates, and two ciphers made for speed.
//!
//! `cargo run --release -p anywire-bench --bin seal`

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark is a program")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use anywire_bench::{Clock, Contestant, Score, Table, interleaved, machine};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use hmac::{Hmac, KeyInit, Mac};
use seal::{OVERHEAD, Opener, Sealer, SessionKey, compressions};
use seam::Dice;
use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

/// The format written down with the hash crates.
const PLAIN: &str = "sha2 + hmac";
/// The same by somebody who knows that a keyed `Hmac` can be kept and cloned.
const KEYED: &str = "sha2 + hmac, keyed once";

const RUNS: usize = 5;
const EACH: Duration = Duration::from_millis(300);
/// Frames sealed ahead for the opening contestants, which never see one twice: the windows are part of the work.
const STOCK: usize = 4_096;

fn main() {
    let key = SessionKey::derive(b"twelve bytes", "");
    println!("{}\n{RUNS} interleaved runs, medians, processor time\n", machine());
    let (chained, side_by_side) = bare();
    println!(
        "One compression of SHA-256: {chained:.1} ns in a chain (`sha2`), {side_by_side:.1} ns in frames of 64 KiB \
         (ours, several at once, ten rounds of each keystream block left out)\n"
    );
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
    println!("{table}\n\nload afterwards: {:.2?}", anywire_bench::load());
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

/// The format as one writes it down with `sha2` and `hmac` at hand. It keeps no windows.
struct Rival {
    encryption: [u8; 32],
    authentication: [u8; 32],
    keyed: Option<Hmac<Sha256>>,
    counter: u32,
}

impl Rival {
    fn new(key: &SessionKey, keyed_once: bool) -> Self {
        let label = |label: &[u8]| -> [u8; 32] {
            Sha256::new().chain_update(key.as_bytes()).chain_update(label).finalize().into()
        };
        let authentication = label(b"|mac");
        let keyed = keyed_once.then(|| Hmac::new_from_slice(&authentication).unwrap());
        Self { encryption: label(b"|enc"), authentication, keyed, counter: 0 }
    }

    fn mac(&self, data: &[u8]) -> Hmac<Sha256> {
        let keyed = self.keyed.clone();
        let mut mac = keyed.unwrap_or_else(|| Hmac::new_from_slice(&self.authentication).unwrap());
        mac.update(data);
        mac
    }

    fn seal(&mut self, body: &[u8], out: &mut [u8]) -> usize {
        self.counter += 1;
        let end = 8 + body.len();
        out[..4].copy_from_slice(b"salt");
        out[4..8].copy_from_slice(&self.counter.to_be_bytes());
        out[8..end].copy_from_slice(body);
        self.stream(&mut out[..end]);
        let tag = self.mac(&out[..end]).finalize().into_bytes();
        out[end..end + 16].copy_from_slice(&tag[..16]);
        end + 16
    }

    fn open(&mut self, frame: &mut [u8]) -> bool {
        let (data, tag) = frame.split_at_mut(frame.len() - 16);
        let right = self.mac(data).verify_truncated_left(tag).is_ok();
        if right {
            self.stream(data);
        }
        black_box(right)
    }

    fn stream(&self, data: &mut [u8]) {
        let (head, body) = data.split_at_mut(8);
        for (index, chunk) in (0u32..).zip(body.chunks_mut(32)) {
            let block = Sha256::new()
                .chain_update(self.encryption)
                .chain_update(&*head)
                .chain_update(index.to_be_bytes())
                .finalize();
            for (byte, key) in chunk.iter_mut().zip(block) {
                *byte ^= key;
            }
        }
    }
}
