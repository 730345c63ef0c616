//! Long lobby messages put together again, within stated bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use seam::{Path, Refused};

use crate::Fragment;

/// How much unfinished work a [`Reassembly`] keeps. A piece counts as its bytes plus [`PIECE_COST`], and an unfinished
/// message as [`OPEN_COST`] more, so that empty pieces are not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Unfinished messages per address; the oldest makes way.
    pub open_per_address: usize,
    /// Bytes held for one address.
    pub bytes_per_address: usize,
    /// Bytes held for all addresses.
    pub bytes_total: usize,
    /// How long an unfinished message lives after its last piece.
    pub lifetime: Duration,
}

impl Default for Bounds {
    /// 64 messages and 2 MiB per address, 4 MiB in all, 15 s.
    fn default() -> Self {
        Self {
            open_per_address: 64,
            bytes_per_address: 2 << 20,
            bytes_total: 4 << 20,
            lifetime: Duration::from_secs(15),
        }
    }
}

/// What keeping one piece costs beyond its bytes.
const PIECE_COST: usize = 64;

/// What an unfinished message costs beyond its pieces.
const OPEN_COST: usize = 256;

/// Unfinished messages, by the address and the number their sender gave them.
///
/// Memory follows what really arrived, never what a count announces, and stays under the [`Bounds`]. When the total is
/// reached, the address that holds the most loses its oldest message: a flood from one place costs the others nothing.
/// Nothing asks for lost pieces; the repetition of a message is what heals it.
#[derive(Debug)]
pub struct Reassembly {
    bounds: Bounds,
    by_address: BTreeMap<Path, Address>,
    /// The same addresses by what they hold.
    by_cost: BTreeSet<(usize, Path)>,
    /// Every unfinished message by when it expires.
    by_expiry: BTreeSet<(Instant, Path, u32)>,
    cost: usize,
    /// Numbers messages by age.
    opened: u64,
}

#[derive(Debug, Default)]
struct Address {
    open: BTreeMap<u32, Open>,
    cost: usize,
}

#[derive(Debug)]
struct Open {
    age: u64,
    count: u32,
    expires: Instant,
    pieces: BTreeMap<u32, Box<[u8]>>,
    cost: usize,
}

impl Reassembly {
    /// An empty one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            by_address: BTreeMap::new(),
            by_cost: BTreeSet::new(),
            by_expiry: BTreeSet::new(),
            cost: 0,
            opened: 0,
        }
    }

    /// Takes one piece. Returns the message when it was the last one missing; a piece that comes twice replaces the
    /// first.
    ///
    /// # Errors
    /// [`Refused::Malformed`] for a piece that gives its message another count than the first one did, or lies outside
    /// it; [`Refused::OverLimit`] when the bounds have no room for it, and its message is then given up.
    pub fn push(&mut self, now: Instant, from: Path, piece: &Fragment<'_>) -> Result<Option<Bytes>, Refused> {
        if piece.index >= piece.count || piece.count > crate::FRAGMENTS_MAX {
            return Err(Refused::Malformed);
        }
        let open = self.by_address.get(&from).and_then(|address| address.open.get(&piece.id));
        if open.is_some_and(|open| open.count != piece.count) {
            return Err(Refused::Malformed);
        }
        let missing = usize::try_from(piece.count).unwrap_or(usize::MAX) - open.map_or(0, |open| open.pieces.len());
        let held = open.is_some_and(|open| open.pieces.contains_key(&piece.index));
        if missing == 1 && !held {
            let pieces = self.remove(from, piece.id).map(|open| open.pieces).unwrap_or_default();
            return Ok(Some(join(&pieces, piece)));
        }
        self.make_room(from, piece, open.is_none())?;
        self.insert(now, from, piece);
        Ok(None)
    }

    /// Gives up everything unfinished from an address.
    pub fn forget(&mut self, path: Path) {
        while let Some(id) = self.oldest(path) {
            self.remove(path, id);
        }
    }

    /// Gives up messages whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(expires, path, id)) = self.by_expiry.first() {
            if expires > now {
                break;
            }
            self.remove(path, id);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.by_expiry.first().map(|&(expires, ..)| (expires, "an unfinished message expires"))
    }

    /// Bytes held, as the [`Bounds`] count them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.cost
    }

    fn make_room(&mut self, from: Path, piece: &Fragment<'_>, opens: bool) -> Result<(), Refused> {
        let need = piece.data.len() + PIECE_COST + if opens { OPEN_COST } else { 0 };
        loop {
            let (messages, cost) = self.by_address.get(&from).map_or((0, 0), |a| (a.open.len(), a.cost));
            let crowded = opens && messages >= self.bounds.open_per_address;
            let victim = if crowded || cost + need > self.bounds.bytes_per_address {
                from
            } else if self.cost + need > self.bounds.bytes_total {
                self.by_cost.last().map_or(from, |&(_, path)| path)
            } else {
                return Ok(());
            };
            // Nothing left to give up means that the piece alone is over the bounds.
            let oldest = self.oldest(victim).ok_or(Refused::OverLimit)?;
            self.remove(victim, oldest);
            if (victim, oldest) == (from, piece.id) {
                return Err(Refused::OverLimit);
            }
        }
    }

    fn insert(&mut self, now: Instant, from: Path, piece: &Fragment<'_>) {
        let expires = now + self.bounds.lifetime;
        let address = self.by_address.entry(from).or_default();
        self.by_cost.remove(&(address.cost, from));
        let before = address.cost;
        let open = address.open.entry(piece.id).or_insert_with(|| {
            self.opened += 1;
            address.cost += OPEN_COST;
            let (age, count, pieces) = (self.opened, piece.count, BTreeMap::new());
            Open { age, count, expires, pieces, cost: OPEN_COST }
        });
        self.by_expiry.remove(&(open.expires, from, piece.id));
        open.expires = expires;
        let replaced = open.pieces.insert(piece.index, piece.data.into()).map_or(0, |old| old.len() + PIECE_COST);
        let added = piece.data.len() + PIECE_COST;
        open.cost = open.cost + added - replaced;
        address.cost = address.cost + added - replaced;
        self.cost = self.cost + address.cost - before;
        self.by_cost.insert((address.cost, from));
        self.by_expiry.insert((expires, from, piece.id));
    }

    fn remove(&mut self, path: Path, id: u32) -> Option<Open> {
        let address = self.by_address.get_mut(&path)?;
        let open = address.open.remove(&id)?;
        self.by_cost.remove(&(address.cost, path));
        self.by_expiry.remove(&(open.expires, path, id));
        address.cost -= open.cost;
        self.cost -= open.cost;
        if address.open.is_empty() {
            self.by_address.remove(&path);
        } else {
            self.by_cost.insert((address.cost, path));
        }
        Some(open)
    }

    fn oldest(&self, path: Path) -> Option<u32> {
        let open = &self.by_address.get(&path)?.open;
        open.iter().min_by_key(|(_, open)| open.age).map(|(id, _)| *id)
    }
}

fn join(pieces: &BTreeMap<u32, Box<[u8]>>, last: &Fragment<'_>) -> Bytes {
    let size = pieces.values().map(|piece| piece.len()).sum::<usize>() + last.data.len();
    let mut out = BytesMut::with_capacity(size);
    for (_, piece) in pieces.range(..last.index) {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(last.data);
    for (_, piece) in pieces.range(last.index..) {
        out.extend_from_slice(piece);
    }
    out.freeze()
}
