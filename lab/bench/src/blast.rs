//! As many frames as a way carries, without flooding it: at most a window of them is under way.
//!
//! A frame is `F`, the run's number, its own number and padding. The receiver answers every 32nd with `A`, the run, how
//! many came and the highest number seen; what is not acknowledged counts for nothing.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Frames under way at most: their buffers fit into 4 MiB at every size measured.
const WINDOW: u64 = 1024;
/// Frames per acknowledgement.
const EVERY: u64 = 32;
/// After this long without a word, what is under way is lost.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// A way for frames.
pub(crate) trait Way {
    /// Sends one frame.
    fn send(&mut self, frame: &[u8]);
    /// Gives what came to `each`, and waits so long for something to come.
    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(&[u8]));
}

/// What came of a blast.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// Frames that arrived, per second.
    pub(crate) rate: f64,
    /// Share of the frames sent that did not.
    pub(crate) lost: f64,
    /// Frames that arrived.
    pub(crate) arrived: u64,
}

/// Sends frames of `size` bytes for `time`.
pub(crate) fn blast(way: &mut impl Way, run: u32, size: usize, time: Duration) -> Flow {
    let mut frame = vec![b'F'; size.max(13)];
    frame[1..5].copy_from_slice(&run.to_be_bytes());
    // What is given up for lost opens the window as well as what was seen, but may come after all.
    let (mut sent, mut open, mut seen, mut arrived) = (0_u64, 0, 0, 0);
    let start = Instant::now();
    let mut last = start;
    loop {
        let full = sent - open >= WINDOW;
        if full || sent.is_multiple_of(EVERY) {
            let before = seen;
            way.receive(if full { LOST_AFTER } else { Duration::ZERO }, &mut |answer| {
                if let Some((count, highest)) = acknowledgement(answer, run) {
                    (arrived, seen) = (arrived.max(count), seen.max(highest));
                    last = Instant::now();
                }
            });
            open = if full && seen == before { sent } else { open.max(seen) };
            if start.elapsed() >= time {
                break;
            }
        }
        if sent - open < WINDOW {
            sent += 1;
            frame[5..13].copy_from_slice(&sent.to_be_bytes());
            way.send(&frame);
        }
    }
    // What is under way when the time is over is neither here nor lost.
    let settled = seen.max(1);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    Flow {
        rate: arrived as f64 / last.saturating_duration_since(start).as_secs_f64().max(1e-9),
        lost: 1.0 - (arrived as f64 / settled as f64).min(1.0),
        arrived,
    }
}

fn acknowledgement(answer: &[u8], run: u32) -> Option<(u64, u64)> {
    let (head, rest) = answer.split_first_chunk::<5>()?;
    if head[0] != b'A' || head[1..] != run.to_be_bytes() {
        return None;
    }
    let (count, rest) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*count), u64::from_be_bytes(*rest.first_chunk()?)))
}

/// The receiver of a blast.
#[derive(Default)]
pub(crate) struct Sink {
    run: u32,
    count: u64,
    highest: u64,
}

impl Sink {
    /// Takes a frame; answers with what to send back.
    pub(crate) fn take(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (head, rest) = frame.split_first_chunk::<5>()?;
        let number = u64::from_be_bytes(*rest.first_chunk()?);
        let run = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        if head[0] != b'F' || run < self.run {
            return None;
        }
        if run > self.run {
            *self = Self { run, ..Self::default() };
        }
        self.count += 1;
        self.highest = self.highest.max(number);
        self.count
            .is_multiple_of(EVERY)
            .then(|| [&[b'A'][..], &run.to_be_bytes(), &self.count.to_be_bytes(), &self.highest.to_be_bytes()].concat())
    }
}

/// Plain UDP, one call per datagram.
pub(crate) struct Plain {
    socket: UdpSocket,
    pub(crate) to: SocketAddr,
    buffer: [u8; 2048],
    wait: Option<Duration>,
}

impl Plain {
    pub(crate) fn new(socket: UdpSocket, to: SocketAddr) -> Self {
        Self { socket, to, buffer: [0; 2048], wait: None }
    }

    /// Waits for one datagram.
    pub(crate) fn next(&mut self, wait: Duration, each: &mut dyn FnMut(&[u8])) {
        if self.wait != Some(wait) {
            self.socket.set_read_timeout(Some(wait)).expect("a socket option");
            self.wait = Some(wait);
        }
        if let Ok((len, _)) = self.socket.recv_from(&mut self.buffer) {
            each(&self.buffer[..len]);
        }
    }
}

impl Way for Plain {
    fn send(&mut self, frame: &[u8]) {
        self.socket.send_to(frame, self.to).expect("loopback takes datagrams");
    }

    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(&[u8])) {
        self.socket.set_nonblocking(true).expect("a socket option");
        let mut any = false;
        while let Ok((len, _)) = self.socket.recv_from(&mut self.buffer) {
            any = true;
            each(&self.buffer[..len]);
        }
        self.socket.set_nonblocking(false).expect("a socket option");
        if !any && !wait.is_zero() {
            self.next(wait, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every third frame is lost, every answer comes at once.
    #[derive(Default)]
    struct Lossy {
        sink: Sink,
        sent: u64,
        answers: Vec<Vec<u8>>,
    }

    impl Way for Lossy {
        fn send(&mut self, frame: &[u8]) {
            self.sent += 1;
            if !self.sent.is_multiple_of(3) {
                self.answers.extend(self.sink.take(frame));
            }
        }

        fn receive(&mut self, _wait: Duration, each: &mut dyn FnMut(&[u8])) {
            self.answers.drain(..).for_each(|answer| each(&answer));
        }
    }

    #[test]
    fn a_blast_counts_what_arrived_and_what_did_not() {
        let mut way = Lossy::default();
        for run in 1..=2 {
            way.sent = 0;
            let flow = blast(&mut way, run, 100, Duration::from_millis(20));
            assert!((flow.lost - 1.0 / 3.0).abs() < 0.05, "{flow:?}");
            assert!(flow.arrived > 100 && flow.arrived <= way.sent * 2 / 3 && flow.rate > 0.0);
        }
    }

    #[test]
    fn a_late_answer_of_an_earlier_run_is_no_answer() {
        let mut sink = Sink::default();
        let frame = |run: u32| [&[b'F'][..], &run.to_be_bytes(), &1_u64.to_be_bytes()].concat();
        let answers: Vec<_> = (0..EVERY).filter_map(|_| sink.take(&frame(7))).collect();
        assert_eq!(acknowledgement(&answers[0], 7), Some((EVERY, 1)));
        assert_eq!(acknowledgement(&answers[0], 8), None);
        assert_eq!(sink.take(&frame(6)), None);
    }
}
