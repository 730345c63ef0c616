//! What waits to be sent. A payload is sealed when there is room for it, straight into the driver's batch; one payload
//! for several players is sealed once and copied.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use netem::Shaper;
use np1::{HEADER, Kind};
use rendezvous::shared::{DATA_HEADER, data_header, session_of};
use seal::{OVERHEAD, Sealer};
use seam::{Outbox, Path};

use crate::GAME;
use crate::tail::Tail;

/// Payloads and packets held at most; rooms keep theirs until there is room, and each has a bound of its own.
pub(crate) const QUEUE: usize = 4096;

/// A payload before it is sealed.
#[derive(Debug)]
pub(crate) enum Body {
    /// A lobby message, whole or one fragment.
    Message(Vec<u8>),
    /// A game frame without its letter.
    Game(Bytes),
    /// A game frame in an envelope, whose head is written already.
    Envelope { head: Vec<u8>, frame: Bytes },
    /// A payload that is passed on as it came.
    Raw(Bytes),
}

impl Body {
    fn parts(&self) -> [&[u8]; 3] {
        match self {
            Self::Message(bytes) => [bytes, &[], &[]],
            Self::Game(frame) => [b"g", frame, &[]],
            Self::Envelope { head, frame } => [head, b"g", frame],
            Self::Raw(bytes) => [bytes, &[], &[]],
        }
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

#[derive(Debug)]
enum Item {
    /// A datagram that is complete.
    Packet { path: Path, bytes: Bytes },
    /// A payload for one or several players.
    Payload { to: Vec<Path>, body: Body },
}

/// Bytes on a path, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// The queue between the rooms and the driver's batch.
#[derive(Debug)]
pub(crate) struct Egress {
    sealer: Option<Sealer>,
    queue: VecDeque<Item>,
    /// The head payload, sealed, and how many of its receivers have their copy.
    copied: Option<(Vec<u8>, usize)>,
    shaper: Option<Shaper>,
    /// A datagram the shaper gave out while the batch was full.
    held: Option<(Path, Vec<u8>)>,
    traffic: BTreeMap<Path, Traffic>,
    /// Where to the datagrams of bound relay sessions go.
    relays: BTreeMap<u32, Path>,
    /// Frames of a moment ago, where players may have several paths.
    tail: Option<Tail>,
}

impl Egress {
    pub(crate) fn new(sealer: Option<Sealer>, shaper: Option<Shaper>) -> Self {
        Self {
            sealer,
            queue: VecDeque::new(),
            copied: None,
            shaper,
            held: None,
            traffic: BTreeMap::new(),
            relays: BTreeMap::new(),
            tail: None,
        }
    }

    /// Remembers frames from now on, so that they can be sent again on another path.
    pub(crate) fn remember(&mut self) {
        self.tail.get_or_insert_default();
    }

    /// Datagrams to the other end of `session` go to the relay there.
    pub(crate) fn relay(&mut self, session: u32, at: Path) {
        self.relays.insert(session, at);
    }

    /// The relay's session is over.
    pub(crate) fn unrelay(&mut self, session: u32) {
        self.relays.remove(&session);
    }

    /// Frames that went to `from` since `since` go to `to` as well.
    pub(crate) fn again(&mut self, since: Instant, from: Path, to: Path) {
        let packets = self.tail.as_mut().map(|tail| tail.again(since, from, to)).unwrap_or_default();
        for bytes in packets {
            self.packet(to, bytes);
        }
    }

    /// What waits for `from` goes to `to` instead.
    pub(crate) fn redirect(&mut self, from: Path, to: Path) {
        // Receivers of the head are counted by their place, so a list keeps its length.
        for item in &mut self.queue {
            let paths = match item {
                Item::Packet { path, .. } => std::slice::from_mut(path),
                Item::Payload { to, .. } => to.as_mut_slice(),
            };
            for path in paths.iter_mut().filter(|path| **path == from) {
                *path = to;
            }
        }
    }

    /// The session's key is known from here on.
    pub(crate) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = Some(sealer);
    }

    /// Whether another item may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE
    }

    /// Whether nothing waits to be written. What a shaper delays does not count: it has a deadline of its own.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.held.is_none()
    }

    /// How many items wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Queues a complete datagram.
    pub(crate) fn packet(&mut self, path: Path, bytes: impl Into<Bytes>) {
        self.queue.push_back(Item::Packet { path, bytes: bytes.into() });
    }

    /// Queues a payload for everybody in `to`.
    pub(crate) fn payload(&mut self, to: Vec<Path>, body: Body) {
        if !to.is_empty() {
            self.queue.push_back(Item::Payload { to, body });
        }
    }

    /// When delayed datagrams are next due.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.shaper.as_ref().and_then(Shaper::poll_timeout)
    }

    /// Counts traffic on this path from now on.
    pub(crate) fn count(&mut self, path: Path) {
        self.traffic.entry(path).or_default();
    }

    /// The path is not of interest any more.
    pub(crate) fn uncount(&mut self, path: Path) {
        self.traffic.remove(&path);
    }

    /// Counters follow a player to its new address.
    pub(crate) fn rekey(&mut self, old: Path, new: Path) {
        if let Some(traffic) = self.traffic.remove(&old) {
            self.traffic.insert(new, traffic);
        }
    }

    /// A datagram arrived.
    pub(crate) fn received(&mut self, path: Path, bytes: usize) {
        if let Some(traffic) = self.traffic.get_mut(&path) {
            traffic.received += u64::try_from(bytes).unwrap_or(0);
        }
    }

    /// Bytes on a path so far.
    pub(crate) fn traffic(&self, path: Path) -> Traffic {
        self.traffic.get(&path).copied().unwrap_or_default()
    }

    /// Lets `room` write its own datagrams, through the shaper if there is one. False when the batch refused one.
    pub(crate) fn through<O: Outbox>(
        &mut self,
        now: Instant,
        out: &mut O,
        room: impl FnOnce(&mut Shaped<'_, O>),
    ) -> bool {
        let mut shaped = Shaped { shaper: self.shaper.as_mut(), relays: &self.relays, now, out, refused: false };
        room(&mut shaped);
        !shaped.refused
    }

    /// Writes what waits until the batch is full. False when something is left.
    pub(crate) fn write<O: Outbox>(&mut self, now: Instant, out: &mut O) -> bool {
        let mut all = true;
        while let Some(item) = self.queue.front() {
            let mut shaped = Shaped { shaper: self.shaper.as_mut(), relays: &self.relays, now, out, refused: false };
            let done = match item {
                Item::Packet { path, bytes } => {
                    let done = shaped.datagram(*path, bytes.len(), |buffer| copy(buffer, bytes));
                    note(&mut self.traffic, *path, if done { bytes.len() } else { 0 });
                    done
                }
                Item::Payload { to, body } => {
                    let tail = self.tail.as_mut().filter(|_| !matches!(body, Body::Message(_)));
                    let seal = Sealing { sealer: &mut self.sealer, copied: &mut self.copied, tail };
                    write_payload(seal, &mut self.traffic, to, body, &mut shaped)
                }
            };
            if !done {
                all = false;
                break;
            }
            self.copied = None;
            self.queue.pop_front();
        }
        self.release(now, out) && all
    }

    /// Sends what the shaper has delayed long enough.
    fn release<O: Outbox>(&mut self, now: Instant, out: &mut O) -> bool {
        let Some(shaper) = &mut self.shaper else { return true };
        while let Some((path, bytes)) = self.held.take().or_else(|| shaper.poll(now)) {
            if !out.datagram(path, bytes.len(), |buffer| copy(buffer, &bytes)) {
                self.held = Some((path, bytes));
                return false;
            }
        }
        true
    }
}

fn note(traffic: &mut BTreeMap<Path, Traffic>, path: Path, bytes: usize) {
    if let Some(traffic) = traffic.get_mut(&path) {
        traffic.sent += u64::try_from(bytes).unwrap_or(0);
    }
}

/// What writing a payload takes.
struct Sealing<'a> {
    sealer: &'a mut Option<Sealer>,
    copied: &'a mut Option<(Vec<u8>, usize)>,
    tail: Option<&'a mut Tail>,
}

fn write_payload<O: Outbox>(
    seal: Sealing<'_>,
    traffic: &mut BTreeMap<Path, Traffic>,
    to: &[Path],
    body: &Body,
    out: &mut Shaped<'_, O>,
) -> bool {
    let len = HEADER + OVERHEAD + body.len();
    let (now, Sealing { sealer, copied, tail }) = (out.now, seal);
    if let [path] = to {
        let done = out.datagram(*path, len, |buffer| {
            let used = seal_packet(sealer, body, buffer);
            if let (Some(tail), Some(packet)) = (tail, buffer.get(..used)) {
                tail.sent(now, vec![*path], Bytes::copy_from_slice(packet));
            }
            used
        });
        note(traffic, *path, if done { len } else { 0 });
        return done;
    }
    let (packet, sent) = copied.get_or_insert_with(|| {
        let mut packet = vec![0; len];
        let used = seal_packet(sealer, body, &mut packet);
        packet.truncate(used);
        if let Some(tail) = tail {
            tail.sent(now, to.to_vec(), Bytes::copy_from_slice(&packet));
        }
        (packet, 0)
    });
    for path in to.iter().skip(*sent) {
        if !out.datagram(*path, packet.len(), |buffer| copy(buffer, packet)) {
            return false;
        }
        note(traffic, *path, packet.len());
        *sent += 1;
    }
    true
}

/// Writes one packet: sealed, or plain in a session whose code carries no secret.
fn seal_packet(sealer: &mut Option<Sealer>, body: &Body, buffer: &mut [u8]) -> usize {
    let kind = if sealer.is_some() { Kind::Sealed } else { Kind::Plain };
    let Some((head, rest)) = buffer.split_first_chunk_mut::<HEADER>() else { return 0 };
    *head = np1::header(kind);
    let parts = body.parts();
    let used = match sealer {
        Some(sealer) => sealer.seal(&parts, rest),
        None => {
            let mut used = 0;
            for part in parts {
                used += copy(rest.get_mut(used..).unwrap_or_default(), part);
            }
            used
        }
    };
    HEADER + used
}

fn copy(buffer: &mut [u8], bytes: &[u8]) -> usize {
    match buffer.get_mut(..bytes.len()) {
        Some(room) => {
            room.copy_from_slice(bytes);
            bytes.len()
        }
        None => 0,
    }
}

/// An outbox behind the relays and the impairment of this instance: what goes to other players is lost or delayed as
/// asked, what goes to the own game is not.
pub(crate) struct Shaped<'a, O> {
    shaper: Option<&'a mut Shaper>,
    relays: &'a BTreeMap<u32, Path>,
    now: Instant,
    out: &'a mut O,
    refused: bool,
}

impl<O: Outbox> Shaped<'_, O> {
    fn wire(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match &mut self.shaper {
            Some(shaper) if path.socket != GAME => {
                let mut bytes = vec![0; len];
                let used = fill(&mut bytes);
                bytes.truncate(used);
                if used > 0 {
                    shaper.push(self.now, path, bytes);
                }
                true
            }
            Some(_) | None => {
                let taken = self.out.datagram(path, len, fill);
                self.refused |= !taken;
                taken
            }
        }
    }
}

impl<O: Outbox> Outbox for Shaped<'_, O> {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(session) = session_of(path.remote) else { return self.wire(path, len, fill) };
        // Without a binding there is nobody who would forward it.
        let Some(relay) = self.relays.get(&session) else { return true };
        self.wire(*relay, DATA_HEADER + len, |buffer| {
            let Some((head, rest)) = buffer.split_first_chunk_mut::<DATA_HEADER>() else { return 0 };
            *head = data_header(session);
            match fill(rest) {
                0 => 0,
                used => DATA_HEADER + used,
            }
        })
    }
}
