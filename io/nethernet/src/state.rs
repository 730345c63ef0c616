//! What the network thread and callers share: both machines under one lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::Wake;
use nethernet::discovery::{self, Ask, Discovery};
use nethernet::session::{self, Endpoint, SessionId};
use nethernet::signaling::Channel as _;
use nethernet::signaling::http::{Answer, HttpId, HttpRequest, Token};
use nethernet::{Body, NetworkId, SessionError, Signal};

use crate::error::CloseInfo;
use crate::http::HttpState;
use crate::node::{Found, Heard, NodeEvent};
use crate::options::Advert;
use crate::sockets::Networks;

/// Most events that wait for the application; then the oldest goes.
const EVENTS_MAX: usize = 1_024;
/// Most sessions that wait to be accepted; one more is refused (error 16).
const ACCEPT_MAX: usize = 64;

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Something changed that a caller may wait for.
    pub(crate) changed: Condvar,
    pub(crate) wake: Wake,
}

pub(crate) struct State {
    pub(crate) id: u64,
    pub(crate) discovery: Discovery,
    pub(crate) endpoint: Endpoint,
    pub(crate) networks: Networks,
    pub(crate) http: Option<HttpState>,
    /// Answers of the HTTP side that their connections have not taken yet.
    pub(crate) answers: BTreeMap<Token, Answer>,
    /// Requests of the HTTP side to begin.
    pub(crate) requests: Vec<(HttpId, HttpRequest)>,
    pub(crate) events: VecDeque<NodeEvent>,
    /// Hosts heard of lately, by id.
    pub(crate) hosts: BTreeMap<u64, Found>,
    /// Hosts that nobody has asked for yet, in the order they were found.
    pub(crate) fresh: VecDeque<u64>,
    pub(crate) sessions: BTreeMap<SessionId, Known>,
    pub(crate) accepted: VecDeque<SessionId>,
    pub(crate) advert: Option<Advert>,
    pub(crate) closing: bool,
    /// The network thread has ended, with what it says.
    pub(crate) over: Option<String>,
}

/// A session of which a handle exists, or which waits to be accepted.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) peer: NetworkId,
    pub(crate) opened: bool,
    pub(crate) identity: Option<String>,
    pub(crate) closed: Option<CloseInfo>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A caller that panicked holds no half-made change: every verb of the machines is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something, `until` has come or the node is over.
    pub(crate) fn wait<T>(&self, until: Option<Instant>, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if state.over.is_some() || left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let patience = left.unwrap_or(Duration::from_secs(3_600));
            state = self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    pub(crate) fn tell(&mut self, event: NodeEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Carries what one machine says to the other and to the application, until there is no more. Questions are handed
    /// out: their answers are made without the lock.
    pub(crate) fn pump(&mut self, now: Instant, asks: &mut Vec<Ask>) -> bool {
        let mut any = false;
        loop {
            let mut moved = false;
            while let Some(event) = self.discovery.poll_event() {
                moved = true;
                self.discovered(event, asks);
            }
            while let Some(signal) = self.discovery.poll() {
                moved = true;
                self.endpoint.handle_signal(now, &signal.from, &signal.text);
            }
            moved |= self.pump_http(now);
            while let Some((to, text)) = self.endpoint.poll_signal() {
                moved = true;
                let own = NetworkId::P2p(self.id);
                if self.http.as_mut().is_some_and(|http| http.send(now, &own, &to, &text)) {
                    continue;
                }
                if let Err(refused) = self.discovery.send(now, &self.id.into(), &to, &text) {
                    self.undelivered(now, &to, &text, refused.error());
                }
            }
            moved |= self.hear(now);
            if !moved {
                return any;
            }
            any = true;
        }
    }

    /// Takes in what the endpoint tells. A caller does so as well: its reading may be what the end has waited for.
    pub(crate) fn hear(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.endpoint.poll_event() {
            any = true;
            self.happened(now, event);
        }
        any
    }

    fn pump_http(&mut self, now: Instant) -> bool {
        let Some(http) = &mut self.http else { return false };
        if http.host.poll_timeout().is_some_and(|(due, _)| due <= now) {
            http.host.handle_timeout(now);
        }
        let mut moved = false;
        while let Some(signal) = http.dialer.poll().or_else(|| http.host.poll()) {
            moved = true;
            self.endpoint.handle_signal(now, &signal.from, &signal.text);
        }
        while let Some((token, answer)) = http.host.poll_answer() {
            moved = true;
            self.answers.insert(token, answer);
        }
        while let Some(request) = http.dialer.poll_request() {
            moved = true;
            self.requests.push(request);
        }
        moved
    }

    /// A message that cannot leave ends the attempt it belongs to.
    fn undelivered(&mut self, now: Instant, to: &NetworkId, text: &str, error: SessionError) {
        if let Ok(signal) = Signal::parse(text)
            && !matches!(signal.body, Body::ConnectError(_))
        {
            let told = Signal { connection: signal.connection, body: Body::ConnectError(error) }.to_string();
            self.endpoint.handle_signal(now, to, &told);
        }
    }

    fn discovered(&mut self, event: discovery::Event, asks: &mut Vec<Ask>) {
        match event {
            discovery::Event::Asked { ask, .. } => asks.push(ask),
            discovery::Event::Host(host) => {
                let interface = self.networks.interface_of(host.path.remote).map(str::to_owned);
                let found = Found { id: host.id, address: host.path.remote, interface, wire: host.wire };
                if host.new {
                    self.fresh.push_back(host.id);
                    self.tell(NodeEvent::Host(found.clone()));
                }
                self.hosts.insert(host.id, found);
            }
            discovery::Event::Lost(id) => {
                self.hosts.remove(&id);
                self.fresh.retain(|fresh| *fresh != id);
                self.tell(NodeEvent::Lost(id));
            }
            discovery::Event::Heard { path, size, sender, what } => {
                let interface = self.networks.interface_of(path.remote).map(str::to_owned);
                let heard = Heard { address: path.remote, interface, size, sender, what };
                self.tell(NodeEvent::Heard(heard));
            }
            // Discovery may learn to tell more.
            _ => {}
        }
    }

    fn happened(&mut self, now: Instant, event: session::Event) {
        match event {
            session::Event::Opened { session, peer, outgoing, identity, .. } => {
                if let Some(known) = self.sessions.get_mut(&session) {
                    (known.opened, known.identity) = (true, identity);
                } else if outgoing || self.advert.is_none() || self.accepted.len() >= ACCEPT_MAX {
                    self.endpoint.refuse(now, session, SessionError::IncomingConnectionIgnored);
                } else {
                    self.sessions.insert(session, Known { peer, opened: true, identity, closed: None });
                    self.accepted.push_back(session);
                }
            }
            session::Event::Closed { session, error, by, stage, peer } => {
                let info = CloseInfo { error, by, stage };
                match self.sessions.get_mut(&session) {
                    Some(known) => known.closed = Some(info),
                    None => self.tell(NodeEvent::NotOpened { peer, info }),
                }
            }
            session::Event::Requested { session, peer, identity } => {
                self.tell(NodeEvent::Requested { session, peer, identity });
            }
            session::Event::Interrupted(session) => self.tell(NodeEvent::Interrupted(session)),
            session::Event::Resumed(session) => self.tell(NodeEvent::Resumed(session)),
            // Callers wait for the change itself.
            _ => {}
        }
    }
}
