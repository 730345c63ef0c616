//! A small co-op game for the terminal: everybody in one arena catches what runs away.
//!
//! ```text
//! anywire-demo --host [--transport WIRE]         arrows move, Enter says a line, Esc leaves
//! anywire-demo --join PLACE [--transport WIRE]   PLACE is what the host's screen shows
//! anywire-demo --headless SECONDS ..             plays by itself and prints what it saw
//! ```
//! The environment contract of `anywire::Launch` says the same things for whoever starts many of them.

mod game;
mod screen;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anywire::{HostOptions, JoinOptions, Launch, LaunchRole, Peer};

use crate::game::Game;

/// Sixteen steps a second.
const STEP: Duration = Duration::from_micros(62_500);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("anywire-demo: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let launch = Launch::read(args.iter().map(String::as_str), |name| std::env::var(name).ok())?;
    let headless = args.iter().position(|arg| arg == "--headless").and_then(|at| args.get(at + 1));
    let seconds = |text: &String| text.parse::<u64>().map_err(|_| format!("'{text}' is no number of seconds"));
    let headless = headless.map(seconds).transpose()?;
    let mut game = Game::new(open(&launch)?);
    match headless {
        Some(seconds) => play_alone(&mut game, Duration::from_secs(seconds)),
        None => screen::play(&mut game)?,
    }
    Ok(())
}

/// The one place of the game that knows of wires, and it names none.
fn open(launch: &Launch) -> Result<Box<dyn Peer>, anywire::OpenError> {
    let wire = anywire::open(launch.kind(None, false))?;
    let name = launch.name.clone().unwrap_or_else(|| format!("player {}", launch.index + 1));
    match (launch.role, &launch.address) {
        (Some(LaunchRole::Join), Some(address)) => {
            wire.join(&JoinOptions { name, address: address.clone(), ..JoinOptions::default() })
        }
        _ => wire.host(&HostOptions { name, ..HostOptions::default() }),
    }
}

/// Without a screen: walks about, says hello, and reports on standard output.
fn play_alone(game: &mut Game, time: Duration) {
    let mut out = std::io::stdout();
    let mut say = |line: String| {
        // A reader that went away is no reason to stop playing.
        let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    let end = Instant::now() + time;
    let (mut invited, mut greeted, mut most, mut turn) = (false, 0, 0, 0_usize);
    while Instant::now() < end && game.over.is_none() {
        game.tick();
        if !invited && let Some(invite) = game.invite() {
            say(format!("invite {invite}"));
            invited = true;
        }
        if game.is_connected() && game.players.len() > greeted {
            greeted = game.players.len();
            game.say("hello");
        }
        most = most.max(game.players.len());
        turn += 1;
        let walk = [(1, 0), (0, 1), (-1, 0), (0, -1)].into_iter().cycle().nth(turn / 12 % 4);
        walk.into_iter().for_each(|(dx, dy)| game.step(dx, dy));
        std::thread::sleep(STEP);
    }
    for line in game.links() {
        say(format!("link {line}"));
    }
    game.chat.iter().for_each(|line| say(format!("chat {line}")));
    let enemies = game.enemies.len();
    say(format!("saw {most} others, {enemies} enemies, score {}, {} packets", game.score, game.heard));
    if let Some(why) = &game.over {
        say(format!("over {why:?}"));
    }
    game.leave();
    for _ in 0..8 {
        game.tick();
        std::thread::sleep(STEP / 4);
    }
}
