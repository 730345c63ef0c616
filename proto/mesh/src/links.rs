//! The table of links between joiners (netpunch wire, section 8.5).
//!
//! ```text
//!  dial opened, or an authenticated frame      mesh_hi            30 s unheard
//!  -------------------------------------> Nameless ------> Named ------------> gone
//!                                          |     ^           |
//!                          never named     v     |           | its player left the roster
//!                                        Shunned +-----------+ (asked for its name once more)
//! ```
//!
//! Two joiners that dial each other may end up with several paths between them. One of them, the primary, is sent on;
//! frames are taken on any. Both ends agree on the primary without a word: the end whose name sorts first keeps its
//! own as long as it hears something there, the other follows the path on which that end's frames come.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seam::{Path, Refused};

use crate::names::Former;
use crate::out::Out;
use crate::{Down, Event};

/// Most players with a direct link.
pub(crate) const LINKS_MAX: usize = 256;
/// Most paths to one player; of more, the one that was silent longest goes.
pub(crate) const PATHS_MAX: usize = 3;
/// Most links without a name, shunned ones included; of more, the one that was silent longest goes.
pub(crate) const NAMELESS_MAX: usize = 256;
/// A link unheard for this long, three probes, is gone around where there is another way: both ends may have been given
/// new addresses at once, and then neither learns the other's.
pub(crate) const WEAK: Duration = Duration::from_secs(6);
/// One that carries a game is gone around earlier: after ten times its usual pause and this.
const WEAK_BUSY: Duration = Duration::from_millis(300);
/// A link unheard for this long is dead.
pub(crate) const DEAD: Duration = Duration::from_secs(30);
/// How often a nameless link is asked for its name by saying the own one.
const HI_EVERY: Duration = Duration::from_millis(500);
/// A nameless link that no dial proved is asked this often: an address somebody made up gets six short datagrams.
const HI_UNPROVEN: u32 = 6;
/// How long a nameless link that no dial proved may stay so.
const NAME_WITHIN: Duration = Duration::from_secs(10);
/// A link without a name on which frames go on coming is asked for it again after this long: perhaps all six questions
/// were lost, and its player goes on sending there. On a shunned one they are refused until it has a name.
const RECONSIDER: Duration = Duration::from_secs(3);
/// How long a link may stay whose player left the roster; it is enough for two answers to a `mesh_hi`.
const GRACE: Duration = Duration::from_secs(3);
/// How long a link's name may be missing in the roster at first: a `mesh_hi` overtakes the host's word.
const ROSTERED_WITHIN: Duration = Duration::from_secs(10);
/// Two `mesh_hi` so far apart mean that the other end still asks, every 0.5 s. Closer ones and single ones are answers,
/// and answering those would never end...
const STILL_ASKING: Range<Duration> = Duration::from_millis(400)..Duration::from_millis(1500);
/// ...as would answers on a path whose round trip takes as long: so many are given, until it was quiet for a while.
const ANSWERS: u32 = 20;
const QUIET: Duration = Duration::from_secs(10);
/// A primary path is left for one that works when it was silent for this long...
const STALE: Duration = Duration::from_secs(2);
/// ...or this long when the other path carries signs of life but no frames.
const STALE_IDLE: Duration = Duration::from_secs(5);
/// Shortest time between two changes of a player's primary path, so that late packets do not turn it back.
const DWELL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Links {
    by_path: BTreeMap<Path, Link>,
    by_name: BTreeMap<Arc<str>, Player>,
    changed: bool,
    /// Names that became linked or ceased to be, until [`Links::take_moved`]: not more than there are changes in one
    /// turn.
    moved: Vec<Arc<str>>,
    /// Nothing is due before. A sign of life only makes things due later, so this may be early, never late.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Link {
    state: State,
    heard: Instant,
    /// Mean time between two signs of life, frames among them.
    habit: Duration,
    /// The most its patience was since routes were last told of it.
    told: Duration,
    /// When the last `mesh_hi` came.
    asked: Option<Instant>,
    /// How many more of them are answered.
    answers: u32,
    former: Former,
}

impl Link {
    /// How long it may be silent before it is gone around.
    fn patience(&self) -> Duration {
        (self.habit * 10 + WEAK_BUSY).min(WEAK)
    }

    fn due(&self) -> Instant {
        let dead = self.heard + DEAD;
        match &self.state {
            State::Nameless { hi_due, hi_left, until } => {
                let hi = (*hi_left > 0).then_some(*hi_due);
                [hi, *until].into_iter().flatten().fold(dead, Instant::min)
            }
            State::Shunned { hi_due, hi_left: 1.., .. } => dead.min(*hi_due),
            State::Named { rostered: false, since, .. } => dead.min(*since + ROSTERED_WITHIN),
            State::Named { .. } | State::Shunned { .. } => dead,
        }
    }
}

#[derive(Debug)]
enum State {
    /// Open, but whose is not known. `until` is when it is shunned, if ever.
    Nameless { hi_due: Instant, hi_left: u32, until: Option<Instant> },
    /// A player's.
    Named { name: Arc<str>, rostered: bool, since: Instant },
    /// Nobody's in this session, as far as is known. `again` is when a frame makes it asked for its name once more.
    Shunned { hi_due: Instant, hi_left: u32, again: Instant },
}

#[derive(Debug)]
struct Player {
    primary: Path,
    since: Instant,
    others: Vec<Path>,
}

/// What a path is to whoever reads from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Unknown,
    Open,
    Shunned,
}

impl Links {
    /// Whether the set of players or their primary paths changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// A player whose being linked changed, until there is none left.
    pub(crate) fn take_moved(&mut self) -> Option<Arc<str>> {
        self.moved.pop()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    pub(crate) fn primary(&self, name: &str) -> Option<Path> {
        self.by_name.get(name).map(|player| player.primary)
    }

    /// A player's primary path, and until when it counts as working if nothing is heard on it.
    pub(crate) fn works_until(&self, name: &str) -> Option<(Path, Instant)> {
        let primary = self.primary(name)?;
        self.by_path.get(&primary).map(|link| (primary, link.heard + link.patience()))
    }

    pub(crate) fn standing(&self, path: Path) -> Standing {
        match self.by_path.get(&path).map(|link| &link.state) {
            None => Standing::Unknown,
            Some(State::Shunned { .. }) => Standing::Shunned,
            Some(State::Nameless { .. } | State::Named { .. }) => Standing::Open,
        }
    }

    pub(crate) fn name_of(&self, path: Path) -> Option<&Arc<str>> {
        match &self.by_path.get(&path)?.state {
            State::Named { name, .. } => Some(name),
            State::Nameless { .. } | State::Shunned { .. } => None,
        }
    }

    /// Whether the player on this path goes by `name`, or did until lately.
    pub(crate) fn is_called(&self, now: Instant, path: Path, name: &str) -> bool {
        self.name_of(path).is_some_and(|own| &**own == name)
            || self.by_path.get(&path).is_some_and(|link| link.former.has(now, name))
    }

    /// A dial ended here: the path works both ways.
    pub(crate) fn open(&mut self, out: &mut Out, me: &Arc<str>, path: Path) {
        let now = out.now;
        let state = State::Nameless { hi_due: now + HI_EVERY, hi_left: u32::MAX, until: None };
        match self.by_path.get_mut(&path) {
            Some(link) => {
                link.heard = now;
                if matches!(link.state, State::Named { .. }) {
                    return;
                }
                link.state = state;
                self.hasten(path);
            }
            None => self.insert(now, path, state),
        }
        out.hi(path, me.clone());
    }

    /// An authenticated payload came on a path that is not known.
    pub(crate) fn meet(&mut self, now: Instant, path: Path) {
        let state = State::Nameless { hi_due: now, hi_left: HI_UNPROVEN, until: Some(now + NAME_WITHIN) };
        self.insert(now, path, state);
    }

    /// The path may lead nowhere any more: it counts as silent until something is heard on it.
    pub(crate) fn doubt(&mut self, now: Instant, path: Path) {
        if let (Some(link), Some(silent)) = (self.by_path.get_mut(&path), now.checked_sub(WEAK)) {
            link.heard = link.heard.min(silent);
            self.hasten(path);
        }
    }

    /// A frame came: on a link without a name it is asked for once more when that did not help some time ago.
    pub(crate) fn reconsider(&mut self, now: Instant, path: Path) -> bool {
        let Some(link) = self.by_path.get_mut(&path) else { return false };
        let asks = match &mut link.state {
            State::Nameless { hi_due, hi_left: hi_left @ 0, .. } if *hi_due + RECONSIDER <= now => {
                (*hi_due, *hi_left) = (now, HI_UNPROVEN);
                true
            }
            State::Shunned { hi_due, hi_left, again } if *again <= now => {
                (*hi_due, *hi_left, *again) = (now, HI_UNPROVEN, now + RECONSIDER);
                true
            }
            _ => false,
        };
        if asks {
            self.hasten(path);
        }
        asks
    }

    /// Signs of life other than frames.
    pub(crate) fn heard(&mut self, out: &mut Out, path: Path) {
        self.alive(out, path, |_| false, STALE_IDLE);
    }

    /// A frame or an envelope came.
    pub(crate) fn used(&mut self, out: &mut Out, me: &str, path: Path) {
        self.alive(out, path, |name| name < me, STALE);
    }

    /// `mesh_hi` came. `rostered` is whether the roster knows the name.
    pub(crate) fn hi(
        &mut self,
        out: &mut Out,
        me: &Arc<str>,
        path: Path,
        name: &str,
        rostered: bool,
    ) -> Result<(), Refused> {
        let now = out.now;
        if !self.by_name.contains_key(name) && self.by_name.len() >= LINKS_MAX {
            return Err(Refused::OverLimit);
        }
        if self.standing(path) == Standing::Unknown {
            self.meet(now, path);
        }
        let Some(link) = self.by_path.get_mut(&path) else { return Err(Refused::OverLimit) };
        link.heard = now;
        let since = link.asked.replace(now).map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        if since >= QUIET {
            link.answers = ANSWERS;
        }
        match &link.state {
            State::Named { name: known, .. } if &**known == name => {
                if STILL_ASKING.contains(&since) && link.answers > 0 {
                    link.answers -= 1;
                    out.hi(path, me.clone());
                }
                return Ok(());
            }
            State::Named { name: known, .. } => {
                let known = known.clone();
                link.former.add(now, known);
                self.detach(out, path, Down::Renamed);
            }
            State::Shunned { .. } if !rostered => return Err(Refused::NotAllowed),
            State::Shunned { .. } | State::Nameless { .. } => {}
        }
        self.attach(out, path, name.into(), rostered);
        out.hi(path, me.clone());
        Ok(())
    }

    /// Says the own name on every link in use: it changed.
    pub(crate) fn announce(&self, out: &mut Out, me: &Arc<str>) {
        for player in self.by_name.values() {
            out.hi(player.primary, me.clone());
        }
    }

    /// Compares the links with the roster: who left it is asked for a new name, and closed soon when there is none.
    pub(crate) fn check(&mut self, out: &mut Out, is_player: impl Fn(&str) -> bool) {
        let mut left = Vec::new();
        for link in self.by_path.values_mut() {
            let State::Named { name, rostered, .. } = &mut link.state else { continue };
            if is_player(name) {
                *rostered = true;
            } else if *rostered && !left.contains(name) {
                left.push(name.clone());
            }
        }
        for name in left {
            self.let_go(out, &name);
        }
    }

    /// An address changed; whoever holds the old path open for this table moves it along.
    pub(crate) fn rekey(&mut self, out: &mut Out, old: Path, new: Path) {
        if old == new {
            return;
        }
        let Some(mut link) = self.by_path.remove(&old) else { return };
        link.heard = out.now;
        if let State::Named { name, .. } = &link.state {
            let name = name.clone();
            if self.name_of(new).is_some_and(|other| *other != name) {
                self.detach(out, new, Down::Replaced);
            }
            let Some(player) = self.by_name.get_mut(&name) else { return };
            player.others.retain(|path| *path != new && *path != old);
            if player.primary == old {
                player.primary = new;
            } else if player.primary != new {
                player.others.push(new);
            }
            self.changed = true;
        } else if self.name_of(new).is_some() {
            return;
        }
        self.by_path.insert(new, link);
    }

    /// This path is not another joiner's after all.
    pub(crate) fn forget(&mut self, out: &mut Out, path: Path) {
        self.remove(out, path, Down::Replaced);
    }

    /// Timers: names are asked for, silent links end.
    pub(crate) fn handle_timeout(&mut self, out: &mut Out, me: &Arc<str>) {
        let now = out.now;
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let mut gone = Vec::new();
        let mut shun = Vec::new();
        for (path, link) in &mut self.by_path {
            if now >= link.heard + DEAD {
                gone.push(*path);
                continue;
            }
            match &mut link.state {
                State::Nameless { until: Some(until), .. } if now >= *until => shun.push(*path),
                State::Nameless { hi_due, hi_left, .. } | State::Shunned { hi_due, hi_left, .. } => {
                    if *hi_left > 0 && now >= *hi_due {
                        *hi_due = now + HI_EVERY;
                        *hi_left = hi_left.saturating_sub(1);
                        out.hi(*path, me.clone());
                    }
                }
                State::Named { rostered, since, .. } => {
                    if !*rostered && now >= *since + ROSTERED_WITHIN {
                        shun.push(*path);
                    }
                }
            }
        }
        for path in shun {
            self.detach(out, path, Down::Left);
            if let Some(link) = self.by_path.get_mut(&path) {
                link.state = State::Shunned { hi_due: now, hi_left: 0, again: now + RECONSIDER };
            }
        }
        for path in gone {
            self.remove(out, path, Down::Silent);
        }
        self.due = self.by_path.values().map(Link::due).min();
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Something may be due earlier on this link than it was.
    fn hasten(&mut self, path: Path) {
        let due = self.by_path.get(&path).map(Link::due);
        self.due = self.due.into_iter().chain(due).min();
    }

    /// Refreshes a path, and makes it its player's primary one when it should be.
    fn alive(&mut self, out: &mut Out, path: Path, follows: impl Fn(&str) -> bool, stale: Duration) {
        let now = out.now;
        let Some(link) = self.by_path.get_mut(&path) else { return };
        let pause = now.saturating_duration_since(link.heard);
        let was_weak = pause >= link.patience();
        link.habit = (link.habit * 7 + pause.min(WEAK)) / 8;
        link.heard = now;
        // A plan of routes holds for as long as was right when it was made.
        let patience = link.patience();
        let shorter = patience < link.told / 2;
        link.told = if shorter { patience } else { link.told.max(patience) };
        let State::Named { name, .. } = &link.state else { return };
        let Some(player) = self.by_name.get(name) else { return };
        self.changed |= was_weak || shorter;
        if player.primary == path || now.saturating_duration_since(player.since) < DWELL {
            return;
        }
        let name = name.clone();
        if follows(&name) || self.silence(now, player.primary) >= stale {
            self.switch(out, &name, path);
        }
    }

    fn silence(&self, now: Instant, path: Path) -> Duration {
        self.by_path.get(&path).map_or(Duration::MAX, |link| now.saturating_duration_since(link.heard))
    }

    /// Makes an open path a player's.
    fn attach(&mut self, out: &mut Out, path: Path, name: Arc<str>, rostered: bool) {
        let now = out.now;
        let Some(link) = self.by_path.get_mut(&path) else { return };
        link.state = State::Named { name: name.clone(), rostered, since: now };
        self.hasten(path);
        let Some(player) = self.by_name.get_mut(&name) else {
            out.notice(Event::LinkUp { name: name.to_string(), path });
            self.moved.push(name.clone());
            self.by_name.insert(name, Player { primary: path, since: now, others: Vec::new() });
            self.changed = true;
            return;
        };
        let primary = player.primary;
        player.others.push(path);
        if self.silence(now, primary) >= STALE {
            self.switch(out, &name, path);
        }
        let Some(player) = self.by_name.get(&name) else { return };
        if player.others.len() >= PATHS_MAX {
            let others = player.others.iter().copied().filter(|other| *other != path);
            if let Some(oldest) = others.max_by_key(|other| self.silence(now, *other)) {
                self.remove(out, oldest, Down::Replaced);
            }
        }
    }

    /// Takes a path from its player, whose most lively other path is used instead. The link itself stays in the table.
    fn detach(&mut self, out: &mut Out, path: Path, why: Down) {
        let Some(name) = self.name_of(path).cloned() else { return };
        let Some(player) = self.by_name.get(&name) else { return };
        let next = player.others.iter().copied().filter(|other| *other != path);
        let next = next.min_by_key(|other| self.silence(out.now, *other));
        let Some(player) = self.by_name.get_mut(&name) else { return };
        player.others.retain(|other| *other != path);
        if player.primary != path {
            return;
        }
        self.changed = true;
        out.notice(Event::LinkDown { name: name.to_string(), path, why });
        match next {
            Some(next) => {
                player.others.retain(|other| *other != next);
                player.primary = next;
                player.since = out.now;
                out.notice(Event::LinkUp { name: name.to_string(), path: next });
            }
            None => {
                self.by_name.remove(&name);
                self.moved.push(name);
            }
        }
    }

    /// Uses another of a player's paths.
    fn switch(&mut self, out: &mut Out, name: &Arc<str>, path: Path) {
        let Some(player) = self.by_name.get_mut(name) else { return };
        let old = std::mem::replace(&mut player.primary, path);
        player.since = out.now;
        player.others.retain(|other| *other != path);
        player.others.push(old);
        self.changed = true;
        out.notice(Event::LinkDown { name: name.to_string(), path: old, why: Down::Replaced });
        out.notice(Event::LinkUp { name: name.to_string(), path });
    }

    /// A player left the roster, perhaps only to come back under another name.
    fn let_go(&mut self, out: &mut Out, name: &Arc<str>) {
        let Some(player) = self.by_name.remove(name) else { return };
        let now = out.now;
        self.changed = true;
        out.notice(Event::LinkDown { name: name.to_string(), path: player.primary, why: Down::Left });
        for path in player.others.iter().chain([&player.primary]) {
            if let Some(link) = self.by_path.get_mut(path) {
                link.former.add(now, name.clone());
                link.state = State::Nameless { hi_due: now, hi_left: HI_UNPROVEN, until: Some(now + GRACE) };
            }
            self.hasten(*path);
        }
        self.moved.push(name.clone());
    }

    fn insert(&mut self, now: Instant, path: Path, state: State) {
        let nameless = || self.by_path.iter().filter(|(_, link)| !matches!(link.state, State::Named { .. }));
        if nameless().count() >= NAMELESS_MAX
            && let Some(oldest) = nameless().min_by_key(|(_, link)| link.heard).map(|(path, _)| *path)
        {
            self.by_path.remove(&oldest);
        }
        self.by_path.insert(
            path,
            Link {
                state,
                heard: now,
                habit: WEAK,
                told: WEAK,
                asked: None,
                answers: ANSWERS,
                former: Former::default(),
            },
        );
        self.hasten(path);
    }

    fn remove(&mut self, out: &mut Out, path: Path, why: Down) {
        self.detach(out, path, why);
        self.by_path.remove(&path);
    }
}
