//! Who is in, and under which name.

use std::time::Instant;

use codec::to_json;
use seam::{Path, Refused, Slots};

use super::members::{Feed, Member, Seat, Token};
use super::{Host, publish};
use crate::facts::Pager;
use crate::logs::{Allowance, PerSecond};
use crate::messages::{Again, Join, Reject, Status, Welcome, Words};
use crate::queue::{NOTE_FROM, note};
use crate::seats::{self, COOP_COMPANY};
use crate::{Event, Mode, State, text};

impl Host {
    /// A join: an admission, a repetition, a rename, or somebody who takes its seat again.
    pub(super) fn join(&mut self, now: Instant, from: Path, join: Join) -> Result<(), Refused> {
        self.banned.retain(|(until, ..)| *until > now);
        if let Some(reason) = self.banned.iter().find(|(_, path, _)| *path == from).map(|(.., reason)| reason.clone()) {
            return Err(self.reject(now, from, reason));
        }
        if join.version.as_str() != Some(&self.config.version) {
            let theirs = text::line(join.version.as_str().unwrap_or("unknown"), 40);
            let mine = &self.config.version;
            let reason = format!("version mismatch: the host runs {mine}, you run {theirs}; both must be the same");
            let refused = self.reject(now, from, reason);
            self.drop_member(from, "another version");
            return Err(refused);
        }
        let token = join.aw_resume.as_deref().filter(|_| self.config.extensions).and_then(Token::from_hex);
        let mut kept = None;
        if let Some(token) = token {
            match self.members.with_token(&token) {
                Some(old) if old != from => self.take_seat_again(now, old, from),
                Some(_) => {}
                None => kept = self.members.take_kept(now, &token),
            }
        }
        if self.is_member(from) && kept.is_none() {
            self.join_again(now, from, join);
            return Ok(());
        }
        self.drop_member(from, "replaced");
        if self.members.len() >= self.capacity() {
            if let Some(seat) = kept {
                self.members.keep(now, seat);
            }
            return Err(self.reject(now, from, "lobby full".to_owned()));
        }
        self.admit(now, from, join, kept)
    }

    /// The player at `old` speaks from `from` now, with its token.
    fn take_seat_again(&mut self, now: Instant, old: Path, from: Path) {
        self.drop_member(from, "replaced");
        if self.members.rekey(old, from) {
            self.copies.rekey(old, from);
            if let Some(member) = self.members.at_mut(from) {
                member.heard = now;
                let name = member.seat.name.clone();
                self.log(format!("[host] {name} took its seat again from {from}"));
                self.queues.tell(Event::MemberMoved { name, old, new: from });
            }
        }
    }

    fn join_again(&mut self, now: Instant, from: Path, join: Join) {
        let words = Words::read(&join.aw, self.config.extensions);
        let feed = self.feed(now, words, &join);
        let Some(member) = self.members.at_mut(from) else { return };
        let profile = text::profile(join.profile);
        if profile.is_some() && member.profile != profile {
            member.profile = profile;
            self.published.stale();
        }
        let renamed = member.seat.asked != join.name;
        member.words = words;
        if words.resume && member.seat.token.is_none() {
            member.seat.token = Some(Token(self.dice.bytes()));
        }
        // An old peer's next roster comes soon after its welcome; a peer of ours goes on from what it holds.
        member.feed = match (feed, &member.feed) {
            (Feed::Old { .. }, Feed::Old { sent, .. }) => {
                Feed::Old { sent: *sent, due: publish::not_before(*sent, now) }
            }
            (feed, _) => feed,
        };
        if renamed {
            self.rename_member(from, join.name);
        }
        self.welcome(from);
    }

    fn rename_member(&mut self, path: Path, asked: String) {
        let new = seats::assign(&asked, |name| self.is_taken(name, Some(path)));
        let Some(member) = self.members.at_mut(path) else { return };
        member.seat.asked = short(asked);
        let old = std::mem::replace(&mut member.seat.name, new.clone());
        if old == new {
            return;
        }
        // The letter stays with the player (pain 37).
        self.letters.keep(&old, &new, &member.seat.letter);
        self.log(format!("[host] '{old}' is '{new}' now"));
        self.queues.tell(Event::MemberRenamed { path, old, new });
        self.published.stale();
    }

    fn admit(&mut self, now: Instant, from: Path, join: Join, kept: Option<Seat>) -> Result<(), Refused> {
        let words = Words::read(&join.aw, self.config.extensions);
        let seat = match self.seat(join.name.clone(), words, kept) {
            Some(seat) => seat,
            None => return Err(self.reject(now, from, "no letter is left in this lobby".to_owned())),
        };
        let first = self.members.is_empty();
        let name = seat.name.clone();
        let late = self.running && !seat.started;
        let member = Member {
            slot: self.members.free_slot(),
            order: self.members.next_order(),
            seat,
            mesh: join.mesh,
            feed: self.feed(now, words, &join),
            profile: text::profile(join.profile),
            words,
            heard: now,
            links: Slots::default(),
            logs: Allowance::default(),
            chats: PerSecond::default(),
        };
        self.log(format!("[host] JOIN {from} as '{name}'"));
        self.queues.tell(Event::MemberJoined {
            name: name.clone(),
            path: from,
            mesh: member.mesh,
            profile: member.profile.clone(),
        });
        self.members.insert(from, member);
        self.published.stale();
        self.welcome(from);
        if late {
            let detail = "the game is running; the host has to start you".to_owned();
            self.queues.send(from, to_json(&Status { state: State::Connected.as_str().to_owned(), detail }));
            self.queues.tell(note(&format!("{name} joined and is not started yet")));
        } else if first && self.config.relay_only {
            let detail = "you lead this relay: press START GAME".to_owned();
            self.queues.send(from, to_json(&Status { state: State::Waiting.as_str().to_owned(), detail }));
        }
        if first {
            self.status(State::Connected, "somebody is here");
        }
        Ok(())
    }

    /// Whether somebody but the member at `but` has this name. Notes of this program are signed like a player's words:
    /// nobody is called that.
    fn is_taken(&self, name: &str, but: Option<Path>) -> bool {
        name == NOTE_FROM
            || self.own.as_ref().is_some_and(|own| own.name == name)
            || self.members.named(name).is_some_and(|(path, _)| Some(path) != but)
    }

    /// A seat for a newcomer, or an old one as far as it is still free.
    fn seat(&mut self, asked: String, words: Words, kept: Option<Seat>) -> Option<Seat> {
        let base = match &kept {
            Some(seat) if seat.asked == asked => &seat.name,
            _ => &asked,
        };
        let name = seats::assign(base, |name| self.is_taken(name, None));
        let (members, own) = (&self.members, self.own.as_ref());
        let present = |letter: &str| {
            own.is_some_and(|own| own.letter == letter)
                || members.iter().any(|(_, member)| member.seat.letter == letter)
        };
        let letter = match kept.as_ref().filter(|seat| !present(&seat.letter)) {
            Some(seat) => {
                self.letters.keep(&seat.name, &name, &seat.letter);
                seat.letter.clone()
            }
            None => self.letters.give(&name, present)?,
        };
        let taken = |id| {
            own.is_some_and(|own| own.company == id) || members.iter().any(|(_, member)| member.seat.company == id)
        };
        let chip = kept.as_ref().map(|seat| seat.company).or_else(|| self.config.chips.get(&name).copied());
        let company = match self.mode {
            Mode::Coop => COOP_COMPANY,
            Mode::Companies => chip
                .filter(|&id| (1..=seats::COMPANY_MAX).contains(&id) && (kept.is_some() || !taken(id)))
                .unwrap_or_else(|| seats::free_company(taken)),
        };
        let fresh = words.resume.then(|| Token(self.dice.bytes()));
        let (stage, started, switching, token) = match kept {
            Some(seat) => (seat.stage, seat.started, seat.switching, seat.token),
            None => (String::new(), false, false, fresh),
        };
        Some(Seat { name, asked: short(asked), letter, company, stage, started, switching, token })
    }

    fn feed(&mut self, now: Instant, words: Words, join: &Join) -> Feed {
        self.feed = now;
        if !words.roster {
            return Feed::Old { sent: None, due: now + publish::HEAL };
        }
        let held = join.aw_rev.filter(|rev| join.aw_of.as_deref() == Some(self.facts.of()) && *rev <= self.facts.now());
        Feed::Pages(Pager::new(now, held.unwrap_or_default()))
    }

    fn welcome(&mut self, to: Path) {
        let host = self.host_name();
        let Some(member) = self.members.at(to) else { return };
        let welcome = Welcome {
            version: self.config.version.clone().into(),
            transport_lobby: self.transport_lobby.clone(),
            you: member.seat.name.clone(),
            host,
            recovery: 0,
            lobby: self.lobby_name(),
            relay: self.config.relay_only,
            mods: codec::Value::Array(Vec::new()),
            mods_unknown: false,
            aw: if member.words == Words::default() { Vec::new() } else { Words::offer(self.config.extensions) },
            aw_resume: member.seat.token.filter(|_| member.words.resume).map(Token::to_hex),
        };
        self.queues.send(to, to_json(&welcome));
    }

    /// Removes a member, if there is one at this path. Its letter stays its own.
    pub(super) fn drop_member(&mut self, path: Path, reason: &str) {
        self.lose_member(path, reason, false);
    }

    /// Removes a member; a seat that is kept may be taken again with its token.
    pub(super) fn lose_member(&mut self, path: Path, reason: &str, keep: bool) {
        let Some(member) = self.members.remove(path) else { return };
        self.copies.forget(path);
        let name = member.seat.name.clone();
        if keep {
            self.log(format!("[host] DROP {path} '{name}' -- {reason}"));
            self.members.keep(self.now, member.seat);
        } else {
            self.log(format!("[host] LEAVE {path} '{name}' ({reason})"));
        }
        self.queues.tell(Event::MemberLeft { name, path, reason: reason.to_owned() });
        self.published.stale();
        if self.members.is_empty() {
            if self.config.relay_only {
                self.running = false;
            }
            self.status(State::Waiting, "waiting for players");
        }
    }

    /// Tells somebody that it is not wanted, unless too many were told that lately.
    fn reject(&mut self, now: Instant, to: Path, reason: String) -> Refused {
        if self.is_member(to) || self.strangers.allow(self.begun, now, to.remote) {
            self.log(format!("[host] refused {to}: {reason}"));
            self.queues.send(to, to_json(&Reject { reason }));
        }
        Refused::NotAllowed
    }

    /// Somebody with the key who is no member should join again, if it understands that.
    pub(super) fn answer_stranger(&mut self, now: Instant, to: Path) {
        if let Some((.., reason)) = self.banned.iter().find(|(until, path, _)| *path == to && *until > now) {
            let reason = reason.clone();
            self.reject(now, to, reason);
        } else if self.config.extensions && self.strangers.allow(self.begun, now, to.remote) {
            self.queues.send(to, to_json(&Again {}));
        }
    }
}

/// A name as somebody asked for it, to recognise a repetition by; bounded.
fn short(mut asked: String) -> String {
    if asked.len() > 4 * text::NAME_MAX {
        asked = asked.chars().take(text::NAME_MAX).collect();
    }
    asked
}
