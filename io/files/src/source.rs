//! The files of a sender.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parcel::{Answer, Fault, Measured};

use crate::hashes::{Blocks, Sha};
use crate::place::{fault, read_at, split};

/// Bytes read at once while measuring.
const GULP: usize = 1 << 20;

/// Open files, as they were when they were measured.
#[derive(Debug)]
pub(crate) struct Source {
    files: Vec<(File, Stamp)>,
    sizes: Vec<u64>,
}

/// What is looked at to know that a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    changed: Option<SystemTime>,
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self { size: data.len(), changed: data.modified().ok() })
    }
}

impl Source {
    /// Opens and measures. A file that another one replaces by its name is read on as it was: the open one does not change.
    pub(crate) fn measure(paths: &[PathBuf]) -> Result<(Self, Answer), Fault> {
        let mut files = Vec::new();
        for path in paths {
            let file = File::open(path).map_err(|error| fault(&error))?;
            let stamp = Stamp::of(&file).map_err(|error| fault(&error))?;
            files.push((file, stamp));
        }
        let sizes: Vec<u64> = files.iter().map(|(_, stamp)| stamp.size).collect();
        let source = Self { files, sizes };
        let (mut sha, mut blocks) = (Sha::new(&source.sizes), Blocks::default());
        let total = source.total();
        let mut at = 0;
        let mut gulp = vec![0; GULP];
        while at < total {
            let len = usize::try_from(total - at).unwrap_or(usize::MAX).min(GULP);
            let Some(bytes) = gulp.get_mut(..len) else { break };
            source.read_into(at, bytes)?;
            sha.update(bytes);
            blocks.update(bytes);
            at += u64::try_from(len).unwrap_or_default();
        }
        source.unchanged()?;
        let (hashes, sha256) = sha.finish().ok_or(Fault::Changed)?;
        let files = source.sizes.iter().zip(hashes).map(|(size, sha256)| Measured { size: *size, sha256 }).collect();
        Ok((source, Answer::Measured { files, sha256, list: Arc::new(blocks.finish()) }))
    }

    pub(crate) fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    fn unchanged(&self) -> Result<(), Fault> {
        for (file, stamp) in &self.files {
            if Stamp::of(file).map_err(|error| fault(&error))? != *stamp {
                return Err(Fault::Changed);
            }
        }
        Ok(())
    }

    fn read_into(&self, at: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let mut left = bytes;
        for (index, at, len) in split(&self.sizes, at, left.len()) {
            let (Some((file, _)), Some((head, rest))) = (self.files.get(index), left.split_at_mut_checked(len)) else {
                return Err(Fault::Changed);
            };
            read_at(file, head, at).map_err(|error| fault(&error))?;
            left = rest;
        }
        if left.is_empty() { Ok(()) } else { Err(Fault::Changed) }
    }

    /// Reads, and makes sure that the files are those that were measured.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.read_into(at, bytes)?;
        self.unchanged()
    }
}
