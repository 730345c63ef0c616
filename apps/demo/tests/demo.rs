//! The demo, without a screen: alone, and two programs over real wires. And that its rules name no wire.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anywire::{HostOptions, JoinOptions, LobbyTransport, Transport, TransportKind};

#[path = "../src/game.rs"]
#[allow(unreachable_pub, missing_docs, reason = "a program's room, looked at from outside")]
mod game;

use game::Game;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anywire-demo"));
    command.args(args).stdout(Stdio::piped());
    for name in
        ["ANYWIRE_TRANSPORT", "ANYWIRE_ROLE", "ANYWIRE_ADDRESS", "ANYWIRE_CODE", "ANYWIRE_NAME", "ANYWIRE_INDEX"]
    {
        command.env_remove(name);
    }
    command.spawn().unwrap()
}

fn rest(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

#[test]
fn alone_it_is_the_same_game() {
    let text = rest(start(&["--transport", "offline", "--host", "--headless", "2"]));
    assert!(text.contains("saw 0 others, ") && !text.contains(" 0 enemies") && !text.contains("invite"), "{text}");
}

fn two_play(wire: &str) {
    let mut host = start(&["--transport", wire, "--host", "--name", "ada", "--headless", "12"]);
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines().map_while(Result::ok);
    let invite = lines.find_map(|line| line.strip_prefix("invite ").map(str::to_owned)).unwrap();
    let joined = rest(start(&["--transport", wire, "--join", &invite, "--name", "bea", "--headless", "6"]));
    assert!(joined.contains("saw 1 others") && !joined.contains(" 0 enemies"), "{joined}");
    assert!(joined.contains("link ada: ") && joined.contains("chat bea: hello"), "{joined}");
    let hosted: Vec<String> = lines.collect();
    assert!(hosted.iter().any(|line| line == "chat bea: hello"), "{hosted:?}");
    assert!(hosted.iter().any(|line| line.starts_with("saw 1 others")), "{hosted:?}");
    assert!(host.wait().unwrap().success());
}

#[test]
fn two_play_over_enet() {
    two_play("enet");
}

/// In this process, as the program would ask the world for its own address.
#[test]
fn two_play_over_the_lobby() {
    let bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let wire = LobbyTransport { stun: Vec::new(), bind, ..LobbyTransport::default() };
    let mut host = Game::new(wire.host(&HostOptions { name: "ada".into(), ..HostOptions::default() }).unwrap());
    let end = Instant::now() + Duration::from_secs(30);
    while host.invite().is_none() && Instant::now() < end {
        host.tick();
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = host.invite().unwrap();
    let options = JoinOptions { name: "bea".into(), address, ..JoinOptions::default() };
    let mut joiner = Game::new(wire.join(&options).unwrap());
    let mut said = false;
    while Instant::now() < end && !(joiner.score > 0 && host.chat.iter().any(|line| line == "bea: hello")) {
        host.tick();
        joiner.tick();
        if joiner.is_connected() && !said {
            joiner.say("hello");
            said = true;
        }
        // Both walk after the first of the wave.
        for game in [&mut host, &mut joiner] {
            if let Some(enemy) = game.enemies.first().copied() {
                let toward = |at: u8, to: u8| if at < to { 1 } else { -i8::from(at > to) };
                game.step(toward(game.me.x, enemy.x), toward(game.me.y, enemy.y));
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(host.is_host() && !joiner.is_host() && joiner.id() != host.id());
    assert!(
        joiner.score > 0 && joiner.players.len() == 1 && joiner.links()[0].starts_with("ada: "),
        "{:?}",
        joiner.links()
    );
    assert!(host.chat.iter().any(|line| line == "bea: hello"), "{:?}", host.chat);
    host.leave();
    while joiner.over.is_none() && Instant::now() < end {
        host.tick();
        joiner.tick();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(joiner.over.is_some() && joiner.heard > 0);
}

#[test]
fn no_wire_is_named_in_the_game_and_it_is_short() {
    let sources = [include_str!("../src/main.rs"), include_str!("../src/game.rs"), include_str!("../src/screen.rs")];
    for kind in TransportKind::ALL {
        let named = sources.iter().any(|source| source.to_lowercase().contains(kind.log_name()));
        assert!(!named, "{kind} is named");
    }
    let lines: usize = sources.iter().map(|source| source.lines().count()).sum();
    assert!(lines < 500, "{lines} lines");
}
