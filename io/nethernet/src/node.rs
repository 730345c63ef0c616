//! One peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::Poller;
use nethernet::discovery::{self, Discovery};
use nethernet::engine::Certificate;
use nethernet::packet::application_data;
use nethernet::session::{Admit, Config, Endpoint, SessionId};
use nethernet::signaling::identity::Pins;
use nethernet::{NetworkId, SessionError};

use crate::core::Core;
use crate::error::{CloseInfo, ConnectError, OpenError};
use crate::http::HttpState;
use crate::http::server::Server;
use crate::options::{Advert, Options};
use crate::session::Session;
use crate::sockets::{self, Networks};
use crate::state::{Known, Shared, State};

/// A host that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its id, which [`Node::connect`] takes.
    pub id: u64,
    /// Where its answer came from.
    pub address: SocketAddr,
    /// The own interface that leads there, where that is known.
    pub interface: Option<String>,
    /// Its data as on the wire.
    pub wire: Bytes,
}

impl Found {
    /// What the data means: hexadecimal text decoded, anything else as it is.
    #[must_use]
    pub fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        application_data(&self.wire)
    }
}

/// A datagram that arrived at a discovery socket, whatever became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Where from.
    pub address: SocketAddr,
    /// The own interface that leads there, where that is known.
    pub interface: Option<String>,
    /// Its bytes.
    pub size: usize,
    /// Who it says it is from, where it opens.
    pub sender: Option<u64>,
    /// What it was.
    pub what: discovery::Heard,
}

/// What a node tells besides what its calls answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// A host was found.
    Host(Found),
    /// A host was silent for too long.
    Lost(u64),
    /// A datagram arrived. Only with `Options::discovery.trace`.
    Heard(Heard),
    /// Somebody dials and waits for [`Node::admit`] or [`Node::refuse`]. Only with [`Admit::Ask`].
    Requested {
        /// The session it would become.
        session: SessionId,
        /// Who.
        peer: NetworkId,
        /// The value of `a=identity` in the offer.
        identity: Option<String>,
    },
    /// Somebody else's attempt to connect failed before its session was open.
    NotOpened {
        /// Whose.
        peer: NetworkId,
        /// Why.
        info: CloseInfo,
    },
    /// No path of a session works at the moment. Not the end.
    Interrupted(SessionId),
    /// A path works again.
    Resumed(SessionId),
    /// A line for the log.
    Log(String),
}

/// One peer: an id, its sockets, its network thread. Dropping it closes every session in order, for at most 5 s.
pub struct Node {
    shared: Arc<Shared>,
    server: Option<Server>,
    thread: Option<JoinHandle<()>>,
    id: u64,
    admit: Admit,
    unheard: Option<String>,
    addresses: Vec<SocketAddr>,
}

impl Node {
    /// Opens the sockets and starts the network thread.
    ///
    /// # Errors
    /// [`OpenError`] says which socket or option.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let system = |error: &dyn std::fmt::Display| OpenError::System(error.to_string());
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| system(&error))?;
        let now = Instant::now();
        let mut dice = seam::Dice::new(seed);
        // 0 stands for nobody.
        let id = options.id.unwrap_or_else(|| dice.u64().max(1));
        let networks = Networks::of(&options.only);
        let opened = sockets::open(&options, &networks)?;
        let addresses = opened.sessions.iter().flat_map(|socket| socket.announce.iter().copied()).collect();

        let mut discovery = Discovery::new(options.discovery.clone(), dice.bytes(), now);
        discovery.open(now, id).map_err(|error| OpenError::Option(error.to_string()))?;
        discovery.set_interfaces(now, networks.interfaces());
        for address in &options.watch {
            discovery.watch(now, *address).map_err(|error| OpenError::Option(error.to_string()))?;
        }
        let mut config = Config::new(opened.sessions);
        config.servers = options.servers;
        config.flags = options.flags;
        // One HTTP request carries a whole description.
        config.trickle = options.trickle && options.http.is_none();
        config.admit = Admit::None;
        config.send_queue = options.send_queue;
        config.sessions_max = options.sessions_max;
        let certificate = Certificate::generate().map_err(|error| system(&error))?;
        let endpoint = Endpoint::new(config, certificate, dice.bytes(), now)
            .map_err(|error| OpenError::Option(error.to_string()))?;

        let http = options.http.as_ref();
        let http_state = http.map(|http| HttpState::new(http, id, endpoint.fingerprint(), dice.bytes(), now));
        let poller = Poller::new().map_err(|error| system(&error))?;
        let state = State {
            id,
            discovery,
            endpoint,
            networks,
            http: http_state,
            answers: Default::default(),
            requests: Vec::new(),
            events: Default::default(),
            hosts: Default::default(),
            fresh: Default::default(),
            sessions: Default::default(),
            accepted: Default::default(),
            advert: None,
            closing: false,
            over: None,
        };
        let shared = Arc::new(Shared { state: state.into(), changed: Default::default(), wake: poller.wake() });
        let core = Core::new(Arc::clone(&shared), poller, opened.all, now).map_err(|error| system(&error))?;
        let server = match http.and_then(|http| http.listen) {
            Some(address) => {
                let opened = Server::open(address, &shared).map_err(|error| OpenError::Socket(address, error))?;
                Some(opened)
            }
            None => None,
        };
        let theirs = Arc::clone(&shared);
        let thread = Builder::new()
            .name("nethernet".to_owned())
            .spawn(move || {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| core.run()));
                theirs.lock().over = Some(ended.unwrap_or_else(|_| "the network thread panicked".to_owned()));
                theirs.changed.notify_all();
            })
            .map_err(|error| system(&error))?;
        let (admit, unheard) = (options.admit, opened.unheard);
        Ok(Self { shared, server, thread: Some(thread), id, admit, unheard, addresses })
    }

    /// The own id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The addresses that sessions tell other peers.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the HTTP side answers, with its real port.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Connects to a host by HTTP signalling: `host`, `host:port`, or a base with its scheme. Waits as
    /// [`connect`](Self::connect) does.
    ///
    /// # Errors
    /// [`ConnectError`] says what failed.
    pub fn connect_http(&self, address: &str) -> Result<Session, ConnectError> {
        let routed = self.now(|state, _| state.http.as_mut().map(|http| http.dialer.route(address)));
        let to = || NetworkId::Opaque(address.into());
        let peer =
            routed.ok_or_else(|| ConnectError::NotTried(to(), "this node was opened without HTTP".to_owned()))?;
        self.dial(peer)
    }

    /// Keys of hosts that were seen by now, to be given to the next node.
    #[must_use]
    pub fn pins(&self) -> Pins {
        self.shared.lock().http.as_ref().map(|http| http.dialer.pins().clone()).unwrap_or_default()
    }

    fn now<T>(&self, verb: impl FnOnce(&mut State, Instant) -> T) -> T {
        let done = verb(&mut self.shared.lock(), Instant::now());
        self.shared.wake.wake();
        done
    }

    /// Begins or ends to look for hosts.
    pub fn discover(&self, on: bool) {
        self.now(|state, now| {
            let id = state.id;
            // The id is open for as long as the node is.
            let _ours = state.discovery.discover(now, id, on);
        });
    }

    /// Hosts heard of lately, by id.
    #[must_use]
    pub fn hosts(&self) -> Vec<Found> {
        self.shared.lock().hosts.values().cloned().collect()
    }

    /// The next host that this call has not handed out yet, waiting for it.
    #[must_use]
    pub fn next_host(&self, patience: Duration) -> Option<Found> {
        self.shared.wait(Some(Instant::now() + patience), |state| {
            let id = state.fresh.pop_front()?;
            state.hosts.get(&id).cloned()
        })
    }

    /// The next event, waiting for it.
    #[must_use]
    pub fn event(&self, patience: Duration) -> Option<NodeEvent> {
        self.shared.wait(Some(Instant::now() + patience), |state| state.events.pop_front())
    }

    /// Connects to a peer, waiting until both channels are open or it is clear that they will not be.
    ///
    /// # Errors
    /// [`ConnectError`] says what failed.
    pub fn connect(&self, peer: impl Into<NetworkId>) -> Result<Session, ConnectError> {
        // Peers are to be heard while the dial lasts, so that messages find them.
        self.discover(true);
        self.dial(peer.into())
    }

    fn dial(&self, peer: NetworkId) -> Result<Session, ConnectError> {
        let begun = self.now(|state, now| {
            let session = state.endpoint.connect(now, peer.clone())?;
            let known = Known { peer: peer.clone(), opened: false, identity: None, closed: None };
            state.sessions.insert(session, known);
            Ok::<_, nethernet::session::ConnectError>(session)
        });
        let session = begun.map_err(|error| ConnectError::NotTried(peer.clone(), error.to_string()))?;
        // The endpoint's own time outs end the wait.
        let outcome = self.shared.wait(None, |state| {
            let known = state.sessions.get(&session)?;
            (known.opened || known.closed.is_some()).then(|| (known.opened, known.closed, known.identity.clone()))
        });
        match outcome {
            Some((true, _, identity)) => Ok(Session::new(Arc::clone(&self.shared), session, peer, identity)),
            Some((false, Some(info), _)) => {
                self.shared.lock().sessions.remove(&session);
                Err(ConnectError::Failed(peer, info))
            }
            _ => Err(ConnectError::NotTried(peer, self.fault())),
        }
    }

    /// Becomes a host: answers questions with what `advert` makes, and takes other peers' sessions.
    #[must_use]
    pub fn listen(&self, advert: Advert) -> Listener<'_> {
        self.now(|state, now| {
            let id = state.id;
            state.advert = Some(advert);
            state.endpoint.set_admit(self.admit);
            // The id is open for as long as the node is.
            let _ours = state.discovery.advertise(now, id, true);
        });
        Listener { node: self }
    }

    /// Answers the offer of a peer that was told as [`NodeEvent::Requested`].
    pub fn admit(&self, session: SessionId) {
        self.now(|state, now| state.endpoint.accept(now, session));
    }

    /// Refuses it with this error.
    pub fn refuse(&self, session: SessionId, error: SessionError) {
        self.now(|state, now| state.endpoint.refuse(now, session, error));
    }

    /// Looks at an address as well. See [`Options::watch`].
    ///
    /// # Errors
    /// [`OpenError::Option`] when there are too many.
    pub fn watch(&self, address: SocketAddr) -> Result<(), OpenError> {
        self.now(|state, now| state.discovery.watch(now, address)).map_err(|error| OpenError::Option(error.to_string()))
    }

    fn fault(&self) -> String {
        self.shared.lock().over.clone().unwrap_or_else(|| "the node is closed".to_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.server = None;
        self.now(|state, now| {
            state.closing = true;
            let id = state.id;
            state.discovery.close(id);
            state.endpoint.close_all(now);
        });
        if let Some(thread) = self.thread.take() {
            // Its body catches panics.
            let _ended = thread.join();
        }
    }
}

/// A node that hosts. Dropping it ends that; sessions that were accepted go on.
pub struct Listener<'a> {
    node: &'a Node,
}

impl Listener<'_> {
    /// Why nobody can find this host, where that is so.
    #[must_use]
    pub fn unheard(&self) -> Option<&str> {
        self.node.unheard.as_deref()
    }

    /// The next session that another peer has opened, waiting for it.
    #[must_use]
    pub fn accept(&self, patience: Duration) -> Option<Session> {
        let shared = &self.node.shared;
        shared.wait(Some(Instant::now() + patience), |state| {
            let id = state.accepted.pop_front()?;
            let known = state.sessions.get(&id)?;
            Some(Session::new(Arc::clone(shared), id, known.peer.clone(), known.identity.clone()))
        })
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.node.now(|state, now| {
            let id = state.id;
            state.advert = None;
            state.endpoint.set_admit(Admit::None);
            let _ours = state.discovery.advertise(now, id, false);
            for waiting in std::mem::take(&mut state.accepted) {
                state.sessions.remove(&waiting);
                state.endpoint.refuse(now, waiting, SessionError::IncomingConnectionIgnored);
            }
        });
    }
}
