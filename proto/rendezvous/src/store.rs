//! What a master remembers of rows and notes: the questions, their answers, and the store in memory.
//!
//! A store that several masters share answers the same questions; it lives with its database client.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::words::{Announce, Game, Grants, Note, Row, Tag};
use crate::{Limits, Prefix};

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// All rows, newest announce first.
    List,
    /// Adds or renews a row.
    Announce {
        /// The row.
        announce: Announce,
        /// The network it comes from.
        network: Prefix,
    },
    /// Removes a row.
    Leave {
        /// Its id.
        id: String,
    },
    /// Keeps a note.
    Knock {
        /// For whom.
        tag: Tag,
        /// The sealed note.
        blob: String,
        /// Where its joiner can be met.
        grants: Grants,
    },
    /// The notes of a tag after a time.
    Notes {
        /// Whose.
        tag: Tag,
        /// Newer than this.
        since: f64,
    },
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// To [`Op::List`].
    Rows(Vec<Row>),
    /// The row, or its removal, was taken; whether anything but its age changed.
    Taken {
        /// Whether the list reads differently now.
        changed: bool,
    },
    /// The note was kept.
    Kept,
    /// No room: 503.
    Full,
    /// To [`Op::Notes`].
    Notes(Vec<Note>),
    /// The store cannot be reached: 503.
    Unavailable,
}

#[allow(clippy::cast_precision_loss, reason = "microseconds since 1970 stay below 2^53 until the year 2255")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Rows and notes in memory, bounded by [`Limits`]: at most `rows` rows of about 700 bytes, and `tags` times `notes`
/// notes of about 1,400 bytes.
#[derive(Debug)]
pub struct Memory {
    limits: Limits,
    rows: BTreeMap<String, Entry>,
    /// Ids in order of their last announce.
    order: BTreeMap<u64, String>,
    networks: BTreeMap<Prefix, usize>,
    next: u64,
    notes: BTreeMap<Tag, VecDeque<(Instant, Note)>>,
    /// Time of the newest note in microseconds.
    last: u64,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    game: Game,
    at: Instant,
    order: u64,
    network: Prefix,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            rows: BTreeMap::new(),
            order: BTreeMap::new(),
            networks: BTreeMap::new(),
            next: 0,
            notes: BTreeMap::new(),
            last: 0,
            swept: None,
        }
    }

    /// Does one thing. `wall` is the time since 1970.
    pub fn run(&mut self, now: Instant, wall: Duration, op: Op) -> Outcome {
        self.expire(now);
        match op {
            Op::List => Outcome::Rows(self.list(now)),
            Op::Announce { announce, network } => self.announce(now, announce, network),
            Op::Leave { id } => Outcome::Taken { changed: self.remove(&id) },
            Op::Knock { tag, blob, grants } => self.knock(now, wall, tag, blob, grants),
            Op::Notes { tag, since } => {
                let notes = self.notes.get(&tag).into_iter().flatten();
                Outcome::Notes(notes.map(|(_, note)| note).filter(|note| note.t > since).cloned().collect())
            }
        }
    }

    /// Rows and tags held now.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.rows.len(), self.notes.len())
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.notes.is_empty()
    }

    fn list(&self, now: Instant) -> Vec<Row> {
        let entries = self.order.values().rev().filter_map(|id| self.rows.get(id));
        entries
            .map(|entry| Row { game: entry.game.clone(), age: now.saturating_duration_since(entry.at).as_secs() })
            .collect()
    }

    fn announce(&mut self, now: Instant, Announce { id, game }: Announce, network: Prefix) -> Outcome {
        let order = self.next;
        self.next += 1;
        let changed = match self.rows.get_mut(&id) {
            Some(entry) => {
                self.order.remove(&entry.order);
                let changed = entry.game != game;
                entry.game = game;
                entry.at = now;
                entry.order = order;
                changed
            }
            None => {
                if self.rows.len() >= self.limits.rows && !self.make_room(network) {
                    return Outcome::Full;
                }
                self.rows.insert(id.clone(), Entry { game, at: now, order, network });
                *self.networks.entry(network).or_default() += 1;
                true
            }
        };
        self.order.insert(order, id);
        Outcome::Taken { changed }
    }

    /// A full list shares its rows between networks: one that holds at least two more than the newcomer's gives up
    /// the row it has announced least recently.
    fn make_room(&mut self, newcomer: Prefix) -> bool {
        let mine = self.networks.get(&newcomer).copied().unwrap_or_default();
        let Some((largest, count)) = self.networks.iter().max_by_key(|(_, count)| **count) else { return false };
        if *count < mine + 2 {
            return false;
        }
        let largest = *largest;
        let mut ids = self.order.values();
        let victim = ids.find(|id| self.rows.get(*id).is_some_and(|entry| entry.network == largest)).cloned();
        victim.is_some_and(|id| self.remove(&id))
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some(entry) = self.rows.remove(id) else { return false };
        self.order.remove(&entry.order);
        if let Some(count) = self.networks.get_mut(&entry.network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&entry.network);
            }
        }
        true
    }

    fn knock(&mut self, now: Instant, wall: Duration, tag: Tag, blob: String, grants: Grants) -> Outcome {
        if self.notes.len() >= self.limits.tags && !self.notes.contains_key(&tag) {
            return Outcome::Full;
        }
        // A host asks for what is newer than the last it saw, so no two notes may share a time.
        // Whole microseconds have 16 digits, which every reader of JSON gives back unchanged.
        self.last = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX).max(self.last.saturating_add(1));
        let queue = self.notes.entry(tag).or_default();
        while queue.len() >= self.limits.notes.max(1) {
            queue.pop_front();
        }
        queue.push_back((now, Note { t: seconds(self.last), blob, grants }));
        Outcome::Kept
    }

    fn expire(&mut self, now: Instant) {
        let row_ttl = Duration::from_secs(self.limits.row_ttl);
        while let Some((_, id)) = self.order.first_key_value() {
            let old = self.rows.get(id).is_none_or(|entry| now.saturating_duration_since(entry.at) >= row_ttl);
            if !old {
                break;
            }
            let id = id.clone();
            if !self.remove(&id) {
                self.order.pop_first();
            }
        }
        if self.swept.is_some_and(|at| now.saturating_duration_since(at) < Duration::from_secs(1)) {
            return;
        }
        self.swept = Some(now);
        let note_ttl = Duration::from_secs(self.limits.note_ttl);
        self.notes.retain(|_, queue| {
            while queue.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= note_ttl) {
                queue.pop_front();
            }
            !queue.is_empty()
        });
    }
}
