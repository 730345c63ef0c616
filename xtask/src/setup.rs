//! Installs what the tests with network namespaces call, where that is possible.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::report::Report;

/// Programs with the Debian package of each.
const TOOLS: &[(&str, &str)] = &[("ip", "iproute2"), ("nft", "nftables"), ("miniupnpd", "miniupnpd-nftables")];
/// Names of Chromium.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// Makes sure of the tools; without them the tests that need them skip themselves, in a visible line each.
pub(crate) fn tools(report: &mut Report) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let missing: Vec<&str> = TOOLS.iter().filter(|(tool, _)| !found(tool)).map(|(_, package)| *package).collect();
    if !missing.is_empty() && install(&missing).is_err() {
        report.skip("all of the network lab", &format!("cannot install {}", missing.join(" ")));
    }
    // What the programs in the field stand on; the test that plays them says what it had to skip.
    if !venv() {
        let _ = install(&["python3-venv"]);
    }
    if !BROWSERS.iter().any(|name| found(name)) {
        let _ = install(&["chromium"]);
    }
}

/// Whether Python can make a folder for packages of its own.
fn venv() -> bool {
    let status = Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn install(packages: &[&str]) -> Result<(), ()> {
    println!("== setup: {}", packages.join(" "));
    let install = || apt(&["install", "-y", "-q", "--no-install-recommends"], packages);
    // A fresh container has no package lists yet.
    install().or_else(|()| apt(&["update", "-q"], &[]).and_then(|()| install()))
}

fn found(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| Path::new(&folder).join(tool).exists())
}

fn apt(words: &[&str], packages: &[&str]) -> Result<(), ()> {
    let mut command = Command::new("apt-get");
    command.args(["-o", "DPkg::Lock::Timeout=120"]).args(words).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(()),
    }
}
