//! The end that wants the files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::StreamId;
use seam::{Dice, Outbox, Path};

use super::tube::{Tube, TubeEvent};
use super::{BlockList, Identity, SetupError, Wish};
use crate::Ask;

/// Requests out at once, and blocks in each.
const REQUESTS: usize = 4;
const RUN: u32 = 16;
/// Bytes on their way to the disk; the connection waits beyond them.
const WRITING_MAX: usize = 8 << 20;
/// A block that was wrong so often is not to be had.
const TRIES: u32 = 3;
/// Dials of a connection that is lost, without a block in between.
const DIALS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeEvent {
    /// Both ends proved who they are.
    Connected,
    /// The connection is lost and dialled again.
    Lost(String),
    /// Every block is written and verified.
    Complete,
    /// It will not come this way.
    GaveUp(String),
}

/// How far the list is.
#[derive(Debug)]
enum Listing {
    Wanted,
    Coming {
        stream: StreamId,
        bytes: Vec<u8>,
    },
    /// The disk looks through what is there.
    Looking,
    Here,
}

/// One run of blocks that was asked for.
#[derive(Debug)]
struct Run {
    /// The blocks still to come, in order.
    left: VecDeque<u32>,
    part: BytesMut,
}

/// Takes one stream of files.
#[derive(Debug)]
pub struct Taker {
    me: Identity,
    peer: [u8; 32],
    root: [u8; 32],
    total: u64,
    tube: Tube,
    dice: Dice,
    listing: Listing,
    list: Arc<BlockList>,
    /// Blocks nobody was asked for.
    wanted: BTreeSet<u32>,
    runs: BTreeMap<StreamId, Run>,
    wrong: BTreeMap<u32, u32>,
    done: u64,
    writing: usize,
    dials: u32,
    dial_at: Option<Instant>,
    asks: VecDeque<Ask>,
    events: VecDeque<TakeEvent>,
    begun: Instant,
    over: bool,
}

impl Taker {
    /// Dials the giver with the key `peer`, for the stream of `total` bytes whose list has the hash `root`.
    ///
    /// # Errors
    /// [`SetupError`], a fault of this program.
    pub fn new(
        me: Identity,
        peer: [u8; 32],
        root: [u8; 32],
        total: u64,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, SetupError> {
        let mut dice = Dice::new(seed);
        let tube = Tube::dial(now, &me, peer, &mut dice)?;
        Ok(Self {
            me,
            peer,
            root,
            total,
            tube,
            dice,
            listing: Listing::Wanted,
            list: Arc::default(),
            wanted: BTreeSet::new(),
            runs: BTreeMap::new(),
            wrong: BTreeMap::new(),
            done: 0,
            writing: 0,
            dials: 1,
            dial_at: None,
            asks: VecDeque::new(),
            events: VecDeque::new(),
            begun: now,
            over: false,
        })
    }

    /// Bytes that are there and verified.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.done
    }

    // ---- inputs -------------------------------------------------------------------------------------------------

    /// A datagram of the giver, without its packet's head.
    pub fn handle_datagram(&mut self, now: Instant, data: BytesMut) {
        self.tube.handle_datagram(now, data);
        self.pump(now);
    }

    /// The path carries something else from now on.
    pub fn path_changed(&mut self, now: Instant) {
        self.tube.path_changed(now);
    }

    /// What of the list is on the disk already. Answers [`Ask::Look`].
    pub fn handle_found(&mut self, now: Instant, found: &[u32]) {
        if !matches!(self.listing, Listing::Looking) {
            return;
        }
        self.listing = Listing::Here;
        for index in found {
            if self.wanted.remove(index) {
                self.count(*index);
            }
        }
        self.pump(now);
    }

    /// A block is written, or was not what the list says. Answers [`Ask::Keep`].
    pub fn handle_kept(&mut self, now: Instant, index: u32, good: bool) {
        self.writing = self.writing.saturating_sub(self.len(index));
        if good {
            self.dials = 0;
            self.count(index);
        } else {
            let wrong = self.wrong.entry(index).or_default();
            *wrong += 1;
            if *wrong >= TRIES {
                return self.give_up(now, "a block is wrong again and again");
            }
            self.wanted.insert(index);
        }
        self.pump(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.dial_at.is_some_and(|at| at <= now) {
            self.dial_at = None;
            self.dials += 1;
            match Tube::dial(now, &self.me, self.peer, &mut self.dice) {
                Ok(tube) => self.tube = tube,
                Err(error) => return self.give_up(now, &error.to_string()),
            }
        }
        self.tube.handle_timeout(now);
        self.pump(now);
    }

    /// Ends the connection.
    pub fn close(&mut self, now: Instant) {
        self.over = true;
        self.tube.close(now);
    }

    // ---- outputs ------------------------------------------------------------------------------------------------

    /// Work for the disk.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<TakeEvent> {
        self.events.pop_front()
    }

    /// Writes datagrams that are due. Says whether it wrote any.
    pub fn poll_transmit(&mut self, now: Instant, path: Path, out: &mut impl Outbox) -> bool {
        self.tube.poll_transmit(now, path, out)
    }

    /// When to call; an instant that has passed while anything is queued.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.asks.is_empty() || !self.events.is_empty() {
            return Some((self.begun, "blocks are queued"));
        }
        let dial = self.dial_at.map(|at| (at, "a lost connection is dialled again"));
        self.tube.poll_timeout(self.begun).into_iter().chain(dial).min_by_key(|(at, _)| *at)
    }

    // ---- inside -------------------------------------------------------------------------------------------------

    fn pump(&mut self, now: Instant) {
        while let Some(event) = self.tube.poll_event() {
            match event {
                TubeEvent::Connected => self.events.push_back(TakeEvent::Connected),
                TubeEvent::Lost(why) => self.lost(now, why),
                TubeEvent::Opened(id) => self.tube.reset(id),
                TubeEvent::Readable(_) | TubeEvent::Writable(_) => {}
            }
        }
        if self.over || self.dial_at.is_some() {
            return;
        }
        self.take_list(now);
        self.take_blocks(now);
        self.ask();
        if matches!(self.listing, Listing::Here) && self.done == self.total && self.writing == 0 {
            self.over = true;
            self.events.push_back(TakeEvent::Complete);
        }
    }

    fn lost(&mut self, now: Instant, why: String) {
        if self.over {
            return;
        }
        for run in std::mem::take(&mut self.runs).into_values() {
            self.wanted.extend(run.left);
        }
        if matches!(self.listing, Listing::Coming { .. }) {
            self.listing = Listing::Wanted;
        }
        if self.dials >= DIALS {
            return self.give_up(now, &why);
        }
        self.dial_at = Some(now + PAUSE);
        self.events.push_back(TakeEvent::Lost(why));
    }

    fn give_up(&mut self, now: Instant, why: &str) {
        if !self.over {
            self.over = true;
            self.dial_at = None;
            self.tube.close(now);
            self.events.push_back(TakeEvent::GaveUp(why.to_owned()));
        }
    }

    fn len(&self, index: u32) -> usize {
        let block = usize::try_from(index).ok().and_then(|index| self.list.blocks().get(index));
        block.and_then(|block| usize::try_from(block.len).ok()).unwrap_or_default()
    }

    fn count(&mut self, index: u32) {
        self.done += u64::try_from(self.len(index)).unwrap_or_default();
    }

    fn take_list(&mut self, now: Instant) {
        let Listing::Coming { stream, bytes } = &mut self.listing else { return };
        loop {
            match self.tube.read(*stream, 64 << 10) {
                Ok(None) => return,
                Ok(Some(part)) if part.is_empty() => break,
                Ok(Some(part)) if bytes.len() + part.len() <= BlockList::most_bytes() => bytes.extend_from_slice(&part),
                Ok(Some(_)) => return self.give_up(now, "a list of blocks without end"),
                // The connection says what became of it.
                Err(()) => {
                    self.listing = Listing::Wanted;
                    return;
                }
            }
        }
        match BlockList::read(bytes, &self.root, self.total) {
            Ok(list) => {
                let count = u32::try_from(list.blocks().len()).unwrap_or(u32::MAX);
                self.wanted = (0..count).collect();
                self.list = Arc::new(list);
                self.listing = Listing::Looking;
                self.asks.push_back(Ask::Look { list: Arc::clone(&self.list) });
            }
            Err(_) => self.give_up(now, "a list of blocks that is not the offered one"),
        }
    }

    fn take_blocks(&mut self, now: Instant) {
        let streams: Vec<StreamId> = self.runs.keys().copied().collect();
        for id in streams {
            while self.writing < WRITING_MAX {
                let Some(run) = self.runs.get_mut(&id) else { break };
                let Some(index) = run.left.front().copied() else {
                    // The end of the stream is read, so that the library forgets it.
                    if !matches!(self.tube.read(id, 1), Ok(None)) {
                        self.runs.remove(&id);
                    }
                    break;
                };
                let block = usize::try_from(index).ok().and_then(|index| self.list.blocks().get(index).copied());
                let Some(block) = block else { break };
                let need = usize::try_from(block.len).unwrap_or_default().saturating_sub(run.part.len());
                match self.tube.read(id, need) {
                    Ok(None) => break,
                    Ok(Some(part)) if !part.is_empty() => {
                        run.part.extend_from_slice(&part);
                        if part.len() == need {
                            run.left.pop_front();
                            let data: Bytes = run.part.split().freeze();
                            self.writing += data.len();
                            self.asks.push_back(Ask::Keep { index, at: block.at, hash: block.hash, data });
                        }
                    }
                    // Cut short, or refused: what is left is asked for again, unless that goes on and on.
                    Ok(Some(_)) | Err(()) => {
                        let left = self.runs.remove(&id).map(|run| run.left).unwrap_or_default();
                        let wrong = self.wrong.entry(index).or_default();
                        *wrong += 1;
                        if *wrong >= TRIES {
                            return self.give_up(now, "the other end does not give what it offered");
                        }
                        self.wanted.extend(left);
                    }
                }
            }
        }
    }

    fn ask(&mut self) {
        if matches!(self.listing, Listing::Wanted)
            && let Some(stream) = self.tube.request(&Wish::List.write())
        {
            self.listing = Listing::Coming { stream, bytes: Vec::new() };
        }
        if !matches!(self.listing, Listing::Here) {
            return;
        }
        while self.runs.len() < REQUESTS
            && let Some(first) = self.wanted.first().copied()
        {
            let left: VecDeque<u32> =
                (first..first.saturating_add(RUN)).take_while(|i| self.wanted.contains(i)).collect();
            let count = u32::try_from(left.len()).unwrap_or_default();
            let Some(stream) = self.tube.request(&Wish::Blocks { first, count }.write()) else { break };
            for index in &left {
                self.wanted.remove(index);
            }
            self.runs.insert(stream, Run { left, part: BytesMut::new() });
        }
    }
}
