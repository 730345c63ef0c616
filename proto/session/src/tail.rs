//! Frames sent a moment ago, to be sent again when the path they went on turns out to be dead.
//!
//! Whatever arrived after all is dropped by the receiver's replay window, so the same sealed bytes may go out twice.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::Path;

/// Datagrams, bytes and time held at most.
const SENT_MAX: usize = 1_024;
const BYTES_MAX: usize = 1 << 20;
const SENT_FOR: Duration = Duration::from_secs(4);

#[derive(Debug)]
struct Sent {
    at: Instant,
    to: Vec<Path>,
    packet: Bytes,
}

/// The newest frames: at most 1,024 of them, 1 MiB and 4 s.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    sent: VecDeque<Sent>,
    bytes: usize,
}

impl Tail {
    /// A frame went out.
    pub(crate) fn sent(&mut self, at: Instant, to: Vec<Path>, packet: Bytes) {
        self.bytes += packet.len();
        self.sent.push_back(Sent { at, to, packet });
        while self.sent.len() > SENT_MAX
            || self.bytes > BYTES_MAX
            || self.sent.front().is_some_and(|sent| at.saturating_duration_since(sent.at) > SENT_FOR)
        {
            let Some(oldest) = self.sent.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.packet.len());
        }
    }

    /// What went to `from` since `since` and not to `to`; from here on it counts as sent to both. Where both are the
    /// same, all that went there.
    pub(crate) fn again(&mut self, since: Instant, from: Path, to: Path) -> Vec<Bytes> {
        let missed =
            |sent: &&mut Sent| sent.at >= since && sent.to.contains(&from) && (from == to || !sent.to.contains(&to));
        self.sent
            .iter_mut()
            .filter(missed)
            .map(|sent| {
                if from != to {
                    sent.to.push(to);
                }
                sent.packet.clone()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam::SocketId;

    fn path(n: u8) -> Path {
        Path::new(SocketId(0), ([10, 0, 0, n], 1).into())
    }

    #[test]
    fn what_the_dead_path_had_is_sent_again_once() {
        let start = Instant::now();
        let mut tail = Tail::default();
        for (ms, to) in [(0, vec![path(1)]), (10, vec![path(2)]), (20, vec![path(1), path(3)]), (30, vec![path(1)])] {
            tail.sent(start + Duration::from_millis(ms), to, Bytes::from(vec![u8::try_from(ms).unwrap()]));
        }
        let since = start + Duration::from_millis(5);
        assert_eq!(tail.again(since, path(1), path(3)), [Bytes::from_static(&[30])]);
        assert!(tail.again(since, path(1), path(3)).is_empty());
    }

    #[test]
    fn it_is_bounded_in_number_bytes_and_time() {
        let start = Instant::now();
        let mut tail = Tail::default();
        for _ in 0..5_000 {
            tail.sent(start, vec![path(1)], Bytes::from_static(&[1]));
        }
        assert_eq!(tail.sent.len(), SENT_MAX);
        for _ in 0..5_000 {
            tail.sent(start, vec![path(1)], Bytes::from(vec![0; 1_400]));
        }
        assert!(tail.bytes <= BYTES_MAX);
        tail.sent(start + SENT_FOR + Duration::from_secs(1), vec![path(1)], Bytes::new());
        assert_eq!((tail.sent.len(), tail.bytes), (1, 0));
    }
}
