//! One host and eight joiners as processes, a game behind each: every frame reaches everybody else once, also while a
//! player crashes and comes back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]
#![cfg(unix)]

mod player;
mod stub;

use std::time::Duration;

use player::{Player, until};
use stub::Sender;

const NAMES: [&str; 9] = ["ada", "bob", "cleo", "dan", "eve", "finn", "gus", "hana", "ivo"];
const HOST: usize = 0;
/// The one that crashes.
const CRASHES: usize = 4;
const TEXTS: usize = 20;

/// Waits until everybody in `present` sees exactly these players, and all see the same lobby.
fn agreed(players: &[Player], present: &[usize]) {
    let names: Vec<&str> = present.iter().map(|at| players[*at].name.as_str()).collect();
    until(|| {
        let first = players[HOST].view();
        for at in present {
            let player = &players[*at];
            if player.sees() != names || player.view() != first {
                return Err(format!("{} sees {} where the host sees {first}", player.name, player.view()));
            }
        }
        Ok(())
    });
}

/// Waits until all joiners in `present` are linked to each other, those to the crashed one `times` times.
fn linked(players: &[Player], present: &[usize], times: usize) {
    until(|| {
        for (a, b) in pairs(present).filter(|(a, b)| *a != HOST && *b != HOST) {
            let wanted = if b == CRASHES { times } else { 1 };
            if players[a].links_to(&players[b].name) < wanted {
                return Err(format!("{} is not linked to {}", players[a].name, players[b].name));
            }
        }
        Ok(())
    });
}

fn pairs(present: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    present.iter().flat_map(|a| present.iter().filter(move |b| *b != a).map(|b| (*a, *b)))
}

/// A stretch of every game's frames: who, from which number on.
fn begin(players: &[Player], present: &[usize]) -> Vec<(usize, Sender, u32)> {
    let point = |at: &usize| {
        let (sender, next) = players[*at].stub.point();
        (*at, sender, next)
    };
    present.iter().map(point).collect()
}

/// Waits until every frame sent since `begin` has reached everybody else in `present`, but for those that the kernel
/// says it dropped at a full socket. Returns how many frames that were.
fn delivered(players: &[Player], present: &[usize], began: &[(usize, Sender, u32)]) -> usize {
    let ends: Vec<u32> = began.iter().map(|(at, ..)| players[*at].stub.point().1).collect();
    until(|| {
        let mut lost = Vec::new();
        for ((from, sender, first), end) in began.iter().zip(&ends) {
            for to in present.iter().filter(|to| *to != from) {
                let missing = players[*to].stub.book().missing(*sender, *first, *end);
                if missing > 0 {
                    lost.push((players[*from].name.as_str(), players[*to].name.as_str(), missing));
                }
            }
        }
        let missing: usize = lost.iter().map(|(.., missing)| missing).sum();
        let dropped = dropped_by_the_kernel();
        if missing <= dropped { Ok(()) } else { Err(format!("lost: {lost:?}; the kernel dropped {dropped}")) }
    });
    let sent: u32 = began.iter().zip(&ends).map(|((.., first), end)| end - first).sum();
    usize::try_from(sent).unwrap() * (present.len() - 1)
}

/// Datagrams that found a socket's buffer full, over all UDP sockets of this computer.
fn dropped_by_the_kernel() -> usize {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| line.split_whitespace().last()?.parse::<usize>().ok()).sum()
}

/// Nothing ever came twice, to the wrong game or changed; hardly anything out of order.
fn clean(players: &[Player]) {
    for player in players {
        let book = player.stub.book();
        assert_eq!(book.wrong, Vec::<String>::new(), "{} got what is not for it", player.name);
        for (sender, stream) in &book.streams {
            assert_eq!(stream.doubled(), 0, "{} got frames of {sender:?} twice", player.name);
            // The path changes from the host's to a direct one in mid-stream, and a faster path overtakes.
            assert!(stream.late < 10, "{} of {sender:?} came late to {}", stream.late, player.name);
        }
    }
}

/// Games of one world hear each other's texts once and in order, long ones too.
fn bridges(players: &[Player]) {
    let world = |player: &Player| player.told("transport_lobby").pop().unwrap()["epoch"].as_str().unwrap().to_owned();
    let epoch = world(&players[HOST]);
    for player in players {
        assert_eq!(world(player), epoch, "{} is told another world", player.name);
        player.stub.open_bridge(epoch.as_bytes().try_into().unwrap());
    }
    until(|| match players.iter().find(|player| player.stub.book().senders() < players.len() - 1) {
        None => Ok(()),
        Some(player) => Err(format!("the game of {} hears {}", player.name, player.stub.book().senders())),
    });
    let said = |player: &Player| (0..TEXTS).map(|n| format!("{} {n} {}", player.name, "x".repeat(n * 150))).collect();
    let said: Vec<Vec<String>> = players.iter().map(said).collect();
    for (player, texts) in players.iter().zip(&said) {
        texts.iter().for_each(|text| player.stub.book().say(text));
    }
    let sessions: Vec<u32> = players.iter().map(|player| player.stub.book().session()).collect();
    until(|| {
        for (me, player) in players.iter().enumerate() {
            let book = player.stub.book();
            assert_eq!(book.gaps, 0, "the game of {} was left behind", player.name);
            for other in (0..players.len()).filter(|other| *other != me) {
                let heard = book.texts.get(&sessions[other]).map_or(&[][..], Vec::as_slice);
                assert!(said[other].starts_with(heard), "{} heard other texts than were said", player.name);
                if heard.len() < TEXTS {
                    return Err(format!("{} heard {} of {TEXTS}", player.name, heard.len()));
                }
            }
        }
        Ok(())
    });
}

/// Every line is one JSON object that names its kind first; every state file is whole.
fn files(players: &[Player]) {
    for player in players {
        let out = player.read("lobby_out.jsonl");
        assert!(out.ends_with('\n') && out.lines().all(|line| line.starts_with(r#"{"type": ""#)), "{out}");
        for line in out.lines() {
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).unwrap();
        }
        assert_eq!(player.state()["state"], "disconnected", "{}", player.name);
        assert_eq!(player.state()["you"], player.name);
        assert!(player.read("lobby_panel.txt").starts_with("disconnected"), "{}", player.read("lobby_panel.txt"));
    }
}

#[test]
fn nine_processes_exchange_every_frame_once_and_a_crashed_player_comes_back() {
    let mut players: Vec<Player> = (0..).zip(NAMES).map(|(number, name)| Player::new(number, name)).collect();
    let everybody: Vec<usize> = (0..players.len()).collect();
    let others: Vec<usize> = everybody.iter().copied().filter(|at| *at != CRASHES).collect();

    players[HOST].open(&["host", "--lobby-name", "Nine"]);
    until(|| if players[HOST].told("code").is_empty() { Err("no code".to_owned()) } else { Ok(()) });
    let code = players[HOST].told("code")[0]["code"].as_str().unwrap().to_owned();
    for player in &mut players[1..] {
        player.open(&["join", &code]);
    }
    for player in &players {
        player.stub.play();
    }
    agreed(&players, &everybody);
    linked(&players, &everybody, 1);
    let letters = players[HOST].told("roster").pop().unwrap()["letters"].clone();

    players[HOST].ask(r#"{"cmd": "start"}"#);
    players[3].ask(r#"{"cmd": "chat", "text": "all here?"}"#);
    let began = begin(&players, &everybody);
    std::thread::sleep(Duration::from_secs(3));
    let steady = delivered(&players, &everybody, &began);
    assert!(steady > 0);

    let began = begin(&players, &others);
    players[CRASHES].stub.pause();
    players[CRASHES].crash();
    agreed(&players, &others);
    let around_a_crash = delivered(&players, &others, &began);
    assert!(players[HOST].read("stderr.log").contains("'eve' -- silent"), "the host says why it dropped eve");
    assert!(players[HOST].state()["started"] == true && players[1].state()["started"] == true);

    players[CRASHES].open(&["join", &code]);
    players[CRASHES].stub.play();
    agreed(&players, &everybody);
    linked(&players, &everybody, 2);
    assert_eq!(players[CRASHES].told("roster").pop().unwrap()["letters"], letters, "its letter is the one it had");
    let began = begin(&players, &everybody);
    bridges(&players);
    std::thread::sleep(Duration::from_secs(2));
    let with_bridges = delivered(&players, &everybody, &began);
    eprintln!("frames delivered: {steady} at first, {around_a_crash} round the crash, {with_bridges} beside texts");
    clean(&players);
    for player in others.iter().map(|at| &players[*at]) {
        assert_eq!(player.told("start").len(), 1, "{} is started once", player.name);
        let chat = player.told("chat");
        assert_eq!(chat.iter().filter(|line| line["text"] == "all here?").count(), 1, "{}: {chat:?}", player.name);
    }

    players[1].ask(r#"{"cmd": "quit"}"#);
    assert_eq!(players[1].exit_code(), Some(0), "quit by its game");
    players[2].terminate();
    assert_eq!(players[2].exit_code(), Some(0), "a signal leaves like quit");
    agreed(&players, &everybody.iter().copied().filter(|at| ![1, 2].contains(at)).collect::<Vec<_>>());
    players[HOST].ask(r#"{"cmd": "quit"}"#);
    for player in players.iter_mut().filter(|player| ![NAMES[1], NAMES[2]].contains(&player.name.as_str())) {
        assert_eq!(player.exit_code(), Some(0), "{} is told that the lobby closed", player.name);
    }
    files(&players);
}
