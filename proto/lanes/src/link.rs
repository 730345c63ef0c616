//! One end of a link.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::{Channel, Delivery, Dice, LinkStats, Refused, Route, SendError};

use crate::frame::{FRAME_MAX, Frame, Header};
use crate::incoming::Incoming;
use crate::outgoing::{Limit, Outgoing};
use crate::rtt::ACK_DELAY;

/// Frames that want an acknowledgement before one is sent at once.
const ACK_EVERY: u32 = 16;
/// How often a new link says hello: at first, and at most this seldom.
const HELLO_FIRST: Duration = Duration::from_millis(100);
const HELLO_LAST: Duration = Duration::from_secs(2);

/// What a link is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A link on which nothing was heard for this long ends.
    pub silence: Duration,
    /// A link on which nothing was said for this long says that it lives.
    pub ping: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { silence: Duration::from_secs(20), ping: Duration::from_secs(1) }
    }
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing was heard for too long.
    Silent,
    /// The other end began anew: what it knew of this link is gone.
    Restarted,
    /// The other end does not keep to the protocol.
    Broken,
}

/// What a link has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends know each other. Comes once and first.
    Up,
    /// A packet.
    Packet {
        /// Its channel; [`CONTROL`](crate::CONTROL) among them.
        channel: Channel,
        /// How it travelled.
        delivery: Delivery,
        /// Its bytes.
        data: Bytes,
    },
    /// After a `WouldBlock`: there is room again.
    Writable,
    /// The link is over. Nothing follows.
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The other end has not shown that it knows our epoch.
    Hello {
        next: Instant,
        gap: Duration,
    },
    Up,
    Over,
}

/// One end of a link between two players.
#[derive(Debug)]
pub struct Lanes {
    config: Config,
    now: Instant,
    state: State,
    epoch: u16,
    theirs: Option<u16>,
    out: Outgoing,
    incoming: Incoming,
    /// Frames that wait to be acknowledged, and until when that may wait.
    owed: u32,
    ack_at: Option<Instant>,
    /// A hello is owed to a peer that does not know us.
    greet: bool,
    heard: Instant,
    said_up: bool,
    end: Option<End>,
    sent: u64,
    received: u64,
}

impl Lanes {
    /// An end that begins to say hello.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let [a, b] = Dice::new(seed).bytes();
        Self {
            config,
            now,
            state: State::Hello { next: now, gap: HELLO_FIRST },
            epoch: u16::from_be_bytes([a, b]).max(1),
            theirs: None,
            out: Outgoing::new(),
            incoming: Incoming::new(),
            owed: 0,
            ack_at: None,
            greet: false,
            heard: now,
            said_up: false,
            end: None,
            sent: 0,
            received: 0,
        }
    }

    /// A frame came.
    ///
    /// # Errors
    /// [`Refused::Malformed`] when it is none, or from the first message on that is none: what was read before stands.
    /// [`Refused::Unexpected`] when it is for an earlier life of either end, [`Refused::Replayed`] when it came before,
    /// [`Refused::OverLimit`] when too much waits to be read: it will come again.
    pub fn handle_frame(&mut self, now: Instant, bytes: &Bytes) -> Result<(), Refused> {
        self.now = now;
        let mut frame = Frame::parse(bytes).ok_or(Refused::Malformed)?;
        let header = frame.header;
        if self.state == State::Over {
            return Err(Refused::Unexpected);
        }
        self.meet(now, header)?;
        self.received += count(bytes.len());
        self.heard = now;
        if header.to == 0 {
            // A hello; it carries nothing.
            return Ok(());
        }
        let number = self.incoming.place(header.number).ok_or(Refused::Replayed)?;
        if let Some(ack) = header.ack {
            self.out.acked(now, ack);
        }
        if self.incoming.is_full() {
            return Err(Refused::OverLimit);
        }
        let in_order = self.incoming.note(now, number);
        if header.elicits {
            self.owed += 1;
            let wait = if in_order && self.owed < ACK_EVERY { ACK_DELAY } else { Duration::ZERO };
            self.ack_at = Some(self.ack_at.map_or(now + wait, |at| at.min(now + wait)));
        }
        while let Some(message) = frame.message() {
            let message = message.map_err(|_| Refused::Malformed)?;
            let data = bytes.slice_ref(message.data);
            if self.incoming.take(&message, data).is_err() {
                self.finish(End::Broken);
                return Err(Refused::Malformed);
            }
        }
        Ok(())
    }

    /// Settles who both ends are.
    fn meet(&mut self, now: Instant, header: Header) -> Result<(), Refused> {
        if header.to != 0 && header.to != self.epoch {
            // For an earlier life of ours: its sender learns that there is a new one.
            self.greet = true;
            return Err(Refused::Unexpected);
        }
        match self.theirs {
            None => self.theirs = Some(header.from),
            Some(theirs) if theirs != header.from => {
                self.finish(End::Restarted);
                return Err(Refused::Unexpected);
            }
            Some(_) => {}
        }
        if header.to == 0 {
            self.greet = true;
        } else if matches!(self.state, State::Hello { .. }) {
            self.state = State::Up;
            self.heard = now;
        }
        Ok(())
    }

    /// Sends one packet on a channel.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], [`SendError::WouldBlock`] when the queue is full, [`SendError::NotConnected`] when the
    /// link is over. Before it is up, packets wait.
    pub fn send(&mut self, now: Instant, channel: Channel, delivery: Delivery, data: &Bytes) -> Result<(), SendError> {
        self.push(now, channel, delivery, data, Limit::Own)
    }

    /// Passes on a packet of another player: three times as much may wait.
    ///
    /// # Errors
    /// As [`Lanes::send`]. A reliable packet that is not taken is lost, so the link must be given up then.
    pub fn relay(&mut self, now: Instant, channel: Channel, delivery: Delivery, data: &Bytes) -> Result<(), SendError> {
        self.push(now, channel, delivery, data, Limit::Relay)
    }

    fn push(
        &mut self,
        now: Instant,
        channel: Channel,
        delivery: Delivery,
        data: &Bytes,
        limit: Limit,
    ) -> Result<(), SendError> {
        self.now = now;
        if self.state == State::Over {
            return Err(SendError::NotConnected);
        }
        self.out.send(channel.0, delivery, data, limit)
    }

    /// Whether a reliable packet of `len` bytes would be taken now.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.state != State::Over && self.out.has_room(len, Limit::Own)
    }

    /// A sender was told to wait elsewhere: say when there is room.
    pub fn want_writable(&mut self) {
        self.out.blocked = true;
    }

    /// Whether both ends know each other.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether the other end has everything reliable.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.out.is_idle()
    }

    /// Timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.state != State::Up {
            return;
        }
        if now >= self.heard + self.config.silence {
            return self.finish(End::Silent);
        }
        self.out.handle_timeout(now);
    }

    /// Writes the next frame into `out`, which it empties first; false when there is none.
    pub fn poll_frame(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.now = now;
        out.clear();
        match self.state {
            State::Over => return false,
            State::Hello { next, gap } => {
                let due = now >= next;
                // Who knows us is answered in a frame that shows it; who does not, by a hello.
                if !due && !std::mem::take(&mut self.greet) {
                    return false;
                }
                self.greet = false;
                if due {
                    self.state = State::Hello { next: now + gap, gap: (gap * 2).min(HELLO_LAST) };
                }
                return self.hello(out);
            }
            State::Up => {}
        }
        if std::mem::take(&mut self.greet) {
            return self.hello(out);
        }
        let messages = self.out.has_messages();
        let ping = self.next_ping() <= now;
        let ack = self.ack_at.is_some_and(|at| at <= now);
        if !messages && !ping && !ack {
            return false;
        }
        let elicits = messages || ping;
        let header = Header {
            elicits,
            from: self.epoch,
            to: self.theirs.unwrap_or(0),
            number: self.out.number(),
            ack: self.incoming.ack(now),
        };
        out.extend_from_slice(&header.to_bytes());
        let segments = if messages { self.out.fill(out) } else { Vec::new() };
        self.owed = 0;
        self.ack_at = None;
        self.out.flown(now, out.len(), elicits, segments);
        self.sent += count(out.len());
        true
    }

    fn hello(&mut self, out: &mut Vec<u8>) -> bool {
        let to = self.theirs.unwrap_or(0);
        // It has a number only when the other end will look at it.
        let header = Header { elicits: to != 0, from: self.epoch, to, number: self.out.number(), ack: None };
        out.extend_from_slice(&header.to_bytes());
        if to != 0 {
            self.out.flown(self.now, out.len(), true, Vec::new());
        }
        self.sent += count(out.len());
        true
    }

    fn next_ping(&self) -> Instant {
        self.out.last_elicited().map_or(self.now, |last| last + self.config.ping)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if !self.said_up {
            if self.state == State::Up {
                self.said_up = true;
                return Some(Event::Up);
            }
            return self.end.take().map(Event::Ended);
        }
        if let Some(arrived) = self.incoming.read() {
            let channel = Channel(arrived.channel);
            return Some(Event::Packet { channel, delivery: arrived.delivery, data: arrived.data });
        }
        if let Some(end) = self.end.take() {
            return Some(Event::Ended(end));
        }
        if self.out.blocked && self.state == State::Up && self.out.has_drained() {
            self.out.blocked = false;
            return Some(Event::Writable);
        }
        None
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) or ask for frames, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let told = self.said_up && !self.incoming.unread.is_empty() || self.end.is_some();
        if told || self.state == State::Up && !self.said_up {
            return Some((self.now, "lanes event"));
        }
        match self.state {
            State::Over => None,
            State::Hello { .. } if self.greet => Some((self.now, "lanes hello")),
            State::Hello { next, .. } => Some((next, "lanes hello")),
            State::Up => {
                if self.greet || self.out.has_messages() {
                    return Some((self.now, "lanes output"));
                }
                if self.out.blocked && self.out.has_drained() {
                    return Some((self.now, "lanes writable"));
                }
                let ack = self.ack_at.map(|at| (at, "lanes acknowledgement"));
                let silence = Some((self.heard + self.config.silence, "lanes silence"));
                let ping = Some((self.next_ping(), "lanes ping"));
                [ack, silence, ping, self.out.timeout()].into_iter().flatten().min_by_key(|(at, _)| *at)
            }
        }
    }

    /// What is known of the link; the route is the carrier's to say.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        let rtt = self.out.rtt;
        LinkStats {
            rtt: rtt.smoothed,
            jitter: rtt.smoothed.map(|_| rtt.deviation),
            loss: rtt.loss(),
            sent: self.sent,
            received: self.received,
            queued: self.out.queued(),
            route: Route::None,
        }
    }

    /// Unreliable packets dropped at this end: for want of room, and because nobody read.
    #[must_use]
    pub fn dropped(&self) -> (u64, u64) {
        (self.out.dropped, self.incoming.dropped)
    }

    fn finish(&mut self, end: End) {
        self.state = State::Over;
        self.end = Some(end);
    }
}

/// The most a carrier must be able to take.
const _: () = assert!(FRAME_MAX <= 1_400, "a game frame is at most 1,400 bytes");

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
