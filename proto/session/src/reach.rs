//! Reaching each other with a master's help: knocks, relays, and the change from one path to another.
//!
//! ```text
//! joiner  dials the code's addresses; meanwhile knocks at the master, dials the relay it was granted and whatever address
//!         the host is seen to punch from. The first path that opens is used; one that opens later is tried beside it.
//! host    holds a poll open; each knock makes it punch toward the joiner and bind its side of the relay.
//! ```
//!
//! A path is tried with `aw_way`, sealed: the host knows the sender by its salt, has the new address echo a token, and
//! says `aw_way` back on it (docs/wire/extensions.md). Which path is used is the business of [`crate::ways`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use joincode::{Code, Profile};
use np1::Role as End;
use punch::DialId;
use rendezvous::words::{Grants, Tag};
use rendezvous::{Client, client};
use seal::{OVERHEAD, Opener, Sealer, SessionKey};
use seam::{Path, Reply, RequestId};

use crate::egress::Body;
use crate::guess::Guess;
use crate::obstacle::Master;
use crate::relay::{Heard, Relays};
use crate::rooms::lobby_path;
use crate::session::{Role, Session};
use crate::tunnel::Tunnel;
use crate::ways::{Act, Class, Ways};
use crate::{Event, LOBBY, Via};

/// The message that tries a path.
const WAY: &[u8] = br#"{"t":"aw_way"}"#;
/// The first knock waits for the own public address, but no longer than this.
const KNOCK_AFTER: Duration = Duration::from_millis(200);
/// When an old program first knocks (netpunch wire, section 11.2).
const OLD_KNOCK_AFTER: Duration = Duration::from_secs(4);
/// A joiner on a relay goes on knocking for this long, so that the host goes on punching.
pub(crate) const KNOCK_ON_FOR: Duration = Duration::from_secs(6);
/// How long a lost host is knocked for.
const KNOCK_AGAIN_FOR: Duration = Duration::from_secs(30);
/// A path is tried for this long, with a message this often.
const TRY_FOR: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(150);
/// Paths tried at once, and addresses a host was merely seen at that are dialled.
const TRIES_MAX: usize = 4;
const SEEN_MAX: u8 = 8;
/// Frames of this long are repeated when a relay knows an end by another address, and so often at most.
const REPEAT_FOR: Duration = Duration::from_millis(500);
const REPEAT_GAP: Duration = Duration::from_millis(250);
/// What may have been lost before a path was noticed to be dead: what was under way both ways at most.
const UNDER_WAY: Duration = Duration::from_millis(150);

#[derive(Debug)]
struct Try {
    until: Instant,
    next: Instant,
}

/// What a session with a master knows besides.
#[derive(Debug)]
pub(crate) struct Reach {
    client: Client,
    tag: Option<Tag>,
    sealer: Sealer,
    opener: Opener,
    pub(crate) relays: Relays,
    pub(crate) ways: Ways,
    pub(crate) tunnel: Tunnel,
    pub(crate) guess: Guess,
    requests: BTreeMap<RequestId, RequestId>,
    knock_at: Option<Instant>,
    knock_until: Option<Instant>,
    /// The dial of the host's own addresses, once another path was first.
    direct: Option<DialId>,
    relay: Option<DialId>,
    tries: BTreeMap<Path, Try>,
    seen: Vec<SocketAddr>,
    /// When frames were repeated last because a relay knew an end by another address.
    repeated: Option<Instant>,
    /// The master took a knock.
    knocked: bool,
    trouble: Option<String>,
    /// The way that was told last.
    told: Option<Via>,
    /// The host was seen punching, or bound its end of a relay.
    host_came: bool,
}

impl Reach {
    /// Whether the host's own addresses are dialled beside the path in use.
    pub(crate) fn is_looking(&self) -> bool {
        self.direct.is_some()
    }

    /// They are from now on, and the host is knocked for.
    pub(crate) fn look_for(&mut self, now: Instant, dial: Option<DialId>) {
        self.direct = dial.or(self.direct);
        (self.knock_at, self.knock_until) = (Some(now + KNOCK_AFTER), Some(now + KNOCK_ON_FOR));
    }

    /// The way that was told last.
    pub(crate) fn told(&self) -> Option<Via> {
        self.told
    }
}

impl Session {
    /// Begins to use the master, where there is one.
    pub(crate) fn begin_reach(&mut self, key: &SessionKey, secret: &[u8; 12]) {
        let now = self.now;
        let (url, old) = match &self.role {
            Role::Host(side) => (side.config.rendezvous.clone(), false),
            Role::Joiner(side) => (side.config.rendezvous.clone(), !side.config.extensions),
        };
        let Some(url) = url.filter(|url| !url.trim().is_empty() && url != "off") else { return };
        let key = key.rendezvous();
        let tag = Tag::new(&seal::knock_tag(secret));
        let mut client = Client::new(&url, self.dice.bytes(), now);
        let is_host = matches!(self.role, Role::Host(_));
        if let (true, Some(tag)) = (is_host, &tag) {
            client.listen(now, tag.clone());
        }
        let pause = match (old, self.observing.is_done()) {
            (true, _) => OLD_KNOCK_AFTER,
            (false, true) => Duration::ZERO,
            (false, false) => KNOCK_AFTER,
        };
        self.egress.remember();
        self.reach = Some(Box::new(Reach {
            client,
            tag,
            sealer: Sealer::new(&key, self.dice.child()),
            opener: Opener::new(&key),
            relays: Relays::default(),
            ways: Ways::default(),
            tunnel: Tunnel::new(&url, now),
            guess: Guess::default(),
            requests: BTreeMap::new(),
            knock_at: (!is_host).then(|| now + pause),
            knock_until: None,
            direct: None,
            relay: None,
            tries: BTreeMap::new(),
            seen: Vec::new(),
            repeated: None,
            knocked: false,
            trouble: None,
            told: None,
            host_came: false,
        }));
        self.reach_timeout();
    }

    // ---- time and requests --------------------------------------------------------------------------------------

    pub(crate) fn reach_timeout(&mut self) {
        let now = self.now;
        let Some(reach) = &mut self.reach else { return };
        if reach.knock_at.is_some_and(|at| at <= now) {
            reach.knock_at = None;
            if let Some(tag) = reach.tag.clone() {
                reach.client.knock(now, tag);
            }
        }
        if reach.knock_until.is_some_and(|until| until <= now) {
            reach.knock_until = None;
            reach.client.stop_knocking();
        }
        reach.client.handle_timeout(now);
        reach.relays.handle_timeout(now);
        reach.ways.handle_timeout(now);
        reach.tries.retain(|_, attempt| attempt.until > now);
        let mut due = Vec::new();
        for (path, attempt) in reach.tries.iter_mut().filter(|(_, attempt)| attempt.next <= now) {
            attempt.next = now + TRY_EVERY;
            due.push(*path);
        }
        for path in due {
            self.egress.payload(vec![path], Body::Message(WAY.to_vec()));
        }
        self.step_tunnel();
        self.guess_timeout();
    }

    pub(crate) fn reach_deadline(&self) -> Option<(Instant, &'static str)> {
        let reach = self.reach.as_ref()?;
        let tries = reach.tries.values().map(|attempt| (attempt.next.min(attempt.until), "a path on trial")).min();
        [
            reach.client.poll_timeout(),
            reach.relays.poll_timeout(),
            reach.ways.poll_timeout(),
            reach.guess.poll_timeout(),
            tries,
            self.tunnel_deadline(),
            reach.knock_at.map(|at| (at, "the first knock")),
            reach.knock_until.map(|at| (at, "the last knock")),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The own public address is known, or it is known that it is not.
    pub(crate) fn reach_observed(&mut self) {
        let now = self.now;
        if let (Some(reach), Role::Joiner(side)) = (&mut self.reach, &self.role)
            && side.config.extensions
            && reach.knock_at.is_some()
        {
            reach.knock_at = Some(now);
            self.reach_timeout();
        }
    }

    /// Whether the reply was the master's client's.
    pub(crate) fn reach_reply(&mut self, id: RequestId, reply: Reply) -> Option<Reply> {
        let now = self.now;
        let reply = self.tunnel_reply(id, reply)?;
        let reply = self.guess_reply(id, reply)?;
        let Some(reach) = &mut self.reach else { return Some(reply) };
        let Some(own) = reach.requests.remove(&id) else { return Some(reply) };
        reach.client.handle_reply(now, own, reply);
        None
    }

    /// Passes on what the parts of this have to say; whether there was anything.
    pub(crate) fn pump_reach(&mut self) -> bool {
        let mut moved = false;
        while let Some(event) = self.reach.as_mut().and_then(|reach| reach.client.poll_event()) {
            moved = true;
            self.on_master(event);
        }
        moved |= self.pump_ways();
        self.flush_asks();
        while let Some((own, request)) = self.reach.as_mut().and_then(|reach| reach.client.poll_request()) {
            let id = self.request(request);
            if let Some(reach) = &mut self.reach {
                reach.requests.insert(id, own);
            }
        }
        moved
    }

    fn flush_asks(&mut self) {
        while let Some((to, bytes)) = self.reach.as_mut().and_then(|reach| reach.relays.poll()) {
            self.egress.packet(to, bytes);
        }
    }

    // ---- the master ---------------------------------------------------------------------------------------------

    fn on_master(&mut self, event: client::Event) {
        match event {
            client::Event::SealKnock => self.seal_knock(),
            client::Event::Knocked(grants) => {
                if let Some(reach) = &mut self.reach
                    && !std::mem::replace(&mut reach.knocked, true)
                {
                    self.log("[rendezvous] knocked at the master".to_owned());
                }
                if let Role::Joiner(side) = &self.role
                    && let Some(host) = side.profile().cloned()
                {
                    self.count_up(&host);
                }
                self.granted(&grants, End::Joiner);
            }
            client::Event::NotKnocked(why) => {
                if let Some(reach) = &mut self.reach
                    && reach.trouble.replace(why.clone()).is_none()
                {
                    self.log(format!("[rendezvous] the knock was not taken: {why}"));
                }
            }
            client::Event::Note { blob, grants } => self.noted(blob, &grants),
            client::Event::NotListening(why) => self.log(format!("[rendezvous] no knocks can be heard: {why}")),
            _ => {}
        }
    }

    fn seal_knock(&mut self) {
        let (now, code) = (self.now, self.profile().encode());
        let Some(reach) = &mut self.reach else { return };
        let mut blob = vec![0; code.len() + OVERHEAD];
        let used = reach.sealer.seal(&[code.as_bytes()], &mut blob);
        blob.truncate(used);
        reach.client.sealed(now, &blob);
    }

    /// A joiner knocked: its hellos are let in, and it is met at the relay.
    fn noted(&mut self, mut blob: Vec<u8>, grants: &Grants) {
        let now = self.now;
        let has_v6 = self.local.v6.is_some();
        let Some(reach) = &mut self.reach else { return };
        // The tag says which lobby is knocked at, the seal that somebody has its code.
        let Ok(opened) = reach.opener.open(now, &mut blob) else { return };
        let code = std::str::from_utf8(opened.plain).ok().and_then(|text| joincode::parse(text).ok());
        let Some(Code::Plain(profile)) = code else { return };
        let targets = knock_targets(&profile, has_v6);
        let list: Vec<String> = targets.iter().map(ToString::to_string).collect();
        self.log(format!("[rendezvous] a joiner knocked: punching toward {}", list.join(" and ")));
        let strangers: Vec<SocketAddr> =
            targets.into_iter().filter(|target| !self.is_known(lobby_path(*target))).collect();
        if !strangers.is_empty() {
            self.count_up(&profile);
        }
        self.punch.punch_toward(now, strangers);
        self.granted(grants, End::Host);
    }

    /// The other router changes its ports and the own one does not: perhaps it only counts them up.
    fn count_up(&mut self, other: &Profile) {
        let wanted = match &self.role {
            Role::Host(side) => side.config.guess,
            Role::Joiner(side) => side.config.guess && side.dialling().is_some(),
        };
        let mine = self.observing.observation().is_some_and(|own| own.symmetric);
        if let (true, true, false, Some(public)) = (wanted, other.flags.symmetric, mine, other.public) {
            self.punch.guess(self.now, public.into());
        }
    }

    fn granted(&mut self, grants: &Grants, role: End) {
        let now = self.now;
        for (grant, shared) in [(grants.shared, true), (grants.relay, false)] {
            let Some(grant) = grant else { continue };
            let Some(reach) = &mut self.reach else { return };
            let other_end = reach.relays.granted(now, grant, shared, role);
            if let (false, Some(other_end), End::Joiner) = (shared, other_end, role) {
                self.dial_relay(other_end);
            }
        }
        self.step_tunnel();
    }

    /// Dials the host through a relay, beside its own addresses.
    fn dial_relay(&mut self, other_end: SocketAddr) {
        let now = self.now;
        let Role::Joiner(side) = &self.role else { return };
        if side.host == Some(lobby_path(other_end)) {
            return;
        }
        let timeout = side.config.timeout;
        match self.reach.as_ref().and_then(|reach| reach.relay) {
            Some(id) => {
                self.punch.add_candidate(now, id, other_end);
            }
            None => {
                let id = self.dial_id();
                if let Some(reach) = &mut self.reach {
                    reach.relay = Some(id);
                }
                self.punch.dial(now, id, vec![other_end], timeout);
            }
        }
    }

    // ---- datagrams ----------------------------------------------------------------------------------------------

    /// A datagram that may be a relay's. `None` when it was one for the binding alone; else where it really comes from
    /// and how many bytes stand before it.
    pub(crate) fn through_relay(&mut self, path: Path, data: &[u8]) -> Option<(Path, usize)> {
        let now = self.now;
        let Some(reach) = &mut self.reach else { return Some((path, 0)) };
        match reach.relays.handle(now, path, data) {
            Heard::Not => Some((path, 0)),
            Heard::Taken => None,
            Heard::Proving { other_end } => {
                // Behind the proof, which the relay reads first, this is no stranger's any more: what was sent from the
                // new address until now goes out again without waiting for the relay's yes.
                self.flush_asks();
                let other_end = lobby_path(other_end);
                self.egress.payload(vec![other_end], Body::Message(WAY.to_vec()));
                if let Some(since) = now.checked_sub(REPEAT_FOR) {
                    self.egress.again(since, other_end, other_end);
                }
                None
            }
            Heard::Data { skip, from } => Some((lobby_path(from), skip)),
            Heard::Bound { other_end, other, again, returned } => {
                if let Some(session) = rendezvous::shared::session_of(other_end)
                    && let Some(at) = reach.relays.shared_at(session)
                {
                    self.egress.relay(session, at);
                }
                if other.is_bound() {
                    reach.client.both_bound();
                    reach.host_came = true;
                }
                let other_end = lobby_path(other_end);
                let known = reach.ways.primary_of(other_end).is_some() || self.is_known(other_end);
                if matches!(self.role, Role::Joiner(_)) && !known {
                    self.dial_relay(other_end.remote);
                } else if again && known {
                    // What we sent from the new address until now was a stranger's, and what came to the old one is
                    // lost: both ends repeat it.
                    self.egress.payload(vec![other_end], Body::Message(WAY.to_vec()));
                    self.repeat(other_end);
                }
                self.tell_change();
                if returned {
                    self.observe_now();
                    self.look_for_direct();
                }
                None
            }
        }
    }

    /// Somebody says hello from an address nobody dials. While a host is looked for, that is most likely the host: its
    /// router gives out another address per destination.
    pub(crate) fn seen(&mut self, path: Path) {
        let now = self.now;
        let Role::Joiner(side) = &self.role else { return };
        if path.socket != LOBBY {
            return;
        }
        let Some(dial) = side.dialling().or_else(|| self.reach.as_ref().and_then(|reach| reach.direct)) else { return };
        let Some(reach) = &mut self.reach else { return };
        if reach.relays.is_relay(path.remote) || reach.seen.contains(&path.remote) || side.host == Some(path) {
            return;
        }
        if reach.seen.len() >= usize::from(SEEN_MAX) {
            return;
        }
        if self.punch.add_candidate(now, dial, path.remote) {
            reach.seen.push(path.remote);
            reach.host_came = true;
            self.log(format!("[join] dialling {}, where the host was seen", path.remote));
        }
    }

    /// Only the player at `path` can have sent what came from there.
    pub(crate) fn way_heard(&mut self, path: Path, authentic: bool) {
        let now = self.now;
        if let Some(reach) = &mut self.reach {
            reach.ways.heard(now, path, authentic);
            self.pump_ways();
        }
    }

    /// Rooms follow a change of path before anything else is said of it.
    fn pump_ways(&mut self) -> bool {
        let mut moved = false;
        while let Some(act) = self.reach.as_mut().and_then(|reach| reach.ways.poll()) {
            moved = true;
            self.on_way(act);
        }
        moved
    }

    /// The player that `path` belongs to beside its primary.
    pub(crate) fn beside(&self, path: Path) -> Option<Path> {
        self.reach.as_ref().and_then(|reach| reach.ways.primary_of(path))
    }

    /// The host speaks on a path on trial: it is one more path to it.
    pub(crate) fn on_trial(&mut self, path: Path, owner: Path) -> bool {
        let Role::Joiner(side) = &self.role else { return false };
        if side.host != Some(owner) {
            return false;
        }
        let Some(reach) = &mut self.reach else { return false };
        reach.tries.remove(&path).is_some() && self.add_way(owner, path)
    }

    /// The newest frames of a path go out once more, at most every [`REPEAT_GAP`].
    fn repeat(&mut self, path: Path) {
        let now = self.now;
        let Some(reach) = &mut self.reach else { return };
        if reach.repeated.is_some_and(|at| now.saturating_duration_since(at) < REPEAT_GAP) {
            return;
        }
        reach.repeated = Some(now);
        if let Some(since) = now.checked_sub(REPEAT_FOR) {
            self.egress.again(since, path, path);
        }
    }

    /// `aw_way` came: a host says it back where it came from, so that the joiner knows the path in both directions. From
    /// a relay that both know, it says that the sender's address there has changed.
    pub(crate) fn answer_way(&mut self, path: Path, primary: Path) {
        if self.is_relayed(path) {
            self.repeat(path);
        }
        if matches!(self.role, Role::Host(_)) && (path == primary || self.beside(path) == Some(primary)) {
            self.egress.payload(vec![path], Body::Message(WAY.to_vec()));
        }
    }

    /// Whether a message is [`WAY`].
    pub(crate) fn is_way(data: &[u8]) -> bool {
        data == WAY
    }

    // ---- paths --------------------------------------------------------------------------------------------------

    fn class(&self, path: Path) -> Class {
        match &self.reach {
            Some(reach) if reach.relays.is_relay(path.remote) => Class::Relay,
            Some(_) | None => Class::Direct,
        }
    }

    /// Whether a player is reached through a relay.
    pub(crate) fn is_relayed(&self, path: Path) -> bool {
        self.class(path) == Class::Relay
    }

    /// A player, or the host, is at `path`.
    pub(crate) fn begin_way(&mut self, path: Path) {
        let (now, class) = (self.now, self.class(path));
        self.punch.met(path.remote);
        if let Some(reach) = &mut self.reach {
            reach.ways.begin(now, path, class);
            reach.relays.set_in_use(now, path.remote, true);
        }
    }

    /// It is gone.
    pub(crate) fn end_way(&mut self, path: Path) {
        let Some(reach) = &mut self.reach else { return };
        let others = reach.ways.end(path);
        for path in others.into_iter().chain([path]) {
            self.drop_way(path);
        }
    }

    fn drop_way(&mut self, path: Path) {
        let now = self.now;
        self.release(path);
        self.guess_dropped(path);
        if let Some(reach) = &mut self.reach {
            reach.relays.set_in_use(now, path.remote, false);
        }
        if let Some(session) = rendezvous::shared::session_of(path.remote) {
            self.egress.unrelay(session);
        }
    }

    /// Rooms know the player at `old` by `new` now, and `old` is dead.
    pub(crate) fn rekey_way(&mut self, old: Path, new: Path) {
        let (now, class) = (self.now, self.class(new));
        let Some(reach) = &mut self.reach else { return };
        reach.ways.rekey(now, old, new, class);
        reach.relays.set_in_use(now, old.remote, false);
        reach.relays.set_in_use(now, new.remote, true);
        self.egress.redirect(old, new);
        if let Some(since) = now.checked_sub(Duration::from_secs(1)) {
            self.egress.again(since, old, new);
        }
        if old.socket != new.socket {
            self.guess_dropped(old);
        }
    }

    /// A player proved itself at another path. True when that is one more path; false when it is the same kind of path
    /// as before, whose address changed.
    pub(crate) fn way_proved(&mut self, old: Path, new: Path) -> bool {
        if self.reach.is_none() || self.class(old) == self.class(new) || !self.is_known(old) {
            return false;
        }
        let added = self.add_way(old, new);
        if added && matches!(self.role, Role::Host(_)) {
            self.egress.payload(vec![new], Body::Message(WAY.to_vec()));
        }
        added
    }

    fn add_way(&mut self, primary: Path, path: Path) -> bool {
        let (now, class) = (self.now, self.class(path));
        let Some(reach) = &mut self.reach else { return false };
        if !reach.ways.add(now, primary, path, class) {
            return false;
        }
        reach.relays.set_in_use(now, path.remote, true);
        let is_joiner = matches!(self.role, Role::Joiner(_));
        self.punch.met(path.remote);
        self.hold(path, is_joiner);
        self.guess_proved(primary, path);
        self.pump_ways();
        true
    }

    fn on_way(&mut self, act: Act) {
        let now = self.now;
        match act {
            Act::Switch { from, to, since } => self.switched(from, to, since),
            Act::Suspect { primary, heard } => {
                if let Some(reach) = &mut self.reach {
                    reach.relays.ask_now(now);
                }
                // The last thing heard was sent half a round trip before, and what was sent back since then may be lost.
                let trip = self.punch.stats(primary).and_then(|stats| stats.rtt).unwrap_or(UNDER_WAY);
                let since = heard.checked_sub(trip.min(UNDER_WAY)).unwrap_or(heard);
                self.copy_to_others(primary, since);
            }
            Act::Doubt { primary, since } => {
                if let Some(reach) = &mut self.reach {
                    reach.relays.ask_now(now);
                }
                let since = since.checked_sub(UNDER_WAY).unwrap_or(since);
                // If the other end moved, the relay has learned where to only since the first copies.
                let all = self.reach.as_ref().map(|reach| reach.ways.all_of(primary)).unwrap_or_default();
                for path in all {
                    if self.is_relayed(path) {
                        self.egress.again(since, path, path);
                    }
                }
                self.copy_to_others(primary, since);
            }
            Act::Recovered { primary, since } => {
                let since = since.checked_sub(UNDER_WAY).unwrap_or(since);
                self.egress.again(since, primary, primary);
            }
            Act::Revived { primary, path, since } => {
                let since = since.checked_sub(UNDER_WAY).unwrap_or(since);
                self.egress.again(since, path, path);
                self.egress.again(since, primary, path);
            }
            Act::Probe(path) => {
                if let Some(reach) = &mut self.reach {
                    reach.relays.ask_now(now);
                }
                self.punch.probe(now, path);
            }
            Act::Drop(path) => self.drop_way(path),
        }
    }

    /// What the primary was sent since then goes on the player's other paths as well.
    fn copy_to_others(&mut self, primary: Path, since: Instant) {
        let mut to = vec![primary];
        if let Some(reach) = &self.reach {
            reach.ways.spread(self.now, &mut to);
        }
        for other in to.into_iter().filter(|path| *path != primary) {
            self.egress.again(since, primary, other);
        }
    }

    /// Another path of a player is its primary from now on: rooms follow, and both paths stay held.
    fn switched(&mut self, from: Path, to: Path, since: Instant) {
        let now = self.now;
        let moved = match &mut self.role {
            Role::Host(side) => side.lobby.rekey(now, from, to),
            Role::Joiner(side) => side.rekey(now, from, to),
        };
        if !moved {
            return self.end_way(to);
        }
        self.mesh.rekey(now, from, to);
        self.salts.rekey(from, to);
        self.egress.redirect(from, to);
        let since = since.checked_sub(UNDER_WAY).unwrap_or(since);
        self.egress.again(since, from, to);
        let kind = match (self.is_relayed(to), self.is_stream(to)) {
            (true, true) => "TCP through the master",
            (true, false) => "a relay",
            (false, _) => "a direct path",
        };
        self.log(format!("[net] {} is reached by {kind} now", to.remote));
        self.won(to);
    }

    /// Says which way the host is reached.
    pub(crate) fn won(&mut self, path: Path) {
        let Some(via) = self.via(path) else { return };
        let after = self.now.saturating_duration_since(self.dialled_at);
        let family = if path.remote.is_ipv6() && !matches!(via, Via::Relay | Via::Tcp) { "v6" } else { "v4" };
        if let Some(reach) = &mut self.reach {
            reach.told = Some(via);
        }
        self.log(format!("[race] WON on {family} via {via} after {} ms", after.as_millis()));
        self.push(Event::Won { via, after });
        self.guess_won(path);
    }

    // ---- the joiner's dials -------------------------------------------------------------------------------------

    /// Whether a dial is one of the host's through a relay, and should end the search.
    pub(crate) fn is_relay_dial(&self, id: DialId) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.relay == Some(id))
    }

    /// The first path to the host is open; dials of others go on, and so do knocks if it is a relay.
    pub(crate) fn way_won(&mut self, dial: DialId, opened: DialId, path: Path) {
        let now = self.now;
        let relayed = self.is_relayed(path);
        let Some(reach) = &mut self.reach else { return };
        if opened == dial {
            reach.client.stop_knocking();
            reach.knock_at = None;
        } else {
            reach.relay = None;
            reach.direct = Some(dial);
            if relayed {
                reach.knock_until = Some(now + KNOCK_ON_FOR);
            }
        }
    }

    /// A path opened while another is in use. Old hosts do not know a player by two: they never answer the trial.
    pub(crate) fn another_way(&mut self, id: DialId, path: Path) {
        let Some(reach) = &mut self.reach else { return };
        if reach.direct == Some(id) {
            reach.direct = None;
            reach.knock_until = None;
            reach.client.stop_knocking();
        } else if reach.relay == Some(id) {
            reach.relay = None;
        } else {
            return;
        }
        self.try_way(path);
    }

    /// Tries a path to the host beside the one in use.
    pub(crate) fn try_way(&mut self, path: Path) {
        let now = self.now;
        let Role::Joiner(side) = &self.role else { return };
        let host = side.host;
        let Some(reach) = &mut self.reach else { return };
        if host.is_none() || host == Some(path) || reach.ways.primary_of(path).is_some() {
            return;
        }
        if reach.tries.len() < TRIES_MAX {
            reach.tries.insert(path, Try { until: now + TRY_FOR, next: now });
            // A relay forgets who is silent, and a router as well.
            reach.relays.set_in_use(now, path.remote, true);
        }
        self.reach_timeout();
    }

    /// A dial of the host is over without an answer.
    pub(crate) fn way_failed(&mut self, id: DialId) {
        if let Some(reach) = &mut self.reach {
            for dial in [&mut reach.direct, &mut reach.relay] {
                if *dial == Some(id) {
                    *dial = None;
                }
            }
        }
    }

    /// The host is lost: it is knocked for again, and dialled through the relay.
    pub(crate) fn reach_again(&mut self) {
        let now = self.now;
        let Some(reach) = &mut self.reach else { return };
        reach.relays.ask_now(now);
        reach.seen.clear();
        if reach.knock_until.is_none() {
            reach.knock_at = Some(now);
            reach.knock_until = Some(now + KNOCK_AGAIN_FOR);
        }
        self.reach_timeout();
    }

    /// What came of asking the master.
    pub(crate) fn master(&self) -> Option<Master<'_>> {
        self.reach.as_ref().map(|reach| Master {
            knocked: reach.knocked,
            trouble: reach.trouble.as_deref(),
            host_came: reach.host_came,
            tunnel: reach.tunnel.fate(),
        })
    }

    /// The kind of a path to the host.
    pub(crate) fn via(&self, path: Path) -> Option<Via> {
        let Role::Joiner(side) = &self.role else { return None };
        if self.is_relayed(path) {
            return Some(if self.is_stream(path) { Via::Tcp } else { Via::Relay });
        }
        let met = self.reach.as_ref().is_some_and(|reach| reach.guess.is_met(path));
        side.profile().map(|host| match Via::of(host, path.remote) {
            Via::Seen | Via::Public if met => Via::Guessed,
            via => via,
        })
    }
}

/// Where a host punches: public, then LAN (netpunch wire, section 11.3), and between our own ends IPv6.
fn knock_targets(profile: &Profile, has_v6: bool) -> Vec<SocketAddr> {
    let v4 = [profile.public, profile.lan].into_iter().flatten().map(SocketAddr::V4);
    let v6 = profile.v6.filter(|_| has_v6).map(SocketAddr::V6);
    v4.chain(v6).filter(|target| target.port() != 0).collect()
}
