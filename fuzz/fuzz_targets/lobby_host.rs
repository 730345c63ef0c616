//! A host's lobby against anybody who holds the key.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use anywire_fuzz::words::{Memory, plain_name};
use anywire_fuzz::{Machine, Script, member, settle};
use libfuzzer_sys::fuzz_target;
use lobby::{Event, Host, HostConfig, Mode};
use seam::Path;

struct Lobby {
    host: Host,
    memory: Memory,
    most: usize,
    /// Who is in, by the events.
    members: BTreeMap<Path, String>,
    over: bool,
}

impl Machine for Lobby {
    fn drain(&mut self, _now: Instant) -> usize {
        let mut count = 0;
        while let Some((_, json)) = self.host.poll_message() {
            assert!(json.len() <= np1::MESSAGE_MAX);
            // Long rosters for a crowd all read alike.
            if count < 16 || json.len() < 2_000 {
                self.memory.learn(&json);
            }
            count += 1;
        }
        while let Some(event) = self.host.poll_event() {
            assert!(!self.over, "{event:?} after the end");
            self.event(event);
            count += 1;
        }
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.host.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.host.handle_timeout(now);
    }
}

impl Lobby {
    fn event(&mut self, event: Event) {
        match event {
            Event::MemberJoined { name, path, .. } => {
                assert_eq!(self.members.insert(path, name), None, "joined twice");
            }
            Event::MemberLeft { path, .. } => {
                assert!(self.members.remove(&path).is_some(), "a stranger left");
            }
            Event::MemberRenamed { path, new, .. } => {
                assert!(self.members.insert(path, new).is_some(), "a stranger has a new name");
            }
            Event::MemberMoved { old, new, .. } => {
                let name = self.members.remove(&old).expect("a stranger moved");
                assert_eq!(self.members.insert(new, name), None, "moved onto somebody");
            }
            Event::Ended(_) => self.over = true,
            _ => {}
        }
    }

    /// The composer saw a member move, and needs no event to know.
    fn rekey(&mut self, now: Instant, old: Path, new: Path) {
        if self.host.rekey(now, old, new)
            && let Some(name) = self.members.remove(&old)
        {
            self.members.insert(new, name);
        }
    }

    fn check(&self) {
        assert!(self.members.len() <= self.most, "{} members", self.members.len());
        let mut names = BTreeSet::new();
        for (path, name) in &self.members {
            assert!(self.over || self.host.is_member(*path), "{name} is told of and is not in");
            assert!(self.over || self.host.name_of(*path) == Some(name));
            assert!(names.insert(name), "two are called {name}");
            assert!(!name.is_empty() && name.len() <= 255);
        }
        let roster = self.host.roster();
        assert!(roster.players.len() <= self.most);
        let mut letters = BTreeSet::new();
        for (name, player) in &roster.players {
            assert!(letters.insert(&player.letter), "letter {} twice", player.letter);
            assert!((1..=200).contains(&player.company), "{name} in company {}", player.company);
            assert!(player.stage.chars().count() <= 80);
            assert!(!player.links.contains(player.slot), "{name} linked with itself");
            assert_eq!(roster.names(player.links).count(), player.links.len(), "{name} linked with an empty seat");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let bits = script.byte();
    let most = [1, 2, 5, 24][usize::from(bits >> 6)];
    let config = HostConfig {
        version: "0.7.1.4".to_owned(),
        name: "Hosty".to_owned(),
        lobby_name: "x".to_owned(),
        relay_only: bits & 1 != 0,
        companies: bits & 2 != 0,
        max_players: most,
        extensions: bits & 4 == 0,
        ..HostConfig::default()
    };
    let mut now = Instant::now();
    let host = Host::new(Arc::new(config), [5; 32], now, 1_790_000_000);
    let (memory, most) = (Memory::default(), usize::from(most));
    let mut lobby = Lobby { host, memory, most, members: BTreeMap::new(), over: false };
    let mut deadline = settle(&mut lobby, now);
    while let Some(kind) = script.next_move() {
        match kind % 8 {
            0 | 1 => {
                let from = member(script.below(8));
                let json = lobby.memory.to_host(&mut script);
                let _ = lobby.host.handle_message(now, from, &json);
            }
            2 => {
                let from = member(script.below(8));
                let _ = lobby.host.handle_message(now, from, script.bytes());
            }
            3 => now += script.step(),
            4 => now = deadline.map_or(now, |at| at.max(now)),
            5 => {
                let (a, b) = (member(script.below(8)), member(script.below(8)));
                match script.below(3) {
                    0 => lobby.host.heard(now, a),
                    1 => lobby.host.unknown_member(now, a),
                    _ => lobby.rekey(now, a, b),
                }
            }
            // Whoever composes asks nothing more of a lobby that is over.
            6 if lobby.over => {}
            6 => verb(&mut lobby, now, &mut script),
            _ => crowd(&mut lobby, now, &mut script),
        }
        deadline = settle(&mut lobby, now);
        lobby.check();
    }
});

fn verb(lobby: &mut Lobby, now: Instant, script: &mut Script<'_>) {
    let host = &mut lobby.host;
    match script.below(9) {
        0 => host.chat(now, &script.text()),
        1 => host.start(now, script.flag()),
        2 => {
            let player = script.flag().then(|| plain_name(script));
            let _ = host.company(now, player.as_deref(), script.u32());
        }
        3 => host.mode(now, if script.flag() { Mode::Coop } else { Mode::Companies }),
        4 => host.stage(now, &script.text()),
        5 => host.note(now, &script.text()),
        6 => host.rename(now, &plain_name(script)),
        7 => {
            host.kick(now, &plain_name(script), "out");
        }
        _ if script.byte().is_multiple_of(8) => host.close(now),
        _ => {}
    }
}

/// Many at once, from places of their own, under names that differ or not.
fn crowd(lobby: &mut Lobby, now: Instant, script: &mut Script<'_>) {
    let (count, same) = (script.byte(), script.flag());
    // Filling a lobby is slow, so it is done seldom.
    let count = if count == 251 { 30 } else { usize::from(count % 5) };
    for n in 0..count {
        let name = if same { "crowd".to_owned() } else { format!("crowd{n}") };
        let json = format!(r#"{{"t": "join", "version": "0.7.1.4", "name": "{name}", "mesh": true}}"#);
        let _ = lobby.host.handle_message(now, member(10 + n), json.as_bytes());
    }
}
