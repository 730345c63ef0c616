//! The TCP pipe: two connections that name the same pair are joined (netpunch wire, sections 9.7 and 16).

use std::collections::BTreeMap;
use std::time::Instant;

use np1::Role;

use crate::Limits;

/// The first word of a greeting.
pub const PIPE_PREFIX: &str = "TPF2PIPE1";
/// What both ends are told when they are joined.
pub const PIPE_PAIRED: &[u8; 7] = b"PAIRED\n";

/// The greeting of one end of `pair`.
#[must_use]
pub fn pipe_hello(pair: &[u8; 16], role: Role) -> String {
    let letter = match role {
        Role::Host => 'H',
        Role::Joiner => 'J',
    };
    format!("{PIPE_PREFIX} {} {letter}\n", codec::hex(pair))
}

/// Reads a greeting with its newline; anything but the one form is `None`.
#[must_use]
pub fn read_pipe_hello(line: &[u8]) -> Option<([u8; 16], Role)> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (pair, role) = text.strip_prefix(PIPE_PREFIX)?.strip_prefix(' ')?.split_once(' ')?;
    let role = match role {
        "H" => Role::Host,
        "J" => Role::Joiner,
        _ => return None,
    };
    Some((codec::unhex(pair)?.try_into().ok()?, role))
}

/// What becomes of a connection that greeted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Its other end is not there yet. A connection that waited in its place is to be closed.
    Waits {
        /// An earlier connection of the same end.
        instead_of: Option<u64>,
    },
    /// Its other end is this connection.
    Paired(u64),
    /// No room, or no greeting: to be closed.
    Refused,
}

/// Who waits and how many are joined. Connections are numbered by the owner of the sockets.
#[derive(Debug)]
pub struct Pipes {
    limits: Limits,
    waiting: BTreeMap<[u8; 16], Waiting>,
    pairs: usize,
}

#[derive(Debug)]
struct Waiting {
    connection: u64,
    role: Role,
    since: Instant,
}

impl Pipes {
    /// Nobody waits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, waiting: BTreeMap::new(), pairs: 0 }
    }

    /// A connection greeted with `line`.
    pub fn greet(&mut self, now: Instant, connection: u64, line: &[u8]) -> Arrival {
        let Some((pair, role)) = read_pipe_hello(line) else { return Arrival::Refused };
        match self.waiting.remove(&pair) {
            Some(other) if other.role != role => {
                if self.pairs >= self.limits.pipe_pairs {
                    self.waiting.insert(pair, other);
                    return Arrival::Refused;
                }
                self.pairs += 1;
                Arrival::Paired(other.connection)
            }
            // The same end dialled again: its older connection is dead or will be.
            Some(other) => {
                self.waiting.insert(pair, Waiting { connection, role, since: now });
                Arrival::Waits { instead_of: Some(other.connection) }
            }
            None if self.waiting.len() >= self.limits.pipe_waiting => Arrival::Refused,
            None => {
                self.waiting.insert(pair, Waiting { connection, role, since: now });
                Arrival::Waits { instead_of: None }
            }
        }
    }

    /// A waiting connection is gone.
    pub fn gone(&mut self, connection: u64) {
        self.waiting.retain(|_, waiting| waiting.connection != connection);
    }

    /// A joined pair is gone.
    pub fn parted(&mut self) {
        self.pairs = self.pairs.saturating_sub(1);
    }

    /// Those who have waited too long: to be closed.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<u64> {
        let limit = self.limits.pipe_wait;
        let late = |waiting: &Waiting| now.saturating_duration_since(waiting.since) >= limit;
        let closed = self.waiting.values().filter(|waiting| late(waiting)).map(|waiting| waiting.connection).collect();
        self.waiting.retain(|_, waiting| !late(waiting));
        closed
    }

    /// When the next waits too long.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let first = self.waiting.values().map(|waiting| waiting.since).min()?;
        Some((first + self.limits.pipe_wait, "an end of a pipe waits too long"))
    }

    /// Connections that wait, and pairs.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.waiting.len(), self.pairs)
    }

    /// Whether nobody waits and nobody is joined.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.pairs == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn hello(n: u8, role: Role) -> Vec<u8> {
        pipe_hello(&[n; 16], role).into_bytes()
    }

    #[test]
    fn two_ends_of_one_pair_are_joined_and_others_wait() {
        let now = Instant::now();
        let mut pipes = Pipes::new(Limits::default());
        assert_eq!(pipes.greet(now, 1, &hello(1, Role::Host)), Arrival::Waits { instead_of: None });
        assert_eq!(pipes.greet(now, 2, &hello(2, Role::Joiner)), Arrival::Waits { instead_of: None });
        assert_eq!(pipes.greet(now, 3, &hello(1, Role::Host)), Arrival::Waits { instead_of: Some(1) });
        assert_eq!(pipes.greet(now, 4, &hello(1, Role::Joiner)), Arrival::Paired(3));
        assert_eq!(pipes.len(), (1, 1));
        pipes.gone(2);
        pipes.parted();
        assert!(pipes.is_empty());
    }

    #[test]
    fn waiting_and_pairs_are_bounded() {
        let now = Instant::now();
        let limits = Limits { pipe_waiting: 2, pipe_pairs: 1, ..Limits::default() };
        let mut pipes = Pipes::new(limits);
        for n in 0..2 {
            assert_eq!(pipes.greet(now, n.into(), &hello(n, Role::Host)), Arrival::Waits { instead_of: None });
        }
        assert_eq!(pipes.greet(now, 9, &hello(9, Role::Host)), Arrival::Refused);
        assert_eq!(pipes.greet(now, 10, &hello(0, Role::Joiner)), Arrival::Paired(0));
        assert_eq!(pipes.greet(now, 11, &hello(1, Role::Joiner)), Arrival::Refused);
        pipes.parted();
        assert_eq!(pipes.greet(now, 12, &hello(1, Role::Joiner)), Arrival::Paired(1));
    }

    #[test]
    fn who_waits_a_minute_is_closed() {
        let now = Instant::now();
        let mut pipes = Pipes::new(Limits::default());
        pipes.greet(now, 7, &hello(1, Role::Host));
        assert_eq!(pipes.poll_timeout().map(|(at, _)| at), Some(now + Duration::from_secs(60)));
        assert!(pipes.handle_timeout(now + Duration::from_secs(59)).is_empty());
        assert_eq!(pipes.handle_timeout(now + Duration::from_secs(60)), [7]);
        assert!(pipes.is_empty());
    }

    #[test]
    fn every_cut_and_every_other_greeting_is_refused() {
        let line = hello(0xAB, Role::Host);
        assert_eq!(read_pipe_hello(&line), Some(([0xAB; 16], Role::Host)));
        assert!((0..line.len()).all(|cut| read_pipe_hello(&line[..cut]).is_none()));
        for bad in ["TPF2PIPE1 abab H\n", "TPF2PIPE2 00112233445566778899aabbccddeeff H\n", "\n", ""] {
            assert_eq!(read_pipe_hello(bad.as_bytes()), None);
        }
        assert_eq!(read_pipe_hello(&line.to_ascii_uppercase()), None);
        assert_eq!(read_pipe_hello(&[&line[..line.len() - 1], b"\r\n"].concat()), None);
    }
}
