//! Runs pairs of homes and changes of path, or replays one.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anywire_world::nat::{Kind, Reached, Roamed, Way, expected, is_guessed, reach, roam};

const HELP: &str = "\
Usage: natworlds [--worlds N] [--guesses N] [--changes N]
                                                N worlds over every pair of homes (default 500), N of pairs that guess a
                                                random port (200), and N forced changes (1000)
       natworlds --pair HOST JOINER SEED        one world with its log
       natworlds --roam HOST JOINER SEED        one world of changes with its log";

/// Ninety-nine of a hundred changes make no frame later than this.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Nine of ten pairs that guess a random port are direct within this time.
const GUESSED_IN: Duration = Duration::from_secs(4);
/// Changes of path in one world.
const CHANGES: u32 = 10;

enum Job {
    Pair(Kind, Kind, u64),
    Roam(Kind, Kind, u64),
}

enum Outcome {
    Pair(Kind, Kind, Result<Reached, String>),
    Roam(Result<Roamed, String>),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (mut worlds, mut guesses, mut changes) = (500, 200, 1000);
    match words.as_slice() {
        ["--pair", host, joiner, seed] => return one(false, host, joiner, seed),
        ["--roam", host, joiner, seed] => return one(true, host, joiner, seed),
        mut rest => {
            while let [flag, number, tail @ ..] = rest {
                let Ok(number) = number.parse() else { return usage() };
                match *flag {
                    "--worlds" => worlds = number,
                    "--guesses" => guesses = number,
                    "--changes" => changes = number,
                    _ => return usage(),
                }
                rest = tail;
            }
            if !rest.is_empty() {
                return usage();
            }
        }
    }
    many(&jobs(worlds, guesses, changes))
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::from(2)
}

fn one(roams: bool, host: &str, joiner: &str, seed: &str) -> ExitCode {
    let kind = |word: &str| Kind::ALL.into_iter().find(|kind| kind.to_string() == word);
    let (Some(host), Some(joiner), Ok(seed)) = (kind(host), kind(joiner), seed.parse()) else { return usage() };
    let said = if roams {
        roam(host, joiner, seed, CHANGES, true).map(|roamed| format!("{roamed:?}"))
    } else {
        reach(host, joiner, seed, true).map(|reached| format!("{reached:?}"))
    };
    match said {
        Ok(said) => println!("{said}"),
        Err(why) => println!("FAILED {why}"),
    }
    ExitCode::SUCCESS
}

fn jobs(worlds: u64, guesses: u64, changes: u64) -> Vec<Job> {
    let all = Kind::ALL;
    let pairs: Vec<(Kind, Kind)> = all.iter().flat_map(|host| all.iter().map(|joiner| (*host, *joiner))).collect();
    let mut jobs: Vec<Job> =
        (0..worlds).zip(pairs.iter().cycle()).map(|(seed, (host, joiner))| Job::Pair(*host, *joiner, seed)).collect();
    let guessed: Vec<(Kind, Kind)> = pairs.into_iter().filter(|(host, joiner)| is_guessed(*host, *joiner)).collect();
    jobs.extend(
        (worlds..worlds + guesses)
            .zip(guessed.iter().cycle())
            .map(|(seed, (host, joiner))| Job::Pair(*host, *joiner, seed)),
    );
    // Both have a router that can forget; one that changes its ports takes the relay for good.
    let routers = [Kind::FullCone, Kind::AddressRestricted, Kind::PortRestricted];
    let pairs: Vec<(Kind, Kind)> = routers.iter().flat_map(|host| routers.iter().map(|j| (*host, *j))).collect();
    jobs.extend(
        (0..changes / u64::from(CHANGES))
            .zip(pairs.iter().cycle())
            .map(|(seed, (host, joiner))| Job::Roam(*host, *joiner, seed)),
    );
    jobs
}

fn many(jobs: &[Job]) -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "how long it took")]
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(String, Outcome)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = match job {
                        Job::Pair(host, joiner, seed) => {
                            let replay = format!("natworlds --pair {host} {joiner} {seed}");
                            (replay, Outcome::Pair(*host, *joiner, reach(*host, *joiner, *seed, false)))
                        }
                        Job::Roam(host, joiner, seed) => {
                            let replay = format!("natworlds --roam {host} {joiner} {seed}");
                            (replay, Outcome::Roam(roam(*host, *joiner, *seed, CHANGES, false)))
                        }
                    };
                    done.lock().expect("no thread panics with it").push(outcome);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_default();
    let failed = report(&done);
    println!("{:.0} s", begun.elapsed().as_secs_f32());
    println!("{} passed, {failed} failed", done.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How the pairs fared that guess a random port.
fn guessed(table: &BTreeMap<(Kind, Kind), Vec<&Reached>>) -> usize {
    let worlds: Vec<&&Reached> =
        table.iter().filter(|((host, joiner), _)| is_guessed(*host, *joiner)).flat_map(|(_, worlds)| worlds).collect();
    let in_time =
        |reached: &&&&Reached| reached.way == Way::Direct && reached.direct.is_some_and(|at| at <= GUESSED_IN);
    let met = worlds.iter().filter(in_time).count();
    println!("{met} of {} pairs that guess a random port were direct within {} s", worlds.len(), GUESSED_IN.as_secs());
    // Of a few worlds one more or less says nothing of a share.
    if worlds.len() >= 100 && met * 10 < worlds.len() * 9 {
        println!("FAILED fewer than nine in ten");
        return 1;
    }
    0
}

fn report(done: &[(String, Outcome)]) -> usize {
    let mut failed = 0;
    let mut table: BTreeMap<(Kind, Kind), Vec<&Reached>> = BTreeMap::new();
    let (mut changes, mut frames, mut bytes, mut late) = (0, 0, 0, Vec::new());
    for (replay, outcome) in done {
        match outcome {
            Outcome::Pair(host, joiner, Ok(reached)) => table.entry((*host, *joiner)).or_default().push(reached),
            Outcome::Roam(Ok(roamed)) => {
                changes += roamed.changes;
                frames += roamed.frames;
                bytes += roamed.bytes;
                late.extend(roamed.late.iter().copied());
            }
            Outcome::Pair(_, _, Err(why)) | Outcome::Roam(Err(why)) => {
                failed += 1;
                println!("FAILED {why}\n  replay: {replay}");
            }
        }
    }
    for ((host, joiner), worlds) in &table {
        let mut first: Vec<Duration> = worlds.iter().filter_map(|reached| reached.first).collect();
        first.sort();
        let median =
            first.get(first.len() / 2).map_or_else(|| "-".to_owned(), |time| format!("{} ms", time.as_millis()));
        let mut ways: BTreeMap<String, usize> = BTreeMap::new();
        for reached in worlds {
            *ways.entry(format!("{:?}", reached.way)).or_default() += 1;
        }
        let want = expected(*host, *joiner);
        println!("{host:>18} x {joiner:<18} {want:?}: {ways:?}, first frame after {median} (median)");
    }
    failed += guessed(&table);
    late.sort();
    let at = |share: usize| {
        late.get((late.len() * share / 100).min(late.len().saturating_sub(1))).map_or(0, |l| l.as_millis())
    };
    println!(
        "{changes} forced changes, {frames} frames, {} bytes sent for each: late by {} ms (median), {} ms (90 %), {} ms (99 %), {} ms (most)",
        bytes / (frames as u64).max(1),
        at(50),
        at(90),
        at(99),
        at(100)
    );
    // Of a few changes the worst one says nothing of a share.
    if late.len() >= 500 && at(99) > LATE_MAX.as_millis() {
        failed += 1;
        println!("FAILED more than one change in a hundred made frames late by over {} ms", LATE_MAX.as_millis());
    }
    failed
}
