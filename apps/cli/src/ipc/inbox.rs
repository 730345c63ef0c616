//! `lobby_in.jsonl`: what a game asks for, one JSON object a line (netpunch wire, section 19.2).
//!
//! The file is emptied at the start, so a command written before the first event is lost: writers wait for a line in
//! `lobby_out.jsonl`. Only whole lines count. A file that is replaced or cut by somebody else is read from its start.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lobby::Mode;
use serde_json::{Map, Value};
use session::Command;

use super::files;

/// Most bytes read at one look.
const READ: u64 = 256 * 1024;

/// Most bytes of one line; a longer one is skipped.
const LINE: usize = 64 * 1024;

/// One line of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// Something for the session.
    Session(Command),
    /// Start with the save at this path.
    StartWithSave {
        /// The save.
        save: PathBuf,
        /// It replaces a running world.
        switch: bool,
    },
    /// List the lobby publicly, or no more.
    Publish(bool),
    /// A command of the original that has no effect here yet.
    NotYet(String),
    /// Not a command; the text says why.
    Bad(String),
}

/// Reads whole lines of a file that somebody else appends to.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    offset: u64,
    part: Vec<u8>,
    identity: Option<u64>,
    skipping: bool,
}

impl Tail {
    /// A reader that begins at `offset`.
    #[must_use]
    pub(crate) fn new(path: PathBuf, offset: u64) -> Self {
        let identity = fs::metadata(&path).ok().and_then(|meta| identity(&meta));
        Self { path, offset, part: Vec::new(), identity, skipping: false }
    }

    /// A reader that begins at the file's end.
    #[must_use]
    pub(crate) fn at_end(path: PathBuf) -> Self {
        let end = fs::metadata(&path).map_or(0, |meta| meta.len());
        Self::new(path, end)
    }

    /// Lines completed since the last look, without their line feeds. A missing file has none.
    pub(crate) fn poll(&mut self) -> Vec<Vec<u8>> {
        let Ok(meta) = fs::metadata(&self.path) else { return Vec::new() };
        let now = identity(&meta);
        if meta.len() < self.offset || now != self.identity {
            self.offset = 0;
            self.part.clear();
            self.skipping = false;
            self.identity = now;
        }
        if meta.len() == self.offset {
            return Vec::new();
        }
        self.read().unwrap_or_default()
    }

    fn read(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(READ).read_to_end(&mut bytes)?;
        self.offset += u64::try_from(bytes.len()).unwrap_or(0);
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let whole = piece.last() == Some(&b'\n');
            if !self.skipping {
                self.part.extend_from_slice(piece.strip_suffix(b"\n").unwrap_or(piece));
            }
            if self.part.len() > LINE {
                self.part.clear();
                self.skipping = true;
            }
            if whole {
                let line = std::mem::take(&mut self.part);
                if !std::mem::take(&mut self.skipping) {
                    lines.push(line);
                }
            }
        }
        Ok(lines)
    }
}

/// What tells a file from another that took its name.
fn identity(meta: &fs::Metadata) -> Option<u64> {
    #[cfg(unix)]
    {
        Some(std::os::unix::fs::MetadataExt::ino(meta))
    }
    #[cfg(not(unix))]
    {
        let _ = meta;
        None
    }
}

/// The file of commands.
#[derive(Debug)]
pub(crate) struct Inbox {
    tail: Tail,
}

impl Inbox {
    /// Empties the file and begins to read it.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join("lobby_in.jsonl");
        files::fresh(&path)?;
        Ok(Self { tail: Tail::new(path, 0) })
    }

    /// What was asked since the last look. Blank lines are nothing.
    pub(crate) fn poll(&mut self) -> Vec<Asked> {
        let lines = self.tail.poll();
        lines.iter().filter(|line| !line.trim_ascii().is_empty()).map(|line| read(line)).collect()
    }
}

/// One line.
fn read(line: &[u8]) -> Asked {
    let Ok(map) = codec::object(line) else { return Asked::Bad("a line that is no JSON object".into()) };
    let Some(cmd) = map.get("cmd").and_then(Value::as_str) else {
        return Asked::Bad("a line without \"cmd\"".into());
    };
    match command(cmd, &map) {
        Some(asked) => asked,
        None => Asked::Bad(format!("\"{cmd}\" with a field missing or of the wrong type")),
    }
}

fn command(cmd: &str, map: &Map<String, Value>) -> Option<Asked> {
    let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let asked = match cmd {
        "chat" => Command::Chat(text("text")?),
        "name" => Command::Name(text("name")?),
        "stage" => Command::Stage(text("text")?),
        "note" => Command::Note(text("text")?),
        "company" => {
            let id = map.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok())?;
            Command::Company { player: text("player").filter(|name| !name.is_empty()), id }
        }
        "mode" => match map.get("mode").and_then(Value::as_str)? {
            "coop" => Command::Mode(Mode::Coop),
            "companies" => Command::Mode(Mode::Companies),
            _ => return None,
        },
        "start" => match map.get("save") {
            None | Some(Value::Null | Value::Bool(false)) => Command::Start { save: false, switch: flag("switch") },
            Some(Value::String(path)) if path.is_empty() => Command::Start { save: false, switch: flag("switch") },
            Some(Value::String(path)) => {
                return Some(Asked::StartWithSave { save: PathBuf::from(path), switch: flag("switch") });
            }
            Some(_) => return None,
        },
        "publish" => return map.get("on").and_then(Value::as_bool).map(Asked::Publish),
        "sync_taking" => Command::SaveComing,
        "quit" => Command::Quit,
        other => return Some(Asked::NotYet(other.chars().take(40).collect())),
    };
    Some(Asked::Session(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dir;
    use std::io::Write;

    fn append(dir: &Dir, bytes: &[u8]) {
        let mut file = fs::OpenOptions::new().append(true).open(dir.path().join("lobby_in.jsonl")).unwrap();
        file.write_all(bytes).unwrap();
    }

    #[test]
    fn every_command_of_this_build_is_understood() {
        let dir = Dir::new("in-commands");
        let mut inbox = Inbox::create(dir.path()).unwrap();
        for line in [
            r#"{"cmd": "chat", "text": "hi"}"#,
            r#"{"cmd":"name","name":"ada"}"#,
            r#"{"cmd": "company", "id": 2}"#,
            r#"{"cmd": "company", "player": "lin", "id": 200}"#,
            r#"{"cmd": "stage", "text": ""}"#,
            r#"{"cmd": "mode", "mode": "companies"}"#,
            r#"{"cmd": "start"}"#,
            r#"{"cmd": "start", "save": "", "switch": true}"#,
            r#"{"cmd": "note", "text": "n"}"#,
            r#"{"cmd": "quit"}"#,
        ] {
            append(&dir, format!("{line}\r\n").as_bytes());
        }
        let want = [
            Command::Chat("hi".into()),
            Command::Name("ada".into()),
            Command::Company { player: None, id: 2 },
            Command::Company { player: Some("lin".into()), id: 200 },
            Command::Stage(String::new()),
            Command::Mode(Mode::Companies),
            Command::Start { save: false, switch: false },
            Command::Start { save: false, switch: true },
            Command::Note("n".into()),
            Command::Quit,
        ];
        assert_eq!(inbox.poll(), want.map(Asked::Session));
        assert_eq!(inbox.poll(), []);
    }

    #[test]
    fn bad_lines_are_skipped_and_named() {
        let dir = Dir::new("in-bad");
        let mut inbox = Inbox::create(dir.path()).unwrap();
        append(&dir, b"\n\xff\xfe{\n[1]\n{\"text\": 1}\n{\"cmd\": \"chat\", \"text\": 5}\n");
        append(&dir, b"{\"cmd\": \"company\", \"id\": -1}\n{\"cmd\": \"mode\", \"mode\": \"war\"}\n");
        append(
            &dir,
            b"{\"cmd\": \"start\", \"save\": \"/saves/tuesday.sav\"}\n{\"cmd\": \"crossplay\", \"on\": true}\n",
        );
        let asked = inbox.poll();
        assert_eq!(asked.iter().filter(|asked| matches!(asked, Asked::Bad(_))).count(), 6);
        assert_eq!(
            asked[6..],
            [
                Asked::StartWithSave { save: "/saves/tuesday.sav".into(), switch: false },
                Asked::NotYet("crossplay".into())
            ]
        );
    }

    #[test]
    fn listing_is_switched_on_and_off_and_by_nothing_else() {
        let dir = Dir::new("in-publish");
        let mut inbox = Inbox::create(dir.path()).unwrap();
        append(&dir, b"{\"cmd\": \"publish\", \"on\": true}\n{\"cmd\": \"publish\", \"on\": false}\n");
        assert_eq!(inbox.poll(), [Asked::Publish(true), Asked::Publish(false)]);
        append(&dir, b"{\"cmd\": \"publish\"}\n{\"cmd\": \"publish\", \"on\": 1}\n");
        assert!(inbox.poll().iter().all(|asked| matches!(asked, Asked::Bad(_))));
    }

    #[test]
    fn every_command_of_the_guide_is_understood() {
        let guide = include_str!("../../../../docs/guide/game-side.md");
        let commands: Vec<&str> = guide
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|line| line.starts_with('{'))
            .collect();
        assert!(commands.len() >= 8, "{commands:?}");
        for command in commands {
            let asked = read(command.as_bytes());
            assert!(matches!(asked, Asked::Session(_) | Asked::StartWithSave { .. }), "{command}");
        }
    }

    #[test]
    fn half_a_line_waits_for_its_end() {
        let dir = Dir::new("in-half");
        let mut inbox = Inbox::create(dir.path()).unwrap();
        append(&dir, b"{\"cmd\": \"qu");
        assert_eq!(inbox.poll(), []);
        append(&dir, b"it\"}\n{");
        assert_eq!(inbox.poll(), [Asked::Session(Command::Quit)]);
    }

    #[test]
    fn what_was_there_before_the_start_is_lost() {
        let dir = Dir::new("in-before");
        fs::write(dir.path().join("lobby_in.jsonl"), "{\"cmd\": \"quit\"}\n").unwrap();
        let mut inbox = Inbox::create(dir.path()).unwrap();
        assert_eq!(inbox.poll(), []);
    }

    #[test]
    fn a_file_cut_or_replaced_is_read_from_its_start() {
        let dir = Dir::new("in-replaced");
        let path = dir.path().join("lobby_in.jsonl");
        let mut inbox = Inbox::create(dir.path()).unwrap();
        append(&dir, b"{\"cmd\": \"chat\", \"text\": \"one\"}\n{\"cmd\": \"ch");
        assert_eq!(inbox.poll().len(), 1);
        fs::write(&path, "{\"cmd\": \"quit\"}\n").unwrap();
        assert_eq!(inbox.poll(), [Asked::Session(Command::Quit)]);
        #[cfg(unix)]
        {
            let other = dir.path().join("other");
            fs::write(&other, "{\"cmd\": \"chat\", \"text\": \"a much longer line than before\"}\n").unwrap();
            fs::rename(&other, &path).unwrap();
            assert_eq!(inbox.poll().len(), 1);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(inbox.poll(), []);
    }

    #[test]
    fn an_endless_line_takes_no_memory_and_the_next_one_counts() {
        let dir = Dir::new("in-endless");
        let mut inbox = Inbox::create(dir.path()).unwrap();
        append(&dir, &vec![b'x'; 3 * LINE]);
        assert_eq!(inbox.poll(), []);
        assert!(inbox.tail.part.is_empty());
        append(&dir, b"xx\n{\"cmd\": \"quit\"}\n");
        assert_eq!(inbox.poll(), [Asked::Session(Command::Quit)]);
    }
}
