//! Proof that somebody receives at an address.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use np1::Kind;
use seam::{Dice, Path, Refused};

use crate::outgoing::Outgoing;
use crate::{Event, Token};

/// Most addresses asked at once; a further one is not asked.
pub const CHALLENGES_MAX: usize = 64;

const INTERVAL: Duration = Duration::from_millis(100);
const TRIES: u32 = 10;

#[derive(Clone, Debug)]
struct Challenge {
    token: Token,
    sent: u32,
    next: Instant,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Challenges {
    by_path: BTreeMap<Path, Challenge>,
}

impl Challenges {
    /// False when there are too many.
    pub(crate) fn start(&mut self, now: Instant, path: Path, dice: &mut Dice) -> bool {
        if self.by_path.contains_key(&path) {
            return true;
        }
        if self.by_path.len() >= CHALLENGES_MAX {
            return false;
        }
        self.by_path.insert(path, Challenge { token: dice.bytes(), sent: 0, next: now });
        true
    }

    pub(crate) fn stop(&mut self, path: Path) {
        self.by_path.remove(&path);
    }

    pub(crate) fn is_own(&self, token: Token) -> bool {
        self.by_path.values().any(|challenge| challenge.token == token)
    }

    /// An A came. `None` when its token is of no challenge.
    pub(crate) fn answered(&mut self, from: Path, token: Token) -> Option<Result<Event, Refused>> {
        if self.by_path.get(&from).is_some_and(|challenge| challenge.token == token) {
            self.by_path.remove(&from);
            return Some(Ok(Event::Proved { path: from }));
        }
        self.is_own(token).then_some(Err(Refused::NotAllowed))
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut Outgoing, events: &mut VecDeque<Event>) {
        let mut over = Vec::new();
        for (path, challenge) in self.by_path.iter_mut().filter(|(_, challenge)| challenge.next <= now) {
            if challenge.sent >= TRIES {
                over.push(*path);
                continue;
            }
            out.token(*path, Kind::Hello, challenge.token);
            challenge.sent += 1;
            challenge.next = now + INTERVAL;
        }
        for path in over {
            self.by_path.remove(&path);
            events.push_back(Event::Unproved { path });
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.by_path.values().map(|challenge| challenge.next).min().map(|due| (due, "challenge"))
    }
}
