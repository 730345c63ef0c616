//! The page that a run writes.

use std::fmt::Write;
use std::time::Duration;

use crate::cases::{Case, KINDS, MAPPED, Table, Want, is_direct};
use crate::play::Outcome;

/// Host and joiner from each other, and each from the master.
const ROUND_TRIP: u32 = 40;

/// The whole page.
pub(crate) fn write(cases: &[Case], rounds: &[Vec<Outcome>]) -> String {
    let times = rounds.iter().map(Vec::len).max().unwrap_or_default();
    let mut page = format!(
        "# Who reaches whom\n\n\
         Written by `cargo test -p anywire-cli --test reachability -- --times {times} --write docs/reachability.md`: a master, a host \
         and a joiner as processes in a small internet of network namespaces (`lab/natlab`), each pair {times} times. Host and joiner \
         are {ROUND_TRIP} ms from each other and each {ROUND_TRIP} ms from the master (round trip), without loss.\n\n\
         A cell says which way the game ended on and how long it took from the start of the joiner's program to the first frame \
         in its game (median). Where the way at the end is not the first one, the frame came earlier, by the relay.\n\n"
    );
    page += "## Without port mapping\n\nRows host, columns join.\n\n";
    matrix(&mut page, cases, rounds, &KINDS, Table::Pairs);
    page += "\n## The host's router maps its port\n\nBy UPnP, NAT-PMP or PCP, proved from outside.\n\n";
    matrix(&mut page, cases, rounds, &MAPPED, Table::Mapped);
    page += "\n## Other pairs\n\n| pair | way, first frame |\n|---|---|\n";
    for (case, outcomes) in cases.iter().zip(rounds).filter(|(case, _)| case.table == Table::Special) {
        let _ = writeln!(page, "| {} | {} |", case.name, cell(outcomes));
    }
    page += "\n## What it comes to\n\n";
    summary(&mut page, cases, rounds);
    page
}

fn matrix(page: &mut String, cases: &[Case], rounds: &[Vec<Outcome>], hosts: &[&str], table: Table) {
    let _ = writeln!(page, "| host \\ joiner | {} |", KINDS.join(" | "));
    let _ = writeln!(page, "|---{}|", "|---".repeat(KINDS.len()));
    for host in hosts {
        let _ = write!(page, "| **{host}** |");
        for joiner in KINDS {
            let found = cases
                .iter()
                .zip(rounds)
                .find(|(case, _)| case.table == table && case.host == *host && case.joiner == joiner);
            let _ = write!(page, " {} |", found.map_or_else(|| "-".to_owned(), |(_, outcomes)| cell(outcomes)));
        }
        page.push('\n');
    }
}

/// A way in one or two words.
fn short(route: &str) -> &str {
    match route {
        "public address" => "direct",
        "address the host was seen at" => "direct, seen",
        "guessed port" => "direct, guessed",
        "TCP through the master" => "TCP",
        "local network" => "LAN",
        "virtual network" => "VPN",
        other => other,
    }
}

fn cell(outcomes: &[Outcome]) -> String {
    let mut ways: Vec<(&str, usize)> = Vec::new();
    for outcome in outcomes {
        let way = match outcome {
            Outcome::Met { route, .. } => short(route),
            Outcome::Failed(_) => "FAILED",
        };
        match ways.iter_mut().find(|(word, _)| *word == way) {
            Some((_, count)) => *count += 1,
            None => ways.push((way, 1)),
        }
    }
    ways.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words: Vec<String> = match ways.as_slice() {
        [(way, _)] => vec![(*way).to_owned()],
        many => many.iter().map(|(way, count)| format!("{way} {count}/{}", outcomes.len())).collect(),
    };
    let first = median(outcomes).map_or_else(|| "-".to_owned(), |time| format!("{} ms", time.as_millis()));
    format!("{} {first}", words.join(", "))
}

/// Of the times to the first frame.
pub(crate) fn median(outcomes: &[Outcome]) -> Option<Duration> {
    let mut firsts: Vec<Duration> = outcomes
        .iter()
        .filter_map(|outcome| if let Outcome::Met { first, .. } = outcome { Some(*first) } else { None })
        .collect();
    firsts.sort();
    firsts.get(firsts.len() / 2).copied()
}

/// How many games were as they should be, of how many, and the least share of them that will do.
pub(crate) struct Share {
    what: &'static str,
    good: usize,
    all: usize,
    /// Per cent.
    least: usize,
}

impl Share {
    /// What is amiss, if it is.
    pub(crate) fn wrong(&self) -> Option<String> {
        let Self { what, good, all, least } = self;
        (good * 100 < all * least).then(|| format!("{what}: {good} of {all}, where {least} % were expected"))
    }
}

/// Everything that is counted over all games.
pub(crate) fn shares(cases: &[Case], rounds: &[Vec<Outcome>]) -> Vec<Share> {
    let games = || cases.iter().zip(rounds).flat_map(|(case, outcomes)| outcomes.iter().map(move |o| (case, o)));
    let count = |what, least, counts: &dyn Fn(&Case) -> bool, good: &dyn Fn(&Case, &Outcome) -> bool| {
        let of = || games().filter(|(case, _)| counts(case));
        Share { what, least, good: of().filter(|(case, outcome)| good(case, outcome)).count(), all: of().count() }
    };
    let direct = |outcome: &Outcome| matches!(outcome, Outcome::Met { route, .. } if is_direct(route));
    let lucky = |case: &Case| {
        matches!((case.host, case.joiner), ("port-restricted", "symmetric") | ("symmetric", "port-restricted"))
            && case.table == Table::Pairs
    };
    let foretold = |outcome: &Outcome| match outcome {
        Outcome::Met { route, verdict: Some(verdict), .. } => agrees(verdict, route),
        Outcome::Met { .. } | Outcome::Failed(_) => false,
    };
    vec![
        count("games in which frames passed both ways", 100, &|_| true, &|_, o| matches!(o, Outcome::Met { .. })),
        count(
            "direct, where a hole can be punched without luck",
            100,
            &|case| matches!(case.want, Want::Direct(_)),
            &|_, o| direct(o),
        ),
        count("direct by guessing, port-restricted with symmetric", 90, &lucky, &|_, o| direct(o)),
        count("by TCP, where one end has no UDP", 100, &|case| case.want == Want::Tcp, &|case, o| {
            case.wrong(o).is_none()
        }),
        count("`anywire doctor` foretold the way", 95, &|_| true, &|_, o| foretold(o)),
    ]
}

fn summary(page: &mut String, cases: &[Case], rounds: &[Vec<Outcome>]) {
    let share = |what: &str, good: usize, all: usize| {
        format!("* {what}: {good} of {all} ({:.1} %)\n", 100.0 * good as f64 / all.max(1) as f64)
    };
    for Share { what, good, all, .. } in shares(cases, rounds) {
        *page += &share(what, good, all);
    }
    for (what, dialled, most) in
        [("a direct dial answers", true, ROUND_TRIP * 3 + 200), ("a knock is needed", false, ROUND_TRIP * 5 + 500)]
    {
        let slow: Vec<String> = cases
            .iter()
            .zip(rounds)
            .filter(|(case, _)| case.dialled == dialled && case.want != Want::Tcp)
            .filter_map(|(case, outcomes)| {
                let median = median(outcomes)?.as_millis();
                (median > u128::from(most)).then(|| format!("{} {median} ms", case.name))
            })
            .collect();
        let all = cases.iter().filter(|case| case.dialled == dialled && case.want != Want::Tcp).count();
        let what = format!("pairs whose first frame is there within {most} ms, where {what}");
        *page += &share(&what, all - slow.len(), all);
        if !slow.is_empty() {
            let _ = writeln!(page, "  Slower: {}.", slow.join(", "));
        }
    }
}

/// Whether a way is what was foretold.
fn agrees(verdict: &str, route: &str) -> bool {
    match verdict {
        "vpn" => route == "virtual network",
        "lan" => route == "local network",
        "ipv6" => route == "IPv6",
        "direct" | "knock" => matches!(route, "public address" | "address the host was seen at" | "local network"),
        // It says: by a port that is guessed, else by the relay.
        "guess" => matches!(route, "guessed port" | "address the host was seen at" | "public address" | "relay"),
        "relay" => route == "relay",
        "tcp" => route == "TCP through the master",
        _ => false,
    }
}
