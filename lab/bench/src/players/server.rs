//! The servers under measurement.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use np1::{HEADER, Kind};
use seal::{OVERHEAD, SessionKey};
use session::{Command, Event, GameSide};

use super::{FRAME, TICK};
use crate::child::{answer, orders};
use crate::plain::Rival;
use crate::{cpu_seconds, lobbies, memory};

#[derive(Default)]
struct State {
    playing: AtomicBool,
    frames: AtomicU64,
}

impl State {
    /// Obeys the parent; `frames` counts what arrived.
    fn obey(&self, frames: impl Fn() -> u64) {
        for order in orders() {
            match order.as_str() {
                "play" => self.playing.store(true, Ordering::Relaxed),
                "pause" => self.playing.store(false, Ordering::Relaxed),
                "memory" => answer(&memory()),
                "cpu" => answer(&cpu_seconds()),
                _ => answer(&frames()),
            }
        }
    }

    fn tick(&self, mut each: impl FnMut()) {
        let mut due = Instant::now();
        loop {
            due += TICK;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.playing.load(Ordering::Relaxed) {
                each();
            }
        }
    }
}

/// A host. Answers with its address; the game behind a socket sends to the port in the second line.
pub(crate) fn host(args: &[String]) {
    let game = lobbies::game(&args[0]);
    let handle = driver::spawn(lobbies::host(game)).expect("a host");
    lobbies::code(&handle);
    answer(&SocketAddr::from(([127, 0, 0, 1], handle.facts().local.port)));
    if game != GameSide::Inside {
        answer(&SocketAddr::from(([127, 0, 0, 1], handle.facts().relay_port.expect("a relay port"))));
    }
    let state = State::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !handle.is_over() {
                if let Some(Event::Frame { .. }) = handle.event_timeout(Duration::from_secs(1)) {
                    state.frames.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        if game == GameSide::Inside {
            scope.spawn(|| {
                state.tick(|| {
                    let _full = handle.command(Command::Frame(Bytes::from(vec![7; FRAME])));
                });
            });
        }
        state.obey(|| state.frames.load(Ordering::Relaxed));
        std::process::exit(0);
    });
}

/// The bare server. Answers with its address.
pub(crate) fn fan_out(args: &[String]) {
    let sealed = args[0] == "sealed";
    let socket = lobbies::socket();
    answer(&socket.local_addr().expect("an address"));
    let (state, players) = (State::default(), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        scope.spawn(|| take(&socket, &state, &players, sealed));
        scope.spawn(|| {
            let mut rival = rival();
            let mut packet = vec![b'E'; HEADER + OVERHEAD + 1 + FRAME];
            packet[..HEADER].copy_from_slice(&np1::header(Kind::Sealed));
            state.tick(|| {
                if sealed {
                    rival.seal(&[b'g'; 1 + FRAME], &mut packet[HEADER..]);
                }
                for player in players.lock().expect("a lock").iter() {
                    let _full = socket.send_to(&packet, player);
                }
            });
        });
        state.obey(|| state.frames.load(Ordering::Relaxed));
        std::process::exit(0);
    });
}

fn take(socket: &UdpSocket, state: &State, players: &Mutex<Vec<SocketAddr>>, sealed: bool) {
    let (mut rival, mut known, mut buffer) = (rival(), HashSet::new(), [0; 2048]);
    loop {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        if sealed && !(len > HEADER + OVERHEAD && rival.open(&mut buffer[HEADER..len])) {
            continue;
        }
        if known.insert(from) {
            players.lock().expect("a lock").push(from);
        }
        state.frames.fetch_add(1, Ordering::Relaxed);
    }
}

/// The format as one writes it down, over the key of the lobbies here.
pub(super) fn rival() -> Rival {
    Rival::new(&SessionKey::derive(&lobbies::SECRET, ""), false)
}
