//! Who is in the lobby, and the seats of those who were lost a moment ago.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use seam::{Path, Slots};

use crate::facts::Pager;
use crate::logs::{Allowance, PerSecond};
use crate::messages::Words;

/// A lost member may take its seat again for this long: the joiner's own 30 and 120 seconds.
const KEPT_FOR: Duration = Duration::from_secs(150);
/// Seats kept at once; of more, the oldest goes.
const KEPT_MAX: usize = 400;

/// A resume token. It is compared in constant time and never shown.
#[derive(Clone, Copy)]
pub(super) struct Token(pub(super) [u8; 16]);

impl Token {
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        codec::unhex(text)?.try_into().ok().map(Self)
    }

    pub(super) fn to_hex(self) -> String {
        codec::hex(&self.0)
    }

    fn is(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What a player keeps when its address changes or it comes back.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) name: String,
    /// The name it asked for.
    pub(super) asked: String,
    pub(super) letter: String,
    pub(super) company: u32,
    pub(super) stage: String,
    pub(super) started: bool,
    /// Its next start replaces a running world.
    pub(super) switching: bool,
    /// Only for peers that can use it.
    pub(super) token: Option<Token>,
}

/// One joiner.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) seat: Seat,
    pub(super) slot: u8,
    /// Rises with every admission: the lowest is the oldest.
    pub(super) order: u64,
    pub(super) mesh: bool,
    pub(super) profile: Option<String>,
    pub(super) words: Words,
    pub(super) heard: Instant,
    pub(super) links: Slots,
    pub(super) logs: Allowance,
    pub(super) chats: PerSecond,
    pub(super) feed: Feed,
}

/// How a member learns of the roster.
#[derive(Debug)]
pub(super) enum Feed {
    /// Whole rosters: the last one sent, the next one due.
    Old { sent: Option<Instant>, due: Instant },
    /// Pages of facts.
    Pages(Pager),
}

/// All joiners, at most 199, and at most 400 kept seats.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_path: BTreeMap<Path, Member>,
    kept: VecDeque<(Instant, Seat)>,
    next_order: u64,
    next_slot: u8,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    pub(super) fn at(&self, path: Path) -> Option<&Member> {
        self.by_path.get(&path)
    }

    pub(super) fn at_mut(&mut self, path: Path) -> Option<&mut Member> {
        self.by_path.get_mut(&path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Path, &Member)> {
        self.by_path.iter().map(|(path, member)| (*path, member))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Path, &mut Member)> {
        self.by_path.iter_mut().map(|(path, member)| (*path, member))
    }

    pub(super) fn paths(&self) -> Vec<Path> {
        self.by_path.keys().copied().collect()
    }

    pub(super) fn named(&self, name: &str) -> Option<(Path, &Member)> {
        self.iter().find(|(_, member)| member.seat.name == name)
    }

    pub(super) fn path_of(&self, name: &str) -> Option<Path> {
        self.named(name).map(|(path, _)| path)
    }

    /// The joiner connected longest.
    pub(super) fn oldest(&self) -> Option<(Path, &Member)> {
        self.iter().min_by_key(|(_, member)| member.order)
    }

    /// In the order in which they came.
    pub(super) fn paths_by_age(&self) -> Vec<Path> {
        let mut all: Vec<_> = self.iter().map(|(path, member)| (member.order, path)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, path)| path).collect()
    }

    /// A slot nobody has, one that was free for long. Slot 0 is the host's.
    pub(super) fn free_slot(&mut self) -> u8 {
        for _ in 0..=u8::MAX {
            self.next_slot = self.next_slot.checked_add(1).unwrap_or(1);
            if !self.by_path.values().any(|member| member.slot == self.next_slot) {
                break;
            }
        }
        self.next_slot
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    pub(super) fn insert(&mut self, path: Path, member: Member) {
        self.by_path.insert(path, member);
    }

    pub(super) fn remove(&mut self, path: Path) -> Option<Member> {
        let gone = self.by_path.remove(&path)?;
        for member in self.by_path.values_mut() {
            member.links.remove(gone.slot);
        }
        Some(gone)
    }

    /// Moves a member. False when nobody is at `old` or somebody is at `new`.
    pub(super) fn rekey(&mut self, old: Path, new: Path) -> bool {
        if self.by_path.contains_key(&new) {
            return false;
        }
        match self.by_path.remove(&old) {
            Some(member) => self.by_path.insert(new, member).is_none(),
            None => false,
        }
    }

    /// Where the member with this token is. Looks at all of them, whatever it finds.
    pub(super) fn with_token(&self, token: &Token) -> Option<Path> {
        self.iter().fold(None, |found, (path, member)| {
            if member.seat.token.as_ref().is_some_and(|held| held.is(token)) { Some(path) } else { found }
        })
    }

    /// Keeps the seat of a lost member, if it could ask for it.
    pub(super) fn keep(&mut self, now: Instant, seat: Seat) {
        if seat.token.is_none() {
            return;
        }
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((now + KEPT_FOR, seat));
    }

    /// Takes the kept seat with this token.
    pub(super) fn take_kept(&mut self, now: Instant, token: &Token) -> Option<Seat> {
        self.kept.retain(|(until, _)| *until > now);
        let found = self.kept.iter().enumerate().fold(None, |found, (at, (_, seat))| {
            if seat.token.as_ref().is_some_and(|held| held.is(token)) { Some(at) } else { found }
        })?;
        self.kept.remove(found).map(|(_, seat)| seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(token: u8) -> Seat {
        Seat {
            name: "bob".into(),
            asked: "bob".into(),
            letter: "b".into(),
            company: 1,
            stage: String::new(),
            started: false,
            switching: false,
            token: Some(Token([token; 16])),
        }
    }

    #[test]
    fn a_kept_seat_is_given_once_and_not_for_ever() {
        let start = Instant::now();
        let mut members = Members::default();
        members.keep(start, seat(1));
        members.keep(start, seat(2));
        assert!(members.take_kept(start, &Token([3; 16])).is_none());
        assert!(members.take_kept(start, &Token([1; 16])).is_some());
        assert!(members.take_kept(start, &Token([1; 16])).is_none());
        assert!(members.take_kept(start + KEPT_FOR, &Token([2; 16])).is_none());
    }

    #[test]
    fn kept_seats_are_bounded() {
        let start = Instant::now();
        let mut members = Members::default();
        (0..1_000).for_each(|_| members.keep(start, seat(1)));
        assert_eq!(members.kept.len(), KEPT_MAX);
    }

    #[test]
    fn a_token_reads_back_and_shows_nothing() {
        let token = Token([0xAB; 16]);
        assert!(Token::from_hex(&token.to_hex()).unwrap().is(&token));
        assert!(Token::from_hex("ab").is_none() && Token::from_hex(&"xy".repeat(16)).is_none());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
