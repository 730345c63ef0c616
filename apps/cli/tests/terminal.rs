//! The panel on a real terminal device, made by `script` of util-linux; without that program there is nothing to test on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the panel on a terminal of its own; what the shell says of the terminal afterwards comes last.
fn panel(role: &str) -> Option<Terminal> {
    let io = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("terminal-{role}"));
    let line = format!(
        "stty rows 24 cols 80; echo before=$(stty -g).; sh -c 'echo pid=$$.; exec \"$@\"' sh '{}' host --name ada --local-port 0 --game-relay-port 0 \
         --io-dir '{}'; echo exit=$?; echo after=$(stty -g).",
        env!("CARGO_BIN_EXE_anywire"),
        io.display()
    );
    Command::new("script")
        .args(["-q", "-f", "-c", &line, "/dev/null"])
        .env("TPF2MP_STUN", "off")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()
        .map(Terminal)
}

/// A terminal that hangs up on whatever still runs on it when its test ends.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads until `what`, one word, was seen: the panel jumps over spaces.
fn until(Terminal(child): &mut Terminal, seen: &mut Vec<u8>, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let out = child.stdout.as_mut().unwrap();
    let mut buffer = [0; 4096];
    while !seen.windows(what.len()).any(|window| window == what.as_bytes()) {
        assert!(Instant::now() < deadline, "no {what:?} in {}", String::from_utf8_lossy(seen));
        match out.read(&mut buffer).unwrap() {
            0 => panic!("the terminal ended without {what:?}: {}", String::from_utf8_lossy(seen)),
            n => seen.extend_from_slice(&buffer[..n]),
        }
    }
}

/// The terminal is as it was: the first screen, a cursor, its settings.
fn assert_clean(seen: &[u8]) {
    let text = String::from_utf8_lossy(seen);
    let last = |what: &str| text.rfind(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
    assert!(last("\x1b[?1049l") > last("\x1b[?1049h"), "the second screen stays");
    assert!(last("\x1b[?25h") > last("\x1b[?25l"), "the cursor stays hidden");
    assert!(last("\x1b[?2004l") > last("\x1b[?2004h"), "pasting stays marked");
    let setting = |name: &str| text.split(name).nth(1).and_then(|rest| rest.split('.').next()).map(str::to_owned);
    assert!(setting("before=").is_some());
    assert_eq!(setting("before="), setting("after="), "line editing and echo");
}

#[test]
fn a_panel_shows_the_code_takes_keys_and_leaves_the_terminal_clean() {
    let Some(mut child) = panel("keys") else { return };
    let mut seen = Vec::new();
    until(&mut child, &mut seen, "CODE=");
    until(&mut child, &mut seen, "leave");
    child.0.stdin.as_mut().unwrap().write_all(b"c").unwrap();
    until(&mut child, &mut seen, "\x1b]52;c;");
    child.0.stdin.as_mut().unwrap().write_all(b"qy").unwrap();
    until(&mut child, &mut seen, "exit=0");
    let _ = child.0.stdout.take().unwrap().read_to_end(&mut seen);
    child.0.wait().unwrap();
    assert_clean(&seen);
}

#[test]
fn a_signal_leaves_the_terminal_clean_as_well() {
    let Some(mut child) = panel("signal") else { return };
    let mut seen = Vec::new();
    until(&mut child, &mut seen, "leave");
    let text = String::from_utf8_lossy(&seen).into_owned();
    let pid = text.split("pid=").nth(1).and_then(|rest| rest.split('.').next()).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid]).status().unwrap().success());
    until(&mut child, &mut seen, "exit=0");
    let _ = child.0.stdout.take().unwrap().read_to_end(&mut seen);
    child.0.wait().unwrap();
    assert_clean(&seen);
}

#[test]
fn a_terminal_that_is_closed_ends_the_program() {
    let Some(mut child) = panel("closed") else { return };
    let mut seen = Vec::new();
    until(&mut child, &mut seen, "leave");
    let text = String::from_utf8_lossy(&seen).into_owned();
    let pid = text.split("pid=").nth(1).and_then(|rest| rest.split('.').next()).unwrap();
    let process = std::path::Path::new("/proc").join(pid);
    let is_program = || std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "anywire");
    assert!(is_program());
    drop(child);
    let deadline = Instant::now() + Duration::from_secs(30);
    while is_program() {
        assert!(Instant::now() < deadline, "process {pid} lives on without a terminal");
        std::thread::sleep(Duration::from_millis(50));
    }
}
