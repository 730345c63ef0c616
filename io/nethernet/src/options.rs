//! What a node is opened with.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nethernet::ConnectionFlags;
use nethernet::discovery;
use nethernet::session::{Admit, IceServer};

use crate::Http;

/// How a node is opened. The default suits a game in a local network.
#[derive(Clone, Debug)]
pub struct Options {
    /// The own id. `None` draws one. A host that is to be recognised after a restart names its own; two peers of one
    /// network must never have the same.
    pub id: Option<u64>,
    /// Application id, broadcast port, intervals.
    pub discovery: discovery::Config,
    /// Use these own addresses only, and hear nobody from other networks. Empty: all of them.
    pub only: Vec<IpAddr>,
    /// Port of the sessions' UDP socket; 0 lets the system choose. A container publishes this one port.
    pub session_port: u16,
    /// Told to other peers instead of the own addresses: what the world sees of a container or of a forwarded port. A
    /// port of 0 stands for the sessions' own.
    pub announce: Vec<SocketAddr>,
    /// Asked besides broadcasts, for networks that carry none. A port of 0 stands for the broadcast port.
    pub watch: Vec<SocketAddr>,
    /// STUN and TURN servers, at most 16. Nobody is asked by default.
    pub servers: Vec<IceServer>,
    /// Which candidates sessions may use.
    pub flags: ConnectionFlags,
    /// Candidates follow the description one by one. When false, descriptions hold them all.
    pub trickle: bool,
    /// What happens to other peers' dials while a listener is there.
    pub admit: Admit,
    /// HTTP signalling besides the local network's.
    pub http: Option<Http>,
    /// Bytes of one session that may wait to be acknowledged.
    pub send_queue: usize,
    /// Most sessions at once.
    pub sessions_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        let session = nethernet::session::Config::new(Vec::new());
        Self {
            id: None,
            discovery: discovery::Config::default(),
            only: Vec::new(),
            session_port: 0,
            announce: Vec::new(),
            watch: Vec::new(),
            servers: Vec::new(),
            flags: session.flags,
            trickle: session.trickle,
            admit: Admit::All,
            http: None,
            send_queue: session.send_queue,
            sessions_max: session.sessions_max,
        }
    }
}

/// What a host says about itself, made anew for each question. It is called on the network thread and must be quick.
#[derive(Clone)]
pub struct Advert(Arc<dyn Fn() -> Vec<u8> + Send + Sync>);

impl Advert {
    /// Made by a function: at most 574 bytes, else the question goes unanswered and an event says so.
    pub fn new(make: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// The same bytes for everybody.
    #[must_use]
    pub fn fixed(bytes: Vec<u8>) -> Self {
        Self::new(move || bytes.clone())
    }

    pub(crate) fn make(&self) -> Vec<u8> {
        (self.0)()
    }
}

impl fmt::Debug for Advert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Advert(..)")
    }
}
