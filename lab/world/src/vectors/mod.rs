//! Test vectors against our rooms.
//!
//! A folder of vectors holds one folder a group, and in it one file a vector: `{"name", "inputs", "expect"[, "note"]}`,
//! bytes as lower-case hexadecimal. Each is checked by the room it is about. A vector nobody looked at in full has
//! failed: a field that no checker reads is named, never passed over. Only words for people are (`note`, `why`).
//!
//! The folder `nethernet` holds tables instead, one file a subject, of which each case is a vector.

mod bridge;
mod case;
mod codes;
mod master;
mod nethernet;
mod packets;
mod parcels;
mod sealing;
mod stun;
mod words;

use std::fmt;
use std::path::Path;

use case::{Case, Wrong};

/// Groups of the layout whose rooms are not built yet.
const LATER: [&str; 1] = ["dh"];

/// Largest file that is read.
const FILE_MAX: u64 = 4 << 20;

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Vectors our rooms agree with.
    pub passed: usize,
    /// One line for each vector they do not agree with, or that is not understood.
    pub failed: Vec<String>,
    /// One line for each group, or kind of vector in a group, whose room is not built yet.
    pub skipped: Vec<String>,
}

impl fmt::Display for Report {
    /// The line a run ends with: `N passed, N failed`, and `, N skipped` where something was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed.len())?;
        if self.skipped.is_empty() { Ok(()) } else { write!(f, ", {} skipped", self.skipped.len()) }
    }
}

/// Checks every vector under `dir`: group folders, or the files of one group.
#[must_use]
pub fn run(dir: &Path) -> Report {
    let mut report = Report::default();
    match list(dir) {
        Ok(entries) => {
            for group in entries.iter().filter(|path| path.is_dir()) {
                run_group(group, &mut report);
            }
            if entries.iter().any(|path| is_vector(path)) {
                run_group(dir, &mut report);
            }
        }
        Err(error) => report.failed.push(format!("{}: {error}", dir.display())),
    }
    if report == Report::default() {
        report.failed.push(format!("{}: no vectors found", dir.display()));
    }
    report
}

fn run_group(dir: &Path, report: &mut Report) {
    let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let group = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let files: Vec<_> = match list(&dir) {
        Ok(entries) => entries.into_iter().filter(|path| is_vector(path)).collect(),
        Err(error) => return report.failed.push(format!("{group}: {error}")),
    };
    if files.is_empty() {
        return;
    }
    if LATER.contains(&group.as_str()) {
        report.skipped.push(format!("{group}: not built yet ({} vectors)", files.len()));
        return;
    }
    if group == "nethernet" {
        for file in files {
            let subject = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            match bytes(&file) {
                Ok(bytes) => nethernet::table(&subject, &bytes, report),
                Err(error) => report.failed.push(format!("{group}/{subject}: {error}")),
            }
        }
        return;
    }
    for file in files {
        match check(&group, &file) {
            Ok(()) => report.passed += 1,
            Err(Wrong(why)) => {
                let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
                report.failed.push(format!("{group}/{name}: {why}"));
            }
        }
    }
}

fn check(group: &str, file: &Path) -> Result<(), Wrong> {
    let mut case = read(file).map_err(Wrong)?;
    match group {
        "bridge" => bridge::check(&mut case)?,
        "bulk" => parcels::bulk(&mut case)?,
        "chunk" => packets::chunk(&mut case)?,
        "code" => codes::code(&mut case)?,
        "dual" => parcels::dual(&mut case)?,
        "envelope" => packets::envelope(&mut case)?,
        "fragment" => packets::fragment(&mut case)?,
        "game" => packets::game(&mut case)?,
        "json" => words::json(&mut case)?,
        "key" => sealing::key(&mut case)?,
        "knock" => master::knock(&mut case)?,
        "np1" => packets::np1(&mut case)?,
        "relay" => master::relay(&mut case)?,
        "rule" => words::rule(&mut case)?,
        "seal" => sealing::seal(&mut case)?,
        "sign" => sealing::sign(&mut case)?,
        "steamcode" => codes::steamcode(&mut case)?,
        "stun" => stun::check(&mut case)?,
        _ => return Err(Wrong("nobody knows this group".to_owned())),
    }
    case.all_read()
}

fn read(file: &Path) -> Result<Case, String> {
    Case::parse(&bytes(file)?)
}

fn bytes(file: &Path) -> Result<Vec<u8>, String> {
    let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > FILE_MAX {
        return Err(format!("larger than {FILE_MAX} bytes"));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

/// What is in a folder, in the order of names.
fn list(dir: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let mut entries = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

fn is_vector(path: &Path) -> bool {
    path.is_file()
        && path.extension().is_some_and(|e| e == "json")
        && path.file_name().is_some_and(|n| n != "INDEX.json")
}
