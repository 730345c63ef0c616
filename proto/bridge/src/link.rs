//! The machine: one own stream, one stream per other process, one place to send to.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use seam::{Dice, Outbox, Path, Refused};

use crate::outbound::{Outbound, SendError};
use crate::stream::{Budget, Out, Stream};
use crate::wire::{Body, Datagram, Header};

/// Most senders remembered, present or silent.
pub const SENDERS_MAX: usize = 256;

const KEEPALIVE: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(10);

/// Time for further events to arrive before an acknowledgement goes out, well under the sender's resend.
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Events waiting for [`Bridge::poll_event`] at which nothing more is received; what is refused comes again.
const EVENTS_MAX: usize = 1024;

const BUDGET: usize = 8 << 20;

/// Forgotten senders whose place in their stream is still known, eight bytes each.
const PLACES_MAX: usize = 1024;

/// What a bridge is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The shared save's name, 32 ASCII hexadecimal digits: only games of the same world hear each other.
    pub world: [u8; 32],
    /// Where everything goes, and the only place anything is taken from: the lobby's game port, or the other game.
    pub peer: Path,
}

/// What the game hears.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A process was heard for the first time, or again after its silence.
    SenderJoined {
        /// Its session number.
        session: u32,
    },
    /// Nothing was heard of a process for 10 s.
    SenderGone {
        /// Its session number.
        session: u32,
    },
    /// A text, once and in its sender's order.
    Text {
        /// Who sent it.
        session: u32,
        /// The text.
        text: String,
    },
    /// The sender gave up events before they arrived here.
    Gap {
        /// Whose stream has the gap.
        session: u32,
        /// How many events.
        missing: u32,
    },
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events sent for the first time.
    pub sent: u64,
    /// Events sent again.
    pub resent: u64,
    /// Keepalives sent, acknowledgements among them.
    pub keepalives: u64,
    /// Events received in time and for the first time.
    pub received: u64,
    /// Events received again.
    pub duplicates: u64,
    /// Events dropped with the own backlog.
    pub dropped: u64,
    /// Texts that lost a piece, were no UTF-8 or too long.
    pub torn: u64,
}

/// One game's end of the link. The crate's documentation says how it works and what bounds it.
#[derive(Debug)]
pub struct Bridge {
    config: Config,
    session: u32,
    now: Instant,
    outbound: Outbound,
    streams: BTreeMap<u32, Stream>,
    /// Where the streams of forgotten senders stood, oldest first: one that comes back may still resend, for the sake
    /// of others, what was handed out here.
    places: VecDeque<(u32, u32)>,
    /// The next keepalive for nobody in particular, sent while nobody is known.
    call_at: Instant,
    budget: Budget,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Bridge {
    /// A bridge that knows nobody yet and begins to call.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        Self {
            config,
            session: Dice::new(seed).u32().max(1),
            now,
            outbound: Outbound::default(),
            streams: BTreeMap::new(),
            places: VecDeque::new(),
            call_at: now,
            budget: Budget::new(BUDGET),
            events: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// The own session number.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The senders that are there, in ascending order.
    #[must_use]
    pub fn senders(&self) -> Vec<u32> {
        self.streams.iter().filter(|(_, stream)| stream.present).map(|(session, _)| *session).collect()
    }

    /// Own events that some receiver may still lack.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.outbound.len()
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Takes one received datagram.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] from elsewhere than the configured peer; [`Refused::NotOurs`] for another protocol,
    /// another world, session 0 or the own; [`Refused::Malformed`] as [`Datagram::parse`] says; [`Refused::Unexpected`]
    /// for an event before the first keepalive of its sender; [`Refused::OverLimit`] at a bound. An event refused here
    /// is not acknowledged, so it comes again.
    pub fn handle_datagram(&mut self, now: Instant, from: Path, datagram: &[u8]) -> Result<(), Refused> {
        self.now = now;
        if from != self.config.peer {
            return Err(Refused::NotAllowed);
        }
        let Datagram { header, body } = Datagram::parse(datagram)?;
        if header.world != self.config.world || header.session == 0 || header.session == self.session {
            return Err(Refused::NotOurs);
        }
        self.heard(now, header.session)?;
        if header.ack_session == self.session
            && let Some(ack) = header.ack
        {
            self.outbound.acknowledged(header.session, ack, header.ack_bits);
            self.settle();
        }
        let full = self.events.len() >= EVENTS_MAX;
        let Some(stream) = self.streams.get_mut(&header.session) else { return Err(Refused::OverLimit) };
        let mut out = Vec::new();
        let result = match body {
            Body::Keepalive => {
                stream.keepalive(header.seq, &mut self.budget, &mut out);
                Ok(())
            }
            Body::Event { .. } if full => Err(Refused::OverLimit),
            Body::Event { index, count, text } => {
                stream.event(header.seq, (index, count, text), &mut self.budget, &mut out).map(|fresh| {
                    // A repeated event means that its acknowledgement was lost.
                    stream.ack_at = stream.ack_at.or(Some(now + ACK_DELAY));
                    if fresh {
                        self.stats.received += 1;
                    } else {
                        self.stats.duplicates += 1;
                    }
                })
            }
        };
        self.hand_out(header.session, out);
        if result == Err(Refused::OverLimit) {
            // What the silent left unfinished makes way for those who are there.
            self.give_up_silent();
        }
        result
    }

    /// Sends a text to everybody. It is kept while nobody is there.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued then.
    pub fn send_event(&mut self, now: Instant, text: &str) -> Result<(), SendError> {
        self.now = now;
        let dropped = self.outbound.push(now, text)?;
        if dropped > 0 {
            self.stats.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
            // Receivers wait for the dropped events until they hear where the stream goes on.
            for stream in self.streams.values_mut() {
                stream.keepalive_at = now;
            }
        }
        Ok(())
    }

    /// Writes everything that is due. Returns whether anything was written; what a full batch leaves is due at once.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        self.now = now;
        let mut wrote = false;
        loop {
            let more = self.transmit_event(now, out) || self.transmit_keepalive(now, out);
            if !more {
                return wrote;
            }
            wrote = true;
        }
    }

    /// What the game has to hear next.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Text { text, .. } = &event {
            self.budget.give(text.len());
        }
        Some(event)
    }

    /// When to come back at the latest, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.events.is_empty() {
            return Some((self.now, "an event waits"));
        }
        let mut first = (self.call_at, "nobody is known");
        let present: Vec<&Stream> = self.streams.values().filter(|stream| stream.present).collect();
        if !present.is_empty() {
            let streams = present.iter().flat_map(|stream| {
                let ack = stream.ack_at.map(|at| (at, "an acknowledgement is due"));
                [(stream.keepalive_at, "a keepalive is due"), (stream.heard + SILENCE, "a sender may be gone")]
                    .into_iter()
                    .chain(ack)
            });
            let events = self.outbound.next_due().map(|at| (at, "an event is due"));
            first = streams.chain(events).min().unwrap_or(first);
        }
        Some(first)
    }

    /// Lets silent senders go.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let silent: Vec<u32> = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| stream.present && stream.heard + SILENCE <= now)
            .map(|(session, stream)| {
                stream.present = false;
                stream.ack_at = None;
                *session
            })
            .collect();
        if silent.is_empty() {
            return;
        }
        self.events.extend(silent.into_iter().map(|session| Event::SenderGone { session }));
        self.settle();
    }

    /// The sender is there; makes a stream for a new one, which is told at once where the own stream stands.
    fn heard(&mut self, now: Instant, session: u32) -> Result<(), Refused> {
        if let Some(stream) = self.streams.get_mut(&session) {
            stream.heard = now;
            if stream.present {
                return Ok(());
            }
            stream.present = true;
            stream.keepalive_at = now;
        } else {
            // Joining is an event too: without this, made-up sessions would fill the queue.
            if self.events.len() >= EVENTS_MAX || !self.has_room() {
                return Err(Refused::OverLimit);
            }
            let place = self.places.iter().position(|(forgotten, _)| *forgotten == session);
            let next = place.and_then(|at| self.places.remove(at)).map(|(_, next)| next);
            self.streams.insert(session, Stream::new(now, next));
        }
        self.events.push_back(Event::SenderJoined { session });
        self.settle();
        Ok(())
    }

    /// Whether one more sender fits; the one silent for longest makes way.
    fn has_room(&mut self) -> bool {
        self.streams.len() < SENDERS_MAX || self.give_up_silent()
    }

    /// Forgets the sender that has been silent for longest, if any is silent, all but its place in its stream.
    fn give_up_silent(&mut self) -> bool {
        let silent = self.streams.iter().filter(|(_, stream)| !stream.present);
        let longest = silent.min_by_key(|(_, stream)| stream.heard).map(|(session, _)| *session);
        let Some((session, stream)) = longest.and_then(|session| self.streams.remove_entry(&session)) else {
            return false;
        };
        self.budget.give(stream.kept());
        if let Some(next) = stream.next() {
            if self.places.len() == PLACES_MAX {
                self.places.pop_front();
            }
            self.places.push_back((session, next));
        }
        true
    }

    fn settle(&mut self) {
        let present = self.senders();
        self.outbound.settle(&present);
    }

    fn hand_out(&mut self, session: u32, out: Vec<Out>) {
        for out in out {
            match out {
                Out::Text(text) => self.events.push_back(Event::Text { session, text }),
                Out::Gap(missing) => self.events.push_back(Event::Gap { session, missing }),
                Out::Torn => self.stats.torn += 1,
            }
        }
    }

    fn header(&self, acknowledged: Option<u32>, seq: u32) -> Header {
        let stream = acknowledged.and_then(|session| Some((session, self.streams.get(&session)?.ack())));
        let (ack_session, (ack, ack_bits)) = stream.unwrap_or_default();
        Header { world: self.config.world, session: self.session, ack_session, seq, ack, ack_bits }
    }

    /// Sends one due event, and with it the acknowledgement that waits longest.
    fn transmit_event(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        let mut present = self.streams.iter().filter(|(_, stream)| stream.present).peekable();
        if present.peek().is_none() {
            return false;
        }
        let waits = present.filter_map(|(session, stream)| Some((stream.ack_at?, *session))).min();
        let acknowledged = waits.map(|(_, session)| session);
        let Some((event, again)) = self.outbound.due(now) else { return false };
        let seq = event.seq;
        let body = Body::Event { index: event.index, count: event.count, text: &event.text };
        let datagram = Datagram { header: self.header(acknowledged, seq), body };
        if !out.datagram(self.config.peer, datagram.size(), |place| datagram.write(place)) {
            return false;
        }
        self.outbound.sent(now, seq);
        if again {
            self.stats.resent += 1;
        } else {
            self.stats.sent += 1;
        }
        if let Some(stream) = acknowledged.and_then(|session| self.streams.get_mut(&session)) {
            stream.ack_at = None;
        }
        true
    }

    /// Sends one due keepalive: for a sender, or for anybody while nobody is known.
    fn transmit_keepalive(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        let mut present = self.streams.iter().filter(|(_, stream)| stream.present).peekable();
        let alone = present.peek().is_none();
        let due = present.find(|(_, stream)| stream.keepalive_at <= now || stream.ack_at.is_some_and(|at| at <= now));
        let session = due.map(|(session, _)| *session);
        if session.is_none() && !(alone && self.call_at <= now) {
            return false;
        }
        let datagram = Datagram { header: self.header(session, self.outbound.oldest()), body: Body::Keepalive };
        if !out.datagram(self.config.peer, datagram.size(), |place| datagram.write(place)) {
            return false;
        }
        self.stats.keepalives += 1;
        match session.and_then(|session| self.streams.get_mut(&session)) {
            Some(stream) => {
                stream.keepalive_at = now + KEEPALIVE;
                stream.ack_at = None;
            }
            None => self.call_at = now + KEEPALIVE,
        }
        true
    }
}
