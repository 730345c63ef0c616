//! The machine.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use np1::{Kind, Packet};
use seam::{Dice, LinkStats, Outbox, Path, RateTable, Refused, SocketId};
use stun::Observation;

use crate::Token;
use crate::birthday::Birthday;
use crate::challenge::Challenges;
use crate::dial::{DialId, Dials};
use crate::link::Links;
use crate::observe::Round;
use crate::outgoing::Outgoing;
use crate::survey::{Survey, Surveying};
use crate::toward::{TOWARD_FOR, Towards, guesses, strides};

/// Answers to strangers: 1,024 buckets of 64 at once and one more per 20 ms. A dialler needs one per 100 ms.
const STRANGER_SLOTS: usize = 1_024;
const STRANGER_BURST: u32 = 64;
const STRANGER_EVERY: Duration = Duration::from_millis(20);

/// What a [`Punch`] is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The socket that is dialled and observed from.
    pub socket: SocketId,
}

impl Default for Config {
    fn default() -> Self {
        Self { socket: SocketId(0) }
    }
}

/// What a [`Punch`] has to tell. Each dial, challenge and observation ends in exactly one event unless it is
/// cancelled, so their number bounds the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A dial was answered; the path is open both ways.
    Opened {
        /// Which dial.
        id: DialId,
        /// Where the answer came from.
        path: Path,
        /// From the first H to the answer: the round trip, or more where the first was lost.
        rtt: Duration,
    },
    /// Nobody answered in time.
    Failed {
        /// Which dial.
        id: DialId,
    },
    /// Whoever is at that address received what was sent there.
    Proved {
        /// The address.
        path: Path,
    },
    /// Nobody echoed the challenge within its second.
    Unproved {
        /// The address.
        path: Path,
    },
    /// What the STUN servers saw; empty when none answered within 1.9 s.
    Observed(Observation),
    /// How the router behaves, after the observation.
    Surveyed(Survey),
    /// Somebody was met where ports are guessed. Who that is has to be proved.
    Guessed {
        /// The path.
        path: Path,
    },
    /// The attempt to guess a port is over; what it met was told.
    GuessOver,
}

/// Dialling, answering, proving, holding, observing: see the crate's documentation.
///
/// Bounds: 512 dials of 16 candidates, 64 challenges, 64 addresses punched toward, 64 guessed ones, one attempt of 256
/// sockets or 1,200 ports, 512 held paths of 32 remembered probes, 16 STUN servers, 16,384 datagrams and 256 KiB of echoes waiting to be sent. Strangers cost no memory.
#[derive(Clone, Debug)]
pub struct Punch {
    config: Config,
    dice: Dice,
    /// When the machine was made: the rate table's origin.
    start: Instant,
    /// The latest instant the machine was told.
    now: Instant,
    strangers: RateTable,
    dials: Dials,
    challenges: Challenges,
    towards: Towards,
    guesses: Towards,
    birthday: Birthday,
    links: Links,
    round: Option<Round>,
    survey: Option<Surveying>,
    out: Outgoing,
    events: VecDeque<Event>,
}

impl Punch {
    /// A machine that dials nobody yet and answers everybody.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let mut dice = Dice::new(seed);
        let strangers = RateTable::new(STRANGER_SLOTS, STRANGER_BURST, STRANGER_EVERY, dice.u64());
        let links = Links::new(dice.bytes());
        Self {
            config,
            dice,
            start: now,
            now,
            strangers,
            dials: Dials::default(),
            challenges: Challenges::default(),
            towards: Towards::default(),
            guesses: Towards::default(),
            birthday: Birthday::default(),
            links,
            round: None,
            survey: None,
            out: Outgoing::default(),
            events: VecDeque::new(),
        }
    }

    /// Asks STUN servers, all at once; [`Event::Observed`] follows within 1.9 s. Another round takes the place of one
    /// under way.
    pub fn observe(&mut self, now: Instant, servers: Vec<SocketAddr>) {
        self.round = Some(Round::new(now, servers, &mut self.dice));
        self.survey = None;
        self.handle_timeout(now);
    }

    /// As [`Punch::observe`], with the tests of RFC 5780 besides: [`Event::Surveyed`] follows [`Event::Observed`] within
    /// 1.2 s of the first answer, at once when there is none. Servers on IPv6, two at most, are asked for this alone.
    pub fn survey(&mut self, now: Instant, servers: Vec<SocketAddr>) {
        let round = Round::new(now, servers.iter().copied(), &mut self.dice);
        self.survey = Some(Surveying::new(now, &servers, &round, &mut self.dice));
        self.round = Some(round);
        self.handle_timeout(now);
    }

    /// Dials candidates, in their order, until one answers ([`Event::Opened`]) or the time is over
    /// ([`Event::Failed`]). Addresses that reach nobody (port 0) are passed over, and a dial may begin with none. The
    /// same id again begins anew.
    pub fn dial(&mut self, now: Instant, id: DialId, candidates: Vec<SocketAddr>, timeout: Duration) {
        if self.dials.start(now, id, candidates, timeout, &mut self.dice) {
            self.handle_timeout(now);
        } else {
            self.now = self.now.max(now);
            self.events.push_back(Event::Failed { id });
        }
    }

    /// Gives a running dial one more address. False when it is not taken: nobody can be there, it is known, there are
    /// 16 already, or there is no such dial.
    pub fn add_candidate(&mut self, now: Instant, id: DialId, candidate: SocketAddr) -> bool {
        let added = self.dials.add(now, id, candidate);
        if added {
            self.handle_timeout(now);
        }
        added
    }

    /// Ends a dial without an event; whether there was one.
    pub fn cancel(&mut self, id: DialId) -> bool {
        self.dials.cancel(id)
    }

    /// Punches toward addresses of somebody who knocked: H every 200 ms for 15 s, or until [`Punch::met`]. Addresses that
    /// reach nobody are passed over; of more than 64, those with the least time left go.
    pub fn punch_toward(&mut self, now: Instant, targets: impl IntoIterator<Item = SocketAddr>) {
        for target in targets {
            self.towards.start(now, target, TOWARD_FOR, &mut self.dice);
        }
        self.handle_timeout(now);
    }

    /// Punches toward the ports that a router with another port per destination gives out after `observed`, if it counts
    /// them up: H to the next 24 every 200 ms for 4 s.
    pub fn guess(&mut self, now: Instant, observed: SocketAddr) {
        for (target, time) in guesses(observed) {
            self.guesses.start(now, target, time, &mut self.dice);
        }
        self.handle_timeout(now);
    }

    /// Punches toward the ports that the other router will have given out, where both count them up and the other end does
    /// the same with another `step`, 1 or 2: H to 32 of them every 200 ms for 4 s. Each is a new port here as well; with
    /// one end taking every port and the other every second one, two of them meet whatever both routers gave out in
    /// between.
    pub fn stride(&mut self, now: Instant, observed: SocketAddr, step: u16) {
        for (target, time) in strides(observed, step) {
            self.guesses.start(now, target, time, &mut self.dice);
        }
        self.handle_timeout(now);
    }

    /// Says H to random ports of an address, 1,200 of them in 3 s; [`Event::Guessed`] names who answers, and
    /// [`Event::GuessOver`] follows after 4 s. False when an attempt is under way, or too many were.
    pub fn probe_ports(&mut self, now: Instant, ip: IpAddr) -> bool {
        let begun = self.birthday.probe(now, ip, &mut self.dice);
        self.handle_timeout(now);
        begun
    }

    /// Says H to an address from `count` sockets, at most 256, numbered from `first`, twice from each; [`Event::Guessed`]
    /// names the path that somebody there is heard on, and [`Event::GuessOver`] follows after 4 s. False when an attempt is
    /// under way, or too many were.
    pub fn spray(&mut self, now: Instant, first: SocketId, count: u16, target: SocketAddr) -> bool {
        let begun = self.birthday.spray(now, (first, count), target, &mut self.dice);
        self.handle_timeout(now);
        begun
    }

    /// Ends an attempt to guess without an event.
    pub fn stop_guessing(&mut self) {
        self.birthday.stop();
    }

    /// Who was punched toward at this address is a peer now.
    pub fn met(&mut self, target: SocketAddr) {
        self.towards.stop(target);
        self.guesses.stop_all(target.ip());
    }

    /// Sends a held path a probe now, whenever the next would be due. False when it is not held.
    pub fn probe(&mut self, now: Instant, path: Path) -> bool {
        let held = self.links.probe_now(now, path);
        self.handle_timeout(now);
        held
    }

    /// Asks an address to prove that it receives: [`Event::Proved`], or [`Event::Unproved`] after a second. False when
    /// 64 are being asked.
    pub fn challenge(&mut self, now: Instant, path: Path) -> bool {
        let started = self.challenges.start(now, path, &mut self.dice);
        self.handle_timeout(now);
        started
    }

    /// Looks after a live path: probes for its measurements and, on the joiner's side, `keepalive`. H from it is
    /// answered without a limit. False when 512 are held.
    pub fn hold(&mut self, now: Instant, path: Path, keepalive: bool) -> bool {
        let held = self.links.hold(now, path, keepalive);
        self.handle_timeout(now);
        held
    }

    /// Leaves a path alone.
    pub fn release(&mut self, path: Path) {
        self.links.release(path);
        self.challenges.stop(path);
    }

    /// The peer of a held path moved. Measurement begins anew.
    pub fn rekey(&mut self, now: Instant, old: Path, new: Path) {
        self.links.rekey(now, old, new);
        self.handle_timeout(now);
    }

    /// Whether a path is held.
    #[must_use]
    pub fn holds(&self, path: Path) -> bool {
        self.links.holds(path)
    }

    /// What is measured of a held path; bytes and queues are counted elsewhere.
    #[must_use]
    pub fn stats(&self, path: Path) -> Option<LinkStats> {
        self.links.stats(self.now, path)
    }

    /// An H, A, C or K arrived.
    ///
    /// # Errors
    /// [`Refused`]: another kind of packet, an answer to nothing asked, a stranger over the limit.
    pub fn handle_packet(&mut self, now: Instant, from: Path, packet: Packet<'_>) -> Result<(), Refused> {
        self.now = self.now.max(now);
        match packet.kind {
            Kind::Hello => self.hello(now, from, packet.payload),
            Kind::Ack => self.ack(now, from, packet.payload),
            // Neither says more than that somebody sent it, and both can be forged.
            Kind::Connected | Kind::Keepalive => Ok(()),
            Kind::Sealed | Kind::Signed | Kind::Plain | Kind::KeyExchange | Kind::Quic | Kind::Other(_) => {
                Err(Refused::NotOurs)
            }
        }
    }

    /// A datagram arrived that looks like STUN.
    ///
    /// # Errors
    /// [`Refused`]: not from a server that was asked, or not its answer.
    pub fn handle_stun(&mut self, now: Instant, from: Path, datagram: &[u8]) -> Result<(), Refused> {
        self.now = self.now.max(now);
        if from.socket != self.config.socket {
            return Err(Refused::Unexpected);
        }
        let round = self.round.as_mut().ok_or(Refused::Unexpected)?;
        let mut taken = round.handle(now, from, datagram);
        if let (Err(Refused::Unexpected | Refused::NotOurs), Some(survey)) = (taken, &mut self.survey) {
            taken = survey.handle(now, from, datagram).map(|saw| {
                if let Some((server, address)) = saw {
                    round.saw(server, address);
                }
            });
        }
        self.observe_on(now);
        taken
    }

    /// What the observation and the survey have come to by now.
    fn observe_on(&mut self, now: Instant) {
        let Some(round) = &mut self.round else { return };
        if let Some(observation) = round.poll(now) {
            self.events.push_back(Event::Observed(observation));
        }
        round.handle_timeout(now, self.config.socket, &mut self.out);
        let Some(survey) = &mut self.survey else { return };
        survey.step(now, round, &mut self.dice);
        survey.handle_timeout(now, self.config.socket, &mut self.out);
        if let Some(outcome) = survey.poll(round) {
            self.survey = None;
            self.events.push_back(Event::Surveyed(outcome));
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.dials.handle_timeout(now, self.config.socket, &mut self.out, &mut self.events);
        self.challenges.handle_timeout(now, &mut self.out, &mut self.events);
        self.towards.handle_timeout(now, self.config.socket, &mut self.out);
        self.guesses.handle_timeout(now, self.config.socket, &mut self.out);
        self.birthday.handle_timeout(now, self.config.socket, &mut self.out, &mut self.events);
        self.links.handle_timeout(now, &mut self.dice, &mut self.out);
        self.observe_on(now);
    }

    /// Writes waiting datagrams into the batch; whether any was written.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        self.now = self.now.max(now);
        self.out.poll(out)
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When the machine wants to be called again, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.out.is_empty() {
            return Some((self.now, "datagrams wait"));
        }
        if !self.events.is_empty() {
            return Some((self.now, "events wait"));
        }
        let round = self.round.as_ref().and_then(Round::poll_timeout);
        [
            self.dials.poll_timeout(),
            self.challenges.poll_timeout(),
            self.towards.poll_timeout(),
            self.guesses.poll_timeout(),
            self.birthday.poll_timeout(),
            self.links.poll_timeout(),
            round,
            self.survey.as_ref().and_then(Surveying::poll_timeout),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn hello(&mut self, now: Instant, from: Path, payload: &[u8]) -> Result<(), Refused> {
        if let Ok(token) = Token::try_from(payload)
            && (self.dials.is_own(token)
                || self.challenges.is_own(token)
                || self.towards.is_own(token)
                || self.guesses.is_own(token)
                || self.birthday.is_own(token)
                || self.links.is_own(from, token))
        {
            self.dials.reached_self(token, from);
            return Err(Refused::Unexpected);
        }
        let known = self.links.holds(from);
        if !known && !self.strangers.allow(self.start, now, from.remote) {
            return Err(Refused::OverLimit);
        }
        self.events.extend(self.birthday.heard(self.config.socket, from));
        if self.out.echo(from, payload) { Ok(()) } else { Err(Refused::OverLimit) }
    }

    fn ack(&mut self, now: Instant, from: Path, payload: &[u8]) -> Result<(), Refused> {
        let token = Token::try_from(payload).map_err(|_| Refused::Unexpected)?;
        if from.socket == self.config.socket
            && let Some(event) = self.dials.answered(now, from, token, &mut self.out)
        {
            self.events.extend(event);
            return Ok(());
        }
        if let Some(answered) = self.challenges.answered(from, token) {
            self.events.push_back(answered?);
            return Ok(());
        }
        if self.towards.is_own(token) || self.guesses.is_own(token) {
            return Ok(());
        }
        if self.birthday.is_own(token) {
            self.events.extend(self.birthday.heard(self.config.socket, from));
            return Ok(());
        }
        self.links.answered(now, from, token)
    }
}
