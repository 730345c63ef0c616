//! Asking STUN servers which address the lobby socket has on the other side of the router.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use seam::{Dice, Path, Refused, SocketId};
use stun::{AnswerError, Observation, Request, Rules};

use crate::outgoing::Outgoing;

/// Most servers asked at once; further ones are not asked.
pub const SERVERS_MAX: usize = 16;

/// When a request is sent, since the beginning: doubling pauses, as in RFC 8489, section 6.2.1, in the time there is.
const SCHEDULE: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(700),
    Duration::from_millis(1_500),
];
/// When silence is an answer.
const GIVE_UP: Duration = Duration::from_millis(1_900);
/// Answers that say all there is to know: the address, and whether the port depends on who asks.
const ENOUGH: usize = 2;

#[derive(Clone, Debug)]
struct Asked {
    server: SocketAddr,
    request: Request,
    /// An answer of whatever kind came.
    settled: bool,
}

/// One round of questions. It stays for late answers after it is done.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    started: Instant,
    asked: Vec<Asked>,
    answers: Vec<SocketAddr>,
    /// Entries of the schedule already sent.
    sent: usize,
    done: bool,
}

impl Round {
    /// Asks IPv4 servers, each once: others cannot tell the address that is dialled.
    pub(crate) fn new(now: Instant, servers: impl IntoIterator<Item = SocketAddr>, dice: &mut Dice) -> Self {
        let mut asked: Vec<Asked> = Vec::new();
        for server in servers {
            let server = SocketAddr::new(server.ip().to_canonical(), server.port());
            let known = asked.iter().any(|other| other.server == server);
            if server.is_ipv4() && server.port() != 0 && !known && asked.len() < SERVERS_MAX {
                asked.push(Asked { server, request: Request::with_cookie(dice.bytes()), settled: false });
            }
        }
        Self { started: now, asked, answers: Vec::new(), sent: 0, done: false }
    }

    pub(crate) fn handle(&mut self, from: Path, datagram: &[u8]) -> Result<(), Refused> {
        let mut from_server = self.asked.iter_mut().filter(|asked| asked.server == from.remote);
        let asked = from_server.next().ok_or(Refused::Unexpected)?;
        match stun::Answer::to_request(datagram, asked.request.id, Rules::Modern) {
            Ok(address) => {
                if !asked.settled && address.ip().to_canonical().is_ipv4() {
                    self.answers.push(address);
                }
                asked.settled = true;
                Ok(())
            }
            Err(AnswerError::Refused { .. } | AnswerError::NoAddress) => {
                asked.settled = true;
                Ok(())
            }
            Err(AnswerError::OtherTransaction) => Err(Refused::Unexpected),
            Err(AnswerError::NotAnAnswer) => Err(Refused::NotOurs),
            Err(_) => Err(Refused::Malformed),
        }
    }

    /// The outcome, once.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Observation> {
        let over = self.answers.len() >= ENOUGH
            || self.asked.iter().all(|asked| asked.settled)
            || now.saturating_duration_since(self.started) >= GIVE_UP;
        if self.done || !over {
            return None;
        }
        self.done = true;
        Some(Observation::of(self.answers.iter().copied()))
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, socket: SocketId, out: &mut Outgoing) {
        let since = now.saturating_duration_since(self.started);
        let due = SCHEDULE.iter().filter(|at| **at <= since).count();
        if self.done || due <= self.sent {
            return;
        }
        self.sent = due;
        for asked in self.asked.iter().filter(|asked| !asked.settled) {
            out.stun(Path::new(socket, asked.server), &asked.request);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let next = SCHEDULE.get(self.sent).copied().unwrap_or(GIVE_UP);
        (!self.done).then(|| (self.started + next, "stun"))
    }
}
