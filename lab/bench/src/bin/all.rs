//! Every benchmark in turn, into `docs/benchmarks.md`.
//!
//! `cargo run --release -p anywire-bench --bin all`

use std::fmt::Write;

const HEAD: &str = "# Benchmarks

Written by `cargo run --release -p anywire-bench --bin all`; each part alone: `--bin seal`, `forward`, `frames`,
`players`. Contestants of a table take turns within each run; ratios are medians over runs of the ratio in the same run.
Everything runs on one machine over loopback.
";

/// A heading and what makes the text below it.
type Part = (&'static str, fn() -> String);

const PARTS: [Part; 4] = [
    ("Sealing and opening", anywire_bench::sealing::report),
    ("Two lobbies between two games", anywire_bench::forward::report),
    ("Frames per second between two sessions", anywire_bench::frames::report),
    ("A host with 200 players", anywire_bench::players::report),
];

fn main() -> std::io::Result<()> {
    anywire_bench::child::dispatch();
    let mut text = HEAD.to_owned();
    for (title, report) in PARTS {
        eprintln!("{title} ...");
        let part = report();
        println!("## {title}\n\n{part}\n");
        // Writing into a string does not fail.
        let _written = write!(text, "\n## {title}\n\n{part}\n");
    }
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md"), text)
}
