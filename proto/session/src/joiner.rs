//! A joiner beside its lobby: the code, the dial, the host's path, dialling again.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use joincode::{Code, LockKey, Profile};
use lobby::{End, State};
use punch::DialId;
use seal::SessionKey;
use seam::{Path, Request, RequestId, Secret};

use crate::JoinConfig;
use crate::obstacle::{Evidence, Obstacle};
use crate::rooms::{candidates, lobby_path};
use crate::session::{Crypt, Role, Session};

/// How long the host's public address waits for the own one: when both are behind one router, it is not dialled, and the
/// view of each other does not flap between a hairpin and the LAN (netpunch wire, section 11.1).
const PUBLIC_AFTER: Duration = Duration::from_millis(150);
/// One attempt to find a lost host again; attempts follow each other until the lobby gives up.
const REDIAL_FOR: Duration = Duration::from_secs(5);
/// A host that answered a hello says something authentic within this time. Who does not is another machine that happens
/// to have the address of a candidate: two homes often have the same private addresses.
const STRANGER_AFTER: Duration = Duration::from_millis(2500);

/// What a joiner knows beside its lobby.
#[derive(Debug)]
pub(crate) struct JoinSide {
    pub(crate) lobby: lobby::Joiner,
    pub(crate) config: JoinConfig,
    pub(crate) phase: Phase,
    /// Where the host is, once one path is open.
    pub(crate) host: Option<Path>,
    /// Open paths to other joiners.
    pub(crate) links: BTreeMap<String, Path>,
    /// Until then the host has to prove itself; `None` once it did.
    pub(crate) proof_by: Option<Instant>,
    /// The own profile is made once: it carries the time, so that another one would look like new addresses to
    /// everybody, who would dial them.
    has_profile: bool,
    /// Candidates where somebody else answers. At most as many as a code has.
    strangers: Vec<SocketAddr>,
}

/// How far a joiner is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The code's lock is being opened.
    Unlocking { request: Option<RequestId> },
    /// Hellos go out to the host.
    Dialling { host: Profile, dial: DialId, public_at: Option<Instant>, deadline: Instant },
    /// A path to the host is open; with a dial while the host is looked for again.
    Up { host: Profile, redial: Option<DialId> },
    /// Nothing is to be done.
    Idle,
}

impl JoinSide {
    pub(crate) fn new(config: JoinConfig, seed: [u8; 32], now: Instant) -> Self {
        let is_locked = matches!(config.code, Code::Locked(_));
        let lobby_config = lobby::JoinConfig {
            version: config.version.clone(),
            name: config.name.clone(),
            mesh: config.mesh,
            profile: None,
            extensions: config.extensions,
            stray_password: !is_locked && has_text(config.password.as_ref()),
        };
        let lobby = lobby::Joiner::new(Arc::new(lobby_config), seed, now);
        Self {
            lobby,
            config,
            phase: Phase::Unlocking { request: None },
            host: None,
            links: BTreeMap::new(),
            proof_by: None,
            has_profile: false,
            strangers: Vec::new(),
        }
    }

    /// The dial of the host's own addresses, while it is the first.
    pub(crate) fn dialling(&self) -> Option<DialId> {
        match &self.phase {
            Phase::Dialling { dial, .. } => Some(*dial),
            Phase::Up { redial, .. } => *redial,
            Phase::Unlocking { .. } | Phase::Idle => None,
        }
    }

    /// What the code says of the host, once it can be read.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        match &self.phase {
            Phase::Dialling { host, .. } | Phase::Up { host, .. } => Some(host),
            Phase::Unlocking { .. } | Phase::Idle => None,
        }
    }

    /// The host, or another joiner, has another address.
    pub(crate) fn rekey(&mut self, now: Instant, old: Path, new: Path) -> bool {
        if self.host == Some(old) {
            self.host = Some(new);
            self.lobby.rekey(now, old, new);
            return true;
        }
        let mut moved = false;
        for path in self.links.values_mut().filter(|path| **path == old) {
            *path = new;
            moved = true;
        }
        moved
    }
}

fn has_text(password: Option<&Secret>) -> bool {
    password.is_some_and(|password| !password.reveal().is_empty())
}

impl Session {
    fn side(&mut self) -> Option<&mut JoinSide> {
        match &mut self.role {
            Role::Joiner(side) => Some(side),
            Role::Host(_) => None,
        }
    }

    /// Reads the code and begins.
    pub(crate) fn begin_join(&mut self) {
        let Some(side) = self.side() else { return };
        let (code, password) = (side.config.code.clone(), side.config.password.clone());
        match code {
            Code::Plain(profile) => self.dial_host(profile),
            Code::Steam(_) => {
                let why = "this is a Steam ID, and this build carries no Steam; ask the host for its classic code";
                self.fail(End::BadCode(why.to_owned()));
            }
            Code::Locked(locked) => match password.filter(|p| has_text(Some(p))) {
                None => self.fail(End::BadCode(joincode::CodeError::NeedsPassword.to_string())),
                Some(password) => {
                    self.status(State::Connecting, "opening the locked code");
                    let request = self.request(Request::Stretch { password, timestamp: locked.timestamp() });
                    if let Some(side) = self.side() {
                        side.phase = Phase::Unlocking { request: Some(request) };
                    }
                }
            },
        }
    }

    pub(crate) fn joiner_stretched(&mut self, id: RequestId, key: &LockKey) {
        let Some(side) = self.side() else { return };
        let Phase::Unlocking { request } = side.phase else { return };
        let Code::Locked(locked) = &side.config.code else { return };
        if request != Some(id) {
            return;
        }
        match locked.open(key) {
            Ok(profile) => self.dial_host(profile),
            Err(error) => self.fail(End::BadCode(error.to_string())),
        }
    }

    fn fail(&mut self, end: End) {
        self.status(State::Failed, end.to_string());
        self.end(end);
    }

    /// Ends with the obstacle between here and the host.
    fn fail_to_reach(&mut self) {
        let mine = self.my_public();
        let obstacle = match &self.role {
            Role::Joiner(side) => side.profile().map(|host| {
                Obstacle::of(&Evidence {
                    host,
                    dialled: self.targets(host, mine).len(),
                    age: host.age(self.unix()),
                    mine: self.observing.observation(),
                    asked_stun: !side.config.stun.is_empty(),
                    heard_anything: self.arrived,
                    master: self.master(),
                })
            }),
            Role::Host(_) => None,
        };
        self.fail(End::Unreachable(obstacle.unwrap_or(Obstacle::NoAddress).to_string()));
    }

    fn dial_host(&mut self, host: Profile) {
        let Some(side) = self.side() else { return };
        let timeout = side.config.timeout;
        let password = side.config.password.clone();
        match &host.secret {
            Some(secret) => {
                let key = SessionKey::derive(secret, password.as_ref().map_or("", Secret::reveal));
                self.set_key(&key);
                self.begin_reach(&key, secret);
            }
            None => self.crypt = Crypt::Plain,
        }
        if host.is_stale(self.unix()) {
            let minutes = host.age(self.unix()) / 60;
            self.log(format!("[join] this code is {minutes} minutes old; the lobby may be closed"));
        }
        let dial = self.dial_id();
        let waits = !self.observing.is_done() && host.public.is_some();
        let first = if waits { Profile { public: None, ..host.clone() } } else { host.clone() };
        let addresses = self.targets(&first, self.my_public());
        self.dialled_at = self.now;
        self.status(State::Connecting, "dialling the host");
        for address in &addresses {
            self.log(format!("[join] dialling {address}"));
        }
        let now = self.now;
        self.punch.dial(now, dial, addresses, timeout);
        let public_at = waits.then(|| now + PUBLIC_AFTER);
        if let Some(side) = self.side() {
            // The dial's own timeout ends it; the deadline covers a host without any address to dial.
            side.phase = Phase::Dialling { host, dial, public_at, deadline: now + timeout };
        }
    }

    fn my_public(&self) -> Option<SocketAddrV4> {
        self.observing.observation().and_then(|o| o.public.first().copied())
    }

    pub(crate) fn joiner_observed(&mut self) {
        let Some(side) = self.side() else { return };
        if std::mem::replace(&mut side.has_profile, true) {
            return;
        }
        let profile = self.profile().encode();
        let now = self.now;
        if let Some(side) = self.side() {
            side.lobby.set_profile(now, Some(profile));
        }
        self.add_public();
    }

    /// Adds the host's public address to the dial, unless both ends are behind the same one.
    fn add_public(&mut self) {
        let (now, mine) = (self.now, self.my_public());
        let Some(side) = self.side() else { return };
        let Phase::Dialling { host, dial, public_at, .. } = &mut side.phase else { return };
        if public_at.take().is_none() {
            return;
        }
        let (dial, wanted) = (*dial, candidates(host, mine));
        let Some(public) = host.public.map(SocketAddr::V4).filter(|public| wanted.contains(public)) else { return };
        self.punch.add_candidate(now, dial, public);
        self.log(format!("[join] dialling {public}"));
    }

    pub(crate) fn joiner_timeout(&mut self) {
        let now = self.now;
        let Some(side) = self.side() else { return };
        if let Phase::Dialling { public_at, deadline, .. } = side.phase {
            if now >= deadline {
                return self.fail_to_reach();
            }
            if public_at.is_some_and(|at| now >= at) {
                self.add_public();
            }
        }
        self.leave_stranger();
    }

    /// Whoever answered the hello and cannot seal is not the host: the other candidates are dialled again.
    fn leave_stranger(&mut self) {
        let now = self.now;
        let Some(side) = self.side() else { return };
        if side.proof_by.is_none_or(|by| now < by) {
            return;
        }
        side.proof_by = None;
        let (Phase::Up { host, .. }, Some(path)) = (&side.phase, side.host) else { return };
        let others = candidates(host, None).into_iter().any(|a| a != path.remote && !side.strangers.contains(&a));
        if others {
            side.strangers.push(path.remote);
            self.log(format!("[join] {} answers but is not the host: trying the other addresses", path.remote));
            self.dial_host_again();
        }
    }

    /// Something authentic came from this path.
    pub(crate) fn proved(&mut self, from: Path) {
        if let Some(side) = self.side()
            && side.host == Some(from)
        {
            side.proof_by = None;
        }
    }

    pub(crate) fn joiner_deadline(&self) -> Option<(Instant, &'static str)> {
        let Role::Joiner(side) = &self.role else { return None };
        let Phase::Dialling { public_at, deadline, .. } = &side.phase else {
            return side.proof_by.map(|by| (by, "the host's first authentic frame"));
        };
        Some(match public_at {
            Some(at) => (*at, "the host's public address"),
            None => (*deadline, "the dial's end"),
        })
    }

    /// The host answered on a path.
    pub(crate) fn host_opened(&mut self, id: DialId, path: Path) {
        let now = self.now;
        let relayed = self.is_relay_dial(id);
        let Some(side) = self.side() else { return };
        let (host, dial) = match std::mem::replace(&mut side.phase, Phase::Idle) {
            Phase::Dialling { host, dial, .. } if dial == id || relayed => (host, dial),
            Phase::Up { host, redial: Some(dial) } if dial == id || relayed => (host, dial),
            other => {
                side.phase = other;
                return self.another_way(id, path);
            }
        };
        let old = side.host.replace(path);
        side.phase = Phase::Up { host, redial: None };
        side.lobby.connected(now, path);
        if old != Some(path) {
            if let Some(old) = old {
                self.release(old);
                self.salts.forget(old);
                self.reassembly.forget(old);
                self.parcels.rekey(old, path);
                self.end_way(old);
            }
            self.hold(path, true);
            self.begin_way(path);
            self.mesh.host_link(now, Some(path));
            if let Some(side) = self.side() {
                side.proof_by = Some(now + STRANGER_AFTER);
            }
        }
        self.way_won(dial, id, path);
        self.log(format!("[join] connected to host {}", path.remote));
        self.won(path);
    }

    pub(crate) fn host_unreachable(&mut self, id: DialId) {
        let Some(side) = self.side() else { return };
        match &mut side.phase {
            Phase::Dialling { dial, .. } if *dial == id => self.fail_to_reach(),
            Phase::Up { redial, .. } if *redial == Some(id) => *redial = None,
            Phase::Unlocking { .. } | Phase::Dialling { .. } | Phase::Up { .. } | Phase::Idle => self.way_failed(id),
        }
    }

    /// The lobby hears nothing: the host is dialled where it was and at every address of its code.
    pub(crate) fn dial_host_again(&mut self) {
        let (now, mine, id) = (self.now, self.my_public(), self.dial_id());
        let Some(side) = self.side() else { return };
        let last = side.host.map(|path| path.remote);
        let Phase::Up { host, redial } = &mut side.phase else { return };
        if redial.is_some() {
            return;
        }
        *redial = Some(id);
        let mut addresses: Vec<SocketAddr> = Vec::new();
        let host = host.clone();
        let wanted = self.targets(&host, mine);
        let Some(side) = self.side() else { return };
        for address in last.into_iter().chain(wanted) {
            if !addresses.contains(&address) && !side.strangers.contains(&address) {
                addresses.push(address);
            }
        }
        self.log("[join] nothing from the host: dialling it again".to_owned());
        self.punch.dial(now, id, addresses, REDIAL_FOR);
        self.reach_again();
    }

    /// The player leaves. Before a path is open there is nobody to tell.
    pub(crate) fn quit_joiner(&mut self) {
        let now = self.now;
        let Some(side) = self.side() else { return };
        match side.phase {
            Phase::Up { .. } => side.lobby.leave(now),
            Phase::Unlocking { .. } | Phase::Dialling { .. } | Phase::Idle => {
                self.status(State::Disconnected, End::Quit.to_string());
                self.end(End::Quit);
            }
        }
    }

    /// The path of the host, once one is open.
    #[must_use]
    pub fn host_path(&self) -> Option<SocketAddr> {
        match &self.role {
            Role::Joiner(side) => side.host.map(|path| path.remote),
            Role::Host(_) => None,
        }
    }

    /// Whether a path belongs to the lobby socket of this session; tests use it to aim.
    #[must_use]
    pub fn path_to(remote: SocketAddr) -> Path {
        lobby_path(remote)
    }
}
