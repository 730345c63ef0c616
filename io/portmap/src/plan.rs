//! What is asked when, and what an answer means: answers in, actions out. No socket, no clock, no thread.
//!
//! ```text
//!            Ask                 granted                       renewed at half
//!   (none) -------> Asking ------------------> Held, chosen  ------------------ (again)
//!                     |   refused: told          |   refused, or silent until it has lapsed: Lost, all are asked anew
//!                     |                          v
//!                     +--> Held, shared     Remove
//! ```
//!
//! The first good answer is chosen. A later one that names the same outside port is most likely the same line in the same
//! router's table, which all its protocols share: it is neither renewed nor taken back before the chosen one is. One that
//! names another port is taken back at once, and the chosen one is renewed after it, since some routers take back by inside
//! port alone. NAT-PMP, whose first question is only where the router is, asks for nothing when another way was quicker by
//! then.
//!
//! Bounds: two protocols by three methods, 32 entries remembered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use seam::Dice;

use crate::gateway::Way;
use crate::memory::{Entry, MOST};
use crate::words::{Event, Method, Protocol, Why, outside};

/// A mapping is renewed at half its lease, and no later than this: a router that restarts forgets it.
const RENEW_MOST: Duration = Duration::from_secs(600);
const RETRY_LEAST: Duration = Duration::from_secs(1);
/// When everything was refused: once soon, for a router that is just starting, then seldom.
const AGAIN_SOON: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(600);
/// Outside ports tried besides the inside one.
const OTHER_PORTS: u8 = 3;
/// Renewals of a mapping for good that may go unanswered.
const MISSES: u8 = 3;

/// Now, twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) now: Instant,
    /// Unix seconds.
    pub(crate) wall: u64,
}

/// A router found by UPnP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Router {
    pub(crate) gateway: Ipv4Addr,
    pub(crate) client: Ipv4Addr,
    pub(crate) wan: Result<Ipv4Addr, Why>,
}

/// What a router gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    pub(crate) external: SocketAddrV4,
    /// Seconds; 0 for good.
    pub(crate) lease: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    Told(Why),
    /// 718 and its like: another outside port may do.
    PortTaken,
    /// 725 and its like: a lease is not to be had.
    PermanentOnly,
    /// Another way was quicker, and the router was not asked after all.
    Unneeded,
}

impl From<Why> for Failure {
    fn from(why: Why) -> Self {
        Self::Told(why)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Searched(Result<Router, Why>),
    Asked {
        id: u64,
        entry: Entry,
        result: Result<Granted, Failure>,
    },
    /// `gone` is false when nobody answered.
    Removed {
        id: u64,
        gone: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// For a router that speaks UPnP.
    Search,
    /// Make or renew.
    Ask { id: u64, entry: Entry, lease: u32 },
    /// Take back. `verify`: only when the router says that it is this machine's. `patient`: worth repeating.
    Remove { id: u64, entry: Entry, verify: bool, patient: bool },
}

type Key = (Protocol, Method);

#[derive(Debug)]
struct Line {
    id: u64,
    entry: Entry,
    lease: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Asking { tries: u8 },
    Held { external: SocketAddrV4, chosen: bool, renew: Instant, lapses: Option<Instant>, misses: u8, asking: bool },
}

pub(crate) struct Plan {
    wanted: BTreeMap<Protocol, u16>,
    lease: u32,
    /// Whether entries outlive a crash.
    remembers: bool,
    dice: Dice,
    next_id: u64,
    way: Option<Way>,
    searching: bool,
    lines: BTreeMap<Key, Line>,
    /// Of dead processes, or of routers that did not answer when they were to take back.
    leftovers: Vec<Entry>,
    removing: BTreeMap<u64, Entry>,
    /// Whether a question waits for a removal.
    blocked: bool,
    /// Whose chosen mapping is renewed when nothing is being removed any more.
    shaken: BTreeSet<Protocol>,
    distrusted: BTreeSet<Key>,
    refused: BTreeMap<Key, Why>,
    wan: BTreeMap<Method, Ipv4Addr>,
    /// Whether the router has ever answered NAT-PMP or PCP.
    heard: bool,
    done: bool,
    again: Option<Instant>,
    rounds: u32,
    stopping: bool,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl Plan {
    pub(crate) fn new(
        wanted: BTreeMap<Protocol, u16>,
        lease: u32,
        remembers: bool,
        leftovers: Vec<Entry>,
        dice: Dice,
    ) -> Self {
        Self {
            wanted,
            lease,
            remembers,
            dice,
            next_id: 0,
            way: None,
            searching: false,
            lines: BTreeMap::new(),
            leftovers,
            removing: BTreeMap::new(),
            blocked: false,
            shaken: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            refused: BTreeMap::new(),
            wan: BTreeMap::new(),
            heard: false,
            done: false,
            again: None,
            rounds: 0,
            stopping: false,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Begins, with the way out of this machine as it is now.
    pub(crate) fn start(&mut self, at: At, way: Option<Way>) {
        self.way = way;
        self.leftovers.retain(|entry| entry.until == 0 || entry.until >= at.wall);
        self.round(at);
        self.tidy(at);
    }

    /// The way out as it is now. Another one than before: what was mapped is of no use here.
    pub(crate) fn set_way(&mut self, at: At, way: Option<Way>) {
        if way == self.way || self.stopping {
            return;
        }
        self.way = way;
        for ((protocol, by), line) in std::mem::take(&mut self.lines) {
            if let State::Held { external, chosen: true, .. } = line.state {
                self.events.push_back(Event::Lost { protocol, by, external });
            }
            self.leave(line.entry);
        }
        self.searching = false;
        self.refused.clear();
        self.wan.clear();
        self.heard = false;
        self.rounds = 0;
        self.round(at);
        self.tidy(at);
    }

    /// Renews everything at once.
    pub(crate) fn renew(&mut self, at: At) {
        for line in self.lines.values_mut() {
            if let State::Held { renew, .. } = &mut line.state {
                *renew = at.now;
            }
        }
        self.again = self.again.map(|_| at.now);
        self.handle_timeout(at);
    }

    /// Seen from outside, nothing came through: this way is not used again.
    pub(crate) fn distrust(&mut self, at: At, protocol: Protocol, by: Method) {
        let key = (protocol, by);
        self.distrusted.insert(key);
        if self.lines.contains_key(&key) {
            self.drop_protocol(protocol);
        }
        self.refuse(key, Why::Disproved);
        self.round(at);
        self.tidy(at);
    }

    /// Takes everything back. Nothing is asked after this.
    pub(crate) fn stop(&mut self, at: At) {
        self.stopping = true;
        self.again = None;
        self.shaken.clear();
        let held: Vec<Key> = self
            .lines
            .iter()
            .filter(|(_, line)| matches!(line.state, State::Held { asking: false, .. }))
            .map(|(key, _)| *key)
            .collect();
        for key in held {
            if let Some(line) = self.lines.remove(&key) {
                self.remove(line.entry, false);
            }
        }
        self.tidy(at);
    }

    /// Whether everything is taken back that can be.
    pub(crate) fn finished(&self) -> bool {
        self.stopping && self.lines.is_empty() && self.removing.is_empty()
    }

    pub(crate) fn answered(&mut self, at: At, answer: Answer) {
        match answer {
            Answer::Searched(result) => self.searched(at, result),
            Answer::Asked { id, entry, result } => {
                if entry.method != Method::Upnp
                    && !matches!(result, Err(Failure::Told(Why::NoAnswer | Why::Unspoken | Why::Broken(_))))
                {
                    self.heard = true;
                }
                let key = (entry.protocol, entry.method);
                match self.lines.get(&key) {
                    Some(line) if line.id == id => self.asked(at, key, result),
                    // Nobody waits for it any more.
                    _ => {
                        if let Ok(granted) = result {
                            self.remove(Entry { external: granted.external.port(), ..entry }, false);
                        }
                    }
                }
            }
            Answer::Removed { id, gone } => {
                if let Some(entry) = self.removing.remove(&id)
                    && !gone
                {
                    self.leave(entry);
                }
                if self.removing.is_empty() {
                    let shaken = std::mem::take(&mut self.shaken);
                    for line in self.lines.values_mut().filter(|line| shaken.contains(&line.entry.protocol)) {
                        if let State::Held { chosen: true, renew, .. } = &mut line.state {
                            *renew = at.now;
                        }
                    }
                    if std::mem::take(&mut self.blocked) {
                        self.round(at);
                    }
                    self.handle_timeout(at);
                }
            }
        }
        self.tidy(at);
    }

    pub(crate) fn handle_timeout(&mut self, at: At) {
        if self.stopping {
            return;
        }
        let due: Vec<Key> = self
            .lines
            .iter()
            .filter(|(_, line)| {
                matches!(line.state, State::Held { chosen: true, asking: false, renew, .. } if renew <= at.now)
            })
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            self.next_id += 1;
            if let Some(line) = self.lines.get_mut(&key)
                && let State::Held { asking, .. } = &mut line.state
            {
                *asking = true;
                line.id = self.next_id;
                line.entry.until = until(at, line.lease);
                self.actions.push_back(Action::Ask { id: line.id, entry: line.entry, lease: line.lease });
            }
        }
        if self.again.is_some_and(|again| again <= at.now) {
            self.again = None;
            self.round(at);
            self.tidy(at);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let renewals = self.lines.values().filter_map(|line| match line.state {
            State::Held { chosen: true, asking: false, renew, .. } => Some(renew),
            State::Held { .. } | State::Asking { .. } => None,
        });
        renewals.chain(self.again).min().filter(|_| !self.stopping)
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What may stand at routers now: to be written before an action is taken.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let lines = self.lines.values().map(|line| &line.entry);
        self.leftovers.iter().chain(self.removing.values()).chain(lines).copied().collect()
    }

    /// Which way each mapped protocol has.
    pub(crate) fn ways(&self) -> BTreeMap<Protocol, Method> {
        let chosen = |line: &&Line| matches!(line.state, State::Held { chosen: true, .. });
        self.lines.values().filter(chosen).map(|line| (line.entry.protocol, line.entry.method)).collect()
    }

    fn chosen(&self, protocol: Protocol) -> Option<SocketAddrV4> {
        self.lines.values().find_map(|line| match line.state {
            State::Held { external, chosen: true, .. } if line.entry.protocol == protocol => Some(external),
            State::Held { .. } | State::Asking { .. } => None,
        })
    }

    /// Asks every way for what is not mapped.
    fn round(&mut self, at: At) {
        if self.stopping {
            return;
        }
        let missing: Vec<Protocol> = self.wanted.keys().copied().filter(|p| self.chosen(*p).is_none()).collect();
        for protocol in &missing {
            for method in [Method::Pcp, Method::NatPmp] {
                match self.way {
                    Some(Way { gateway, local }) => self.ask(at, (*protocol, method), gateway, local),
                    None => self.refuse((*protocol, method), Why::NoGateway),
                }
            }
        }
        if self.rounds == 0 || !missing.is_empty() {
            self.rounds += 1;
            if !self.searching {
                self.searching = true;
                self.actions.push_back(Action::Search);
            }
        }
        if let Some(way) = self.way {
            self.take_back_leftovers(|entry| {
                entry.method != Method::Upnp && (entry.gateway, entry.client) == (way.gateway, way.local)
            });
        }
    }

    fn searched(&mut self, at: At, result: Result<Router, Why>) {
        self.searching = false;
        let wanted: Vec<Key> = self.wanted.keys().map(|protocol| (*protocol, Method::Upnp)).collect();
        let refused = match result {
            Ok(router) => {
                let gateway = router.gateway;
                let wanted_ports = self.wanted.clone();
                // Before the questions, which may be for the same outside ports. Those for the same mapping take it over.
                self.take_back_leftovers(|entry| {
                    let taken_over = entry.client == router.client
                        && entry.external == entry.internal
                        && wanted_ports.get(&entry.protocol) == Some(&entry.internal);
                    entry.method == Method::Upnp && entry.gateway == gateway && !taken_over
                });
                let usable = router.wan.clone().and_then(|wan| {
                    self.tell_wan(Method::Upnp, wan);
                    outside(wan)
                });
                if usable.is_ok() && !self.stopping {
                    for key in &wanted {
                        if self.chosen(key.0).is_none() {
                            self.ask(at, *key, gateway, router.client);
                        }
                    }
                }
                usable.err()
            }
            Err(why) => Some(why),
        };
        if let Some(why) = refused {
            for key in wanted {
                if !self.lines.contains_key(&key) {
                    self.refuse(key, why.clone());
                }
            }
        }
    }

    fn take_back_leftovers(&mut self, ours: impl Fn(&Entry) -> bool) {
        let (go, stay): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut self.leftovers).into_iter().partition(ours);
        self.leftovers = stay;
        for entry in go {
            self.remove(entry, true);
        }
    }

    fn ask(&mut self, at: At, key: Key, gateway: Ipv4Addr, client: Ipv4Addr) {
        let (protocol, method) = key;
        let Some(internal) = self.wanted.get(&protocol).copied() else { return };
        if self.distrusted.contains(&key) || self.lines.contains_key(&key) {
            return;
        }
        // A removal that is under way could take the new mapping with it.
        let same = |entry: &Entry| (entry.protocol, entry.gateway, entry.internal) == (protocol, gateway, internal);
        if self.removing.values().any(same) {
            self.blocked = true;
            return;
        }
        // A mapping that a dead process left for the same port is taken over: a PCP server knows its owner by the nonce.
        let mut left = None;
        self.leftovers.retain(|entry| {
            let same = (entry.method, entry.protocol, entry.gateway, entry.client, entry.internal)
                == (method, protocol, gateway, client, internal)
                && (method != Method::Upnp || entry.external == internal);
            if same {
                left = Some(*entry);
            }
            !same
        });
        let nonce = match (method, left) {
            (Method::Pcp, Some(left)) => left.nonce,
            (Method::Pcp, None) => [self.dice.u32(), self.dice.u32(), self.dice.u32()],
            (Method::Upnp | Method::NatPmp, _) => [0; 3],
        };
        let external = left.map_or(internal, |left| left.external);
        let until = until(at, self.lease);
        let entry = Entry { method, protocol, gateway, client, internal, external, nonce, until };
        self.next_id += 1;
        let line = Line { id: self.next_id, entry, lease: self.lease, state: State::Asking { tries: 0 } };
        self.actions.push_back(Action::Ask { id: line.id, entry, lease: line.lease });
        self.lines.insert(key, line);
    }

    /// The answer to the question that a line waits for.
    fn asked(&mut self, at: At, key: Key, result: Result<Granted, Failure>) {
        let Some(line) = self.lines.remove(&key) else { return };
        if self.stopping {
            // Unanswered may be granted all the same.
            let stands = matches!(&result, Ok(_) | Err(Failure::Told(Why::NoAnswer | Why::Broken(_))))
                || matches!(line.state, State::Held { .. });
            if stands {
                let external = result.map_or(line.entry.external, |granted| granted.external.port());
                self.remove(Entry { external, ..line.entry }, false);
            }
            return;
        }
        match line.state {
            State::Asking { tries } => self.first_answer(at, key, line, tries, result),
            State::Held { external, chosen, lapses, misses, .. } => {
                let known = (external, chosen, lapses, misses);
                self.renewal(at, key, line, known, result);
            }
        }
    }

    fn first_answer(&mut self, at: At, key: Key, mut line: Line, tries: u8, result: Result<Granted, Failure>) {
        match result {
            Ok(granted) => {
                line.entry.external = granted.external.port();
                if self.useless(key, granted) {
                    return self.remove(line.entry, false);
                }
                match self.chosen(key.0) {
                    Some(chosen) if chosen.port() != granted.external.port() => {
                        self.shaken.insert(key.0);
                        self.remove(line.entry, false);
                    }
                    Some(_) => self.hold(at, key, line, granted, false),
                    None => {
                        self.tell_mapped(key, granted);
                        self.hold(at, key, line, granted, true);
                    }
                }
            }
            Err(Failure::PortTaken) if tries < OTHER_PORTS => {
                line.entry.external = 20_000 + u16::try_from(self.dice.below(40_000)).unwrap_or_default();
                self.ask_again(key, line, tries + 1);
            }
            Err(Failure::PermanentOnly) if self.remembers && line.lease != 0 => {
                line.lease = 0;
                line.entry.until = 0;
                self.ask_again(key, line, tries);
            }
            Err(failure) => {
                let why = match failure {
                    Failure::Told(why) => why,
                    Failure::PortTaken => Why::PortTaken(line.entry.internal),
                    Failure::PermanentOnly => Why::PermanentOnly,
                    Failure::Unneeded => return,
                };
                if let Why::PrivateWan(address) = why {
                    self.tell_wan(key.1, address);
                }
                // A router that was found and then fell silent may have mapped all the same.
                if key.1 == Method::Upnp && matches!(why, Why::NoAnswer | Why::Broken(_)) {
                    self.leave(line.entry);
                }
                self.refuse(key, why);
            }
        }
    }

    fn ask_again(&mut self, key: Key, mut line: Line, tries: u8) {
        self.next_id += 1;
        line.id = self.next_id;
        line.state = State::Asking { tries };
        self.actions.push_back(Action::Ask { id: line.id, entry: line.entry, lease: line.lease });
        self.lines.insert(key, line);
    }

    fn renewal(
        &mut self,
        at: At,
        key: Key,
        mut line: Line,
        (external, chosen, lapses, misses): (SocketAddrV4, bool, Option<Instant>, u8),
        result: Result<Granted, Failure>,
    ) {
        match result {
            Ok(granted) if !self.useless(key, granted) => {
                line.entry.external = granted.external.port();
                if granted.external != external {
                    self.tell_mapped(key, granted);
                }
                self.hold(at, key, line, granted, chosen);
            }
            Err(Failure::Told(Why::NoAnswer | Why::Broken(_)))
                if lapses.map_or(misses + 1 < MISSES, |lapses| lapses > at.now) =>
            {
                let rest = lapses.map_or(RENEW_MOST, |lapses| lapses.saturating_duration_since(at.now));
                let renew = at.now + (rest / 4).max(RETRY_LEAST);
                let misses = misses.saturating_add(1);
                line.state = State::Held { external, chosen, renew, lapses, misses, asking: false };
                self.lines.insert(key, line);
            }
            Ok(_) | Err(_) => {
                line.state = State::Held { external, chosen, renew: at.now, lapses, misses, asking: false };
                self.lines.insert(key, line);
                self.drop_protocol(key.0);
                self.round(at);
            }
        }
    }

    fn hold(&mut self, at: At, key: Key, mut line: Line, granted: Granted, chosen: bool) {
        let lease = Duration::from_secs(granted.lease.into());
        let (after, lapses) = match granted.lease {
            0 => (RENEW_MOST, None),
            _ => ((lease / 2).min(RENEW_MOST).max(RETRY_LEAST), Some(at.now + lease)),
        };
        line.entry.until = until(at, granted.lease);
        line.state =
            State::Held { external: granted.external, chosen, renew: at.now + after, lapses, misses: 0, asking: false };
        self.refused.remove(&key);
        self.lines.insert(key, line);
    }

    /// Gives up what is held of a protocol, and tells of the one that was told.
    fn drop_protocol(&mut self, protocol: Protocol) {
        for method in [Method::Upnp, Method::NatPmp, Method::Pcp] {
            let key = (protocol, method);
            if !matches!(self.lines.get(&key), Some(Line { state: State::Held { .. }, .. })) {
                continue;
            }
            let Some(line) = self.lines.remove(&key) else { continue };
            if let State::Held { external, chosen: true, .. } = line.state {
                self.events.push_back(Event::Lost { protocol, by: method, external });
            }
            self.remove(line.entry, false);
        }
    }

    /// Whether a mapping leads nowhere; says so.
    fn useless(&mut self, key: Key, granted: Granted) -> bool {
        self.tell_wan(key.1, *granted.external.ip());
        match outside(*granted.external.ip()) {
            Ok(_) => false,
            Err(why) => {
                self.refuse(key, why);
                true
            }
        }
    }

    fn remove(&mut self, entry: Entry, verify: bool) {
        self.next_id += 1;
        self.removing.insert(self.next_id, entry);
        let patient = entry.method == Method::Upnp || self.heard;
        self.actions.push_back(Action::Remove { id: self.next_id, entry, verify, patient });
    }

    /// Remembers what could not be taken back.
    fn leave(&mut self, entry: Entry) {
        let same = |left: &Entry| (Entry { until: 0, ..*left }) == Entry { until: 0, ..entry };
        self.leftovers.retain(|left| !same(left));
        if self.leftovers.len() >= MOST / 2 {
            self.leftovers.remove(0);
        }
        self.leftovers.push(entry);
    }

    fn refuse(&mut self, key: Key, why: Why) {
        if self.distrusted.contains(&key) && why != Why::Disproved {
            return;
        }
        if self.refused.get(&key) != Some(&why) {
            self.refused.insert(key, why.clone());
            self.events.push_back(Event::Refused { protocol: key.0, by: key.1, why });
        }
    }

    fn tell_mapped(&mut self, (protocol, by): Key, granted: Granted) {
        let lease = (granted.lease != 0).then(|| Duration::from_secs(granted.lease.into()));
        self.events.push_back(Event::Mapped { protocol, by, external: granted.external, lease });
    }

    fn tell_wan(&mut self, by: Method, address: Ipv4Addr) {
        if !address.is_unspecified() && self.wan.insert(by, address) != Some(address) {
            self.events.push_back(Event::Wan { by, address });
        }
    }

    /// After every input: is the round over, and is there to be another?
    fn tidy(&mut self, at: At) {
        let mapped = |plan: &Self| plan.wanted.keys().all(|protocol| plan.chosen(*protocol).is_some());
        let open = self.searching
            || self.blocked
            || self
                .lines
                .values()
                .any(|line| matches!(line.state, State::Asking { .. }) && self.chosen(line.entry.protocol).is_none());
        let mapped = mapped(self);
        if self.stopping || (open && !mapped) {
            return;
        }
        if !self.done {
            self.done = true;
            self.events.push_back(Event::Done);
        }
        if !mapped && self.again.is_none() {
            self.again = Some(at.now + if self.rounds <= 1 { AGAIN_SOON } else { AGAIN });
        }
    }
}

/// When an entry is gone by itself: a minute is added for clocks that are set.
fn until(at: At, lease: u32) -> u64 {
    if lease == 0 { 0 } else { at.wall.saturating_add(u64::from(lease) + 60) }
}
