//! What a discovery is made with, and what it reports.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use seam::{Path, Refused, SocketId};
use thiserror::Error;

use crate::envelope::APP_ID;
use crate::packet::{TooLong, application_data};

/// The port everybody broadcasts to.
pub const PORT: u16 = 7551;

/// The own IPv4 socket: everything over IPv4 leaves from it, so that answers find this process and no other.
pub const OWN_V4: SocketId = SocketId(0);
/// The own IPv6 socket.
pub const OWN_V6: SocketId = SocketId(1);
/// The shared IPv4 socket on the broadcast port. It only listens: every process of a machine hears a broadcast there.
pub const SHARED_V4: SocketId = SocketId(2);
/// The shared IPv6 socket on the broadcast port.
pub const SHARED_V6: SocketId = SocketId(3);

/// How a discovery works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Selects who can hear each other; it makes the key.
    pub app_id: u64,
    /// The broadcast port, the same at all peers.
    pub port: u16,
    /// Time between two Requests of an id. At least 100 ms.
    pub interval: Duration,
    /// A peer silent for so long is forgotten, and a host then lost.
    pub forget_after: Duration,
    /// Send the empty Message of NetherNet, section 12, to peers seen for the first time. Off: one program in the field
    /// dies of it, and nobody needs it.
    pub probe: bool,
    /// Report every datagram as [`Event::Heard`], for people who look for a fault.
    pub trace: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            app_id: APP_ID,
            port: PORT,
            interval: Duration::from_secs(2),
            forget_after: Duration::from_secs(15),
            probe: false,
            trace: false,
        }
    }
}

/// Names one Request that the application is asked to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask(pub(super) u64);

/// What a discovery reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Somebody asks who is there: [`Discovery::answer`](super::Discovery::answer) with the advertisement of the moment,
    /// within 2 s.
    Asked {
        /// Names the question.
        ask: Ask,
        /// The own id that advertises.
        id: u64,
        /// Who asks; 0 for somebody without an id.
        by: u64,
    },
    /// A host answered: for the first time, with other data, or again after 1 s.
    Host(Host),
    /// A host was silent for too long.
    Lost(u64),
    /// A datagram arrived, whatever became of it. Only with [`Config::trace`].
    Heard {
        /// Where from, and at which socket.
        path: Path,
        /// Its bytes.
        size: usize,
        /// Who it says it is from, where it opens.
        sender: Option<u64>,
        /// What it was.
        what: Heard,
    },
}

/// A host's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its id.
    pub id: u64,
    /// Where the answer came from.
    pub path: Path,
    /// The data as on the wire.
    pub wire: Bytes,
    /// Whether this host was not known before.
    pub new: bool,
}

impl Host {
    /// What the data means: hexadecimal text decoded, anything else as it is.
    #[must_use]
    pub fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        application_data(&self.wire)
    }

    /// The advertisement, where it can be read. A host is a host without it.
    ///
    /// # Errors
    /// Why it cannot.
    #[cfg(feature = "server-data")]
    pub fn server_data(&self) -> Result<crate::server_data::ServerData, crate::server_data::ServerDataError> {
        crate::server_data::ServerData::parse(&self.data())
    }
}

/// What a datagram was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// A question.
    Request,
    /// A host's answer, as on the wire.
    Response(Bytes),
    /// A signalling message, or one of the keep-alives in the field.
    Message {
        /// Whom it is for.
        recipient: u64,
        /// Its text.
        data: Bytes,
    },
    /// Nothing of use.
    Refused(Refused),
}

/// Why a verb was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// 0 stands for nobody.
    #[error("0 is not an id")]
    Zero,
    /// The id is not one of this discovery's.
    #[error("{0} is not an id of this discovery")]
    NotOurs(u64),
    /// Over [`IDS_MAX`](super::IDS_MAX) ids.
    #[error("too many ids")]
    TooManyIds,
    /// Over [`WATCHED_MAX`](super::WATCHED_MAX) addresses.
    #[error("too many addresses")]
    TooManyAddresses,
    /// Answered already, or too late.
    #[error("nobody waits for that answer any more")]
    TooLate,
    /// The data does not fit a packet.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The queue of datagrams to send is full.
    #[error("too much waits to be sent")]
    WouldBlock,
    /// There is no network to send into.
    #[error("no network interface is up")]
    NoNetwork,
}

/// A network interface, as far as discovery needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    /// An IPv4 network, by its broadcast address.
    V4(std::net::Ipv4Addr),
    /// An interface with IPv6, by its number (scope).
    V6(u32),
}

impl Interface {
    /// Where a Request into this network goes.
    pub(super) fn target(self, port: u16) -> Path {
        match self {
            Self::V4(broadcast) => Path::new(OWN_V4, SocketAddr::from((broadcast, port))),
            Self::V6(scope) => {
                let all_hosts = std::net::Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
                Path::new(OWN_V6, std::net::SocketAddrV6::new(all_hosts, port, 0, scope).into())
            }
        }
    }
}

/// The own socket for an address.
pub(super) fn own(remote: SocketAddr) -> SocketId {
    if remote.is_ipv4() { OWN_V4 } else { OWN_V6 }
}
