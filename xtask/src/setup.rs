//! Installs what the tests with network namespaces call, where that is possible.

use std::path::Path;
use std::process::Command;

use crate::report::Report;

/// Programs with the Debian package of each.
const TOOLS: &[(&str, &str)] = &[("ip", "iproute2"), ("nft", "nftables"), ("miniupnpd", "miniupnpd-nftables")];

/// Makes sure of the tools; without them the tests that need them skip themselves, in a visible line each.
pub(crate) fn tools(report: &mut Report) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let missing: Vec<&str> = TOOLS.iter().filter(|(tool, _)| !found(tool)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    println!("== setup: {}", missing.join(" "));
    let install = || apt(&["install", "-y", "-q", "--no-install-recommends"], &missing);
    // A fresh container has no package lists yet.
    if install().or_else(|_| apt(&["update", "-q"], &[]).and_then(|()| install())).is_err() {
        report.skip("all of the network lab", &format!("cannot install {}", missing.join(" ")));
    }
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
