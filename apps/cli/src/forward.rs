//! `--forward-log`: new lines of the player's own log files, for the host's merged log.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use session::Command;

use crate::ipc::{Ipc, Tail};

/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Most lines taken of one file at a look; the rest of them is left out, as the lobby would have to.
const LINES: usize = 500;
/// Most characters of a line (netpunch wire, section 6.6).
const LINE: usize = 240;

/// Follows log files from where they end now.
#[derive(Debug)]
pub(crate) struct Forward {
    host: bool,
    you: String,
    tails: Vec<Tail>,
    next: Instant,
}

impl Forward {
    /// Follows `files`. They need not exist yet.
    pub(crate) fn new(files: &[PathBuf], host: bool, name: &str, now: Instant) -> Self {
        let tails = files.iter().cloned().map(Tail::at_end).collect();
        Self { host, you: name.to_owned(), tails, next: now }
    }

    /// The player's name now.
    pub(crate) fn name(&mut self, you: &str) {
        if !you.is_empty() && self.you != you {
            you.clone_into(&mut self.you);
        }
    }

    /// A joiner's lines are for its session; a host's go into its own merged log at once.
    pub(crate) fn poll(&mut self, now: Instant, ipc: &mut Ipc) -> Option<Command> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let lines: Vec<String> = self.tails.iter_mut().flat_map(lines).collect();
        if lines.is_empty() {
            return None;
        }
        if self.host {
            for line in &lines {
                ipc.peer_line(&self.you, line);
            }
            return None;
        }
        Some(Command::Log(lines))
    }
}

fn lines(tail: &mut Tail) -> Vec<String> {
    let text = |line: &Vec<u8>| String::from_utf8_lossy(line).trim_end().chars().take(LINE).collect::<String>();
    tail.poll().iter().take(LINES).map(text).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::testing::Dir;
    use std::fs;

    #[test]
    fn only_what_is_written_from_now_on_is_passed_on() {
        let dir = Dir::new("forward-new");
        let (path, log) = (dir.path().join("game.log"), Log::new(false));
        log.use_stderr(false);
        fs::write(&path, "old\n").unwrap();
        let start = Instant::now();
        let mut ipc = Ipc::create(&dir.path().join("io"), false, "0".into(), log.clone());
        let mut forward = Forward::new(std::slice::from_ref(&path), false, "lin", start);
        assert_eq!(forward.poll(start, &mut ipc), None);
        fs::write(&path, format!("old\nnew\r\n\n{}\n", "x".repeat(999))).unwrap();
        assert_eq!(forward.poll(start, &mut ipc), None, "not before half a second has passed");
        let want = Command::Log(vec!["new".into(), "x".repeat(LINE)]);
        assert_eq!(forward.poll(start + EVERY, &mut ipc), Some(want));
    }

    #[test]
    fn a_hosts_own_lines_are_in_the_merged_log() {
        let dir = Dir::new("forward-host");
        let (path, log) = (dir.path().join("game.log"), Log::new(false));
        log.use_stderr(false);
        let start = Instant::now();
        let mut ipc = Ipc::create(dir.path(), true, "0".into(), log);
        let mut forward = Forward::new(std::slice::from_ref(&path), true, "ada", start);
        fs::write(&path, "from 203.0.113.9\n").unwrap();
        assert_eq!(forward.poll(start, &mut ipc), None);
        let merged = fs::read_to_string(dir.path().join("lobby_peers.log")).unwrap();
        assert!(merged.ends_with(" [ada] from 203.0.113.x\n"), "{merged}");
    }
}
