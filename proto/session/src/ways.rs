//! Several open paths to one player: which is used, and what is sent twice while that changes.
//!
//! Rooms know a player by one path, its primary. Others are held beside it: a relay under a direct path, or a direct
//! path that is on trial under a relay. What arrives on any of them counts for the primary; what is sent goes to the
//! primary, and to the others as well while it is in doubt which of them works. The copies are the same sealed
//! datagram, so the receiver's replay window keeps the first and drops the rest.
//!
//! ```text
//! better path proved ──> switch, and copies on the old one for OVERLAP
//! primary silent for one and a half times its habit ──> suspicion: copies on the others
//!      and for three times ──> doubt: probes, and all that was under way once more
//!      heard again ──> as before        silent for DEAD, another one alive ──> switch
//! ```
//!
//! Nothing is decided here about whom to believe: a path is added once who is there has proved itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use seam::Path;

/// Most paths of one player beside the primary.
const OTHERS_MAX: usize = 3;
/// After a change, what is sent goes on both paths for this long.
const OVERLAP: Duration = Duration::from_millis(400);
/// Silence after which another living path becomes the primary.
const DEAD: Duration = Duration::from_millis(450);
/// Silence that is never suspected.
const SUSPICION_MIN: Duration = Duration::from_millis(30);
/// Silence that is never doubted, and silence that always is: a path is probed every 2 s, and probed again at once
/// when an answer stays away.
const PATIENCE_MIN: Duration = Duration::from_millis(60);
const PATIENCE_MAX: Duration = Duration::from_millis(4_500);
/// Between probes of a doubted path: at first, and when the first second brought nothing.
const PROBE_FAST: Duration = Duration::from_millis(100);
const PROBE_SLOW: Duration = Duration::from_millis(500);
/// A path heard within this time is alive.
const ALIVE: Duration = Duration::from_millis(400);
/// An unheard path beside the primary is given up.
const FORGET: Duration = Duration::from_secs(30);
/// A path that failed as primary is not preferred again for this long, however good it looks.
const REST: Duration = Duration::from_secs(1);

/// How good a way is; the better comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Datagrams straight to the player.
    Direct,
    /// Through a relay.
    Relay,
}

/// What a change asks of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The player is at `to` from now on; `from` stays open beside it. What was sent since `since` may be lost.
    Switch { from: Path, to: Path, since: Instant },
    /// The primary is late, having been heard last at `heard`: what is sent goes on the others too from now on, and what it
    /// may have lost by now is to be repeated there.
    Suspect { primary: Path, heard: Instant },
    /// The primary may be dead: what was sent since `since` is to be repeated on the others.
    Doubt { primary: Path, since: Instant },
    /// The primary is alive after all: what was sent to it since `since` may be lost on either end's way to a relay.
    Recovered { primary: Path, since: Instant },
    /// While the primary is in doubt, another path came alive: what was sent since `since` is to be repeated there.
    Revived { primary: Path, path: Path, since: Instant },
    /// This path is to be probed now.
    Probe(Path),
    /// A path beside the primary is given up.
    Drop(Path),
}

#[derive(Clone, Copy, Debug)]
struct Way {
    class: Class,
    heard: Instant,
    /// Not preferred before.
    rested: Instant,
}

#[derive(Debug)]
struct Doubt {
    since: Instant,
    /// When the primary was heard last before.
    heard: Instant,
    probe: Instant,
}

#[derive(Debug)]
struct Player {
    way: Way,
    /// Mean time between two authentic datagrams on the primary.
    habit: Duration,
    /// Mean deviation from that.
    jitter: Duration,
    others: BTreeMap<Path, Way>,
    overlap: Option<Instant>,
    /// The primary is late.
    suspected: bool,
    doubt: Option<Doubt>,
}

impl Player {
    /// Silence that makes copies worth their bytes.
    fn suspicion(&self) -> Duration {
        let late = self.habit * 3 / 2 + self.jitter * 4 + Duration::from_millis(2);
        late.clamp(SUSPICION_MIN, PATIENCE_MAX)
    }

    fn patience(&self) -> Duration {
        (self.habit * 3 + Duration::from_millis(15)).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    fn is_alive(way: &Way, now: Instant) -> bool {
        now.saturating_duration_since(way.heard) < ALIVE
    }

    /// Whether copies go to the other paths.
    fn doubles(&self, now: Instant) -> bool {
        self.suspected || self.doubt.is_some() || self.overlap.is_some_and(|until| now < until)
    }

    /// The other path to prefer to the primary.
    fn better(&self, now: Instant) -> Option<Path> {
        let living = |way: &Way| Self::is_alive(way, now) && way.rested <= now;
        let (path, way) = self.others.iter().filter(|(_, way)| living(way)).min_by_key(|(_, way)| way.class)?;
        let dead = self.doubt.is_some() && now.saturating_duration_since(self.way.heard) >= DEAD;
        (way.class < self.way.class || dead).then_some(*path)
    }
}

/// The paths of all players. Each has at most three beside its primary.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    players: BTreeMap<Path, Player>,
    primaries: BTreeMap<Path, Path>,
    acts: VecDeque<Act>,
}

impl Ways {
    /// A player is at `path`.
    pub(crate) fn begin(&mut self, now: Instant, path: Path, class: Class) {
        let way = Way { class, heard: now, rested: now };
        let player = Player {
            way,
            habit: Duration::from_secs(2),
            jitter: Duration::from_secs(1),
            others: BTreeMap::new(),
            overlap: None,
            suspected: false,
            doubt: None,
        };
        self.players.entry(path).or_insert(player);
    }

    /// The player is gone: the paths it had besides.
    pub(crate) fn end(&mut self, primary: Path) -> Vec<Path> {
        let others = self.players.remove(&primary).map(|player| player.others).unwrap_or_default();
        self.primaries.retain(|_, owner| *owner != primary);
        others.into_keys().collect()
    }

    /// Rooms know the player by another path now, and `old` is of no use any more.
    pub(crate) fn rekey(&mut self, now: Instant, old: Path, new: Path, class: Class) {
        let Some(mut player) = self.players.remove(&old) else { return };
        player.others.remove(&new);
        self.primaries.remove(&new);
        player.way = Way { class, heard: now, rested: now };
        player.doubt = None;
        player.suspected = false;
        for owner in self.primaries.values_mut().filter(|owner| **owner == old) {
            *owner = new;
        }
        self.players.insert(new, player);
    }

    /// Another path to the player at `primary` is proved. False when there is no such player, or too many paths.
    pub(crate) fn add(&mut self, now: Instant, primary: Path, path: Path, class: Class) -> bool {
        let Some(player) = self.players.get_mut(&primary) else { return false };
        if path == primary || player.others.contains_key(&path) || self.players.contains_key(&path) {
            return false;
        }
        let Some(player) = self.players.get_mut(&primary) else { return false };
        if player.others.len() >= OTHERS_MAX {
            let Some(stalest) = player.others.iter().min_by_key(|(_, way)| way.heard).map(|(path, _)| *path) else {
                return false;
            };
            player.others.remove(&stalest);
            self.primaries.remove(&stalest);
            self.acts.push_back(Act::Drop(stalest));
        }
        player.others.insert(path, Way { class, heard: now, rested: now });
        self.primaries.insert(path, primary);
        self.step(now, primary);
        true
    }

    /// The primary of the player that `path` belongs to beside it.
    pub(crate) fn primary_of(&self, path: Path) -> Option<Path> {
        self.primaries.get(&path).copied()
    }

    /// Whether the player at `primary` is met directly, and nothing speaks against that path.
    pub(crate) fn is_well(&self, primary: Path) -> bool {
        let is_well = |player: &Player| player.way.class == Class::Direct && player.doubt.is_none();
        self.players.get(&primary).is_some_and(is_well)
    }

    /// Something came on `path` that only the player can have sent. An authentic datagram of a player makes a habit, an
    /// answered probe does not.
    pub(crate) fn heard(&mut self, now: Instant, path: Path, authentic: bool) {
        let primary = self.primary_of(path).unwrap_or(path);
        let Some(player) = self.players.get_mut(&primary) else { return };
        if path == primary {
            let pause = now.saturating_duration_since(player.way.heard);
            if authentic {
                let off = pause.min(PATIENCE_MAX).abs_diff(player.habit);
                player.jitter = (player.jitter * 7 + off) / 8;
                player.habit = (player.habit * 7 + pause.min(PATIENCE_MAX)) / 8;
            } else if pause > player.habit * 4 {
                // It was only quiet: less is expected of it.
                player.habit = (player.habit + pause.min(PATIENCE_MAX)) / 2;
            }
            player.way.heard = now;
            player.suspected = false;
            if let Some(doubt) = player.doubt.take() {
                self.acts.push_back(Act::Recovered { primary, since: doubt.heard });
            }
        } else if let Some(way) = player.others.get_mut(&path) {
            if let Some(doubt) = player.doubt.as_ref().filter(|doubt| way.heard < doubt.since) {
                self.acts.push_back(Act::Revived { primary, path, since: doubt.heard });
            }
            way.heard = now;
        }
        self.step(now, primary);
    }

    /// Every path of a player, the primary first.
    pub(crate) fn all_of(&self, primary: Path) -> Vec<Path> {
        let others = self.players.get(&primary).into_iter().flat_map(|player| player.others.keys());
        std::iter::once(&primary).chain(others).copied().collect()
    }

    /// Adds the paths that are to get copies of what goes to a player.
    pub(crate) fn spread(&self, now: Instant, to: &mut Vec<Path>) {
        for index in 0..to.len() {
            let Some(player) = to.get(index).and_then(|path| self.players.get(path)) else { continue };
            if player.doubles(now) {
                let others: Vec<Path> = player.others.keys().filter(|path| !to.contains(path)).copied().collect();
                to.extend(others);
            }
        }
    }

    /// The next thing to do.
    pub(crate) fn poll(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<Path> =
            self.players.iter().filter(|(_, player)| due(player).0 <= now).map(|(path, _)| *path).collect();
        for primary in due {
            self.step(now, primary);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.players.values().map(due).min()
    }

    fn step(&mut self, now: Instant, primary: Path) {
        let Some(player) = self.players.get_mut(&primary) else { return };
        if player.overlap.is_some_and(|until| until <= now) {
            player.overlap = None;
        }
        let silence = now.saturating_duration_since(player.way.heard);
        if !player.suspected && player.doubt.is_none() && silence >= player.suspicion() {
            player.suspected = true;
            self.acts.push_back(Act::Suspect { primary, heard: player.way.heard });
        }
        let is_silent = silence >= player.patience();
        match &mut player.doubt {
            None if is_silent => {
                player.doubt = Some(Doubt { since: now, heard: player.way.heard, probe: now + PROBE_FAST });
                self.acts.push_back(Act::Doubt { primary, since: player.way.heard });
                self.acts.push_back(Act::Probe(primary));
                self.acts.extend(player.others.keys().map(|path| Act::Probe(*path)));
            }
            Some(doubt) if doubt.probe <= now => {
                let long = now.saturating_duration_since(doubt.since) >= Duration::from_secs(1);
                doubt.probe = now + if long { PROBE_SLOW } else { PROBE_FAST };
                self.acts.push_back(Act::Probe(primary));
                self.acts.extend(player.others.keys().map(|path| Act::Probe(*path)));
            }
            None | Some(_) => {}
        }
        let unheard = |way: &Way| now.saturating_duration_since(way.heard) >= FORGET;
        let over: Vec<Path> = player.others.iter().filter(|(_, way)| unheard(way)).map(|(path, _)| *path).collect();
        for path in over {
            player.others.remove(&path);
            self.primaries.remove(&path);
            self.acts.push_back(Act::Drop(path));
        }
        if let Some(to) = player.better(now) {
            self.switch(now, primary, to);
        }
    }

    fn switch(&mut self, now: Instant, from: Path, to: Path) {
        let Some(mut player) = self.players.remove(&from) else { return };
        let Some(way) = player.others.remove(&to) else {
            self.players.insert(from, player);
            return;
        };
        let mut old = std::mem::replace(&mut player.way, way);
        let since = old.heard;
        player.suspected = false;
        if player.doubt.take().is_some() {
            old.rested = now + REST;
        }
        player.others.insert(from, old);
        player.overlap = Some(now + OVERLAP);
        self.primaries.remove(&to);
        for owner in self.primaries.values_mut().filter(|owner| **owner == from) {
            *owner = to;
        }
        self.primaries.insert(from, to);
        self.players.insert(to, player);
        self.acts.push_back(Act::Switch { from, to, since });
    }
}

fn due(player: &Player) -> (Instant, &'static str) {
    let doubt = match &player.doubt {
        Some(doubt) => (doubt.probe, "probe of a doubted path"),
        None if player.suspected => (player.way.heard + player.patience(), "silence of a path"),
        None => (player.way.heard + player.patience().min(player.suspicion()), "silence of a path"),
    };
    let forget = player.others.values().map(|way| (way.heard + FORGET, "an unheard path")).min();
    [Some(doubt), forget].into_iter().flatten().min().unwrap_or(doubt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam::SocketId;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn path(n: u8) -> Path {
        Path::new(SocketId(0), ([10, 0, 0, n], 1).into())
    }

    fn acts(ways: &mut Ways) -> Vec<Act> {
        std::iter::from_fn(|| ways.poll()).filter(|act| !matches!(act, Act::Probe(_))).collect()
    }

    fn to(ways: &Ways, now: Instant, n: u8) -> Vec<Path> {
        let mut to = vec![path(n)];
        ways.spread(now, &mut to);
        to
    }

    /// A player at path 1 heard every 20 ms for a second, at path 2 as well where `both`.
    fn habit(start: Instant, both: bool) -> (Ways, Instant) {
        let mut ways = Ways::default();
        ways.begin(start, path(1), Class::Direct);
        if both {
            ways.add(start, path(1), path(2), Class::Relay);
        }
        let mut now = start;
        for step in 0..50 {
            now = start + MS(step * 20);
            ways.heard(now, path(1), true);
        }
        for step in 0..20 {
            now = start + MS(1000 + step * 20);
            ways.heard(now, path(1), true);
        }
        ways.handle_timeout(now);
        assert_eq!(acts(&mut ways), []);
        (ways, now)
    }

    #[test]
    fn a_better_path_takes_over_with_copies_on_the_old_one() {
        let now = Instant::now();
        let mut ways = Ways::default();
        ways.begin(now, path(1), Class::Relay);
        assert!(ways.add(now, path(1), path(2), Class::Direct));
        assert_eq!(acts(&mut ways), [Act::Switch { from: path(1), to: path(2), since: now }]);
        assert_eq!(ways.primary_of(path(1)), Some(path(2)));
        assert_eq!(to(&ways, now, 2), [path(2), path(1)]);
        assert_eq!(to(&ways, now + OVERLAP, 2), [path(2)]);
    }

    #[test]
    fn what_comes_late_is_suspected_and_copied_until_it_comes() {
        let (mut ways, now) = habit(Instant::now(), true);
        let quiet = ways.poll_timeout().unwrap().0 - now;
        assert!(quiet >= MS(30) && quiet < MS(40), "{quiet:?}");
        let later = now + quiet;
        assert_eq!(to(&ways, later, 1), [path(1)]);
        ways.handle_timeout(later);
        assert_eq!(acts(&mut ways), [Act::Suspect { primary: path(1), heard: now }]);
        assert_eq!(to(&ways, later, 1), [path(1), path(2)]);
        ways.heard(later + MS(1), path(1), true);
        assert_eq!(acts(&mut ways), [], "nothing is repeated for it");
        assert_eq!(to(&ways, later + MS(1), 1), [path(1)]);
    }

    #[test]
    fn a_path_whose_datagrams_come_irregularly_is_suspected_later() {
        let start = Instant::now();
        let mut ways = Ways::default();
        ways.begin(start, path(1), Class::Direct);
        let mut now = start;
        for step in 0..200 {
            now += MS(if step % 2 == 0 { 5 } else { 35 });
            ways.heard(now, path(1), true);
            acts(&mut ways);
        }
        let quiet = ways.poll_timeout().unwrap().0 - now;
        assert!(quiet > MS(60), "{quiet:?}");
    }

    #[test]
    fn silence_against_habit_is_doubted_and_copied_and_being_heard_ends_it() {
        let (mut ways, now) = habit(Instant::now(), true);
        let late = ways.poll_timeout().unwrap().0;
        ways.handle_timeout(late);
        assert_eq!(acts(&mut ways), [Act::Suspect { primary: path(1), heard: now }]);
        let quiet = ways.poll_timeout().unwrap().0 - now;
        assert!(quiet > MS(60) && quiet < MS(250), "{quiet:?}");
        let later = now + quiet;
        ways.handle_timeout(later);
        assert_eq!(acts(&mut ways), [Act::Doubt { primary: path(1), since: now }]);
        assert_eq!(to(&ways, later, 1), [path(1), path(2)]);
        ways.heard(later, path(1), true);
        assert_eq!(acts(&mut ways), [Act::Recovered { primary: path(1), since: now }]);
        assert_eq!(to(&ways, later, 1), [path(1)]);
    }

    #[test]
    fn a_dead_primary_gives_way_to_a_living_path_and_rests() {
        let (mut ways, now) = habit(Instant::now(), true);
        let mut at = now;
        while at < now + DEAD + MS(20) {
            at += MS(10);
            ways.handle_timeout(at);
            ways.heard(at, path(2), true);
        }
        let acts = acts(&mut ways);
        assert!(
            acts.iter().any(|act| matches!(act, Act::Switch { from, to, .. } if (*from, *to) == (path(1), path(2))))
        );
        ways.heard(at, path(1), false);
        assert_eq!(ways.primary_of(path(1)), Some(path(2)), "it rests");
        at += REST + MS(1);
        ways.heard(at, path(1), false);
        assert_eq!(ways.primary_of(path(2)), Some(path(1)), "it is preferred again");
    }

    #[test]
    fn a_dead_primary_without_another_stays_and_is_probed_ever_slower() {
        let (mut ways, now) = habit(Instant::now(), false);
        let mut probes = 0;
        while let Some((due, _)) = ways.poll_timeout()
            && due < now + Duration::from_secs(10)
        {
            ways.handle_timeout(due);
            probes += std::iter::from_fn(|| ways.poll()).filter(|act| *act == Act::Probe(path(1))).count();
        }
        assert!((20..40).contains(&probes), "{probes}");
        assert_eq!(ways.primary_of(path(1)), None);
    }

    #[test]
    fn an_unheard_path_is_given_up_and_paths_are_bounded() {
        let now = Instant::now();
        let mut ways = Ways::default();
        ways.begin(now, path(1), Class::Direct);
        for n in 2..100 {
            assert!(ways.add(now + MS(n.into()), path(1), path(n), Class::Relay));
        }
        assert_eq!(ways.primaries.len(), OTHERS_MAX);
        ways.heard(now + FORGET, path(1), true);
        ways.handle_timeout(now + FORGET + MS(200));
        assert_eq!(ways.primaries.len(), 0);
        assert_eq!(acts(&mut ways).iter().filter(|act| matches!(act, Act::Drop(_))).count(), 98);
    }

    #[test]
    fn a_player_that_moved_keeps_its_other_paths_and_one_that_left_gives_them_back() {
        let now = Instant::now();
        let mut ways = Ways::default();
        ways.begin(now, path(1), Class::Direct);
        ways.add(now, path(1), path(2), Class::Relay);
        ways.rekey(now, path(1), path(3), Class::Direct);
        assert_eq!(ways.primary_of(path(2)), Some(path(3)));
        assert_eq!(ways.end(path(3)), [path(2)]);
        assert_eq!((ways.primary_of(path(2)), ways.poll_timeout()), (None, None));
    }
}
