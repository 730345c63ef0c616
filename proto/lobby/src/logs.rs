//! Forwarded logs: what a joiner sends and what a host takes (netpunch wire, section 6.6; pain 53).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::text;

/// Messages a second a host takes from one member.
const PER_SECOND: u32 = 8;
/// Bytes a host takes from one member in a session.
const SESSION_BYTES: u64 = 20 * 1024 * 1024;
/// Lines a host takes of one message.
pub(crate) const LINES_MAX: usize = 64;
/// Lines that wait at a joiner; the oldest go first.
const QUEUE_MAX: usize = 2_000;
/// Bytes of text in one batch.
const BATCH_BYTES: usize = 1_000;
/// Time between two batches.
const BATCH_EVERY: Duration = Duration::from_millis(500);

/// So many a second, counted in whole seconds from the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerSecond {
    since: Option<Instant>,
    taken: u32,
}

impl PerSecond {
    /// Whether one more may pass now.
    pub(crate) fn allow(&mut self, now: Instant, most: u32) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= Duration::from_secs(1)) {
            (self.since, self.taken) = (Some(now), 0);
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= most
    }
}

/// What one member may still send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    rate: PerSecond,
    bytes: u64,
}

impl Allowance {
    /// Whether a message of `bytes` is taken.
    pub(crate) fn take(&mut self, now: Instant, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let total = self.bytes.saturating_add(bytes);
        if total > SESSION_BYTES || !self.rate.allow(now, PER_SECOND) {
            return false;
        }
        self.bytes = total;
        true
    }
}

/// Lines on their way to the host.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    lines: VecDeque<String>,
    next: Option<Instant>,
}

impl Outgoing {
    pub(crate) fn push(&mut self, now: Instant, lines: Vec<String>) {
        for line in lines {
            if self.lines.len() >= QUEUE_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back(text::line(&line, text::LINE_MAX));
        }
        self.next.get_or_insert(now);
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.next.filter(|_| !self.lines.is_empty())
    }

    /// The next batch, if one is due.
    pub(crate) fn batch(&mut self, now: Instant) -> Option<Vec<String>> {
        self.due().filter(|&due| due <= now)?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(line) = self.lines.front() {
            bytes += line.len();
            if !batch.is_empty() && (bytes > BATCH_BYTES || batch.len() >= LINES_MAX) {
                break;
            }
            batch.extend(self.lines.pop_front());
        }
        self.next = Some(now + BATCH_EVERY);
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pain_53_a_member_may_send_eight_messages_a_second_and_twenty_mebibytes() {
        let start = Instant::now();
        let mut allowance = Allowance::default();
        let taken = |allowance: &mut Allowance, ms: u64| allowance.take(start + Duration::from_millis(ms), 100);
        assert_eq!((0..20).filter(|_| taken(&mut allowance, 0)).count(), 8);
        assert!(!taken(&mut allowance, 999));
        assert!(taken(&mut allowance, 1_000));
        let mut greedy = Allowance::default();
        let mebibyte = 1024 * 1024;
        let at = |n: u64| start + Duration::from_secs(n);
        assert_eq!((0..30).filter(|&n| greedy.take(at(n), mebibyte)).count(), 20);
    }

    #[test]
    fn lines_wait_in_batches_and_the_oldest_of_too_many_go() {
        let start = Instant::now();
        let mut outgoing = Outgoing::default();
        outgoing.push(start, (0..2_500).map(|n| format!("line {n}\u{1b}[2J")).collect());
        let first = outgoing.batch(start).unwrap();
        assert_eq!((first[0].as_str(), first.len()), ("line 500 [2J", LINES_MAX));
        assert_eq!(outgoing.batch(start + Duration::from_millis(499)), None);
        assert!(outgoing.batch(start + BATCH_EVERY).is_some());
        outgoing.push(start, vec!["x".repeat(5_000)]);
        let all: Vec<_> = (2..100).filter_map(|n| outgoing.batch(start + BATCH_EVERY * n)).flatten().collect();
        assert_eq!(all.last().map(String::len), Some(text::LINE_MAX));
    }
}
