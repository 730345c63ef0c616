//! Asking STUN servers which address the lobby socket has on the other side of the router.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use seam::{Dice, Path, Refused, SocketId};
use stun::{Answer, AnswerError, Observation, Request, Rules};

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
    /// Where else the server says it is.
    other: Option<SocketAddr>,
    /// From the first request to the answer.
    way: Option<Duration>,
}

/// One round of questions. It stays for late answers after it is done.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    started: Instant,
    asked: Vec<Asked>,
    /// Who was asked, and what it saw, in the order of the answers.
    seen: Vec<(SocketAddr, SocketAddr)>,
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
                asked.push(Asked {
                    server,
                    request: Request::with_cookie(dice.bytes()),
                    settled: false,
                    other: None,
                    way: None,
                });
            }
        }
        Self { started: now, asked, seen: Vec::new(), sent: 0, done: false }
    }

    pub(crate) fn handle(&mut self, now: Instant, from: Path, datagram: &[u8]) -> Result<(), Refused> {
        let started = self.started;
        let mut from_server = self.asked.iter_mut().filter(|asked| asked.server == from.remote);
        let asked = from_server.next().ok_or(Refused::Unexpected)?;
        match Answer::to_request(datagram, asked.request.id, Rules::Modern) {
            Ok(address) => {
                if !asked.settled {
                    asked.settled = true;
                    asked.way = Some(now.saturating_duration_since(started));
                    let other = Answer::parse(datagram).ok().and_then(|answer| answer.other);
                    asked.other = other.filter(|other| other.is_ipv4() && other.port() != 0);
                    let server = asked.server;
                    self.saw(server, address);
                }
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

    /// What one more address of a server saw.
    pub(crate) fn saw(&mut self, server: SocketAddr, address: SocketAddr) {
        if address.ip().to_canonical().is_ipv4() && self.seen.len() < stun::ANSWERS_MAX {
            self.seen.push((server, address));
        }
    }

    pub(crate) fn seen(&self) -> &[(SocketAddr, SocketAddr)] {
        &self.seen
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.asked.iter().map(|asked| asked.server)
    }

    /// Servers that say where else they are, and where.
    pub(crate) fn tellers(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> + '_ {
        self.asked.iter().filter_map(|asked| Some((asked.server, asked.other?)))
    }

    pub(crate) fn way_to(&self, server: SocketAddr) -> Option<Duration> {
        self.asked.iter().find(|asked| asked.server == server)?.way
    }

    /// The public candidate.
    pub(crate) fn first(&self) -> Option<SocketAddr> {
        Observation::of(self.seen.iter().map(|(_, seen)| *seen)).public.first().map(|first| SocketAddr::V4(*first))
    }

    pub(crate) fn waits_for_answers(&self) -> bool {
        self.asked.iter().any(|asked| !asked.settled)
    }

    /// The outcome, once.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Observation> {
        let over = self.seen.len() >= ENOUGH
            || self.asked.iter().all(|asked| asked.settled)
            || now.saturating_duration_since(self.started) >= GIVE_UP;
        if self.done || !over {
            return None;
        }
        self.done = true;
        Some(Observation::of(self.seen.iter().map(|(_, seen)| *seen)))
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
