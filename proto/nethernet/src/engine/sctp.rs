//! What the engine needs of SCTP (RFC 9260 over DTLS, RFC 8261), narrow enough to be replaced by itself.

use std::time::Instant;

use bytes::Bytes;
use thiserror::Error;

use super::Reliability;

/// What an association is made with.
#[derive(Clone, Copy, Debug)]
pub struct SctpConfig {
    /// Sends the INIT at once. The offerer does: werift as an offerer takes no INIT, whatever its role in DTLS.
    pub initiate: bool,
    /// Largest SCTP packet.
    pub mtu: usize,
    /// Receive window announced to the other side; also the bound of what waits unread.
    pub receive_window: u32,
    /// Largest message sent.
    pub message_limit: usize,
}

/// What an association tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SctpEvent {
    /// Messages can be sent.
    Connected,
    /// A message waits on a stream.
    Readable(u16),
    /// Something sent on a stream was acknowledged or given up.
    Released(u16),
    /// The other side has reset a stream.
    Reset(u16),
    /// It is over: the other side's wish, or a failure with its text.
    Closed(Option<&'static str>),
}

/// Why an association refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SctpError {
    /// It is not connected, or the stream is closed.
    #[error("the association is closed")]
    Closed,
    /// Over the limit it was made with.
    #[error("the message is too large")]
    TooLarge,
}

/// One association.
pub trait Sctp {
    /// A new one. When it initiates, its first packet waits at once.
    fn new(config: SctpConfig, now: Instant) -> Self;

    /// A packet, as DTLS gave it.
    fn input(&mut self, now: Instant, packet: &[u8]);

    /// Time has passed.
    fn timeout(&mut self, now: Instant);

    /// When it wants to be called again.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next packet to send. What is sent is limited by congestion and by the other side's window.
    fn poll_packet(&mut self, now: Instant) -> Option<Bytes>;

    /// The next thing to tell.
    fn poll_event(&mut self) -> Option<SctpEvent>;

    /// How a stream sends, and in what order it reads. Also makes a stream that is not there yet.
    fn configure(&mut self, stream: u16, reliability: Reliability);

    /// Queues a message. Messages with the ppid of DCEP are always reliable and in order (RFC 8832, section 6).
    ///
    /// # Errors
    /// [`SctpError`].
    fn send(&mut self, now: Instant, stream: u16, ppid: u32, message: Bytes) -> Result<(), SctpError>;

    /// The next message of a stream with its ppid.
    fn recv(&mut self, stream: u16) -> Option<(u32, Bytes)>;

    /// Bytes of a stream not acknowledged yet.
    fn buffered(&self, stream: u16) -> usize;

    /// Ends it at once; an ABORT waits to be sent.
    fn abort(&mut self, now: Instant);
}
