//! The end that has the files.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::StreamId;
use seam::{Dice, Outbox, Path};

use super::tube::{Tube, TubeEvent};
use super::{BlockList, Identity, SetupError, WISH, Wish};
use crate::Ask;

/// Blocks read and not written to the connection yet, those being read among them.
const READS: usize = 16;
/// Requests of one taker at once: as many as the connection lets it open.
const REQUESTS: usize = 16;

/// One request that is being answered.
#[derive(Debug)]
struct Job {
    wish: Wish,
    /// The block read next, counted from the first.
    next: u32,
    /// What is read, in order; `None` while it is being read.
    ready: VecDeque<(u64, usize, Option<Bytes>)>,
    listed: bool,
}

/// Serves one taker.
#[derive(Debug)]
pub struct Giver {
    tube: Tube,
    list: Arc<BlockList>,
    /// Requests that came in part.
    heads: BTreeMap<StreamId, Vec<u8>>,
    jobs: BTreeMap<StreamId, Job>,
    order: VecDeque<StreamId>,
    asks: VecDeque<Ask>,
    reading: usize,
    begun: Instant,
    connected: bool,
}

impl Giver {
    /// Awaits the taker with the key `peer`.
    ///
    /// # Errors
    /// [`SetupError`], a fault of this program.
    pub fn new(
        me: &Identity,
        peer: [u8; 32],
        list: Arc<BlockList>,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, SetupError> {
        let tube = Tube::listen(me, peer, &mut Dice::new(seed))?;
        Ok(Self {
            tube,
            list,
            heads: BTreeMap::new(),
            jobs: BTreeMap::new(),
            order: VecDeque::new(),
            asks: VecDeque::new(),
            reading: 0,
            begun: now,
            connected: false,
        })
    }

    /// A datagram of the taker, without its packet's head.
    pub fn handle_datagram(&mut self, now: Instant, data: BytesMut) {
        self.tube.handle_datagram(now, data);
        self.pump();
    }

    /// The path carries something else from now on.
    pub fn path_changed(&mut self, now: Instant) {
        self.tube.path_changed(now);
    }

    /// What stands at `at`. Answers [`Ask::Read`].
    pub fn handle_data(&mut self, at: u64, data: &Bytes) {
        for job in self.jobs.values_mut() {
            let wants = |(place, len, slot): &&mut (u64, usize, Option<Bytes>)| {
                *place == at && *len == data.len() && slot.is_none()
            };
            if let Some((_, _, slot)) = job.ready.iter_mut().find(wants) {
                *slot = Some(data.clone());
                self.reading = self.reading.saturating_sub(1);
                break;
            }
        }
        self.pump();
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tube.handle_timeout(now);
        self.pump();
    }

    /// Ends the connection.
    pub fn close(&mut self, now: Instant) {
        self.tube.close(now);
    }

    /// Whether both ends proved who they are.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether the connection is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.tube.is_over()
    }

    /// Blocks to be read.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// Writes datagrams that are due. Says whether it wrote any.
    pub fn poll_transmit(&mut self, now: Instant, path: Path, out: &mut impl Outbox) -> bool {
        let wrote = self.tube.poll_transmit(now, path, out);
        self.pump();
        wrote
    }

    /// When to call; an instant that has passed while anything is queued.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.asks.is_empty() {
            return Some((self.begun, "blocks are to be read"));
        }
        self.tube.poll_timeout(self.begun)
    }

    fn pump(&mut self) {
        while let Some(event) = self.tube.poll_event() {
            match event {
                TubeEvent::Connected => self.connected = true,
                TubeEvent::Lost(_) => {
                    self.jobs.clear();
                    self.heads.clear();
                    self.order.clear();
                }
                TubeEvent::Opened(id) if self.heads.len() + self.jobs.len() < REQUESTS => {
                    self.heads.insert(id, Vec::new());
                    self.hear(id);
                }
                TubeEvent::Opened(id) => self.tube.reset(id),
                TubeEvent::Readable(id) => self.hear(id),
                TubeEvent::Writable(_) => {}
            }
        }
        self.read();
        self.write();
    }

    /// Reads a request.
    fn hear(&mut self, id: StreamId) {
        loop {
            let Some(head) = self.heads.get_mut(&id) else { return };
            match self.tube.read(id, WISH + 1) {
                Ok(Some(part)) if part.is_empty() => break,
                Ok(Some(part)) if head.len() + part.len() <= WISH => head.extend_from_slice(&part),
                Ok(None) => return,
                Ok(Some(_)) | Err(()) => {
                    self.heads.remove(&id);
                    return self.tube.reset(id);
                }
            }
        }
        let wish = self.heads.remove(&id).and_then(|head| Wish::read(&head));
        let blocks = self.list.blocks().len();
        let inside = |first: u32, count: u32| {
            let end = u64::from(first) + u64::from(count);
            end <= u64::try_from(blocks).unwrap_or_default()
        };
        match wish {
            Some(Wish::Blocks { first, count }) if !inside(first, count) => self.tube.reset(id),
            Some(wish) => {
                self.jobs.insert(id, Job { wish, next: 0, ready: VecDeque::new(), listed: false });
                self.order.push_back(id);
            }
            None => self.tube.reset(id),
        }
    }

    /// Asks for blocks, oldest request first.
    fn read(&mut self) {
        let mut held: usize = self.jobs.values().map(|job| job.ready.len()).sum();
        for id in &self.order {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let Wish::Blocks { first, count } = job.wish else {
                if !job.listed {
                    job.listed = true;
                    job.ready.push_back((0, 0, Some(self.list.write().into())));
                }
                continue;
            };
            while job.next < count && held < READS {
                let index = usize::try_from(first + job.next).unwrap_or(usize::MAX);
                let Some(block) = self.list.blocks().get(index) else { break };
                let len = usize::try_from(block.len).unwrap_or_default();
                job.ready.push_back((block.at, len, None));
                job.next += 1;
                held += 1;
                self.reading += 1;
                self.asks.push_back(Ask::Read { at: block.at, len });
            }
        }
    }

    /// Writes what is read, as much as the connection takes.
    fn write(&mut self) {
        let mut room = true;
        while room {
            room = false;
            let mut ended = Vec::new();
            for id in &self.order {
                let Some(job) = self.jobs.get_mut(id) else { continue };
                while let Some((_, _, Some(data))) = job.ready.front_mut() {
                    match self.tube.write(*id, data) {
                        None => {
                            ended.push((*id, false));
                            break;
                        }
                        Some(_) if data.is_empty() => {
                            job.ready.pop_front();
                            room = true;
                        }
                        Some(_) => break,
                    }
                }
                let whole = match job.wish {
                    Wish::List => job.listed,
                    Wish::Blocks { count, .. } => job.next == count,
                };
                if whole && job.ready.is_empty() {
                    ended.push((*id, true));
                }
            }
            for (id, whole) in ended {
                if whole {
                    self.tube.finish(id);
                }
                if let Some(job) = self.jobs.remove(&id) {
                    let unread = job.ready.iter().filter(|(_, _, data)| data.is_none()).count();
                    self.reading = self.reading.saturating_sub(unread);
                }
                self.order.retain(|own| *own != id);
            }
            if room {
                self.read();
            }
        }
    }
}
