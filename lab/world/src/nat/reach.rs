//! One pair of homes from the first datagram on.

use std::time::Duration;

use seam::{Dice, Route};
use session::Via;

use super::game::Game;
use super::{Internet, Kind, Way, expected, is_guessed};

/// The joiner comes then.
const JOINS_AT: Duration = Duration::from_secs(3);
/// By now the way is the one that stays.
const SETTLED: Duration = Duration::from_secs(8);
const END_AT: Duration = Duration::from_secs(55);

/// How a pair fared.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The way at the end.
    pub way: Way,
    /// From the beginning of the join to the first frame of the game.
    pub first: Option<Duration>,
    /// From the beginning of the join to the direct path that was used last.
    pub direct: Option<Duration>,
    /// The kinds of paths in turn.
    pub via: Vec<Via>,
    /// What the joiner was told, where it was not let in.
    pub obstacle: Option<String>,
}

/// Plays a pair. Delays, and where `seed` says so a loss of up to 5 %, follow from the seed.
///
/// # Errors
/// What was not as expected.
pub fn reach(host: Kind, joiner: Kind, seed: u64, traced: bool) -> Result<Reached, String> {
    play(host, joiner, (seed, true), traced)
}

/// Plays a pair that guesses no ports, both having that turned off.
///
/// # Errors
/// What was not as expected.
pub fn reach_without_guess(host: Kind, joiner: Kind, seed: u64) -> Result<Reached, String> {
    play(host, joiner, (seed, false), false)
}

fn play(host: Kind, joiner: Kind, (seed, guess): (u64, bool), traced: bool) -> Result<Reached, String> {
    let mut bytes = [0x3C; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut dice = Dice::new(bytes);
    let mut world = Internet::new(dice.child(), true);
    world.loss = if dice.chance(0.5) { dice.below(6) as f64 / 100.0 } else { 0.0 };
    let delays = [0, 1].map(|_| Duration::from_millis(2 + dice.below(60)));
    let mut game = Game::new(dice.child(), true, guess);
    game.host(&mut world, host, delays[0]);
    let begun = world.now;
    world.play(begun + JOINS_AT, |world| game.step(world));
    game.join(&mut world, joiner, delays[1])?;
    let guessed = is_guessed(host, joiner) || (host, joiner) == (Kind::SymmetricSequential, Kind::SymmetricSequential);
    let want = if guessed && !guess { Way::Relay } else { expected(host, joiner) };
    let until = if want == Way::None { END_AT } else { JOINS_AT + SETTLED };
    world.play(begun + until, |world| game.step(world));
    if traced {
        for (at, index, line) in &game.log {
            println!("{:>6} ms {index} {line}", at.saturating_duration_since(begun).as_millis());
        }
    }
    let way = match Game::route(&world) {
        Route::Direct => Way::Direct,
        Route::Relay => Way::Relay,
        Route::Tcp => Way::Tcp,
        _ => Way::None,
    };
    let obstacle = game.end.as_ref().map(ToString::to_string);
    let via = game.won.iter().map(|(_, via)| *via).collect();
    let direct = game.won.iter().rev().find(|(_, via)| !matches!(via, Via::Relay | Via::Tcp));
    let direct = direct.zip(game.joined).map(|((at, _), joined)| at.saturating_duration_since(joined));
    let reached = Reached { way, first: game.first, direct, via, obstacle };
    let right = way == want || (way == Way::Relay && is_guessed(host, joiner));
    let mut why = world.why.clone();
    if !right {
        why.push(format!("{want:?} was expected: {reached:?}"));
    }
    if way != Way::None && reached.first.is_none() {
        why.push(format!("no frame arrived: {reached:?}"));
    }
    let extra = world.homes.iter().map(super::Home::extra_sockets).max().unwrap_or_default();
    if extra > 1 {
        why.push(format!("{extra} sockets were left open"));
    }
    if want == Way::None && reached.obstacle.is_none() {
        why.push(format!("no obstacle was named: {reached:?}"));
    }
    if game.twice() > 0 {
        why.push(format!("{} frames came twice", game.twice()));
    }
    if why.is_empty() { Ok(reached) } else { Err(why.join("; ")) }
}
