//! The files of a receiver: parts beside their final names.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use parcel::quic::BlockList;
use parcel::{Answer, Fault, SAVE_NAMES};

use crate::hashes::Sha;
use crate::place::{fault, read_at, split, write_at};

/// Bytes hashed at once, and between two words of progress.
const GULP: usize = 1 << 20;
const TELL: u64 = 32 << 20;

/// What is being written.
#[derive(Debug)]
pub(crate) struct Target {
    folder: PathBuf,
    names: Vec<String>,
    sizes: Vec<u64>,
    files: Vec<File>,
    sha256: [u8; 32],
}

impl Target {
    /// Makes room, or takes up what an earlier attempt at the same stream left.
    pub(crate) fn create(folder: &Path, files: Vec<(String, u64)>, sha256: [u8; 32]) -> Result<(Self, u64), Fault> {
        // The names were checked with the offer; a name that leads elsewhere is a fault of this program.
        if files.iter().any(|(name, _)| name.is_empty() || name.contains(['/', '\\', ':']) || name.starts_with('.')) {
            return Err(Fault::Denied);
        }
        let (names, sizes): (Vec<String>, Vec<u64>) = files.into_iter().unzip();
        let mut target = Self { folder: folder.to_owned(), names, sizes, files: Vec::new(), sha256 };
        let upto = target.noted();
        for (name, size) in target.names.iter().zip(&target.sizes) {
            let part = target.part(name);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(&part);
            let file = file.map_err(|error| fault(&error))?;
            file.set_len(*size).map_err(|error| fault(&error))?;
            target.files.push(file);
        }
        Ok((target, upto))
    }

    fn part(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.part"))
    }

    fn note_path(&self) -> PathBuf {
        self.folder.join(format!("{}.part.json", self.names.first().map_or("", String::as_str)))
    }

    fn noted(&self) -> u64 {
        let whole = self
            .names
            .iter()
            .zip(&self.sizes)
            .all(|(name, size)| fs::metadata(self.part(name)).is_ok_and(|data| data.len() == *size));
        let note = fs::read(self.note_path()).ok().and_then(|bytes| codec::object(&bytes).ok());
        let Some(note) = note.filter(|_| whole) else { return 0 };
        let same = note.get("sha256").and_then(codec::Value::as_str) == Some(&codec::hex(&self.sha256));
        let upto = note.get("upto").and_then(codec::Value::as_u64).unwrap_or_default();
        if same { upto } else { 0 }
    }

    /// Says where the transfer stands, for a later attempt. A note that cannot be written costs that attempt its start.
    pub(crate) fn note(&self, upto: u64) {
        let note = codec::to_json(&serde_json::json!({"sha256": codec::hex(&self.sha256), "upto": upto}));
        let _ = fs::write(self.note_path(), note);
    }

    pub(crate) fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    pub(crate) fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut left = bytes;
        for (index, at, len) in split(&self.sizes, at, left.len()) {
            let (Some(file), Some((head, rest))) = (self.files.get(index), left.split_at_checked(len)) else {
                return Err(Fault::Gone);
            };
            write_at(file, head, at).map_err(|error| fault(&error))?;
            left = rest;
        }
        if left.is_empty() { Ok(()) } else { Err(Fault::Other("beyond the end".to_owned())) }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let mut left = bytes;
        for (index, at, len) in split(&self.sizes, at, left.len()) {
            let (Some(file), Some((head, rest))) = (self.files.get(index), left.split_at_mut_checked(len)) else {
                return Err(Fault::Gone);
            };
            read_at(file, head, at).map_err(|error| fault(&error))?;
            left = rest;
        }
        Ok(())
    }

    /// Which blocks are there: what an earlier attempt wrote, or what a file of the final name has in the same place.
    pub(crate) fn look(&self, list: &BlockList) -> Result<Vec<u32>, Fault> {
        let old: Vec<Option<File>> = self.names.iter().map(|name| File::open(self.folder.join(name)).ok()).collect();
        let mut found = Vec::new();
        for (index, block) in list.blocks().iter().enumerate() {
            let len = usize::try_from(block.len).unwrap_or_default();
            let mut bytes = vec![0; len];
            self.read(block.at, &mut bytes)?;
            let mut here = *blake3::hash(&bytes).as_bytes() == block.hash;
            if !here && self.read_old(&old, block.at, &mut bytes) && *blake3::hash(&bytes).as_bytes() == block.hash {
                self.write(block.at, &bytes)?;
                here = true;
            }
            if here {
                found.extend(u32::try_from(index));
            }
        }
        Ok(found)
    }

    fn read_old(&self, old: &[Option<File>], at: u64, bytes: &mut [u8]) -> bool {
        let mut left = bytes;
        for (index, at, len) in split(&self.sizes, at, left.len()) {
            let (Some(Some(file)), Some((head, rest))) = (old.get(index), left.split_at_mut_checked(len)) else {
                return false;
            };
            if read_at(file, head, at).is_err() {
                return false;
            }
            left = rest;
        }
        left.is_empty()
    }

    /// Hashes what was written.
    pub(crate) fn hash(&self, mut tell: impl FnMut(u64)) -> Result<Answer, Fault> {
        let mut sha = Sha::new(&self.sizes);
        let (total, mut at, mut told) = (self.total(), 0, 0);
        let mut gulp = vec![0; GULP];
        while at < total {
            let len = usize::try_from(total - at).unwrap_or(usize::MAX).min(GULP);
            let Some(bytes) = gulp.get_mut(..len) else { break };
            self.read(at, bytes)?;
            sha.update(bytes);
            at += u64::try_from(len).unwrap_or_default();
            if at - told >= TELL {
                told = at;
                tell(at);
            }
        }
        let (files, sha256) = sha.finish().ok_or(Fault::Changed)?;
        Ok(Answer::Hashed { files, sha256 })
    }

    /// Gives the files their names, the first last: a save is there when all that belongs to it is.
    pub(crate) fn commit(&mut self) -> Result<(), Fault> {
        for file in self.files.drain(..) {
            file.sync_all().map_err(|error| fault(&error))?;
        }
        // All parts have to be there before the first name changes hands.
        for name in &self.names {
            fs::metadata(self.part(name)).map_err(|error| fault(&error))?;
        }
        if self.names.first().map(String::as_str) == Some(SAVE_NAMES[0]) {
            for name in SAVE_NAMES.iter().skip(1).filter(|name| !self.names.iter().any(|own| own == *name)) {
                // A sidecar of the world before would be taken for one of this world.
                let _ = fs::remove_file(self.folder.join(name));
            }
        }
        for name in self.names.iter().rev() {
            fs::rename(self.part(name), self.folder.join(name)).map_err(|error| fault(&error))?;
        }
        let _ = fs::remove_file(self.note_path());
        Ok(())
    }

    /// Removes what was written.
    pub(crate) fn discard(&mut self) {
        self.files.clear();
        for name in &self.names {
            let _ = fs::remove_file(self.part(name));
        }
        let _ = fs::remove_file(self.note_path());
    }
}
