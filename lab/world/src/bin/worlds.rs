//! Runs many worlds, or replays one.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anywire_world::sim::{Failure, Plan, REGRESSIONS, run};

const HELP: &str = "\
Usage: worlds [--seeds N] [--first S] [--big N]     N worlds from seed S on (default 200 from 0), and N big ones,
                                                    after every seed that once failed
       worlds --seed S [--big]                      one world with every event of every player";

struct Job {
    seed: u64,
    big: bool,
}

impl Job {
    fn plan(&self) -> Plan {
        if self.big { Plan::big(self.seed) } else { Plan::of(self.seed) }
    }

    fn replay(&self) -> String {
        format!("cargo xtask worlds --seed {}{}", self.seed, if self.big { " --big" } else { "" })
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (mut seeds, mut first, mut big) = (200, 0, 0);
    match words.as_slice() {
        ["--seed", seed] | ["--seed", seed, "--big"] => {
            let Ok(seed) = seed.parse() else { return usage() };
            return one(&Job { seed, big: words.len() == 3 });
        }
        _ => {
            let mut rest = words.as_slice();
            while let [flag, number, tail @ ..] = rest {
                let Ok(number) = number.parse() else { return usage() };
                match *flag {
                    "--seeds" => seeds = number,
                    "--first" => first = number,
                    "--big" => big = number,
                    _ => return usage(),
                }
                rest = tail;
            }
            if !rest.is_empty() {
                return usage();
            }
        }
    }
    many(
        REGRESSIONS
            .iter()
            .map(|(seed, _)| Job { seed: *seed, big: false })
            .chain((0..big).map(|n| Job { seed: first + n, big: true }))
            .chain((0..seeds).map(|n| Job { seed: first + n, big: false }))
            .collect(),
    )
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::from(2)
}

fn one(job: &Job) -> ExitCode {
    let plan = job.plan();
    println!("{plan:#?}");
    match run(&plan, true) {
        Ok(report) => {
            println!("{report:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(jobs: Vec<Job>) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let (passed, frames) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures: Mutex<Vec<(String, Failure)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    match std::panic::catch_unwind(|| run(&job.plan(), false)) {
                        Ok(Ok(report)) => {
                            passed.fetch_add(1, Ordering::Relaxed);
                            frames.fetch_add(report.delivered, Ordering::Relaxed);
                        }
                        Ok(Err(failure)) => {
                            failures.lock().expect("no thread panics with it").push((job.replay(), failure))
                        }
                        Err(_) => failures
                            .lock()
                            .expect("no thread panics with it")
                            .push((job.replay(), Failure { seed: job.seed, why: vec!["it panicked".to_owned()] })),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    for (replay, failure) in &failures {
        println!("FAILED {failure}\n  replay: {replay}");
    }
    let seconds = begun.elapsed().as_secs_f32();
    println!("{} frames delivered in {} worlds, {seconds:.0} s", frames.into_inner(), jobs.len());
    println!("{} passed, {} failed", passed.into_inner(), failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
