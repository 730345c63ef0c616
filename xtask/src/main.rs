//! Laws and the test commands.
//!
//! `cargo xtask test` is what README and CI call: every test once. `cargo xtask full` adds long fuzzing, measured
//! tables and the Windows cross-check, and is run before an issue closes.

mod fuzz;
mod law;
mod pages;
mod report;
mod setup;
mod windows;

use std::process::{Command, ExitCode};

use report::Report;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  test                 every test once: laws, lints, units, vectors, worlds, fuzz corpora (README and CI)
  full                 test, then long fuzzing, every pair of networks five times, programs in the field, benchmarks,
                       the Windows cross-check
  law                  layers, sockets, unsafe code and file sizes only
  vectors DIR          run any folder of test vectors; ends with `N passed, N failed`
  worlds [--seeds N] [--seed S] [--big N]
                       many players in virtual time; --seed replays one
  fuzz [TARGET] [--seconds N]
                       fuzz one target, or each in turn, N CPU seconds (default 60)
  windows              type-check everything for Windows";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut report = Report::default();
    match words.as_slice() {
        ["test"] => test(&mut report),
        ["full"] => {
            test(&mut report);
            fuzz::run(&mut report, None, 600);
            windows::check(&mut report);
            let page = root().join("docs/reachability.md");
            let page = page.to_string_lossy();
            let pairs =
                ["test", "-q", "-p", "anywire-cli", "--test", "reachability", "--", "--times", "5", "--write", &page];
            report.counted("every pair of networks, five times", cargo(&pairs));
            let field = ["test", "-q", "-p", "anywire-interop", "--test", "field", "--", "--times", "20", "--all"];
            report.counted("programs in the field, 20 sessions each", cargo(&field));
            report.step("benchmarks", cargo(&["run", "--release", "-q", "-p", "anywire-bench", "--bin", "all"]));
        }
        ["law"] => {
            law::check(&mut report);
            pages::check(&mut report);
        }
        ["vectors", dir] => return vectors(dir),
        ["worlds", rest @ ..] => return worlds(rest),
        ["fuzz", rest @ ..] => match fuzz_args(rest) {
            Some((target, seconds)) => fuzz::run(&mut report, target, seconds),
            None => return usage(),
        },
        ["windows"] => windows::check(&mut report),
        _ => return usage(),
    }
    report.finish()
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::from(2)
}

fn fuzz_args<'a>(words: &[&'a str]) -> Option<(Option<&'a str>, u64)> {
    match words {
        [] => Some((None, 60)),
        ["--seconds", n] => Some((None, n.parse().ok()?)),
        [target] => Some((Some(target), 60)),
        [target, "--seconds", n] => Some((Some(target), n.parse().ok()?)),
        _ => None,
    }
}

/// Every test once.
fn test(report: &mut Report) {
    law::check(report);
    pages::check(report);
    report.step("formatting", cargo(&["fmt", "--all", "--check"]));
    // The pure rooms' ban on clocks holds for what ships; their tests start virtual time from a real instant.
    report.step("lints", cargo(&["clippy", "--workspace", "-q", "--", "-D", "warnings"]));
    report.step(
        "lints of tests",
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "-q",
            "--",
            "-D",
            "warnings",
            "-A",
            "clippy::disallowed_methods",
            // A test's helpers may fail loudly, as the tests they serve do.
            "-A",
            "clippy::unwrap_used",
            "-A",
            "clippy::expect_used",
            "-A",
            "clippy::panic",
            "-A",
            "clippy::indexing_slicing",
            "-A",
            "clippy::print_stdout",
        ]),
    );
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "-q", "--document-private-items"]);
    docs.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
    report.step("documentation", docs);
    setup::tools(report);
    report.counted("tests", cargo(&["test", "--workspace", "--no-fail-fast"]));
    report.counted(
        "worlds",
        cargo(&[
            "run",
            "--release",
            "-q",
            "-p",
            "anywire-world",
            "--bin",
            "worlds",
            "--",
            "--seeds",
            "2000",
            "--big",
            "20",
        ]),
    );
    let nat = ["run", "--release", "-q", "-p", "anywire-world", "--bin", "natworlds", "--"];
    report.counted("homes behind routers", cargo(&[&nat[..], &["--worlds", "500", "--changes", "1000"]].concat()));
    fuzz::replay(report);
}

fn vectors(dir: &str) -> ExitCode {
    passed_through(cargo(&["run", "-q", "-p", "anywire-world", "--bin", "vectors", "--", dir]))
}

fn worlds(rest: &[&str]) -> ExitCode {
    let mut command = cargo(&["run", "--release", "-q", "-p", "anywire-world", "--bin", "worlds", "--"]);
    command.args(rest);
    passed_through(command)
}

fn passed_through(mut command: Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start {command:?}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A cargo command in the workspace's root.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The workspace's root, found from this package's manifest.
fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
