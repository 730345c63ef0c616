//! One frame per datagram between two endpoints on two processors: sealed sessions against plain UDP.
//!
//! This process sends, a second one receives and counts. Sessions run as a program runs them: the game's thread hands
//! frames to the network thread, which seals them into its send batch; at the other end they are received in batches,
//! opened in place and handed to the game's thread.

use std::time::Duration;

use bytes::Bytes;
use driver::{CommandError, Handle};
use session::{Command, Event, GameSide};

use crate::blast::{Flow, Plain, Sink, Way, blast};
use crate::child::{Child, answer, orders};
use crate::{Table, cpu_seconds, load, lobbies, machine, median};

const RUNS: usize = 5;
const SIZES: [usize; 2] = [100, 1_200];
/// Frames per second wanted at these sizes.
const WANTED: [f64; 2] = [200e3, 95e3];
const BLAST: Duration = Duration::from_secs(1);
const WAYS: [&str; 2] = ["plain UDP, sendto and recvfrom", "sealed, session to session"];

/// One contestant's runs at one size.
#[derive(Default)]
struct Runs {
    flows: Vec<Flow>,
    /// Processor time per frame that arrived, in microseconds: sender, receiver.
    cpu: [Vec<f64>; 2],
}

/// Measures, and says so in Markdown.
#[must_use]
pub fn report() -> String {
    let before = machine();
    let mut stub = Child::start("stub", &[]);
    let mut plain = Plain::new(lobbies::socket(), stub.value());
    let host = driver::spawn(lobbies::host(GameSide::Inside)).expect("a host");
    let mut join = Child::start("frames-join", &[&lobbies::code(&host)]);
    join.line();
    let mut sealed = Sealed { handle: &host };

    let mut runs: [[Runs; 2]; 2] = Default::default();
    let mut number = 0;
    for _ in 0..RUNS {
        for (runs, size) in runs.iter_mut().zip(SIZES) {
            number += 1;
            run(&mut runs[0], &mut plain, &mut stub, number, size);
            run(&mut runs[1], &mut sealed, &mut join, number, size);
        }
    }
    drop(join);
    let _over = host.command(Command::Quit);
    host.join();
    format!(
        "{before}\n{RUNS} interleaved runs of {BLAST:?}, medians; at most 1,024 frames under way\n\n{}\n\n\
         Target: 200 k/s at 100 bytes and 95 k/s at 1,200 bytes, or 60 % of plain UDP.\n\nload afterwards: {:.2?}",
        table(&runs),
        load()
    )
}

fn run(runs: &mut Runs, way: &mut impl Way, far: &mut Child, number: u32, size: usize) {
    let before = [cpu_seconds(), far.ask("cpu")];
    let flow = blast(way, number, size, BLAST);
    let after = [cpu_seconds(), far.ask("cpu")];
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    for ((cpu, after), before) in runs.cpu.iter_mut().zip(after).zip(before) {
        cpu.push((after - before) * 1e6 / flow.arrived as f64);
    }
    runs.flows.push(flow);
}

fn table(runs: &[[Runs; 2]; 2]) -> Table {
    let mut table = Table::new(&[
        "",
        ">bytes",
        ">frames/s",
        ">of wanted",
        ">of plain UDP",
        ">us of processor, sender",
        ">receiver",
        ">lost",
    ]);
    for ((runs, size), wanted) in runs.iter().zip(SIZES).zip(WANTED) {
        for (name, way) in WAYS.iter().zip(runs) {
            let rate = median(&way.flows.iter().map(|flow| flow.rate).collect::<Vec<_>>());
            let of = way.flows.iter().zip(&runs[0].flows).map(|(a, b)| a.rate / b.rate);
            let lost = median(&way.flows.iter().map(|flow| flow.lost).collect::<Vec<_>>());
            table.row(&[
                name,
                &size,
                &format!("{rate:.0}"),
                &format!("{:.2}", rate / wanted),
                &format!("{:.2}", median(&of.collect::<Vec<_>>())),
                &format!("{:.2}", median(&way.cpu[0])),
                &format!("{:.2}", median(&way.cpu[1])),
                &format!("{:.2} %", lost * 100.0),
            ]);
        }
    }
    table
}

/// A session with the game in this process.
struct Sealed<'a> {
    handle: &'a Handle,
}

impl Way for Sealed<'_> {
    fn send(&mut self, frame: &[u8]) {
        let mut command = Command::Frame(Bytes::copy_from_slice(frame));
        while let Err(error) = self.handle.command(command) {
            assert_eq!(error, CommandError::Full, "the lobby is over");
            std::thread::yield_now();
            command = Command::Frame(Bytes::copy_from_slice(frame));
        }
    }

    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(&[u8])) {
        let mut any = false;
        while let Some(event) = self.handle.try_event() {
            if let Event::Frame { data, .. } = event {
                any = true;
                each(&data);
            }
        }
        if !any
            && !wait.is_zero()
            && let Some(Event::Frame { data, .. }) = self.handle.event_timeout(wait)
        {
            each(&data);
        }
    }
}

/// The receiving session.
pub(crate) fn join(args: &[String]) {
    let handle = driver::spawn(lobbies::join(&args[0], GameSide::Inside)).expect("a joiner");
    lobbies::connected(&handle);
    answer(&"connected");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sink = Sink::default();
            while !handle.is_over() {
                if let Some(Event::Frame { data, .. }) = handle.event_timeout(Duration::from_secs(1))
                    && let Some(answer) = sink.take(&data)
                {
                    let _full = handle.command(Command::Frame(answer.into()));
                }
            }
        });
        orders().for_each(|_| answer(&cpu_seconds()));
        let _over = handle.command(Command::Quit);
    });
}
