//! Fuzz targets: built and replayed over their corpora in every test run, and run for real on request.
//!
//! Coverage instrumentation is asked of rustc directly, so that a stable toolchain without further tools will do.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::report::Report;
use crate::{cargo, root};

const INSTRUMENTED: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// Lines of a failed target that are shown.
const SHOWN: usize = 40;
/// Rounds in which the CPU seconds asked for are used up: libFuzzer itself counts seconds on the wall.
const ROUNDS: u32 = 20;

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

fn inputs(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Builds every target and runs each over its corpus once.
pub(crate) fn replay(report: &mut Report) {
    report.step("fuzz targets build", build(false));
    let names = targets();
    report.check("fuzz targets found", if names.is_empty() { Err("none".into()) } else { Ok(()) });
    for name in names {
        let files = inputs(&corpus(&name));
        let label = format!("fuzz corpus of {name} ({} inputs)", files.len());
        if files.is_empty() {
            report.check(&label, Err("it is empty".into()));
            continue;
        }
        let mut command = Command::new(root().join("fuzz/target/release").join(&name));
        // Files by name, not the folder: without instrumentation libFuzzer finds a folder uninteresting.
        command.args(files).current_dir(root().join("fuzz"));
        report.check(&label, watched(command).map(|_| ()));
    }
}

/// What a target did so far.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    executions: u64,
    edges: u64,
    features: u64,
    corpus: u64,
    cpu: Option<f64>,
    wall: f64,
}

/// Fuzzes `only`, or every target in turn, for `seconds` of CPU time each, and ends with a table.
pub(crate) fn run(report: &mut Report, only: Option<&str>, seconds: u64) {
    report.step("fuzz targets build, instrumented", build(true));
    let names: Vec<String> = targets().into_iter().filter(|name| only.is_none_or(|only| only == name)).collect();
    if names.is_empty() {
        report.check("fuzz target", Err(format!("none of them is called {}", only.unwrap_or_default())));
    }
    let mut table = Vec::new();
    for name in names {
        println!("== fuzz {name} for {seconds} s");
        let mut tally = Tally::default();
        let result = fuzz(&name, seconds, &mut tally);
        report.check(&format!("fuzz {name}"), result);
        table.push((name, tally));
    }
    println!(
        "{:<16}{:>12}{:>8}{:>10}{:>8}{:>10}{:>10}",
        "target", "executions", "cov", "ft", "corpus", "cpu s", "wall s"
    );
    for (name, t) in table {
        let cpu = t.cpu.map_or_else(|| "unknown".to_owned(), |cpu| format!("{cpu:.0}"));
        let Tally { executions, edges, features, corpus, wall, .. } = t;
        println!("{name:<16}{executions:>12}{edges:>8}{features:>10}{corpus:>8}{cpu:>10}{wall:>10.0}");
    }
}

/// Runs one target until it has had its CPU time. On a busy machine that takes more rounds than one.
fn fuzz(name: &str, seconds: u64, tally: &mut Tally) -> Result<(), String> {
    // New inputs go to a folder of their own; what is worth keeping is merged into the corpus by hand.
    let found = root().join("fuzz/target/found").join(name);
    let artifacts = root().join("fuzz/artifacts").join(name);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    for _ in 0..ROUNDS {
        let used = tally.cpu.unwrap_or(tally.wall);
        let left = (u32::try_from(seconds).map_or(f64::MAX, f64::from) - used).ceil();
        if left < 1.0 {
            break;
        }
        let mut command = Command::new(root().join("fuzz/target/instrumented").join(host()).join("release").join(name));
        command
            .arg(format!("-max_total_time={left:.0}"))
            .args(["-print_final_stats=1", "-timeout=20", "-rss_limit_mb=2048", "-max_len=8192", "-verbosity=1"])
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args([&found, &corpus(name)])
            .current_dir(root().join("fuzz"));
        let words = root().join("fuzz/words.dict");
        if words.exists() {
            command.arg(format!("-dict={}", words.display()));
        }
        let (begun, cpu) = (Instant::now(), children());
        let lines = watched(command);
        tally.wall += begun.elapsed().as_secs_f64();
        let cpu = children().zip(cpu).map(|(after, before)| after - before);
        tally.cpu = cpu.map(|cpu| cpu + tally.cpu.unwrap_or_default());
        tally.read(&lines?);
    }
    Ok(())
}

impl Tally {
    /// Takes in what libFuzzer said of one round.
    fn read(&mut self, lines: &VecDeque<String>) {
        for line in lines {
            if let Some(executions) = line.strip_prefix("stat::number_of_executed_units:") {
                self.executions += executions.trim().parse().unwrap_or(0);
            }
            if let (Some(edges), Some(features)) = (after(line, "cov:"), after(line, "ft:")) {
                (self.edges, self.features) = (edges, features);
                self.corpus = after(line, "corp:").unwrap_or(self.corpus);
            }
        }
    }
}

/// The number behind a word.
fn after(line: &str, word: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|found| *found != word);
    words.nth(1)?.split('/').next()?.parse().ok()
}

/// Runs a target and returns the end of what it said; says it when the target fails.
fn watched(mut command: Command) -> Result<VecDeque<String>, String> {
    let program = format!("{:?}", command.get_program());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    let mut lines = VecDeque::new();
    for line in child.stderr.take().into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n')) {
        let Ok(line) = line else { break };
        if lines.len() == SHOWN {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    let status = child.wait().map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(lines);
    }
    lines.iter().for_each(|line| eprintln!("   {line}"));
    Err(format!("{program} ended with {status}"))
}

/// CPU seconds of all children that have ended, user and system. Linux tells, in hundredths.
fn children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name may hold spaces; what follows its bracket does not.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_added_up_over_rounds() {
        let mut tally = Tally::default();
        for executions in [1000, 234] {
            let said = [
                "#512\tNEW    cov: 7 ft: 9 corp: 3/12b lim: 8 exec/s: 0 rss: 40Mb".to_owned(),
                "#1234\tDONE   cov: 123 ft: 456 corp: 78/9Kb lim: 11 exec/s: 61 rss: 43Mb".to_owned(),
                format!("stat::number_of_executed_units: {executions}"),
            ];
            tally.read(&said.into());
        }
        assert_eq!((tally.executions, tally.edges, tally.features, tally.corpus), (1234, 123, 456, 78));
    }
}
