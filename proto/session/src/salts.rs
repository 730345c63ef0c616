//! Who speaks under which salt.
//!
//! Every process seals under a random salt of its own, so a salt names a process where an address does not: when a known
//! salt arrives from an unknown address, a router has given somebody a new mapping. The address is asked to echo a
//! token before anything is sent there; until then its frames count for the seat they belong to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use seam::Path;

/// Salts remembered at most. A session has at most 200 players; a salt changes when a process wraps its counter.
pub(crate) const MAX_SALTS: usize = 1024;
/// Moves under proof at once.
pub(crate) const MAX_MOVES: usize = 64;
/// A proof that does not come within this time is forgotten.
const MOVE_TTL: Duration = Duration::from_secs(3);
/// Longest message kept until then.
const MAX_STASH: usize = 1300;

/// Salts by owner, and addresses under proof.
#[derive(Debug, Default)]
pub(crate) struct Salts {
    owners: BTreeMap<[u8; 4], Owner>,
    moves: BTreeMap<Path, Move>,
}

/// A new address under proof.
#[derive(Debug)]
struct Move {
    old: Path,
    since: Instant,
    /// The message that came from there, to be heard again once the address is proved: answers to it go there then.
    stash: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Owner {
    path: Path,
    last: Instant,
}

impl Salts {
    /// How many salts are remembered, and addresses under proof.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.owners.len(), self.moves.len())
    }

    /// The path a salt belongs to.
    pub(crate) fn owner(&self, salt: [u8; 4]) -> Option<Path> {
        self.owners.get(&salt).map(|owner| owner.path)
    }

    /// `salt` belongs to the player at `path`. The longest unused salt goes when there are too many.
    pub(crate) fn learn(&mut self, now: Instant, salt: [u8; 4], path: Path) {
        if self.owners.len() >= MAX_SALTS
            && !self.owners.contains_key(&salt)
            && let Some(oldest) = self.owners.iter().min_by_key(|(_, owner)| owner.last).map(|(salt, _)| *salt)
        {
            self.owners.remove(&oldest);
        }
        self.owners.insert(salt, Owner { path, last: now });
    }

    /// A frame of this salt arrived just now.
    pub(crate) fn touch(&mut self, now: Instant, salt: [u8; 4]) {
        if let Some(owner) = self.owners.get_mut(&salt) {
            owner.last = now;
        }
    }

    /// The player at `old` was heard from `new`. True when a proof has to be asked for.
    pub(crate) fn begin_move(&mut self, now: Instant, old: Path, new: Path, stash: Option<Vec<u8>>) -> bool {
        self.moves.retain(|_, entry| now.saturating_duration_since(entry.since) < MOVE_TTL);
        let stash = stash.filter(|message| message.len() <= MAX_STASH);
        if let Some(entry) = self.moves.get_mut(&new) {
            entry.stash = stash.or(entry.stash.take());
            return false;
        }
        if self.moves.len() >= MAX_MOVES {
            return false;
        }
        self.moves.insert(new, Move { old, since: now, stash });
        true
    }

    /// `new` has echoed its token: the path it replaces, and the message that waited for this.
    pub(crate) fn finish_move(&mut self, new: Path) -> Option<(Path, Option<Vec<u8>>)> {
        self.moves.remove(&new).map(|entry| (entry.old, entry.stash))
    }

    /// Everything under `old` is under `new` from here on.
    pub(crate) fn rekey(&mut self, old: Path, new: Path) {
        for owner in self.owners.values_mut().filter(|owner| owner.path == old) {
            owner.path = new;
        }
        self.moves.retain(|_, entry| entry.old != old);
    }

    /// The player at `path` is gone.
    pub(crate) fn forget(&mut self, path: Path) {
        self.owners.retain(|_, owner| owner.path != path);
        self.moves.retain(|new, entry| entry.old != path && *new != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam::SocketId;

    fn path(n: u8) -> Path {
        Path::new(SocketId(0), ([10, 0, 0, n], 1).into())
    }

    #[test]
    fn a_move_is_asked_for_once_and_expires() {
        let t0 = Instant::now();
        let mut salts = Salts::default();
        salts.learn(t0, [1; 4], path(1));
        assert!(salts.begin_move(t0, path(1), path(2), None));
        assert!(!salts.begin_move(t0, path(1), path(2), None));
        assert!(salts.begin_move(t0 + MOVE_TTL, path(1), path(2), Some(vec![0; MAX_STASH + 1])));
        assert!(!salts.begin_move(t0 + MOVE_TTL, path(1), path(2), Some(b"join".to_vec())));
        assert_eq!(salts.finish_move(path(2)), Some((path(1), Some(b"join".to_vec()))));
        salts.rekey(path(1), path(2));
        assert_eq!(salts.owner([1; 4]), Some(path(2)));
        assert_eq!(salts.finish_move(path(2)), None);
    }

    #[test]
    fn salts_and_moves_are_bounded() {
        let t0 = Instant::now();
        let mut salts = Salts::default();
        for n in 0..3000u32 {
            salts.learn(t0 + Duration::from_millis(n.into()), n.to_be_bytes(), path(1));
        }
        assert_eq!(salts.owners.len(), MAX_SALTS);
        assert_eq!(salts.owner(0u32.to_be_bytes()), None);
        assert_eq!(salts.owner(2999u32.to_be_bytes()), Some(path(1)));
        let asked = (0..200).filter(|n| salts.begin_move(t0, path(1), path(*n), None)).count();
        assert_eq!(asked, MAX_MOVES);
        salts.forget(path(1));
        assert_eq!((salts.owners.len(), salts.moves.len()), (0, 0));
    }
}
