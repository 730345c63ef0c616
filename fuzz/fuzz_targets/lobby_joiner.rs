//! A joiner's lobby against a host that says anything.

#![no_main]

use std::sync::Arc;
use std::time::Instant;

use anywire_fuzz::words::{Memory, plain_name};
use anywire_fuzz::{Machine, Script, member, settle};
use libfuzzer_sys::fuzz_target;
use lobby::{Event, JoinConfig, Joiner, Mode};

struct Lobby {
    joiner: Joiner,
    memory: Memory,
    over: bool,
}

impl Machine for Lobby {
    fn drain(&mut self, _now: Instant) -> usize {
        let mut count = 0;
        while let Some((_, json)) = self.joiner.poll_message() {
            assert!(json.len() <= np1::MESSAGE_MAX);
            self.memory.learn(&json);
            count += 1;
        }
        while let Some(event) = self.joiner.poll_event() {
            assert!(!self.over, "{event:?} after the end");
            self.over = matches!(event, Event::Ended(_));
            count += 1;
        }
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.joiner.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.joiner.handle_timeout(now);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let bits = script.byte();
    let config = JoinConfig {
        version: "0.7.1.4".to_owned(),
        name: "Al".to_owned(),
        mesh: bits & 1 == 0,
        profile: (bits & 2 != 0).then(|| "ABVLCO4A".to_owned()),
        stray_password: bits & 4 != 0,
        extensions: bits & 8 == 0,
    };
    let mut now = Instant::now();
    let joiner = Joiner::new(Arc::new(config), [6; 32], now);
    let mut lobby = Lobby { joiner, memory: Memory::default(), over: false };
    if bits & 16 == 0 {
        lobby.joiner.connected(now, member(0));
    }
    let mut deadline = settle(&mut lobby, now);
    while let Some(kind) = script.next_move() {
        match kind % 8 {
            0 | 1 => {
                let json = lobby.memory.to_joiner(&mut script);
                let _ = lobby.joiner.handle_message(now, member(usize::from(kind >> 3) % 7 / 6), &json);
            }
            2 => {
                let from = member(script.below(2));
                let _ = lobby.joiner.handle_message(now, from, script.bytes());
            }
            3 => now += script.step(),
            4 => now = deadline.map_or(now, |at| at.max(now)),
            5 => place(&mut lobby.joiner, now, &mut script),
            // Whoever composes asks nothing more of a lobby that is over.
            _ if !lobby.over => verb(&mut lobby.joiner, now, &mut script),
            _ => {}
        }
        deadline = settle(&mut lobby, now);
        let roster = lobby.joiner.roster();
        assert!(roster.players.len() <= 256, "{} players", roster.players.len());
        assert!(!lobby.over || deadline.is_none(), "wants to be called after its end");
    }
});

/// Where the host is.
fn place(joiner: &mut Joiner, now: Instant, script: &mut Script<'_>) {
    let (a, b) = (member(script.below(3)), member(script.below(3)));
    match script.below(5) {
        0 => joiner.connected(now, a),
        1 => joiner.disconnected(now),
        2 => joiner.heard(now, a),
        3 => {
            joiner.rekey(now, a, b);
        }
        _ => {
            let _ = joiner.handle_plain_reject(now, a, &script.text());
        }
    }
}

fn verb(joiner: &mut Joiner, now: Instant, script: &mut Script<'_>) {
    match script.below(11) {
        0 => joiner.chat(now, &script.text()),
        1 => joiner.start(now),
        2 => {
            let player = script.flag().then(|| plain_name(script));
            joiner.company(now, player.as_deref(), script.u32());
        }
        3 => joiner.mode(now, if script.flag() { Mode::Coop } else { Mode::Companies }),
        4 => joiner.stage(now, &script.text()),
        5 => joiner.note(now, &script.text()),
        6 => joiner.rename(now, &plain_name(script)),
        7 => joiner.log(now, (0..script.byte()).map(|n| format!("line {n}")).collect()),
        8 => joiner.links(now, (0..script.below(4)).map(|_| plain_name(script)).collect()),
        9 => joiner.set_profile(now, script.flag().then(|| "ABVLCO4A".to_owned())),
        _ if script.byte().is_multiple_of(8) => joiner.leave(now),
        _ => {}
    }
}
