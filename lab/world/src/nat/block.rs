//! Networks that let no datagram out, let them out again, and break the tunnel under a running game.

use std::time::{Duration, Instant};

use seam::{Dice, Route};

use super::game::{Game, HOST, JOINER};
use super::{Internet, Kind};

/// A change is through after this long: a tunnel is opened after 0.6 s of silence, a direct path is looked for at most
/// three seconds after a datagram could come back.
const SETTLES: Duration = Duration::from_secs(8);
/// Played on from there.
const CALM: Duration = Duration::from_secs(4);

/// How a game fared whose ends named in `who` are blocked, let out, blocked again, and then lose their tunnels.
///
/// # Errors
/// What did not hold: another way than the expected one, a frame that came twice, one that was lost in calm times.
pub fn block(host: Kind, joiner: Kind, who: &[usize], seed: u64, traced: bool) -> Result<(), String> {
    let mut bytes = [0x5D; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut dice = Dice::new(bytes);
    let mut world = Internet::new(dice.child(), true);
    let delays = [0, 1].map(|_| Duration::from_millis(2 + dice.below(40)));
    let mut game = Game::new(dice.child(), true, true);
    game.host(&mut world, host, delays[HOST]);
    let set = |world: &mut Internet, blocked| {
        for end in who {
            world.block(*end, blocked);
        }
    };
    let begun = world.now;
    // Its code is made while it still knows its address.
    world.play(begun + Duration::from_secs(3), |world| game.step(world));
    world.block(HOST, who.contains(&HOST));
    game.join(&mut world, joiner, delays[JOINER])?;
    world.block(JOINER, who.contains(&JOINER));
    let mut calm: Vec<(Instant, Instant)> = Vec::new();
    let mut why = Vec::new();
    for (what, want) in [
        ("blocked", Route::Tcp),
        ("let out", Route::Direct),
        ("blocked again", Route::Tcp),
        ("the tunnel broken", Route::Tcp),
    ] {
        match what {
            "let out" => set(&mut world, false),
            "blocked again" => set(&mut world, true),
            "the tunnel broken" => who.iter().for_each(|end| world.break_tunnel(*end)),
            _ => {}
        }
        game.log.push((world.now, 9, format!("---- {what}")));
        let settled = world.now + SETTLES;
        world.play(settled, |world| game.step(world));
        let route = Game::route(&world);
        if route != want {
            why.push(format!("{what}: {want} was expected, not {route}"));
        }
        world.play(settled + CALM, |world| game.step(world));
        // What is sent at the end of it is still under way.
        calm.push((settled, world.now - Duration::from_secs(1)));
    }
    let end = world.now + Duration::from_secs(1);
    world.play(end, |world| game.step(world));
    if traced {
        game.log.sort_by_key(|(at, ..)| *at);
        for (at, index, line) in &game.log {
            println!("{:>6} ms {index} {line}", at.saturating_duration_since(begun).as_millis());
        }
    }
    why.append(&mut world.why);
    if game.twice() > 0 {
        why.push(format!("{} frames came twice", game.twice()));
    }
    let is_calm = |at: Instant| calm.iter().any(|(from, to)| *from <= at && at < *to);
    let frames = || game.frames.iter().flat_map(|frames| frames.values()).filter(|frame| is_calm(frame.sent));
    let lost = frames().filter(|frame| frame.arrived.is_none()).count();
    if lost > 0 || frames().count() < 1_000 {
        why.push(format!("{lost} of {} frames were lost in calm times", frames().count()));
    }
    if why.is_empty() {
        Ok(())
    } else {
        Err(format!("{host} x {joiner}, {who:?} blocked, seed {seed}: {}", why.join("; ")))
    }
}
