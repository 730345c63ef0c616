//! The benchmarks of lobbies in turn, into `docs/benchmarks.md`. What other programs measured stands there below a
//! marker, and stays.
//!
//! `cargo run --release -p anywire-bench --bin all`

use std::fmt::Write;

const HEAD: &str = "# Benchmarks

Written by `cargo run --release -p anywire-bench --bin all`; each part alone: `--bin seal`, `forward`, `frames`,
`players`. Contestants of a table take turns within each run; ratios are medians over runs of the ratio in the same run.
Everything runs on one machine over loopback.
";

/// Below this line the file is not this program's.
const MARKER: &str = "<!-- Below this line: measured by other programs. -->";

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
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");
    let old = std::fs::read_to_string(path).unwrap_or_default();
    let others = old.split_once(MARKER).map_or("\n", |(_, others)| others);
    std::fs::write(path, format!("{text}\n{MARKER}{others}"))
}
