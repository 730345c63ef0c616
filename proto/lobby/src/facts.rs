//! The roster as revisioned facts, between our own ends (`docs/wire/extensions.md`, word `roster`).
//!
//! The host keeps [`Facts`], each under the revision that last changed it, and per joiner a [`Pager`] that sends pages
//! until they are acknowledged. A page is a range of revisions; it is written anew each time it is sent, so nothing is
//! stored per page but its range.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use codec::{Value, to_json};
use seam::Slots;
use serde::{Deserialize, Serialize};

use crate::messages::{Have, Page};
use crate::seats;
use crate::text;

/// Largest page, unless a single fact is larger.
pub(crate) const PAGE_MAX: usize = 1_250;
/// Pages on their way to one joiner.
const FLIGHT_MAX: usize = 8;
/// First wait for an acknowledgement; it doubles up to the last.
const RESEND_FIRST: Duration = Duration::from_millis(250);
const RESEND_LAST: Duration = Duration::from_secs(1);
/// How often a joiner hears of the newest revision even when nothing changes. This is also the host's keepalive.
const BEACON: Duration = Duration::from_secs(2);

/// What is said once for the whole lobby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LobbyFact {
    pub(crate) name: String,
    pub(crate) relay: bool,
    pub(crate) mode: String,
    /// Slot of the host or leader.
    pub(crate) host: Option<u8>,
    /// The world nonce.
    pub(crate) world: String,
    pub(crate) stored_age: i64,
    pub(crate) stored_max: i64,
}

/// Who sits in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seated {
    pub(crate) name: String,
    pub(crate) letter: String,
    pub(crate) company: u32,
}

/// One fact. Each kind and slot is a register of its own: the highest revision wins, so that pages may arrive in any
/// order and any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// `[rev, "g", {..}]`
    Lobby(LobbyFact),
    /// `[rev, "p", slot, name, letter, company]`, or `[rev, "p", slot]` for an empty slot.
    Player(u8, Option<Seated>),
    /// `[rev, "s", slot, text]`
    Stage(u8, String),
    /// `[rev, "c", slot, code]`, the code empty for none.
    Code(u8, String),
    /// `[rev, "l", slot, hex]`: whom the player in this slot reaches directly.
    Links(u8, Slots),
}

type Key = (u8, u8);

impl Fact {
    fn key(&self) -> Key {
        match self {
            Self::Lobby(_) => (0, 0),
            Self::Player(slot, _) => (1, *slot),
            Self::Stage(slot, _) => (2, *slot),
            Self::Code(slot, _) => (3, *slot),
            Self::Links(slot, _) => (4, *slot),
        }
    }

    /// Whether this is what a receiver assumes anyway.
    fn is_default(&self) -> bool {
        match self {
            Self::Lobby(_) => false,
            Self::Player(_, who) => who.is_none(),
            Self::Stage(_, text) | Self::Code(_, text) => text.is_empty(),
            Self::Links(_, slots) => *slots == Slots::default(),
        }
    }

    /// The array without its opening bracket and revision.
    fn body(&self) -> Vec<u8> {
        let array = match self {
            Self::Lobby(lobby) => to_json(&("g", lobby)),
            Self::Player(slot, None) => to_json(&("p", slot)),
            Self::Player(slot, Some(who)) => to_json(&("p", slot, &who.name, &who.letter, who.company)),
            Self::Stage(slot, text) => to_json(&("s", slot, text)),
            Self::Code(slot, code) => to_json(&("c", slot, code)),
            Self::Links(slot, slots) => to_json(&("l", slot, seats::to_hex(*slots))),
        };
        array.get(1..).unwrap_or_default().to_vec()
    }

    /// Reads `[rev, kind, ...]`. Kinds of later versions are `Ok(None)`.
    pub(crate) fn parse(value: &Value) -> Result<Option<(u64, Self)>, BadFact> {
        let array = value.as_array().ok_or(BadFact)?;
        let rev = array.first().and_then(Value::as_u64).ok_or(BadFact)?;
        let kind = array.get(1).and_then(Value::as_str).ok_or(BadFact)?;
        let slot = || array.get(2).and_then(Value::as_u64).and_then(|n| u8::try_from(n).ok()).ok_or(BadFact);
        let word = |at: usize, most: usize| {
            array.get(at).and_then(Value::as_str).filter(|text| text.len() <= most).ok_or(BadFact)
        };
        let fact = match kind {
            "g" => {
                let mut lobby: LobbyFact =
                    serde_json::from_value(array.get(2).cloned().unwrap_or_default()).map_err(|_| BadFact)?;
                if lobby.name.len() > text::NAME_MAX || !text::is_nonce(&lobby.world) {
                    return Err(BadFact);
                }
                lobby.name = text::optional_name(&lobby.name);
                Self::Lobby(lobby)
            }
            "p" if array.len() == 3 => Self::Player(slot()?, None),
            "p" => {
                let company = array.get(5).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
                let name = text::name(word(3, text::NAME_MAX)?);
                let letter = word(4, 8)?.to_owned();
                Self::Player(slot()?, Some(Seated { name, letter, company: company.ok_or(BadFact)? }))
            }
            "s" => Self::Stage(slot()?, text::stage(word(3, text::STAGE_MAX * 4)?)),
            "c" => Self::Code(slot()?, text::profile(Some(word(3, text::PROFILE_MAX)?.to_owned())).unwrap_or_default()),
            "l" => Self::Links(slot()?, seats::from_hex(word(3, 64)?).ok_or(BadFact)?),
            _ => return Ok(None),
        };
        Ok(Some((rev, fact)))
    }
}

/// A fact that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFact;

/// Everything a host says of its lobby: at most one fact per kind and slot, 1,025 in all.
#[derive(Debug)]
pub(crate) struct Facts {
    of: String,
    now: u64,
    by_key: BTreeMap<Key, (u64, Vec<u8>)>,
    by_rev: BTreeMap<u64, Key>,
}

impl Facts {
    pub(crate) fn new(of: String) -> Self {
        Self { of, now: 0, by_key: BTreeMap::new(), by_rev: BTreeMap::new() }
    }

    /// Which set this is.
    pub(crate) fn of(&self) -> &str {
        &self.of
    }

    /// The newest revision.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Says `fact`; what was said before in the same words keeps its revision.
    pub(crate) fn set(&mut self, fact: &Fact) {
        let key = fact.key();
        let body = fact.body();
        match self.by_key.get(&key) {
            Some((_, held)) if *held == body => return,
            Some((rev, _)) => {
                self.by_rev.remove(rev);
            }
            None if fact.is_default() => return,
            None => {}
        }
        self.now += 1;
        self.by_rev.insert(self.now, key);
        self.by_key.insert(key, (self.now, body));
    }

    /// Facts after `from`, oldest first, until `room` bytes are full or `to` is passed; the revision reached.
    fn page(&self, from: u64, to: Option<u64>, room: usize) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        let mut reached = from;
        // A range that begins after its end is no range.
        if from >= to.unwrap_or(self.now) {
            return (from, out);
        }
        for (&rev, key) in self.by_rev.range(from + 1..=to.unwrap_or(self.now)) {
            let Some((_, body)) = self.by_key.get(key) else { continue };
            let head = format!("{}[{rev}, ", if out.is_empty() { "" } else { ", " });
            if to.is_none() && !out.is_empty() && out.len() + head.len() + body.len() > room {
                return (reached, out);
            }
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(body);
            reached = rev;
        }
        (to.unwrap_or(self.now), out)
    }
}

/// What a page says besides facts; it differs between joiners.
#[derive(Clone, Debug)]
pub(crate) struct PageHead<'a> {
    pub(crate) version: &'a str,
    pub(crate) you: u8,
    pub(crate) started: bool,
    pub(crate) start_save: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    from: u64,
    to: u64,
    due: Instant,
    wait: Duration,
}

/// Brings one joiner up to date. Holds at most eight ranges.
#[derive(Debug)]
pub(crate) struct Pager {
    /// Revisions up to here were put into pages.
    sent: u64,
    flight: VecDeque<Flight>,
    beacon: Instant,
}

impl Pager {
    /// A pager for a joiner that holds everything up to `held` of these facts already.
    pub(crate) fn new(now: Instant, held: u64) -> Self {
        Self { sent: held, flight: VecDeque::new(), beacon: now }
    }

    /// Makes the next beacon due.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.beacon = self.beacon.min(now);
    }

    /// What the joiner says it holds. Late and repeated reports are harmless, since no range is ever taken back.
    pub(crate) fn have(&mut self, facts: &Facts, have: &Have) {
        if have.of != facts.of || have.rev > facts.now {
            return;
        }
        self.sent = self.sent.max(have.rev);
        self.flight.retain(|page| {
            page.to > have.rev && !have.got.iter().take(16).any(|&(from, to)| from <= page.from && page.to <= to)
        });
    }

    /// When something is to be sent.
    pub(crate) fn due(&self, facts: &Facts, now: Instant) -> Instant {
        if self.sent < facts.now && self.flight.len() < FLIGHT_MAX {
            return now;
        }
        self.flight.iter().map(|page| page.due).fold(self.beacon, Instant::min)
    }

    /// The next page that is due.
    pub(crate) fn poll(&mut self, facts: &Facts, now: Instant, head: &PageHead<'_>) -> Option<Vec<u8>> {
        if let Some(page) = self.flight.iter_mut().find(|page| page.due <= now) {
            page.wait = (page.wait * 2).min(RESEND_LAST);
            page.due = now + page.wait;
            let (from, to) = (page.from, page.to);
            let (_, body) = facts.page(from, Some(to), PAGE_MAX);
            return Some(self.write(facts, now, head, (from, to), &body));
        }
        if self.sent < facts.now && self.flight.len() < FLIGHT_MAX {
            let from = self.sent;
            let room = PAGE_MAX.saturating_sub(header(facts, head, (from, u64::MAX)).len());
            let (to, body) = facts.page(from, None, room);
            self.sent = to;
            self.flight.push_back(Flight { from, to, due: now + RESEND_FIRST, wait: RESEND_FIRST });
            return Some(self.write(facts, now, head, (from, to), &body));
        }
        if self.beacon <= now {
            return Some(self.write(facts, now, head, (self.sent, self.sent), b""));
        }
        None
    }

    fn write(&mut self, facts: &Facts, now: Instant, head: &PageHead<'_>, range: (u64, u64), body: &[u8]) -> Vec<u8> {
        self.beacon = now + BEACON;
        let mut out = header(facts, head, range);
        // The facts are kept as text: they go in front of the closing `]}` of a page without any.
        out.truncate(out.len().saturating_sub(2));
        out.extend_from_slice(body);
        out.extend_from_slice(b"]}");
        out
    }
}

/// A page without facts.
fn header(facts: &Facts, head: &PageHead<'_>, (from, to): (u64, u64)) -> Vec<u8> {
    to_json(&Page {
        version: head.version.into(),
        of: facts.of.clone(),
        from,
        to,
        now: facts.now,
        you: head.you,
        started: head.started,
        start_save: head.start_save,
        facts: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: PageHead<'_> = PageHead { version: "0.7.1.4", you: 1, started: false, start_save: false };

    fn parse(page: &[u8]) -> Page {
        serde_json::from_slice(page).unwrap()
    }

    fn crowd(facts: &mut Facts, players: u8) {
        let mut all = Slots::default();
        (0..players).for_each(|slot| all.insert(slot));
        for slot in 0..players {
            let who = Seated { name: format!("player number {slot}"), letter: "ab".into(), company: 1 };
            facts.set(&Fact::Player(slot, Some(who)));
            facts.set(&Fact::Code(slot, "A".repeat(47)));
            facts.set(&Fact::Links(slot, all));
        }
    }

    #[test]
    fn pages_keep_to_their_size_and_cover_everything_once() {
        let start = Instant::now();
        let mut facts = Facts::new("0011223344556677".into());
        crowd(&mut facts, 200);
        let mut pager = Pager::new(start, 0);
        let (mut seen, mut reached) = (Vec::new(), 0);
        while reached < facts.now() {
            while let Some(bytes) = pager.poll(&facts, start, &HEAD) {
                assert!(bytes.len() <= PAGE_MAX);
                let page = parse(&bytes);
                assert_eq!(page.from, reached);
                reached = page.to;
                seen.extend(page.facts.iter().map(|fact| Fact::parse(fact).unwrap().unwrap().0));
            }
            let have = Have { of: facts.of().into(), rev: reached, got: Vec::new() };
            pager.have(&facts, &have);
        }
        assert_eq!(seen, (1..=600).collect::<Vec<u64>>());
    }

    #[test]
    fn the_largest_facts_there_are_fit_into_a_page() {
        let start = Instant::now();
        let mut facts = Facts::new("0011223344556677".into());
        let name = text::name(&"\u{fc}".repeat(200));
        facts.set(&Fact::Lobby(LobbyFact {
            name: name.clone(),
            relay: true,
            mode: "companies".into(),
            host: Some(200),
            world: "0".repeat(32),
            stored_age: i64::from(i32::MAX),
            stored_max: 180,
        }));
        facts.set(&Fact::Player(255, Some(Seated { name, letter: "zzz".into(), company: 200 })));
        facts.set(&Fact::Stage(255, text::stage(&"\u{1F682}".repeat(90))));
        facts.set(&Fact::Code(255, "A".repeat(text::PROFILE_MAX)));
        let mut pager = Pager::new(start, 0);
        let mut pages = 0;
        while let Some(bytes) = pager.poll(&facts, start, &HEAD) {
            assert!(bytes.len() <= PAGE_MAX, "{}", bytes.len());
            assert!(parse(&bytes).facts.iter().all(|fact| Fact::parse(fact).is_ok()));
            pages += 1;
        }
        assert!(pages >= 3);
    }

    #[test]
    fn an_unacknowledged_page_comes_again_ever_more_slowly_with_what_holds_now() {
        let start = Instant::now();
        let mut facts = Facts::new("0011223344556677".into());
        facts.set(&Fact::Stage(3, "one".into()));
        let mut pager = Pager::new(start, 0);
        assert!(pager.poll(&facts, start, &HEAD).is_some());
        facts.set(&Fact::Stage(3, "two".into()));
        let mut now = start;
        let mut gaps = Vec::new();
        while let Some(bytes) = pager.poll(&facts, now, &HEAD) {
            let page = parse(&bytes);
            if (page.from, page.to) == (0, 1) {
                assert!(page.facts.is_empty(), "the fact of revision 1 has gone on to revision 2");
            }
            if pager.flight.iter().all(|page| page.due > now) {
                let due = pager.due(&facts, now);
                gaps.push((due - now).as_millis());
                now = due;
            }
            if gaps.len() == 5 {
                break;
            }
        }
        assert_eq!(gaps, [250, 500, 1000, 1000, 1000]);
    }

    #[test]
    fn ranges_received_out_of_order_are_not_sent_again() {
        let start = Instant::now();
        let mut facts = Facts::new("0011223344556677".into());
        crowd(&mut facts, 60);
        let mut pager = Pager::new(start, 0);
        let pages: Vec<Page> =
            std::iter::from_fn(|| pager.poll(&facts, start, &HEAD)).map(|bytes| parse(&bytes)).take(4).collect();
        let got = vec![(pages[1].from, pages[2].to)];
        pager.have(&facts, &Have { of: facts.of().into(), rev: 0, got });
        let left: Vec<u64> = pager.flight.iter().map(|page| page.from).collect();
        assert!(left.contains(&pages[0].from) && !left.contains(&pages[1].from) && !left.contains(&pages[2].from));
        pager.have(&facts, &Have { of: "another set".into(), rev: facts.now(), got: Vec::new() });
        assert_eq!(pager.flight.len(), left.len());
        pager.have(&facts, &Have { of: facts.of().into(), rev: u64::MAX, got: Vec::new() });
        assert_eq!(pager.flight.len(), left.len());
    }

    #[test]
    fn a_fact_of_a_later_kind_is_passed_over_and_a_broken_one_is_not() {
        let read = |text: &str| Fact::parse(&serde_json::from_str(text).unwrap());
        assert_eq!(read(r#"[7, "zz", 1, {}]"#), Ok(None));
        assert_eq!(read(r#"[7, "s", 2, "x"]"#), Ok(Some((7, Fact::Stage(2, "x".into())))));
        for bad in
            [r#"{}"#, r#"[]"#, r#"["7", "s"]"#, r#"[7, "s", 256, "x"]"#, r#"[7, "s", 1, 2]"#, r#"[7, "l", 1, "zz"]"#]
        {
            assert_eq!(read(bad), Err(BadFact), "{bad}");
        }
    }
}
