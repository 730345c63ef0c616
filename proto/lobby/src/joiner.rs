//! The joiner's half of a lobby.
//!
//! ```text
//! Idle --connected--> Asking --welcome, roster or page of the right version--> In --leave--> Leaving --> Over
//!                       |                                                       |  quiet 12 s: Rejoin, again and again
//!                       '-- 15 s: Unconfirmed                                   |  30 s: shown as connecting
//!                                                                               '- 150 s: HostGone
//! ```
//! `reject`, `bye` and another version end it from Asking and In alike. From `In`, `connected` asks again with the
//! resume token while the game plays on.

mod hear;
mod wishes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::to_json;
use seam::{Path, Refused};

use crate::chat::Read;
use crate::copies::Copies;
use crate::logs::Outgoing;
use crate::messages::{ChooseMode, Company, Join, LeaderStart, Leave, Ping, Say, Words};
use crate::queue::{Queues, note};
use crate::view::View;
use crate::{End, Event, JoinConfig, Mode, Roster, STALL, State, text};
use wishes::Wishes;

/// A join without an answer is repeated this often; old peers wait 3 s, which on a lossy link takes many seconds to get
/// in.
const JOIN_FAST: Duration = Duration::from_secs(1);
/// A member's join, with news for the host, is repeated this often.
const JOIN_EVERY: Duration = Duration::from_secs(3);
/// A member says that it is alive this often.
const PING_EVERY: Duration = Duration::from_secs(3);
/// The host has this long to say which version it runs.
const CONFIRM: Duration = Duration::from_secs(15);
/// A host this quiet is dialled again.
const QUIET: Duration = Duration::from_secs(12);
/// How often the dial is asked for.
const REJOIN_EVERY: Duration = Duration::from_secs(6);
/// A host this quiet is shown as lost.
const LOST: Duration = Duration::from_secs(30);
/// A lost host has this long to come back.
const GONE: Duration = Duration::from_secs(120);
/// At most one answer to `aw_again` in this time.
const AGAIN_EVERY: Duration = Duration::from_secs(1);
/// A host that says who is here, but not in time which of several players of one name this is, calls it what it asked
/// for.
const NAME_WITHIN: Duration = Duration::from_secs(30);
/// Rosters become events at most this often, and in a lobby of more than 40 that much more seldom.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Players whose changes may each be shown at once.
const SHOWN_FAST: usize = 40;

/// See the drawing above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Asking { until: Instant },
    In { lost: Option<Instant> },
    Leaving,
    Over,
}

/// The joiner's half of a lobby.
#[derive(Debug)]
pub struct Joiner {
    config: Arc<JoinConfig>,
    /// The name asked for; renames change it.
    asked: String,
    profile: Option<String>,
    /// When this machine was last called.
    now: Instant,
    /// When it last asked to be called. What is heard in between only makes things due later, and every other change
    /// asks anew.
    wake: Option<(Instant, &'static str)>,
    phase: Phase,
    host: Option<Path>,
    heard: Instant,
    /// Something authentic came from a host: a plain reject no longer counts.
    authentic: bool,
    /// When the join is sent next; none when it is answered.
    join: Option<Instant>,
    joined: Option<Instant>,
    /// Until then the own name is asked for rather than guessed.
    named_by: Instant,
    ping: Instant,
    rejoin: Option<Instant>,
    /// Joins left that ask for a name the host did not give.
    insist: u8,
    token: Option<String>,
    words: Words,
    /// The newest knowledge: of the welcome until a roster says more.
    roster: Arc<Roster>,
    /// What was last told as an event.
    shown: Arc<Roster>,
    view: Option<View>,
    /// Whether rosters of this host say who reaches whom.
    links_told: bool,
    /// There may be something to tell.
    unshown: bool,
    next_show: Instant,
    acknowledge: bool,
    started: bool,
    /// A save of this session was received and verified, and whether a start has not taken it yet.
    saved: bool,
    fresh: bool,
    /// This player was started in the world before the newest.
    switching: bool,
    /// World nonces told already, the newest last; at most 64.
    worlds: VecDeque<String>,
    read: Read,
    wishes: Wishes,
    logs: Outgoing,
    copies: Copies,
    queues: Queues,
}

impl Joiner {
    /// A joiner without a host yet. It draws nothing from its seed: every machine is made in the same way.
    #[must_use]
    pub fn new(config: Arc<JoinConfig>, _seed: [u8; 32], now: Instant) -> Self {
        let mut joiner = Self {
            asked: config.name.clone(),
            profile: config.profile.clone(),
            now,
            wake: None,
            phase: Phase::Idle,
            host: None,
            heard: now,
            authentic: false,
            join: None,
            joined: None,
            named_by: now,
            ping: now,
            rejoin: None,
            insist: 0,
            token: None,
            words: Words::default(),
            roster: Arc::default(),
            shown: Arc::default(),
            view: None,
            links_told: false,
            unshown: false,
            next_show: now,
            acknowledge: false,
            started: false,
            saved: false,
            fresh: false,
            switching: false,
            worlds: VecDeque::new(),
            read: Read::default(),
            wishes: Wishes::default(),
            logs: Outgoing::default(),
            copies: Copies::default(),
            queues: Queues::default(),
            config,
        };
        joiner.status(State::Connecting, "looking for the host");
        joiner
    }

    /// The own join code, as soon as it is known; a host that knows us already is told.
    pub fn set_profile(&mut self, now: Instant, profile: Option<String>) {
        self.enter(now);
        if self.profile != profile {
            self.profile = profile;
            if self.host.is_some() && self.is_alive() {
                self.join = Some(now);
            }
        }
        self.settle(now);
    }

    /// The host answers at this path: asks to be let in, or in again.
    pub fn connected(&mut self, now: Instant, host: Path) {
        self.enter(now);
        match self.phase {
            Phase::Idle => {
                self.phase = Phase::Asking { until: now + CONFIRM };
                self.named_by = now + NAME_WITHIN;
                self.status(State::Connecting, "found the host, asking to be let in");
            }
            Phase::Asking { .. } | Phase::In { .. } => {}
            Phase::Leaving | Phase::Over => return,
        }
        self.host = Some(host);
        self.heard = now;
        self.rejoin = None;
        self.join = Some(now);
        self.ping = now;
        self.insist = 3;
        self.wishes.renew();
        self.settle(now);
    }

    /// The host's path is known to be dead: shows it and asks for another at once.
    pub fn disconnected(&mut self, now: Instant) {
        self.enter(now);
        if let Phase::In { .. } = self.phase {
            self.lose(now);
            self.rejoin = Some(now);
        }
        self.settle(now);
    }

    /// Anything authentic was heard from this path.
    pub fn heard(&mut self, now: Instant, from: Path) {
        self.enter(now);
        if self.host == Some(from) {
            self.heard = now;
            self.authentic = true;
            self.rejoin = None;
        }
    }

    /// An unauthenticated rejection (netpunch wire, section 4.3). It counts only before the first authentic frame.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] when it does not count.
    pub fn handle_plain_reject(&mut self, now: Instant, from: Path, reason: &str) -> Result<(), Refused> {
        self.enter(now);
        if self.authentic || self.host != Some(from) || !matches!(self.phase, Phase::Asking { .. }) {
            return Err(Refused::NotAllowed);
        }
        let mut reason = text::line(reason, text::LINE_MAX);
        if self.config.stray_password {
            reason.push_str("; this code is not locked, so join it without a password");
        }
        self.end(End::Rejected(reason));
        Ok(())
    }

    /// Whether the host is at this path.
    #[must_use]
    pub fn is_member(&self, path: Path) -> bool {
        self.host == Some(path)
    }

    /// Whether the host can take part in guessing a port.
    #[must_use]
    pub fn host_guesses(&self) -> bool {
        self.words.guess
    }

    /// Whether the host confirmed its version: game frames and mesh traffic flow only then.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        matches!(self.phase, Phase::In { .. })
    }

    /// Whether the host can send files by QUIC.
    #[must_use]
    pub fn host_speaks_quic(&self) -> bool {
        self.words.quic
    }

    /// A save of this session is here and verified: a start that goes with one counts from now on.
    pub fn save_ready(&mut self, now: Instant) {
        self.enter(now);
        (self.saved, self.fresh) = (true, true);
        self.settle(now);
    }

    /// Where the host is.
    #[must_use]
    pub fn host_path(&self) -> Option<Path> {
        self.host
    }

    /// The host moved. False when it was not at `old`.
    pub fn rekey(&mut self, now: Instant, old: Path, new: Path) -> bool {
        self.enter(now);
        if self.host != Some(old) {
            return false;
        }
        self.host = Some(new);
        self.heard = now;
        self.copies.rekey(old, new);
        self.queues.rekey(old, new);
        true
    }

    /// Says something to everybody; it is shown when the host passes it on.
    pub fn chat(&mut self, now: Instant, text: &str) {
        self.enter(now);
        let text = text::chat(&self.roster.you, text);
        if !text.trim().is_empty() {
            self.say(to_json(&Say { text }));
        }
    }

    /// Puts a player (oneself when `None`) into a company. The host follows for oneself, and a relay for its leader.
    pub fn company(&mut self, now: Instant, player: Option<&str>, id: u32) {
        self.enter(now);
        let me = self.roster.you.clone();
        let json = match player.filter(|&player| player != me) {
            Some(player) => to_json(&Company { player: Some(player.to_owned()), id: i64::from(id) }),
            None => self.wishes.company(now, &me, id),
        };
        self.say(json);
    }

    /// Co-op or companies; a relay's leader alone is heard.
    pub fn mode(&mut self, now: Instant, mode: Mode) {
        self.enter(now);
        self.say(to_json(&ChooseMode { mode: mode.as_str().to_owned() }));
    }

    /// What the player is doing; empty clears.
    pub fn stage(&mut self, now: Instant, text: &str) {
        self.enter(now);
        let json = self.wishes.stage(now, text::stage(text));
        self.say(json);
    }

    /// Asks for another name.
    pub fn rename(&mut self, now: Instant, name: &str) {
        self.enter(now);
        self.asked = text::name(name);
        if self.host.is_some() && self.is_alive() {
            self.join = Some(now);
            self.insist = 3;
        }
        self.settle(now);
    }

    /// Starts everybody without a save; a relay's leader alone is heard.
    pub fn start(&mut self, now: Instant) {
        self.enter(now);
        self.say(to_json(&LeaderStart {}));
    }

    /// A chat line for this player alone.
    pub fn note(&mut self, now: Instant, text: &str) {
        self.enter(now);
        self.queues.tell(note(text));
    }

    /// Lines for the host's merged log; at most 2,000 wait, the oldest go first.
    pub fn log(&mut self, now: Instant, lines: Vec<String>) {
        self.enter(now);
        self.logs.push(now, lines);
        self.settle(now);
    }

    /// Which players are reached directly, the host aside. Call it whenever that may have changed.
    pub fn links(&mut self, now: Instant, direct: Vec<String>) {
        self.enter(now);
        self.wishes.links(now, direct);
        self.settle(now);
    }

    /// Leaves, three times over; [`Event::Ended`] follows when the last copy is out.
    pub fn leave(&mut self, now: Instant) {
        self.enter(now);
        match (self.phase, self.host) {
            (Phase::Asking { .. } | Phase::In { .. }, Some(host)) => {
                self.phase = Phase::Leaving;
                self.copies.send(now, vec![host], to_json(&Leave {}));
                self.settle(now);
            }
            (Phase::Leaving | Phase::Over, _) => {}
            _ => self.end(End::Quit),
        }
    }

    /// The composer gave up before a host was found.
    pub fn unreachable(&mut self, now: Instant) {
        self.enter(now);
        if self.phase == Phase::Idle {
            self.end(End::Unreachable("nobody answered".to_owned()));
        }
    }

    /// The lobby as far as it is known.
    #[must_use]
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.enter(now);
        if self.wake.is_none_or(|(due, _)| now < due) {
            return;
        }
        match self.phase {
            Phase::Asking { until } if until <= now => self.end(End::Unconfirmed),
            Phase::In { lost } => {
                if lost.is_none() && self.heard + LOST <= now {
                    self.lose(now);
                } else if lost.is_some_and(|since| since + GONE <= now) {
                    self.end(End::HostGone);
                } else if self.rejoin.unwrap_or(self.heard + QUIET) <= now {
                    self.rejoin = Some(now + REJOIN_EVERY);
                    self.queues.tell(Event::Rejoin);
                }
            }
            _ => {}
        }
        self.settle(now);
    }

    /// The next message to seal and send.
    pub fn poll_message(&mut self) -> Option<(Path, Vec<u8>)> {
        self.queues.next_message()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.queues.next_event()
    }

    /// When `handle_timeout` is next due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.queues.is_empty() {
            return Some((self.now, "queued"));
        }
        self.wake
    }

    fn next_due(&self) -> Option<(Instant, &'static str)> {
        let mut first: Option<(Instant, &'static str)> = None;
        let mut consider = |due: Option<Instant>, why| {
            if let Some(due) = due
                && first.is_none_or(|(held, _)| due < held)
            {
                first = Some((due, why));
            }
        };
        if self.phase == Phase::Over {
            return None;
        }
        consider(self.copies.due(), "another copy");
        if let Phase::Asking { until } = self.phase {
            consider(Some(until), "give up on the version");
        }
        if let Phase::In { lost } = self.phase {
            let silent = lost.map_or(self.heard + LOST, |since| since + GONE);
            consider(Some(silent), "the host is silent");
            consider(Some(self.rejoin.unwrap_or(self.heard + QUIET)), "dial the host again");
            consider(self.wishes.due(), "compare with the roster");
            consider(self.logs.due(), "send a batch of log lines");
            consider(self.unshown.then_some(self.next_show), "show the roster");
        }
        if self.is_alive() && self.host.is_some() {
            consider(self.join, "ask to be let in");
            consider(Some(self.ping), "ping");
        }
        first
    }

    /// Begins every call: a loop that stood still has kept the host from being heard.
    fn enter(&mut self, now: Instant) {
        if let Some((wake, why)) = self.wake.filter(|(wake, _)| now > *wake + STALL) {
            let credit = now.saturating_duration_since(wake.max(self.now));
            self.heard += credit;
            match &mut self.phase {
                Phase::Asking { until } | Phase::In { lost: Some(until) } => *until += credit,
                _ => {}
            }
            self.wake = Some((now, why));
        }
        self.now = now;
    }

    /// Whether the host has not said yet, or in a way that was lost, who we are.
    fn is_nameless(&self) -> bool {
        self.roster.you.is_empty()
    }

    fn is_alive(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. } | Phase::In { .. })
    }

    /// Ends every call: sends what is due and works out what is next.
    fn settle(&mut self, now: Instant) {
        if let (true, Some(host)) = (self.is_alive(), self.host) {
            if self.join.is_some_and(|due| due <= now) {
                self.join = Some(now + if self.is_nameless() { JOIN_FAST } else { JOIN_EVERY });
                self.joined = Some(now);
                let join = self.join_message();
                self.queues.send(host, to_json(&join));
            }
            if self.ping <= now {
                self.ping = now + PING_EVERY;
                self.queues.send(host, to_json(&Ping {}));
            }
        }
        if let (Phase::In { .. }, Some(host)) = (self.phase, self.host) {
            if self.unshown && self.next_show <= now {
                self.show(now);
            }
            for json in self.wishes.take_due(now, &self.roster, self.links_told) {
                self.queues.send(host, json);
            }
            if let Some(lines) = self.logs.batch(now) {
                self.queues.send(host, to_json(&crate::messages::Log { lines }));
            }
            if let Some(view) = self.view.as_ref().filter(|_| self.acknowledge) {
                self.acknowledge = false;
                self.queues.send(host, to_json(&view.have()));
            }
        }
        let queues = &mut self.queues;
        self.copies.take_due(now, |path, json| queues.send(path, json));
        if self.phase == Phase::Leaving && self.copies.is_empty() {
            self.end(End::Quit);
        }
        self.wake = self.next_due();
    }

    fn join_message(&self) -> Join {
        let rename = matches!(self.phase, Phase::In { .. });
        Join {
            version: self.config.version.clone().into(),
            name: self.asked.clone(),
            mesh: self.config.mesh,
            recovery: 0,
            batches: (!rename).then_some(1),
            terrain_stream: Some(1),
            profile: self.profile.clone(),
            aw: Words::offer(self.config.extensions),
            aw_resume: self.token.clone(),
            aw_of: self.view.as_ref().map(|view| view.of().to_owned()),
            aw_rev: self.view.as_ref().map(View::revision),
        }
    }

    /// Sends to the host once it confirmed its version; before that there is nobody to say it to.
    fn say(&mut self, json: Vec<u8>) {
        if let (Phase::In { .. }, Some(host)) = (self.phase, self.host) {
            self.queues.send(host, json);
        }
        self.settle(self.now);
    }

    fn status(&mut self, state: State, detail: &str) {
        self.queues.tell(Event::Status { state, detail: detail.to_owned() });
    }

    fn lose(&mut self, now: Instant) {
        if self.phase == (Phase::In { lost: None }) {
            self.phase = Phase::In { lost: Some(now) };
            self.status(State::Connecting, "the host is not heard; looking for it again");
        }
    }

    fn end(&mut self, end: End) {
        if self.phase != Phase::Over {
            self.phase = Phase::Over;
            self.queues.tell(Event::Ended(end));
            self.wake = None;
        }
    }
}
