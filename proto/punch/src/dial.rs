//! Dials: H to every candidate until one of them answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use np1::Kind;
use seam::{Dice, Path, SocketId};

use crate::outgoing::Outgoing;
use crate::{Event, Token};

/// Most candidates of one dial; further ones are not dialled.
pub const CANDIDATES_MAX: usize = 16;
/// Most dials at once; a further one fails at once.
pub const DIALS_MAX: usize = 512;

/// Time between two H to the same candidate (netpunch wire, section 23).
const INTERVAL: Duration = Duration::from_millis(100);
/// Tokens of finished dials, whose other candidates still answer.
const FINISHED_MAX: usize = 64;

/// Names one dial; the caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u64);

#[derive(Clone, Debug)]
struct Dial {
    token: Token,
    /// Where to, and since when.
    candidates: Vec<(SocketAddr, Instant)>,
    started: Instant,
    next: Instant,
    deadline: Instant,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Dials {
    by_id: BTreeMap<DialId, Dial>,
    by_token: BTreeMap<Token, DialId>,
    finished: VecDeque<Token>,
}

impl Dials {
    /// False when there are too many.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        id: DialId,
        candidates: impl IntoIterator<Item = SocketAddr>,
        timeout: Duration,
        dice: &mut Dice,
    ) -> bool {
        self.cancel(id);
        if self.by_id.len() >= DIALS_MAX {
            return false;
        }
        let token = dice.bytes();
        let deadline = now.checked_add(timeout).unwrap_or(now);
        self.by_id.insert(id, Dial { token, candidates: Vec::new(), started: now, next: now, deadline });
        self.by_token.insert(token, id);
        for candidate in candidates {
            self.add(now, id, candidate);
        }
        true
    }

    /// Another address for a running dial; it is dialled with the next timeout, which is now. False when nobody can be
    /// reached at that address, the dial has it already or has enough of them, or there is no such dial.
    pub(crate) fn add(&mut self, now: Instant, id: DialId, candidate: SocketAddr) -> bool {
        let candidate = SocketAddr::new(candidate.ip().to_canonical(), candidate.port());
        let Some(dial) = self.by_id.get_mut(&id) else { return false };
        let full = dial.candidates.len() >= CANDIDATES_MAX;
        if full || !is_dialable(candidate) || dial.candidates.iter().any(|(known, _)| *known == candidate) {
            return false;
        }
        dial.candidates.push((candidate, now));
        dial.next = now;
        true
    }

    pub(crate) fn cancel(&mut self, id: DialId) -> bool {
        let Some(dial) = self.by_id.remove(&id) else { return false };
        self.by_token.remove(&dial.token);
        self.remember(dial.token);
        true
    }

    pub(crate) fn is_own(&self, token: Token) -> bool {
        self.by_token.contains_key(&token)
    }

    /// Our own H came back to us: that candidate is ourselves.
    pub(crate) fn reached_self(&mut self, token: Token, from: Path) {
        if let Some(dial) = self.by_token.get(&token).and_then(|id| self.by_id.get_mut(id)) {
            dial.candidates.retain(|(candidate, _)| *candidate != from.remote);
        }
    }

    /// An A came. `None` when its token is of no dial, running or finished.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        from: Path,
        token: Token,
        out: &mut Outgoing,
    ) -> Option<Option<Event>> {
        let Some(id) = self.by_token.remove(&token) else {
            return self.finished.contains(&token).then_some(None);
        };
        let dial = self.by_id.remove(&id)?;
        self.remember(token);
        out.token(from, Kind::Connected, token);
        let since = dial.candidates.iter().find(|(candidate, _)| *candidate == from.remote);
        let since = since.map_or(dial.started, |(_, since)| *since);
        Some(Some(Event::Opened { id, path: from, rtt: now.saturating_duration_since(since) }))
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        socket: SocketId,
        out: &mut Outgoing,
        events: &mut VecDeque<Event>,
    ) {
        let mut late = Vec::new();
        for (id, dial) in &mut self.by_id {
            if dial.deadline <= now {
                late.push(*id);
            } else if dial.next <= now {
                for (candidate, _) in &dial.candidates {
                    out.token(Path::new(socket, *candidate), Kind::Hello, dial.token);
                }
                dial.next = now + INTERVAL;
            }
        }
        for id in late {
            self.cancel(id);
            events.push_back(Event::Failed { id });
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.by_id.values().map(|dial| dial.next.min(dial.deadline)).min().map(|due| (due, "dial"))
    }

    fn remember(&mut self, token: Token) {
        if self.finished.len() >= FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(token);
    }
}

/// Whether a datagram to this address can reach one machine. Port 0 is common in codes of old peers.
pub(crate) fn is_dialable(candidate: SocketAddr) -> bool {
    let ip = candidate.ip();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    candidate.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_reach_nobody_are_not_dialled() {
        for (text, want) in [
            ("192.168.0.4:29471", true),
            ("192.168.0.4:0", false),
            ("0.0.0.0:29471", false),
            ("255.255.255.255:29471", false),
            ("224.0.0.251:5353", false),
            ("[2001:db8::1]:29471", true),
            ("[::]:29471", false),
            ("[ff02::1]:29471", false),
        ] {
            assert_eq!(is_dialable(text.parse().unwrap()), want, "{text}");
        }
    }
}
