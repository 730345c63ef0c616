//! The house's laws, read off the manifests and sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::report::Report;
use crate::{cargo, root};

/// Rooms by layer; an edge goes strictly to a lower one (docs/ARCHITECTURE.md).
const LAYERS: &[(&str, u8)] = &[
    ("anywire-codec", 0),
    ("anywire-seam", 1),
    ("anywire-joincode", 2),
    ("anywire-stun", 2),
    ("anywire-netem", 2),
    ("anywire-seal", 3),
    ("anywire-np1", 3),
    ("anywire-bridge", 3),
    ("anywire-punch", 4),
    ("anywire-lobby", 4),
    ("anywire-mesh", 4),
    ("anywire-lanes", 4),
    ("anywire-rendezvous", 4),
    ("anywire-link", 4),
    ("anywire-parcel", 4),
    ("anywire-nethernet", 4),
    ("anywire-session", 5),
    ("anywire-files", 6),
    ("anywire-net", 6),
    ("anywire-portmap", 6),
    ("anywire-driver", 7),
    ("anywire-nethernet-io", 7),
    ("anywire", 8),
    ("anywire-master", 8),
    ("anywire-cli", 9),
    ("anywire-demo", 9),
    ("anywire-bench", 10),
    ("anywire-interop", 11),
    ("anywire-world", 10),
    ("natlab", 10),
    ("xtask", 10),
];

/// Rooms that may use tokio: a server, and one that asks routers through a crate written for it, on threads of its own.
const TOKIO: &[&str] = &["anywire-master", "anywire-portmap"];
/// Rooms where `unsafe` may stand, each with its reason in the file.
const UNSAFE: &[&str] = &["io/net/", "io/steam/", "apps/godot/", "apps/capi/", "lab/natlab/", "proto/seal/src/x86.rs"];
/// Rooms that may open sockets of the operating system.
const SOCKETS: &[&str] = &["io/", "apps/master/", "lab/", "xtask/"];
/// Words that name a socket of the operating system.
const SOCKET_WORDS: &[&str] =
    &["std::net::UdpSocket", "std::net::TcpStream", "std::net::TcpListener", "socket2::", "mio::net"];
const MOST_LINES: usize = 800;

/// Checks every law.
pub(crate) fn check(report: &mut Report) {
    println!("== laws");
    report.check("layers", layers());
    let files = sources(&root());
    report.check("sources found", if files.len() > 20 { Ok(()) } else { Err("no sources".into()) });
    report.check(
        "file sizes",
        each(&files, |_, text| {
            let lines = text.lines().count();
            (lines > MOST_LINES).then(|| format!("{lines} lines, at most {MOST_LINES}"))
        }),
    );
    report.check(
        "unsafe code",
        each(&files, |name, text| {
            let used = text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl")
            });
            (used && !allowed(name, UNSAFE) && !name.starts_with("xtask/"))
                .then(|| "unsafe code outside its rooms".to_owned())
        }),
    );
    report.check(
        "sockets",
        each(&files, |name, text| {
            let word = SOCKET_WORDS.iter().find(|word| text.contains(*word))?;
            (!allowed(name, SOCKETS) && !name.starts_with("apps/") || name.starts_with("proto/"))
                .then(|| format!("{word} outside io/"))
        }),
    );
    report.check(
        "promises",
        each(&files, |name, text| {
            let words = ["todo!(", "unimplemented!(", "TODO", "FIXME"];
            let word = words.iter().find(|word| text.contains(*word))?;
            (!name.starts_with("xtask/")).then(|| format!("{word} left in the code"))
        }),
    );
}

fn allowed(name: &str, rooms: &[&str]) -> bool {
    rooms.iter().any(|room| name.starts_with(room))
}

fn each(files: &[(String, String)], rule: impl Fn(&str, &str) -> Option<String>) -> Result<(), String> {
    let broken: Vec<String> =
        files.iter().filter_map(|(name, text)| rule(name, text).map(|why| format!("{name}: {why}"))).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n  ")) }
}

/// Every Rust source of the workspace, by its path from the root.
fn sources(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["proto", "io", "apps", "lab", "xtask", "fuzz/fuzz_targets"].iter().map(|room| root.join(room)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs")
                && let (Ok(name), Ok(text)) = (path.strip_prefix(root), std::fs::read_to_string(&path))
            {
                found.push((name.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    found.sort();
    found
}

fn layers() -> Result<(), String> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output().map_err(|e| e.to_string())?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let known: BTreeMap<&str, u8> = LAYERS.iter().copied().collect();
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(layer) = known.get(name) else {
            broken.push(format!("{name} has no layer"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let needs = dependency["name"].as_str().unwrap_or_default();
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            if needs == "tokio" && !TOKIO.contains(&name) {
                broken.push(format!("{name} uses tokio; only {} may", TOKIO.join(", ")));
            }
            if let Some(below) = known.get(needs)
                && below >= layer
            {
                broken.push(format!("{name} (layer {layer}) may not use {needs} (layer {below})"));
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n  ")) }
}
