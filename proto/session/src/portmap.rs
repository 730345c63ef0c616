//! The lobby's port, mapped at this machine's own router: from the router's word to a proof, and from there to the code.
//!
//! ```text
//! router says yes ──> POST /probe at the master ──> its token arrives at the lobby's socket: proved, the code says `open`
//!                     three tokens sent and none here: disproved, the driver asks the router another way
//!                     no master, or one that does not probe: the address counts for as much as any other
//! ```
//!
//! The router's word alone proves nothing (pain 1): there may be a second router or a firewall in front of it. What only
//! the router says is a candidate where nothing better is known, and never `open`. The token has to come over IPv4, and
//! the address it proves has to be the one that STUN servers see.
//!
//! A code waits for this at most 1.5 s, and 2.5 s where it would be of little use without. At most nine tokens are asked
//! for in a row, three for each way of asking a router; the master allows ten a minute.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use joincode::Profile;
use rendezvous::words::{ProbeAsk, ProbeProtocol, read_error};
use seam::{HttpMethod, Path, Refused, Reply, Request, RequestId};
use stun::Observation;

use crate::Event;
use crate::session::{Role, Session};

/// How long a code waits where it is good without, and where it is not.
const WAIT_GOOD: Duration = Duration::from_millis(1_500);
const WAIT_BAD: Duration = Duration::from_millis(2_500);
/// Tokens asked for before the router's word is taken for wrong, and how long each may take.
const TOKENS: u32 = 3;
const TOKEN_FOR: Duration = Duration::from_secs(1);
/// A master that could not be asked is asked again after this.
const AGAIN: Duration = Duration::from_secs(60);
/// How long the master may take.
const TIMEOUT: Duration = Duration::from_secs(4);
const ANSWER_MAX: usize = 4 << 10;
/// Before the token in a probe's datagram (docs/wire/extensions.md).
const MARK: &[u8] = b"AWPB";
/// Ports below are not probed.
const LOWEST: u16 = 1024;
/// Ways of asking a router whose refusals are kept.
const WAYS: usize = 8;

/// What this machine's router is reported to say. For the driver to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortMap {
    /// The router's own outside address.
    Wan(Ipv4Addr),
    /// What comes to `external` is said to arrive at the lobby's UDP port.
    Mapped {
        /// How the router was asked.
        by: &'static str,
        /// Where it listens.
        external: SocketAddrV4,
    },
    /// That is over.
    Lost,
    /// No mapping by this way.
    Refused {
        /// How the router was asked.
        by: &'static str,
        /// Why, in a sentence.
        why: String,
    },
    /// Every way was tried once.
    Done,
}

/// What is known of the lobby's port at the router.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortState {
    /// Mapped, and seen from outside: strangers reach the lobby at `external`.
    Open {
        /// How the router was asked.
        by: &'static str,
        /// Where.
        external: SocketAddrV4,
    },
    /// Mapped, and nobody could tell whether anything comes through.
    Unproved {
        /// How the router was asked.
        by: &'static str,
        /// Where it is said to be.
        external: SocketAddrV4,
        /// Why nobody could tell, in a sentence.
        why: String,
    },
    /// The router said yes and nothing came through. The driver asks it another way.
    Disproved {
        /// How the router was asked.
        by: &'static str,
    },
    /// Not mapped.
    Closed {
        /// Each way of asking, and why it came to nothing.
        refused: BTreeMap<&'static str, String>,
    },
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { by, external } => write!(f, "mapped by {by} and seen from outside at {external}"),
            Self::Unproved { by, external, why } => {
                write!(f, "mapped by {by} at {external}, not seen from outside: {why}")
            }
            Self::Disproved { by } => write!(f, "the router mapped it by {by}, but nothing came through from outside"),
            Self::Closed { refused } if refused.is_empty() => f.write_str("not mapped"),
            Self::Closed { refused } => {
                let list: Vec<String> = refused.iter().map(|(by, why)| format!("{by}: {why}")).collect();
                write!(f, "not mapped ({})", list.join("; "))
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Proof {
    /// Tokens go round.
    Asking {
        token: [u8; 16],
        request: Option<RequestId>,
        asked: u32,
        sent: bool,
        next: Instant,
    },
    Proved,
    /// `again` is when the master is asked anew.
    Unproved {
        why: String,
        again: Option<Instant>,
    },
}

#[derive(Clone, Debug)]
struct Offer {
    by: &'static str,
    external: SocketAddrV4,
    proof: Proof,
}

/// A host's port.
#[derive(Debug)]
pub(crate) struct Port {
    began: Instant,
    offer: Option<Offer>,
    refused: BTreeMap<&'static str, String>,
    wan: Option<Ipv4Addr>,
    /// Every way was tried once.
    done: bool,
    told: Option<PortState>,
    /// The public address in the code that was given out.
    coded: Option<Option<SocketAddrV4>>,
}

impl Port {
    pub(crate) fn new(now: Instant) -> Self {
        let refused = BTreeMap::new();
        Self { began: now, offer: None, refused, wan: None, done: false, told: None, coded: None }
    }

    /// Until when a code waits; `None` when there is nothing to wait for.
    fn holds_code(&self, observation: Option<&Observation>) -> Option<Instant> {
        let settled = match &self.offer {
            Some(offer) => !matches!(offer.proof, Proof::Asking { .. }),
            None => self.done,
        };
        let good = observation.is_some_and(|seen| !seen.public.is_empty() && !seen.symmetric);
        (!settled).then(|| self.began + if good { WAIT_GOOD } else { WAIT_BAD })
    }

    /// A code with this public address goes out.
    pub(crate) fn coded(&mut self, public: Option<SocketAddrV4>) {
        self.coded = Some(public);
    }

    fn state(&self) -> Option<PortState> {
        match &self.offer {
            Some(Offer { by, external, proof: Proof::Proved }) => Some(PortState::Open { by, external: *external }),
            Some(Offer { by, external, proof: Proof::Unproved { why, .. } }) => {
                Some(PortState::Unproved { by, external: *external, why: why.clone() })
            }
            Some(Offer { proof: Proof::Asking { .. }, .. }) => None,
            None => self.done.then(|| PortState::Closed { refused: self.refused.clone() }),
        }
    }

    /// What the router and the proof add to a profile (netpunch wire, section 12.2).
    fn improve(&self, profile: &mut Profile, observation: Option<&Observation>) {
        let seen = observation.and_then(|seen| seen.public.first()).map(|seen| *seen.ip());
        if let Some(wan) = self.wan {
            let shared = Observation::of([SocketAddr::from((wan, 1))]).cgnat;
            profile.flags.cgnat |= shared || seen.is_some_and(|seen| seen != wan);
        }
        match &self.offer {
            Some(Offer { external, proof: Proof::Proved, .. }) => {
                profile.flags.open = true;
                profile.public = Some(*external);
            }
            // Pain 2: without STUN the router's word is better than nothing.
            Some(Offer { external, .. }) => profile.public = profile.public.or(Some(*external)),
            None => {}
        }
    }
}

impl Session {
    /// A driver that asks routers tells what they say.
    pub(crate) fn port_map(&mut self, word: PortMap) {
        let now = self.now;
        let Some(port) = &mut self.port else { return };
        match word {
            PortMap::Wan(address) => port.wan = Some(address),
            PortMap::Done => port.done = true,
            PortMap::Refused { by, why } => {
                if port.refused.len() < WAYS || port.refused.contains_key(by) {
                    port.refused.insert(by, why);
                }
            }
            PortMap::Lost => port.offer = None,
            PortMap::Mapped { by, external } => {
                if port.offer.as_ref().is_none_or(|offer| (offer.by, offer.external) != (by, external)) {
                    port.refused.remove(by);
                    port.offer =
                        Some(Offer { by, external, proof: Proof::Unproved { why: String::new(), again: Some(now) } });
                }
            }
        }
        self.port_timeout();
    }

    /// Asks the master for a token where one is due.
    pub(crate) fn port_timeout(&mut self) {
        let now = self.now;
        if self.port.is_none() || self.over {
            return;
        }
        let Role::Host(side) = &self.role else { return };
        let url = side.config.rendezvous.clone().filter(|url| !url.trim().is_empty() && url != "off");
        let seen = self.observing.observation().and_then(|seen| seen.public.first().map(|seen| *seen.ip()));
        // A master with a name may have been asked over IPv6, and then its tokens say nothing about IPv4.
        let by_v6 = self.local.v6.is_some() && !url.as_deref().is_some_and(is_at_v4);
        let Some(port) = &mut self.port else { return };
        if let Some(Offer { by, external, proof }) = &mut port.offer {
            let unproved = |why: &str, again| Proof::Unproved { why: why.to_owned(), again };
            match proof {
                Proof::Unproved { again: Some(at), .. } if *at <= now => {
                    *proof = match &url {
                        None => unproved("there is no master server to ask", None),
                        Some(_) if external.port() < LOWEST => unproved("ports below 1024 are not probed", None),
                        Some(_) if seen.is_some_and(|seen| seen != *external.ip()) => unproved(
                            "strangers see another address than the router says: there is another router",
                            None,
                        ),
                        Some(_) => {
                            let token = self.dice.bytes();
                            Proof::Asking { token, request: None, asked: 0, sent: false, next: now }
                        }
                    };
                }
                Proof::Asking { request: None, asked: TOKENS.., sent: true, next, .. } if *next <= now && by_v6 => {
                    *proof = unproved("no token of the master server came, which may have been asked over IPv6", None);
                }
                Proof::Asking { request: None, asked: TOKENS.., sent: true, next, .. } if *next <= now => {
                    let by = *by;
                    port.refused.insert(by, "it mapped the port, but nothing came through from outside".to_owned());
                    port.offer = None;
                    // The driver tries the other ways, and says when there are no more.
                    self.log(format!("[net] UDP port: {}", PortState::Disproved { by }));
                    self.push(Event::Port(PortState::Disproved { by }));
                }
                _ => {}
            }
        }
        self.ask_token(url.as_deref());
        self.tell_port();
    }

    fn ask_token(&mut self, url: Option<&str>) {
        let now = self.now;
        let due = |port: &Port| match &port.offer {
            Some(Offer { external, proof: Proof::Asking { token, request: None, next, .. }, .. }) if *next <= now => {
                Some((external.port(), token.to_vec()))
            }
            _ => None,
        };
        let (Some(url), Some((at, token))) = (url, self.port.as_deref().and_then(due)) else { return };
        let ask = ProbeAsk { protocol: ProbeProtocol::Udp, port: at, token };
        let id = self.request(Request::Http {
            method: HttpMethod::Post,
            url: format!("{}/probe", url.trim_end_matches('/')),
            body: ask.write(),
            timeout: TIMEOUT,
            answer_max: ANSWER_MAX,
        });
        if let Some(port) = &mut self.port
            && let Some(Offer { proof: Proof::Asking { request, asked, .. }, .. }) = &mut port.offer
        {
            *request = Some(id);
            *asked += 1;
        }
    }

    /// Whether the reply was that of a probe.
    pub(crate) fn port_reply(&mut self, id: RequestId, reply: Reply) -> Option<Reply> {
        let now = self.now;
        let Some(port) = &mut self.port else { return Some(reply) };
        let Some(Offer { proof, .. }) = &mut port.offer else { return Some(reply) };
        let Proof::Asking { request, sent, next, .. } = proof else { return Some(reply) };
        if *request != Some(id) {
            return Some(reply);
        }
        let trouble = match reply {
            Reply::Http { status: 200, .. } => None,
            Reply::Http { status: 404 | 405 | 501, .. } => Some(("the master server does not probe".to_owned(), None)),
            Reply::Http { status, body } => {
                Some((format!("the master server answers {status} {}", read_error(&body)), Some(now + AGAIN)))
            }
            Reply::Unreachable(why) => Some((format!("the master server cannot be asked ({why})"), Some(now + AGAIN))),
            _ => Some(("the master server cannot be asked".to_owned(), None)),
        };
        match trouble {
            None => {
                *request = None;
                *sent = true;
                *next = now + TOKEN_FOR;
            }
            Some((why, again)) => *proof = Proof::Unproved { why, again },
        }
        self.port_timeout();
        None
    }

    /// Whether a datagram is a probe's, and what it comes to.
    pub(crate) fn probed(&mut self, path: Path, data: &[u8]) -> Option<Result<(), Refused>> {
        let came = data.strip_prefix(MARK)?;
        let seen = self.observing.observation().and_then(|seen| seen.public.first().map(|seen| *seen.ip()));
        let offer = self.port.as_mut().and_then(|port| port.offer.as_mut());
        let Some(Offer { proof, external, .. }) = offer else { return Some(Err(Refused::Unexpected)) };
        let at_external = seen.is_none_or(|seen| seen == *external.ip());
        match proof {
            Proof::Asking { token, .. }
                if came == token && at_external && path.remote.ip().to_canonical().is_ipv4() =>
            {
                *proof = Proof::Proved;
                self.port_timeout();
                Some(Ok(()))
            }
            Proof::Asking { .. } | Proof::Proved | Proof::Unproved { .. } => Some(Err(Refused::Unexpected)),
        }
    }

    /// Says what changed, and gives out a code that waited for it, or another one.
    fn tell_port(&mut self) {
        let Some(port) = &mut self.port else { return };
        let state = port.state();
        if state.is_some() && state != port.told {
            port.told.clone_from(&state);
            if let Some(state) = state {
                self.log(format!("[net] UDP port: {state}"));
                self.push(Event::Port(state));
            }
        }
        self.port_changed();
    }

    /// Until when the code waits for the router.
    pub(crate) fn code_waits(&self) -> Option<Instant> {
        let until = self.port.as_ref()?.holds_code(self.observing.observation())?;
        (until > self.now).then_some(until)
    }

    /// What the router adds to the own profile.
    pub(crate) fn improve(&self, mut profile: Profile) -> Profile {
        if let Some(port) = &self.port {
            port.improve(&mut profile, self.observing.observation());
        }
        profile
    }

    /// Whether a code that was given out names another public address than the present one.
    pub(crate) fn is_coded_otherwise(&self) -> bool {
        let now = self.profile().public;
        self.port.as_ref().is_some_and(|port| now.is_some() && port.coded.is_some_and(|coded| coded != now))
    }

    pub(crate) fn port_deadline(&self) -> Option<(Instant, &'static str)> {
        let port = self.port.as_ref()?;
        let proof = port.offer.as_ref().and_then(|offer| match &offer.proof {
            Proof::Asking { request: None, next, .. } => Some(*next),
            Proof::Unproved { again, .. } => *again,
            Proof::Asking { .. } | Proof::Proved => None,
        });
        proof.map(|at| (at, "a proof of the mapped port"))
    }
}

/// Whether an address of a web server holds an IPv4 address instead of a name.
fn is_at_v4(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split(['/', ':']).next().unwrap_or_default();
    host.parse::<Ipv4Addr>().is_ok()
}
