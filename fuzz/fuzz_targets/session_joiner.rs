//! A whole joiner, fed what a host, other joiners and strangers send.

#![no_main]

use std::net::SocketAddr;
use std::time::Instant;

use anywire_fuzz::world::{SECRET, World, bridge};
use anywire_fuzz::{Script, remote};
use joincode::{Code, Profile};
use libfuzzer_sys::fuzz_target;
use session::{GameSide, JoinConfig, Local, Session, StunServer};

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let bits = script.byte();
    let v4 = |n| match remote(n) {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    };
    let host =
        Profile { timestamp: 1_790_000_000, lan: v4(0), public: v4(1), secret: Some(SECRET), ..Profile::default() };
    let config = JoinConfig {
        mesh: bits & 1 == 0,
        game: if bits & 4 == 0 { GameSide::Loopback { bridge: bridge().remote } } else { GameSide::Inside },
        local: Local { port: 29_471, lan: Some([192, 168, 1, 20].into()), vpn: [None; 2], v6: None },
        stun: if bits & 8 == 0 { vec![] } else { vec![StunServer { host: "s".to_owned(), port: 3478 }; 2] },
        impair: (bits & 16 != 0).then(|| "loss=0.1\ndelay=0.05\njitter=0.05\nseed=1".parse().unwrap_or_default()),
        extensions: bits & 32 == 0,
        rendezvous: (bits & 128 != 0).then(|| "https://master.example".to_owned()),
        guess: bits & 64 != 0,
        ..JoinConfig::new("Al", Code::Plain(host))
    };
    let now = Instant::now();
    World::new(Session::join(config, [1; 32], now, 1_790_000_000), false, now).play(&mut script);
});
