//! What a lab leaves on the machine, and who holds it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::net::{self, Result};
use crate::sys;

/// Where the labs of this machine keep their state. One place for all: a lab
/// without an owner there is one that was left behind.
pub(crate) fn state_root() -> PathBuf {
    PathBuf::from("/run/natlab")
}

pub(crate) fn check_lab_name(name: &str) -> Result<()> {
    let ok = !name.is_empty()
        && name.len() <= 40
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if ok { Ok(()) } else { Err(format!("'{name}' is no name for a lab (small letters, digits and '-', 40 at most)")) }
}

/// The process that holds a lab, when it still lives.
pub(crate) fn owner(dir: &Path) -> Option<i32> {
    let text = fs::read_to_string(dir.join("owner")).ok()?;
    let (pid, started) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok()?;
    (net::start_time(pid) == started.parse().ok()).then_some(pid)
}

/// Removes whatever is left of a lab whose owner is gone (or is this process).
pub(crate) fn clean(name: &str) -> Result<()> {
    check_lab_name(name)?;
    let names = net::namespaces_of(name);
    end_processes(&names);
    net::delete_namespaces(&names)?;
    let dir = state_root().join(name);
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("cannot remove {}: {e}", dir.display())),
        _ => Ok(()),
    }
}

/// Ends the processes that still run inside namespaces of ours.
fn end_processes(names: &[String]) {
    for (signal, patience) in [(sys::SIGTERM, 1000), (sys::SIGKILL, 2000)] {
        let mut left = net::processes_in(names);
        for pid in &left {
            sys::signal(*pid, signal);
        }
        let end = Instant::now() + Duration::from_millis(patience);
        while !left.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            left = net::processes_in(names);
        }
        if left.is_empty() {
            return;
        }
    }
}

/// Serialises what starts and ends labs on this machine.
pub(crate) struct Lock(#[allow(dead_code, reason = "held, not read")] File);

impl Lock {
    pub(crate) fn take() -> Result<Lock> {
        let root = state_root();
        fs::create_dir_all(&root).map_err(|e| format!("cannot make {}: {e}", root.display()))?;
        let path = root.join("lock");
        let file = File::create(&path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
        file.lock().map_err(|e| format!("cannot lock {}: {e}", path.display()))?;
        Ok(Lock(file))
    }
}

/// Removes every lab whose owner is gone, for a caller that holds the lock;
/// says which.
pub(crate) fn remove_left_behind(_: &Lock) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for (name, owner) in known_labs() {
        if owner.is_none() {
            clean(&name)?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// The labs that this machine knows of, running or left behind.
pub(crate) fn known_labs() -> Vec<(String, Option<i32>)> {
    let mut names = net::labs_with_namespaces();
    for e in fs::read_dir(state_root()).into_iter().flatten().flatten() {
        if e.path().join("owner").exists() {
            names.extend(e.file_name().into_string().ok());
        }
    }
    names.sort();
    names.dedup();
    names
        .into_iter()
        .map(|n| {
            let pid = owner(&state_root().join(&n));
            (n, pid)
        })
        .collect()
}
