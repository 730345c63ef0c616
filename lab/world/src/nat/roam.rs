//! Paths that change under a running game.

use std::time::{Duration, Instant};

use seam::{Dice, Route};

use super::game::{FRAME_EVERY, Game, HOST, JOINER};
use super::{Internet, Kind};

/// Between two changes, give or take.
const CALM: Duration = Duration::from_secs(5);

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Roamed {
    /// Forced changes.
    pub changes: u32,
    /// Frames sent.
    pub frames: usize,
    /// Longest time by which a frame came later than the slower of the two paths takes, per change.
    pub late: Vec<Duration>,
    /// Bytes sent by both while that was going on.
    pub bytes: u64,
    /// Changes of the path in use that the joiner told.
    pub won: usize,
}

/// What is done to the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Nothing passes between the homes for a while.
    Cut,
    /// It passes again.
    Mend,
    /// A router forgets its mappings.
    Rebind(usize),
    /// A router has another address.
    Move(usize),
}

/// Plays `changes` changes between two homes of these kinds.
///
/// # Errors
/// What did not hold: a frame that came twice, one that was lost, a game that ended.
pub fn roam(host: Kind, joiner: Kind, seed: u64, changes: u32, traced: bool) -> Result<Roamed, String> {
    let mut bytes = [0x71; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut dice = Dice::new(bytes);
    let mut world = Internet::new(dice.child(), true);
    let delays = [0, 1].map(|_| Duration::from_millis(2 + dice.below(18)));
    let mut game = Game::new(dice.child(), true, true);
    game.host(&mut world, host, delays[0]);
    let begun = world.now;
    world.play(begun + Duration::from_secs(3), |world| game.step(world));
    game.join(&mut world, joiner, delays[1])?;
    world.play(begun + Duration::from_secs(10), |world| game.step(world));

    let mut out = Roamed { changes, ..Roamed::default() };
    let before = world.sent;
    let mut marks: Vec<(Instant, Change)> = Vec::new();
    let mut is_cut = false;
    for _ in 0..changes {
        let change = match (is_cut, dice.below(3)) {
            (true, _) => Change::Mend,
            (false, 0) => Change::Rebind(dice.below(2) as usize),
            (false, 1) => Change::Move(dice.below(2) as usize),
            (false, _) => Change::Cut,
        };
        match change {
            Change::Cut | Change::Mend => {
                is_cut = change == Change::Cut;
                world.cut(is_cut);
            }
            Change::Rebind(home) => world.rebind(home, false),
            Change::Move(home) => world.rebind(home, true),
        }
        marks.push((world.now, change));
        if traced {
            let route = Game::route(&world);
            game.log.push((world.now, 9, format!("---- {change:?}, on {route}")));
        }
        let pause = CALM + Duration::from_millis(dice.below(2000));
        let end = world.now + pause;
        world.play(end, |world| game.step(world));
    }
    let settled = world.now;
    world.play(settled + Duration::from_secs(3), |world| game.step(world));
    out.bytes = world.sent - before;
    out.won = game.won.len();
    let mut why = world.why.clone();
    check(&game, &world, (settled, delays), &marks, &mut out, &mut why);
    if traced {
        let usual = delays[0] + delays[1] + FRAME_EVERY;
        for (sender, frames) in game.frames.iter().enumerate() {
            let late = |sent: Instant, at: Instant| at.saturating_duration_since(sent).saturating_sub(usual);
            let arrived =
                frames.iter().filter_map(|(n, frame)| Some((n, frame.sent, late(frame.sent, frame.arrived?))));
            for (n, sent, late) in arrived.filter(|(.., late)| *late > Duration::from_millis(50)) {
                game.log.push((sent, sender, format!("frame {n} is {} ms late", late.as_millis())));
            }
        }
        game.log.sort_by_key(|(at, ..)| *at);
        for (at, index, line) in &game.log {
            println!("{:>6} ms {index} {line}", at.saturating_duration_since(begun).as_millis());
        }
    }
    if why.is_empty() { Ok(out) } else { Err(why.join("; ")) }
}

fn check(
    game: &Game,
    world: &Internet,
    (until, delays): (Instant, [Duration; 2]),
    marks: &[(Instant, Change)],
    out: &mut Roamed,
    why: &mut Vec<String>,
) {
    if let Some(end) = &game.end {
        why.push(format!("the joiner's game ended: {end}"));
    }
    if game.twice() > 0 {
        why.push(format!("{} frames came twice", game.twice()));
    }
    if Game::route(world) == Route::None {
        why.push("there is no route at the end".to_owned());
    }
    let Some(first) = game.ready.map(|ready| ready + Duration::from_secs(1)) else {
        return why.push("the joiner was never let in".to_owned());
    };
    // A frame through the relay takes no longer than one straight across: the relay is in the middle.
    let usual = delays[0] + delays[1] + FRAME_EVERY;
    for (index, mark) in marks.iter().enumerate() {
        let next = marks.get(index + 1).map_or(until, |(at, _)| *at);
        let mut worst = Duration::ZERO;
        let mut lost = [0, 0];
        for sender in [HOST, JOINER] {
            let frames = game.frames[sender].values();
            for frame in frames.filter(|frame| frame.sent >= first && (mark.0..next).contains(&frame.sent)) {
                out.frames += 1;
                match frame.arrived {
                    Some(at) => worst = worst.max(at.saturating_duration_since(frame.sent).saturating_sub(usual)),
                    None => lost[sender] += 1,
                }
            }
        }
        if lost != [0, 0] {
            let at = mark.0.saturating_duration_since(marks[0].0).as_millis();
            why.push(format!(
                "{lost:?} frames of host and joiner were lost after change {index}, {:?} ({at} ms)",
                mark.1
            ));
        }
        out.late.push(worst);
    }
}
