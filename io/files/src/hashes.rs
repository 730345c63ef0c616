//! Hashes of a stream as it goes by.

use parcel::quic::{BLOCK, BlockList};
use sha2::{Digest, Sha256};

/// SHA-256 of each file and of the whole stream, in one pass where there is one file, and little more where a large file is
/// followed by small ones: what is known of the first file is where the whole stands at its end.
pub(crate) struct Sha {
    sizes: Vec<u64>,
    index: usize,
    left: u64,
    whole: Sha256,
    /// Of the file under way; the first is the whole so far.
    file: Option<Sha256>,
    files: Vec<[u8; 32]>,
}

impl Sha {
    pub(crate) fn new(sizes: &[u64]) -> Self {
        let mut sha = Self {
            sizes: sizes.to_vec(),
            index: 0,
            left: sizes.first().copied().unwrap_or_default(),
            whole: Sha256::new(),
            file: None,
            files: Vec::new(),
        };
        sha.ends();
        sha
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.index < self.sizes.len() {
            let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            let (head, rest) = bytes.split_at(take);
            self.whole.update(head);
            if let Some(file) = &mut self.file {
                file.update(head);
            }
            self.left -= u64::try_from(take).unwrap_or_default();
            bytes = rest;
            self.ends();
        }
    }

    fn ends(&mut self) {
        while self.left == 0 && self.index < self.sizes.len() {
            let hash = self.file.take().unwrap_or_else(|| self.whole.clone()).finalize();
            self.files.push(hash.into());
            self.index += 1;
            self.file = Some(Sha256::new());
            self.left = self.sizes.get(self.index).copied().unwrap_or_default();
        }
    }

    /// The hashes, once every byte went by.
    pub(crate) fn finish(self) -> Option<(Vec<[u8; 32]>, [u8; 32])> {
        (self.index == self.sizes.len()).then(|| (self.files, self.whole.finalize().into()))
    }
}

/// The blocks of a stream.
#[derive(Default)]
pub(crate) struct Blocks {
    hasher: blake3::Hasher,
    held: u32,
    parts: Vec<(u32, [u8; 32])>,
}

impl Blocks {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(BLOCK - self.held).unwrap_or_default();
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            self.hasher.update(head);
            self.held += u32::try_from(head.len()).unwrap_or_default();
            bytes = rest;
            if self.held == BLOCK {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        self.parts.push((self.held, *self.hasher.finalize().as_bytes()));
        self.hasher.reset();
        self.held = 0;
    }

    pub(crate) fn finish(mut self) -> BlockList {
        if self.held > 0 {
            self.end();
        }
        BlockList::new(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_files_and_of_the_whole_are_those_of_their_bytes() {
        let files: [&[u8]; 5] = [b"", b"a large one, comparatively", b"", b"side", b"car"];
        let sizes: Vec<u64> = files.iter().map(|file| file.len() as u64).collect();
        for gulp in [1, 3, 100] {
            let mut sha = Sha::new(&sizes);
            for part in files.concat().chunks(gulp) {
                sha.update(part);
            }
            let (each, whole) = sha.finish().unwrap();
            let want: Vec<[u8; 32]> = files.iter().map(|file| Sha256::digest(file).into()).collect();
            assert_eq!((each, whole), (want, Sha256::digest(files.concat()).into()));
        }
        assert!(Sha::new(&[5]).finish().is_none());
    }

    #[test]
    fn blocks_are_cut_at_their_size_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..BLOCK * 2 + 5).map(|n| (n % 251) as u8).collect();
        let mut blocks = Blocks::default();
        for part in bytes.chunks(70_001) {
            blocks.update(part);
        }
        let list = blocks.finish();
        let lens: Vec<u32> = list.blocks().iter().map(|block| block.len).collect();
        assert_eq!(lens, [BLOCK, BLOCK, 5]);
        let last = list.blocks().last().unwrap();
        assert_eq!(last.hash, *blake3::hash(&bytes[last.at as usize..]).as_bytes());
    }
}
