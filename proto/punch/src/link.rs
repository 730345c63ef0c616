//! Live paths: keep-alive, round trip, loss.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use np1::Kind;
use seam::{Dice, LinkStats, Path, Refused, Route};

use crate::Token;
use crate::outgoing::Outgoing;

/// Most paths held at once; a further one is not held.
pub const LINKS_MAX: usize = 512;

/// Time between two K (netpunch wire, section 23).
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between two probes, give or take `SPREAD`, so that a host's probes do not leave in one burst.
const PROBE: Duration = Duration::from_secs(2);
const SPREAD: Duration = Duration::from_millis(100);
/// A probe unanswered this long counts as lost until its answer comes after all.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Probes that the loss is the share of.
const PROBES_MAX: usize = 32;
/// Fewer settled probes say nothing.
const PROBES_MIN: usize = 4;

#[derive(Clone, Debug)]
struct Probe {
    token: Token,
    sent: Instant,
    answered: bool,
}

#[derive(Clone, Debug)]
struct Link {
    /// When K is due, on the side that sends it.
    keepalive: Option<Instant>,
    probe: Instant,
    probes: VecDeque<Probe>,
    /// Smoothed round trip and its mean deviation (RFC 6298, section 2).
    rtt: Option<(Duration, Duration)>,
}

impl Link {
    fn new(now: Instant, keepalive: bool) -> Self {
        Self { keepalive: keepalive.then(|| now + KEEPALIVE), probe: now, probes: VecDeque::new(), rtt: None }
    }

    /// What is due first.
    fn due(&self) -> Due {
        match self.keepalive {
            Some(keepalive) if keepalive < self.probe => (keepalive, "keepalive"),
            Some(_) | None => (self.probe, "probe"),
        }
    }

    fn measured(&mut self, sample: Duration) {
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            Some((rtt, deviation)) => ((rtt * 7 + sample) / 8, (deviation * 3 + rtt.abs_diff(sample)) / 4),
        });
    }

    fn loss(&self, now: Instant) -> Option<f32> {
        let is_late = |probe: &&Probe| now.saturating_duration_since(probe.sent) >= LOST_AFTER;
        let answered = self.probes.iter().filter(|probe| probe.answered).count();
        let lost = self.probes.iter().filter(|probe| !probe.answered).filter(is_late).count();
        let settled = answered + lost;
        let share = |n: usize| u16::try_from(n).map(f32::from).unwrap_or(f32::INFINITY);
        (settled >= PROBES_MIN).then(|| share(lost) / share(settled))
    }
}

type Due = (Instant, &'static str);

#[derive(Clone, Debug)]
pub(crate) struct Links {
    by_path: BTreeMap<Path, Link>,
    /// What K carries: any token will do, nobody looks at it.
    me: Token,
    /// What is due first on each of them: with 200 links one of them is due every 10 ms, and the others are not looked
    /// at then.
    due: BTreeSet<(Due, Path)>,
}

impl Links {
    pub(crate) fn new(me: Token) -> Self {
        Self { by_path: BTreeMap::new(), me, due: BTreeSet::new() }
    }

    /// False when there are too many.
    pub(crate) fn hold(&mut self, now: Instant, path: Path, keepalive: bool) -> bool {
        if let Some(link) = self.by_path.get_mut(&path) {
            if link.keepalive.is_some() != keepalive {
                self.due.remove(&(link.due(), path));
                link.keepalive = keepalive.then(|| now + KEEPALIVE);
                self.due.insert((link.due(), path));
            }
            return true;
        }
        if self.by_path.len() >= LINKS_MAX {
            return false;
        }
        self.insert(path, Link::new(now, keepalive));
        true
    }

    pub(crate) fn release(&mut self, path: Path) {
        self.remove(path);
    }

    /// The peer moved: what was measured belongs to the old way.
    pub(crate) fn rekey(&mut self, now: Instant, old: Path, new: Path) {
        if let Some(link) = self.remove(old) {
            self.insert(new, Link::new(now, link.keepalive.is_some()));
        }
    }

    /// The next probe of a path is due at once.
    pub(crate) fn probe_now(&mut self, now: Instant, path: Path) -> bool {
        let Some(link) = self.by_path.get_mut(&path) else { return false };
        self.due.remove(&(link.due(), path));
        link.probe = link.probe.min(now);
        self.due.insert((link.due(), path));
        true
    }

    pub(crate) fn holds(&self, path: Path) -> bool {
        self.by_path.contains_key(&path)
    }

    /// Whether a token is of a probe sent to that path.
    pub(crate) fn is_own(&self, path: Path, token: Token) -> bool {
        self.by_path.get(&path).is_some_and(|link| link.probes.iter().any(|probe| probe.token == token))
    }

    pub(crate) fn answered(&mut self, now: Instant, from: Path, token: Token) -> Result<(), Refused> {
        let link = self.by_path.get_mut(&from).ok_or(Refused::Unexpected)?;
        let probe = link.probes.iter_mut().find(|probe| probe.token == token).ok_or(Refused::Unexpected)?;
        if !probe.answered {
            probe.answered = true;
            let sample = now.saturating_duration_since(probe.sent);
            link.measured(sample);
        }
        Ok(())
    }

    pub(crate) fn stats(&self, now: Instant, path: Path) -> Option<LinkStats> {
        let link = self.by_path.get(&path)?;
        let (rtt, jitter) = link.rtt.unzip();
        Some(LinkStats { rtt, jitter, loss: link.loss(now), route: Route::Direct, ..LinkStats::default() })
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, dice: &mut Dice, out: &mut Outgoing) {
        while let Some((due, path)) = self.due.first().filter(|((due, _), _)| *due <= now).copied() {
            self.due.remove(&(due, path));
            let Some(link) = self.by_path.get_mut(&path) else { continue };
            if link.probe <= now {
                let token = dice.bytes();
                if link.probes.len() >= PROBES_MAX {
                    link.probes.pop_front();
                }
                link.probes.push_back(Probe { token, sent: now, answered: false });
                out.token(path, Kind::Hello, token);
                let spread = u64::try_from(SPREAD.as_micros()).unwrap_or_default();
                link.probe = now + PROBE - SPREAD + Duration::from_micros(dice.below(2 * spread));
            }
            if link.keepalive.is_some_and(|due| due <= now) {
                out.token(path, Kind::Keepalive, self.me);
                link.keepalive = Some(now + KEEPALIVE);
            }
            self.due.insert((link.due(), path));
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Due> {
        self.due.first().map(|(due, _)| *due)
    }

    fn insert(&mut self, path: Path, link: Link) {
        self.remove(path);
        self.due.insert((link.due(), path));
        self.by_path.insert(path, link);
    }

    fn remove(&mut self, path: Path) -> Option<Link> {
        let link = self.by_path.remove(&path)?;
        self.due.remove(&(link.due(), path));
        Some(link)
    }
}
