//! `lobby_out.jsonl`: what a game is told, one JSON object a line (netpunch wire, section 19.1).
//!
//! `type` comes first and separators are those of the wire, because an old reader finds both by text. That reader
//! keeps 2,047 bytes a line: longer chat and status texts are cut to fit, and a roster that does not fit leaves its
//! stages out. A roster with more players than that goes whole, for readers with larger buffers.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use lobby::Roster;
use serde_json::{Map, Value, json};

use session::Moved;

use super::files;
use crate::transfer;

/// Most bytes of a line, its line feed included.
pub(crate) const LINE: usize = 2_047;

/// The file of events.
#[derive(Debug)]
pub(crate) struct OutLog {
    file: File,
    written: u64,
    roster: Vec<u8>,
}

impl OutLog {
    /// Starts the file anew.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        Ok(Self { file: files::fresh(&dir.join("lobby_out.jsonl"))?, written: 0, roster: Vec::new() })
    }

    /// A host's code. `steam` and `cross_code` are empty: there is only one code in this build.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn code(&mut self, code: &str) -> io::Result<()> {
        self.write(&json!({"type": "code", "code": code, "steam": "", "crossplay": true, "cross_code": ""}))
    }

    /// Where the session stands.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn status(&mut self, state: &str, detail: &str) -> io::Result<()> {
        self.write_cut(detail, |detail| json!({"type": "status", "state": state, "detail": detail}))
    }

    /// The lobby, when it differs from the last one written.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn roster(&mut self, roster: &Roster, host: bool) -> io::Result<()> {
        let mut value = roster_json(roster, host);
        let mut line = codec::to_json(&value);
        if line.len() >= LINE {
            value.insert("stages".into(), json!({}));
            line = codec::to_json(&value);
        }
        if line == self.roster {
            return Ok(());
        }
        self.write_line(&line)?;
        self.roster = line;
        Ok(())
    }

    /// Somebody said something; `ts` is absent in notes of this program.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn chat(&mut self, from: &str, text: &str, ts: Option<u64>) -> io::Result<()> {
        self.write_cut(text, |text| {
            let mut value = json!({"type": "chat", "from": from, "text": text});
            if let (Some(ts), Some(map)) = (ts, value.as_object_mut()) {
                map.insert("ts".into(), ts.into());
            }
            value
        })
    }

    /// The game starts.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn start(&mut self, save: bool, switch: bool) -> io::Result<()> {
        let mut value = json!({"type": "start", "save": save});
        if let (true, Some(map)) = (switch, value.as_object_mut()) {
            map.insert("switch".into(), true.into());
        }
        self.write(&value)
    }

    /// A new world nonce for the game's bridge.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn transport_lobby(&mut self, epoch: &str) -> io::Result<()> {
        self.write(&json!({"type": "transport_lobby", "epoch": epoch}))
    }

    /// How a transfer goes. `port` is what a player may have to open, where it is known.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn transfer(&mut self, send: bool, peer: &str, moved: &Moved, port: Option<u16>) -> io::Result<()> {
        let role = if send { "send" } else { "recv" };
        let state = |state: &str| json!({"type": "transfer", "role": role, "peer": peer, "state": state});
        match moved {
            Moved::Progress(progress) => {
                let words = transfer::words(progress, send, port);
                let line = json!({
                    "type": "transfer", "role": role, "peer": peer, "pct": progress.percent(),
                    "bytes_done": progress.bytes_done, "bytes_total": progress.bytes_total,
                    "bytes_per_second": progress.bytes_per_second, "transport": progress.transport.to_string(),
                    "tcp_status": words.tcp, "detail": words.detail, "hint": words.hint,
                    "show_hint": !words.hint.is_empty()
                });
                self.write(&line)
            }
            Moved::Streaming => self.write(&state("tcp")),
            Moved::Done => self.write(&state("done")),
            Moved::Dropped => self.write(&state("dropped")),
            Moved::Failed(why) => self.write_cut(why, |why| {
                let mut line = state("failed");
                if let Some(map) = line.as_object_mut() {
                    map.insert("detail".into(), why.into());
                }
                line
            }),
            // The original has no word for these: the progress that follows says what carries it.
            _ => Ok(()),
        }
    }

    /// A received save is verified and bears its names.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn save_ready(&mut self, dir: &str, files: &[String]) -> io::Result<()> {
        let name = files.first().map(String::as_str).unwrap_or_default();
        self.write(&json!({"type": "save_ready", "name": name, "dir": dir, "files": files}))
    }

    fn write(&mut self, value: &Value) -> io::Result<()> {
        self.write_line(&codec::to_json(value))
    }

    /// Writes `build(text)` with as much of `text` as fits.
    fn write_cut(&mut self, text: &str, build: impl Fn(&str) -> Value) -> io::Result<()> {
        let mut line = codec::to_json(&build(text));
        if line.len() >= LINE {
            let room = LINE.saturating_sub(codec::to_json(&build("")).len() + 1);
            line = codec::to_json(&build(cut(text, room)));
        }
        self.write_line(&line)
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        // One write, so that a reader who looks at the wrong moment sees whole lines or none.
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        self.file.write_all(&bytes).inspect_err(|_| {
            // A disk that filled up in the middle: what came of the line goes, or the next one would grow onto it.
            let _ = self.file.set_len(self.written).and_then(|()| self.file.seek(SeekFrom::Start(self.written)));
        })?;
        self.written += u64::try_from(bytes.len()).unwrap_or(0);
        Ok(())
    }
}

/// The longest beginning of `text` whose JSON form, without quotes, takes at most `room` bytes.
fn cut(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += codec::to_json(&c).len() - 2;
        if used > room {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

fn roster_json(roster: &Roster, host: bool) -> Map<String, Value> {
    let names: Vec<&String> = roster.players.keys().collect();
    let companies: Map<String, Value> =
        roster.players.iter().map(|(name, player)| (name.clone(), player.company.into())).collect();
    let stages: Map<String, Value> = roster
        .players
        .iter()
        .filter(|(_, player)| !player.stage.is_empty())
        .map(|(name, player)| (name.clone(), player.stage.clone().into()))
        .collect();
    let letters: Map<String, Value> =
        roster.players.iter().map(|(name, player)| (name.clone(), player.letter.clone().into())).collect();
    let mut value = Map::new();
    value.insert("type".into(), "roster".into());
    value.insert("players".into(), json!(names));
    value.insert("you".into(), roster.you.clone().into());
    value.insert("host".into(), roster.host.clone().into());
    value.insert("lobby".into(), roster.lobby.clone().into());
    value.insert("companies".into(), companies.into());
    value.insert("stages".into(), stages.into());
    value.insert("relay".into(), roster.relay.into());
    value.insert("letters".into(), letters.into());
    if host {
        value.insert("join_freeze".into(), false.into());
    } else {
        value.insert("stored_age".into(), roster.stored_age.into());
        value.insert("stored_max".into(), roster.stored_max.into());
    }
    value.insert("mode".into(), roster.mode.as_str().into());
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Dir, roster};

    fn written(dir: &Dir) -> Vec<String> {
        let text = std::fs::read_to_string(dir.path().join("lobby_out.jsonl")).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_those_of_the_specification() {
        let dir = Dir::new("out-lines");
        std::fs::write(dir.path().join("lobby_out.jsonl"), "old\n").unwrap();
        let mut out = OutLog::create(dir.path()).unwrap();
        out.code("TFVLCO4A").unwrap();
        out.chat("ada", "ready?", Some(1_790_000_321)).unwrap();
        out.chat("MULTIPLAYER", "gr\u{fc}\u{df}", None).unwrap();
        out.start(false, false).unwrap();
        out.start(true, true).unwrap();
        out.transport_lobby("00ff").unwrap();
        out.roster(&roster("lin", &["ada", "lin"]), false).unwrap();
        assert_eq!(
            written(&dir),
            [
                r#"{"type": "code", "code": "TFVLCO4A", "steam": "", "crossplay": true, "cross_code": ""}"#,
                r#"{"type": "chat", "from": "ada", "text": "ready?", "ts": 1790000321}"#,
                r#"{"type": "chat", "from": "MULTIPLAYER", "text": "gr\u00fc\u00df"}"#,
                r#"{"type": "start", "save": false}"#,
                r#"{"type": "start", "save": true, "switch": true}"#,
                r#"{"type": "transport_lobby", "epoch": "00ff"}"#,
                r#"{"type": "roster", "players": ["ada", "lin"], "you": "lin", "host": "ada", "lobby": "Tuesday", "companies": {"ada": 1, "lin": 1}, "stages": {}, "relay": false, "letters": {"ada": "a", "lin": "b"}, "stored_age": -1, "stored_max": -1, "mode": "coop"}"#,
            ]
        );
    }

    #[test]
    fn a_roster_is_written_only_when_it_changed() {
        let dir = Dir::new("out-changed");
        let mut out = OutLog::create(dir.path()).unwrap();
        let two = roster("ada", &["ada", "lin"]);
        out.roster(&two, true).unwrap();
        out.roster(&two, true).unwrap();
        assert_eq!(written(&dir).len(), 1);
        out.roster(&roster("ada", &["ada"]), true).unwrap();
        out.roster(&two, true).unwrap();
        assert_eq!(written(&dir).len(), 3);
        assert!(written(&dir)[0].contains(r#""join_freeze": false"#));
    }

    #[test]
    fn pain_101_no_chat_or_status_line_is_longer_than_an_old_reader_keeps() {
        let dir = Dir::new("out-long");
        let mut out = OutLog::create(dir.path()).unwrap();
        for text in ["x".repeat(5_000), "\u{1F682}".repeat(900), "\"\\\n".repeat(2_000)] {
            out.chat("ada", &text, Some(1)).unwrap();
            out.status("failed", &text).unwrap();
        }
        let lines = written(&dir);
        assert_eq!(lines.len(), 6);
        for line in lines {
            assert!((LINE - 14..LINE).contains(&line.len()), "{} bytes", line.len());
            assert!(serde_json::from_str::<Value>(&line).is_ok());
        }
    }

    #[test]
    fn a_roster_that_would_be_cut_leaves_its_stages_out() {
        let dir = Dir::new("out-stages");
        let mut out = OutLog::create(dir.path()).unwrap();
        let mut big = roster("p0", &["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"]);
        for player in big.players.values_mut() {
            player.stage = "s".repeat(200);
        }
        out.roster(&big, true).unwrap();
        let line = &written(&dir)[0];
        assert!(line.len() < LINE && line.contains(r#""stages": {}"#));
    }
}
