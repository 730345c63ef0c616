//! What happens in a world: everything follows from its seed.

use std::time::Duration;

use seam::Dice;

use super::{Faults, REGRESSIONS};

/// The faults stop here.
pub(super) const CALM_AT: Duration = Duration::from_secs(20);
/// By now every roster agrees, and the frames of the last part begin.
pub(super) const AGREED_AT: Duration = Duration::from_secs(30);
/// The world ends.
pub(super) const END_AT: Duration = Duration::from_secs(34);

/// Late fates begin here, where the early ones end.
const LATE_FROM: Duration = Duration::from_secs(17);
/// Who goes with a word may do so until shortly before rosters are compared.
const LEAVES_BY: Duration = Duration::from_secs(28);
/// Who is gone without one is noticed after ten seconds of silence and up to a second more.
const DIES_BY: Duration = Duration::from_millis(18_500);
/// Two joiners who lost each other's address at once go around the link after six seconds of silence.
const REBINDS_BY: Duration = Duration::from_secs(23);

/// One joiner's life.
#[derive(Clone, Debug)]
pub struct Player {
    /// Joins then.
    pub joins: Duration,
    /// Leaves then, with a word.
    pub leaves: Option<Duration>,
    /// Is killed then, without one.
    pub dies: Option<Duration>,
    /// Its router gives it another address then.
    pub rebinds: Option<Duration>,
    /// Links with other joiners.
    pub mesh: bool,
    /// Speaks as an old program does.
    pub old: bool,
}

/// What happens in a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed it came from.
    pub seed: u64,
    /// The faults until [`CALM_AT`].
    pub faults: Faults,
    /// The host is a relay without a game.
    pub relay: bool,
    /// The host speaks as an old program does.
    pub old_host: bool,
    /// The joiners.
    pub players: Vec<Player>,
    /// Pairs of joiners between whom nothing passes.
    pub cut: Vec<(usize, usize)>,
    /// The host stands still: from when, how long.
    pub stall: Option<(Duration, Duration)>,
    /// Time between two frames of one player.
    pub frame_every: Duration,
    /// The game starts then.
    pub starts: Option<Duration>,
    /// Strangers make trouble until the faults stop.
    pub hostile: bool,
}

impl Plan {
    /// The world of a seed with the number of players that also follows from it: mostly few, sometimes forty.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = dice_of(seed);
        let most = [3, 5, 8, 8, 12, 20, 39][dice.below(7) as usize];
        let joiners = 1 + dice.below(most) as usize;
        let mut plan = Self::with(seed, &mut dice, joiners);
        // A seed that once failed goes on playing what it failed on.
        if REGRESSIONS.iter().all(|(old, _)| *old != seed) {
            plan.late();
        }
        plan
    }

    /// The big world of a seed: the host and 199 joiners, meshed.
    #[must_use]
    pub fn big(seed: u64) -> Self {
        let mut dice = dice_of(seed);
        let mut plan = Self::with(seed, &mut dice, 199);
        plan.frame_every = Duration::from_secs(60);
        plan.old_host = false;
        for player in &mut plan.players {
            player.mesh = true;
            player.old = false;
        }
        plan.late();
        plan
    }

    /// Some of those to whom nothing happens early meet with something late, after the faults stopped as well: as late
    /// as everybody can still agree on it in time.
    fn late(&mut self) {
        let mut dice = dice_of(self.seed ^ 0x1A7E);
        for player in &mut self.players {
            let has_fate = player.leaves.or(player.dies).or(player.rebinds).is_some();
            let fate = dice.below(20);
            let mut until = |until: Duration| {
                Some(LATE_FROM + Duration::from_millis(dice.below((until - LATE_FROM).as_millis() as u64)))
            };
            match fate {
                _ if has_fate => {}
                0 => player.leaves = until(LEAVES_BY),
                1 => player.dies = until(DIES_BY),
                2 | 3 => player.rebinds = until(REBINDS_BY),
                _ => {}
            }
        }
    }

    fn with(seed: u64, dice: &mut Dice, joiners: usize) -> Self {
        let faults = Faults {
            loss: dice.below(31) as f64 / 100.0,
            duplicate: dice.below(6) as f64 / 100.0,
            delay: Duration::from_millis(1 + dice.below(80)),
            jitter: Duration::from_millis(dice.below(60)),
        };
        let old_host = dice.chance(0.1);
        let relay = dice.chance(0.2);
        let players = (0..joiners).map(|_| Player::roll(dice)).collect::<Vec<_>>();
        let mut cut = Vec::new();
        for a in 0..joiners {
            for b in 0..a {
                if dice.chance(0.15) {
                    cut.push((b, a));
                }
            }
        }
        let stall = dice
            .chance(0.15)
            .then(|| (Duration::from_millis(4000 + dice.below(6000)), Duration::from_millis(1000 + dice.below(8000))));
        let starts = dice.chance(0.5).then(|| Duration::from_millis(3000 + dice.below(12_000)));
        let frame_every = Duration::from_millis(200 + 60 * joiners as u64);
        let hostile = dice.chance(1.0 / 3.0);
        Self { seed, faults, relay, old_host, players, cut, stall, frame_every, starts, hostile }
    }
}

impl Player {
    fn roll(dice: &mut Dice) -> Self {
        let joins = Duration::from_millis(100 + if dice.chance(0.3) { dice.below(15_000) } else { dice.below(2000) });
        let later = |dice: &mut Dice| {
            let room = Duration::from_secs(17).saturating_sub(joins).as_millis() as u64;
            joins + Duration::from_millis(dice.below(room.max(1)))
        };
        let fate = dice.below(10);
        Self {
            joins,
            leaves: (fate == 0).then(|| later(dice)),
            dies: (fate == 1).then(|| later(dice)),
            rebinds: (fate == 2 || fate == 3).then(|| later(dice)),
            mesh: dice.chance(0.85),
            old: dice.chance(0.2),
        }
    }
}

/// The dice of a seed.
#[must_use]
pub(super) fn dice_of(seed: u64) -> Dice {
    let mut bytes = [0x5A; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Dice::new(bytes)
}
