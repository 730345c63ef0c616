//! The one way to standard error. Addresses are masked here and nowhere else, so that no line can be forgotten; a
//! broken standard error is not an error (a program that was started without one must live on).

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Lines kept for the panel's log view until it collects them.
const KEPT: usize = 1_000;

/// Most characters of one line.
const LINE: usize = 1_000;

/// A log sink; clones write to the same place.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    unmasked: bool,
    stderr: AtomicBool,
    kept: Mutex<VecDeque<String>>,
}

impl Log {
    /// A sink that writes to standard error. `unmasked` shows whole addresses: the player's own wish.
    #[must_use]
    pub(crate) fn new(unmasked: bool) -> Self {
        let inner = Inner { unmasked, stderr: AtomicBool::new(true), kept: Mutex::new(VecDeque::new()) };
        Self { inner: Arc::new(inner) }
    }

    /// A sink as the environment wants it: `TPF2MP_LOG_IPS=1` shows whole addresses.
    #[must_use]
    pub(crate) fn from_env() -> Self {
        Self::new(std::env::var_os("TPF2MP_LOG_IPS").is_some_and(|value| value == "1"))
    }

    /// Stops or resumes writing to standard error: a panel on the same terminal owns the screen.
    pub(crate) fn use_stderr(&self, on: bool) {
        self.inner.stderr.store(on, Ordering::Relaxed);
    }

    /// Writes one line.
    pub(crate) fn line(&self, text: &str) {
        let line = self.dress(text);
        if self.inner.stderr.load(Ordering::Relaxed) {
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
        let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    /// Lines written since the last call, at most a thousand.
    pub(crate) fn collect(&self) -> VecDeque<String> {
        std::mem::take(&mut *self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `text` as it may be shown: one line, addresses masked.
    #[must_use]
    pub(crate) fn dress(&self, text: &str) -> String {
        let plain: String = text.chars().take(LINE).map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.mask(&plain)
    }

    /// `text` with its addresses masked, unless the player wants to see them.
    #[must_use]
    pub(crate) fn mask(&self, text: &str) -> String {
        if self.inner.unmasked { text.to_owned() } else { seam::mask(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(unmasked: bool) -> Log {
        let log = Log::new(unmasked);
        log.use_stderr(false);
        log
    }

    #[test]
    fn every_line_is_masked_unless_the_player_asks_for_addresses() {
        let (masked, open) = (quiet(false), quiet(true));
        for log in [&masked, &open] {
            log.line("[join] connected to host 203.0.113.47:29471");
        }
        assert_eq!(masked.collect(), ["[join] connected to host 203.0.113.x:29471"]);
        assert_eq!(open.collect(), ["[join] connected to host 203.0.113.47:29471"]);
    }

    #[test]
    fn a_players_name_cannot_forge_a_line() {
        let log = quiet(false);
        log.line("[host] JOIN as 'bob\n[host] LEAVE ada\u{1b}[2J'");
        assert_eq!(log.collect(), ["[host] JOIN as 'bob [host] LEAVE ada [2J'"]);
    }

    #[test]
    fn lines_nobody_collects_are_bounded() {
        let log = quiet(false);
        for n in 0..3_000 {
            log.line(&format!("line {n} {}", "x".repeat(5_000)));
        }
        let kept = log.collect();
        assert_eq!(kept.len(), KEPT);
        assert!(kept.iter().all(|line| line.len() == LINE));
        assert!(log.collect().is_empty());
    }
}
