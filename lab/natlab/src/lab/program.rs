//! Programs inside a lab's machines: started, read, waited for, ended.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Handle;
use crate::net::Result;
use crate::sys;

const GLANCE: Duration = Duration::from_millis(5);
/// How much of what a program said stands in an error.
const TAIL: usize = 4000;

/// A program that runs inside a node. Dropping it kills it.
///
/// What it writes goes to files of the lab, so it never waits for a reader; its standard input is held open until
/// [`Program::end_input`].
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    out: Stream,
    err: Stream,
}

#[derive(Debug)]
struct Stream {
    file: File,
    /// Everything before this was waited for already.
    seen: usize,
}

impl Stream {
    /// The file's two ends: one for the program, one for us.
    fn pair(path: &Path) -> Result<(File, Stream)> {
        let fail = |e| format!("cannot make {}: {e}", path.display());
        let write = File::options().create_new(true).append(true).open(path).map_err(fail)?;
        Ok((write, Stream { file: File::open(path).map_err(fail)?, seen: 0 }))
    }

    fn bytes(&self) -> Vec<u8> {
        let length = self.file.metadata().map_or(0, |m| m.len() as usize);
        let mut all = vec![0; length];
        match self.file.read_exact_at(&mut all, 0) {
            Ok(()) => all,
            Err(_) => Vec::new(),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The first line with `wanted` in it that was not looked at before; a last line without an end counts.
    fn find(&mut self, wanted: &str) -> Option<String> {
        let all = self.bytes();
        let mut start = self.seen;
        for line in all.get(start..)?.split_inclusive(|b| *b == b'\n') {
            start += line.len();
            let text = String::from_utf8_lossy(line);
            if text.contains(wanted) {
                self.seen = start;
                return Some(text.trim_end().to_owned());
            }
        }
        None
    }
}

impl Handle {
    /// Starts a program inside a node. Its three standard streams are the [`Program`]'s, whatever the command says.
    pub fn spawn(&self, node: &str, mut command: Command) -> Result<Program> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.place(node, &mut command)?;
        let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = |end| self.dir.join(format!("{node}.{program}.{}.{number}.{end}", std::process::id()));
        let (stdout, out) = Stream::pair(&path("out"))?;
        let (stderr, err) = Stream::pair(&path("err"))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map_err(|e| format!("cannot run '{program}' in '{node}': {e}"))?;
        let input = child.stdin.take();
        Ok(Program { name: format!("{program} in {node}"), child, input, out, err })
    }

    /// Runs a program inside a node to its end. After `limit` it is killed, and that is an error.
    pub fn exec(&self, node: &str, command: Command, limit: Duration) -> Result<Output> {
        let mut program = self.spawn(node, command)?;
        program.end_input();
        let status = program.wait(limit)?;
        Ok(Output { status, stdout: program.out.bytes(), stderr: program.err.bytes() })
    }
}

impl Program {
    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard output so far.
    pub fn output(&self) -> String {
        self.out.text()
    }

    /// What it has written to standard error so far.
    pub fn errors(&self) -> String {
        self.err.text()
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or_else(|| format!("the input of {} has ended", self.name))?;
        writeln!(input, "{line}").map_err(|e| format!("{} does not listen: {e}", self.name))
    }

    /// Closes its standard input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Waits until a line with `text` in it is written to either stream, and answers that line. The next wait looks
    /// only at what comes after it in the same stream. A program that ends without saying so is an error, which shows
    /// what it said last.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        loop {
            // Asked first: what it wrote before its end is then seen below.
            let status = self.status();
            if let Some(line) = self.out.find(text).or_else(|| self.err.find(text)) {
                return Ok(line);
            }
            if let Some(status) = status {
                return Err(format!("{} ended ({status}) without '{text}'{}", self.name, self.tail()));
            }
            if Instant::now() >= end {
                return Err(format!("{} did not say '{text}' in {limit:?}{}", self.name, self.tail()));
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end. After `limit` that is an error, and it runs on.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.status() {
                return Ok(status);
            }
            if Instant::now() >= end {
                return Err(format!("{} did not end in {limit:?}{}", self.name, self.tail()));
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// As Ctrl-C.
    pub fn interrupt(&self) {
        sys::signal(self.child.id() as i32, sys::SIGINT);
    }

    /// Asks it to end (SIGTERM) and waits for that; see [`Program::wait`].
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        sys::signal(self.child.id() as i32, sys::SIGTERM);
        self.wait(limit)
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn tail(&self) -> String {
        let mut text = String::new();
        for (name, stream) in [("standard output", &self.out), ("standard error", &self.err)] {
            let all = stream.bytes();
            if !all.is_empty() {
                let last = all.get(all.len().saturating_sub(TAIL)..).unwrap_or_default();
                text += &format!("\n--- its {name}:\n{}", String::from_utf8_lossy(last).trim_end());
            }
        }
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
