//! What a player asked for and the roster does not show yet: one datagram may be lost, so it is said again a few times.

use std::time::{Duration, Instant};

use codec::to_json;
use seam::Slots;

use crate::messages::{Company, Links, Stage};
use crate::{Mode, Roster};

/// How often wishes are compared with the roster; also how often reports of links are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Two reports of links are at least this far apart.
const LINKS_GAP: Duration = Duration::from_millis(250);
/// A host that has not followed a wish by now does not want to.
const TRIES: u8 = 5;

#[derive(Debug)]
struct Wish<T> {
    value: T,
    tries: u8,
}

/// The last wish of each kind.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    stage: Option<Wish<String>>,
    company: Option<Wish<u32>>,
    /// The mode in which it was wished.
    mode: Option<Mode>,
    /// Names reached directly, once anybody said.
    links: Option<Vec<String>>,
    reported: Option<Instant>,
    unreported: bool,
    look: Option<Instant>,
}

impl Wishes {
    /// The player does something else now; what to send.
    pub(super) fn stage(&mut self, now: Instant, value: String) -> Vec<u8> {
        self.look.get_or_insert(now + LOOK);
        let json = to_json(&Stage { text: value.clone() });
        self.stage = Some(Wish { value, tries: TRIES });
        json
    }

    /// The player wants another company; what to send.
    pub(super) fn company(&mut self, now: Instant, me: &str, id: u32) -> Vec<u8> {
        self.look.get_or_insert(now + LOOK);
        self.company = Some(Wish { value: id, tries: TRIES });
        to_json(&Company { player: Some(me.to_owned()), id: i64::from(id) })
    }

    /// The player reaches these directly now.
    pub(super) fn links(&mut self, now: Instant, mut direct: Vec<String>) {
        direct.sort_unstable();
        direct.dedup();
        direct.truncate(crate::messages::LINKS_MAX);
        if self.links.as_ref() != Some(&direct) {
            self.links = Some(direct);
            self.unreported = true;
        }
        self.look.get_or_insert(now + LOOK);
    }

    /// A host that forgot us is told everything again.
    pub(super) fn renew(&mut self) {
        self.unreported = self.links.is_some();
        self.stage.iter_mut().for_each(|wish| wish.tries = TRIES);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let report = self.unreported.then(|| self.reported.map(|at| at + LINKS_GAP)).flatten();
        match (self.look, report) {
            (Some(look), Some(report)) => Some(look.min(report)),
            (look, report) => look.or(report),
        }
    }

    /// What is to be said now. `links_told` is false for a host whose rosters leave the links out.
    pub(super) fn take_due(&mut self, now: Instant, roster: &Roster, links_told: bool) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let me = roster.players.get(&roster.you);
        // Once fulfilled it is over: a leader, or another mode, may place the player elsewhere afterwards.
        let replaced = self.mode.replace(roster.mode).is_some_and(|mode| mode != roster.mode);
        self.company.take_if(|wish| replaced || me.is_some_and(|me| wish.value == me.company));
        if self.look.is_some_and(|look| look <= now) {
            self.look = Some(now + LOOK);
            if let Some(me) = me {
                if let Some(wish) = again(&mut self.stage, |value| me.stage == *value) {
                    out.push(to_json(&Stage { text: wish }));
                }
                if let Some(id) = again(&mut self.company, |id| me.company == *id) {
                    out.push(to_json(&Company { player: Some(roster.you.clone()), id: i64::from(id) }));
                }
                // A host leaves out names it does not know.
                let others = |name: &&String| **name != roster.host;
                let differs = |links: &Vec<String>| {
                    let known = links.iter().filter(others).filter_map(|name| roster.players.get(name));
                    known.map(|player| player.slot).collect::<Slots>() != me.links
                };
                self.unreported |= links_told && self.links.as_ref().is_some_and(differs);
            }
        }
        if self.unreported
            && self.reported.is_none_or(|at| at + LINKS_GAP <= now)
            && let Some(direct) = &self.links
        {
            out.push(to_json(&Links { direct: direct.clone() }));
            (self.unreported, self.reported) = (false, Some(now));
        }
        out
    }
}

/// A wish that is not fulfilled and may be said again.
fn again<T: Clone>(slot: &mut Option<Wish<T>>, fulfilled: impl Fn(&T) -> bool) -> Option<T> {
    let wish = slot.as_mut()?;
    // A fulfilled wish is kept while it may have to be renewed, but no longer said.
    if wish.tries == 0 || fulfilled(&wish.value) {
        return None;
    }
    wish.tries -= 1;
    Some(wish.value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Player;

    fn roster(stage: &str, links: &[&str]) -> Roster {
        let links = if links == ["lin"] { [2].into_iter().collect() } else { Slots::EMPTY };
        let me = Player { slot: 1, stage: stage.into(), links, ..Player::default() };
        let other = Player { slot: 2, links: [1].into_iter().collect(), ..Player::default() };
        let players = [("bob".to_owned(), me), ("lin".to_owned(), other)].into();
        Roster { you: "bob".into(), host: "ada".into(), players, ..Roster::default() }
    }

    #[test]
    fn a_wish_is_said_again_until_the_roster_shows_it_or_five_times() {
        let start = Instant::now();
        let mut wishes = Wishes::default();
        wishes.stage(start, "loading".into());
        let said = |wishes: &mut Wishes, n: u32, roster: &Roster| wishes.take_due(start + LOOK * n, roster, true).len();
        assert_eq!((1..10).map(|n| said(&mut wishes, n, &roster("", &[]))).sum::<usize>(), 5);
        wishes.stage(start + LOOK * 10, "playing".into());
        assert_eq!(said(&mut wishes, 11, &roster("", &[])), 1);
        assert_eq!(said(&mut wishes, 12, &roster("playing", &[])), 0);
    }

    #[test]
    fn the_first_report_of_links_goes_out_even_when_empty_and_a_lost_one_again() {
        let start = Instant::now();
        let mut wishes = Wishes::default();
        wishes.links(start, Vec::new());
        assert_eq!(wishes.take_due(start, &roster("", &[]), true), [br#"{"t": "links", "direct": []}"#.to_vec()]);
        wishes.links(start, vec!["lin".into()]);
        assert!(wishes.take_due(start + Duration::from_millis(249), &roster("", &[]), true).is_empty());
        assert_eq!(wishes.due(), Some(start + LINKS_GAP));
        assert_eq!(wishes.take_due(start + LINKS_GAP, &roster("", &[]), true).len(), 1);
        assert_eq!(wishes.take_due(start + LOOK, &roster("", &[]), true).len(), 1, "the roster does not show it");
        assert!(wishes.take_due(start + LOOK * 2, &roster("", &["lin"]), true).is_empty());
    }
}
