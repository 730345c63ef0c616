//! The WebRTC engine behind one trait.
//!
//! [`Engine`] is what a session needs of a peer connection with data channels: ICE, DTLS and SCTP as one machine that
//! takes datagrams and time and gives datagrams and events. [`WebRtc`] is the implementation over published crates
//! (`is`, `dimpl`); its SCTP is a part of its own behind [`sctp::Sctp`], so that it can be replaced by itself.
//!
//! These crates draw their own randomness (transaction ids, DTLS randoms, SCTP tags), so two runs of one seed agree in
//! what they do and not in every byte.

pub mod candidate;
mod dcep;
mod rtc;
pub mod sctp;
pub mod sdp;
pub(crate) mod stun;
mod webrtc;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use thiserror::Error;

pub use candidate::{Candidate, CandidateError};
pub use rtc::RtcSctp;
pub use sdp::{Description, Fingerprint, SdpError, Setup};
pub use webrtc::{Settings, WebRtc};

/// A certificate and its key, made once for an endpoint.
#[derive(Clone)]
pub struct Certificate {
    inner: Arc<dimpl::DtlsCertificate>,
    fingerprint: Fingerprint,
}

impl Certificate {
    /// A new self-signed ECDSA P-256 certificate. It asks the operating system for a clock and for randomness, so a
    /// machine is handed one and makes none.
    ///
    /// # Errors
    /// [`EngineError::Certificate`] when the system has no randomness to give.
    pub fn generate() -> Result<Self, EngineError> {
        let inner = dimpl::certificate::generate_self_signed_certificate().map_err(|_| EngineError::Certificate)?;
        let fingerprint = Fingerprint::of(&inner.certificate);
        Ok(Self { inner: Arc::new(inner), fingerprint })
    }

    /// Its sha-256 hash, for the description.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Certificate").field(&self.fingerprint).finish()
    }
}

impl Fingerprint {
    /// The sha-256 hash of a certificate in DER.
    #[must_use]
    pub fn of(der: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(der).into())
    }
}

/// Which end of the DTLS handshake this side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtlsRole {
    /// Begins it.
    Client,
    /// Waits for it.
    Server,
}

/// What an engine must know of the other side.
#[derive(Clone, Debug)]
pub struct Remote {
    /// `a=ice-ufrag`.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub pwd: String,
    /// One of these the certificate must have.
    pub fingerprints: Vec<Fingerprint>,
    /// The own end of the DTLS handshake.
    pub role: DtlsRole,
    /// Most bytes of one message towards the other side.
    pub message_limit: usize,
    /// It only answers checks, so that this side has to choose the path.
    pub ice_lite: bool,
}

/// One data channel of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// What a channel promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reliability {
    /// Messages arrive in the order they were sent.
    pub ordered: bool,
    /// How often a lost message is sent again; always, when `None`.
    pub retransmits: Option<u16>,
}

impl Reliability {
    /// Every message, in order.
    pub const RELIABLE: Self = Self { ordered: true, retransmits: None };
    /// Each message at most once, in any order.
    pub const UNRELIABLE: Self = Self { ordered: false, retransmits: Some(0) };
}

/// What an engine tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineEvent {
    /// ICE has found a path, or a better one.
    Path {
        /// The own base it leaves from.
        from: SocketAddr,
        /// The other side's address.
        to: SocketAddr,
    },
    /// No path works at the moment. Not the end: another may be found.
    Interrupted,
    /// A path works again.
    Resumed,
    /// DTLS is up and the certificate is the announced one.
    Secure,
    /// A channel can be used in both directions. An own channel is told when the other side has acknowledged it.
    Opened {
        /// Its number.
        channel: ChannelId,
        /// Its name.
        label: Arc<str>,
    },
    /// Messages wait in [`Engine::recv`]. Told once until it answers `None`.
    Readable(ChannelId),
    /// [`Engine::buffered`] has fallen below its mark.
    Writable(ChannelId),
    /// The other side has closed a channel.
    ChannelClosed(ChannelId),
    /// The connection is over. Nothing follows.
    Closed(Ended),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// As this side wished; everything sent was acknowledged.
    Flushed,
    /// The other side closed it.
    Remote,
    /// DTLS or SCTP failed; the text says how.
    Failed(&'static str),
    /// The certificate is not the announced one.
    Certificate,
}

/// Why an engine refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No certificate could be made.
    #[error("no certificate could be made: the system gives no randomness")]
    Certificate,
    /// The connection or channel is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// Over the other side's `a=max-message-size`.
    #[error("a message of {size} bytes; the other side takes {limit}")]
    TooLarge {
        /// What was to be sent.
        size: usize,
        /// What may be sent.
        limit: usize,
    },
    /// An address ICE cannot use.
    #[error("this address cannot be used for a connection")]
    Address,
    /// It was started before.
    #[error("the other side's description is known already")]
    Started,
}

/// ICE, DTLS and SCTP of one connection, without sockets.
///
/// The caller gives every datagram to [`input`](Self::input), calls [`timeout`](Self::timeout) when
/// [`poll_timeout`](Self::poll_timeout) says so, and then drains [`poll_transmit`](Self::poll_transmit) and
/// [`poll_event`](Self::poll_event).
pub trait Engine {
    /// The own user fragment and password for the description.
    fn credentials(&self) -> (&str, &str);

    /// An own address that datagrams leave from and arrive at. Relayed ones are named as such.
    ///
    /// # Errors
    /// [`EngineError::Address`] for an address ICE cannot use.
    fn add_local(&mut self, now: Instant, base: SocketAddr, relayed: bool) -> Result<(), EngineError>;

    /// A candidate of the other side. At most [`sdp::CANDIDATES_MAX`] are taken.
    fn add_remote(&mut self, now: Instant, candidate: &Candidate);

    /// The other side's description; checks begin.
    ///
    /// # Errors
    /// [`EngineError::Started`] the second time.
    fn start(&mut self, now: Instant, remote: Remote) -> Result<(), EngineError>;

    /// A datagram. False when it is not for this connection.
    fn input(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool;

    /// Time has passed.
    fn timeout(&mut self, now: Instant);

    /// Gives datagrams as (own base, destination, bytes) until none is left or `out` returns false, which keeps that
    /// datagram. Whether any was taken.
    fn poll_transmit(&mut self, now: Instant, out: &mut impl FnMut(SocketAddr, SocketAddr, &[u8]) -> bool) -> bool;

    /// The next thing to tell.
    fn poll_event(&mut self) -> Option<EngineEvent>;

    /// When it wants to be called again, and why.
    fn poll_timeout(&self) -> Option<(Instant, &'static str)>;

    /// A channel to be announced as soon as the connection is up, in the order of the calls.
    fn open(&mut self, label: &'static str, reliability: Reliability);

    /// Queues a message. The caller keeps an eye on [`buffered`](Self::buffered).
    ///
    /// # Errors
    /// [`EngineError::NotOpen`], [`EngineError::TooLarge`].
    fn send(&mut self, now: Instant, channel: ChannelId, message: Bytes) -> Result<(), EngineError>;

    /// The next message of a channel. What is not asked for closes the window towards the sender.
    fn recv(&mut self, now: Instant, channel: ChannelId) -> Option<Bytes>;

    /// Bytes of a channel that are not acknowledged yet.
    fn buffered(&self, channel: ChannelId) -> usize;

    /// What a connection that is not up is waiting for, for people.
    fn waits_for(&self) -> &'static str;

    /// When anything of the other side was last authenticated.
    fn heard(&self) -> Option<Instant>;

    /// Ends it in order: what is queued goes out first, then SCTP, DTLS and ICE end. [`EngineEvent::Closed`] follows.
    fn close(&mut self, now: Instant);

    /// Ends it at once, telling the other side if that takes no waiting.
    fn abort(&mut self, now: Instant);
}
