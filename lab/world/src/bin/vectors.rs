//! `vectors DIR`: every vector of a folder against our rooms. Ends with `N passed, N failed`; exit 1 on a failure.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir] = args.as_slice() else {
        eprintln!("usage: vectors DIR");
        return ExitCode::from(2);
    };
    let report = anywire_world::vectors::run(Path::new(dir));
    for line in &report.failed {
        println!("FAILED  {line}");
    }
    for line in &report.skipped {
        println!("skipped {line}");
    }
    println!("{report}");
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
