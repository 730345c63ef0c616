//! Memory of received datagrams.

use std::io::IoSliceMut;

use bytes::BytesMut;
use quinn_udp::{BATCH_SIZE, RecvMeta};

/// One message as the kernel hands it over: up to 64 coalesced datagrams, at most this long together.
const SLOT: usize = 65_536;

/// Receive memory, shared by the sockets of one thread.
///
/// The kernel writes into one fixed landing area, which stays warm in the cache; each datagram is then laid down once in
/// a 64 KiB chunk, from which callers get slices. A chunk is used again when its last slice is dropped, so a thread that
/// keeps up allocates nothing. A slice that is kept pins its chunk: at most 64 KiB each, whatever was received.
pub struct RecvPool {
    landing: Box<[u8]>,
    pub(crate) meta: [RecvMeta; BATCH_SIZE],
    chunk: BytesMut,
}

impl RecvPool {
    /// An empty pool. Its landing area of 32 x 64 KiB is address space until the kernel writes there.
    #[must_use]
    pub fn new() -> Self {
        Self {
            landing: vec![0; SLOT * BATCH_SIZE].into_boxed_slice(),
            meta: [RecvMeta::default(); BATCH_SIZE],
            chunk: BytesMut::with_capacity(SLOT),
        }
    }

    /// Runs `receive` over the landing slots; it answers how many messages it filled.
    pub(crate) fn land<E>(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut rest: &mut [u8] = &mut self.landing;
        let mut slots: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            let (slot, tail) = std::mem::take(&mut rest).split_at_mut(SLOT);
            rest = tail;
            IoSliceMut::new(slot)
        });
        receive(&mut slots, &mut self.meta)
    }

    /// The datagrams of message `index`, which is `stride` bytes each and `len` bytes together.
    pub(crate) fn lift(&mut self, index: usize, len: usize, stride: usize, mut each: impl FnMut(BytesMut)) {
        let start = index * SLOT;
        let Some(message) = self.landing.get(start..start + len.min(SLOT)) else { return };
        if stride == 0 {
            return;
        }
        for datagram in message.chunks(stride) {
            self.chunk.reserve(datagram.len());
            self.chunk.extend_from_slice(datagram);
            each(self.chunk.split());
        }
    }
}

impl Default for RecvPool {
    fn default() -> Self {
        Self::new()
    }
}
