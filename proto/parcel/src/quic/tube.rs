//! One connection on one path.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, ReadError, ReadableError,
    StreamEvent, StreamId, VarInt, WriteError,
};
use seam::{Dice, Outbox, Path};

use super::identity::{Identity, SetupError};

/// The library wants an address for what is one path to us: which socket and remote address carry it is the composer's
/// affair, and may change under the connection.
const FAR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4433);
/// Datagrams the library writes at once.
const BATCH: usize = 32;
/// What stands before the datagram in a packet of ours.
pub(crate) const HEAD: [u8; np1::HEADER] = np1::header(np1::Kind::Quic);

/// What happens on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TubeEvent {
    /// Both ends proved who they are.
    Connected,
    /// It is over; the text says why.
    Lost(String),
    /// The other end opened a stream.
    Opened(StreamId),
    /// A stream has something to read.
    Readable(StreamId),
    /// A stream takes more.
    Writable(StreamId),
}

/// One connection, dialled or awaited.
pub(crate) struct Tube {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    answers: VecDeque<Vec<u8>>,
    /// Datagrams written by the library and not taken by a full batch yet: their bytes, the size of each, how many bytes
    /// are gone.
    written: (Vec<u8>, usize, usize),
    events: VecDeque<TubeEvent>,
    /// The library may have something to send.
    dirty: bool,
    deadline: Option<Instant>,
    over: bool,
}

impl fmt::Debug for Tube {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tube").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Tube {
    /// Dials the end with the key `peer`.
    pub(crate) fn dial(now: Instant, me: &Identity, peer: [u8; 32], dice: &mut Dice) -> Result<Self, SetupError> {
        let config = me.client(peer)?;
        let mut endpoint = Endpoint::new(endpoint_config(dice), None, true, Some(dice.bytes()));
        // The name is not looked at: the key is.
        let connection = endpoint.connect(now, config, FAR, "parcel").map_err(|error| SetupError::of(&error))?;
        let mut tube = Self::with(endpoint, Some(connection));
        tube.drive();
        Ok(tube)
    }

    /// Awaits the end with the key `peer`.
    pub(crate) fn listen(me: &Identity, peer: [u8; 32], dice: &mut Dice) -> Result<Self, SetupError> {
        let config = Arc::new(me.server(peer)?);
        Ok(Self::with(Endpoint::new(endpoint_config(dice), Some(config), true, Some(dice.bytes())), None))
    }

    fn with(endpoint: Endpoint, connection: Option<(ConnectionHandle, Connection)>) -> Self {
        Self {
            endpoint,
            connection,
            answers: VecDeque::new(),
            written: (Vec::new(), 0, 0),
            events: VecDeque::new(),
            dirty: true,
            deadline: None,
            over: false,
        }
    }

    /// A datagram came, without [`HEAD`].
    pub(crate) fn handle_datagram(&mut self, now: Instant, data: BytesMut) {
        let mut answer = Vec::new();
        match self.endpoint.handle(now, FAR, None, None, data, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((own, connection)) = &mut self.connection
                    && *own == handle
                {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.connection.is_some() {
                    self.endpoint.ignore(incoming);
                } else if let Ok(connection) = self.endpoint.accept(incoming, now, &mut answer, None) {
                    self.connection = Some(connection);
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                answer.truncate(transmit.size);
                if self.answers.len() < BATCH {
                    self.answers.push_back(std::mem::take(&mut answer));
                }
            }
            None => {}
        }
        self.drive();
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection
            && self.deadline.is_some_and(|at| at <= now)
        {
            connection.handle_timeout(now);
            self.drive();
        }
    }

    /// The path carries something else from now on: what was learned of its rate and size is not true any more.
    pub(crate) fn path_changed(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.path_changed(now);
            self.drive();
        }
    }

    pub(crate) fn close(&mut self, now: Instant) {
        if let Some((_, connection)) = &mut self.connection {
            connection.close(now, VarInt::from_u32(0), Bytes::new());
            self.drive();
        }
    }

    /// Writes datagrams that are due. Says whether it wrote any.
    pub(crate) fn poll_transmit(&mut self, now: Instant, path: Path, out: &mut impl Outbox) -> bool {
        let mut wrote = false;
        while let Some(answer) = self.answers.front() {
            if !put(path, out, answer) {
                return wrote;
            }
            self.answers.pop_front();
            wrote = true;
        }
        loop {
            let (bytes, size, gone) = &mut self.written;
            while let Some(left) = bytes.get(*gone..).filter(|left| !left.is_empty()) {
                let one = left.get(..(*size).min(left.len())).unwrap_or_default();
                if one.is_empty() || !put(path, out, one) {
                    return wrote;
                }
                *gone += one.len();
                wrote = true;
            }
            bytes.clear();
            *gone = 0;
            let Some((_, connection)) = &mut self.connection else { break };
            let Some(transmit) = connection.poll_transmit(now, BATCH, bytes) else { break };
            bytes.truncate(transmit.size);
            *size = transmit.segment_size.unwrap_or(transmit.size);
        }
        self.dirty = false;
        self.drive_quietly();
        wrote
    }

    pub(crate) fn poll_event(&mut self) -> Option<TubeEvent> {
        self.events.pop_front()
    }

    /// When to call; `past` while anything is queued.
    pub(crate) fn poll_timeout(&self, past: Instant) -> Option<(Instant, &'static str)> {
        if self.dirty || !self.events.is_empty() || !self.answers.is_empty() {
            return Some((past, "a connection has something queued"));
        }
        self.deadline.map(|at| (at, "a connection's timer"))
    }

    /// Whether it is over for good.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    // ---- streams ------------------------------------------------------------------------------------------------

    /// Opens a stream, writes a request and ends its sending half.
    pub(crate) fn request(&mut self, bytes: &[u8]) -> Option<StreamId> {
        let (_, connection) = self.connection.as_mut()?;
        let id = connection.streams().open(Dir::Bi)?;
        let mut stream = connection.send_stream(id);
        let whole = stream.write(bytes).is_ok_and(|written| written == bytes.len());
        let _ = stream.finish();
        self.drive();
        whole.then_some(id)
    }

    /// Writes as much as fits now. `None` when nobody reads any more.
    pub(crate) fn write(&mut self, id: StreamId, data: &mut Bytes) -> Option<usize> {
        let (_, connection) = self.connection.as_mut()?;
        let mut parts = [std::mem::take(data)];
        let result = connection.send_stream(id).write_chunks(&mut parts);
        let [left] = parts;
        *data = left;
        self.dirty |= result.as_ref().is_ok_and(|written| written.bytes > 0);
        match result {
            Ok(written) => Some(written.bytes),
            Err(WriteError::Blocked) => Some(0),
            Err(_) => None,
        }
    }

    pub(crate) fn finish(&mut self, id: StreamId) {
        if let Some((_, connection)) = &mut self.connection {
            let _ = connection.send_stream(id).finish();
            self.drive();
        }
    }

    pub(crate) fn reset(&mut self, id: StreamId) {
        if let Some((_, connection)) = &mut self.connection {
            let _ = connection.send_stream(id).reset(VarInt::from_u32(1));
            let _ = connection.recv_stream(id).stop(VarInt::from_u32(1));
            self.drive();
        }
    }

    /// Reads up to `most` bytes. `Ok(None)` when no more is there now, `Ok(Some(empty))` at the end of the stream.
    pub(crate) fn read(&mut self, id: StreamId, most: usize) -> Result<Option<Bytes>, ()> {
        let Some((_, connection)) = &mut self.connection else { return Err(()) };
        let mut stream = connection.recv_stream(id);
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return Err(()),
        };
        let result = match chunks.next(most) {
            Ok(Some(chunk)) => Ok(Some(chunk.bytes)),
            Ok(None) => Ok(Some(Bytes::new())),
            Err(ReadError::Blocked) => Ok(None),
            Err(ReadError::Reset(_)) => Err(()),
        };
        if chunks.finalize().should_transmit() {
            self.dirty = true;
        }
        result
    }

    // ---- inside -------------------------------------------------------------------------------------------------

    fn drive(&mut self) {
        self.dirty = true;
        self.drive_quietly();
    }

    fn drive_quietly(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
                self.dirty = true;
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => self.events.push_back(TubeEvent::Connected),
                Event::ConnectionLost { reason } if !self.over => {
                    self.over = true;
                    self.events.push_back(TubeEvent::Lost(reason.to_string()));
                }
                Event::Stream(StreamEvent::Readable { id } | StreamEvent::Finished { id }) => {
                    self.events.push_back(TubeEvent::Readable(id));
                }
                Event::Stream(StreamEvent::Writable { id }) => self.events.push_back(TubeEvent::Writable(id)),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    while let Some(id) = connection.streams().accept(Dir::Bi) {
                        if id.initiator() != connection.side() {
                            self.events.push_back(TubeEvent::Opened(id));
                        }
                    }
                }
                _ => {}
            }
        }
        self.deadline = connection.poll_timeout();
    }
}

fn put(path: Path, out: &mut impl Outbox, datagram: &[u8]) -> bool {
    out.datagram(path, HEAD.len() + datagram.len(), |bytes| {
        let Some((head, body)) = bytes.split_at_mut_checked(HEAD.len()) else { return 0 };
        head.copy_from_slice(&HEAD);
        body.copy_from_slice(datagram);
        HEAD.len() + datagram.len()
    })
}

fn endpoint_config(dice: &mut Dice) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::default();
    config.rng_seed(Some(dice.bytes()));
    Arc::new(config)
}
