//! The host's half of a lobby.
//!
//! `admission` decides who is in and under which name; `publish` brings everybody up to date and keeps the timers.

mod admission;
mod members;
mod publish;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::to_json;
use seam::{Dice, Path, RateTable, Refused, Slots};

use crate::config::PLAYERS_MAX;
use crate::copies::Copies;
use crate::facts::Facts;
use crate::logs::{self, PerSecond};
use crate::messages::{self, Chat, Links, ToHost};
use crate::queue::{Queues, note};
use crate::seats::{self, COMPANY_MAX, COOP_COMPANY, Letters};
use crate::{Event, HostConfig, Mode, Roster, STALL, State, text};
use members::{Feed, Members};
use publish::Published;

/// The slot of the host's own player.
const HOST_SLOT: u8 = 0;
/// Chat messages a second taken from one member: each becomes three to everybody.
const CHATS_PER_SECOND: u32 = 8;
/// Addresses of removed players that are answered with the reason for a while.
const BANNED_MAX: usize = 64;

/// The host's own player.
#[derive(Debug)]
struct Own {
    name: String,
    letter: String,
    company: u32,
    stage: String,
}

/// Whether the lobby goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The goodbyes are on their way.
    Closing,
    Over,
}

/// The host's half of a lobby. Memory per member is fixed but for its texts, whose bounds stand with each.
#[derive(Debug)]
pub struct Host {
    config: Arc<HostConfig>,
    dice: Dice,
    begun: Instant,
    wall: u64,
    /// When this machine was last called.
    now: Instant,
    /// When it last asked to be called.
    wake: Option<Instant>,
    /// What `settle` found to be next; nothing moves it but what ends in `settle`.
    due: Option<(Instant, &'static str)>,
    life: Life,
    own: Option<Own>,
    members: Members,
    letters: Letters,
    mode: Mode,
    /// The last start, if the game runs.
    running: bool,
    /// That start went with a save.
    start_save: bool,
    transport_lobby: String,
    next_cid: i64,
    copies: Copies,
    queues: Queues,
    /// Limits refusals and `aw_again` to those who are no members.
    strangers: RateTable,
    banned: VecDeque<(Instant, Path, String)>,
    own_chats: PerSecond,
    facts: Facts,
    published: Published,
    sweep: Instant,
    /// No member is to be fed before this. Earlier than that they are not even looked over.
    feed: Instant,
}

impl Host {
    /// A lobby with nobody but the host in it. `wall` is the Unix time in seconds at `now`.
    #[must_use]
    pub fn new(config: Arc<HostConfig>, seed: [u8; 32], now: Instant, wall: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut letters = Letters::new(&config.letters);
        let own = (!config.relay_only).then(|| {
            let name = text::name(&config.name);
            let letter = letters.give(&name, |_| false).unwrap_or_default();
            Own { name, letter, company: COOP_COMPANY, stage: String::new() }
        });
        let mut host = Self {
            transport_lobby: codec::hex(&dice.bytes::<16>()),
            facts: Facts::new(codec::hex(&dice.bytes::<8>())),
            strangers: RateTable::new(256, 2, Duration::from_secs(1), dice.u64()),
            mode: if config.companies { Mode::Companies } else { Mode::Coop },
            published: Published::new(now),
            sweep: now + publish::SWEEP,
            feed: now,
            begun: now,
            wall,
            now,
            wake: None,
            due: None,
            life: Life::Open,
            own,
            members: Members::default(),
            letters,
            running: false,
            start_save: false,
            next_cid: 1,
            copies: Copies::default(),
            queues: Queues::default(),
            banned: VecDeque::new(),
            own_chats: PerSecond::default(),
            dice,
            config,
        };
        host.queues.tell(Event::TransportLobby(host.transport_lobby.clone()));
        host.status(State::Waiting, "waiting for players");
        host.settle(now);
        host
    }

    /// Takes one opened JSON message of anybody who holds the key.
    ///
    /// # Errors
    /// Why it was not taken; nothing changed then, except that the sender was heard.
    pub fn handle_message(&mut self, now: Instant, from: Path, json: &[u8]) -> Result<(), Refused> {
        self.enter(now);
        if self.life != Life::Open {
            return Err(Refused::Unexpected);
        }
        if let Some(member) = self.members.at_mut(from) {
            member.heard = now;
        }
        let taken = match ToHost::parse(json) {
            Ok(ToHost::Join(join)) => self.join(now, from, *join),
            Ok(message) if self.is_member(from) => self.member_says(now, from, message, json.len()),
            Ok(ToHost::Leave) => Err(Refused::NotAllowed),
            Ok(_) => {
                self.answer_stranger(now, from);
                Err(Refused::NotAllowed)
            }
            Err(refused) => Err(refused),
        };
        self.settle(now);
        taken
    }

    fn member_says(&mut self, now: Instant, from: Path, message: ToHost, bytes: usize) -> Result<(), Refused> {
        let leads = self.leader() == Some(from);
        match message {
            ToHost::Join(_) | ToHost::Ping | ToHost::MeshHi => Ok(()),
            ToHost::Leave => {
                self.drop_member(from, "left");
                Ok(())
            }
            ToHost::Say(say) => {
                let member = self.members.at_mut(from).ok_or(Refused::NotAllowed)?;
                if !member.chats.allow(now, CHATS_PER_SECOND) {
                    return Err(Refused::OverLimit);
                }
                let name = member.seat.name.clone();
                // The leader of an idle relay clears its stored world this way; it is not meant for the others.
                if leads && !self.running && say.text.trim().eq_ignore_ascii_case("/new") {
                    self.log("[host] /new: there is no stored world to delete".to_owned());
                    return Ok(());
                }
                self.say(now, name, &say.text);
                Ok(())
            }
            ToHost::Company(company) => {
                let id = u32::try_from(company.id).map_err(|_| Refused::Malformed)?;
                let own = self.name_of(from).map(str::to_owned);
                let player = company.player.or_else(|| own.clone());
                if player != own && !leads {
                    return Err(Refused::NotAllowed);
                }
                self.place(player.as_deref(), id)
            }
            ToHost::Mode(choice) => {
                let mode = choice.mode.parse().map_err(|_| Refused::Malformed)?;
                if !leads {
                    return Err(Refused::NotAllowed);
                }
                self.change_mode(mode);
                Ok(())
            }
            ToHost::Stage(stage) => {
                let stage = text::stage(&stage.text);
                if let Some(member) = self.members.at_mut(from).filter(|member| member.seat.stage != stage) {
                    member.seat.stage = stage;
                    self.published.stale();
                }
                Ok(())
            }
            ToHost::Links(links) => {
                self.linked(from, &links);
                Ok(())
            }
            ToHost::Log(log) => {
                let member = self.members.at_mut(from).ok_or(Refused::NotAllowed)?;
                if !member.logs.take(now, bytes) {
                    return Err(Refused::OverLimit);
                }
                let name = member.seat.name.clone();
                for line in log.lines.iter().take(logs::LINES_MAX) {
                    let line = text::line(line, text::LINE_MAX);
                    self.queues.tell(Event::PeerLog { name: name.clone(), line });
                }
                Ok(())
            }
            ToHost::Start if leads => {
                self.start_waiting(now);
                Ok(())
            }
            ToHost::Start => Err(Refused::NotAllowed),
            ToHost::Have(have) => match self.members.at_mut(from).map(|member| &mut member.feed) {
                Some(Feed::Pages(pager)) => {
                    pager.have(&self.facts, &have);
                    self.feed_pages(now, from);
                    Ok(())
                }
                _ => Err(Refused::Unexpected),
            },
        }
    }

    /// An authenticated frame that is no lobby message came from somebody who is no member: a peer of ours is told to
    /// join again, at most once a second or so.
    pub fn unknown_member(&mut self, now: Instant, from: Path) {
        self.enter(now);
        if self.life == Life::Open && !self.is_member(from) {
            self.answer_stranger(now, from);
            self.settle(now);
        }
    }

    /// Anything authentic was heard from this path.
    pub fn heard(&mut self, now: Instant, from: Path) {
        self.enter(now);
        if let Some(member) = self.members.at_mut(from) {
            member.heard = now;
        }
    }

    /// Whether a member is at this path.
    #[must_use]
    pub fn is_member(&self, path: Path) -> bool {
        self.members.at(path).is_some()
    }

    /// The member at this path.
    #[must_use]
    pub fn name_of(&self, path: Path) -> Option<&str> {
        self.members.at(path).map(|member| member.seat.name.as_str())
    }

    /// Where a member is.
    #[must_use]
    pub fn path_of(&self, name: &str) -> Option<Path> {
        self.members.path_of(name)
    }

    /// A relay's leader: the joiner connected longest. An ordinary host leads itself.
    #[must_use]
    pub fn leader(&self) -> Option<Path> {
        if self.config.relay_only { self.members.oldest().map(|(path, _)| path) } else { None }
    }

    /// A member moved. False when nobody is at `old` or somebody is at `new`.
    pub fn rekey(&mut self, now: Instant, old: Path, new: Path) -> bool {
        self.enter(now);
        if !self.members.rekey(old, new) {
            return false;
        }
        self.copies.rekey(old, new);
        self.queues.rekey(old, new);
        if let Some(member) = self.members.at_mut(new) {
            member.heard = now;
        }
        self.settle(now);
        true
    }

    /// Says something to everybody.
    pub fn chat(&mut self, now: Instant, text: &str) {
        self.enter(now);
        if self.own_chats.allow(now, CHATS_PER_SECOND) {
            let name = self.own.as_ref().map_or_else(|| "relay".to_owned(), |own| own.name.clone());
            self.say(now, name, text);
        } else {
            self.queues.tell(note("too many chat messages at once; this one was not sent"));
        }
        self.settle(now);
    }

    /// Starts everybody who was not started yet, without a save. With one nothing happens but a status that says so:
    /// that is for [`Host::start_with_save`], when the save is where it has to be.
    pub fn start(&mut self, now: Instant, save: bool) {
        self.enter(now);
        if save {
            let state = if self.members.is_empty() { State::Waiting } else { State::Connected };
            self.status(state, "name the save to start with, or start without one");
        } else {
            self.start_waiting(now);
        }
        self.settle(now);
    }

    /// Puts a player, the host itself when `None`, into a company.
    ///
    /// # Errors
    /// [`Refused::Malformed`] for a company outside 1 to 200, [`Refused::NotAllowed`] for an unknown player or in
    /// co-op, where everybody is in 1.
    pub fn company(&mut self, now: Instant, player: Option<&str>, id: u32) -> Result<(), Refused> {
        self.enter(now);
        let own = self.own.as_ref().map(|own| own.name.clone());
        let placed = self.place(player.or(own.as_deref()), id);
        self.settle(now);
        placed
    }

    /// Co-op or companies. Everybody is placed anew.
    pub fn mode(&mut self, now: Instant, mode: Mode) {
        self.enter(now);
        self.change_mode(mode);
        self.settle(now);
    }

    /// What the host's player is doing; empty clears.
    pub fn stage(&mut self, now: Instant, text: &str) {
        self.enter(now);
        if let Some(own) = &mut self.own {
            own.stage = text::stage(text);
            self.published.stale();
        }
        self.settle(now);
    }

    /// A chat line for the host alone.
    pub fn note(&mut self, now: Instant, text: &str) {
        self.enter(now);
        self.queues.tell(note(text));
        self.settle(now);
    }

    /// Gives the host's player another name; its letter stays.
    pub fn rename(&mut self, now: Instant, name: &str) {
        self.enter(now);
        let members = &self.members;
        if let Some(own) = &mut self.own {
            let new = seats::assign(name, |name| members.named(name).is_some());
            self.letters.keep(&own.name, &new, &own.letter);
            own.name = new;
            self.published.stale();
        }
        self.settle(now);
    }

    /// Removes a player, who reads `text` and is not let in again from the same address for a minute. False when there
    /// is none of that name.
    pub fn kick(&mut self, now: Instant, player: &str, text: &str) -> bool {
        self.enter(now);
        let Some(path) = self.members.path_of(player) else { return false };
        let reason = text::line(text, text::LINE_MAX);
        self.drop_member(path, "removed by the host");
        self.copies.send(now, vec![path], to_json(&messages::Reject { reason: reason.clone() }));
        if self.banned.len() >= BANNED_MAX {
            self.banned.pop_front();
        }
        self.banned.push_back((now + Duration::from_secs(60), path, reason));
        self.settle(now);
        true
    }

    /// Says goodbye to everybody, three times; [`Event::Ended`] follows when the last copy is out.
    pub fn close(&mut self, now: Instant) {
        self.enter(now);
        if self.life == Life::Open {
            self.life = Life::Closing;
            self.copies.send(now, self.members.paths(), to_json(&messages::Bye {}));
        }
        self.settle(now);
    }

    /// The lobby as it was last published, at most 100 ms ago.
    #[must_use]
    pub fn roster(&self) -> Arc<Roster> {
        self.published.roster()
    }

    /// Everybody's letter, those gone included: what a relay keeps between runs.
    #[must_use]
    pub fn letters(&self) -> &std::collections::BTreeMap<String, String> {
        self.letters.all()
    }

    /// The next message to seal and send.
    pub fn poll_message(&mut self) -> Option<(Path, Vec<u8>)> {
        self.queues.next_message()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.queues.next_event()
    }

    /// Begins every call: a loop that stood still has kept nobody from being heard.
    fn enter(&mut self, now: Instant) {
        if let Some(wake) = self.wake.filter(|wake| now > *wake + STALL) {
            let credit = now.saturating_duration_since(wake.max(self.now));
            self.members.iter_mut().for_each(|(_, member)| member.heard += credit);
            self.wake = Some(now);
            self.log(format!("[host] the loop stood still for {} ms", credit.as_millis()));
        }
        self.now = now;
    }

    fn log(&mut self, line: String) {
        self.queues.tell(Event::Log(line));
    }

    fn status(&mut self, state: State, detail: &str) {
        self.queues.tell(Event::Status { state, detail: detail.to_owned() });
    }

    /// Unix time in seconds.
    fn wall(&self) -> u64 {
        self.wall.saturating_add(self.now.saturating_duration_since(self.begun).as_secs())
    }

    fn say(&mut self, now: Instant, from: String, said: &str) {
        let text = text::chat(&from, said);
        if text.trim().is_empty() {
            return;
        }
        let ts = Some(self.wall());
        let chat = Chat { from, text, ts, cid: Some(self.next_cid) };
        self.next_cid += 1;
        self.copies.send(now, self.members.paths(), to_json(&chat));
        self.queues.tell(Event::Chat { from: chat.from, text: chat.text, ts });
    }

    fn place(&mut self, player: Option<&str>, id: u32) -> Result<(), Refused> {
        if !(1..=COMPANY_MAX).contains(&id) {
            return Err(Refused::Malformed);
        }
        let player = player.ok_or(Refused::NotAllowed)?;
        if self.mode == Mode::Coop && id != COOP_COMPANY {
            return Err(Refused::NotAllowed);
        }
        if let Some(own) = self.own.as_mut().filter(|own| own.name == player) {
            own.company = id;
        } else {
            let path = self.members.path_of(player).ok_or(Refused::NotAllowed)?;
            self.members.at_mut(path).ok_or(Refused::NotAllowed)?.seat.company = id;
        }
        self.published.stale();
        Ok(())
    }

    fn change_mode(&mut self, mode: Mode) {
        if self.mode == mode {
            return;
        }
        self.mode = mode;
        let mut next = COOP_COMPANY;
        let step = u32::from(mode == Mode::Companies);
        if let Some(own) = &mut self.own {
            own.company = next;
            next += step;
        }
        for path in self.members.paths_by_age() {
            if let Some(member) = self.members.at_mut(path) {
                member.seat.company = next;
                next += step;
            }
        }
        self.published.stale();
    }

    fn linked(&mut self, from: Path, links: &Links) {
        let others = self.members.iter().filter(|(path, _)| *path != from);
        let by_name: BTreeMap<&str, u8> = others.map(|(_, other)| (other.seat.name.as_str(), other.slot)).collect();
        let direct = links.direct.iter().take(messages::LINKS_MAX);
        let slots: Slots = direct.filter_map(|name| by_name.get(name.as_str()).copied()).collect();
        if let Some(member) = self.members.at_mut(from).filter(|member| member.links != slots) {
            member.links = slots;
            self.published.stale();
        }
    }

    /// Starts the players who wait, and on the first time the host's own.
    fn start_waiting(&mut self, now: Instant) {
        let waiting: Vec<Path> =
            self.members.iter().filter(|(_, member)| !member.seat.started).map(|(path, _)| path).collect();
        if self.running && waiting.is_empty() {
            return;
        }
        for (_, member) in self.members.iter_mut() {
            member.seat.started = true;
        }
        self.log(format!("[host] START broadcast (save=False) to {} of {} peer(s)", waiting.len(), self.members.len()));
        self.copies.send(now, waiting, to_json(&messages::Start { save: false, switch: false }));
        if !self.running && self.own.is_some() {
            self.queues.tell(Event::Start { save: false, switch: false });
        }
        (self.running, self.start_save) = (true, false);
        self.published.stale();
    }

    /// Most joiners.
    fn capacity(&self) -> usize {
        usize::from(self.config.max_players.clamp(1, PLAYERS_MAX) - 1)
    }
}
