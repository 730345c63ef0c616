//! The impairment of what this program really sends.

use std::time::Instant;

use seam::{Dice, Path};

use crate::{Impairment, Link, LinkConfig, Loss, Traffic};

/// A queue between a machine and its sockets that drops and delays as an [`Impairment`] says. Bounded as a [`Link`] is:
/// 16,384 datagrams and 32 MiB, and half a second's worth of bytes waiting for a `rate`.
#[derive(Clone, Debug)]
pub struct Shaper {
    link: Link<(Path, Vec<u8>)>,
}

impl Shaper {
    /// A shaper whose chance comes from the impairment's seed where it names one, else from `seed`.
    #[must_use]
    pub fn new(impairment: &Impairment, seed: [u8; 32]) -> Self {
        let seed = impairment.seed.map_or(seed, |number| {
            let mut seed = [0; 32];
            let (head, _) = seed.split_at_mut(8);
            head.copy_from_slice(&number.to_be_bytes());
            Dice::new(seed).bytes()
        });
        let queue = impairment.rate.map_or(0, |rate| usize::try_from(rate / 16).unwrap_or(usize::MAX));
        let config = LinkConfig {
            loss: if impairment.loss > 0.0 { Loss::Random(impairment.loss) } else { Loss::None },
            delay: impairment.delay,
            jitter: impairment.jitter,
            rate: impairment.rate,
            queue: queue.max(4096),
            ..LinkConfig::default()
        };
        Self { link: Link::new(config, seed) }
    }

    /// Takes a datagram that is to be sent.
    pub fn push(&mut self, now: Instant, path: Path, bytes: Vec<u8>) {
        self.link.push(now, (path, bytes));
    }

    /// The next datagram that is to be put on the wire by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<(Path, Vec<u8>)> {
        self.link.pop(now)
    }

    /// When the next datagram is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.link.poll_timeout().map(|(due, _)| (due, "an impaired datagram leaves"))
    }

    /// What was dropped and what left so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.link.traffic()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seam::SocketId;

    use super::*;

    const PATH: Path =
        Path::new(SocketId(0), std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9));

    fn left(text: &str, seed: u8) -> Vec<(Duration, u8)> {
        let start = Instant::now();
        let mut shaper = Shaper::new(&text.parse().unwrap(), [seed; 32]);
        for n in 0..100 {
            shaper.push(start, PATH, vec![n; 1000]);
        }
        let mut out = Vec::new();
        while let Some((due, _)) = shaper.poll_timeout() {
            while let Some((path, bytes)) = shaper.poll(due) {
                assert_eq!(path, PATH);
                out.push((due - start, bytes[0]));
            }
        }
        out
    }

    #[test]
    fn delay_holds_everything_for_its_time() {
        let out = left("delay=0.1", 1);
        assert_eq!(out.len(), 100);
        assert!(out.iter().all(|(after, _)| *after == Duration::from_millis(100)));
    }

    #[test]
    fn a_named_seed_repeats_a_run_whatever_the_process_drew() {
        let text = "loss=0.3\njitter=0.05\nseed=42";
        assert_eq!(left(text, 1), left(text, 2));
        assert_ne!(left("loss=0.3\njitter=0.05", 1), left("loss=0.3\njitter=0.05", 2));
        assert!((55..85).contains(&left(text, 1).len()));
    }

    #[test]
    fn a_rate_keeps_half_a_second_waiting_at_most() {
        let out = left("rate=800000", 1);
        let (last, _) = out[out.len() - 1];
        assert!((45..=52).contains(&out.len()), "{}", out.len());
        assert!(last <= Duration::from_millis(520), "{last:?}");
    }
}
