//! Everybody is brought up to date, and what has a time is done at its time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::to_json;
use seam::{Path, Slots};

use super::members::{Feed, Member};
use super::{HOST_SLOT, Host, Life};
use crate::facts::{Fact, LobbyFact, PageHead, Seated};
use crate::messages::OldRoster;
use crate::{End, Event, Player, Roster, text};

/// Changes within this time become one publication.
const COALESCE: Duration = Duration::from_millis(100);
/// An old peer gets the whole roster at least this often.
pub(super) const HEAL: Duration = Duration::from_secs(2);
/// How often members are looked over.
pub(super) const SWEEP: Duration = Duration::from_secs(1);
/// A member unheard for this long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// Largest whole roster: 16 fragments of 1,300 bytes. At 5 % loss 44 in 100 of that size arrive, so that an old peer
/// misses ten seconds of them once in 18; beyond it `links`, then `profiles` are left out, without which envelopes
/// still reach everybody.
pub(super) const OLD_ROSTER_MAX: usize = 16 * 1_300;
/// Oldest stored world a relay hands out, in seconds.
const RELAY_STORED_MAX: i64 = 180;

/// What was last published.
#[derive(Debug)]
pub(super) struct Published {
    roster: Arc<Roster>,
    /// The whole roster as bytes, for peers not started and started.
    old: [Option<Arc<[u8]>>; 2],
    /// Something changed since.
    stale: bool,
    /// The earliest time for the next publication.
    next: Instant,
}

impl Published {
    pub(super) fn new(now: Instant) -> Self {
        Self { roster: Arc::default(), old: [None, None], stale: true, next: now }
    }

    /// Something changed.
    pub(super) fn stale(&mut self) {
        self.stale = true;
    }

    pub(super) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }
}

/// The earliest time for another whole roster.
pub(super) fn not_before(sent: Option<Instant>, now: Instant) -> Instant {
    sent.map_or(now, |sent| now.max(sent + COALESCE))
}

impl Host {
    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.enter(now);
        if self.due.is_none_or(|(due, _)| now < due) {
            return;
        }
        if self.sweep <= now {
            self.sweep = now + SWEEP;
            let silent: Vec<Path> =
                self.members.iter().filter(|(_, member)| member.heard + SILENCE <= now).map(|(path, _)| path).collect();
            for path in silent {
                self.lose_member(path, "silent", true);
            }
        }
        self.settle(now);
    }

    /// When `handle_timeout` is next due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.queues.is_empty() {
            return Some((self.now, "queued"));
        }
        self.due
    }

    /// Ends every call: sends what is due and works out what is next.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.life == Life::Open {
            if self.published.stale && self.published.next <= now {
                self.publish(now);
            }
            self.feed_members(now);
        }
        let queues = &mut self.queues;
        self.copies.take_due(now, |path, json| queues.send(path, json));
        if self.life == Life::Closing && self.copies.is_empty() {
            self.life = Life::Over;
            self.queues.tell(Event::Ended(End::Quit));
        }
        self.due = self.next_due();
        self.wake = self.due.map(|(due, _)| due);
    }

    fn next_due(&self) -> Option<(Instant, &'static str)> {
        let copies = self.copies.due().map(|due| (due, "another copy"));
        if self.life != Life::Open {
            return copies;
        }
        let mut first = (self.sweep, "look for silent members");
        let mut consider = |due: Instant, why| {
            if due < first.0 {
                first = (due, why);
            }
        };
        if let Some((due, why)) = copies {
            consider(due, why);
        }
        if self.published.stale {
            consider(self.published.next, "publish the roster");
        }
        if !self.members.is_empty() {
            consider(self.feed, "send the roster or a page of it");
        }
        Some(first)
    }

    /// The host's name, or the leader's on a relay, or nothing.
    pub(super) fn host_name(&self) -> String {
        match &self.own {
            Some(own) => own.name.clone(),
            None => self.members.oldest().map(|(_, member)| member.seat.name.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn lobby_name(&self) -> String {
        text::optional_name(&self.config.lobby_name)
    }

    /// The newest state becomes what everybody is told.
    fn publish(&mut self, now: Instant) {
        self.published.stale = false;
        self.published.next = now + COALESCE;
        self.published.old = [None, None];
        self.state_facts();
        let roster = self.build_roster();
        if *self.published.roster != roster {
            self.published.roster = Arc::new(roster);
            self.queues.tell(Event::Roster(self.published.roster()));
        }
        self.feed = now;
        for (_, member) in self.members.iter_mut() {
            match &mut member.feed {
                Feed::Old { sent, due } => *due = not_before(*sent, now),
                Feed::Pages(pager) => pager.hurry(now),
            }
        }
    }

    fn state_facts(&mut self) {
        // Slots that fell empty are emptied before anything is said of their next holder.
        let mut empty = Slots::default();
        (1..=u8::MAX).for_each(|slot| empty.insert(slot));
        for (_, member) in self.members.iter() {
            empty.remove(member.slot);
        }
        for slot in empty.iter() {
            self.facts.set(&Fact::Player(slot, None));
            self.facts.set(&Fact::Stage(slot, String::new()));
            self.facts.set(&Fact::Code(slot, String::new()));
            self.facts.set(&Fact::Links(slot, Slots::default()));
        }
        for (_, Member { slot, seat, profile, links, .. }) in self.members.iter() {
            self.facts.set(&Fact::Stage(*slot, seat.stage.clone()));
            self.facts.set(&Fact::Code(*slot, profile.clone().unwrap_or_default()));
            self.facts.set(&Fact::Links(*slot, *links));
            let who = Seated { name: seat.name.clone(), letter: seat.letter.clone(), company: seat.company };
            self.facts.set(&Fact::Player(*slot, Some(who)));
        }
        if let Some(own) = &self.own {
            let who = Seated { name: own.name.clone(), letter: own.letter.clone(), company: own.company };
            self.facts.set(&Fact::Stage(HOST_SLOT, own.stage.clone()));
            self.facts.set(&Fact::Player(HOST_SLOT, Some(who)));
        }
        let leader = || self.members.oldest().map(|(_, member)| member.slot);
        let lobby = LobbyFact {
            name: self.lobby_name(),
            relay: self.config.relay_only,
            mode: self.mode.as_str().to_owned(),
            host: if self.own.is_some() { Some(HOST_SLOT) } else { leader() },
            world: self.transport_lobby.clone(),
            stored_age: -1,
            stored_max: self.stored_max(),
        };
        self.facts.set(&Fact::Lobby(lobby));
    }

    fn stored_max(&self) -> i64 {
        if self.config.relay_only { RELAY_STORED_MAX } else { -1 }
    }

    fn build_roster(&self) -> Roster {
        let mut players: BTreeMap<String, Player> = self
            .members
            .iter()
            .map(|(_, member)| {
                let seat = &member.seat;
                let player = Player {
                    slot: member.slot,
                    letter: seat.letter.clone(),
                    company: seat.company,
                    stage: seat.stage.clone(),
                    profile: member.profile.clone(),
                    links: member.links,
                };
                (seat.name.clone(), player)
            })
            .collect();
        if let Some(own) = &self.own {
            let player = Player {
                slot: HOST_SLOT,
                letter: own.letter.clone(),
                company: own.company,
                stage: own.stage.clone(),
                ..Player::default()
            };
            players.insert(own.name.clone(), player);
        }
        Roster {
            you: self.own.as_ref().map(|own| own.name.clone()).unwrap_or_default(),
            host: self.host_name(),
            lobby: self.lobby_name(),
            relay: self.config.relay_only,
            players,
            mode: self.mode,
            started: self.running,
            stored_age: -1,
            stored_max: self.stored_max(),
            transport_lobby: self.transport_lobby.clone(),
        }
    }

    fn feed_members(&mut self, now: Instant) {
        if now < self.feed {
            return;
        }
        let due: Vec<(Path, bool)> = self
            .members
            .iter()
            .filter(|(_, member)| matches!(&member.feed, Feed::Old { due, .. } if *due <= now))
            .map(|(path, member)| (path, member.seat.started))
            .collect();
        for (path, started) in due {
            let json = self.old_roster(started);
            self.queues.send(path, json.to_vec());
            if let Some(member) = self.members.at_mut(path) {
                member.feed = Feed::Old { sent: Some(now), due: now + HEAL };
            }
        }
        // A member without pages is looked at again when its roster is due.
        self.feed = now + HEAL;
        for path in self.members.paths() {
            self.feed_pages(now, path);
        }
        for (_, member) in self.members.iter() {
            if let Feed::Old { due, .. } = &member.feed {
                self.feed = self.feed.min(*due);
            }
        }
    }

    /// Sends one member the pages that are due to it.
    pub(super) fn feed_pages(&mut self, now: Instant, path: Path) {
        let Some(member) = self.members.at_mut(path) else { return };
        let Feed::Pages(pager) = &mut member.feed else { return };
        let head = PageHead {
            version: &self.config.version,
            you: member.slot,
            started: member.seat.started,
            start_save: self.start_save,
        };
        while let Some(page) = pager.poll(&self.facts, now, &head) {
            self.queues.send(path, page);
        }
        self.feed = self.feed.min(pager.due(&self.facts, now));
    }

    /// The whole roster as bytes, written once per publication.
    fn old_roster(&mut self, started: bool) -> Arc<[u8]> {
        let roster = Arc::clone(&self.published.roster);
        let version = self.config.version.clone();
        let slot = if started { &mut self.published.old[1] } else { &mut self.published.old[0] };
        let save = self.start_save;
        Arc::clone(slot.get_or_insert_with(|| write_old(&roster, version, started, save).into()))
    }
}

fn write_old(roster: &Roster, version: String, started: bool, save: bool) -> Vec<u8> {
    let each = |of: fn(&Player) -> Option<String>| -> BTreeMap<String, String> {
        roster.players.iter().filter_map(|(name, player)| Some((name.clone(), of(player)?))).collect()
    };
    let joiners = || roster.players.iter().filter(|(name, _)| roster.relay || **name != roster.host);
    let mut message = OldRoster {
        version: version.into(),
        transport_lobby: roster.transport_lobby.clone(),
        players: roster.players.keys().cloned().collect(),
        recovery: 0,
        host: roster.host.clone(),
        lobby: roster.lobby.clone(),
        relay: roster.relay,
        mods: codec::Value::Array(Vec::new()),
        mods_unknown: false,
        stored_age: roster.stored_age,
        stored_max: roster.stored_max,
        letters: each(|player| Some(player.letter.clone())),
        started,
        start_save: save,
        profiles: Some(each(|player| player.profile.clone())),
        links: Some(
            joiners()
                .map(|(name, player)| (name.clone(), roster.names(player.links).map(str::to_owned).collect()))
                .collect(),
        ),
        companies: roster.players.iter().map(|(name, player)| (name.clone(), i64::from(player.company))).collect(),
        stages: each(|player| Some(player.stage.clone()).filter(|stage| !stage.is_empty())),
        mode: roster.mode.as_str().to_owned(),
    };
    let json = to_json(&message);
    if json.len() <= OLD_ROSTER_MAX {
        return json;
    }
    message.links = None;
    let json = to_json(&message);
    if json.len() <= OLD_ROSTER_MAX {
        return json;
    }
    message.profiles = None;
    to_json(&message)
}
