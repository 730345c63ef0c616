//! One offer as its receiver sees it, in the old forms.

mod quic;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use np1::Chunk;
use seam::{Path, Refused, StreamAsk, StreamEnd, StreamId, Until};

use crate::held::Held;
use crate::hello::{ANSWER, Hello, PAIRED, Role, pipe_line};
use crate::quic::Taker;
use crate::rate::Rate;
use crate::words::{AwQuic, Done, Feedback, GaveUp, Offer, OfferAck, Word, digest};
use crate::{Answer, Ask, Failure, Misfit, Progress, Transport};

const FEEDBACK_EVERY: Duration = Duration::from_millis(50);
const DONE_EVERY: Duration = Duration::from_millis(200);
const DONE_OFTEN: u32 = 40;
const DONE_LATER: Duration = Duration::from_secs(1);
/// Then the sender has had ten minutes to hear it.
const DONE_MAX: u32 = 640;
const TELL_EVERY: Duration = Duration::from_secs(1);
/// A whole stream that does not verify is asked for again this often.
const RETRIES: u32 = 3;
const DIAL_TRIES: u32 = 3;
const DIAL_FOR: Duration = Duration::from_secs(3);
const DIAL_PAUSE: Duration = Duration::from_millis(500);
const PIPE_FOR: Duration = Duration::from_secs(45);
/// Nothing new for so long: the sender is taken for gone. Its own limit is 30 s.
const SILENCE: Duration = Duration::from_secs(60);
/// While chunks come, those missing among them are named; when none came for so long, all that are missing in the window.
const QUIET: Duration = Duration::from_millis(150);
/// Bytes gathered before they are written.
const RUN_MAX: usize = 256 << 10;
/// Bytes on their way to the disk. Beyond them chunks are passed over, as if they had been lost.
const WRITING_MAX: usize = 8 << 20;

/// How this end takes part.
#[derive(Clone, Debug)]
pub struct Intake {
    /// The own name, told in greetings.
    pub name: String,
    /// Most bytes taken.
    pub most_bytes: u64,
    /// Where a stream may be asked for: the sender's address with the port it offers. `None` asks for none.
    pub tcp: Option<SocketAddr>,
    /// A fresh, secret seed where this end speaks the word `quic`.
    pub quic: Option<[u8; 32]>,
    /// Streams that this end dials are numbered from here.
    pub first_stream: u64,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveEvent {
    /// How far it is; about once a second.
    Progress(Progress),
    /// What arrived was not what was offered: it begins again.
    Again,
    /// The files are verified and bear their names.
    Ready,
    /// They will not come. What bore their names before bears them still.
    Failed(Failure),
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Creating,
    Receiving,
    Hashing { done: u64 },
    Committing,
    Ready { said: u32, again: Instant },
    Failed,
}

/// The stream that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Dialled at this instant, for the n-th time.
    Waits {
        at: Instant,
        tries: u32,
    },
    Dialling {
        stream: StreamId,
        tries: u32,
    },
    /// Greeted, the answer is awaited.
    Greeted {
        stream: StreamId,
        pipe: bool,
    },
    Carries {
        stream: StreamId,
        pipe: bool,
    },
    /// The pipe is dialled, or its word is awaited.
    Piping {
        stream: StreamId,
        until: Instant,
    },
    None,
}

/// One offer that was taken.
#[derive(Debug)]
pub struct Receiver {
    offer: Offer,
    from: Path,
    intake: Intake,
    stage: Stage,
    held: Held,
    run: Run,
    writing: usize,
    /// Takes the files by QUIC, and the key the sender is to expect.
    taker: Option<Box<Taker>>,
    key: Option<AwQuic>,
    retries: u32,
    line: Line,
    pipe: Option<(SocketAddr, String)>,
    next_stream: u64,
    asks: VecDeque<Ask>,
    streams: VecDeque<StreamAsk>,
    messages: VecDeque<(Path, Vec<u8>)>,
    events: VecDeque<ReceiveEvent>,
    begun: Instant,
    feedback_at: Instant,
    tell_at: Instant,
    moved: Instant,
    /// Bytes from the start that a later attempt was told of.
    noted: u64,
    rate: Rate,
}

/// Bytes that follow each other and are not at the disk yet.
#[derive(Debug, Default)]
struct Run {
    at: u64,
    data: BytesMut,
}

impl Receiver {
    /// Takes the offer of `from`. What an earlier attempt at the same stream left on the disk is taken up.
    ///
    /// # Errors
    /// [`Misfit`]: answer it with [`refusal`].
    pub fn new(offer: Offer, from: Path, intake: Intake, now: Instant) -> Result<Self, Misfit> {
        offer.check(intake.most_bytes)?;
        let sha256 = digest(&offer.sha256).ok_or(Misfit::Hash)?;
        let files = offer.files.iter().map(|file| (file.name.clone(), file.size)).collect();
        let line = match (&intake.tcp, &offer.tcp) {
            (Some(_), Some(_)) => Line::Waits { at: now, tries: 0 },
            _ => Line::None,
        };
        Ok(Self {
            held: Held::new(np1::window(offer.chunk)),
            next_stream: intake.first_stream,
            offer,
            from,
            intake,
            stage: Stage::Creating,
            run: Run::default(),
            writing: 0,
            taker: None,
            key: None,
            retries: 0,
            line,
            pipe: None,
            asks: VecDeque::from([Ask::Create { files, sha256 }]),
            streams: VecDeque::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            begun: now,
            feedback_at: now,
            tell_at: now + TELL_EVERY,
            moved: now,
            noted: 0,
            rate: Rate::default(),
        })
    }

    /// What is received.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Whether the files are there and verified.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready { .. })
    }

    /// Whether nothing more will come of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ready { .. } | Stage::Failed)
    }

    // ---- inputs -------------------------------------------------------------------------------------------------

    /// The sender has another address.
    pub fn rekey(&mut self, new: Path) {
        self.from = new;
    }

    /// The sender is gone. What is on the disk stays, for when it comes back with the same stream.
    pub fn sender_gone(&mut self, now: Instant) {
        if !self.is_over() {
            self.flush();
            if self.taker.is_none() {
                self.asks.push_back(Ask::Note { upto: self.contiguous() });
            }
            self.give_up(now, Failure::SenderGone);
        }
    }

    /// A message of this transfer from its sender.
    pub fn handle_word(&mut self, now: Instant, word: &Word) {
        if word.sid() != self.offer.sid {
            return;
        }
        match word {
            Word::Offer(_) => match self.stage {
                Stage::Creating => {}
                Stage::Failed => self.say(&Word::Done(Done { sid: self.offer.sid, ok: false, last: true })),
                Stage::Ready { .. } => self.say_done(now),
                Stage::Receiving | Stage::Hashing { .. } | Stage::Committing => self.acknowledge(),
            },
            Word::Pipe(pipe) if self.stage == Stage::Receiving && !matches!(self.line, Line::Carries { .. }) => {
                self.meet(now, pipe);
            }
            _ => {}
        }
    }

    /// A chunk.
    ///
    /// # Errors
    /// Why it was not taken. [`Refused::Malformed`] passes the end of the stream, and the transfer has failed.
    pub fn handle_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) -> Result<(), Refused> {
        if chunk.sid != self.offer.sid {
            return Err(Refused::Unexpected);
        }
        if self.is_ready() {
            self.say_done(now);
            return Err(Refused::Unexpected);
        }
        // What a stream carries is hashed on its way: a chunk in between would not be in that hash.
        let carried = self.taker.is_some() || matches!(self.line, Line::Carries { .. });
        if self.stage != Stage::Receiving || carried || chunk.index >= self.offer.total_chunks {
            return Err(Refused::Unexpected);
        }
        if !self.held.wants(chunk.index) {
            return Err(Refused::Replayed);
        }
        let at = u64::from(chunk.index) * u64::from(self.offer.chunk);
        let len = u64::try_from(chunk.data.len()).unwrap_or(u64::MAX);
        // Pain 71: the end stands where the offer put it.
        if at.checked_add(len).is_none_or(|end| end > self.offer.total_bytes) {
            self.fail(now, Failure::PastTheEnd);
            return Err(Refused::Malformed);
        }
        if self.writing + self.run.data.len() + chunk.data.len() > WRITING_MAX {
            return Err(Refused::OverLimit);
        }
        self.write(at, chunk.data);
        self.held.insert(chunk.index);
        self.moved = now;
        self.advance(now);
        Ok(())
    }

    /// A stream that this end dialled is open.
    pub fn handle_connected(&mut self, now: Instant, stream: StreamId) {
        match (self.line, &self.pipe) {
            (Line::Dialling { stream: own, .. }, _) if own == stream => self.greet(stream, false),
            (Line::Piping { stream: own, .. }, Some((_, pair))) if own == stream => {
                self.streams.push_back(StreamAsk::Write { stream, bytes: pipe_line(pair, false) });
                self.streams.push_back(StreamAsk::Read { stream, until: Until::Bytes(PAIRED.len()) });
                self.line = Line::Piping { stream, until: now + PIPE_FOR };
            }
            _ => {}
        }
    }

    /// What was read of a stream.
    pub fn handle_bytes(&mut self, now: Instant, stream: StreamId, bytes: &[u8]) {
        match self.line {
            Line::Piping { stream: own, .. } if own == stream && bytes == PAIRED => self.greet(stream, true),
            Line::Greeted { stream: own, pipe } if own == stream && bytes == ANSWER => {
                self.line = Line::Carries { stream, pipe };
                self.moved = now;
                self.asks.push_back(Ask::ReceiveFile { stream });
            }
            Line::Piping { stream: own, .. } | Line::Greeted { stream: own, .. } if own == stream => {
                self.streams.push_back(StreamAsk::Close { stream });
                self.line = Line::None;
            }
            _ => {}
        }
    }

    /// A stream is gone, or could not be opened.
    pub fn handle_closed(&mut self, now: Instant, stream: StreamId, _why: StreamEnd) {
        match self.line {
            Line::Dialling { stream: own, tries } if own == stream => self.dial_failed(now, tries),
            Line::Greeted { stream: own, .. } | Line::Piping { stream: own, .. } if own == stream => {
                self.line = Line::None;
            }
            _ => {}
        }
    }

    /// What the disk did.
    pub fn handle_answer(&mut self, now: Instant, answer: Answer) {
        if self.stage == Stage::Failed {
            return;
        }
        self.quic_answer(now, &answer);
        let over = if let Answer::StreamOver { stream, .. } = &answer { Some(*stream) } else { None };
        match answer {
            Answer::Created { upto } if self.stage == Stage::Creating => {
                self.stage = Stage::Receiving;
                self.held.raise(self.offer.chunks_in(upto.min(self.offer.total_bytes)));
                (self.feedback_at, self.moved) = (now, now);
                self.begin_quic(now);
                self.acknowledge();
                self.advance(now);
            }
            Answer::Written { len, .. } => {
                self.writing = self.writing.saturating_sub(len);
                self.advance(now);
            }
            Answer::Arrived { stream, upto } | Answer::StreamOver { stream, upto, .. } if self.carries(stream) => {
                self.moved = now;
                if self.stage == Stage::Receiving {
                    self.held.raise(self.offer.chunks_in(upto));
                    self.advance(now);
                }
            }
            Answer::Hashing { done } => {
                if let Stage::Hashing { done: before } = &mut self.stage {
                    *before = done;
                    self.moved = now;
                }
            }
            Answer::Hashed { files, sha256 } if matches!(self.stage, Stage::Hashing { .. }) => {
                self.hashed(now, &files, sha256);
            }
            Answer::Committed if self.stage == Stage::Committing => {
                self.stage = Stage::Ready { said: 0, again: now };
                self.events.push_back(ReceiveEvent::Ready);
                self.say_done(now);
            }
            Answer::Failed(fault) => self.fail(now, Failure::Writing(fault)),
            _ => {}
        }
        if over.is_some_and(|stream| self.carries(stream)) {
            self.line = Line::None;
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Stage::Ready { said, again } = self.stage
            && again <= now
            && said < DONE_MAX
        {
            self.say_done(now);
        }
        if self.is_over() || self.stage == Stage::Creating {
            return;
        }
        if self.stage == Stage::Receiving && now >= self.moved + SILENCE {
            return self.sender_gone(now);
        }
        self.quic_timeout(now);
        if now >= self.feedback_at {
            self.feedback_at = now + FEEDBACK_EVERY;
            self.flush();
            self.feedback(now);
        }
        self.line_timeout(now);
        if now >= self.tell_at {
            self.tell_at = now + TELL_EVERY;
            self.rate.set(now, self.contiguous());
            if self.stage == Stage::Receiving && self.taker.is_none() && self.noted != self.contiguous() {
                self.noted = self.contiguous();
                self.flush();
                self.asks.push_back(Ask::Note { upto: self.noted });
            }
            self.events.push_back(ReceiveEvent::Progress(self.progress()));
        }
    }

    // ---- outputs ------------------------------------------------------------------------------------------------

    /// Work for the disk.
    pub fn poll_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front().or_else(|| self.quic_ask())
    }

    /// Work for streams.
    pub fn poll_stream(&mut self) -> Option<StreamAsk> {
        self.streams.pop_front()
    }

    /// A message for the composer to seal.
    pub fn poll_message(&mut self) -> Option<(Path, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<ReceiveEvent> {
        self.events.pop_front()
    }

    /// When to call [`Receiver::handle_timeout`]; an instant that has passed while anything is queued.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let queued =
            !self.asks.is_empty() || !self.streams.is_empty() || !self.messages.is_empty() || !self.events.is_empty();
        if queued {
            return Some((self.begun, "a transfer has something queued"));
        }
        match self.stage {
            Stage::Creating | Stage::Failed => None,
            Stage::Ready { said, again } => (said < DONE_MAX).then_some((again, "the end is said again")),
            Stage::Receiving | Stage::Hashing { .. } | Stage::Committing => {
                let line = match self.line {
                    Line::Waits { at, .. } => Some((at, "a stream is dialled")),
                    Line::Piping { until, .. } => Some((until, "nobody comes to the pipe")),
                    _ => None,
                };
                [(self.feedback_at, "feedback is due"), (self.tell_at, "progress is told")]
                    .into_iter()
                    .chain(line)
                    .chain(self.quic_next())
                    .min_by_key(|(at, _)| *at)
            }
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let transport = match self.line {
            Line::Carries { .. } => Transport::Tcp,
            _ if self.taker.is_some() => Transport::Quic,
            _ if np1::is_tunnel(self.from.remote) => Transport::Steam,
            _ => Transport::Udp,
        };
        Progress {
            bytes_done: self.contiguous(),
            bytes_total: self.offer.total_bytes,
            bytes_per_second: self.rate.bytes_per_second(),
            transport,
            verifying: matches!(self.stage, Stage::Hashing { .. } | Stage::Committing),
            gave_up_tcp: self.offer.tcp.is_some() && self.line == Line::None,
        }
    }

    // ---- inside -------------------------------------------------------------------------------------------------

    fn contiguous(&self) -> u64 {
        if let Some(taker) = &self.taker {
            return taker.bytes_done();
        }
        (u64::from(self.held.base()) * u64::from(self.offer.chunk)).min(self.offer.total_bytes)
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = self.run.at + u64::try_from(self.run.data.len()).unwrap_or(u64::MAX);
        if end != at || self.run.data.len() + data.len() > RUN_MAX {
            self.flush();
            self.run.at = at;
        }
        self.run.data.extend_from_slice(data);
    }

    fn flush(&mut self) {
        if !self.run.data.is_empty() {
            self.writing += self.run.data.len();
            let data: Bytes = self.run.data.split().freeze();
            self.asks.push_back(Ask::Write { at: self.run.at, data });
        }
    }

    /// Everything may be there.
    fn advance(&mut self, now: Instant) {
        if self.stage != Stage::Receiving || self.taker.is_some() || self.held.base() < self.offer.total_chunks {
            return;
        }
        self.flush();
        if self.writing == 0 {
            self.stage = Stage::Hashing { done: 0 };
            self.moved = now;
            self.asks.push_back(Ask::Hash);
            self.feedback(now);
        }
    }

    fn hashed(&mut self, now: Instant, files: &[[u8; 32]], sha256: [u8; 32]) {
        self.moved = now;
        let wanted = self.offer.files.iter().map(|file| digest(&file.sha256));
        let right = files.len() == self.offer.files.len()
            && digest(&self.offer.sha256) == Some(sha256)
            && wanted.zip(files).all(|(want, got)| want == Some(*got));
        if right {
            self.stage = Stage::Committing;
            self.asks.push_back(Ask::Commit);
            return;
        }
        if self.retries >= RETRIES {
            return self.fail(now, Failure::Hash);
        }
        self.retries += 1;
        self.held.clear();
        self.stage = Stage::Receiving;
        self.asks.push_back(Ask::Note { upto: 0 });
        self.events.push_back(ReceiveEvent::Again);
        self.feedback(now);
    }

    /// The transfer failed for good: its sender is told, and nothing of it stays.
    fn fail(&mut self, now: Instant, failure: Failure) {
        if self.is_over() {
            return;
        }
        self.say(&Word::Done(Done { sid: self.offer.sid, ok: false, last: true }));
        self.asks.push_back(Ask::Discard);
        self.give_up(now, failure);
    }

    fn give_up(&mut self, _now: Instant, failure: Failure) {
        self.stage = Stage::Failed;
        self.taker = None;
        match self.line {
            Line::Dialling { stream, .. }
            | Line::Greeted { stream, .. }
            | Line::Carries { stream, .. }
            | Line::Piping { stream, .. } => self.streams.push_back(StreamAsk::Close { stream }),
            Line::Waits { .. } | Line::None => {}
        }
        self.line = Line::None;
        self.events.push_back(ReceiveEvent::Failed(failure));
    }

    fn say(&mut self, word: &Word) {
        self.messages.push_back((self.from, word.write()));
    }

    fn acknowledge(&mut self) {
        let aw_quic = self.key.clone();
        self.say(&Word::Ack(OfferAck { sid: self.offer.sid, aw_quic, ..OfferAck::default() }));
    }

    fn say_done(&mut self, now: Instant) {
        if let Stage::Ready { said, again } = &mut self.stage {
            *said = said.saturating_add(1);
            *again = now + if *said <= DONE_OFTEN { DONE_EVERY } else { DONE_LATER };
        }
        // A flood of late chunks is answered with one word, not with one each.
        if self.messages.is_empty() {
            self.say(&Word::Done(Done { sid: self.offer.sid, ok: true, last: false }));
        }
    }

    fn feedback(&mut self, now: Instant) {
        let (verifying, progress) = match self.stage {
            Stage::Hashing { done } => (true, Some(i64::try_from(done).unwrap_or(i64::MAX))),
            Stage::Committing => (true, Some(i64::try_from(self.offer.total_bytes).unwrap_or(i64::MAX))),
            _ => (false, None),
        };
        let quiet = now.saturating_duration_since(self.moved) >= QUIET;
        let window = self.held.base().saturating_add(np1::window(self.offer.chunk)).min(self.offer.total_chunks);
        let end = if quiet { window } else { self.held.end() };
        let streams = matches!(self.line, Line::Carries { .. });
        let nack = if verifying || streams || self.taker.is_some() { Vec::new() } else { self.held.missing(end) };
        let base = self.offer.chunks_in(self.contiguous());
        let word = Feedback { sid: self.offer.sid, base, nack, verifying, progress };
        self.say(&Word::Feedback(word));
    }

    // ---- the stream ---------------------------------------------------------------------------------------------

    fn carries(&self, stream: StreamId) -> bool {
        matches!(self.line, Line::Carries { stream: own, .. } if own == stream)
    }

    fn line_timeout(&mut self, now: Instant) {
        match self.line {
            Line::Waits { at, tries } if at <= now => {
                let Some(remote) = self.intake.tcp else { return };
                let stream = self.new_stream();
                self.line = Line::Dialling { stream, tries: tries + 1 };
                self.streams.push_back(StreamAsk::Dial { stream, remote, from: None, timeout: DIAL_FOR });
            }
            Line::Piping { stream, until } if until <= now => {
                self.streams.push_back(StreamAsk::Close { stream });
                self.line = Line::None;
            }
            _ => {}
        }
    }

    fn dial_failed(&mut self, now: Instant, tries: u32) {
        if tries < DIAL_TRIES {
            self.line = Line::Waits { at: now + DIAL_PAUSE, tries };
        } else {
            self.line = Line::None;
            self.say(&Word::GaveUp(GaveUp { sid: self.offer.sid }));
        }
    }

    fn new_stream(&mut self) -> StreamId {
        self.next_stream += 1;
        StreamId(self.next_stream - 1)
    }

    fn greet(&mut self, stream: StreamId, pipe: bool) {
        let token = self.offer.tcp.as_ref().map(|tcp| tcp.token.clone()).unwrap_or_default();
        let hello = Hello { role: Role::Receive, sid: self.offer.sid, token, name: self.intake.name.clone() };
        self.streams.push_back(StreamAsk::Write { stream, bytes: hello.write() });
        self.streams.push_back(StreamAsk::Read { stream, until: Until::Bytes(ANSWER.len()) });
        self.line = Line::Greeted { stream, pipe };
    }

    fn meet(&mut self, now: Instant, word: &crate::words::Pipe) {
        let Ok(ip) = word.ip.parse() else { return };
        if self.pipe.is_some() || codec::unhex(&word.pair).is_none_or(|pair| pair.len() != 16) || word.port == 0 {
            return;
        }
        let remote = SocketAddr::new(ip, word.port);
        if let Line::Dialling { stream, .. } | Line::Greeted { stream, .. } = self.line {
            self.streams.push_back(StreamAsk::Close { stream });
        }
        self.pipe = Some((remote, word.pair.clone()));
        let stream = self.new_stream();
        self.line = Line::Piping { stream, until: now + PIPE_FOR };
        self.streams.push_back(StreamAsk::Dial { stream, remote, from: None, timeout: DIAL_FOR });
    }
}

/// The answer to an offer that is not taken.
#[must_use]
pub fn refusal(sid: u32) -> Vec<u8> {
    Word::Done(Done { sid, ok: false, last: true }).write()
}
