//! The program as a game and a shell see it: processes, files, exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]
#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of its own for one test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Appends a command as a game does.
    fn ask(&self, line: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.0.join("lobby_in.jsonl")).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn wait_for(&self, name: &str, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.read(name).contains(what) {
            assert!(Instant::now() < deadline, "no {what:?} in {name}:\n{}", self.read(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn anywire(args: &[&str], dir: &Dir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
    command.args(args).arg("--io-dir").arg(&dir.0).env("TPF2MP_STUN", "off");
    command.env_remove("ANYWIRE_CODE").env_remove("ANYWIRE_PASSWORD");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn host(dir: &Dir, more: &[&str]) -> (Process, String) {
    let args = ["host", "--name", "ada", "--local-port", "0", "--game-relay-port", "0"];
    let mut child = anywire(&[&args, more].concat(), dir).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let code = line.trim_end().strip_prefix("CODE=").unwrap().to_owned();
    (Process(child), code)
}

fn join(dir: &Dir, code: &str, more: &[&str]) -> Process {
    let args = ["join", code, "--name", "lin", "--game-relay-port", "0"];
    Process(anywire(&[&args, more].concat(), dir).spawn().unwrap())
}

#[test]
fn a_game_hosts_joins_talks_and_leaves_through_the_files() {
    let (one, two) = (Dir::new("files-host"), Dir::new("files-join"));
    fs::write(two.0.join("incoming_save.sav"), "an old save").unwrap();
    let (mut ada, code) = host(&one, &["--ui", "none", "--lobby-name", "Tuesday"]);
    let log = two.0.join("game.log");
    let mut lin = join(&two, &code.to_lowercase(), &["--forward-log", log.to_str().unwrap()]);
    two.wait_for("lobby_out.jsonl", r#""players": ["ada", "lin"], "you": "lin", "host": "ada", "lobby": "Tuesday""#);
    assert!(!two.0.join("incoming_save.sav").exists());
    two.ask(r#"{"cmd": "chat", "text": "ready?"}"#);
    one.wait_for("lobby_out.jsonl", r#"{"type": "chat", "from": "lin", "text": "ready?", "ts": "#);
    fs::write(&log, "a line of the game\n").unwrap();
    one.wait_for("lobby_peers.log", "[lin] a line of the game");
    one.ask(r#"{"cmd": "start"}"#);
    two.wait_for("lobby_out.jsonl", r#"{"type": "start", "save": false}"#);
    two.wait_for("lobby_state.json", r#""started": true"#);
    two.ask(r#"{"cmd": "quit"}"#);
    assert_eq!(lin.wait().code(), Some(0));
    one.wait_for("lobby_state.json", r#""players": ["ada"]"#);
    assert!(two.read("lobby_state.json").contains(r#""state": "disconnected""#));
    ada.signal("-TERM");
    assert_eq!(ada.wait().code(), Some(0), "a signal leaves like quit");
}

#[test]
fn a_password_locks_the_code_and_may_come_from_the_environment() {
    let (one, two, three) = (Dir::new("lock-host"), Dir::new("lock-join"), Dir::new("lock-wrong"));
    let (_ada, code) = host(&one, &["--password", "sesame"]);
    let args = ["join", code.as_str(), "--name", "lin", "--game-relay-port", "0"];
    let _lin = Process(anywire(&args, &two).env("ANYWIRE_PASSWORD", "sesame").spawn().unwrap());
    two.wait_for("lobby_state.json", r#""state": "connected""#);
    let mut wrong = join(&three, &code, &["--password", "simsalabim"]);
    assert_eq!(wrong.wait().code(), Some(2));
    assert!(three.read("lobby_out.jsonl").contains(r#""state": "failed", "detail": "bad code: "#));
    let mut none = join(&three, &code, &[]);
    assert_eq!(none.wait().code(), Some(2));
}

#[test]
fn a_code_that_is_none_ends_with_2_and_says_why_in_the_files() {
    let dir = Dir::new("bad-code");
    let mut bad = join(&dir, "TFVL!CO4A", &[]);
    assert_eq!(bad.wait().code(), Some(2));
    let out = dir.read("lobby_out.jsonl");
    assert!(out.contains(r#"{"type": "status", "state": "failed", "detail": "bad code: character 5"#), "{out}");
    assert!(dir.read("lobby_state.json").contains(r#""state": "failed""#));
}

#[test]
fn an_unreachable_host_ends_with_1_and_a_stop_before_that_with_130() {
    let (one, two, three) = (Dir::new("gone-host"), Dir::new("gone-join"), Dir::new("gone-stop"));
    let (ada, code) = host(&one, &[]);
    drop(ada);
    let mut lin = join(&two, &code, &["--timeout", "1"]);
    assert_eq!(lin.wait().code(), Some(1));
    assert!(two.read("lobby_state.json").contains(r#""state": "failed""#));
    let mut lin = join(&three, &code, &[]);
    three.wait_for("lobby_out.jsonl", r#""state": "connecting""#);
    lin.signal("-INT");
    assert_eq!(lin.wait().code(), Some(130));
}

#[test]
fn pain_99_a_broken_output_ends_nothing() {
    let (one, two) = (Dir::new("broken-host"), Dir::new("broken-join"));
    let args = ["host", "--name", "ada", "--local-port", "0", "--game-relay-port", "0"];
    let mut child = anywire(&args, &one).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let mut ada = Process(child);
    one.wait_for("lobby_out.jsonl", r#"{"type": "code""#);
    let line = one.read("lobby_out.jsonl");
    let code = line.split('"').skip_while(|part| *part != "code").nth(4).unwrap().to_owned();
    let _lin = join(&two, &code, &[]);
    two.wait_for("lobby_state.json", r#""state": "connected""#);
    one.ask(r#"{"cmd": "quit"}"#);
    assert_eq!(ada.wait().code(), Some(0));
}

#[test]
fn pain_52_the_lobby_ends_with_the_game_that_started_it() {
    let dir = Dir::new("parent");
    let mut game = Command::new("sleep").arg("600").spawn().unwrap();
    let (mut ada, _code) = host(&dir, &["--parent-pid", &game.id().to_string()]);
    game.kill().unwrap();
    assert_eq!(ada.wait().code(), Some(0));
    game.wait().unwrap();
}

#[test]
fn a_server_that_is_always_on_keeps_its_secret() {
    let dir = Dir::new("kept");
    let (ada, _) = host(&dir, &["--dedicated"]);
    drop(ada);
    let first = fs::read(dir.0.join("relay_secret.bin")).unwrap();
    let (_ada, _) = host(&dir, &["--relay-only"]);
    assert_eq!((first.len(), fs::read(dir.0.join("relay_secret.bin")).unwrap()), (12, first));
}

#[test]
fn called_netpunch_it_is_the_original() {
    let dir = Dir::new("netpunch");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
        command.arg0("netpunch").args(args).current_dir(&dir.0).env("TPF2MP_STUN", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
    };
    assert_eq!(run(&["--selftest-dual"]).status.code(), Some(1));
    assert_eq!(run(&["--print-public-list", "http://127.0.0.1:1"]).status.code(), Some(1));
    assert_eq!(run(&["join", "TFVL", "--name", "lin"]).status.code(), Some(2));
    assert!(dir.0.join("lobby_out.jsonl").exists(), "its files are in the current folder");
    let refused = run(&["host", "--nonsense"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
}
