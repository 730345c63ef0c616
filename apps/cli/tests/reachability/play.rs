//! One pair: a master, a host and a joiner as processes, and a game at both ends that sends from the beginning.

use std::fmt;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use natlab::{Lab, Program};

use crate::cases::{Case, Want, is_direct};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(45);
/// A way that may still get better has this long for it.
const BETTER: Duration = Duration::from_secs(6);
/// Between two frames of a game.
const FRAME_EVERY: Duration = Duration::from_millis(5);
/// Where the programs hand over frames, and where they take them.
const GAME: u16 = 7771;
const HOST_RELAY: u16 = 7773;
const JOIN_RELAY: u16 = 7774;

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Frames passed both ways.
    Met {
        /// The way at the end, in the program's words.
        route: String,
        /// From the start of the joiner's program to its game's first frame.
        first: Duration,
        /// From there to the way at the end.
        settled: Duration,
        /// What the doctor said of the pair.
        verdict: Option<String>,
    },
    /// They did not; the text says how far it came.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met { route, first, settled, verdict } => {
                write!(f, "{route}, first frame after {} ms", first.as_millis())?;
                if settled > first {
                    write!(f, ", that way after {} ms", settled.as_millis())?;
                }
                match verdict {
                    Some(verdict) => write!(f, ", foretold as {verdict}"),
                    None => Ok(()),
                }
            }
            Self::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// A folder for one game's processes, removed with it.
struct Dir(PathBuf);

impl Dir {
    fn new(number: usize) -> Self {
        let path = std::env::temp_dir().join(format!("anywire-reachability-{}-{number}", std::process::id()));
        let _none = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Plays a case once.
pub(crate) fn play(case: &Case, number: usize, traced: bool) -> Outcome {
    let dir = Dir::new(number);
    match Game::begin(case, &dir) {
        Ok(mut game) => {
            let outcome = game.run(case).unwrap_or_else(Outcome::Failed);
            if traced || matches!(outcome, Outcome::Failed(_)) {
                println!("--- {}: host\n{}--- joiner\n{}", case.name, game.host.errors(), game.joined());
            }
            outcome
        }
        Err(why) => Outcome::Failed(why),
    }
}

struct Game<'a> {
    // Programs end before their lab does.
    host: Program,
    join: Option<Program>,
    _master: Program,
    lab: Lab,
    dir: &'a Dir,
    url: String,
    code: String,
    games: [UdpSocket; 2],
}

impl<'a> Game<'a> {
    fn begin(case: &Case, dir: &'a Dir) -> Result<Self, String> {
        let lab = Lab::up(&case.topology)?;
        lab.set("master", "delay=10ms")?;
        let ip = lab.ip("master")?.to_string();
        let words = ["master", "--bind", "0.0.0.0", "--port", "80", "--relay-ip", &ip];
        let mut master = lab.spawn("master", anywire(dir, "master", &words))?;
        master.wait_for("the master listens", PATIENCE)?;
        let url = format!("http://{ip}");
        let map = if case.is_mapped() { "on" } else { "off" };
        let words = ["host", "--rendezvous", &url, "--portmap", map];
        let games = [socket(&lab, "ada")?, socket(&lab, "lin")?];
        let mut host = lab.spawn("ada", player(&lab, dir, "ada", HOST_RELAY, &words))?;
        let code = host.wait_for("CODE=", PATIENCE)?.trim_start_matches("CODE=").to_owned();
        Ok(Self { host, join: None, _master: master, lab, dir, url, code, games })
    }

    fn joined(&self) -> String {
        self.join.as_ref().map(Program::errors).unwrap_or_default()
    }

    fn run(&mut self, case: &Case) -> Result<Outcome, String> {
        let words = ["join", &self.code, "--rendezvous", &self.url];
        let command = player(&self.lab, self.dir, "lin", JOIN_RELAY, &words);
        let begun = Instant::now();
        self.join = Some(self.lab.spawn("lin", command)?);
        let first = self.frames(begun)?;
        let (mut route, mut settled) = (self.route()?, first);
        let hopes = match case.want {
            Want::Direct(_) | Want::GuessOrRelay => !is_direct(&route),
            Want::Tcp => route == "relay",
        };
        let until = Instant::now() + BETTER;
        while hopes && Instant::now() < until {
            self.send();
            let now = self.route()?;
            if now != route {
                (route, settled) = (now, begun.elapsed());
                if is_direct(&route) || case.want == Want::Tcp {
                    break;
                }
            }
            std::thread::sleep(FRAME_EVERY);
        }
        // On the way that stays, frames pass as well.
        self.drain();
        self.frames(begun)?;
        let join = self.join.as_mut().ok_or("there is no joiner")?;
        let status = join.terminate(PATIENCE)?;
        if !status.success() {
            return Err(format!("the joiner ended with {status}: {}", join.errors()));
        }
        let verdict = self.verdict();
        Ok(Outcome::Met { route, first, settled, verdict })
    }

    fn send(&self) {
        for (game, relay) in self.games.iter().zip([HOST_RELAY, JOIN_RELAY]) {
            // Nobody listens there at first.
            let _refused = game.send_to(b"a frame of the game", (Ipv4Addr::LOCALHOST, relay));
        }
    }

    fn drain(&self) {
        let mut buffer = [0; 100];
        for game in &self.games {
            while game.recv(&mut buffer).is_ok() {}
        }
    }

    /// Waits until a frame has come at both ends; when the joiner's did.
    fn frames(&mut self, begun: Instant) -> Result<Duration, String> {
        let mut came = [None, None];
        let mut buffer = [0; 100];
        while let [None, _] | [_, None] = came {
            self.send();
            for (game, came) in self.games.iter().zip(&mut came) {
                if came.is_none() && game.recv(&mut buffer).is_ok() {
                    *came = Some(begun.elapsed());
                }
            }
            if let Some(status) = self.join.as_mut().and_then(Program::status) {
                return Err(format!("the joiner ended with {status}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("no frame in {PATIENCE:?}: {came:?}"));
            }
        }
        came[1].ok_or_else(|| "no frame".to_owned())
    }

    /// The way that was told last. Its line may come a moment after the first frame.
    fn route(&self) -> Result<String, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.joined();
            let line = said.lines().rev().find(|line| line.contains("[race] WON") && line.ends_with(" ms"));
            if let Some(line) = line {
                let way = line.split_once(" via ").and_then(|(_, rest)| rest.split_once(" after "));
                return way.map(|(way, _)| way.to_owned()).ok_or_else(|| format!("no way is named: {line}"));
            }
            if Instant::now() >= until {
                return Err("no way was told".to_owned());
            }
            std::thread::sleep(FRAME_EVERY);
        }
    }

    /// What the doctor foretells from the joiner's machine.
    fn verdict(&self) -> Option<String> {
        let words = ["doctor", &self.code, "--json", "--rendezvous", &self.url, "--portmap", "off"];
        let mut command = anywire(self.dir, "doctor", &words);
        command.env("TPF2MP_STUN", stun(&self.lab));
        let output = self.lab.exec("lin", command, PATIENCE).ok()?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(said.get("verdict")?.get("route")?.as_str()?.to_owned())
    }
}

/// A game's socket: it hears what the program at its machine hands over, and is not waited for.
fn socket(lab: &Lab, node: &str) -> Result<UdpSocket, String> {
    let bound = lab.inside(node, || UdpSocket::bind((Ipv4Addr::LOCALHOST, GAME)))?;
    let socket = bound.map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(FRAME_EVERY / 2)).map_err(|error| error.to_string())?;
    Ok(socket)
}

fn stun(lab: &Lab) -> String {
    lab.stun_servers().map(|[at, _]| at.to_string()).join(",")
}

fn anywire(dir: &Dir, name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
    command.args(words).env_remove("ANYWIRE_MASTER").env("XDG_DATA_HOME", dir.0.join(format!("{name}.data")));
    for proxy in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    command
}

fn player(lab: &Lab, dir: &Dir, name: &str, relay: u16, words: &[&str]) -> Command {
    let mut command = anywire(dir, name, words);
    command.args(["--ui", "plain", "--name", name, "--game-relay-port", &relay.to_string(), "--io-dir"]);
    command.arg(dir.0.join(name)).env("TPF2MP_STUN", stun(lab)).env("TPF2MP_LOG_IPS", "1");
    command
}
