//! Saves between real processes: START GAME with a save, a player killed on the way, players who come late.

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
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);

/// A folder of its own for one process.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("saves-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn ask(&self, line: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.0.join("lobby_in.jsonl")).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "no {what}; told so far:\n{}", self.read("lobby_out.jsonl"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_for(&self, what: &str) {
        self.wait(what, || self.read("lobby_out.jsonl").contains(what));
    }
}

/// A process that does not outlive its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn anywire(args: &[&str], dir: &Dir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
    command.args(args).args(["--ui", "none", "--game-relay-port", "0", "--io-dir"]).arg(&dir.0);
    command.env("TPF2MP_STUN", "off").env_remove("ANYWIRE_CODE").env_remove("ANYWIRE_PASSWORD");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn host(dir: &Dir, more: &[&str]) -> (Process, String) {
    let args = ["host", "--name", "ada", "--local-port", "0"];
    let mut child = anywire(&[&args, more].concat(), dir).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(child), line.trim_end().strip_prefix("CODE=").unwrap().to_owned())
}

fn join(dir: &Dir, name: &str, code: &str) -> Process {
    let child = Process(anywire(&["join", code, "--name", name], dir).spawn().unwrap());
    dir.wait_for(r#""detail": "in the lobby""#);
    child
}

/// Bytes that do not repeat.
fn noise(len: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A save with its script and picture, and how a game asks to start with it.
fn world(dir: &Dir, name: &str, len: usize) -> ([Vec<u8>; 3], String) {
    let files = [
        noise(len, 1),
        b"return { scripts = {[\"lockstep.lua\"]} } -- [\"lockstep.lua\"]\n".to_vec(),
        noise(40_000, 2),
    ];
    let path = dir.0.join(format!("{name}.sav"));
    fs::write(&path, &files[0]).unwrap();
    fs::write(dir.0.join(format!("{name}.sav.lua")), &files[1]).unwrap();
    fs::write(dir.0.join(format!("{name}.jpg")), &files[2]).unwrap();
    (files, format!(r#"{{"cmd": "start", "save": "{}"}}"#, path.display()))
}

fn has(dir: &Dir, files: &[Vec<u8>; 3]) {
    for (name, bytes) in ["incoming_save.sav", "incoming_save.sav.lua", "incoming_save.jpg"].iter().zip(files) {
        assert!(fs::read(dir.0.join(name)).unwrap() == *bytes, "{name} is not what was sent");
    }
    let left: Vec<String> = fs::read_dir(&dir.0)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.contains(".part"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_save_and_its_sidecars_reach_everybody_though_one_dies_and_two_come_late() {
    let [ada_dir, bea_dir, cyn_dir, dan_dir, eve_dir] = ["ada", "bea", "cyn", "dan", "eve"].map(Dir::new);
    let (files, start) = world(&ada_dir, "tuesday", 5_000_000);
    // The way is slow enough for somebody to die on it.
    let (_ada, code) = host(&ada_dir, &["--impair", "delay=0.1"]);
    let _bea = join(&bea_dir, "bea", &code);
    let cyn = join(&cyn_dir, "cyn", &code);
    ada_dir.wait_for(r#""players": ["ada", "bea", "cyn"]"#);
    ada_dir.ask(&start);
    cyn_dir.wait("part of a save", || cyn_dir.0.join("incoming_save.sav.part").exists());
    drop(cyn);
    assert!(!cyn_dir.0.join("incoming_save.sav").exists(), "nothing stands under its name before it is whole");
    let _dan = join(&dan_dir, "dan", &code);

    for (dir, name) in [(&bea_dir, "bea"), (&dan_dir, "dan")] {
        dir.wait_for(r#"{"type": "start", "save": true}"#);
        has(dir, &files);
        let told = dir.read("lobby_out.jsonl");
        let ready = told.find(r#"{"type": "save_ready", "name": "incoming_save.sav", "dir": "#).unwrap();
        assert!(ready < told.find(r#"{"type": "start""#).unwrap(), "{name} can load it when it starts");
    }
    let told = ada_dir.read("lobby_out.jsonl");
    assert!(told.contains(r#"{"type": "transfer", "role": "send", "peer": "cyn", "state": "dropped"}"#), "{told}");
    assert_eq!(told.matches(r#"{"type": "start", "save": true}"#).count(), 1, "{told}");

    let _eve = join(&eve_dir, "eve", &code);
    eve_dir.wait_for(r#"{"type": "start", "save": true}"#);
    has(&eve_dir, &files);
    assert_eq!(bea_dir.read("lobby_out.jsonl").matches(r#""type": "start""#).count(), 1, "who plays is left alone");
}

#[test]
fn a_second_start_waits_for_the_first_and_the_newest_wins() {
    let [ada_dir, bea_dir] = ["queue-ada", "queue-bea"].map(Dir::new);
    let (_, first) = world(&ada_dir, "first", 3_000_000);
    let (_, second) = world(&ada_dir, "second", 10);
    let (third, switch) = world(&ada_dir, "third", 100_000);
    let switch = switch.replace('}', r#", "switch": true}"#);
    let (_ada, code) = host(&ada_dir, &["--impair", "delay=0.05"]);
    let _bea = join(&bea_dir, "bea", &code);
    ada_dir.wait_for(r#""players": ["ada", "bea"]"#);
    for line in [first, second, switch] {
        ada_dir.ask(&line);
    }
    bea_dir.wait_for(r#"{"type": "start", "save": true}"#);
    bea_dir.wait_for(r#"{"type": "start", "save": true, "switch": true}"#);
    has(&bea_dir, &third);
    let told = bea_dir.read("lobby_out.jsonl");
    assert_eq!(told.matches(r#""type": "save_ready""#).count(), 2, "{told}");
    assert_eq!(told.matches(r#""type": "transport_lobby""#).count(), 2, "another world has another nonce: {told}");
}

#[test]
fn a_save_that_would_not_play_in_step_is_refused_and_said() {
    let dir = Dir::new("refused");
    let (_ada, _code) = host(&dir, &[]);
    dir.wait_for(r#"{"type": "code""#);
    fs::write(dir.0.join("alone.sav"), "a world").unwrap();
    fs::write(dir.0.join("alone.sav.lua"), "return {}").unwrap();
    dir.ask(&format!(r#"{{"cmd": "start", "save": "{}"}}"#, dir.0.join("alone.sav").display()));
    dir.wait_for("was made without the multiplayer script");
    dir.ask(&format!(r#"{{"cmd": "start", "save": "{}"}}"#, dir.0.join("none.sav").display()));
    dir.wait_for("none.sav cannot be read");
    assert!(!dir.read("lobby_out.jsonl").contains(r#""type": "start""#));
}

#[test]
fn a_relay_takes_its_leaders_world_hands_it_out_and_has_it_after_being_killed() {
    let [relay_dir, ada_dir, bea_dir, cyn_dir, dan_dir] =
        ["relay", "relay-ada", "relay-bea", "relay-cyn", "relay-dan"].map(Dir::new);
    let (files, start) = world(&ada_dir, "tuesday", 2_000_000);
    let (relay, code) = host(&relay_dir, &["--relay-only"]);
    let ada = join(&ada_dir, "ada", &code);
    let bea = join(&bea_dir, "bea", &code);
    ada_dir.wait_for(r#""players": ["ada", "bea"], "you": "ada", "host": "ada""#);
    bea_dir.ask(&start);
    ada_dir.ask(&start);
    bea_dir.wait_for(r#"{"type": "start", "save": true}"#);
    ada_dir.wait_for(r#"{"type": "start", "save": true}"#);
    has(&relay_dir, &files);
    has(&bea_dir, &files);
    assert!(!ada_dir.0.join("incoming_save.sav").exists(), "who brought it is not sent it");
    let _cyn = join(&cyn_dir, "cyn", &code);
    cyn_dir.wait_for(r#"{"type": "start", "save": true}"#);
    has(&cyn_dir, &files);

    drop((relay, ada, bea));
    let (_relay, again) = host(&relay_dir, &["--relay-only"]);
    let _dan = join(&dan_dir, "dan", &again);
    dan_dir.wait_for(r#"{"type": "start", "save": true}"#);
    has(&dan_dir, &files);
}
