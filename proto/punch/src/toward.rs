//! A host's side of a knock: H toward the addresses of who knocked, so that the own router lets its hellos in.
//!
//! What such an H is answered with says nothing the joiner's own dial does not say, so the answers are passed over
//! (netpunch wire, section 11.3).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
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
    pub(crate) fn start(&mut self, now: Instant, target: SocketAddr, dice: &mut Dice) {
        let target = SocketAddr::new(target.ip().to_canonical(), target.port());
        if !is_dialable(target) {
            return;
        }
        let until = now + TOWARD_FOR;
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
