//! How the router behaves: the tests of RFC 5780, section 4, over the lobby socket, beside an observation.
//!
//! ```text
//! a server that can tell answered ──> answers from elsewhere asked for     (filtering; nothing was sent there yet)
//!                                 ──> a request to the own public address  (hairpin)
//!        300 ms, or twice the way ──> the server's other addresses asked   (mapping; whether silence was the router's)
//! ```
//!
//! Nobody waits for it but who asked: the public address is told as soon as it is known. It ends within 1.2 s where a
//! server answers and with the observation where none does. A server without another address leaves both classes to what
//! plain answers say.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use seam::{Dice, Path, Refused, SocketId};
use stun::{Answer, Behaviour, Change, Changed, Filtering, Mapping, Observation, Request, Rules};

use crate::observe::Round;
use crate::outgoing::Outgoing;

/// A question is repeated this often, this many times at most.
const REPEAT: Duration = Duration::from_millis(100);
const REPEATS: u8 = 3;
/// How long answers are waited for: at least, at most, and else twice the way to the server.
const WAIT_LEAST: Duration = Duration::from_millis(300);
const WAIT_MOST: Duration = Duration::from_millis(500);
/// A server whose other address nothing was sent to is waited for this long after the observation.
const TELLER_FOR: Duration = Duration::from_millis(200);
/// Servers asked over IPv6 at most.
const V6_MAX: usize = 2;

/// What a survey came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// How the router behaves.
    pub behaviour: Behaviour,
    /// The public address, and what all answers say of it: more than the first observation, which two suffice for.
    pub observation: Observation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// An answer from the other address and port.
    ChangeBoth,
    /// An answer from another port of the same address.
    ChangePort,
    /// Our own request, come back.
    Hairpin,
    /// What another address of the server sees.
    Mapping,
    /// What a server sees on IPv6.
    V6,
}

#[derive(Clone, Debug)]
struct Question {
    about: About,
    to: SocketAddr,
    /// Where the answer has to come from; a request that comes back may have any address.
    from: Option<SocketAddr>,
    request: Request,
    began: Instant,
    sent: u8,
    /// When it was answered, and what the answer says.
    answered: Option<(Instant, Option<SocketAddr>)>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// For a server that can tell.
    Teller,
    /// For answers from elsewhere and for the own request.
    Elsewhere {
        until: Instant,
        wait: Duration,
        teller: Option<(SocketAddr, SocketAddr)>,
    },
    /// For the server's other addresses.
    Others {
        until: Instant,
    },
    Over,
}

/// One survey. At most 8 questions of 3 datagrams each.
#[derive(Clone, Debug)]
pub(crate) struct Surveying {
    started: Instant,
    stage: Stage,
    /// Where the observation sent to: an answer from there is no surprise to the router.
    known: Vec<SocketAddr>,
    questions: Vec<Question>,
    round_over: Option<Instant>,
}

impl Surveying {
    pub(crate) fn new(now: Instant, servers: &[SocketAddr], round: &Round, dice: &mut Dice) -> Self {
        let mut this = Self {
            started: now,
            stage: Stage::Teller,
            known: round.servers().collect(),
            questions: Vec::new(),
            round_over: None,
        };
        let v6 = servers.iter().filter(|server| server.ip().to_canonical().is_ipv6() && server.port() != 0);
        for server in v6.take(V6_MAX) {
            this.ask(now, About::V6, *server, Some(*server), Change::NONE, dice);
        }
        this
    }

    fn ask(
        &mut self,
        now: Instant,
        about: About,
        to: SocketAddr,
        from: Option<SocketAddr>,
        change: Change,
        dice: &mut Dice,
    ) {
        let request = Request::with_cookie(dice.bytes()).from_elsewhere(change);
        self.questions.push(Question { about, to, from, request, began: now, sent: 0, answered: None });
    }

    /// A datagram that is no answer to the observation. What a server's other address saw belongs to that as well.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        from: Path,
        datagram: &[u8],
    ) -> Result<Option<(SocketAddr, SocketAddr)>, Refused> {
        if let Ok(request) = Request::parse(datagram) {
            let own = self.questions.iter_mut().find(|q| q.about == About::Hairpin && q.request.id == request.id);
            own.ok_or(Refused::Unexpected)?.answered.get_or_insert((now, None));
            return Ok(None);
        }
        let answer = Answer::parse(datagram).map_err(|_| Refused::Unexpected)?;
        let question = self.questions.iter_mut().find(|question| question.request.id == answer.id);
        let question = question.ok_or(Refused::Unexpected)?;
        if question.from != Some(from.remote) {
            return Err(Refused::Unexpected);
        }
        let elsewhere = matches!(question.about, About::ChangeBoth | About::ChangePort);
        if elsewhere && !matches!(self.stage, Stage::Elsewhere { .. }) {
            // Since its other address was sent to, the router may let that in.
            return Ok(None);
        }
        let mapped = answer.address(Rules::Modern);
        let first = question.answered.is_none();
        question.answered.get_or_insert((now, mapped));
        let counts = question.about == About::Mapping && first;
        Ok(mapped.filter(|_| counts).map(|mapped| (question.to, mapped)))
    }

    /// Does what is due.
    pub(crate) fn step(&mut self, now: Instant, round: &Round, dice: &mut Dice) {
        if round.is_done() {
            self.round_over.get_or_insert(now);
        }
        if let Stage::Teller = self.stage {
            self.choose(now, round, dice);
        }
        match self.stage {
            Stage::Elsewhere { until, wait, teller } if now >= until || self.all_answered() => {
                self.stage = match teller {
                    None => Stage::Others { until: now },
                    Some((server, other)) => {
                        let corner = SocketAddr::new(other.ip(), server.port());
                        for to in [corner, other] {
                            if !self.known.contains(&to)
                                && self.questions.iter().all(|q| q.about != About::Mapping || q.to != to)
                            {
                                self.ask(now, About::Mapping, to, Some(to), Change::NONE, dice);
                            }
                        }
                        Stage::Others { until: now + wait }
                    }
                };
            }
            _ => {}
        }
        if let Stage::Others { until } = self.stage
            && round.is_done()
            && (now >= until || self.all_answered())
        {
            self.stage = Stage::Over;
        }
    }

    /// Begins the tests, with the first server whose other address is news to the router if there is one.
    fn choose(&mut self, now: Instant, round: &Round, dice: &mut Dice) {
        let known = &self.known;
        let fresh = |other: &SocketAddr| known.iter().all(|known| known.ip() != other.ip());
        let tellers = || round.tellers().filter(|(server, other)| server != other);
        let patient = self.round_over.is_none_or(|over| now < over + TELLER_FOR && !round.seen().is_empty());
        // A second address tells more than a second port.
        let teller = match tellers().find(|(_, other)| fresh(other)) {
            Some(best) => Some(best),
            None if patient && round.waits_for_answers() => return,
            None => tellers().find(|(_, other)| !known.contains(other)).or_else(|| tellers().next()),
        };
        let way = teller.and_then(|(server, _)| round.way_to(server)).unwrap_or_default();
        let wait = (way * 2).clamp(WAIT_LEAST, WAIT_MOST);
        if let Some((server, other)) = teller {
            let port = SocketAddr::new(server.ip(), other.port());
            if fresh(&other) {
                self.ask(now, About::ChangeBoth, server, Some(other), Change::BOTH, dice);
            }
            if other.port() != server.port() && !self.known.contains(&port) {
                self.ask(now, About::ChangePort, server, Some(port), Change::PORT, dice);
            }
        } else if !round.is_done() {
            return;
        }
        if let Some(public) = round.first() {
            self.ask(now, About::Hairpin, public, None, Change::NONE, dice);
        }
        self.stage = Stage::Elsewhere { until: now + wait, wait, teller };
    }

    fn all_answered(&self) -> bool {
        self.questions.iter().all(|question| question.answered.is_some())
    }

    /// The outcome, once.
    pub(crate) fn poll(&mut self, round: &Round) -> Option<Survey> {
        let Stage::Over = self.stage else { return None };
        let arrived = |about| {
            let asked: Vec<&Question> = self.questions.iter().filter(|question| question.about == about).collect();
            (!asked.is_empty(), asked.iter().any(|question| question.answered.is_some()))
        };
        let ((asked_ip, ip), (asked_port, port)) = (arrived(About::ChangeBoth), arrived(About::ChangePort));
        let (own, back) = arrived(About::Hairpin);
        let alive = arrived(About::Mapping).1 || ip || port;
        let v6 = self.questions.iter().filter(|question| question.about == About::V6);
        let behaviour = Behaviour {
            mapping: Mapping::of(round.seen()),
            filtering: Filtering::of(Changed { asked_ip, ip, asked_port, port, alive }),
            hairpin: own.then_some(back),
            v6: v6.filter_map(|question| question.answered.and_then(|(_, mapped)| mapped)).find(SocketAddr::is_ipv6),
        };
        let observation = Observation::of(round.seen().iter().map(|(_, mapped)| *mapped));
        Some(Survey { behaviour, observation })
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, socket: SocketId, out: &mut Outgoing) {
        for question in self.questions.iter_mut().filter(|question| question.answered.is_none()) {
            if question.sent < REPEATS && now >= question.began + REPEAT * u32::from(question.sent) {
                question.sent += 1;
                out.stun(Path::new(socket, question.to), &question.request);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let repeats = self
            .questions
            .iter()
            .filter(|question| question.answered.is_none() && question.sent < REPEATS)
            .map(|question| question.began + REPEAT * u32::from(question.sent))
            .min();
        let stage = match self.stage {
            Stage::Teller => self.round_over.map(|over| over + TELLER_FOR),
            Stage::Elsewhere { until, .. } => Some(until),
            Stage::Others { until } if self.round_over.is_some() => Some(until),
            Stage::Others { .. } => None,
            Stage::Over => Some(self.started),
        };
        repeats.into_iter().chain(stage).min().map(|at| (at, "a survey of the router"))
    }
}
