//! Messages nobody acknowledges are sent three times, a little apart, so that one burst of loss does not take all.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use seam::Path;

/// Copies of a message (netpunch wire, section 23).
const COPIES: u8 = 3;
/// Time between two copies.
const GAP: Duration = Duration::from_millis(60);
/// Messages under way at once; of more, the oldest forgoes its remaining copies.
const OPEN_MAX: usize = 64;

#[derive(Debug)]
struct Copied {
    due: Instant,
    left: u8,
    json: Vec<u8>,
    to: Vec<Path>,
}

/// The messages that have copies left.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    open: VecDeque<Copied>,
}

impl Copies {
    /// Sends `json` three times to each of `to`; the first copies go out with the next `take_due`.
    pub(crate) fn send(&mut self, now: Instant, to: Vec<Path>, json: Vec<u8>) {
        if to.is_empty() {
            return;
        }
        self.open.push_back(Copied { due: now, left: COPIES, json, to });
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.open.iter().map(|copied| copied.due).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Hands every copy that is due to `send`.
    pub(crate) fn take_due(&mut self, now: Instant, mut send: impl FnMut(Path, Vec<u8>)) {
        for copied in self.open.iter_mut().filter(|copied| copied.due <= now) {
            copied.to.iter().for_each(|&path| send(path, copied.json.clone()));
            copied.left -= 1;
            copied.due = now + GAP;
        }
        self.open.retain(|copied| copied.left > 0);
        // Only now: a message past the bound has had its first copy.
        while self.open.len() > OPEN_MAX {
            self.open.pop_front();
        }
    }

    pub(crate) fn rekey(&mut self, old: Path, new: Path) {
        for path in self.open.iter_mut().flat_map(|copied| copied.to.iter_mut()).filter(|path| **path == old) {
            *path = new;
        }
    }

    /// Nothing more for this path.
    pub(crate) fn forget(&mut self, path: Path) {
        self.open.iter_mut().for_each(|copied| copied.to.retain(|to| *to != path));
        self.open.retain(|copied| !copied.to.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam::SocketId;

    #[test]
    fn three_copies_a_gap_apart_and_a_moved_peer_gets_the_rest() {
        let start = Instant::now();
        let path = |port| Path::new(SocketId(0), ([127, 0, 0, 1], port).into());
        let mut copies = Copies::default();
        copies.send(start, vec![path(1), path(2)], b"x".to_vec());
        let mut sent = Vec::new();
        while let Some(due) = copies.due() {
            copies.take_due(due, |to, _| sent.push((due - start, to.remote.port())));
            copies.rekey(path(2), path(3));
            copies.forget(path(1));
        }
        let ms = Duration::from_millis;
        assert_eq!(sent, [(ms(0), 1), (ms(0), 2), (ms(60), 3), (ms(120), 3)]);
    }

    #[test]
    fn a_storm_of_messages_costs_copies_not_memory() {
        let start = Instant::now();
        let mut copies = Copies::default();
        let mut sent = 0;
        for _ in 0..1_000 {
            copies.send(start, vec![Path::new(SocketId(0), ([127, 0, 0, 1], 1).into())], b"x".to_vec());
            copies.take_due(start, |_, _| sent += 1);
        }
        assert_eq!((sent, copies.open.len()), (1_000, OPEN_MAX));
    }
}
