//! Reasons to leave that come from outside: signals, and the end of the process this one belongs to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How often the parent is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Watches for a reason to leave.
#[derive(Debug)]
pub(crate) struct Stop {
    signal: Arc<AtomicBool>,
    parent: Option<Parent>,
    next: Instant,
}

impl Stop {
    /// Catches the signals that ask a program to end: they leave the lobby as `q` does.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn new(parent: Option<u32>) -> io::Result<Self> {
        let signal = Arc::new(AtomicBool::new(false));
        for number in [SIGTERM, SIGINT] {
            signal_hook::flag::register(number, Arc::clone(&signal))?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signal))?;
        Ok(Self { signal, parent: parent.map(Parent::new), next: Instant::now() })
    }

    /// Why to leave now; `None` to stay.
    pub(crate) fn reason(&mut self, now: Instant) -> Option<&'static str> {
        if self.signal.load(Ordering::Relaxed) {
            return Some("told to stop");
        }
        if now >= self.next {
            self.next = now + EVERY;
            if self.parent.as_ref().is_some_and(Parent::is_gone) {
                return Some("the process it belongs to has ended");
            }
        }
        None
    }
}

/// A process known by its number and, where the system tells, by when it began: numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent {
    pid: u32,
    began: Option<u64>,
    /// Where the system does not tell: whether it was the real parent, whose end shows by another one taking over.
    own: bool,
}

impl Parent {
    fn new(pid: u32) -> Self {
        Self { pid, began: began(pid), own: own_parent() == Some(pid) }
    }

    fn is_gone(&self) -> bool {
        if cfg!(target_os = "linux") {
            self.began.is_none() || began(self.pid) != self.began
        } else {
            self.own && own_parent() != Some(self.pid)
        }
    }
}

#[cfg(unix)]
fn own_parent() -> Option<u32> {
    Some(std::os::unix::process::parent_id())
}

#[cfg(not(unix))]
fn own_parent() -> Option<u32> {
    None
}

/// When a living process began, in clock ticks since the system did; `None` for one that ended, waited for or not.
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses and may hold anything; the rest is counted from behind it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn pain_52_the_end_of_the_parent_is_seen_even_before_anybody_waits_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut stop = Stop::new(Some(child.id())).unwrap();
        assert_eq!(stop.reason(Instant::now()), None);
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while stop.reason(Instant::now()).is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(stop.reason(Instant::now() + EVERY), Some("the process it belongs to has ended"));
        child.wait().unwrap();
    }

    #[test]
    fn a_number_used_again_is_another_process() {
        let pid = std::process::id();
        let own = Parent::new(pid);
        assert!(!own.is_gone());
        assert!(Parent { began: own.began.map(|ticks| ticks + 1), ..own }.is_gone());
        assert!(Parent::new(u32::MAX).is_gone());
    }
}
