//! The send batch of one socket.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use seam::{Outbox, Path};

use crate::{SendErrors, UdpSocket};

/// Bytes of one batch.
const CAPACITY: usize = 256 << 10;
/// Bytes of a small one: several of the largest frames, and some for a socket that says a word or two.
const CAPACITY_SMALL: usize = 16 << 10;
/// System calls of one batch, at most.
const RUNS: usize = 1024;
/// Largest datagram UDP carries over IPv4; also the limit of one run.
const LARGEST: usize = 65_507;

/// Datagrams on their way out: at most 256 KiB (16 KiB in a small batch) and 1,024 runs. Each is written once, where the kernel reads it. A
/// datagram to the same address as the one before and of the same size joins its run, which leaves in one call; a shorter
/// one joins too and ends the run.
///
/// Over its bounds the batch is full and takes nothing until it was flushed. Datagrams longer than UDP carries are
/// dropped and counted.
pub struct SendBatch {
    buffer: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    /// Runs before this one are gone.
    next: usize,
    segments: usize,
    oversize: u64,
}

#[derive(Clone, Copy)]
struct Run {
    remote: SocketAddr,
    start: usize,
    len: usize,
    segment: usize,
    count: usize,
    /// The kernel did not take it as a run: what is left goes one by one.
    singly: bool,
}

impl SendBatch {
    /// An empty batch for `socket`.
    #[must_use]
    pub fn new(socket: &UdpSocket) -> Self {
        Self::with_capacity(socket, CAPACITY)
    }

    /// An empty batch of 16 KiB, for one of many sockets. Longer datagrams are dropped and counted.
    #[must_use]
    pub fn small(socket: &UdpSocket) -> Self {
        Self::with_capacity(socket, CAPACITY_SMALL)
    }

    fn with_capacity(socket: &UdpSocket, capacity: usize) -> Self {
        Self {
            buffer: vec![0; capacity].into_boxed_slice(),
            used: 0,
            runs: Vec::new(),
            next: 0,
            segments: socket.max_segments(),
            oversize: 0,
        }
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next == self.runs.len()
    }

    /// Datagrams dropped because no UDP datagram is that long.
    #[must_use]
    pub fn oversize(&self) -> u64 {
        self.oversize
    }

    /// Sends what waits. False when the kernel takes no more now: the rest is kept, and a flush when the socket is
    /// writable goes on with it. A datagram that fails is noted in `errors` and the next one goes on.
    pub fn flush(&mut self, now: Instant, socket: &UdpSocket, errors: &mut SendErrors) -> bool {
        while let Some(run) = self.runs.get_mut(self.next) {
            if !run.send(&self.buffer, now, socket, errors) {
                return false;
            }
            self.next += 1;
        }
        self.segments = socket.max_segments();
        self.used = 0;
        self.next = 0;
        self.runs.clear();
        true
    }

    fn append(&mut self, remote: SocketAddr, len: usize) {
        let start = self.used;
        self.used += len;
        let waiting = self.next < self.runs.len();
        if let Some(run) = self.runs.last_mut().filter(|run| waiting && run.joins(remote, len, self.segments)) {
            run.len += len;
            run.count += 1;
            return;
        }
        self.runs.push(Run { remote, start, len, segment: len, count: 1, singly: false });
    }
}

impl Run {
    /// Whether a datagram right behind this run may leave with it.
    fn joins(&self, remote: SocketAddr, len: usize, segments: usize) -> bool {
        self.remote == remote
            && !self.singly
            && len <= self.segment
            && self.len == self.segment * self.count
            && self.count < segments
            && self.len + len <= LARGEST
    }

    /// False when the kernel is full; what is left is kept.
    fn send(&mut self, buffer: &[u8], now: Instant, socket: &UdpSocket, errors: &mut SendErrors) -> bool {
        if self.remote.port() == 0 {
            // Some systems answer port 0 with the error that means "no segmentation here".
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            (0..self.count).for_each(|_| errors.note(now, self.remote, &error));
            return true;
        }
        if self.count > 1 && !self.singly {
            let Some(data) = buffer.get(self.start..self.start + self.len) else { return true };
            match socket.send_run(self.remote, data, self.segment) {
                Ok(()) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // A kernel or device without segmentation, or datagrams that need fragments: one by one they may go.
                Err(_) => self.singly = true,
            }
        }
        while self.count > 0 {
            let len = self.segment.min(self.len);
            let Some(data) = buffer.get(self.start..self.start + len) else { return true };
            match socket.send_one(self.remote, data) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => errors.note(now, self.remote, &error),
            }
            self.start += len;
            self.len -= len;
            self.count -= 1;
            self.singly = true;
        }
        true
    }
}

impl Outbox for SendBatch {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if len > LARGEST.min(self.buffer.len()) {
            self.oversize += 1;
            return true;
        }
        if self.runs.len() >= RUNS {
            return false;
        }
        let Some(space) = self.buffer.get_mut(self.used..self.used + len) else { return false };
        let used = fill(space).min(len);
        if used > 0 {
            self.append(path.remote, used);
        }
        true
    }
}
