//! Guessing the port of a router that gives out random ones: many sockets at one end, many probes at the other.
//!
//! ```text
//! random end   opens 256 sockets and says H from each to the other's one known address: 256 ports of its router lead in
//! other end    says H to random ports of that router, 400 a second: one in 252 leads to one of those sockets
//! ```
//!
//! With n sockets and m probes nothing is met with a probability of about `exp(-n m / 64512)`: 256 sockets and 600 probes
//! miss once in eleven, 1,200 probes once in 117. Whoever is met answers H with A, as everybody does; who that is has to
//! prove itself as on any other path.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use np1::Kind;
use seam::{Dice, Path, SocketId};

use crate::outgoing::Outgoing;
use crate::{Event, Token};

/// Sockets of one attempt: as many entries in the own router's table for half a minute, where small ones hold 4,096.
pub const SOCKETS: u16 = 256;
/// Probes of one attempt, 13 bytes each: 66 KB with all headers, and as many entries in the own router's table.
pub const PROBES: u32 = 1_200;
/// How long an attempt takes at most: three seconds of probes and one for late answers.
pub const GUESS_FOR: Duration = Duration::from_secs(4);

/// Probes leave in bunches of four, sockets speak in bunches of 32.
const PROBES_AT_ONCE: u32 = 4;
const SOCKETS_AT_ONCE: u16 = 32;
const PAUSE: Duration = Duration::from_millis(10);
/// Every socket speaks twice: the first word opens the router, the second gets in where the other end's probe was lost.
const SECOND_ROUND: Duration = Duration::from_millis(1_500);
/// What all attempts of one process may use: an attempt and a quarter at once, and 40 probes (10 sockets) more a second.
/// A router forgets an entry nobody answered after 30 s (RFC 4787, section 4.3 asks for two minutes of live ones), so
/// that at most 2,700 of its entries are ours.
const PROBES_HELD: u32 = PROBES + PROBES / 4;
const PROBES_A_SECOND: u32 = 40;
const SOCKETS_HELD: u32 = 320;
const SOCKETS_A_SECOND: u32 = 10;
/// Paths told of one attempt.
const HITS_MAX: usize = 8;
/// Ports routers give out.
const PORT_FIRST: u16 = 1_024;
const PORTS: u32 = 65_536 - 1_024;

/// A bucket of things that may be spent.
#[derive(Clone, Copy, Debug)]
struct Purse {
    held: u32,
    most: u32,
    a_second: u32,
    filled: Option<Instant>,
}

impl Purse {
    const fn new(most: u32, a_second: u32) -> Self {
        Self { held: most, most, a_second, filled: None }
    }

    /// Takes `cost` out if there is as much.
    fn take(&mut self, now: Instant, cost: u32) -> bool {
        let since = self.filled.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let gained = since.as_millis().saturating_mul(u128::from(self.a_second)) / 1_000;
        if gained > 0 || self.filled.is_none() {
            self.held = self.held.saturating_add(u32::try_from(gained).unwrap_or(u32::MAX)).min(self.most);
            self.filled = Some(now);
        }
        match self.held.checked_sub(cost) {
            Some(rest) => {
                self.held = rest;
                true
            }
            None => false,
        }
    }

    fn give_back(&mut self, unused: u32) {
        self.held = self.held.saturating_add(unused).min(self.most);
    }
}

/// H to random ports of one address, none of them twice.
#[derive(Clone, Debug)]
struct Probing {
    ip: IpAddr,
    sent: u32,
    first: u32,
    stride: u32,
}

impl Probing {
    fn new(ip: IpAddr, dice: &mut Dice) -> Self {
        let first = u32::try_from(dice.below(u64::from(PORTS))).unwrap_or(0);
        // Every stride that shares no factor with 64512 = 2^10 * 3^2 * 7 visits every port once.
        let stride = loop {
            let stride = u32::try_from(dice.below(u64::from(PORTS))).unwrap_or(1);
            if stride % 2 != 0 && stride % 3 != 0 && stride % 7 != 0 {
                break stride;
            }
        };
        Self { ip, sent: 0, first, stride }
    }

    fn next(&mut self) -> SocketAddr {
        let place = (u64::from(self.first) + u64::from(self.sent) * u64::from(self.stride)) % u64::from(PORTS);
        self.sent += 1;
        SocketAddr::new(self.ip, PORT_FIRST + u16::try_from(place).unwrap_or(0))
    }
}

/// H from many sockets to one address.
#[derive(Clone, Debug)]
struct Spraying {
    first: u16,
    count: u16,
    target: SocketAddr,
    /// How often a socket has spoken, all rounds together.
    sent: u16,
}

impl Spraying {
    fn has(&self, socket: SocketId) -> bool {
        socket.0.checked_sub(self.first).is_some_and(|n| n < self.count)
    }
}

#[derive(Clone, Debug)]
enum Side {
    Probing(Probing),
    Spraying(Spraying),
}

#[derive(Clone, Debug)]
struct Attempt {
    token: Token,
    side: Side,
    begun: Instant,
    next: Option<Instant>,
    hits: BTreeSet<Path>,
}

/// The attempt under way, if there is one, and what attempts may still cost.
#[derive(Clone, Debug)]
pub(crate) struct Birthday {
    attempt: Option<Attempt>,
    /// The token of the attempt before, whose answers are under way.
    last: Option<Token>,
    probes: Purse,
    sockets: Purse,
}

impl Default for Birthday {
    fn default() -> Self {
        Self {
            attempt: None,
            last: None,
            probes: Purse::new(PROBES_HELD, PROBES_A_SECOND),
            sockets: Purse::new(SOCKETS_HELD, SOCKETS_A_SECOND),
        }
    }
}

impl Birthday {
    /// Begins to probe; false when an attempt is under way or too many were.
    pub(crate) fn probe(&mut self, now: Instant, ip: IpAddr, dice: &mut Dice) -> bool {
        if self.attempt.is_some() || !self.probes.take(now, PROBES) {
            return false;
        }
        self.begin(now, Side::Probing(Probing::new(ip.to_canonical(), dice)), dice);
        true
    }

    /// Begins to speak from `count` sockets; false when an attempt is under way or too many were.
    pub(crate) fn spray(
        &mut self,
        now: Instant,
        (first, count): (SocketId, u16),
        target: SocketAddr,
        dice: &mut Dice,
    ) -> bool {
        let count = count.min(SOCKETS);
        if count == 0 || self.attempt.is_some() || !self.sockets.take(now, u32::from(count)) {
            return false;
        }
        let target = SocketAddr::new(target.ip().to_canonical(), target.port());
        self.begin(now, Side::Spraying(Spraying { first: first.0, count, target, sent: 0 }), dice);
        true
    }

    fn begin(&mut self, now: Instant, side: Side, dice: &mut Dice) {
        let token = dice.bytes();
        self.attempt = Some(Attempt { token, side, begun: now, next: Some(now), hits: BTreeSet::new() });
    }

    /// Ends the attempt without an event; probes that were not sent are not counted.
    pub(crate) fn stop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            if let Side::Probing(probing) = &attempt.side {
                self.probes.give_back(PROBES.saturating_sub(probing.sent));
            }
            self.last = Some(attempt.token);
        }
    }

    pub(crate) fn is_own(&self, token: Token) -> bool {
        self.last == Some(token) || self.attempt.as_ref().is_some_and(|attempt| attempt.token == token)
    }

    /// Something came from `from` that may be the other end: the path, the first time.
    pub(crate) fn heard(&mut self, socket: SocketId, from: Path) -> Option<Event> {
        let attempt = self.attempt.as_mut()?;
        let fits = match &attempt.side {
            Side::Probing(probing) => from.socket == socket && from.remote.ip() == probing.ip,
            Side::Spraying(spraying) => spraying.has(from.socket) && from.remote == spraying.target,
        };
        let fresh = fits && attempt.hits.len() < HITS_MAX && attempt.hits.insert(from);
        fresh.then_some(Event::Guessed { path: from })
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        socket: SocketId,
        out: &mut Outgoing,
        events: &mut VecDeque<Event>,
    ) {
        let Some(attempt) = &mut self.attempt else { return };
        if now >= attempt.begun + GUESS_FOR {
            self.stop();
            return events.push_back(Event::GuessOver);
        }
        if attempt.next.is_none_or(|at| now < at) {
            return;
        }
        attempt.next = match &mut attempt.side {
            Side::Probing(probing) => {
                for _ in 0..PROBES_AT_ONCE.min(PROBES.saturating_sub(probing.sent)) {
                    out.token(Path::new(socket, probing.next()), Kind::Hello, attempt.token);
                }
                (probing.sent < PROBES).then_some(now + PAUSE)
            }
            Side::Spraying(spraying) => {
                let round_ends = if spraying.sent < spraying.count { spraying.count } else { spraying.count * 2 };
                for _ in 0..SOCKETS_AT_ONCE.min(round_ends.saturating_sub(spraying.sent)) {
                    let from = SocketId(spraying.first.saturating_add(spraying.sent % spraying.count));
                    out.token(Path::new(from, spraying.target), Kind::Hello, attempt.token);
                    spraying.sent += 1;
                }
                match spraying.sent {
                    sent if sent == spraying.count => Some(attempt.begun + SECOND_ROUND),
                    sent if sent >= spraying.count * 2 => None,
                    _ => Some(now + PAUSE),
                }
            }
        };
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let attempt = self.attempt.as_ref()?;
        let end = attempt.begun + GUESS_FOR;
        Some((attempt.next.map_or(end, |next| next.min(end)), "a guess of ports"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_probed_twice_and_none_below_1024() {
        let mut dice = Dice::new([4; 32]);
        for _ in 0..8 {
            let mut probing = Probing::new([203, 0, 113, 5].into(), &mut dice);
            let ports: BTreeSet<u16> = (0..PORTS).map(|_| probing.next().port()).collect();
            assert_eq!((ports.len(), ports.first()), (64_512, Some(&1_024)));
        }
    }

    #[test]
    fn a_purse_fills_slowly_and_never_over() {
        let now = Instant::now();
        let mut purse = Purse::new(1_500, 40);
        assert!(purse.take(now, 1_200) && !purse.take(now, 1_200));
        assert!(!purse.take(now + Duration::from_secs(22), 1_200));
        assert!(purse.take(now + Duration::from_secs(23), 1_200));
        assert!(!purse.take(now + Duration::from_secs(3_600), 1_501));
        // Asked for often, it fills as well.
        let mut often = Purse::new(100, 10);
        assert!(often.take(now, 100));
        let later = (1..=1_000).find(|ms| often.take(now + Duration::from_millis(*ms), 5)).unwrap();
        assert_eq!(later, 500);
    }
}
