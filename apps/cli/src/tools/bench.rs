//! `anywire bench`: what this computer can do, in a few lines. The measured tables are made by the bench harness; this
//! is for a player who wants to know whether the computer is the slow part.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seal::{OVERHEAD, Opener, Sealer, SessionKey};
use seam::Dice;
use session::Command;

use super::party::{self, until};
use super::say;
use crate::args::BenchArgs;
use crate::run::{FAILED, FINE};

/// Frames sent one at a time for the latency.
const PINGS: u32 = 500;

/// Measures and prints; the answer is the exit code.
pub(crate) fn run(args: &BenchArgs) -> u8 {
    let time = Duration::from_secs_f64(args.seconds);
    for size in [100, 1_200] {
        let (sealed, opened) = sealing(size, time);
        say(&format!("seal {size:>5} bytes  {:>10.0} frames/s  {:>8.1} MB/s", sealed, per_second(sealed, size)));
        say(&format!("open {size:>5} bytes  {:>10.0} frames/s  {:>8.1} MB/s", opened, per_second(opened, size)));
    }
    match frames() {
        Ok((p50, p99)) => {
            say(&format!("a frame from a joiner's game to the host's, loopback: p50 {p50:.0} us, p99 {p99:.0} us"));
            FINE
        }
        Err(why) => {
            say(&format!("frames: {why}"));
            FAILED
        }
    }
}

fn per_second(frames: f64, size: u32) -> f64 {
    frames * f64::from(size) / 1e6
}

/// Frames sealed and opened per second on one core.
fn sealing(size: u32, time: Duration) -> (f64, f64) {
    let size = usize::try_from(size).unwrap_or_default();
    let key = SessionKey::derive(&[7; 12], "");
    let plain = vec![0x5A_u8; size];
    let mut frame = vec![0_u8; size + OVERHEAD];

    let mut sealer = Sealer::new(&key, Dice::new([1; 32]));
    let begin = Instant::now();
    let mut sealed = 0_u32;
    while begin.elapsed() < time {
        for _ in 0..64 {
            black_box(sealer.seal(&[&plain], &mut frame));
        }
        sealed += 64;
    }
    let seal_rate = f64::from(sealed) / begin.elapsed().as_secs_f64();

    let mut opener = Opener::new(&key);
    let (mut opened, mut spent) = (0_u32, Duration::ZERO);
    while spent < time {
        let batch: Vec<Vec<u8>> = (0..64)
            .map(|_| {
                sealer.seal(&[&plain], &mut frame);
                frame.clone()
            })
            .collect();
        let begin = Instant::now();
        for mut frame in batch {
            if black_box(opener.open(begin, &mut frame)).is_ok() {
                opened += 1;
            }
        }
        spent += begin.elapsed();
    }
    (seal_rate, f64::from(opened) / spent.as_secs_f64())
}

/// Median and 99th percentile, in microseconds, of one frame's way through two sessions.
fn frames() -> Result<(f64, f64), String> {
    let mut guests = vec![party::host("host", false).map_err(|error| error.to_string())?];
    until(&mut guests, Duration::from_secs(10), |guests| guests.iter().all(|guest| guest.code.is_some()))
        .ok_or("the host got no code")?;
    let code = guests.first().and_then(|host| host.code.clone()).unwrap_or_default();
    guests.push(party::join("ada", &code, false)?);
    until(&mut guests, Duration::from_secs(10), |guests| guests.iter().all(|guest| guest.sees().len() == 2))
        .ok_or("the joiner did not get in")?;
    let mut times: Vec<f64> = Vec::new();
    for n in 0..PINGS {
        let mut bytes = vec![b'.'; 100];
        bytes.splice(..4, n.to_be_bytes());
        let frame = Bytes::from(bytes);
        let [host, joiner] = guests.as_mut_slice() else { return Err("two sessions are needed".to_owned()) };
        let begin = Instant::now();
        joiner.command(Command::Frame(frame.clone()));
        while !host.frames.contains_key(&frame) && begin.elapsed() < Duration::from_secs(1) {
            host.wait(Duration::from_millis(100));
        }
        if host.frames.remove(&frame).is_some() {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    guests.iter().for_each(|guest| guest.command(Command::Quit));
    if times.len() < 2 {
        return Err("no frame arrived".to_owned());
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get((times.len() - 1) * percent / 100).copied().unwrap_or_default();
    Ok((at(50), at(99)))
}
