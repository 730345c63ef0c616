//! The input as a script.

use std::net::SocketAddr;
use std::time::Duration;

use seam::{Path, SocketId};

/// A cursor that always has an answer: behind the end of the input there are zeros and empty texts.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    left: &'a [u8],
}

impl<'a> Script<'a> {
    /// The script that `input` is.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self { left: input }
    }

    /// The next move, while there is one.
    pub fn next_move(&mut self) -> Option<u8> {
        let (&first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(first)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.next_move().unwrap_or_default()
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// One of the first `n` numbers.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// As many bytes as the next two say, or as are left.
    pub fn bytes(&mut self) -> &'a [u8] {
        let most = usize::from(self.u16());
        let (bytes, rest) = self.left.split_at(most.min(self.left.len()));
        self.left = rest;
        bytes
    }

    /// Like [`bytes`](Self::bytes), with one byte for the length.
    pub fn short(&mut self) -> &'a [u8] {
        let most = usize::from(self.byte());
        let (bytes, rest) = self.left.split_at(most.min(self.left.len()));
        self.left = rest;
        bytes
    }

    /// A text.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.short()).into_owned()
    }

    /// A step of the clock, from none to an hour: every timer of the house lies in between.
    pub fn step(&mut self) -> Duration {
        const MILLIS: [u64; 16] =
            [0, 1, 10, 25, 100, 250, 500, 900, 1_000, 2_000, 5_000, 10_000, 15_000, 31_000, 120_000, 3_600_000];
        Duration::from_millis(MILLIS[self.below(MILLIS.len())])
    }
}

/// The address of player `n`.
#[must_use]
pub fn remote(n: usize) -> SocketAddr {
    let host = u8::try_from(n % 250).unwrap_or_default() + 1;
    match n {
        // One on IPv6, and one behind the same router as the first.
        2 => "[2001:db8::7]:4000".parse().unwrap_or_else(|_| SocketAddr::from(([198, 51, 100, 9], 1))),
        3 => SocketAddr::from(([192, 0, 2, 1], 4001)),
        _ => SocketAddr::from(([192, 0, 2, host], 4000)),
    }
}

/// The path to player `n`, on the socket that faces other players.
#[must_use]
pub fn member(n: usize) -> Path {
    Path::new(SocketId(0), remote(n))
}
