//! Who is in the session, and who reaches whom by the roster's word. One bit per pair: 8 KB for 256 players.

use std::sync::Arc;

use seam::Slots;

use crate::RosterView;

#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Everybody, sorted.
    players: Vec<Arc<str>>,
    /// Where each of them sits, and whom it reaches.
    rows: Vec<(u8, Slots)>,
}

impl Reach {
    /// Takes over a roster; says whether anybody is new, gone or called something else.
    pub(crate) fn update(&mut self, roster: &RosterView<'_>) -> bool {
        self.rows.clear();
        self.rows.extend(roster.players.values().map(|seat| (seat.slot, seat.links)));
        if self.players.iter().map(|name| &**name).eq(roster.players.keys().copied()) {
            return false;
        }
        let mut old = std::mem::take(&mut self.players).into_iter().peekable();
        let kept = |name: &str| {
            while old.next_if(|old| **old < *name).is_some() {}
            old.next_if(|old| **old == *name).unwrap_or_else(|| Arc::from(name))
        };
        self.players = roster.players.keys().copied().map(kept).collect();
        true
    }

    pub(crate) fn players(&self) -> &[Arc<str>] {
        &self.players
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.index(name).is_some()
    }

    /// Whom `name` reaches by the roster's word, in the order of names.
    pub(crate) fn reached(&self, name: &str) -> impl Iterator<Item = &str> {
        let reached = self.row(name).map(|(_, reached)| reached).unwrap_or_default();
        let seated = self.players.iter().zip(&self.rows).filter(move |(_, (slot, _))| reached.contains(*slot));
        seated.map(|(name, _)| &**name)
    }

    /// Where a player sits.
    pub(crate) fn slot(&self, name: &str) -> Option<u8> {
        self.row(name).map(|(slot, _)| slot)
    }

    /// Whether `carrier` reaches the player in this slot directly.
    pub(crate) fn reaches(&self, carrier: &str, slot: u8) -> bool {
        self.row(carrier).is_some_and(|(_, reached)| reached.contains(slot))
    }

    fn row(&self, name: &str) -> Option<(u8, Slots)> {
        self.rows.get(self.index(name)?).copied()
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.players.binary_search_by(|player| (**player).cmp(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seat;

    #[test]
    fn a_roster_says_who_reaches_whom_also_when_somebody_comes_or_goes() {
        let names: Vec<String> = (0..150).map(|n| format!("p{n:03}")).collect();
        // Seats are in another order than names.
        let slot = |n: usize| u8::try_from(n * 7 % 256).unwrap();
        let is_linked = |a: usize, b: usize| (a * 7 + b * 3).is_multiple_of(5);
        let row = |a: usize| (0..150).filter(|&b| is_linked(a, b)).map(slot).collect::<Slots>();
        let mut view = RosterView {
            players: (0..150)
                .map(|n| (names[n].as_str(), Seat { slot: slot(n), links: row(n), ..Seat::default() }))
                .collect(),
            ..RosterView::default()
        };
        let mut reach = Reach::default();
        assert!(reach.update(&view) && !reach.update(&view));
        for a in 0..150 {
            for (b, name) in names.iter().enumerate() {
                assert_eq!(reach.slot(name), Some(slot(b)));
                assert_eq!(reach.reaches(&names[a], slot(b)), is_linked(a, b));
            }
            let reached: Vec<_> = (0..150).filter(|&b| is_linked(a, b)).map(|b| names[b].as_str()).collect();
            assert_eq!(reach.reached(&names[a]).collect::<Vec<_>>(), reached);
        }
        assert!(!reach.reaches("nobody", slot(0)) && reach.slot("nobody").is_none());
        view.players.remove("p070");
        view.players.insert("p0705", Seat { slot: 251, ..Seat::default() });
        assert!(reach.update(&view) && !reach.has("p070") && reach.has("p0705"));
        assert!(reach.players().iter().map(|name| &**name).eq(view.players.keys().copied()));
        assert!(!reach.reached("p000").any(|name| name == "p070"));
    }
}
