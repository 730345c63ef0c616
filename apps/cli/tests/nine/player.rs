//! One player: a process of the program, the files it leaves, and the game behind it.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::stub::Stub;

/// Long enough for nine processes on a computer that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something; `what` says what did not come.
pub(crate) fn until(mut what: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match what() {
            Ok(()) => return,
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(25));
    }
}

pub(crate) struct Player {
    pub(crate) name: String,
    pub(crate) stub: Stub,
    dir: PathBuf,
    process: Option<Child>,
}

impl Player {
    pub(crate) fn new(number: u8, name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nine-{name}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self { name: name.to_owned(), stub: Stub::new(number, free_port()), dir, process: None }
    }

    /// Starts the process.
    pub(crate) fn open(&mut self, words: &[&str]) {
        let log = File::options().create(true).append(true).open(self.dir.join("stderr.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
        command.args(words).args(["--name", &self.name, "--local-port", "0", "--ui", "none", "--rendezvous", "off"]);
        command.args(["--game-relay-port", &self.stub.relay().to_string()]);
        command.args(["--game-local-port", &self.stub.port().to_string()]);
        command.arg("--io-dir").arg(&self.dir).env("TPF2MP_STUN", "off");
        command.env_remove("ANYWIRE_CODE").env_remove("ANYWIRE_PASSWORD");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Ends the process as a crash does: it says nothing to anybody.
    pub(crate) fn crash(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub(crate) fn terminate(&self) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for the process's own end: its exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.as_mut().unwrap().try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// Appends a command as a game does.
    pub(crate) fn ask(&self, line: &str) {
        let mut file = File::options().append(true).open(self.dir.join("lobby_in.jsonl")).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }

    /// `lobby_state.json`, which is whole at any moment once it is there.
    pub(crate) fn state(&self) -> Map<String, Value> {
        serde_json::from_str(&self.read("lobby_state.json")).unwrap_or_default()
    }

    /// The events of one kind told to the game so far. A line that is still being written is none yet.
    pub(crate) fn told(&self, kind: &str) -> Vec<Map<String, Value>> {
        let text = self.read("lobby_out.jsonl");
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let prefix = format!(r#"{{"type": "{kind}""#);
        whole.filter(|line| line.starts_with(&prefix)).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What this player has to agree on with all others.
    pub(crate) fn view(&self) -> Value {
        let state = self.state();
        let roster = self.told("roster").pop().unwrap_or_default();
        let both = |key: &str| [state.get(key).cloned(), roster.get(key).cloned()];
        let shared = ["players", "host", "lobby", "companies", "mode"].map(|key| serde_json::json!(both(key)));
        serde_json::json!([shared, roster.get("letters"), roster.get("relay")])
    }

    /// The players it sees.
    pub(crate) fn sees(&self) -> Vec<String> {
        let state = self.state();
        let names = state.get("players").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// How often its log says that it reached `other` directly.
    pub(crate) fn links_to(&self, other: &str) -> usize {
        self.read("stderr.log").matches(&format!("[mesh] {other} direct via ")).count()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            let log = self.read("stderr.log");
            let last: Vec<&str> = log.lines().rev().take(15).collect();
            eprintln!("== {}: {:?}", self.name, self.state());
            for line in last.iter().rev() {
                eprintln!("   {line}");
            }
        }
    }
}

/// A free port below those that systems hand out by themselves, so that it stays free until the process has it.
fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = 20_000 + u16::try_from(std::process::id() % 9_000).unwrap();
    loop {
        let port = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
