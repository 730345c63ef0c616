//! `lobby_peers.log`: the log lines of every player in one file, `HH:MM:SS [name] line`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::files;

/// Most bytes written in one run. The lobby already limits each player; this limits all of them together.
const LIMIT: u64 = 256 * 1024 * 1024;

/// The merged log.
#[derive(Debug)]
pub(crate) struct PeerLog {
    file: File,
    written: u64,
}

impl PeerLog {
    /// Starts the file anew, or goes on with it when the player put a `tpf2mp_keep_logs.txt` beside it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join("lobby_peers.log");
        let file = if dir.join("tpf2mp_keep_logs.txt").exists() {
            OpenOptions::new().append(true).create(true).open(path)?
        } else {
            files::fresh(&path)?
        };
        Ok(Self { file, written: 0 })
    }

    /// Appends one line of `name`'s, said at `clock` (`HH:MM:SS`). Beyond the limit nothing is written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn line(&mut self, clock: &str, name: &str, line: &str) -> io::Result<()> {
        let plain = |text: &str| -> String { text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect() };
        // A bracket in a name would let it end its own tag and begin another's.
        let name = plain(name).replace(['[', ']'], "_");
        let text = format!("{clock} [{name}] {}\n", plain(line));
        self.written += u64::try_from(text.len()).unwrap_or(0);
        if self.written > LIMIT {
            return Ok(());
        }
        self.file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dir;
    use std::fs;

    #[test]
    fn pain_53_a_line_cannot_pretend_to_be_somebody_elses() {
        let dir = Dir::new("peers-forge");
        let mut log = PeerLog::create(dir.path()).unwrap();
        log.line("12:00:01", "ada", "one\n12:00:02 [lin] two\u{1b}[0m").unwrap();
        log.line("12:00:03", "x] [lin", "three").unwrap();
        let text = fs::read_to_string(dir.path().join("lobby_peers.log")).unwrap();
        assert_eq!(text, "12:00:01 [ada] one 12:00:02 [lin] two [0m\n12:00:03 [x_ _lin] three\n");
    }

    #[test]
    fn an_old_log_goes_unless_the_player_keeps_logs() {
        let dir = Dir::new("peers-keep");
        let path = dir.path().join("lobby_peers.log");
        fs::write(&path, "old\n").unwrap();
        fs::write(dir.path().join("tpf2mp_keep_logs.txt"), "").unwrap();
        PeerLog::create(dir.path()).unwrap().line("1", "a", "b").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n1 [a] b\n");
        fs::remove_file(dir.path().join("tpf2mp_keep_logs.txt")).unwrap();
        PeerLog::create(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }
}
