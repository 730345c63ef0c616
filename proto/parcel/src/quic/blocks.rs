//! Blocks of a stream and their hashes.

use seam::Refused;

/// Bytes of a block this end makes; the last one is shorter.
pub const BLOCK: u32 = 256 << 10;
/// The largest block taken.
pub const BLOCK_MAX: u32 = 1 << 20;
/// Most blocks of one stream: 64 GiB of [`BLOCK`]s, and 9 MiB of list.
pub const BLOCKS_MAX: usize = 1 << 18;
const ENTRY: usize = 36;

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where in the stream it begins.
    pub at: u64,
    /// Bytes.
    pub len: u32,
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
}

/// The list of all blocks in order. On the wire each is `len u32be | BLAKE3`, and BLAKE3 of the whole list is the root
/// that the sealed offer names: who has the root can check the list, and with the list every block by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockList {
    blocks: Vec<Block>,
}

impl BlockList {
    /// The list of these lengths and hashes.
    #[must_use]
    pub fn new(parts: impl IntoIterator<Item = (u32, [u8; 32])>) -> Self {
        let mut at = 0;
        let blocks = parts.into_iter().map(|(len, hash)| {
            at += u64::from(len);
            Block { at: at - u64::from(len), len, hash }
        });
        Self { blocks: blocks.collect() }
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The list as it travels.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        self.blocks.iter().flat_map(|block| block.len.to_be_bytes().into_iter().chain(block.hash)).collect()
    }

    /// Reads a list and checks it against the root and the length of the stream.
    ///
    /// # Errors
    /// [`Refused::NotAuthentic`] when it is not the list of `root`, [`Refused::Malformed`] when its blocks are empty, too
    /// large, too many, or do not add up to `total`.
    pub fn read(bytes: &[u8], root: &[u8; 32], total: u64) -> Result<Self, Refused> {
        if blake3::hash(bytes) != *root {
            return Err(Refused::NotAuthentic);
        }
        let (entries, rest) = bytes.as_chunks::<ENTRY>();
        if !rest.is_empty() || entries.len() > BLOCKS_MAX {
            return Err(Refused::Malformed);
        }
        let mut parts = Vec::with_capacity(entries.len());
        for entry in entries {
            let (Some(len), Some(hash)) = (entry.first_chunk::<4>(), entry.last_chunk::<32>()) else {
                return Err(Refused::Malformed);
            };
            let len = u32::from_be_bytes(*len);
            if len == 0 || len > BLOCK_MAX {
                return Err(Refused::Malformed);
            }
            parts.push((len, *hash));
        }
        let list = Self::new(parts);
        let sum = list.blocks.last().map_or(0, |last| last.at + u64::from(last.len));
        if sum == total { Ok(list) } else { Err(Refused::Malformed) }
    }

    /// What an offer names.
    #[must_use]
    pub fn root(&self) -> [u8; 32] {
        *blake3::hash(&self.write()).as_bytes()
    }

    /// The most bytes a list for `total` bytes may have, whatever its blocks.
    #[must_use]
    pub const fn most_bytes() -> usize {
        BLOCKS_MAX * ENTRY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_that_is_not_of_the_root_or_does_not_add_up_is_refused() {
        let list = BlockList::new([(5, [1; 32]), (7, [2; 32])]);
        let (bytes, root) = (list.write(), list.root());
        assert_eq!(BlockList::read(&bytes, &root, 12), Ok(list));
        assert_eq!(BlockList::read(&bytes, &root, 13), Err(Refused::Malformed));
        for cut in 0..bytes.len() {
            assert_eq!(BlockList::read(&bytes[..cut], &root, 12), Err(Refused::NotAuthentic));
            let own = *blake3::hash(&bytes[..cut]).as_bytes();
            assert_eq!(BlockList::read(&bytes[..cut], &own, 12), Err(Refused::Malformed), "cut at {cut}");
        }
        for len in [0, BLOCK_MAX + 1] {
            let bad = BlockList::new([(len, [0; 32])]);
            assert_eq!(BlockList::read(&bad.write(), &bad.root(), len.into()), Err(Refused::Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_list_is_read_back(parts in proptest::collection::vec((1u32..=BLOCK_MAX, any::<[u8; 32]>()), 0..50)) {
            let total = parts.iter().map(|(len, _)| u64::from(*len)).sum();
            let list = BlockList::new(parts);
            prop_assert_eq!(BlockList::read(&list.write(), &list.root(), total), Ok(list));
        }
    }
}
