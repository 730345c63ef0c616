//! A joiner's copy of the roster facts.

use std::collections::BTreeMap;

use seam::{Refused, Slots};

use crate::facts::{Fact, LobbyFact, Seated};
use crate::messages::{Have, Page};
use crate::{Mode, Player, Roster};

/// Ranges held beyond the first gap.
const GOT_MAX: usize = 16;
/// Facts in one page: more do not fit into 1,250 bytes.
const FACTS_MAX: usize = 256;

/// A value and the revision that set it.
type Register<T> = (u64, T);

/// What a host said of its lobby. Bounded by 256 slots of one player, stage, code and link set each.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    of: String,
    have: u64,
    got: Vec<(u64, u64)>,
    /// The first newest revision heard of: before it is reached the copy is not shown.
    first: u64,
    you: u8,
    started: bool,
    lobby: Option<Register<LobbyFact>>,
    players: BTreeMap<u8, Register<Option<Seated>>>,
    stages: BTreeMap<u8, Register<String>>,
    codes: BTreeMap<u8, Register<String>>,
    links: BTreeMap<u8, Register<Slots>>,
    /// The taken slots in the order of names, as long as nobody came, went or was called something else.
    order: Option<Vec<u8>>,
}

impl View {
    /// An empty copy of the facts that `page` belongs to.
    pub(crate) fn new(page: &Page) -> Result<Self, Refused> {
        if page.of.len() > 32 || page.of.is_empty() {
            return Err(Refused::Malformed);
        }
        Ok(Self { of: page.of.clone(), first: page.now, ..Self::default() })
    }

    /// Which facts these are.
    pub(crate) fn of(&self) -> &str {
        &self.of
    }

    /// Everything up to this revision is held.
    pub(crate) fn revision(&self) -> u64 {
        self.have
    }

    /// Whether the copy may be shown: everything that held when the first page was written is here.
    pub(crate) fn is_whole(&self) -> bool {
        self.lobby.is_some() && self.have >= self.first
    }

    /// The world nonce as the newest fact has it.
    pub(crate) fn world(&self) -> Option<&str> {
        self.lobby.as_ref().map(|(_, lobby)| lobby.world.as_str())
    }

    /// The own slot as the newest page has it.
    pub(crate) fn you(&self) -> Option<&str> {
        self.name(self.you)
    }

    fn name(&self, slot: u8) -> Option<&str> {
        self.players.get(&slot).and_then(|(_, who)| who.as_ref()).map(|who| who.name.as_str())
    }

    fn seated(&self) -> impl Iterator<Item = (u8, &Seated)> {
        self.players.iter().filter_map(|(&slot, (_, who))| Some((slot, who.as_ref()?)))
    }

    /// Takes a page of these facts; nothing changes when it is refused. Whether the roster may be another one now.
    pub(crate) fn take(&mut self, page: &Page) -> Result<bool, Refused> {
        if page.from > page.to || page.to > page.now || page.facts.len() > FACTS_MAX {
            return Err(Refused::Malformed);
        }
        let facts: Vec<_> =
            page.facts.iter().map(Fact::parse).collect::<Result<_, _>>().map_err(|_| Refused::Malformed)?;
        for (rev, fact) in facts.into_iter().flatten() {
            if rev <= page.from || rev > page.to {
                return Err(Refused::Malformed);
            }
            match fact {
                Fact::Lobby(lobby) => {
                    if self.lobby.as_ref().is_none_or(|(held, _)| *held < rev) {
                        self.lobby = Some((rev, lobby));
                    }
                }
                Fact::Player(slot, who) => {
                    self.order = None;
                    put(&mut self.players, slot, rev, who);
                }
                Fact::Stage(slot, text) => put(&mut self.stages, slot, rev, text),
                Fact::Code(slot, code) => put(&mut self.codes, slot, rev, code),
                Fact::Links(slot, slots) => put(&mut self.links, slot, rev, slots),
            }
        }
        let before = (self.is_whole(), self.you, self.started);
        // A page that was overtaken says of itself that it is older: its header counts only when nothing newer came.
        if page.to >= self.have {
            self.you = page.you;
            self.started = page.started;
        }
        self.cover(page.from, page.to);
        Ok(!page.facts.is_empty() || before != (self.is_whole(), self.you, self.started))
    }

    /// Marks a range as held.
    fn cover(&mut self, from: u64, to: u64) {
        if to <= self.have || from == to {
            return;
        }
        if from > self.have {
            if !self.got.contains(&(from, to)) && self.got.len() < GOT_MAX {
                self.got.push((from, to));
            }
            return;
        }
        self.have = to;
        while let Some(at) = self.got.iter().position(|&(from, to)| from <= self.have && to > self.have) {
            self.have = self.got.swap_remove(at).1;
        }
        self.got.retain(|&(_, to)| to > self.have);
    }

    /// The acknowledgement.
    pub(crate) fn have(&self) -> Have {
        Have { of: self.of.clone(), rev: self.have, got: self.got.clone() }
    }

    /// The lobby as the facts have it.
    pub(crate) fn roster(&mut self) -> Roster {
        // What is sorted already becomes a map without sorting it by the names themselves, again and again.
        let order = self.order.take().unwrap_or_else(|| {
            let mut names: Vec<(&str, u8)> = self.seated().map(|(slot, who)| (who.name.as_str(), slot)).collect();
            names.sort_unstable();
            names.into_iter().map(|(_, slot)| slot).collect()
        });
        let mut roster =
            Roster { you: self.you().unwrap_or_default().to_owned(), started: self.started, ..Roster::default() };
        if let Some((_, lobby)) = &self.lobby {
            roster.host = lobby.host.and_then(|slot| self.name(slot)).unwrap_or_default().to_owned();
            roster.lobby.clone_from(&lobby.name);
            roster.relay = lobby.relay;
            roster.mode = lobby.mode.parse().unwrap_or(Mode::Coop);
            roster.stored_age = lobby.stored_age;
            roster.stored_max = lobby.stored_max;
            roster.transport_lobby.clone_from(&lobby.world);
        }
        // A link to a seat that fell empty is none, whichever of the two facts comes first.
        let seated: Slots = order.iter().copied().collect();
        let player = |slot: u8, who: &Seated| Player {
            slot,
            letter: who.letter.clone(),
            company: who.company,
            stage: self.stages.get(&slot).map(|(_, text)| text.clone()).unwrap_or_default(),
            profile: self.codes.get(&slot).map(|(_, code)| code.clone()).filter(|code| !code.is_empty()),
            links: self.links.get(&slot).map(|(_, links)| links.and(seated)).unwrap_or_default(),
        };
        let who = |slot: &u8| self.players.get(slot).and_then(|(_, who)| who.as_ref());
        let mut named = Vec::with_capacity(order.len());
        named.extend(order.iter().filter_map(|slot| who(slot).map(|who| (who.name.clone(), player(*slot, who)))));
        roster.players = named.into_iter().collect();
        self.order = Some(order);
        roster
    }
}

fn put<T>(registers: &mut BTreeMap<u8, Register<T>>, slot: u8, rev: u64, value: T) {
    if registers.get(&slot).is_none_or(|(held, _)| *held < rev) {
        registers.insert(slot, (rev, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, PageHead, Pager};
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn page(from: u64, to: u64, now: u64, facts: serde_json::Value) -> Page {
        serde_json::from_value(serde_json::json!({
            "of": "00", "from": from, "to": to, "now": now, "you": 1, "started": false, "start_save": false,
            "facts": facts
        }))
        .unwrap()
    }

    #[test]
    fn an_older_page_that_comes_late_changes_nothing() {
        let newer = page(1, 2, 2, serde_json::json!([[2, "p", 1, "new", "b", 1]]));
        let older = page(0, 1, 1, serde_json::json!([[1, "p", 1, "old", "b", 1]]));
        let mut view = View::new(&newer).unwrap();
        view.take(&newer).unwrap();
        assert_eq!((view.revision(), view.have().got), (0, vec![(1, 2)]));
        view.take(&older).unwrap();
        view.take(&older).unwrap();
        assert_eq!((view.revision(), view.have().got), (2, vec![]));
        assert_eq!(view.you(), Some("new"));
    }

    #[test]
    fn a_page_that_lies_about_its_range_is_refused() {
        let mut view = View::new(&page(0, 0, 0, serde_json::json!([]))).unwrap();
        for bad in [
            page(2, 1, 3, serde_json::json!([])),
            page(0, 4, 3, serde_json::json!([])),
            page(0, 1, 3, serde_json::json!([[2, "s", 1, "x"]])),
            page(0, 1, 3, serde_json::json!(["x"])),
            page(0, 3, 3, serde_json::Value::Array(vec![serde_json::json!([1, "zz"]); 257])),
        ] {
            assert_eq!(view.take(&bad), Err(Refused::Malformed));
        }
        assert_eq!(view.revision(), 0);
    }

    #[test]
    fn ranges_beyond_a_gap_are_bounded() {
        let mut view = View::new(&page(0, 0, 0, serde_json::json!([]))).unwrap();
        for at in (2..200).step_by(2) {
            view.take(&page(at, at + 1, 1_000, serde_json::json!([]))).unwrap();
        }
        assert_eq!(view.have().got.len(), GOT_MAX);
    }

    proptest! {
        /// Any changes, with pages lost, repeated and reordered while they are made: afterwards both sides agree.
        #[test]
        fn both_sides_agree_after_any_loss(
            changes in proptest::collection::vec((0u8..12, 0u8..4, 0u8..6), 1..80),
            fates in proptest::collection::vec(0u8..4, 40),
        ) {
            let start = Instant::now();
            let head = PageHead { version: "1", you: 1, started: false, start_save: false };
            let mut facts = Facts::new("00".into());
            let mut pager = Pager::new(start, 0);
            let mut view: Option<View> = None;
            let mut late: Vec<Vec<u8>> = Vec::new();
            let mut fates = fates.into_iter().cycle();
            let mut now = start;
            let deliver = |bytes: &[u8], view: &mut Option<View>, pager: &mut Pager, facts: &Facts, ack: bool| {
                let page: Page = serde_json::from_slice(bytes).unwrap();
                let view = view.get_or_insert_with(|| View::new(&page).unwrap());
                view.take(&page).unwrap();
                if ack { pager.have(facts, &view.have()); }
            };
            for (step, (slot, kind, value)) in changes.into_iter().enumerate() {
                let text = format!("value {value}");
                facts.set(&match kind {
                    0 => Fact::Player(slot, (value > 0).then(|| Seated { name: format!("n{slot}.{value}"), letter: text, company: 1 })),
                    1 => Fact::Stage(slot, text),
                    2 => Fact::Code(slot, if value == 0 { String::new() } else { "A".repeat(usize::from(value) * 40) }),
                    _ => { let mut slots = Slots::default(); slots.insert(value); Fact::Links(slot, slots) }
                });
                now += Duration::from_millis(if step % 3 == 0 { 300 } else { 1 });
                while let Some(bytes) = pager.poll(&facts, now, &head) {
                    match fates.next().unwrap() {
                        0 => {}
                        1 => late.push(bytes),
                        2 => deliver(&bytes, &mut view, &mut pager, &facts, false),
                        _ => { deliver(&bytes, &mut view, &mut pager, &facts, true); deliver(&bytes, &mut view, &mut pager, &facts, true) }
                    }
                }
            }
            for bytes in late.iter().rev() { deliver(bytes, &mut view, &mut pager, &facts, true); }
            for _ in 0..40 {
                now += Duration::from_secs(1);
                while let Some(bytes) = pager.poll(&facts, now, &head) { deliver(&bytes, &mut view, &mut pager, &facts, true); }
            }
            let mut fresh_pager = Pager::new(now, 0);
            let mut fresh: Option<View> = None;
            for _ in 0..40 {
                while let Some(bytes) = fresh_pager.poll(&facts, now, &head) { deliver(&bytes, &mut fresh, &mut fresh_pager, &facts, true); }
            }
            let (mut view, mut fresh) = (view.unwrap(), fresh.unwrap());
            prop_assert_eq!(view.revision(), facts.now());
            prop_assert_eq!(view.roster(), fresh.roster());
        }
    }
}
