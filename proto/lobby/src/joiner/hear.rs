//! What a joiner does with the host's messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use codec::{Value, to_json};
use seam::{Path, Refused, Slots};

use super::{AGAIN_EVERY, Joiner, Phase, SHOW_EVERY, SHOWN_FAST};
use crate::messages::{Chat, Leave, OldRoster, Page, Start, ToJoiner, Welcome, Words};
use crate::view::View;
use crate::{End, Event, Mode, Player, Roster, State, seats, text};

/// World nonces remembered, so that an old one is never told again (pain 42).
const WORLDS_MAX: usize = 64;
/// Players read of a whole roster. More than a lobby holds, less than can hurt.
const PLAYERS_READ: usize = 256;

impl Joiner {
    /// Takes one opened JSON message.
    ///
    /// # Errors
    /// Why it was not taken; nothing changed then.
    pub fn handle_message(&mut self, now: Instant, from: Path, json: &[u8]) -> Result<(), Refused> {
        self.enter(now);
        if self.host != Some(from) {
            return Err(Refused::NotAllowed);
        }
        if !self.is_alive() {
            return Err(Refused::Unexpected);
        }
        self.heard = now;
        self.authentic = true;
        self.rejoin = None;
        let message = ToJoiner::parse(json)?;
        let confirmed = self.is_confirmed();
        let taken = match message {
            ToJoiner::Welcome(welcome) => self.welcome(from, *welcome),
            ToJoiner::Roster(roster) => self.old_roster(now, from, *roster),
            ToJoiner::Page(page) => self.page(now, from, &page),
            ToJoiner::Reject(reject) => {
                self.end(End::Rejected(text::line(&reject.reason, text::LINE_MAX)));
                Ok(())
            }
            ToJoiner::Bye => {
                self.end(End::HostClosed);
                Ok(())
            }
            ToJoiner::Again => {
                self.join_soon(now);
                Ok(())
            }
            _ if !confirmed => Err(Refused::Unexpected),
            ToJoiner::Chat(chat) => {
                self.chat_heard(chat);
                Ok(())
            }
            ToJoiner::Start(start) => {
                self.start_heard(&start);
                Ok(())
            }
            ToJoiner::Status(status) => {
                let state: State = status.state.parse().map_err(|_| Refused::Malformed)?;
                self.status(state, &text::line(&status.detail, text::LINE_MAX));
                Ok(())
            }
        };
        self.settle(now);
        taken
    }

    /// Compares versions, and on the first agreement is in. False ends the lobby.
    fn confirm(&mut self, from: Path, version: &Value) -> bool {
        if version.as_str() != Some(&self.config.version) {
            let theirs = text::line(version.as_str().unwrap_or("unknown"), 40);
            self.queues.send(from, to_json(&Leave {}));
            self.end(End::Version { mine: self.config.version.clone(), theirs });
            return false;
        }
        if self.phase != (Phase::In { lost: None }) {
            self.phase = Phase::In { lost: None };
            self.status(State::Connected, "in the lobby");
        }
        true
    }

    fn welcome(&mut self, from: Path, welcome: Welcome) -> Result<(), Refused> {
        if welcome.you.is_empty() || welcome.you.len() > text::NAME_MAX {
            return Err(Refused::Malformed);
        }
        if !self.confirm(from, &welcome.version) {
            return Ok(());
        }
        self.words = Words::read(&welcome.aw, self.config.extensions);
        if !self.words.roster {
            self.view = None;
        }
        self.token = welcome.aw_resume.filter(|token| self.words.resume && text::is_nonce(token));
        self.world(&welcome.transport_lobby);
        // The welcome may answer an earlier join than the last: a name that was not the one asked for is asked for
        // again, but not for ever.
        let asked = text::name(&self.asked);
        let given = welcome.you == asked || welcome.you.strip_prefix(&asked).is_some_and(|rest| rest.starts_with('#'));
        if given || self.insist == 0 {
            self.join = None;
        } else {
            self.insist -= 1;
        }
        let mut roster = Roster::clone(&self.roster);
        roster.you = welcome.you;
        roster.host = text::optional_name(&welcome.host);
        roster.lobby = text::optional_name(&welcome.lobby);
        roster.relay = welcome.relay;
        roster.transport_lobby = self.newest_world();
        self.roster = Arc::new(roster);
        self.unshown |= !self.roster.players.is_empty();
        Ok(())
    }

    fn join_soon(&mut self, now: Instant) {
        let earliest = self.joined.map_or(now, |at| now.max(at + AGAIN_EVERY));
        self.join = Some(self.join.map_or(earliest, |due| due.min(earliest)));
    }

    fn old_roster(&mut self, now: Instant, from: Path, message: OldRoster) -> Result<(), Refused> {
        if message.players.len() > PLAYERS_READ {
            return Err(Refused::OverLimit);
        }
        if !self.confirm(from, &message.version) {
            return Ok(());
        }
        if self.view.is_some() {
            // A host that sends pages sends no whole rosters: this one is from before.
            return Err(Refused::Unexpected);
        }
        self.links_told = message.links.is_some();
        self.world(&message.transport_lobby);
        // A late roster of the world before says nothing of this one.
        if !text::is_nonce(&message.transport_lobby) || message.transport_lobby == self.newest_world() {
            self.healed(message.started, message.start_save);
        }
        let mut roster = read_old(message);
        roster.you.clone_from(&self.roster.you);
        if roster.you.is_empty() {
            let asked = text::name(&self.asked);
            let is_like = |name: &String| name.strip_prefix(&asked).is_some_and(|rest| rest.starts_with('#'));
            let is_certain = roster.players.contains_key(&asked) && !roster.players.keys().any(is_like);
            if !is_certain && now < self.named_by {
                // Only the welcome says which of several players of one name this is, and it was lost: to answer to
                // another's name would take that player's frames.
                self.join_soon(now);
                return Ok(());
            }
            roster.you = asked;
        }
        roster.started = self.started;
        roster.transport_lobby = self.newest_world();
        self.roster = Arc::new(roster);
        self.unshown = true;
        Ok(())
    }

    fn page(&mut self, now: Instant, from: Path, page: &Page) -> Result<(), Refused> {
        if !self.config.extensions {
            return Err(Refused::Unexpected);
        }
        let fresh = match &self.view {
            Some(view) if view.of() == page.of => None,
            _ => Some(View::new(page)?),
        };
        if !self.confirm(from, &page.version) {
            return Ok(());
        }
        let restarted = fresh.is_some() && self.view.is_some();
        let mut view = match (fresh, self.view.take()) {
            (Some(fresh), _) => fresh,
            (None, Some(view)) => view,
            (None, None) => return Err(Refused::Unexpected),
        };
        let taken = view.take(page);
        self.view = Some(view);
        let changed = taken?;
        self.acknowledge = true;
        self.links_told = true;
        if restarted {
            // Another host process: it has to learn from where on its facts are missing here.
            self.join = Some(now);
        }
        if let Some(world) = self.view.as_ref().and_then(View::world).map(str::to_owned) {
            self.world(&world);
        }
        // Not before it is known which world is meant, and not by a page that was overtaken.
        if self.view.as_ref().is_some_and(|view| view.is_whole() && page.to >= view.revision()) {
            self.healed(page.started, page.start_save);
        }
        // A beacon says that nothing is new.
        self.unshown |= changed || restarted;
        Ok(())
    }

    /// The newest roster becomes an event.
    pub(super) fn show(&mut self, now: Instant) {
        self.unshown = false;
        if let Some(view) = &mut self.view {
            if !view.is_whole() {
                return;
            }
            let mut roster = view.roster();
            if roster.you.is_empty() {
                roster.you.clone_from(&self.roster.you);
            }
            roster.started = self.started;
            roster.transport_lobby = self.newest_world();
            self.roster = Arc::new(roster);
        }
        let crowd = (self.roster.players.len() / SHOWN_FAST).max(1);
        self.next_show = now + SHOW_EVERY * u32::try_from(crowd).unwrap_or(1);
        if self.shown != self.roster {
            self.shown = self.roster();
            self.queues.tell(Event::Roster(self.roster()));
        }
    }

    /// A start that was missed is made good by the next roster.
    fn healed(&mut self, started: bool, save: bool) {
        if started {
            self.start_heard(&Start { save, switch: false });
        }
    }

    /// Starts at once without a save, and with one when it is here: otherwise there is nothing to start from, and a later
    /// start counts as the first. A start into another world is taken by one who plays already, once for each save.
    fn start_heard(&mut self, start: &Start) {
        let again = start.switch && self.fresh;
        // A late copy of the start into the world before finds that world's save: another world takes a newer one.
        let has = if self.switching { self.fresh } else { self.saved };
        if (start.save && !has) || (self.started && !again) {
            return;
        }
        // A roster that makes good a lost start does not say that it is into another world.
        let switch = start.switch || (start.save && self.switching);
        (self.started, self.fresh, self.switching) = (true, false, false);
        self.queues.tell(Event::Start { save: start.save, switch });
        if !self.roster.players.is_empty() {
            let mut roster = Roster::clone(&self.roster);
            roster.started = true;
            self.roster = Arc::new(roster);
            self.unshown = true;
        }
    }

    /// Tells a world nonce once; an old one never again. A new world was not started yet.
    fn world(&mut self, nonce: &str) {
        if !text::is_nonce(nonce) || self.worlds.iter().any(|known| known == nonce) {
            return;
        }
        if !self.worlds.is_empty() {
            self.switching |= self.started;
            self.started = false;
        }
        if self.worlds.len() >= WORLDS_MAX {
            self.worlds.pop_front();
        }
        self.worlds.push_back(nonce.to_owned());
        self.queues.tell(Event::TransportLobby(nonce.to_owned()));
    }

    fn newest_world(&self) -> String {
        self.worlds.back().cloned().unwrap_or_default()
    }

    fn chat_heard(&mut self, mut chat: Chat) {
        chat.from = text::optional_name(&chat.from);
        chat.text = text::chat(&chat.from, &chat.text);
        if self.read.is_new(&chat) {
            self.queues.tell(Event::Chat { from: chat.from, text: chat.text, ts: chat.ts });
        }
    }
}

/// The lobby as an old host tells it. A name no envelope can carry (over 255 bytes, or with control characters, which
/// no panel lets through) is left out: nothing could be sent to it.
fn read_old(message: OldRoster) -> Roster {
    let usable = |name: &String| text::name(name) == *name;
    let mut players: BTreeMap<String, Player> =
        message.players.into_iter().filter(usable).map(|name| (name, Player::default())).collect();
    // No seats are told: names in their order take those there are, at most PLAYERS_READ.
    for ((name, player), slot) in players.iter_mut().zip(0..=u8::MAX) {
        player.slot = slot;
        player.letter = message.letters.get(name).filter(|letter| letter.len() <= 8).cloned().unwrap_or_default();
        let company = message.companies.get(name).and_then(|&id| u32::try_from(id).ok());
        player.company = company.filter(|id| (1..=seats::COMPANY_MAX).contains(id)).unwrap_or(seats::COOP_COMPANY);
        player.stage = message.stages.get(name).map(|stage| text::stage(stage)).unwrap_or_default();
    }
    for (name, code) in message.profiles.unwrap_or_default() {
        if let Some(player) = players.get_mut(&name) {
            player.profile = text::profile(Some(code));
        }
    }
    for (name, links) in message.links.unwrap_or_default() {
        let known: Slots = links.iter().filter_map(|other| players.get(other)).map(|other| other.slot).collect();
        if let Some(player) = players.get_mut(&name) {
            player.links = known;
        }
    }
    Roster {
        you: String::new(),
        host: text::optional_name(&message.host),
        lobby: text::optional_name(&message.lobby),
        relay: message.relay,
        players,
        mode: message.mode.parse().unwrap_or(Mode::Coop),
        started: message.started,
        stored_age: message.stored_age,
        stored_max: message.stored_max,
        transport_lobby: message.transport_lobby,
    }
}
