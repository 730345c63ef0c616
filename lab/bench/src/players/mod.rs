//! A host with 200 players: what each costs in memory, and what their frames cost on the processor.
//!
//! One process plays 199 joiners, each with a socket of its own, the real lobby machine and real seals; the host is a
//! process of its own and is measured alone. Beside it runs the least a server for this traffic could be: a loop over
//! `recvfrom` that opens each frame with the plain hash crates, and a thread that seals a frame 20 times a second and
//! sends it to everybody.

mod crowd;
mod server;

use std::time::{Duration, Instant};

use crate::child::Child;
use crate::{Table, load, lobbies, machine, median};
use crowd::{Crowd, Talk};
pub(crate) use server::{fan_out, host};

/// Joiners; with the host, that makes the most a lobby takes.
const JOINERS: usize = 199;
/// One frame per joiner and one of the host for everybody, this often.
const TICK: Duration = Duration::from_millis(50);
const FRAME: usize = 100;
const RUNS: usize = 5;
const PLAY: Duration = Duration::from_secs(3);
const WARM: Duration = Duration::from_millis(500);
/// How long a lobby is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// A server under measurement, and its players.
struct Contestant {
    name: &'static str,
    server: Child,
    crowd: Crowd,
    /// Share of one processor, one entry per run.
    cpu: Vec<f64>,
    /// Datagrams in and out per second, likewise.
    rate: [Vec<f64>; 2],
}

impl Contestant {
    fn new(name: &'static str, mut server: Child, talk: Talk) -> Self {
        let crowd = Crowd::new(&mut server, talk);
        Self { name, server, crowd, cpu: Vec::new(), rate: Default::default() }
    }
}

/// Measures, and says so in Markdown.
///
/// # Panics
/// When a lobby does not come up.
#[must_use]
pub fn report() -> String {
    let before = machine();
    let game = lobbies::socket();
    let mut inside = Contestant::new(
        "anywire host, game in its process",
        Child::start("players-host", &[&"inside"]),
        Talk::Lobby { game: None },
    );
    let memory = memory(&mut inside);
    let address = game.local_addr().expect("an address");
    let mut contestants = vec![
        inside,
        Contestant::new(
            "anywire host, game behind a socket",
            Child::start("players-host", &[&address]),
            Talk::Lobby { game: Some(game) },
        ),
        Contestant::new("bare fan-out, sha2 + hmac", Child::start("fan-out", &[&"sealed"]), Talk::Sealed),
        Contestant::new("bare fan-out, nothing sealed", Child::start("fan-out", &[&"clear"]), Talk::Clear),
    ];
    settle(&mut contestants);
    for _ in 0..RUNS {
        for turn in 0..contestants.len() {
            play(&mut contestants, turn);
        }
    }
    format!(
        "{before}\n\n{memory}\n\n{RUNS} interleaved runs of {PLAY:?}, medians; {JOINERS} joiners send a {FRAME}-byte \
         frame every {TICK:?}, spread evenly, and the host sends one to everybody as often\n\n{}\n\n\
         load afterwards: {:.2?}",
        processor(&contestants),
        load()
    )
}

/// Fills the lobby and says what that costs in memory.
fn memory(lobby: &mut Contestant) -> String {
    let start: u64 = lobby.server.ask("memory");
    fill(lobby);
    turn(std::slice::from_mut(lobby), None, SETTLE);
    let joined: u64 = lobby.server.ask("memory");
    lobby.crowd.mesh(Instant::now());
    turn(std::slice::from_mut(lobby), None, SETTLE * 2);
    let meshed: u64 = lobby.server.ask("memory");
    let mut table = Table::new(&["host process", ">resident KiB", ">KiB per player more"]);
    let players = JOINERS as u64;
    table.row(&[&"alone", &(start >> 10), &"-"]);
    for (name, now) in [("with 199 joiners", joined), ("each linked with every other", meshed)] {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = now.saturating_sub(start) as f64 / players as f64 / 1024.0;
        table.row(&[&name, &(now >> 10), &format!("{each:.1}")]);
    }
    format!("{table}\n\nTarget: under 64 KiB per player.")
}

fn fill(lobby: &mut Contestant) {
    let until = Instant::now() + lobbies::PATIENCE * 3;
    while !lobby.crowd.is_complete() {
        turn(std::slice::from_mut(lobby), None, Duration::from_millis(50));
        assert!(Instant::now() < until, "{}: {}", lobby.name, lobby.crowd.progress());
    }
}

fn settle(contestants: &mut [Contestant]) {
    let until = Instant::now() + lobbies::PATIENCE * 3;
    while !contestants.iter().all(|each| each.crowd.is_complete()) {
        turn(contestants, None, Duration::from_millis(50));
        assert!(Instant::now() < until, "the other lobby did not fill");
    }
    turn(contestants, None, SETTLE);
}

/// One run of one contestant; the others only stay in their lobbies.
fn play(contestants: &mut [Contestant], number: usize) {
    contestants[number].server.order("play");
    turn(contestants, Some(number), WARM);
    let read = |each: &mut Contestant| {
        let (cpu, counted) = (each.server.ask::<f64>("cpu"), each.server.ask::<u64>("frames"));
        (cpu, each.crowd.delivered.unwrap_or(counted), each.crowd.frames, Instant::now())
    };
    let before = read(&mut contestants[number]);
    turn(contestants, Some(number), PLAY);
    let after = read(&mut contestants[number]);
    contestants[number].server.order("pause");
    let took = after.3.duration_since(before.3).as_secs_f64();
    let each = &mut contestants[number];
    each.cpu.push((after.0 - before.0) / took);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    for (rates, count) in each.rate.iter_mut().zip([after.1 - before.1, after.2 - before.2]) {
        rates.push(count as f64 / took);
    }
}

/// Lets all crowds live for `time`; the one of number `playing` sends frames.
fn turn(contestants: &mut [Contestant], playing: Option<usize>, time: Duration) {
    let start = Instant::now();
    if let Some(number) = playing {
        contestants[number].crowd.begin(start);
    }
    let mut others = start;
    while start.elapsed() < time {
        let now = Instant::now();
        if let Some(number) = playing {
            contestants[number].crowd.play(now);
        }
        let all = now >= others;
        if all {
            others = now + Duration::from_millis(5);
        }
        for (index, each) in contestants.iter_mut().enumerate() {
            if all || playing == Some(index) {
                each.crowd.turn(now, all);
            }
        }
        std::thread::sleep(Duration::from_micros(60));
    }
}

fn processor(contestants: &[Contestant]) -> Table {
    let mut table = Table::new(&[
        "server process",
        ">% of a processor",
        ">us per datagram",
        ">of the sealed bare one",
        ">frames in/s",
        ">copies out/s",
    ]);
    for each in contestants {
        let of: Vec<f64> = each.cpu.iter().zip(&contestants[2].cpu).map(|(a, b)| a / b).collect();
        let datagrams = each.rate[0].iter().zip(&each.rate[1]).map(|(a, b)| a + b);
        let per: Vec<f64> = each.cpu.iter().zip(datagrams).map(|(cpu, count)| cpu * 1e6 / count).collect();
        table.row(&[
            &each.name,
            &format!("{:.1}", median(&each.cpu) * 100.0),
            &format!("{:.2}", median(&per)),
            &format!("{:.2}", median(&of)),
            &format!("{:.0}", median(&each.rate[0])),
            &format!("{:.0}", median(&each.rate[1])),
        ]);
    }
    table
}
