//! Our NetherNet against the programs and engines in the field.
//!
//! `cargo test -p anywire-interop` plays every program in both roles, shortly. Behind `--`: `--times N` sessions each,
//! `--all` sizes, `--case 'PROGRAM listens'` plays one.
#![cfg_attr(target_os = "linux", allow(clippy::print_stdout, reason = "its report"))]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    use interop::{ALL_SIZES, Figures, Kit, Plan, Program, Role, SHORT_SIZES, play};

    struct Args {
        times: usize,
        all: bool,
        case: Option<String>,
        none: bool,
    }

    fn args() -> Option<Args> {
        let mut args = Args { times: 3, all: false, case: None, none: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--times" => args.times = words.next()?.parse().ok()?,
                "--all" => args.all = true,
                "--case" => args.case = Some(words.next()?),
                // Flags of other test programs are theirs, and a filter that is not for this one finds nothing here.
                flag if flag.starts_with('-') => {}
                filter => args.none |= !"field".contains(filter),
            }
        }
        Some(args)
    }

    pub(super) fn main() -> ExitCode {
        let Some(args) = args() else {
            eprintln!("field [--times N] [--all] [--case 'PROGRAM listens|dials']");
            return ExitCode::from(2);
        };
        if args.none || !natlab::ready("programs in the field") {
            println!("test result: ok. 0 passed; 0 failed; {} skipped", usize::from(!args.none));
            return ExitCode::SUCCESS;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop");
        let kit = match Kit::install(&folder) {
            Ok(kit) => kit,
            Err(why) => {
                println!("SKIPPED programs in the field: {why}");
                println!("test result: ok. 0 passed; 0 failed; 1 skipped");
                return ExitCode::SUCCESS;
            }
        };
        let plan = Plan { times: args.times, sizes: if args.all { ALL_SIZES } else { SHORT_SIZES } };
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for program in Program::ALL {
            for (role, verb) in [(Role::Listens, "listens"), (Role::Dials, "dials")] {
                let name = format!("{} {verb}", program.name());
                if args.case.as_ref().is_some_and(|only| *only != name) {
                    continue;
                }
                if let Some(why) = kit.lacks(program) {
                    println!("SKIPPED {name}: {why}");
                    skipped += 1;
                    continue;
                }
                let began = Instant::now();
                match play(&kit, program, role, plan) {
                    Ok(figures) => {
                        println!("ok {name}: {}, {:.1} s", shown(&figures, plan.times), began.elapsed().as_secs_f32());
                        passed += 1;
                    }
                    Err(why) => {
                        println!("FAILED {name}: {why}");
                        failed += 1;
                    }
                }
            }
        }
        let word = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {word}. {passed} passed; {failed} failed; {skipped} skipped");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn shown(figures: &Figures, times: usize) -> String {
        let mut dials = figures.dials.clone();
        dials.sort_unstable();
        let at = |share: usize| dials.get(dials.len().saturating_sub(1) * share / 100).copied();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let dials = match (at(50), at(100)) {
            (Some(median), Some(most)) => {
                format!(", dial median {:.0} ms, most {:.0} ms", millis(median), millis(most))
            }
            _ => String::new(),
        };
        let most = figures.trips.iter().copied().max_by_key(|(size, _)| *size);
        let largest = most.map_or_else(String::new, |(size, took)| {
            format!(", {size} bytes there and back in {:.0} ms", millis(took))
        });
        format!("{times} sessions{dials}{largest}")
    }
}
