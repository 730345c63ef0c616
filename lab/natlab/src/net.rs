//! Namespaces, tunnel devices and the handful of tools that configure them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sys;

/// What went wrong is one sentence for a person.
pub type Result<T> = std::result::Result<T, String>;

const NETNS: &str = "/run/netns";

/// The name of a node's namespace, as `ip netns` shows it. Neither part can
/// hold a dot of its own in front, so no lab's prefix is another's.
pub(crate) fn namespace(lab: &str, node: &str) -> String {
    format!("nl.{lab}.{node}")
}

pub(crate) fn namespace_path(lab: &str, node: &str) -> PathBuf {
    Path::new(NETNS).join(namespace(lab, node))
}

/// Every namespace that a lab of this name has left or has now.
pub(crate) fn namespaces_of(lab: &str) -> Vec<String> {
    let prefix = format!("nl.{lab}.");
    let mut names: Vec<String> = fs::read_dir(NETNS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|n| n.starts_with(&prefix))
        .collect();
    names.sort();
    names
}

/// The labs that have namespaces, whoever made them.
pub(crate) fn labs_with_namespaces() -> Vec<String> {
    let mut labs: Vec<String> = fs::read_dir(NETNS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter_map(|n| Some(n.strip_prefix("nl.")?.split_once('.')?.0.to_string()))
        .collect();
    labs.sort();
    labs.dedup();
    labs
}

pub(crate) fn open_namespace(lab: &str, node: &str) -> Result<File> {
    let path = namespace_path(lab, node);
    File::open(&path).map_err(|e| format!("cannot open the namespace of '{node}' ({}): {e}", path.display()))
}

/// Runs `f` on a thread of its own inside a namespace. Sockets that it makes
/// stay in that namespace for good.
pub(crate) fn inside<T: Send>(ns: &File, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|s| {
        s.spawn(|| sys::enter(ns).map(|()| f())).join().unwrap_or_else(|p| std::panic::resume_unwind(p))
    })
}

fn run(mut command: Command, what: &str, input: &str) -> Result<String> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| {
            match e.kind() {
                io::ErrorKind::NotFound => format!("'{what}' is not installed (Debian package: {})", package(what)),
                _ => format!("cannot run {what}: {e}"),
            }
        })?;
    if let Some(mut pipe) = child.stdin.take() {
        // A tool that stopped early says why on its error output.
        let _ = pipe.write_all(input.as_bytes());
    }
    let mut out = String::new();
    let mut err = String::new();
    if let Some(mut o) = child.stdout.take() {
        let _ = o.read_to_string(&mut out);
    }
    if let Some(mut e) = child.stderr.take() {
        let _ = e.read_to_string(&mut err);
    }
    let status = child.wait().map_err(|e| format!("{what}: {e}"))?;
    if status.success() {
        Ok(out)
    } else {
        Err(format!("{what} failed ({status}): {}\ninput was:\n{input}", err.trim()))
    }
}

fn package(tool: &str) -> &str {
    match tool {
        "ip" => "iproute2",
        "nft" => "nftables",
        "miniupnpd" => "miniupnpd-nftables",
        other => other,
    }
}

/// Runs `ip -batch` in the calling thread's namespace.
pub(crate) fn ip_batch(lines: &str) -> Result<()> {
    let mut c = Command::new("ip");
    c.args(["-batch", "-"]);
    run(c, "ip", lines).map(drop)
}

pub(crate) fn nft(rules: &str) -> Result<()> {
    let mut c = Command::new("nft");
    c.args(["-f", "-"]);
    run(c, "nft", rules).map(drop)
}

/// Deletes namespaces; those already gone are no error.
pub(crate) fn delete_namespaces(names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let lines: String = names.iter().map(|n| format!("netns del {n}\n")).collect();
    let mut c = Command::new("ip");
    c.args(["-force", "-batch", "-"]);
    let result = run(c, "ip", &lines);
    let left: Vec<&String> = names.iter().filter(|n| Path::new(NETNS).join(n).exists()).collect();
    match (left.is_empty(), result) {
        (true, _) => Ok(()),
        (false, Err(e)) => Err(e),
        (false, Ok(_)) => Err(format!("namespaces would not go: {left:?}")),
    }
}

pub(crate) fn sysctl(key: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{key}");
    match fs::write(&path, value) {
        // Kernels built without a part have no setting for it.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("cannot set {path}: {e}")),
        _ => Ok(()),
    }
}

/// The processes whose main thread is in one of these namespaces.
pub(crate) fn processes_in(names: &[String]) -> Vec<i32> {
    use std::os::unix::fs::MetadataExt;
    let inodes: Vec<(u64, u64)> =
        names.iter().filter_map(|n| fs::metadata(Path::new(NETNS).join(n)).ok()).map(|m| (m.dev(), m.ino())).collect();
    let own = std::process::id() as i32;
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| inodes.contains(&(m.dev(), m.ino()))))
        .collect()
}

/// When a process started, in clock ticks since boot: with its number, this
/// tells it from a later process of the same number.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// What this machine lacks to hold a lab.
pub fn lacks() -> Option<String> {
    if !sys::is_root() {
        return Some("must run as root: it makes network namespaces".into());
    }
    if let Err(e) = File::options().read(true).write(true).open("/dev/net/tun") {
        return Some(format!("cannot open /dev/net/tun: {e}"));
    }
    if let Err(e) = std::thread::scope(|s| s.spawn(sys::enter_new).join().unwrap_or(Ok(()))) {
        return Some(format!("cannot make a network namespace: {e}"));
    }
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ip.is_err().then(|| format!("'ip' is not installed (Debian package: {})", package("ip")))
}

/// Fails with what is missing when this machine cannot hold a lab.
pub(crate) fn check_machine() -> Result<()> {
    lacks().map_or(Ok(()), Err)
}

/// Whether `test` can hold a lab here. If not, one line on standard error says what is skipped and why.
pub fn ready(test: &str) -> bool {
    let lacks = lacks();
    if let Some(why) = &lacks {
        skipped(test, why);
    }
    lacks.is_none()
}

/// Says so past the test harness, which hides what a test that passes has printed.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED {what}: {why}");
}
