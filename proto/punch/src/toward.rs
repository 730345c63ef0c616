//! A host's side of a knock: H toward the addresses of who knocked, so that the own router lets its hellos in.
//!
//! What such an H is answered with says nothing the joiner's own dial does not say, so the answers are passed over
//! (netpunch wire, section 11.3).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use np1::Kind;
use seam::{Dice, Path, SocketId};

use crate::Token;
use crate::dial::is_dialable;
use crate::outgoing::Outgoing;

/// Most addresses punched toward at once; the one with the least time left makes room.
pub const TOWARD_MAX: usize = 64;
/// How long an address is punched toward after its last knock (netpunch wire, section 23).
pub const TOWARD_FOR: Duration = Duration::from_secs(15);

/// Ports guessed behind one that was observed, and for how long: 24 datagrams every 200 ms, 480 in all, from one socket.
pub const GUESSES: u16 = 24;
const GUESS_FOR: Duration = Duration::from_secs(4);

/// The ports a router that counts up has most likely given out since it gave `observed`.
pub(crate) fn guesses(observed: SocketAddr) -> impl Iterator<Item = (SocketAddr, Duration)> {
    let next =
        move |step| observed.port().checked_add(step).map(|port| (SocketAddr::new(observed.ip(), port), GUESS_FOR));
    (1..=GUESSES).filter_map(next)
}

/// Ports of a stride: 32 datagrams every 200 ms, 640 in all.
pub(crate) const STRIDES: u16 = 32;

/// Every `step`-th port after `observed`, in the order in which they are punched toward. Say the router of the end that
/// takes step 2 has given out `a` ports since it was observed, and the other's `b`: the i-th datagram of that end goes from
/// its port a + i to the other's port 2i - 1, the j-th of the other from b + j to j. For i = a + b + 1 and j = 2a + b + 1 they
/// come from and go to each other.
pub(crate) fn strides(observed: SocketAddr, step: u16) -> impl Iterator<Item = (SocketAddr, Duration)> {
    let port = move |n: u16| {
        let ahead = n.saturating_mul(step).saturating_sub(step.saturating_sub(1));
        Some((SocketAddr::new(observed.ip(), observed.port().checked_add(ahead)?), GUESS_FOR))
    };
    (1..=STRIDES).filter_map(port)
}

const INTERVAL: Duration = Duration::from_millis(200);
/// Tokens of addresses left alone, whose answers are still under way.
const FINISHED_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Target {
    token: Token,
    next: Instant,
    until: Instant,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Towards {
    by_address: BTreeMap<SocketAddr, Target>,
    finished: VecDeque<Token>,
}

impl Towards {
    /// Begins with an address, or goes on with it for the full time.
    pub(crate) fn start(&mut self, now: Instant, target: SocketAddr, time: Duration, dice: &mut Dice) {
        let target = SocketAddr::new(target.ip().to_canonical(), target.port());
        if !is_dialable(target) {
            return;
        }
        let until = now + time;
        if let Some(known) = self.by_address.get_mut(&target) {
            known.until = until;
            return;
        }
        if self.by_address.len() >= TOWARD_MAX
            && let Some(oldest) = self.by_address.iter().min_by_key(|(_, target)| target.until).map(|(at, _)| *at)
        {
            self.stop(oldest);
        }
        self.by_address.insert(target, Target { token: dice.bytes(), next: now, until });
    }

    /// That address is a peer now, or of no interest any more.
    pub(crate) fn stop(&mut self, target: SocketAddr) {
        if let Some(target) = self.by_address.remove(&target) {
            if self.finished.len() >= FINISHED_MAX {
                self.finished.pop_front();
            }
            self.finished.push_back(target.token);
        }
    }

    /// Somebody at that address is a peer now: its other ports are of no interest.
    pub(crate) fn stop_all(&mut self, ip: IpAddr) {
        let over: Vec<SocketAddr> = self.by_address.keys().filter(|at| at.ip() == ip).copied().collect();
        for target in over {
            self.stop(target);
        }
    }

    pub(crate) fn is_own(&self, token: Token) -> bool {
        self.by_address.values().any(|target| target.token == token) || self.finished.contains(&token)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, socket: SocketId, out: &mut Outgoing) {
        let over: Vec<SocketAddr> =
            self.by_address.iter().filter(|(_, target)| target.until <= now).map(|(at, _)| *at).collect();
        for target in over {
            self.stop(target);
        }
        for (address, target) in self.by_address.iter_mut().filter(|(_, target)| target.next <= now) {
            out.token(Path::new(socket, *address), Kind::Hello, target.token);
            target.next = now + INTERVAL;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.by_address.values().map(|target| target.next.min(target.until)).min().map(|due| (due, "punch"))
    }
}
