//! Type-checks the workspace for Windows.
//!
//! rustup's toolchain has no Windows library and none can be counted on to be downloadable, so Debian's `rustc-web`
//! compiles the standard library from its packaged source. Packages are unpacked into a private folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::Report;
use crate::{cargo, root};

const TARGET: &str = "x86_64-pc-windows-gnu";
const PACKAGES: &[&str] = &["rustc-web", "rust-web-src", "libstd-rust-web-1.96", "libstd-rust-web-dev", "libllvm22"];
const MINGW: &str = "gcc-mingw-w64-x86-64-win32";

/// Runs the check, or says what it lacks.
pub(crate) fn check(report: &mut Report) {
    let folder = root().join("target/windows-toolchain");
    if let Err(why) = prepare(&folder) {
        return report.skip("Windows cross-check", &why);
    }
    let mut command = cargo(&["check", "--workspace", "-q", "--exclude", "xtask", "-Zbuild-std=std,panic_unwind"]);
    command
        .args(["--target", TARGET])
        .env("RUSTC", folder.join("rustc-wrap"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", "x86_64-w64-mingw32-gcc");
    report.step("Windows cross-check", command);
}

fn prepare(folder: &Path) -> Result<(), String> {
    let wrapper = folder.join("rustc-wrap");
    if wrapper.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    quiet(Command::new("apt-get").args(["update", "-q"]))?;
    quiet(Command::new("apt-get").args(["install", "-y", "-q", MINGW]))?;
    quiet(Command::new("apt-get").arg("download").args(PACKAGES).current_dir(folder))?;
    for file in std::fs::read_dir(folder).map_err(|e| e.to_string())?.flatten() {
        let path = file.path();
        if path.extension().is_some_and(|ext| ext == "deb") {
            quiet(Command::new("dpkg").arg("-x").arg(&path).arg(folder))?;
        }
    }
    let sysroot_lib = folder.join("usr/lib/rustlib").join(TARGET).join("lib");
    std::fs::create_dir_all(&sysroot_lib).map_err(|e| e.to_string())?;
    let rustc = ["usr/lib/rust-web/bin/rustc", "usr/bin/rustc", "usr/bin/rustc-web"]
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
        .ok_or("no rustc in the unpacked packages")?;
    let libraries = format!("{0}/usr/lib:{0}/usr/lib/x86_64-linux-gnu", absolute(folder)?.display());
    let script = format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {} \"$@\"\n", absolute(&rustc)?.display());
    std::fs::write(&wrapper, script).map_err(|e| e.to_string())?;
    quiet(Command::new("chmod").arg("+x").arg(&wrapper))?;
    let starts = find(folder, "rsbegin.rs").ok_or("no rtstartup in the unpacked sources")?;
    for name in ["rsbegin", "rsend"] {
        let mut command = Command::new(&wrapper);
        command
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["--target", TARGET, "--emit=obj", "-o"])
            .arg(sysroot_lib.join(format!("{name}.o")))
            .arg(starts.with_file_name(format!("{name}.rs")));
        if let Err(why) = quiet(&mut command) {
            // A half-made toolchain must not look ready next time.
            std::fs::remove_file(&wrapper).map_err(|e| e.to_string())?;
            return Err(why);
        }
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|e| e.to_string())
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) {
                return Some(path);
            }
        }
    }
    None
}

fn quiet(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    Err(format!("{command:?}: {text}"))
}
