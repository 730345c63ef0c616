//! Two lobby processes between two games: what they add to a frame's way, and how many frames get through.
//!
//! ```text
//! direct       game ------------------------------- game
//! forwarders   game --- forwarder --- forwarder --- game      the simplest loop: recvfrom, sendto
//! lobbies      game --- host -------- joiner ------ game      each seals or opens, admits, routes
//! ```

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use driver::Handle;
use session::Command;

use crate::blast::{Flow, Plain, Sink, Way, blast};
use crate::child::{Child, answer, orders};
use crate::{Table, cpu_seconds, load, lobbies, machine, median};

const RUNS: usize = 5;
/// Round trips per contestant and run, and before the first that counts.
const PINGS: usize = 2_000;
const WARM: usize = 200;
const PING: usize = 100;
const LOST_AFTER: Duration = Duration::from_millis(200);
const SIZES: [usize; 2] = [100, 1_200];
const BLAST: Duration = Duration::from_millis(500);

const WAYS: [&str; 3] = ["direct", "two bare forwarders", "two lobbies"];

/// Round trips, one entry per run, in microseconds.
#[derive(Default)]
struct Trips {
    p50: Vec<f64>,
    p99: Vec<f64>,
    lost: usize,
}

/// Measures, and says so in Markdown.
#[must_use]
pub fn report() -> String {
    let before = machine();
    let mut far = Child::start("stub", &[]);
    let far: (SocketAddr, Child) = (far.value(), far);
    let socket = lobbies::socket();
    let near = socket.local_addr().expect("an address");

    let mut forwarders = [Child::start("forwarder", &[]), Child::start("forwarder", &[])];
    let [left, right]: [SocketAddr; 2] = [forwarders[0].value(), forwarders[1].value()];
    forwarders[0].order(&format!("{near} {right}"));
    forwarders[1].order(&format!("{left} {}", far.0));

    let mut host = Child::start("lobby-host", &[&near]);
    let (code, relay) = (host.line(), host.value());
    let mut join = Child::start("lobby-join", &[&code, &far.0]);
    let _relay: SocketAddr = join.value();

    let targets = [far.0, left, relay];
    let mut way = Plain::new(socket, far.0);
    let mut trips: [Trips; 3] = Default::default();
    let mut flows: [[Vec<Flow>; 3]; 2] = Default::default();
    let mut number = 0;
    for _ in 0..RUNS {
        for (trips, to) in trips.iter_mut().zip(targets) {
            way.to = to;
            ping(&mut way, &mut number, trips);
        }
        for (flows, size) in flows.iter_mut().zip(SIZES) {
            for (flows, to) in flows.iter_mut().zip(targets) {
                way.to = to;
                number += 1;
                flows.push(blast(&mut way, u32::try_from(number).unwrap_or(u32::MAX), size, BLAST));
            }
        }
    }
    format!(
        "{before}\n{RUNS} interleaved runs, medians; per run and way {PINGS} round trips of {PING}-byte frames, one at \
         a time, and {BLAST:?} of frames with at most 1,024 under way\n\n{}\n\n{}\n\nload afterwards: {:.2?}",
        latency(&trips),
        throughput(&flows),
        load()
    )
}

fn latency(trips: &[Trips; 3]) -> String {
    let mut table = Table::new(&[
        "between two games",
        ">p50 us, there and back",
        ">p99 us",
        ">us per hop, one way",
        ">times a bare forwarder",
        ">lost",
    ]);
    let [direct, bare, _] = trips;
    // Two hops, passed twice in a round trip.
    let hops = |of: &Trips| -> Vec<f64> { of.p50.iter().zip(&direct.p50).map(|(a, b)| (a - b) / 4.0).collect() };
    let bare = hops(bare);
    for (name, way) in WAYS.iter().zip(trips) {
        let hops = hops(way);
        let ratio = median(&hops.iter().zip(&bare).map(|(a, b)| a / b).collect::<Vec<_>>());
        let (hop, ratio) = match *name {
            "direct" => ("-".to_owned(), "-".to_owned()),
            _ => (format!("{:.1}", median(&hops)), format!("{ratio:.2}")),
        };
        let (p50, p99) = (format!("{:.1}", median(&way.p50)), format!("{:.1}", median(&way.p99)));
        table.row(&[name, &p50, &p99, &hop, &ratio, &way.lost]);
    }
    format!("{table}\n\nTarget: at most 2.00 times a bare forwarder.")
}

fn throughput(flows: &[[Vec<Flow>; 3]; 2]) -> Table {
    let mut table = Table::new(&["between two games", ">bytes", ">frames/s", ">of direct", ">lost"]);
    for (flows, size) in flows.iter().zip(SIZES) {
        for (name, way) in WAYS.iter().zip(flows) {
            let rates = |flows: &[Flow]| -> Vec<f64> { flows.iter().map(|flow| flow.rate).collect() };
            let of: Vec<f64> = way.iter().zip(&flows[0]).map(|(a, b)| a.rate / b.rate).collect();
            let lost = median(&way.iter().map(|flow| flow.lost).collect::<Vec<_>>());
            table.row(&[
                name,
                &size,
                &format!("{:.0}", median(&rates(way))),
                &format!("{:.2}", median(&of)),
                &format!("{:.2} %", lost * 100.0),
            ]);
        }
    }
    table
}

/// One run of round trips.
fn ping(way: &mut Plain, number: &mut u64, trips: &mut Trips) {
    let mut frame = vec![b'P'; PING];
    let mut times = Vec::with_capacity(PINGS);
    for round in 0..WARM + PINGS {
        *number += 1;
        frame[1..9].copy_from_slice(&number.to_be_bytes());
        let start = Instant::now();
        way.send(&frame);
        let mut back = false;
        while !back && start.elapsed() < LOST_AFTER {
            way.next(LOST_AFTER, &mut |answer| back |= answer == frame);
        }
        match (round >= WARM, back) {
            (true, true) => times.push(start.elapsed().as_secs_f64() * 1e6),
            (true, false) => trips.lost += 1,
            (false, _) => {}
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or(f64::NAN);
    trips.p50.push(at(50));
    trips.p99.push(at(99));
}

/// A game: sends a ping back to where it came from and acknowledges a blast.
pub(crate) fn stub() {
    let socket = lobbies::socket();
    answer(&socket.local_addr().expect("an address"));
    thread::spawn(move || {
        let (mut sink, mut buffer) = (Sink::default(), [0; 2048]);
        loop {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            let frame = &buffer[..len];
            // A game that is gone is nobody's loss.
            let _sent = match frame.first() {
                Some(b'P') => socket.send_to(frame, from),
                _ => sink.take(frame).map_or(Ok(0), |answer| socket.send_to(&answer, from)),
            };
        }
    });
    orders().for_each(|_| answer(&cpu_seconds()));
}

/// The bare forwarder: one blocking socket between two addresses.
pub(crate) fn forwarder() {
    let socket = lobbies::socket();
    answer(&socket.local_addr().expect("an address"));
    let mut orders = orders();
    let line = orders.next().unwrap_or_default();
    let (left, right) = line.split_once(' ').expect("two addresses");
    let (left, right): (SocketAddr, SocketAddr) = (left.parse().expect("one"), right.parse().expect("another"));
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            let _sent = socket.send_to(&buffer[..len], if from == left { right } else { left });
        }
    });
    orders.for_each(drop);
}

/// A host in front of the game at the bridge's address; answers with its code and where the game sends to.
pub(crate) fn host(args: &[String]) {
    let handle = driver::spawn(lobbies::host(lobbies::game(&args[0]))).expect("a host");
    answer(&lobbies::code(&handle));
    serve(&handle);
}

/// A joiner, likewise; answers when it is in the lobby.
pub(crate) fn join(args: &[String]) {
    let handle = driver::spawn(lobbies::join(&args[0], lobbies::game(&args[1]))).expect("a joiner");
    lobbies::connected(&handle);
    serve(&handle);
}

fn serve(handle: &Handle) {
    answer(&SocketAddr::from(([127, 0, 0, 1], handle.facts().relay_port.expect("a relay port"))));
    thread::scope(|scope| {
        scope.spawn(|| while handle.event_timeout(Duration::from_secs(1)).is_some() || !handle.is_over() {});
        orders().for_each(drop);
        let _over = handle.command(Command::Quit);
    });
}
