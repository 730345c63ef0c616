//! Who is in the session, and who reaches whom by the roster's word. One bit per pair: 5 KB for 200 players.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::RosterView;

#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Everybody, sorted.
    players: Vec<Arc<str>>,
    /// For each player with direct links, a bit for each player.
    rows: BTreeMap<Arc<str>, Vec<u64>>,
}

impl Reach {
    /// Takes over a roster; says whether anything differs from before.
    pub(crate) fn update(&mut self, roster: &RosterView<'_>) -> bool {
        let same = self.players.len() == roster.players.len()
            && self.players.iter().zip(&roster.players).all(|(mine, theirs)| &**mine == *theirs);
        if !same {
            self.players = roster.players.iter().map(|name| Arc::from(*name)).collect();
        }
        let rows = roster
            .links
            .iter()
            .filter(|(name, _)| roster.players.contains(*name))
            .map(|(name, reached)| (Arc::from(*name), self.bits(reached)))
            .collect();
        let changed = !same || self.rows != rows;
        self.rows = rows;
        changed
    }

    pub(crate) fn players(&self) -> &[Arc<str>] {
        &self.players
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.index(name).is_some()
    }

    /// Whether `carrier` reaches `player` directly.
    pub(crate) fn reaches(&self, carrier: &str, player: &str) -> bool {
        let (Some(row), Some(index)) = (self.rows.get(carrier), self.index(player)) else { return false };
        row.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.players.binary_search_by(|player| (**player).cmp(name)).ok()
    }

    /// Both sides are sorted, so one walk along both finds every player that is named.
    fn bits(&self, reached: &BTreeSet<String>) -> Vec<u64> {
        let mut row = vec![0; self.players.len().div_ceil(64)];
        let mut names = reached.iter().peekable();
        for (index, player) in self.players.iter().enumerate() {
            while names.next_if(|name| name.as_str() < &**player).is_some() {}
            if names.next_if(|name| name.as_str() == &**player).is_some()
                && let Some(word) = row.get_mut(index / 64)
            {
                *word |= 1u64 << (index % 64);
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_say_what_the_sets_say() {
        let names: Vec<String> = (0..150).map(|n| format!("p{n:03}")).collect();
        let links: BTreeMap<&str, BTreeSet<String>> = names
            .iter()
            .enumerate()
            .map(|(a, name)| {
                let all = names.iter().enumerate().filter(|(b, _)| (a * 7 + b * 3) % 5 == 0);
                (name.as_str(), all.map(|(_, name)| name.clone()).chain(["nobody".to_owned()]).collect())
            })
            .collect();
        let view = RosterView {
            players: names.iter().map(String::as_str).collect(),
            links: links.iter().map(|(name, set)| (*name, set)).collect(),
            ..RosterView::default()
        };
        let mut reach = Reach::default();
        assert!(reach.update(&view) && !reach.update(&view));
        for a in &names {
            for b in &names {
                assert_eq!(reach.reaches(a, b), links[a.as_str()].contains(b));
            }
            assert!(!reach.reaches(a, "nobody") && !reach.reaches("nobody", a));
        }
    }
}
