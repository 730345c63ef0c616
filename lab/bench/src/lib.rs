//! What every benchmark here needs: contestants that take turns, the state of the machine, and a table.
//!
//! Each benchmark is a program of its own under `src/bin`, prints Markdown and says how it was run.

use std::fmt::Display;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// One way of doing the work under comparison.
pub struct Contestant<'a> {
    /// As it appears in the table.
    pub name: String,
    /// Does the work that many times.
    pub work: Box<dyn FnMut(u64) + 'a>,
}

impl<'a> Contestant<'a> {
    /// A contestant that does its work once per call of `once`.
    pub fn new<T>(name: impl Into<String>, mut once: impl FnMut() -> T + 'a) -> Self {
        let work = move |times| {
            for _ in 0..times {
                black_box(once());
            }
        };
        Self { name: name.into(), work: Box::new(work) }
    }
}

/// What a run is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time as it passes: for work that waits.
    Wall,
    /// Time on a processor: for work that only computes, so that neighbours on the machine count less. Where the
    /// system does not tell it, the wall clock stands in.
    Processor,
}

impl Clock {
    /// Time since some fixed moment.
    fn read(self, start: Instant) -> Duration {
        match self {
            Self::Processor if cfg!(unix) => usage().0,
            Self::Processor | Self::Wall => start.elapsed(),
        }
    }
}

/// What one contestant needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Of the contestant.
    pub name: String,
    /// Nanoseconds for the work once, one entry per run in the order they were run.
    pub runs: Vec<f64>,
}

impl Score {
    /// The middle run.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.runs)
    }

    /// The median over runs of how many times longer this took than `other` in the same run.
    #[must_use]
    pub fn ratio(&self, other: &Self) -> f64 {
        median(&self.runs.iter().zip(&other.runs).map(|(a, b)| a / b).collect::<Vec<_>>())
    }
}

/// Lets the contestants take turns, `runs` times each for about `each`, so that whatever else the machine does hits
/// all of them alike. Scores come back in the order of the contestants.
pub fn interleaved(clock: Clock, runs: usize, each: Duration, contestants: &mut [Contestant<'_>]) -> Vec<Score> {
    let batches: Vec<u64> = contestants.iter_mut().map(|contestant| batch(contestant, clock, each)).collect();
    let mut scores: Vec<Score> =
        contestants.iter().map(|contestant| Score { name: contestant.name.clone(), runs: Vec::new() }).collect();
    for _ in 0..runs {
        for ((contestant, score), times) in contestants.iter_mut().zip(&mut scores).zip(&batches) {
            let took = timed(contestant, clock, *times);
            #[allow(clippy::cast_precision_loss, reason = "batches are far below 2^52")]
            score.runs.push(took.as_secs_f64() * 1e9 / *times as f64);
        }
    }
    scores
}

/// How often a contestant's work fits into `each`, found by doubling, which warms it up as well.
fn batch(contestant: &mut Contestant<'_>, clock: Clock, each: Duration) -> u64 {
    let mut times = 1;
    loop {
        let took = timed(contestant, clock, times);
        if took * 2 >= each || times >= 1 << 40 {
            return times.max(1);
        }
        times *= 2;
    }
}

fn timed(contestant: &mut Contestant<'_>, clock: Clock, times: u64) -> Duration {
    let start = Instant::now();
    let before = clock.read(start);
    (contestant.work)(times);
    clock.read(start).saturating_sub(before)
}

/// The middle value; the lower of two middles, 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The machine's load averages over 1, 5 and 15 minutes; zeros where the system does not say.
#[must_use]
pub fn load() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = text.split_whitespace().map(|field| field.parse().unwrap_or_default());
    [(); 3].map(|()| fields.next().unwrap_or_default())
}

/// Processor time this process has used so far, in user and kernel together; 0 where the system does not say.
#[must_use]
pub fn cpu_seconds() -> f64 {
    usage().0.as_secs_f64()
}

/// The most memory this process has held, in bytes; 0 where the system does not say.
#[must_use]
pub fn peak_memory() -> u64 {
    usage().1
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn usage() -> (Duration, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and of the type getrusage fills; all-zero bytes are a valid value of it.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            return (Duration::ZERO, 0);
        }
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        let seconds = Duration::from_secs(time.tv_sec.try_into().unwrap_or_default());
        seconds + Duration::from_micros(time.tv_usec.try_into().unwrap_or_default())
    };
    // Linux counts memory in KiB.
    let peak = u64::try_from(usage.ru_maxrss).unwrap_or_default() * 1024;
    (time(usage.ru_utime) + time(usage.ru_stime), peak)
}

#[cfg(not(unix))]
fn usage() -> (Duration, u64) {
    (Duration::ZERO, 0)
}

/// Processor name, number of processors and load, as the line above a table.
#[must_use]
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
        .map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let [one, five, fifteen] = load();
    format!("{name}, {cores} processors, load {one:.2} {five:.2} {fifteen:.2}")
}

/// A Markdown table: text columns to the left, numbers to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A name that begins with `>` is right-aligned.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        Self { head: columns.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the columns are cut off.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().take(self.head.len()).map(ToString::to_string).collect());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.head.iter().map(|name| name.trim_start_matches('>')).collect();
        let widths: Vec<usize> = names
            .iter()
            .enumerate()
            .map(|(column, name)| {
                let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
                cells.chain([name.chars().count(), 3]).max().unwrap_or_default()
            })
            .collect();
        write!(f, "|")?;
        for ((name, width), column) in names.iter().zip(&widths).zip(&self.head) {
            if column.starts_with('>') { write!(f, " {name:>width$} |")? } else { write!(f, " {name:width$} |")? }
        }
        write!(f, "\n|")?;
        for (name, width) in self.head.iter().zip(&widths) {
            let right = name.starts_with('>');
            write!(f, " {}{} |", "-".repeat(width - usize::from(right)), if right { ":" } else { "" })?;
        }
        for row in &self.rows {
            write!(f, "\n|")?;
            for ((cell, width), name) in row.iter().zip(&widths).zip(&self.head) {
                if name.starts_with('>') { write!(f, " {cell:>width$} |")? } else { write!(f, " {cell:width$} |")? }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new(&["who", ">ns"]);
        table.row(&[&"ours", &7]);
        table.row(&[&"theirs, slower", &1234]);
        let want = "| who            |   ns |\n| -------------- | ---: |\n| ours           |    7 |\n| theirs, slower | 1234 |";
        assert_eq!(table.to_string(), want);
    }

    #[test]
    fn medians_and_ratios_are_taken_run_by_run() {
        let score = |runs: &[f64]| Score { name: String::new(), runs: runs.to_vec() };
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[])), (2.0, 0.0));
        let (slow, fast) = (score(&[4.0, 60.0, 6.0]), score(&[2.0, 30.0, 2.0]));
        assert_eq!((slow.median(), slow.ratio(&fast)), (6.0, 2.0));
    }

    #[test]
    fn contestants_take_turns() {
        let order = std::cell::RefCell::new(Vec::new());
        let turn = |name: &'static str| {
            let order = &order;
            Contestant { name: name.to_owned(), work: Box::new(move |_| order.borrow_mut().push(name)) }
        };
        let scores = interleaved(Clock::Wall, 3, Duration::ZERO, &mut [turn("a"), turn("b")]);
        assert_eq!(scores.iter().map(|score| score.runs.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b", "a", "b"]);
    }

    #[test]
    fn processor_time_only_grows_and_memory_is_held() {
        let before = cpu_seconds();
        let work: u64 = (0..3_000_000u64).map(black_box).sum();
        assert!(cpu_seconds() >= before && work > 0);
        assert!(!cfg!(target_os = "linux") || peak_memory() > 1 << 16);
    }
}
