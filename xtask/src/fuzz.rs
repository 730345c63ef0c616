//! Fuzz targets: built and replayed over their corpora in every test run, and run for real on request.
//!
//! Coverage instrumentation is asked of rustc directly, so that a stable toolchain without further tools will do.

use std::path::PathBuf;
use std::process::Command;

use crate::report::Report;
use crate::{cargo, root};

const INSTRUMENTED: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// The targets, read off the folder so that none is forgotten.
fn targets() -> Vec<String> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

fn build(instrumented: bool) -> Command {
    let mut command = cargo(&["build", "--release", "-q", "--manifest-path", "fuzz/Cargo.toml"]);
    if instrumented {
        // A target triple keeps the flags away from build scripts.
        command.args(["--target", &host(), "--target-dir", "fuzz/target/instrumented"]);
        command.env("RUSTFLAGS", INSTRUMENTED);
    }
    command
}

fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().map(|out| out.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("x86_64-unknown-linux-gnu").to_owned()
}

fn corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// Builds every target and runs each over its corpus once.
pub(crate) fn replay(report: &mut Report) {
    report.step("fuzz targets build", build(false));
    let names = targets();
    report.check("fuzz targets found", if names.is_empty() { Err("none".into()) } else { Ok(()) });
    for name in names {
        let inputs = std::fs::read_dir(corpus(&name)).map(Iterator::count).unwrap_or(0);
        if inputs == 0 {
            report.check(&format!("corpus of {name}"), Err("it is empty".into()));
            continue;
        }
        let mut command = Command::new(root().join("fuzz/target/release").join(&name));
        command.arg("-runs=0").arg(corpus(&name)).current_dir(root().join("fuzz"));
        command.stderr(std::process::Stdio::null());
        report.step(&format!("fuzz corpus of {name} ({inputs} inputs)"), command);
    }
}

/// Fuzzes `only`, or every target in turn, for `seconds` each.
pub(crate) fn run(report: &mut Report, only: Option<&str>, seconds: u64) {
    report.step("fuzz targets build, instrumented", build(true));
    for name in targets().into_iter().filter(|name| only.is_none_or(|only| only == name)) {
        let binary = root().join("fuzz/target/instrumented").join(host()).join("release").join(&name);
        // New inputs go to a folder of their own; what is worth keeping is merged into the corpus by hand.
        let found = root().join("fuzz/target/found").join(&name);
        let made = std::fs::create_dir_all(&found).map_err(|error| error.to_string());
        report.check(&format!("folder for {name}"), made);
        let mut command = Command::new(binary);
        command
            .arg(format!("-max_total_time={seconds}"))
            .args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048", "-max_len=8192"])
            .args([found, corpus(&name)])
            .current_dir(root().join("fuzz"));
        report.step(&format!("fuzz {name} for {seconds} s"), command);
    }
}
