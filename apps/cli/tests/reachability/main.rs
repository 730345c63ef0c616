//! Every pair of networks, as processes behind routers: who gets through, which way, and how soon.
//!
//! `cargo test -p anywire-cli --test reachability` plays every pair once. Behind `--`: `--times N` plays each N times,
//! `--write FILE` writes the page, `--jobs N` plays so many at once, `--case 'HOST x JOINER'` plays one and shows what its
//! programs said.
#![cfg_attr(target_os = "linux", allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test"))]

#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod page;
#[cfg(target_os = "linux")]
mod play;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::PathBuf;
    use std::process::ExitCode;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use crate::cases::{Case, all};
    use crate::page;
    use crate::play::{Outcome, play};

    /// What was asked for.
    struct Args {
        times: usize,
        jobs: usize,
        write: Option<PathBuf>,
        case: Option<String>,
    }

    fn args() -> Option<Args> {
        let mut args = Args { times: 1, jobs: 4, write: None, case: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--times" => args.times = words.next()?.parse().ok()?,
                "--jobs" => args.jobs = words.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
                "--write" => args.write = Some(words.next()?.into()),
                "--case" => args.case = Some(words.next()?),
                // Flags of other test programs are theirs, and a filter that is not for this one finds nothing here.
                flag if flag.starts_with('-') => {}
                filter if "reachability".contains(filter) => {}
                _ => args.times = 0,
            }
        }
        Some(args)
    }

    pub(super) fn main() -> ExitCode {
        let Some(args) = args() else {
            eprintln!("reachability [--times N] [--jobs N] [--write FILE] [--case 'HOST x JOINER']");
            return ExitCode::from(2);
        };
        if !natlab::ready("reachability") || args.times == 0 {
            println!("test result: ok. 0 passed; 0 failed; {} skipped", usize::from(args.times > 0));
            return ExitCode::SUCCESS;
        }
        let mut cases = all();
        if let Some(name) = &args.case {
            cases.retain(|case| case.name == *name);
            if cases.is_empty() {
                eprintln!("there is no case '{name}'");
                return ExitCode::from(2);
            }
        }
        let begun = Instant::now();
        let rounds = run(&cases, args.times, args.jobs, args.case.is_some());
        let mut failed = judge(&cases, &rounds);
        // Few games say nothing of a share.
        if args.times >= 5 && args.case.is_none() {
            for why in page::shares(&cases, &rounds).iter().filter_map(page::Share::wrong) {
                failed += 1;
                println!("FAILED {why}");
            }
        }
        println!("{} games in {:.0} s", cases.len() * args.times, begun.elapsed().as_secs_f32());
        if let Some(path) = &args.write {
            std::fs::write(path, page::write(&cases, &rounds)).unwrap();
        }
        let result = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {result}. {} passed; {failed} failed", cases.len().saturating_sub(failed));
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// The outcomes of each case.
    fn run(cases: &[Case], times: usize, jobs: usize, traced: bool) -> Vec<Vec<Outcome>> {
        let outcomes: Vec<Mutex<Vec<Outcome>>> = cases.iter().map(|_| Mutex::default()).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(cases.len() * times) {
                scope.spawn(|| {
                    loop {
                        let job = next.fetch_add(1, Ordering::Relaxed);
                        // Every case once before any twice: what disturbs this machine for a while disturbs all alike.
                        let Some((case, slot)) = cases.get(job % cases.len()).zip(outcomes.get(job % cases.len()))
                        else {
                            return;
                        };
                        if job >= cases.len() * times {
                            return;
                        }
                        let outcome = play(case, job, traced);
                        println!("test {} ... {outcome}", case.name);
                        slot.lock().unwrap().push(outcome);
                    }
                });
            }
        });
        outcomes.into_iter().map(|outcomes| outcomes.into_inner().unwrap()).collect()
    }

    /// How many cases are not as they have to be; each is told with the command that plays it again.
    fn judge(cases: &[Case], rounds: &[Vec<Outcome>]) -> usize {
        let mut failed = 0;
        for (case, outcomes) in cases.iter().zip(rounds) {
            let wrong: Vec<String> = outcomes.iter().filter_map(|outcome| case.wrong(outcome)).collect();
            if let Some(why) = wrong.first() {
                failed += 1;
                println!("FAILED {} ({} of {}): {why}", case.name, wrong.len(), outcomes.len());
                println!("  replay: cargo test -p anywire-cli --test reachability -- --case '{}'", case.name);
            }
        }
        failed
    }
}
