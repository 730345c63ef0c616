//! What a sender has read of its files: blocks, the least recently used given up first.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Bytes of a block.
const BLOCK: u64 = 128 << 10;
/// Blocks held: 24 MiB, nine windows of a receiver on the internet.
const BLOCKS_MAX: usize = 192;
/// Reads under way.
const READS_MAX: usize = 16;
/// Blocks read ahead of the one asked for.
const AHEAD: u64 = 4;

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    total: u64,
    held: BTreeMap<u64, (u64, Bytes)>,
    reading: BTreeMap<u64, usize>,
    wanted: Vec<u64>,
    clock: u64,
}

impl Blocks {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, ..Self::default() }
    }

    /// Copies the stream from `at` into `out`. `false`, and the missing blocks are asked for, when not all is there.
    pub(crate) fn copy(&mut self, at: u64, out: &mut [u8]) -> bool {
        if out.is_empty() {
            return true;
        }
        self.clock += 1;
        let last = at + u64::try_from(out.len()).unwrap_or(u64::MAX).saturating_sub(1);
        let whole = (at / BLOCK..=last / BLOCK).all(|block| self.has(block));
        for block in at / BLOCK..=(last / BLOCK + AHEAD) {
            self.want(block);
        }
        if !whole {
            return false;
        }
        let mut done = 0;
        for block in at / BLOCK..=last / BLOCK {
            let Some((used, data)) = self.held.get_mut(&block) else { return false };
            *used = self.clock;
            let place = at + u64::try_from(done).unwrap_or(u64::MAX) - block * BLOCK;
            let from = data.get(usize::try_from(place).unwrap_or(usize::MAX)..).unwrap_or_default();
            let Some(to) = out.get_mut(done..) else { return false };
            let size = from.len().min(to.len());
            if let (Some(to), Some(from)) = (to.get_mut(..size), from.get(..size)) {
                to.copy_from_slice(from);
            }
            done += size;
        }
        done == out.len()
    }

    fn has(&self, block: u64) -> bool {
        self.held.contains_key(&block)
    }

    fn want(&mut self, block: u64) {
        let known = self.has(block) || self.reading.contains_key(&block) || self.wanted.contains(&block);
        if !known && block * BLOCK < self.total && self.wanted.len() + self.reading.len() < READS_MAX {
            self.wanted.push(block);
        }
    }

    /// A read to be made: place and length.
    pub(crate) fn next_read(&mut self) -> Option<(u64, usize)> {
        if self.wanted.is_empty() {
            return None;
        }
        let block = self.wanted.remove(0);
        let at = block * BLOCK;
        let len = usize::try_from((self.total - at).min(BLOCK)).unwrap_or_default();
        self.reading.insert(block, len);
        Some((at, len))
    }

    pub(crate) fn is_wanting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// What was read. A block of another length was somebody else's.
    pub(crate) fn arrived(&mut self, at: u64, data: Bytes) {
        let block = at / BLOCK;
        if !at.is_multiple_of(BLOCK) || self.reading.get(&block) != Some(&data.len()) {
            return;
        }
        self.reading.remove(&block);
        if self.held.len() >= BLOCKS_MAX
            && let Some(oldest) = self.held.iter().min_by_key(|(_, (used, _))| *used).map(|(block, _)| *block)
        {
            self.held.remove(&oldest);
        }
        self.held.insert(block, (self.clock, data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_across_blocks_and_memory_is_bounded() {
        let total = BLOCK * 1000 + 77;
        let byte = |at: u64| u8::try_from(at * 31 % 251).unwrap();
        let mut blocks = Blocks::new(total);
        let mut at = 0;
        while at < total {
            let mut out = vec![0; usize::try_from((total - at).min(8192 * 3)).unwrap()];
            while !blocks.copy(at, &mut out) {
                let (place, len) = blocks.next_read().unwrap();
                let data: Vec<u8> = (place..).take(len).map(byte).collect();
                blocks.arrived(place, data.into());
            }
            assert!(out.iter().zip(at..).all(|(got, at)| *got == byte(at)));
            assert!(blocks.held.len() <= BLOCKS_MAX && blocks.reading.len() <= READS_MAX);
            at += out.len() as u64 * 7;
        }
    }
}
