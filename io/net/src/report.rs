//! What went wrong while sending, told without flooding.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Addresses remembered at once; further ones are counted, not told.
const ADDRESSES: usize = 256;
/// Lines kept for a reader who does not come.
const LINES: usize = 64;
/// One line per address and this long.
const EVERY: Duration = Duration::from_secs(1);

/// Send errors: all are counted, and each address gets at most one line a second (pain 31). At most 256 addresses are
/// remembered and at most 64 lines wait.
#[derive(Debug, Default)]
pub struct SendErrors {
    total: u64,
    addresses: BTreeMap<SocketAddr, Seen>,
    lines: VecDeque<String>,
}

#[derive(Debug)]
struct Seen {
    next: Instant,
    untold: u64,
}

impl SendErrors {
    /// Counts one datagram that could not be sent.
    pub fn note(&mut self, now: Instant, remote: SocketAddr, error: &io::Error) {
        self.total += 1;
        if self.addresses.len() >= ADDRESSES && !self.addresses.contains_key(&remote) {
            self.addresses.retain(|_, seen| seen.next > now);
            if self.addresses.len() >= ADDRESSES {
                return;
            }
        }
        let seen = self.addresses.entry(remote).or_insert(Seen { next: now, untold: 0 });
        seen.untold += 1;
        if now < seen.next || self.lines.len() >= LINES {
            return;
        }
        let count = std::mem::take(&mut seen.untold);
        seen.next = now + EVERY;
        let many = if count == 1 { String::new() } else { format!(" ({count} datagrams)") };
        self.lines.push_back(format!("cannot send to {remote}: {error}{many}"));
    }

    /// Datagrams that could not be sent, ever.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The next line for the log. Its address is not masked: the log does that.
    pub fn poll_line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(errors: &mut SendErrors) -> Vec<String> {
        std::iter::from_fn(|| errors.poll_line()).collect()
    }

    #[test]
    fn pain_31_every_address_gets_one_line_a_second_with_its_count() {
        let mut errors = SendErrors::default();
        let start = Instant::now();
        let (a, b) = ("192.0.2.1:5".parse().unwrap(), "192.0.2.2:5".parse().unwrap());
        let error = io::Error::from(io::ErrorKind::NetworkUnreachable);
        for _ in 0..10 {
            errors.note(start, a, &error);
        }
        errors.note(start, b, &error);
        errors.note(start + Duration::from_millis(999), a, &error);
        assert_eq!(
            lines(&mut errors),
            ["cannot send to 192.0.2.1:5: network unreachable", "cannot send to 192.0.2.2:5: network unreachable"]
        );
        errors.note(start + Duration::from_secs(1), a, &error);
        assert_eq!(lines(&mut errors), ["cannot send to 192.0.2.1:5: network unreachable (11 datagrams)"]);
        assert_eq!(errors.total(), 13);
    }

    #[test]
    fn memory_and_lines_are_bounded_when_everything_fails() {
        let mut errors = SendErrors::default();
        let start = Instant::now();
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        for port in 1..=60_000 {
            errors.note(start, SocketAddr::from(([192, 0, 2, 9], port)), &error);
        }
        assert_eq!(errors.total(), 60_000);
        assert!(errors.addresses.len() <= ADDRESSES);
        assert_eq!(lines(&mut errors).len(), LINES);
        for port in 1..=60_000 {
            errors.note(start, SocketAddr::from(([192, 0, 2, 9], port)), &error);
            errors.lines.clear();
        }
        assert_eq!(errors.addresses.len(), ADDRESSES);
        errors.note(start + EVERY, SocketAddr::from(([192, 0, 2, 9], 60_001)), &error);
        assert_eq!(errors.addresses.len(), 1, "addresses that were quiet for a second are forgotten");
    }
}
