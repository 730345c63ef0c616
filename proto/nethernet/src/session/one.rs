//! One session: its negotiation (NetherNet, section 9) and its packets (section 6.3).

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use super::config::Config;
use super::event::{By, Event, SendError, SessionId};
use super::told::Told;
use crate::engine::{
    Candidate, ChannelId, Description, DtlsRole, Ended, Engine, EngineEvent, Fingerprint, Reliability, Remote, Setup,
};
use crate::frame::{Channel, Framing, Reassembly, unreliable};
use crate::{Body, ConnectionFlags, ConnectionId, NetworkId, SessionError};

/// Remote candidates kept while the other side's description is not known.
const EARLY_MAX: usize = 64;
/// When what signalling may have lost is sent again, counted from the first time.
const REPEATS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(5)];
/// How long what an ended session has received is kept for reading.
const UNREAD: Duration = Duration::from_secs(30);
/// How long a session whose peer has opened another may be silent.
const SUPERSEDED: Duration = Duration::from_secs(10);

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Incoming, and the application has not decided.
    Asked,
    /// Own candidates are being gathered before the description is sent (non-trickle).
    Gathering,
    /// The offer is out.
    Offered,
    /// Both descriptions are known.
    Negotiating,
    /// Both channels are open.
    Open,
    /// The application has closed it; what was sent is being delivered.
    Closing,
    /// Over. What was received can still be read.
    Over,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session<E> {
    pub(super) id: SessionId,
    pub(super) peer: NetworkId,
    pub(super) connection: ConnectionId,
    pub(super) outgoing: bool,
    pub(super) stage: Stage,
    pub(super) engine: E,
    /// The bases its datagrams leave from, relayed ones excluded.
    pub(super) bases: Vec<SocketAddr>,
    fingerprint: Fingerprint,
    origin: u64,
    /// The other side's description; kept until the session is up, to know a repeated offer.
    theirs: Option<Arc<str>>,
    offer: Option<Description>,
    /// The own description as it was sent.
    ours: Option<String>,
    /// Own candidates that the other side was told.
    told: Vec<Candidate>,
    /// Own candidates that wait for the description to be sent.
    untold: Vec<Candidate>,
    early: Vec<Candidate>,
    known: BTreeSet<SocketAddr>,
    identity: Option<String>,
    framing: Framing,
    reassembly: Reassembly,
    reliable: Option<ChannelId>,
    unreliable: Option<ChannelId>,
    /// The packet that [`read`](Self::read) has begun.
    head: Option<(Channel, Bytes)>,
    readable: bool,
    blocked: bool,
    interrupted: bool,
    connected: bool,
    /// The offer was sent more than once, so that it may be refused once (see [`refused`](Self::refused)).
    repeated: bool,
    refusal: Option<SessionError>,
    deadline: Option<Instant>,
    repeat_at: VecDeque<Instant>,
    superseded: Option<Instant>,
    ended: Option<(SessionError, By, &'static str)>,
    /// Waits in the endpoint's round.
    pub(super) queued: bool,
    /// The entry in the endpoint's table of deadlines.
    pub(super) alarm: Option<Instant>,
}

/// What a session is made with.
pub(super) struct Birth<E> {
    pub(super) id: SessionId,
    pub(super) peer: NetworkId,
    pub(super) connection: ConnectionId,
    pub(super) outgoing: bool,
    pub(super) engine: E,
    pub(super) bases: Vec<SocketAddr>,
    pub(super) fingerprint: Fingerprint,
    pub(super) origin: u64,
}

impl<E: Engine> Session<E> {
    pub(super) fn new(birth: Birth<E>, config: &Config, now: Instant) -> Self {
        Self {
            id: birth.id,
            peer: birth.peer,
            connection: birth.connection,
            outgoing: birth.outgoing,
            stage: if birth.outgoing { Stage::Gathering } else { Stage::Asked },
            engine: birth.engine,
            bases: birth.bases,
            fingerprint: birth.fingerprint,
            origin: birth.origin,
            theirs: None,
            offer: None,
            ours: None,
            told: Vec::new(),
            untold: Vec::new(),
            early: Vec::new(),
            known: BTreeSet::new(),
            identity: None,
            framing: Framing::default(),
            reassembly: Reassembly::new(config.packet_max),
            reliable: None,
            unreliable: None,
            head: None,
            readable: false,
            blocked: false,
            interrupted: false,
            connected: false,
            repeated: false,
            refusal: None,
            deadline: Some(now + config.negotiation_timeout),
            repeat_at: VecDeque::new(),
            superseded: None,
            ended: None,
            queued: false,
            alarm: None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        !matches!(self.stage, Stage::Closing | Stage::Over)
    }

    pub(super) fn is_negotiating(&self) -> bool {
        self.is_live() && self.stage != Stage::Open
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The peer has opened another session: this one has to show that it is alive.
    pub(super) fn supersede(&mut self, now: Instant) {
        self.superseded.get_or_insert(now + SUPERSEDED);
    }

    /// Begins an own dial.
    pub(super) fn dial(&mut self) {
        self.engine.open(Channel::Reliable.label(), Reliability::RELIABLE);
        self.engine.open(Channel::Unreliable.label(), Reliability::UNRELIABLE);
    }

    /// Takes the offer of an incoming session.
    pub(super) fn take_offer(&mut self, text: &str, offer: Description) {
        self.theirs = Some(text.into());
        self.identity.clone_from(&offer.identity);
        self.offer = Some(offer);
    }

    pub(super) fn identity(&self) -> Option<String> {
        self.identity.clone()
    }

    /// Answers the offer, now or as soon as the own candidates are complete.
    pub(super) fn accept(&mut self, now: Instant, config: &Config, gathered: bool, told: &mut Told) {
        if self.stage != Stage::Asked {
            return;
        }
        self.stage = Stage::Gathering;
        self.deadline = Some(now + config.negotiation_timeout);
        self.describe(now, config, gathered, told);
    }

    /// Sends the own description, unless its candidates are still to come.
    pub(super) fn describe(&mut self, now: Instant, config: &Config, gathered: bool, told: &mut Told) {
        if self.stage != Stage::Gathering || (!config.trickle && !gathered) {
            return;
        }
        let offer = self.offer.take();
        let (ufrag, pwd) = self.engine.credentials();
        let setup = match offer.as_ref().map(|offer| offer.setup) {
            None => Setup::ActPass,
            Some(Setup::Active) => Setup::Passive,
            Some(Setup::ActPass | Setup::Passive) => Setup::Active,
        };
        let description = Description {
            origin: self.origin,
            mid: offer.as_ref().map_or_else(|| "0".to_owned(), |offer| offer.mid.clone()),
            ufrag: ufrag.to_owned(),
            pwd: pwd.to_owned(),
            ice_lite: false,
            fingerprints: vec![self.fingerprint],
            setup,
            max_message_size: Some(crate::engine::sdp::MESSAGE_MAX),
            candidates: if config.trickle { Vec::new() } else { self.untold.clone() },
            end_of_candidates: !config.trickle,
            identity: config.identity.clone(),
        };
        let text = description.to_string();
        if self.outgoing {
            self.signal(Body::ConnectRequest(&text), told);
            self.stage = Stage::Offered;
            self.deadline = Some(now + config.negotiation_timeout);
        } else {
            self.signal(Body::ConnectResponse(&text), told);
        }
        self.ours = Some(text);
        if !config.trickle {
            // Some listeners begin at the first CANDIDATEADD, whatever the description holds; one is told for them.
            let rest = self.untold.split_off(self.untold.len().min(1));
            drop(rest);
        }
        for candidate in std::mem::take(&mut self.untold) {
            self.tell(candidate, told);
        }
        if config.repeat {
            self.repeat_at = REPEATS.iter().map(|after| now + *after).collect();
        }
        if let Some(offer) = offer {
            let role = if setup == Setup::Active { DtlsRole::Client } else { DtlsRole::Server };
            self.start(now, config, offer, role, told);
        }
    }

    /// An own candidate. It is told once the description is out.
    pub(super) fn add_local(&mut self, mut candidate: Candidate, config: &Config, told: &mut Told) {
        candidate.ufrag = Some(self.engine.credentials().0.to_owned());
        match self.stage {
            Stage::Asked | Stage::Gathering => self.untold.push(candidate),
            Stage::Offered | Stage::Negotiating if config.trickle => self.tell(candidate, told),
            _ => {}
        }
    }

    fn tell(&mut self, candidate: Candidate, told: &mut Told) {
        self.signal(Body::CandidateAdd(&candidate.to_string()), told);
        self.told.push(candidate);
    }

    pub(super) fn signal(&self, body: Body<'_>, told: &mut Told) {
        told.signal(&self.peer, self.connection, body);
    }

    /// The other side's description is complete: checks begin.
    fn start(&mut self, now: Instant, config: &Config, theirs: Description, role: DtlsRole, told: &mut Told) {
        let framing = match Framing::announced(theirs.max_message_size) {
            Ok(framing) => framing,
            Err(_) => {
                return self.refuse(SessionError::FailedToSetRemoteDescription, "messages that carry nothing", told);
            }
        };
        self.framing = framing;
        self.stage = Stage::Negotiating;
        self.deadline = Some(now + config.negotiation_timeout);
        let remote = Remote {
            ufrag: theirs.ufrag,
            pwd: theirs.pwd,
            fingerprints: theirs.fingerprints,
            role,
            message_limit: framing.payload() + 1,
            ice_lite: theirs.ice_lite,
        };
        if self.engine.start(now, remote).is_err() {
            return self.refuse(SessionError::FailedToSetRemoteDescription, "a second description", told);
        }
        for candidate in theirs.candidates.into_iter().chain(std::mem::take(&mut self.early)) {
            self.add_remote(now, candidate);
        }
    }

    /// A candidate of the other side, at any time.
    pub(super) fn add_remote(&mut self, now: Instant, candidate: Candidate) {
        match self.stage {
            Stage::Asked | Stage::Gathering | Stage::Offered => {
                if self.early.len() < EARLY_MAX {
                    self.early.push(candidate);
                }
            }
            Stage::Negotiating | Stage::Open => {
                // Inline and told again: one is enough.
                if self.known.len() < EARLY_MAX && self.known.insert(candidate.addr) {
                    self.engine.add_remote(now, &candidate);
                }
            }
            Stage::Closing | Stage::Over => {}
        }
    }

    /// The answer to an own offer.
    pub(super) fn answered(&mut self, now: Instant, config: &Config, text: &str, told: &mut Told) {
        if !self.outgoing || self.stage != Stage::Offered {
            return;
        }
        match crate::engine::sdp::parse(text) {
            Ok(answer) => {
                self.identity.clone_from(&answer.identity);
                // An answer chooses; what chooses nothing is taken as what everybody answers.
                let role = if answer.setup == Setup::Passive { DtlsRole::Client } else { DtlsRole::Server };
                self.start(now, config, answer, role, told);
            }
            Err(_) => self.refuse(SessionError::FailedToSetRemoteDescription, "the answer cannot be used", told),
        }
    }

    /// The offer has come again. The same one gets the same answer; any other is refused and changes nothing.
    pub(super) fn offered_again(&mut self, text: &str, told: &mut Told) {
        let same = self.theirs.as_deref() == Some(text);
        if !same || self.outgoing || !self.is_negotiating() {
            return self.signal(Body::ConnectError(SessionError::IncomingConnectionIgnored), told);
        }
        self.say_again(told);
    }

    fn say_again(&mut self, told: &mut Told) {
        self.repeated = true;
        let Some(text) = &self.ours else { return };
        let body = if self.outgoing { Body::ConnectRequest(text) } else { Body::ConnectResponse(text) };
        self.signal(body, told);
        self.tell_again(told);
    }

    fn tell_again(&self, told: &mut Told) {
        for candidate in &self.told {
            self.signal(Body::CandidateAdd(&candidate.to_string()), told);
        }
    }

    /// A CONNECTERROR.
    pub(super) fn refused(&mut self, error: SessionError, told: &mut Told) {
        match error {
            // Section 5.5: delivery failed is for the side that dialled.
            SessionError::SignalingUnicastMessageDeliveryFailed if !self.outgoing => {}
            // "Ignored" answers an offer. After an answer it can only mean a repetition; before, it may mean that the
            // first of two offers is still being answered.
            SessionError::IncomingConnectionIgnored if self.outgoing && self.stage != Stage::Offered => {}
            SessionError::IncomingConnectionIgnored if self.outgoing && self.repeated => {
                self.refusal = Some(error);
            }
            error => self.end(error, By::Remote, "the other side refused", told),
        }
    }

    /// Ends a negotiation and tells the other side why.
    pub(super) fn refuse(&mut self, error: SessionError, stage: &'static str, told: &mut Told) {
        self.signal(Body::ConnectError(error), told);
        self.end(error, By::Failure, stage, told);
    }

    fn end(&mut self, error: SessionError, by: By, stage: &'static str, told: &mut Told) {
        if self.stage == Stage::Over {
            return;
        }
        let by = if self.stage == Stage::Closing { By::Local } else { by };
        self.stage = Stage::Over;
        self.deadline = None;
        self.ended = Some((error, by, stage));
        self.told_over(told);
    }

    /// Tells the end, once nothing is left to read.
    fn told_over(&mut self, told: &mut Told) {
        if self.stage == Stage::Over
            && !self.readable
            && self.head.is_none()
            && let Some((error, by, stage)) = self.ended.take()
        {
            told.event(Event::Closed { session: self.id, peer: self.peer.clone(), error, by, stage });
        }
    }

    /// What an ended session has received is not kept for ever.
    pub(super) fn linger(&mut self, now: Instant) {
        if self.stage == Stage::Over && self.ended.is_some() && self.deadline.is_none() {
            self.deadline = Some(now + UNREAD);
        }
    }

    /// Over, and told so.
    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Over && self.ended.is_none()
    }

    /// Closes it for the application.
    pub(super) fn close(&mut self, now: Instant, config: &Config, error: SessionError, told: &mut Told) {
        match self.stage {
            Stage::Open => {
                self.stage = Stage::Closing;
                self.readable = false;
                self.head = None;
                self.deadline = Some(now + config.close_timeout);
                self.engine.close(now);
            }
            Stage::Closing | Stage::Over => {}
            _ => {
                self.signal(Body::ConnectError(error), told);
                self.engine.abort(now);
                self.end(error, By::Local, "closed before it was open", told);
            }
        }
        self.drain(now, told);
    }

    /// Ends it without waiting for anything.
    pub(super) fn abort(&mut self, now: Instant, error: SessionError, by: By, stage: &'static str, told: &mut Told) {
        self.engine.abort(now);
        self.readable = false;
        self.head = None;
        self.end(error, by, stage, told);
    }

    /// A datagram. False when it is not for this session.
    pub(super) fn input(
        &mut self,
        now: Instant,
        flags: ConnectionFlags,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        if flags.contains(ConnectionFlags::NO_PEER_REFLEXIVE_CANDIDATES) && !self.known.contains(&from) {
            return false;
        }
        self.engine.input(now, from, to, datagram)
    }

    /// Turns what the engine tells into what the application is told.
    pub(super) fn drain(&mut self, now: Instant, told: &mut Told) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                EngineEvent::Path { from, to } => {
                    self.connected = true;
                    told.paths.push((self.id, from, to));
                }
                EngineEvent::Interrupted => {
                    self.interrupted = true;
                    if self.stage == Stage::Open {
                        told.event(Event::Interrupted(self.id));
                    }
                }
                EngineEvent::Resumed => {
                    self.interrupted = false;
                    if self.stage == Stage::Open {
                        told.event(Event::Resumed(self.id));
                    }
                }
                EngineEvent::Secure => {}
                EngineEvent::Opened { channel, label } => self.opened(channel, &label, told),
                EngineEvent::Readable(channel) => {
                    if self.reliable == Some(channel) || self.unreliable == Some(channel) {
                        self.wake(told);
                    }
                }
                EngineEvent::Writable(_) => {}
                EngineEvent::ChannelClosed(channel) => {
                    let ours = self.reliable == Some(channel) || self.unreliable == Some(channel);
                    if ours && self.stage != Stage::Closing {
                        self.engine.abort(now);
                        self.end(SessionError::DataChannelClosed, By::Remote, "a data channel was closed", told);
                    }
                }
                EngineEvent::Closed(how) => self.engine_closed(how, told),
            }
        }
    }

    fn engine_closed(&mut self, how: Ended, told: &mut Told) {
        match how {
            Ended::Flushed => self.end(SessionError::None, By::Local, "closed", told),
            Ended::Remote if self.stage == Stage::Open => {
                self.end(SessionError::None, By::Remote, "the other side left", told);
            }
            Ended::Remote => self.end(SessionError::DataChannelClosed, By::Remote, "closed before it was open", told),
            Ended::Certificate => {
                let stage = "the certificate is not the announced one";
                self.refuse(SessionError::IdentityVerificationFailed, stage, told);
            }
            Ended::Failed(stage) if self.stage == Stage::Open || self.stage == Stage::Closing => {
                self.end(SessionError::DataChannelClosed, By::Failure, stage, told);
            }
            Ended::Failed(stage) => self.refuse(SessionError::GenericFailure, stage, told),
        }
    }

    fn opened(&mut self, channel: ChannelId, label: &str, told: &mut Told) {
        // Labels that NetherNet does not have are no reason to end a session.
        match Channel::of(label) {
            Some(Channel::Reliable) => self.reliable = Some(channel),
            Some(Channel::Unreliable) => self.unreliable = Some(channel),
            None => return,
        }
        if self.stage == Stage::Negotiating && self.reliable.is_some() && self.unreliable.is_some() {
            self.stage = Stage::Open;
            self.deadline = None;
            self.repeat_at.clear();
            // A late repetition of the offer is refused from now on, and needs no comparing.
            (self.theirs, self.ours) = (None, None);
            (self.told, self.untold, self.early) = (Vec::new(), Vec::new(), Vec::new());
            told.opened.push(self.id);
            told.event(Event::Opened {
                session: self.id,
                peer: self.peer.clone(),
                connection: self.connection,
                outgoing: self.outgoing,
                identity: self.identity.take(),
            });
            if self.readable {
                told.event(Event::Readable(self.id));
            }
        }
    }

    fn wake(&mut self, told: &mut Told) {
        if !self.readable && self.stage != Stage::Closing {
            self.readable = true;
            if self.stage == Stage::Open {
                told.event(Event::Readable(self.id));
            }
        }
    }

    /// Whether there is room again after a refusal.
    pub(super) fn check_writable(&mut self, config: &Config, told: &mut Told) {
        if self.blocked && self.stage == Stage::Open && self.buffered() <= config.send_queue / 2 {
            self.blocked = false;
            told.event(Event::Writable(self.id));
        }
    }

    pub(super) fn buffered(&self) -> usize {
        [self.reliable, self.unreliable].into_iter().flatten().map(|channel| self.engine.buffered(channel)).sum()
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        config: &Config,
        channel: Channel,
        packet: Bytes,
    ) -> Result<(), SendError> {
        let id = match channel {
            Channel::Reliable => self.reliable,
            Channel::Unreliable => self.unreliable,
        };
        let Some(id) = id.filter(|_| self.stage == Stage::Open) else { return Err(SendError::NotOpen) };
        let fragments = self.framing.admit(channel, packet.len())?;
        // What is not delivered at once is of no use once a path is back (pain 31).
        if channel == Channel::Unreliable && self.interrupted {
            return Ok(());
        }
        let waiting = self.buffered();
        if waiting > 0 && waiting + packet.len() > config.send_queue {
            self.blocked = true;
            return Err(SendError::WouldBlock);
        }
        let mut room = BytesMut::with_capacity(packet.len() + fragments);
        for (header, part) in self.framing.fragments(channel, packet) {
            room.put_u8(header);
            room.extend_from_slice(&part);
            self.engine.send(now, id, room.split().freeze()).map_err(|_| SendError::NotOpen)?;
        }
        Ok(())
    }

    /// The next packet.
    pub(super) fn recv(&mut self, now: Instant, told: &mut Told) -> Option<(Channel, Bytes)> {
        if let Some(head) = self.head.take() {
            return Some(head);
        }
        if self.readable {
            if let Some(packet) = self.pull(now, told) {
                return Some(packet);
            }
            self.readable = false;
        }
        self.told_over(told);
        None
    }

    fn pull(&mut self, now: Instant, told: &mut Told) -> Option<(Channel, Bytes)> {
        if let Some(channel) = self.unreliable {
            while let Some(message) = self.engine.recv(now, channel) {
                if let Some(packet) = unreliable(message) {
                    return Some((Channel::Unreliable, packet));
                }
            }
        }
        let channel = self.reliable?;
        while let Some(message) = self.engine.recv(now, channel) {
            match self.reassembly.push(message) {
                Ok(Some(packet)) => return Some((Channel::Reliable, packet)),
                Ok(None) => {}
                Err(_) => {
                    self.engine.abort(now);
                    let stage = "a packet's fragments do not count down";
                    self.end(SessionError::GenericFailure, By::Failure, stage, told);
                    return None;
                }
            }
        }
        None
    }

    /// The size of the packet at the head (section 6.4).
    pub(super) fn peek(&mut self, now: Instant, told: &mut Told) -> Option<usize> {
        if self.head.is_none() {
            self.head = self.recv(now, told);
        }
        self.head.as_ref().map(|(_, packet)| packet.len())
    }

    /// Copies from the packet at the head; what does not fit stays there (section 6.4).
    pub(super) fn read(&mut self, now: Instant, buffer: &mut [u8], told: &mut Told) -> Option<usize> {
        let (channel, mut packet) = self.recv(now, told)?;
        let taken = packet.split_to(packet.len().min(buffer.len()));
        if let Some(room) = buffer.get_mut(..taken.len()) {
            room.copy_from_slice(&taken);
        }
        if !packet.is_empty() {
            self.head = Some((channel, packet));
        }
        Some(taken.len())
    }

    /// Time has passed.
    pub(super) fn timeout(&mut self, now: Instant, config: &Config, told: &mut Told) {
        self.engine.timeout(now);
        self.drain(now, told);
        while self.repeat_at.front().is_some_and(|at| *at <= now) {
            self.repeat_at.pop_front();
            match self.stage {
                Stage::Offered => self.say_again(told),
                Stage::Negotiating if !self.connected => self.tell_again(told),
                _ => {}
            }
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            self.late(now, told);
        }
        if self.stage == Stage::Open && self.silent_at(config).is_some_and(|at| at <= now) {
            self.engine.abort(now);
            self.end(SessionError::InactivityTimeout, By::Failure, "nothing was heard", told);
        }
    }

    /// The current stage took too long.
    fn late(&mut self, now: Instant, told: &mut Told) {
        let (error, stage) = match self.stage {
            Stage::Asked => (SessionError::IncomingConnectionIgnored, "nobody accepted it here"),
            Stage::Gathering => (SessionError::NegotiationTimeout, "own candidates took too long"),
            Stage::Offered => {
                let error = self.refusal.unwrap_or(SessionError::NegotiationTimeoutWaitingForResponse);
                (error, "the offer was not answered")
            }
            // Both descriptions are known and no pair of addresses works.
            Stage::Negotiating if self.outgoing && !self.connected => (SessionError::Ice, self.engine.waits_for()),
            Stage::Negotiating => (SessionError::NegotiationTimeoutWaitingForAccept, self.engine.waits_for()),
            Stage::Closing => {
                self.engine.abort(now);
                return self.end(SessionError::None, By::Local, "closed before everything was delivered", told);
            }
            // Nobody reads it.
            Stage::Over => {
                self.readable = false;
                self.head = None;
                return self.told_over(told);
            }
            Stage::Open => return,
        };
        self.engine.abort(now);
        self.refuse(error, stage, told);
    }

    fn silent_at(&self, config: &Config) -> Option<Instant> {
        let heard = self.engine.heard()?;
        let silent = heard + config.inactivity_timeout;
        // Heard after the other session opened: both are alive.
        let superseded = self.superseded.filter(|at| *at > heard + SUPERSEDED);
        Some(superseded.map_or(silent, |at| silent.min(at)))
    }

    pub(super) fn poll_timeout(&self, config: &Config) -> Option<(Instant, &'static str)> {
        let silent = if self.stage == Stage::Open { self.silent_at(config) } else { None };
        [
            self.engine.poll_timeout(),
            self.deadline.map(|at| (at, "a stage takes too long")),
            self.repeat_at.front().map(|at| (*at, "signals are sent again")),
            silent.map(|at| (at, "silence")),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

#[cfg(test)]
mod tests;
