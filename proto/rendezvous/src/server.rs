//! The master's half for requests: a [`Call`] becomes an [`Op`] for the store, and its [`Outcome`] a [`Response`].
//!
//! ```text
//! begin(call) -> Answer            refused, or answered from what is known
//!             -> Do{op, then}      run the op, then finish(then, outcome)
//!             -> Probe             send one token to the caller, then answer
//! finish      -> Answer
//!             -> Hold{tag, until}  wait for a note of that tag, at most until then, and finish again
//! ```
//!
//! Refusals come before allocation: a body's form first (400), then the caller's rate (429), then room (503).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::relay::{RelayAt, RelayFull, Undo};
use crate::store::{Memory, Op, Outcome};
use crate::words::{
    Announce, BadWord, Grants, Knock, ProbeAsk, ProbeProtocol, Row, Tag, read_leave, write_error, write_knocked,
    write_list, write_notes, write_ok,
};
use crate::{Limits, Prefix, Rates, Relay};

/// Most bytes of a request's body; one more is 400.
pub const BODY_MAX: usize = 4096;
/// Most seconds a poll is held open.
pub const WAIT_MAX: u64 = 25;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `GET`, `POST`, ...
    pub method: &'a str,
    /// Whatever stands before the last `/` does not count.
    pub path: &'a str,
    /// Without the `?`.
    pub query: &'a str,
    /// `None` when it is missing or over [`BODY_MAX`].
    pub body: Option<&'a [u8]>,
    /// Whether the caller reads HTML.
    pub html: bool,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// What to say.
    pub body: ResponseBody,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseBody {
    /// A JSON object.
    Json(Bytes),
    /// Plain text.
    Text(&'static str),
    /// The game list for people, to be dressed by the shell.
    Page(Vec<Row>),
    /// Nothing.
    Empty,
}

impl Response {
    fn json(status: u16, body: Vec<u8>) -> Self {
        Self { status, body: ResponseBody::Json(body.into()) }
    }

    fn error(status: u16, error: &str) -> Self {
        Self::json(status, write_error(error))
    }

    fn bad(word: BadWord) -> Self {
        Self::error(400, &word.to_string())
    }

    /// The answer to a probe that was carried out. `reached` is known for TCP only.
    #[must_use]
    pub fn probed(reached: Option<bool>) -> Self {
        match reached {
            None => Self::json(200, write_ok(None)),
            Some(reached) => Self::json(200, codec::to_json(&serde_json::json!({ "ok": true, "reached": reached }))),
        }
    }

    /// Its JSON body, empty for others.
    #[must_use]
    pub fn json_body(&self) -> &[u8] {
        match &self.body {
            ResponseBody::Json(bytes) => bytes,
            ResponseBody::Text(_) | ResponseBody::Page(_) | ResponseBody::Empty => &[],
        }
    }
}

/// What to do next for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Send this.
    Answer(Response),
    /// Run `op`, then call [`Server::finish`].
    Do {
        /// For the store.
        op: Op,
        /// To be handed back.
        then: Then,
    },
    /// Wait for a note of `tag`, then run `op` again.
    Hold {
        /// Whose notes.
        tag: Tag,
        /// At most this long.
        until: Instant,
        /// For the store.
        op: Op,
        /// To be handed back.
        then: Then,
    },
    /// Carry out the probe, then send [`Response::probed`].
    Probe(Probe),
}

/// One token to the caller's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where to.
    pub to: SocketAddr,
    /// How.
    pub protocol: ProbeProtocol,
    /// The bytes: `AWPB`, then the token.
    pub datagram: Vec<u8>,
}

/// What a request waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Then(Next);

#[derive(Clone, Debug, PartialEq)]
enum Next {
    List,
    Page,
    Announce,
    Leave,
    Knock { grants: Grants, undo: Undo },
    Notes { tag: Tag, since: f64, until: Option<Instant> },
}

impl Then {
    /// The tag whose notes may be waited for. Whoever wants to hear of new ones listens before the store is asked.
    #[must_use]
    pub fn tag(&self) -> Option<&Tag> {
        match &self.0 {
            Next::Notes { tag, until: Some(_), .. } => Some(tag),
            Next::Notes { .. } | Next::List | Next::Page | Next::Announce | Next::Leave | Next::Knock { .. } => None,
        }
    }

    /// No longer waits: the next [`Server::finish`] answers.
    pub fn give_up(&mut self) {
        if let Next::Notes { until, .. } = &mut self.0 {
            *until = None;
        }
    }
}

/// The master's half for requests. Its memory is bounded: one list body, and the counts of [`Rates`].
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    pipe: Option<SocketAddr>,
    knocks: Rates,
    requests: Rates,
    probes: Rates,
    listed: Option<Listed>,
    counts: BTreeMap<(&'static str, u16), u64>,
}

/// The list of one second. Rows that only grow older do not make it anew within that second.
#[derive(Debug)]
struct Listed {
    second: u64,
    body: Bytes,
    rows: Vec<Row>,
}

impl Server {
    /// A server that tells askers of the pipe at `pipe`.
    #[must_use]
    pub fn new(limits: Limits, pipe: Option<SocketAddr>) -> Self {
        Self {
            limits,
            pipe,
            knocks: Rates::default(),
            requests: Rates::default(),
            probes: Rates::default(),
            listed: None,
            counts: BTreeMap::new(),
        }
    }

    /// Takes a request. `relay` is the relay this master offers, if any.
    pub fn begin(
        &mut self,
        now: Instant,
        wall: Duration,
        caller: IpAddr,
        call: &Call<'_>,
        relay: Option<&mut Relay>,
    ) -> Step {
        let name = endpoint(call.path);
        let step = self.route(now, wall, caller, call, name, relay);
        if let Step::Answer(response) = &step {
            self.count(name.unwrap_or("other"), response.status);
        }
        step
    }

    fn route(
        &mut self,
        now: Instant,
        wall: Duration,
        caller: IpAddr,
        call: &Call<'_>,
        name: Option<&'static str>,
        relay: Option<&mut Relay>,
    ) -> Step {
        if !self.requests.allow(now, &[(Prefix::caller(caller), self.limits.requests)]) {
            return Step::Answer(Response::error(429, "too many requests"));
        }
        let get = matches!(call.method, "GET" | "HEAD");
        let post = call.method == "POST";
        match name {
            None => Step::Answer(Response::error(404, "not found")),
            Some(_) if call.method == "OPTIONS" => Step::Answer(Response { status: 204, body: ResponseBody::Empty }),
            Some("list") if get => self.list(wall, call.html),
            Some("health") if get => Step::Answer(Response { status: 200, body: ResponseBody::Text("ok") }),
            Some("pipe") if get => Step::Answer(match self.pipe {
                Some(at) => {
                    let at = serde_json::json!({ "ip": at.ip().to_string(), "port": at.port() });
                    Response::json(200, codec::to_json(&at))
                }
                None => Response::error(404, "no pipe"),
            }),
            Some("knock") if get => self.poll(now, call.query),
            Some("knock") if post => self.knock(now, caller, call.body, relay),
            Some("announce") if post => match call.body.map(Announce::read) {
                Some(Ok(announce)) => {
                    let op = Op::Announce { announce, network: Prefix::network(caller) };
                    Step::Do { op, then: Then(Next::Announce) }
                }
                Some(Err(word)) => Step::Answer(Response::bad(word)),
                None => Step::Answer(Response::bad(BadWord::Body)),
            },
            Some("leave") if post => match call.body.map(read_leave) {
                Some(Ok(id)) => Step::Do { op: Op::Leave { id }, then: Then(Next::Leave) },
                Some(Err(word)) => Step::Answer(Response::bad(word)),
                None => Step::Answer(Response::bad(BadWord::Body)),
            },
            Some("probe") if post => self.probe(now, caller, call.body),
            Some(_) => Step::Answer(Response::error(405, "wrong method")),
        }
    }

    /// Takes the store's answer.
    pub fn finish(
        &mut self,
        now: Instant,
        wall: Duration,
        then: Then,
        outcome: Outcome,
        relay: Option<&mut Relay>,
    ) -> Step {
        let name = match &then.0 {
            Next::List | Next::Page => "list",
            Next::Announce => "announce",
            Next::Leave => "leave",
            Next::Knock { .. } | Next::Notes { .. } => "knock",
        };
        if matches!(outcome, Outcome::Taken { changed: true }) {
            self.listed = None;
        }
        let response = match (then.0, outcome) {
            (Next::List, Outcome::Rows(rows)) => self.listed(wall, rows, false),
            (Next::Page, Outcome::Rows(rows)) => self.listed(wall, rows, true),
            (Next::Announce, Outcome::Taken { .. }) => Response::json(200, write_ok(Some(self.limits.row_ttl))),
            (Next::Leave, Outcome::Taken { .. }) => Response::json(200, write_ok(None)),
            (Next::Knock { grants, .. }, Outcome::Kept) => {
                Response::json(200, write_knocked(self.limits.note_ttl, &grants))
            }
            (Next::Notes { tag, since, until }, Outcome::Notes(notes)) => match until {
                Some(until) if notes.is_empty() && until > now => {
                    let op = Op::Notes { tag: tag.clone(), since };
                    let then = Then(Next::Notes { tag: tag.clone(), since, until: Some(until) });
                    return Step::Hold { tag, until, op, then };
                }
                _ => Response::json(200, write_notes(&notes, wall.as_secs_f64(), true)),
            },
            (next, outcome) => {
                if let (Next::Knock { undo, .. }, Some(relay)) = (&next, relay) {
                    relay.undo(undo);
                }
                Response::error(503, if outcome == Outcome::Full { "full" } else { "store unavailable" })
            }
        };
        self.count(name, response.status);
        Step::Answer(response)
    }

    /// Answers given so far, by endpoint and status.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<(&'static str, u16), u64> {
        &self.counts
    }

    fn count(&mut self, name: &'static str, status: u16) {
        *self.counts.entry((name, status)).or_default() += 1;
    }

    fn list(&mut self, wall: Duration, html: bool) -> Step {
        let listed = self.listed.as_ref().filter(|listed| listed.second == wall.as_secs());
        match listed {
            Some(listed) if html => {
                Step::Answer(Response { status: 200, body: ResponseBody::Page(listed.rows.clone()) })
            }
            Some(listed) => Step::Answer(Response { status: 200, body: ResponseBody::Json(listed.body.clone()) }),
            None => Step::Do { op: Op::List, then: Then(if html { Next::Page } else { Next::List }) },
        }
    }

    fn listed(&mut self, wall: Duration, rows: Vec<Row>, html: bool) -> Response {
        let body: Bytes = write_list(&rows, wall.as_secs(), self.limits.row_ttl).into();
        self.listed = Some(Listed { second: wall.as_secs(), body: body.clone(), rows: rows.clone() });
        Response { status: 200, body: if html { ResponseBody::Page(rows) } else { ResponseBody::Json(body) } }
    }

    fn poll(&self, now: Instant, query: &str) -> Step {
        let Some(tag) = field(query, "s").and_then(Tag::new) else {
            return Step::Answer(Response::bad(BadWord::Tag));
        };
        let since = field(query, "since").and_then(|text| text.parse::<f64>().ok()).filter(|t| t.is_finite());
        let since = since.unwrap_or_default();
        let wait = field(query, "wait").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default().min(WAIT_MAX);
        let until = (wait > 0).then(|| now + Duration::from_secs(wait));
        Step::Do { op: Op::Notes { tag: tag.clone(), since }, then: Then(Next::Notes { tag, since, until }) }
    }

    fn knock(&mut self, now: Instant, caller: IpAddr, body: Option<&[u8]>, relay: Option<&mut Relay>) -> Step {
        let knock = match body.ok_or(BadWord::Body).and_then(|body| Knock::read(body, relay.is_some())) {
            Ok(knock) => knock,
            Err(word) => return Step::Answer(Response::bad(word)),
        };
        let ranges =
            [(Prefix::caller(caller), self.limits.knocks), (Prefix::network(caller), self.limits.network_knocks)];
        // Before any port is given away: one address must not be able to hold them all.
        if !self.knocks.allow(now, &ranges) {
            return Step::Answer(Response::error(429, "too many knocks"));
        }
        let Knock { tag, blob, relay: port, nonce, shared } = knock;
        let granted = match (relay, nonce) {
            (Some(relay), Some(nonce)) => relay.grant(now, caller, (tag.clone(), nonce), port, shared),
            (None, _) | (_, None) => Ok((Grants::default(), Undo::default())),
        };
        match granted {
            Ok((grants, undo)) => {
                Step::Do { op: Op::Knock { tag, blob, grants }, then: Then(Next::Knock { grants, undo }) }
            }
            Err(RelayFull) => Step::Answer(Response::error(503, "relay full")),
        }
    }

    fn probe(&mut self, now: Instant, caller: IpAddr, body: Option<&[u8]>) -> Step {
        let ask = match body.ok_or(BadWord::Body).and_then(ProbeAsk::read) {
            Ok(ask) => ask,
            Err(word) => return Step::Answer(Response::bad(word)),
        };
        if !self.probes.allow(now, &[(Prefix::caller(caller), self.limits.probes)]) {
            return Step::Answer(Response::error(429, "too many probes"));
        }
        let datagram = [b"AWPB", &ask.token[..]].concat();
        Step::Probe(Probe { to: SocketAddr::new(caller.to_canonical(), ask.port), protocol: ask.protocol, datagram })
    }
}

/// The endpoint a path means, by its last part.
fn endpoint(path: &str) -> Option<&'static str> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let names = ["list", "announce", "leave", "health", "knock", "pipe", "probe"];
    if last.is_empty() { Some("list") } else { names.into_iter().find(|name| *name == last) }
}

/// A field of a query. The fields read here are digits and dots, so nothing is unescaped.
fn field<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(name, _)| *name == key)).map(|(_, value)| value)
}

/// A whole master in memory: for tests, simulators and programs that embed one.
#[derive(Debug)]
pub struct Local {
    /// Requests.
    pub server: Server,
    /// Rows and notes.
    pub memory: Memory,
    /// Datagrams, where it offers a relay.
    pub relay: Option<Relay>,
}

impl Local {
    /// An empty master.
    #[must_use]
    pub fn new(limits: Limits, relay: Option<RelayAt>, pipe: Option<SocketAddr>, seed: [u8; 32], now: Instant) -> Self {
        Self {
            server: Server::new(limits.clone(), pipe),
            memory: Memory::new(limits.clone()),
            relay: relay.map(|at| Relay::new(at, limits, seed, now)),
        }
    }

    /// Takes a request. It ends in [`Step::Answer`], [`Step::Hold`] or [`Step::Probe`].
    pub fn handle(&mut self, now: Instant, wall: Duration, caller: IpAddr, call: &Call<'_>) -> Step {
        match self.server.begin(now, wall, caller, call, self.relay.as_mut()) {
            Step::Do { op, then } => self.resume(now, wall, op, then),
            step => step,
        }
    }

    /// Asks the store again for a request that was held.
    pub fn resume(&mut self, now: Instant, wall: Duration, op: Op, then: Then) -> Step {
        let outcome = self.memory.run(now, wall, op);
        self.server.finish(now, wall, then, outcome, self.relay.as_mut())
    }
}
