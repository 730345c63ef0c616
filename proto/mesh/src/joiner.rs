//! Routing at a joiner: the host, direct links, and envelopes for everybody else (netpunch wire, sections 8.3-8.5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use np1::NAME_MAX;
use seam::{Dice, Path, PooledBuf, Refused, Route};

use crate::dials::Dials;
use crate::links::{Links, Standing};
use crate::names::Former;
use crate::out::{Out, Whose};
use crate::reach::Reach;
use crate::report::Report;
use crate::{Outgoing, RosterView, envelope};

/// A host unheard for this long is routed around.
const HOST_QUIET: Duration = Duration::from_secs(12);

#[derive(Debug)]
pub(crate) struct Joiner {
    mesh: bool,
    /// The own name. Without it there was no roster yet, and nothing of the game goes in or out.
    me: Option<Arc<str>>,
    former: Former,
    link: Option<HostLink>,
    /// The host's name; `None` on a relay, whose leader is a joiner like any other.
    host: Option<Arc<str>>,
    reach: Reach,
    links: Links,
    dials: Dials,
    report: Report,
    /// Spreads destinations over carriers.
    spread: u64,
    plan: Option<Plan>,
    wake: Option<(Instant, &'static str)>,
}

#[derive(Clone, Copy, Debug)]
struct HostLink {
    path: Path,
    heard: Instant,
}

/// Where a frame of the own game goes; kept until something changes.
#[derive(Debug)]
struct Plan {
    /// Whether the host counted as quiet when the plan was made.
    quiet: bool,
    /// When the first of the direct links used may have fallen silent.
    until: Option<Instant>,
    /// The host and everybody with a direct link: one payload for all.
    direct: Vec<Path>,
    /// An envelope each, by way of the path.
    wrapped: Vec<(Arc<str>, Path)>,
    /// Players without a way to them.
    lost: u64,
}

/// How one player is reached.
enum Hop {
    /// The host's or a direct link, and until when the latter works if nothing is heard on it.
    Direct(Path, Option<Instant>),
    Wrapped {
        carrier: Path,
        through: Option<Arc<str>>,
    },
    None,
}

impl Joiner {
    pub(crate) fn new(mesh: bool, seed: [u8; 32], now: Instant) -> Self {
        Self {
            mesh,
            me: None,
            former: Former::default(),
            link: None,
            host: None,
            reach: Reach::default(),
            links: Links::default(),
            dials: Dials::default(),
            report: Report::new(now),
            spread: Dice::new(seed).u64(),
            plan: None,
            wake: None,
        }
    }

    pub(crate) fn host_link(&mut self, out: &mut Out, path: Option<Path>) {
        let now = out.now;
        let old = self.link.map(|link| link.path);
        self.link = path.map(|path| HostLink { path, heard: now });
        if path.is_some() && path != old {
            self.report.restart(now);
        }
        if let Some(path) = path {
            self.links.forget(out, path);
        }
        self.settle(now);
    }

    pub(crate) fn roster(&mut self, out: &mut Out, roster: &RosterView<'_>) {
        if roster.me.is_empty() {
            return;
        }
        let changed = self.reach.update(roster);
        self.host = roster.host.filter(|_| !roster.relay).map(Into::into);
        if self.me.as_deref() != Some(roster.me) {
            let me: Arc<str> = roster.me.into();
            if let Some(old) = self.me.replace(me.clone()) {
                self.former.add(out.now, old);
                self.links.announce(out, &me);
            }
        }
        if self.mesh {
            // A link learns at its birth whether the roster of the time knows its player.
            if changed {
                self.links.check(out, |name| self.reach.has(name));
            }
            let (me, host) = (roster.me, self.host.as_deref());
            let others = roster.players.iter().filter(|(name, _)| **name != me && Some(**name) != host);
            let wanted = others.filter_map(|(name, seat)| Some((*name, seat.profile?)));
            self.dials.wish(out, wanted, |name| self.links.primary(name).is_some());
            self.report.heard_back(self.reach.reached(me), host);
        }
        self.settle(out.now);
    }

    pub(crate) fn rekey(&mut self, out: &mut Out, old: Path, new: Path) {
        if let Some(link) = &mut self.link
            && link.path == old
        {
            *link = HostLink { path: new, heard: out.now };
        }
        self.links.rekey(out, old, new);
        if self.is_host(new) {
            self.links.forget(out, new);
        }
        self.settle(out.now);
    }

    pub(crate) fn heard(&mut self, out: &mut Out, from: Path) {
        if !self.heard_host(out.now, from) {
            self.links.heard(out, from);
            self.notice_links(out.now);
        }
    }

    pub(crate) fn doubt(&mut self, now: Instant, path: Path) {
        self.links.doubt(now, path);
        self.settle(now);
    }

    pub(crate) fn handle_frame(&mut self, out: &mut Out, from: Path, frame: Bytes) -> Result<(), Refused> {
        let Some(me) = self.me.clone() else { return Err(Refused::Unexpected) };
        if self.heard_host(out.now, from) {
            out.deliver(self.host.as_deref(), frame);
            return Ok(());
        }
        self.greet(out, &me, from)?;
        out.deliver(self.links.name_of(from).map(|name| &**name), frame);
        Ok(())
    }

    pub(crate) fn handle_envelope(&mut self, out: &mut Out, from: Path, payload: PooledBuf) -> Result<(), Refused> {
        let Some(me) = self.me.clone() else { return Err(Refused::Unexpected) };
        let payload = payload.freeze();
        let wrapped = envelope::open(&payload)?;
        let by_host = self.heard_host(out.now, from);
        if !by_host {
            self.greet(out, &me, from)?;
        }
        let is_own = by_host || self.links.is_called(out.now, from, wrapped.from);
        if *wrapped.to == *me || (!self.reach.has(wrapped.to) && self.former.has(out.now, wrapped.to)) {
            // A carrier brings other players' frames; the host has no need of one, and I have none for myself.
            let is_carried = self.reach.has(wrapped.from)
                && *wrapped.from != *me
                && self.host.as_deref().is_none_or(|host| host != wrapped.from);
            if !is_own && !is_carried {
                return Err(Refused::NotAllowed);
            }
            out.deliver(Some(wrapped.from), wrapped.frame);
            return Ok(());
        }
        if !is_own || !self.mesh {
            return Err(Refused::NotAllowed);
        }
        match self.links.primary(wrapped.to).filter(|path| *path != from) {
            Some(path) => out.frame(Whose::Other, vec![path], Outgoing::Raw(payload.clone())),
            None => out.stats.no_peer += 1,
        }
        Ok(())
    }

    pub(crate) fn handle_hi(&mut self, out: &mut Out, from: Path, name: &str) -> Result<(), Refused> {
        let Some(me) = self.me.clone() else { return Err(Refused::Unexpected) };
        if self.heard_host(out.now, from) {
            return Ok(());
        }
        let is_host = self.host.as_deref() == Some(name);
        if !self.mesh || name.is_empty() || name.len() > NAME_MAX || *name == *me || is_host {
            return Err(Refused::NotAllowed);
        }
        if out.is_crowded() {
            return Err(Refused::OverLimit);
        }
        self.links.hi(out, &me, from, name, self.reach.has(name))?;
        self.dials.linked(out, name);
        if self.links.take_changed() {
            self.report.hurry(out.now);
        }
        self.settle(out.now);
        Ok(())
    }

    pub(crate) fn local_frame(&mut self, out: &mut Out, frame: &Bytes) {
        let Some(me) = self.me.clone() else {
            out.stats.no_peer += 1;
            return;
        };
        let quiet = self.is_host_quiet(out.now);
        if self.plan.as_ref().is_none_or(|plan| plan.quiet != quiet || plan.until.is_some_and(|at| at <= out.now)) {
            self.plan = Some(self.make_plan(out.now, &me, quiet));
        }
        let Some(plan) = &self.plan else { return };
        out.stats.no_peer += plan.lost;
        out.frame(Whose::Own, plan.direct.clone(), Outgoing::Game(frame.clone()));
        for (name, carrier) in &plan.wrapped {
            let wrapped = Outgoing::Envelope { to: name.clone(), from: me.clone(), frame: frame.clone() };
            out.frame(Whose::Own, vec![*carrier], wrapped);
        }
    }

    pub(crate) fn local_frame_to(&mut self, out: &mut Out, to: &str, frame: Bytes) {
        let quiet = self.is_host_quiet(out.now);
        let hop = if self.reach.has(to) || self.host.as_deref() == Some(to) {
            self.hop(out.now, quiet, to)
        } else {
            Hop::None
        };
        match (hop, self.me.clone()) {
            (Hop::Direct(path, _), Some(_)) => out.frame(Whose::Own, vec![path], Outgoing::Game(frame)),
            (Hop::Wrapped { carrier, .. }, Some(from)) => {
                out.frame(Whose::Own, vec![carrier], Outgoing::Envelope { to: to.into(), from, frame });
            }
            _ => out.stats.no_peer += 1,
        }
    }

    pub(crate) fn link_opened(&mut self, out: &mut Out, dial: &str, path: Path) {
        self.dials.ended(dial);
        if let Some(me) = self.me.clone()
            && self.mesh
            && !self.is_host(path)
        {
            self.links.open(out, &me, path);
        }
        self.settle(out.now);
    }

    pub(crate) fn dial_failed(&mut self, now: Instant, name: &str) {
        self.dials.ended(name);
        self.settle(now);
    }

    pub(crate) fn handle_timeout(&mut self, out: &mut Out) {
        // Other rooms' timers call here a hundred times a second in a large lobby. A sign of life only makes things due
        // later, and every other change asks for a look by itself.
        if self.wake.is_none_or(|(at, _)| at > out.now) {
            return;
        }
        if let Some(me) = self.me.clone()
            && self.mesh
        {
            self.links.handle_timeout(out, &me);
            self.notice_links(out.now);
            while let Some(name) = self.links.take_moved() {
                self.dials.set_linked(&name, self.links.primary(&name).is_some());
            }
            self.dials.handle_timeout(out);
            if self.link.is_some() {
                self.report.handle_timeout(out, self.links.names());
            }
        }
        self.wake = self.next_wake();
    }

    pub(crate) fn timeout(&self) -> Option<(Instant, &'static str)> {
        self.wake
    }

    pub(crate) fn route_to(&self, now: Instant, name: &str) -> Route {
        if self.me.as_deref() == Some(name) {
            return Route::Local;
        }
        if !self.reach.has(name) {
            return Route::None;
        }
        match (self.hop(now, self.is_host_quiet(now), name), self.mesh) {
            (Hop::Direct(..), true) => Route::Direct,
            (Hop::Direct(..), false) if self.host.as_deref() == Some(name) => Route::Direct,
            (Hop::Direct(..), false) | (Hop::Wrapped { through: None, .. }, _) => Route::ThroughHost,
            (Hop::Wrapped { through: Some(through), .. }, _) => Route::Through(through.to_string()),
            (Hop::None, _) => Route::None,
        }
    }

    /// Refreshes a joiner's link, making one for a path that only an authenticated payload speaks for.
    fn greet(&mut self, out: &mut Out, me: &Arc<str>, from: Path) -> Result<(), Refused> {
        match self.links.standing(from) {
            Standing::Unknown if self.mesh => {
                self.links.meet(out.now, from);
                self.settle(out.now);
            }
            Standing::Open => {
                self.links.used(out, me, from);
                if self.links.reconsider(out.now, from) {
                    self.settle(out.now);
                }
                self.notice_links(out.now);
            }
            Standing::Unknown | Standing::Shunned => {
                self.links.heard(out, from);
                if self.links.reconsider(out.now, from) {
                    self.settle(out.now);
                }
                return Err(Refused::NotAllowed);
            }
        }
        Ok(())
    }

    fn is_host(&self, path: Path) -> bool {
        self.link.is_some_and(|link| link.path == path)
    }

    fn heard_host(&mut self, now: Instant, from: Path) -> bool {
        match &mut self.link {
            Some(link) if link.path == from => {
                link.heard = now;
                true
            }
            Some(_) | None => false,
        }
    }

    fn is_host_quiet(&self, now: Instant) -> bool {
        self.link.is_none_or(|link| now.saturating_duration_since(link.heard) >= HOST_QUIET)
    }

    fn make_plan(&self, now: Instant, me: &str, quiet: bool) -> Plan {
        let mut plan = Plan { quiet, until: None, direct: Vec::new(), wrapped: Vec::new(), lost: 0 };
        if !self.mesh {
            plan.direct.extend(self.link.map(|link| link.path));
            return plan;
        }
        for name in self.reach.players().iter().filter(|name| ***name != *me) {
            match self.hop(now, quiet, name) {
                Hop::Direct(path, until) => {
                    let until = until.filter(|at| *at > now);
                    plan.until = plan.until.into_iter().chain(until).min();
                    plan.direct.push(path);
                }
                Hop::Wrapped { carrier, .. } if name.len().max(me.len()) <= NAME_MAX => {
                    plan.wrapped.push((name.clone(), carrier));
                }
                Hop::Wrapped { .. } | Hop::None => plan.lost += 1,
            }
        }
        plan
    }

    /// The way to a player: host link, direct link, envelope by the host, envelope by a player who has a link. A direct
    /// link that has fallen silent is the last resort.
    fn hop(&self, now: Instant, quiet: bool, name: &str) -> Hop {
        if !self.mesh || self.host.as_deref() == Some(name) {
            return self.link.map_or(Hop::None, |link| Hop::Direct(link.path, None));
        }
        let direct = self.links.works_until(name);
        let is_live = direct.is_some_and(|(_, until)| now < until);
        let direct = direct.map_or(Hop::None, |(path, until)| Hop::Direct(path, Some(until)));
        if is_live {
            return direct;
        }
        if let Some(link) = self.link.filter(|_| !quiet) {
            return Hop::Wrapped { carrier: link.path, through: None };
        }
        let Some(slot) = self.reach.slot(name) else { return direct };
        let carriers =
            self.links.names().filter(|carrier| self.reach.reaches(carrier, slot) && self.works(now, carrier));
        let carrier = carriers.min_by_key(|carrier| self.rank(carrier, name));
        match carrier.and_then(|carrier| Some((carrier, self.links.primary(carrier)?))) {
            Some((through, carrier)) => Hop::Wrapped { carrier, through: Some(through.clone()) },
            None => direct,
        }
    }

    fn works(&self, now: Instant, name: &str) -> bool {
        self.links.works_until(name).is_some_and(|(_, until)| now < until)
    }

    /// Orders carriers differently for each destination, so that no single player carries everything; the same way
    /// each time, so that frames for one player do not overtake each other on two ways.
    fn rank(&self, carrier: &str, name: &str) -> u64 {
        let bytes = carrier.bytes().chain([0xFF]).chain(name.bytes());
        let hash = bytes.fold(self.spread, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        hash ^ (hash >> 29)
    }

    /// Takes notice of what the link table did by itself.
    fn notice_links(&mut self, now: Instant) {
        if self.links.take_changed() {
            self.report.changed();
            self.settle(now);
        }
    }

    /// Something changed: the plan is made anew, and the timers are looked at.
    fn settle(&mut self, now: Instant) {
        self.plan = None;
        self.wake = Some((now, "mesh changed"));
    }

    fn next_wake(&self) -> Option<(Instant, &'static str)> {
        if self.me.is_none() || !self.mesh {
            return None;
        }
        let links = self.links.timeout().map(|at| (at, "mesh link"));
        let dials = self.dials.timeout().map(|at| (at, "mesh dial"));
        let report = self.report.timeout().filter(|_| self.link.is_some()).map(|at| (at, "mesh report"));
        [links, dials, report].into_iter().flatten().min()
    }
}
