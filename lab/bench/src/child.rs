//! Contestants that have to be processes of their own: this program once more, in a role.
//!
//! A child reads orders from standard input, one a line, answers on standard output and ends when its input does.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use crate::{forward, frames, master_load, players};

const SWITCH: &str = "--child";

/// A running child.
pub struct Child {
    role: String,
    process: std::process::Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts this program again as `role`.
    ///
    /// # Panics
    /// When the system does not.
    #[must_use]
    pub fn start(role: &str, args: &[&dyn Display]) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        let mut process = Command::new(program)
            .arg(SWITCH)
            .arg(role)
            .args(args.iter().map(ToString::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { role: role.to_owned(), process, orders, answers }
    }

    /// Its next line.
    ///
    /// # Panics
    /// When it ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("a line");
        assert!(read > 0, "the child process '{}' ended", self.role);
        line.trim_end().to_owned()
    }

    /// Its next line as one value.
    ///
    /// # Panics
    /// When it is none.
    pub fn value<T: FromStr>(&mut self) -> T {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("'{}' answered '{line}'", self.role))
    }

    /// Gives an order.
    ///
    /// # Panics
    /// When it ended.
    pub fn order(&mut self, line: &str) {
        let orders = self.orders.as_mut().expect("a running child");
        writeln!(orders, "{line}").and_then(|()| orders.flush()).expect("a child that listens");
    }

    /// Gives an order and reads the answer.
    pub fn ask<T: FromStr>(&mut self, line: &str) -> T {
        self.order(line);
        self.value()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.orders = None;
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It hangs: nobody needs it any more.
        let _gone = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Every program here begins with this: a child does its part and never returns.
pub fn dispatch() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [switch, role, rest @ ..] = args.as_slice() else { return };
    if switch != SWITCH {
        return;
    }
    match role.as_str() {
        "stub" => forward::stub(),
        "forwarder" => forward::forwarder(),
        "lobby-host" => forward::host(rest),
        "lobby-join" => forward::join(rest),
        "frames-join" => frames::join(rest),
        "players-host" => players::host(rest),
        "master" => master_load::master(rest),
        "fan-out" => players::fan_out(rest),
        _ => panic!("no such role: {role}"),
    }
    std::process::exit(0);
}

/// Answers a parent.
pub(crate) fn answer(value: &dyn Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).expect("a parent that listens");
}

/// Orders until the parent has no more.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}
