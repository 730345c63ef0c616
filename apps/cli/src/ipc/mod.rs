//! The files through which a game and this program talk (netpunch wire, section 19). A file that cannot be written
//! never ends a session: the first failure of each is logged, later ones are not.

pub(crate) mod files;
mod inbox;
mod out;
mod peers;
mod state;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lobby::State;
use session::Event;

pub(crate) use inbox::{Asked, Inbox, Tail};
pub(crate) use out::OutLog;
pub(crate) use peers::PeerLog;
pub(crate) use state::Snapshot;

use crate::log::Log;

/// All files of one session.
#[derive(Debug)]
pub(crate) struct Ipc {
    dir: PathBuf,
    log: Log,
    host: bool,
    stream_port: Option<u16>,
    out: Option<OutLog>,
    inbox: Option<Inbox>,
    peers: Option<PeerLog>,
    snapshot: Snapshot,
    state_json: Vec<u8>,
    page: String,
    unsaved: bool,
    complained: Vec<&'static str>,
    said: BTreeSet<String>,
}

impl Ipc {
    /// Makes the folder and starts its files anew. `session` names this run.
    #[must_use]
    pub(crate) fn create(dir: &Path, host: bool, session: String, log: Log) -> Self {
        let snapshot = Snapshot {
            session,
            state: if host { State::Waiting } else { State::Connecting },
            detail: String::new(),
            code: None,
            roster: None,
            started: false,
        };
        let mut ipc = Self {
            dir: dir.to_owned(),
            log,
            host,
            stream_port: None,
            out: None,
            inbox: None,
            peers: None,
            snapshot,
            state_json: Vec::new(),
            page: String::new(),
            unsaved: false,
            complained: Vec::new(),
            said: BTreeSet::new(),
        };
        let made = std::fs::create_dir_all(dir);
        ipc.note("the io dir", made);
        let inbox = Inbox::create(dir);
        ipc.inbox = ipc.note("lobby_in.jsonl", inbox);
        let out = OutLog::create(dir);
        ipc.out = ipc.note("lobby_out.jsonl", out);
        if host {
            let peers = PeerLog::create(dir);
            ipc.peers = ipc.note("lobby_peers.log", peers);
        } else {
            files::forget_old_saves(dir);
        }
        ipc.save();
        ipc
    }

    /// What the game asked since the last look. A view of the lobby that could not be written is tried again.
    pub(crate) fn poll(&mut self) -> Vec<Asked> {
        if self.unsaved {
            self.save();
        }
        self.inbox.as_mut().map(Inbox::poll).unwrap_or_default()
    }

    /// Tells the game what happened.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Code(code) => {
                self.snapshot.code = Some(code.clone());
                self.out(|out| out.code(code));
            }
            Event::Status { state, detail } => self.status(*state, detail),
            Event::Roster(roster) => {
                self.snapshot.roster = Some(Arc::clone(roster));
                let host = self.host;
                self.out(|out| out.roster(roster, host));
            }
            Event::Chat { from, text, ts } => self.out(|out| out.chat(from, text, *ts)),
            Event::Start { save, switch } => {
                self.snapshot.started = true;
                self.out(|out| out.start(*save, *switch));
            }
            Event::Transfer { send, peer, moved } => {
                let port = self.stream_port;
                self.out(|out| out.transfer(*send, peer, moved, port));
            }
            Event::SaveReady { files } => {
                let dir = self.dir.display().to_string();
                self.out(|out| out.save_ready(&dir, files));
            }
            Event::TransportLobby(epoch) => self.out(|out| out.transport_lobby(epoch)),
            Event::PeerLog { name, line } => self.peer_line(name, line),
            Event::Ended(_) => {
                if self.snapshot.state != State::Failed {
                    self.snapshot.state = State::Disconnected;
                }
            }
            _ => return,
        }
        self.save();
    }

    /// A change of state, told and kept. `disconnected` is a word of the state file alone.
    pub(crate) fn status(&mut self, state: State, detail: &str) {
        let detail = self.log.mask(detail);
        self.snapshot.state = state;
        self.snapshot.detail.clone_from(&detail);
        if state != State::Disconnected {
            self.out(|out| out.status(state.as_str(), &detail));
        }
        self.save();
    }

    /// Where the session stands.
    pub(crate) fn state(&self) -> State {
        self.snapshot.state
    }

    /// The TCP port that a hint names when a transfer is not reached by a stream.
    pub(crate) fn set_stream_port(&mut self, port: u16) {
        self.stream_port = Some(port);
    }

    /// Logs something about the game's commands, once for each text and for at most 32 texts.
    pub(crate) fn once(&mut self, text: &str) {
        if self.said.len() < 32 && self.said.insert(text.to_owned()) {
            self.log.line(&format!("[ipc] {text}"));
        }
    }

    /// One line for the merged log.
    pub(crate) fn peer_line(&mut self, name: &str, line: &str) {
        let Some(peers) = &mut self.peers else { return };
        let done = peers.line(&crate::clock::now_hms(), name, &self.log.mask(line));
        self.note("lobby_peers.log", done);
    }

    fn out(&mut self, write: impl FnOnce(&mut OutLog) -> std::io::Result<()>) {
        if let Some(out) = &mut self.out {
            let done = write(out);
            self.note("lobby_out.jsonl", done);
        }
    }

    /// Writes both views of the lobby where they changed.
    fn save(&mut self) {
        self.unsaved = false;
        let json = self.snapshot.json();
        if json != self.state_json {
            let done = files::replace(&self.dir.join("lobby_state.json"), &json);
            if self.note("lobby_state.json", done).is_some() {
                self.state_json = json;
            } else {
                self.unsaved = true;
            }
        }
        let page = self.snapshot.page();
        if page != self.page {
            let done = files::replace(&self.dir.join("lobby_panel.txt"), page.as_bytes());
            if self.note("lobby_panel.txt", done).is_some() {
                self.page = page;
            } else {
                self.unsaved = true;
            }
        }
    }

    fn note<T>(&mut self, what: &'static str, result: std::io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.complained.contains(&what) {
                    self.complained.push(what);
                    self.log.line(&format!("[ipc] cannot write {what}: {error}"));
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Dir, roster};
    use std::fs;

    fn quiet() -> Log {
        let log = Log::new(false);
        log.use_stderr(false);
        log
    }

    #[test]
    fn a_session_leaves_its_story_in_the_files() {
        let dir = Dir::new("ipc-story");
        let mut ipc = Ipc::create(dir.path(), true, "5fa0c31be777".into(), quiet());
        ipc.apply(&Event::Status { state: State::Waiting, detail: "waiting at 203.0.113.9:29471".into() });
        ipc.apply(&Event::Code("TFVLCO4A".into()));
        ipc.apply(&Event::Roster(Arc::new(roster("ada", &["ada"]))));
        ipc.apply(&Event::PeerLog { name: "lin".into(), line: "from 203.0.113.9".into() });
        ipc.apply(&Event::Ended(lobby::End::Quit));
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let out = read("lobby_out.jsonl");
        assert_eq!(out.lines().count(), 3);
        assert!(out.starts_with(r#"{"type": "status", "state": "waiting", "detail": "waiting at 203.0.113.x:29471"}"#));
        assert!(read("lobby_peers.log").ends_with(" [lin] from 203.0.113.x\n"));
        let state = read("lobby_state.json");
        assert!(state.contains(r#""state": "disconnected""#) && state.contains(r#""code": "TFVLCO4A""#), "{state}");
        assert!(read("lobby_panel.txt").contains("code: TFVLCO4A"));
    }

    /// `/dev/full` answers every write as a full disk does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_state_that_met_a_full_disk_is_written_once_there_is_room() {
        let dir = Dir::new("ipc-full");
        let mut ipc = Ipc::create(dir.path(), true, "5fa0c31be777".into(), quiet());
        let read = || fs::read_to_string(dir.path().join("lobby_state.json")).unwrap();
        let beside = dir.path().join(format!("lobby_state.json.{}.tmp", std::process::id()));
        std::os::unix::fs::symlink("/dev/full", beside).unwrap();
        ipc.apply(&Event::Code("TFVLCO4A".into()));
        assert!(read().contains("5fa0c31be777") && !read().contains("TFVLCO4A"));
        assert_eq!(ipc.poll(), []);
        assert!(read().contains("TFVLCO4A"));
    }

    #[test]
    fn pain_98_a_folder_that_cannot_be_written_is_logged_once_and_survived() {
        let dir = Dir::new("ipc-blocked");
        let blocked = dir.path().join("file");
        fs::write(&blocked, "in the way").unwrap();
        let log = quiet();
        let mut ipc = Ipc::create(&blocked.join("io"), false, "0".into(), log.clone());
        for _ in 0..50 {
            ipc.apply(&Event::Roster(Arc::new(roster("lin", &["ada", "lin"]))));
            ipc.apply(&Event::Roster(Arc::new(roster("lin", &["lin"]))));
        }
        assert_eq!(ipc.poll(), []);
        let lines = log.collect();
        assert!(lines.len() <= 5, "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("[ipc] cannot write ")));
    }
}
