//! A whole host, fed what players and strangers send.

#![no_main]

use std::time::Instant;

use anywire_fuzz::Script;
use anywire_fuzz::world::{SECRET, World, bridge};
use libfuzzer_sys::fuzz_target;
use session::{GameSide, HostConfig, Local, Session, StunServer};

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let bits = script.byte();
    let config = HostConfig {
        lobby_name: "x".to_owned(),
        relay_only: bits & 1 != 0,
        companies: bits & 2 != 0,
        game: if bits & 4 == 0 { GameSide::Loopback { bridge: bridge().remote } } else { GameSide::Inside },
        local: Local { port: 29_471, lan: Some([192, 168, 1, 20].into()), vpn: [None; 2], v6: None },
        stun: if bits & 8 == 0 { vec![] } else { vec![StunServer { host: "s".to_owned(), port: 3478 }; 2] },
        max_players: 6,
        impair: (bits & 16 != 0).then(|| "loss=0.1\ndelay=0.05\njitter=0.05\nseed=1".parse().unwrap_or_default()),
        extensions: bits & 32 == 0,
        rendezvous: (bits & 128 != 0).then(|| "https://master.example".to_owned()),
        guess: bits & 64 != 0,
        ..HostConfig::new("Hosty", SECRET)
    };
    let now = Instant::now();
    World::new(Session::host(config, [1; 32], now, 1_790_000_000), true, now).play(&mut script);
});
