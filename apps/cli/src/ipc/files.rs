//! Files of the io dir: how they are made, replaced and kept private.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An empty file in place of whatever was there.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn fresh(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

/// Puts `bytes` in place of the file at once, so that a reader never sees half of it; where renaming is not possible
/// (sandboxes, a reader that holds the file open) it is written directly. On a full disk nothing is written: emptying
/// the file first would lose what it says for as long as the disk is full.
///
/// # Errors
/// When neither way works.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    let renamed = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    let Err(error) = renamed else { return Ok(()) };
    let _ = fs::remove_file(&beside);
    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) {
        return Err(error);
    }
    fs::write(path, bytes)
}

/// A name in the same folder that no other process uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Removes saves that an earlier session received: a game must not load them as this session's.
pub(crate) fn forget_old_saves(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("incoming_save.") {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The secret that a relay or dedicated server keeps: `relay_secret.bin`, exactly twelve bytes, for its owner only.
/// `new` is kept when there is none yet; a file of another length is replaced, and the second value says so.
///
/// # Errors
/// When the file can be neither read nor made.
pub(crate) fn kept_secret(dir: &Path, new: [u8; 12]) -> io::Result<([u8; 12], bool)> {
    kept(&dir.join("relay_secret.bin"), new)
}

/// The secret name of its row in public lists: `relay_id.bin`, kept in the same way.
///
/// # Errors
/// When the file can be neither read nor made.
pub(crate) fn kept_id(dir: &Path, new: [u8; 16]) -> io::Result<[u8; 16]> {
    kept(&dir.join("relay_id.bin"), new).map(|(id, _)| id)
}

fn kept<const N: usize>(path: &Path, new: [u8; N]) -> io::Result<([u8; N], bool)> {
    let damaged = match fs::read(path) {
        Ok(bytes) => match bytes.try_into() {
            Ok(secret) => return Ok((secret, false)),
            Err(_) => true,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let beside = beside(path);
    let _ = fs::remove_file(&beside);
    private(&beside)?.write_all(&new)?;
    // A link fails when another process was first, and then its secret counts; file systems without links rename.
    let placed = if damaged { fs::rename(&beside, path) } else { fs::hard_link(&beside, path) };
    let result = match placed {
        Ok(()) => Ok((new, damaged)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let bytes = fs::read(path)?;
            bytes.try_into().map(|secret| (secret, false)).map_err(|_| io::Error::from(ErrorKind::InvalidData))
        }
        Err(_) => fs::rename(&beside, path).map(|()| (new, damaged)),
    };
    let _ = fs::remove_file(&beside);
    result
}

/// A new file only its owner can read.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dir;

    #[test]
    fn a_replaced_file_leaves_nothing_beside_it() {
        let dir = Dir::new("files-replace");
        let path = dir.path().join("lobby_state.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn pain_98_a_folder_that_takes_no_new_file_still_gets_the_state() {
        let dir = Dir::new("files-direct");
        let path = dir.path().join("lobby_state.json");
        fs::write(&path, "old").unwrap();
        // A folder in the way of the temporary name: writing there fails, as in a sandbox.
        fs::create_dir(beside(&path)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    /// `/dev/full` answers every write as a full disk does.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_the_last_whole_state() {
        let dir = Dir::new("files-full");
        let path = dir.path().join("lobby_state.json");
        fs::write(&path, "whole").unwrap();
        std::os::unix::fs::symlink("/dev/full", beside(&path)).unwrap();
        assert_eq!(replace(&path, b"newer").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        replace(&path, b"newer").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
    }

    #[test]
    fn a_secret_is_made_once_and_kept_private() {
        let dir = Dir::new("files-secret");
        assert_eq!(kept_secret(dir.path(), [1; 12]).unwrap(), ([1; 12], false));
        assert_eq!(kept_secret(dir.path(), [2; 12]).unwrap(), ([1; 12], false));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(dir.path().join("relay_secret.bin")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_rows_name_is_kept_beside_the_secret() {
        let dir = Dir::new("files-id");
        assert_eq!(kept_id(dir.path(), [1; 16]).unwrap(), [1; 16]);
        assert_eq!(kept_secret(dir.path(), [3; 12]).unwrap(), ([3; 12], false));
        assert_eq!(kept_id(dir.path(), [2; 16]).unwrap(), [1; 16]);
    }

    #[test]
    fn a_damaged_secret_is_replaced_and_said() {
        let dir = Dir::new("files-damaged");
        fs::write(dir.path().join("relay_secret.bin"), [7; 11]).unwrap();
        assert_eq!(kept_secret(dir.path(), [2; 12]).unwrap(), ([2; 12], true));
        assert_eq!(kept_secret(dir.path(), [3; 12]).unwrap(), ([2; 12], false));
    }

    #[test]
    fn only_old_saves_are_forgotten() {
        let dir = Dir::new("files-saves");
        for name in ["incoming_save.sav", "incoming_save.sav.lua", "incoming_save.jpg", "other.sav"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        forget_old_saves(dir.path());
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["other.sav"]);
    }
}
