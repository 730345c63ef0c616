//! Every kind of router, and every pair of kinds.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use super::{ANSWER, DISCOVERY, PUNCH, Report, expected, punchable};
use crate::lab::{Handle, Lab};
use crate::net::Result;
use crate::probe::{self, Behaviour};

fn word<T: std::fmt::Debug>(v: Option<T>) -> String {
    v.map_or("-".into(), |v| format!("{v:?}").to_lowercase())
}

pub(super) fn behaviours(lab: &Lab, kinds: &[&str], r: &mut Report) {
    println!(
        "{:<16} {:<4} {:<5} {:<6} {:<7} {:<10} {:<8} {:<8} {:<9} {:<9} as named",
        "kind", "UDP", "NAT", "map", "filter", "ports", "hairpin", "TCP map", "TCP in", "broadcast"
    );
    let results: Vec<_> = thread::scope(|s| {
        let threads: Vec<_> = kinds.iter().map(|kind| s.spawn(move || one_kind(lab, kind))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("the test panicked".into()))).collect()
    });
    for (kind, first) in kinds.iter().zip(results) {
        // A busy machine answers late: a kind that is not as named is looked at once more, alone.
        let result = if judge(kind, &first).is_ok() { first } else { one_kind(lab, kind) };
        let outcome = judge(kind, &result);
        match &result {
            Ok(seen) => println!("{}", line(kind, seen, &outcome)),
            Err(e) => println!("{kind:<16} {e}"),
        }
        match outcome {
            Ok(()) => r.passed += 1,
            Err(e) => r.failed.push(format!("{kind}: {e}")),
        }
    }
}

/// What a kind looked like: its behaviour, whether neighbours met at their public addresses, and who heard a broadcast.
type Seen = (Behaviour, bool, Vec<bool>);

/// What is not as named.
fn judge(kind: &str, seen: &Result<Seen>) -> Result<()> {
    let (b, hairpin, heard) = seen.as_ref().map_err(Clone::clone)?;
    let e = expected(kind);
    let checks = [
        ("UDP", b.udp == e.udp),
        ("NAT", b.translated == e.translated),
        ("mapping", b.mapping == e.mapping),
        ("filtering", b.filtering == e.filtering),
        ("ports", b.ports == e.ports),
        ("TCP mapping", b.tcp_mapping == e.tcp_mapping),
        ("TCP inbound", b.tcp_in == e.tcp_in),
        ("hairpin", *hairpin == e.hairpin),
        ("broadcast", heard[..] == [true, false]),
    ];
    let wrong: Vec<&str> = checks.iter().filter(|(_, ok)| !ok).map(|(n, _)| *n).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}

fn line(kind: &str, (b, hairpin, heard): &Seen, outcome: &Result<()>) -> String {
    let yes = |v: bool| if v { "yes" } else { "no" };
    format!(
        "{:<16} {:<4} {:<5} {:<6} {:<7} {:<10} {:<8} {:<8} {:<9} {:<9} {}",
        kind,
        yes(b.udp),
        if b.udp { yes(b.translated) } else { "-" },
        probe::short(b.mapping, "M"),
        probe::short(b.filtering, "F"),
        word(b.ports),
        yes(*hairpin),
        probe::short(b.tcp_mapping, "M"),
        word(b.tcp_in),
        match heard[..] {
            [true, false] => "home",
            [true, true] => "LEAKS",
            _ => "LOST",
        },
        outcome.as_ref().map_or_else(|wrong| format!("NO: {wrong}"), |()| "yes".into())
    )
}

fn one_kind(lab: &Handle, kind: &str) -> Result<Seen> {
    let (a, b, c) = (format!("{kind}-1a"), format!("{kind}-1b"), format!("{kind}-2"));
    let found = probe::discover(lab, &a, ANSWER)?;
    let hairpin = probe::punch(lab, &a, &b, ANSWER)?;
    let everyone = SocketAddr::from((Ipv4Addr::BROADCAST, DISCOVERY));
    let heard = probe::broadcast(lab, &a, everyone, &[&b, &c])?;
    Ok((found, hairpin, heard))
}

pub(super) fn matrix(lab: &Lab, kinds: &[&str], r: &mut Report) {
    println!("\nUDP hole punching between two homes ('+' connects, '.' cannot; anything else is wrong):");
    let mut pairs = Vec::new();
    for (i, a) in kinds.iter().enumerate() {
        for b in &kinds[i..] {
            pairs.push((*a, *b));
        }
    }
    let mut results = Vec::new();
    for wave in pairs.chunks(26) {
        results.extend(thread::scope(|s| {
            let threads: Vec<_> = wave
                .iter()
                .map(|(a, b)| s.spawn(move || probe::punch(lab, &format!("{a}-1a"), &format!("{b}-2"), PUNCH)))
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err("the test panicked".into())))
                .collect::<Vec<_>>()
        }));
    }
    for ((a, b), got) in pairs.iter().zip(&mut results) {
        // As above: a late answer is no answer, so it is asked for once more, alone.
        if *got != Ok(punchable(a, b)) {
            *got = probe::punch(lab, &format!("{a}-1a"), &format!("{b}-2"), PUNCH);
        }
    }
    let mut wrong = Vec::new();
    let mut cells = std::collections::HashMap::new();
    for ((a, b), got) in pairs.iter().zip(&results) {
        let want = punchable(a, b);
        let cell = match got {
            Ok(v) if *v == want => {
                if want {
                    "+"
                } else {
                    "."
                }
            }
            Ok(true) => "X",
            Ok(false) => "0",
            Err(_) => "E",
        };
        if !matches!(cell, "+" | ".") {
            wrong.push(format!("{a} with {b}: {got:?}, expected {want}"));
        }
        cells.insert((*a, *b), cell);
    }
    print!("{:<18}", "");
    for (i, _) in kinds.iter().enumerate() {
        print!("{:>3}", i + 1);
    }
    println!();
    for (i, a) in kinds.iter().enumerate() {
        print!("{:>2} {a:<15}", i + 1);
        for b in kinds {
            let cell = cells.get(&(*a, *b)).or_else(|| cells.get(&(*b, *a)));
            print!("{:>3}", cell.unwrap_or(&" "));
        }
        println!();
    }
    r.passed += (pairs.len() - wrong.len()) as u32;
    r.failed.extend(wrong);
}
