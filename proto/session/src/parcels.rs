//! Files between the players: who is offered what, when, and what follows (netpunch wire, sections 6.8 and 9.8).
//!
//! One push at a time goes out, and one offer at a time is taken. A further push waits, the newest wins. Whoever joins
//! while a save is on its way is served with the same files as soon as the others have started; who comes later gets the
//! last save as well, unless a game says that it is making a newer one.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use lobby::State;
use np1::Chunk;
use parcel::{
    Fate, Hello, Intake, Kind, Offer, Outcome, ReceiveEvent, Receiver, SendEvent, Sender, Shipment, Word, refusal,
};
use rendezvous::shared::session_of;
use seam::{Outbox, Path, Refused, StreamAsk, StreamId};

use crate::session::{Crypt, Role, Session};
use crate::{Did, Event, HostConfig, Job, LOBBY, Moved, TransferId};

/// Most bytes of one offer that are taken; the largest save seen in the field has under 1 GB.
const MOST_BYTES: u64 = 64 << 30;
/// How often it is looked who waits, and who is busy with a transfer.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A latecomer gets the last save after this time: games that hear of it may send a newer one first.
const LATE_AFTER: Duration = Duration::from_secs(3);
/// A game that is making a newer save has this long for it (pain 87).
const FRESH_WITHIN: Duration = Duration::from_secs(120);
/// A relay hands out the world of a running game for so long (netpunch wire, section 9.8).
const STORED_FOR: Duration = Duration::from_secs(180);
/// Players remembered whom a save did not reach.
const PASSED_MAX: usize = 200;
/// Stream numbers set aside for one transfer: a receiver dials four, a sender one for each receiver.
const STREAMS: u64 = 1 << 16;

/// What is to be sent to everybody who waits.
#[derive(Clone, Debug)]
struct Wish {
    files: Vec<(PathBuf, String)>,
    switch: bool,
}

#[derive(Debug)]
struct Push {
    id: TransferId,
    sender: Sender,
    wish: Wish,
    /// Who receives, for people.
    names: Vec<(Path, String)>,
    /// Who brought the save to this relay: it has it, and starts with the others.
    leader: Option<Path>,
}

#[derive(Debug)]
struct Incoming {
    id: TransferId,
    from: Path,
    receiver: Receiver,
}

/// The transfers of one session: at most one each way, and one that waits.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    push: Option<Box<Push>>,
    queued: Option<Wish>,
    /// What everybody started with; none where they started without a save.
    last: Option<Wish>,
    /// When a relay's leader uploaded that; none where an earlier run did.
    stored_at: Option<Instant>,
    /// Those whom a running game's save did not reach, by name: not tried again unasked.
    passed: Vec<String>,
    /// When those who came late get it.
    late_at: Option<Instant>,
    /// Until then a newer save is awaited.
    fresh_by: Option<Instant>,
    incoming: Option<Box<Incoming>>,
    jobs: VecDeque<Job>,
    next: u64,
    last_sid: u32,
    /// When it is looked again who waits and who is busy; none where nothing was ever sent.
    look_at: Option<Instant>,
}

impl Parcels {
    fn id(&mut self) -> TransferId {
        self.next += 1;
        TransferId(self.next)
    }

    /// A player has another address.
    pub(crate) fn rekey(&mut self, old: Path, new: Path) {
        if let Some(push) = &mut self.push {
            push.sender.rekey(old, new);
            push.names.iter_mut().filter(|(path, _)| *path == old).for_each(|(path, _)| *path = new);
            push.leader = push.leader.map(|leader| if leader == old { new } else { leader });
        }
        if let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.from == old) {
            incoming.from = new;
            incoming.receiver.rekey(new);
        }
    }

    /// A player left.
    pub(crate) fn left(&mut self, path: Path, now: Instant) {
        if let Some(gone) = self.incoming.take_if(|incoming| incoming.from == path) {
            self.forget(*gone, now);
        }
        if let Some(push) = &mut self.push {
            push.sender.remove(path);
        }
    }

    /// Messages to be sealed.
    pub(crate) fn poll_message(&mut self) -> Option<(Path, Vec<u8>)> {
        let push = self.push.as_mut().and_then(|push| push.sender.poll_message());
        push.or_else(|| self.incoming.as_mut().and_then(|incoming| incoming.receiver.poll_message()))
    }

    fn poll_job(&mut self) -> Option<Job> {
        if let Some(job) = self.jobs.pop_front() {
            return Some(job);
        }
        if let Some(push) = &mut self.push {
            if let Some(ask) = push.sender.poll_ask() {
                return Some(Job::Disk { transfer: push.id, ask });
            }
            if let Some(ask) = push.sender.poll_stream() {
                return Some(Job::Stream(ask));
            }
        }
        let incoming = self.incoming.as_mut()?;
        if let Some(ask) = incoming.receiver.poll_ask() {
            return Some(Job::Disk { transfer: incoming.id, ask });
        }
        incoming.receiver.poll_stream().map(Job::Stream)
    }

    /// What is left to be asked of a transfer that is let go.
    fn forget(&mut self, mut incoming: Incoming, now: Instant) {
        incoming.receiver.sender_gone(now);
        while let Some(ask) = incoming.receiver.poll_ask() {
            self.jobs.push_back(Job::Disk { transfer: incoming.id, ask });
        }
        while let Some(ask) = incoming.receiver.poll_stream() {
            self.jobs.push_back(Job::Stream(ask));
        }
        self.jobs.push_back(Job::Over(incoming.id));
    }

    fn drop_push(&mut self) {
        if let Some(mut push) = self.push.take() {
            while let Some(ask) = push.sender.poll_stream() {
                self.jobs.push_back(Job::Stream(ask));
            }
            self.jobs.push_back(Job::Over(push.id));
        }
    }

    /// The session is over: what was received stays on the disk, for another attempt.
    pub(crate) fn close(&mut self, now: Instant) {
        self.queued = None;
        self.drop_push();
        if let Some(incoming) = self.incoming.take() {
            self.forget(*incoming, now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let push = self.push.as_ref().and_then(|push| push.sender.poll_timeout());
        let incoming = self.incoming.as_ref().and_then(|incoming| incoming.receiver.poll_timeout());
        let look = self.look_at.map(|at| (at, "who waits for a save"));
        [push, incoming, look].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Writes chunks and QUIC, behind everything else.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut impl Outbox) {
        if let Some(push) = &mut self.push {
            push.sender.poll_transmit(now, out);
        }
        if let Some(incoming) = &mut self.incoming {
            incoming.receiver.poll_transmit(now, out);
        }
    }
}

impl Session {
    // ---- what is sent -------------------------------------------------------------------------------------------

    /// START GAME with a save.
    pub(crate) fn start_with(&mut self, files: Vec<(PathBuf, String)>, switch: bool) {
        let wish = Wish { files, switch };
        if let Role::Joiner(side) = &self.role {
            let roster = side.lobby.roster();
            if !roster.relay || roster.host != roster.you {
                return self.log("[xfer] only the host, or who leads a relay, starts with a save".to_owned());
            }
        }
        if self.parcels.push.is_some() {
            self.status(State::Connected, "the save is sent when the one on its way has arrived");
            self.parcels.queued = Some(wish);
            return;
        }
        self.ask_push(wish);
    }

    /// A push that a player asked for: it is for everybody.
    fn ask_push(&mut self, wish: Wish) {
        self.parcels.passed.clear();
        match &self.role {
            Role::Host(_) => self.begin_push(wish, None),
            Role::Joiner(side) => {
                let host = side.host.map(|path| (path, "the relay".to_owned()));
                let speaks = side.config.extensions && side.lobby.host_speaks_quic();
                if let Some(host) = host {
                    self.ship(wish, vec![host.clone()], if speaks { vec![host.0] } else { Vec::new() }, None);
                }
            }
        }
    }

    /// The own game is making a newer save: whoever came late waits for that one.
    pub(crate) fn save_coming(&mut self) {
        self.parcels.fresh_by = Some(self.now + FRESH_WITHIN);
    }

    /// Everybody starts without a save: there is none for latecomers either.
    pub(crate) fn start_without(&mut self) {
        (self.parcels.queued, self.parcels.last, self.parcels.late_at) = (None, None, None);
    }

    /// Sends it to everybody who waits, but not to `leader`, who brought it.
    fn begin_push(&mut self, wish: Wish, leader: Option<Path>) {
        let now = self.now;
        let Role::Host(side) = &mut self.role else { return };
        if wish.switch {
            side.lobby.switch_world(now);
        }
        let (mut waiting, runs) = (side.lobby.waiting(), side.lobby.is_running());
        waiting.retain(|(path, name)| Some(*path) != leader && !self.parcels.passed.contains(name));
        if waiting.is_empty() {
            if let Some(leader) = leader {
                side.lobby.start_with_save(now, &[leader]);
            } else if !runs {
                self.status(State::Waiting, "nobody is here to send the save to");
            }
            return;
        }
        let ours: Vec<Path> =
            waiting.iter().map(|(path, _)| *path).filter(|path| side.lobby.speaks_quic(*path)).collect();
        let ours = if side.config.extensions { ours } else { Vec::new() };
        self.ship(wish, waiting, ours, leader);
    }

    /// Begins to send to `waiting`, by QUIC to those of `ours`.
    fn ship(&mut self, wish: Wish, waiting: Vec<(Path, String)>, ours: Vec<Path>, leader: Option<Path>) {
        let now = self.now;
        let quic = !ours.is_empty() && matches!(self.crypt, Crypt::Sealed(_));
        let port = match &self.role {
            Role::Host(side) => side.config.stream_port,
            Role::Joiner(_) => None,
        };
        let id = self.parcels.id();
        let shipment = Shipment {
            sid: self.fresh_sid(),
            kind: Kind::Save,
            files: wish.files.clone(),
            mods: Some(Vec::new()),
            tcp: port.map(|port| (codec::hex(&self.dice.bytes::<16>()), Some(port))),
            pipe: None,
            quic: quic.then(|| self.dice.bytes()),
            first_stream: id.0 * STREAMS,
        };
        let targets: Vec<(Path, &str)> = waiting.iter().map(|(path, name)| (*path, name.as_str())).collect();
        let mut sender = Sender::new(shipment, &targets, now);
        ours.iter().for_each(|path| sender.speaks_quic(*path));
        self.log(format!("[xfer] a save of {} file(s) goes to {} player(s)", wish.files.len(), waiting.len()));
        self.status(State::Connected, "sending the save");
        self.parcels.look_at = Some(now);
        (self.parcels.late_at, self.parcels.fresh_by) = (None, None);
        self.parcels.push = Some(Box::new(Push { id, sender, wish, names: waiting, leader }));
    }

    /// Milliseconds, as old programs number their saves, and never one twice.
    fn fresh_sid(&mut self) -> u32 {
        let ms = self.now.saturating_duration_since(self.begun()).subsec_millis();
        let ms = self.unix().wrapping_mul(1_000).wrapping_add(u64::from(ms));
        let low = u32::try_from(ms & u64::from(u32::MAX)).unwrap_or_default();
        let last = self.parcels.last_sid;
        let sid = if low.wrapping_sub(last).cast_signed() <= 0 && last != 0 { last.wrapping_add(1) } else { low };
        self.parcels.last_sid = sid;
        sid
    }

    fn on_send(&mut self, event: SendEvent) {
        let name = |path: Path, push: &Push| {
            let known = push.names.iter().find(|(own, _)| *own == path);
            known.map(|(_, name)| name.clone()).unwrap_or_default()
        };
        let Some(push) = &self.parcels.push else { return };
        match event {
            SendEvent::Progress { path, progress } => {
                let peer = name(path, push);
                self.push(Event::Transfer { send: true, peer, moved: Moved::Progress(progress) });
            }
            SendEvent::Fate { path, fate } => {
                let peer = name(path, push);
                let moved = match fate {
                    Fate::Streaming => Moved::Streaming,
                    Fate::StreamBroke => Moved::Chunks,
                    Fate::Done => Moved::Done,
                    Fate::Dropped => Moved::Dropped,
                    Fate::Failed(why) => Moved::Failed(why.to_string()),
                    _ => return,
                };
                self.log(format!("[xfer] to {peer}: {moved:?}"));
                self.push(Event::Transfer { send: true, peer, moved });
            }
            SendEvent::Resolved(outcome) => self.resolved(&outcome),
            _ => {}
        }
    }

    /// Everybody has it, failed or left: those who have it start, unless somebody failed.
    fn resolved(&mut self, outcome: &Outcome) {
        let now = self.now;
        let Some((wish, leader)) = self.parcels.push.as_ref().map(|push| (push.wish.clone(), push.leader)) else {
            return;
        };
        self.parcels.drop_push();
        let mut again = false;
        let Role::Host(side) = &mut self.role else { return self.brought(outcome) };
        let who: Vec<String> = outcome.failed.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        let failed = format!("the save did not reach {}", who.join(", "));
        // A game that runs waits for nobody: the others start, and who failed is not tried again unasked.
        let runs = side.lobby.is_running();
        if !who.is_empty() && !runs {
            self.status(State::Connected, format!("nobody starts: {failed}"));
        } else {
            let ready: Vec<Path> = outcome.done.iter().copied().chain(leader).collect();
            side.lobby.start_with_save(now, &ready);
            let passed = &mut self.parcels.passed;
            passed.extend(outcome.failed.iter().map(|(name, _)| name.clone()).take(PASSED_MAX - passed.len()));
            again = side.lobby.waiting().iter().any(|(_, name)| !passed.contains(name)) && !outcome.done.is_empty();
            if !outcome.done.is_empty() {
                self.parcels.last = Some(Wish { switch: false, ..wish.clone() });
            }
            match (who.is_empty(), outcome.done.is_empty()) {
                (false, _) => self.status(State::Connected, failed),
                (true, false) => self.status(State::Connected, "the game starts"),
                (true, true) => self.status(State::Waiting, "everybody left before the save arrived"),
            }
        }
        match self.parcels.queued.take() {
            Some(wish) => self.ask_push(wish),
            None if again => self.begin_push(Wish { switch: false, ..wish }, None),
            None => {}
        }
    }

    /// The relay has the save of its leader, who is this player, or not.
    fn brought(&mut self, outcome: &Outcome) {
        let now = self.now;
        let Role::Joiner(side) = &mut self.role else { return };
        if outcome.done.is_empty() {
            let why = outcome.failed.first().map_or_else(String::new, |(_, why)| format!(": {why}"));
            self.status(
                State::Connected,
                format!("the relay did not get the save{why}; press START GAME to try again"),
            );
        } else {
            side.lobby.save_ready(now);
            self.status(State::Connected, "the relay has the save");
        }
        if let Some(wish) = self.parcels.queued.take() {
            self.ask_push(wish);
        }
    }

    /// A relay takes up the world that an earlier run kept.
    pub(crate) fn recall(&mut self, config: &HostConfig) {
        if let Some(wish) = kept(config, &config.stored) {
            self.parcels.last = Some(wish);
        }
        self.parcels.look_at = config.store.as_ref().map(|_| self.now);
    }

    /// A relay's leader has brought a world: it goes to everybody who waits, and all start.
    fn uploaded(&mut self, names: &[String], leader: Path) {
        let Role::Host(side) = &self.role else { return };
        let Some(wish) = kept(&side.config, names) else { return };
        let waits = !side.lobby.waiting().is_empty();
        (self.parcels.last, self.parcels.stored_at) = (Some(wish.clone()), Some(self.now));
        self.parcels.passed.clear();
        if waits {
            self.begin_push(wish, Some(leader));
        }
    }

    // ---- what comes ---------------------------------------------------------------------------------------------

    /// A message of a transfer. [`Refused::NotOurs`] when it is another kind after all.
    pub(crate) fn parcel_word(&mut self, from: Path, json: &[u8]) -> Result<(), Refused> {
        let now = self.now;
        let word = Word::parse(json)?;
        let from_host = match &self.role {
            Role::Host(side) if side.lobby.is_member(from) => false,
            Role::Joiner(side) if side.host == Some(from) && side.lobby.is_confirmed() => true,
            Role::Host(_) | Role::Joiner(_) => return Err(Refused::NotAllowed),
        };
        match word {
            Word::Offer(offer) if from_host || self.may_upload(from, offer.sid) => self.offered(from, *offer),
            Word::Offer(_) => return Err(Refused::NotAllowed),
            Word::Pipe(_) => match self.incoming_from(from) {
                Some(incoming) => incoming.receiver.handle_word(now, &word),
                None => return Err(Refused::Unexpected),
            },
            word => {
                // Without a push: the end is said often, and may be heard when all is done.
                if let Some(push) = &mut self.parcels.push {
                    push.sender.handle_word(now, from, &word);
                }
            }
        }
        Ok(())
    }

    fn incoming_from(&mut self, from: Path) -> Option<&mut Incoming> {
        self.parcels.incoming.as_deref_mut().filter(|incoming| incoming.from == from)
    }

    fn offered(&mut self, from: Path, offer: Offer) {
        let now = self.now;
        if let Some(incoming) = self.incoming_from(from) {
            if incoming.receiver.offer().sid == offer.sid {
                return incoming.receiver.handle_word(now, &Word::Offer(Box::new(offer)));
            }
            // What is being verified is not given up for another (netpunch wire, section 9.2).
            if incoming.receiver.progress().verifying && !incoming.receiver.is_over() {
                return;
            }
        }
        let sid = offer.sid;
        let (takes, speaks, name) = match &self.role {
            Role::Joiner(side) => {
                let speaks = side.config.extensions && side.lobby.host_speaks_quic();
                (side.config.files, speaks, side.lobby.roster().you.clone())
            }
            Role::Host(side) => {
                let speaks = side.config.extensions && side.lobby.speaks_quic(from);
                (side.config.store.is_some(), speaks, String::new())
            }
        };
        // Terrain may fail at no cost, and mods are never asked for here.
        if !takes || offer.kind != Kind::Save {
            return self.send_message(from, refusal(sid));
        }
        let quic = speaks && matches!(self.crypt, Crypt::Sealed(_));
        let reachable = from.socket == LOBBY && session_of(from.remote).is_none() && !np1::is_tunnel(from.remote);
        let tcp = offer.tcp.as_ref().and_then(|tcp| tcp.port).filter(|port| reachable && *port != 0);
        let id = self.parcels.id();
        let intake = Intake {
            name,
            most_bytes: MOST_BYTES,
            tcp: tcp.map(|port| (from.remote.ip(), port).into()),
            quic: quic.then(|| self.dice.bytes()),
            first_stream: id.0 * STREAMS,
        };
        let bytes = offer.total_bytes;
        match Receiver::new(offer, from, intake, now) {
            Ok(receiver) => {
                if let Some(old) = self.parcels.incoming.take() {
                    self.parcels.forget(*old, now);
                }
                self.log(format!("[xfer] a save of {bytes} bytes comes"));
                self.parcels.incoming = Some(Box::new(Incoming { id, from, receiver }));
            }
            Err(misfit) => {
                self.log(format!("[xfer] what is offered is not taken: {misfit}"));
                self.send_message(from, refusal(sid));
            }
        }
    }

    /// A piece of a file; its hash decides, not its packet.
    pub(crate) fn chunk_came(&mut self, from: Path, chunk: &Chunk<'_>) -> Result<(), Refused> {
        let now = self.now;
        let incoming = self.incoming_from(from).ok_or(Refused::Unexpected)?;
        incoming.receiver.handle_chunk(now, chunk)
    }

    /// A packet `NP1:Q`, without its head.
    pub(crate) fn quic_came(&mut self, from: Path, data: BytesMut) -> Result<(), Refused> {
        let now = self.now;
        if let Some(push) = self.parcels.push.as_mut().filter(|push| push.sender.is_serving(from)) {
            push.sender.handle_quic(now, from, data);
            return Ok(());
        }
        let incoming = self.incoming_from(from).ok_or(Refused::Unexpected)?;
        incoming.receiver.handle_quic(now, data);
        Ok(())
    }

    fn on_receive(&mut self, event: ReceiveEvent) {
        let now = self.now;
        let peer = self.roster().host.clone();
        let files = self.parcels.incoming.as_ref().map(|incoming| incoming.receiver.offer().files.clone());
        let moved = match event {
            ReceiveEvent::Progress(progress) => Moved::Progress(progress),
            ReceiveEvent::Again => Moved::Again,
            ReceiveEvent::Ready => Moved::Done,
            ReceiveEvent::Failed(why) => Moved::Failed(why.to_string()),
            _ => return,
        };
        if !matches!(moved, Moved::Progress(_)) {
            self.log(format!("[xfer] from {peer}: {moved:?}"));
        }
        let ready = moved == Moved::Done;
        self.push(Event::Transfer { send: false, peer, moved });
        if ready {
            let files: Vec<String> = files.unwrap_or_default().into_iter().map(|file| file.name).collect();
            self.push(Event::SaveReady { files: files.clone() });
            match (&mut self.role, self.parcels.incoming.as_ref().map(|incoming| incoming.from)) {
                (Role::Joiner(side), _) => side.lobby.save_ready(now),
                (Role::Host(_), Some(leader)) => self.uploaded(&files, leader),
                (Role::Host(_), None) => {}
            }
        }
    }

    // ---- the driver ---------------------------------------------------------------------------------------------

    /// Work for the driver's disk and streams.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.parcels.poll_job()
    }

    /// Takes what became of it.
    pub fn handle_job(&mut self, now: Instant, did: Did) {
        self.now = now;
        match did {
            Did::Disk { transfer, answer } => {
                if let Some(push) = self.parcels.push.as_mut().filter(|push| push.id == transfer) {
                    push.sender.handle_answer(now, answer);
                } else if let Some(incoming) = self.parcels.incoming.as_mut().filter(|own| own.id == transfer) {
                    incoming.receiver.handle_answer(now, answer);
                }
            }
            Did::Greeted { stream, remote, line } => {
                let hello = Hello::parse(&line).ok();
                let push = self.parcels.push.as_mut();
                let taken =
                    hello.zip(push).is_some_and(|(hello, push)| push.sender.handle_hello(stream, &hello, remote));
                if !taken {
                    self.parcels.jobs.push_back(Job::Stream(StreamAsk::Close { stream }));
                }
            }
            Did::Connected(stream) => self.stream_open(stream),
            Did::Bytes(stream, bytes) => self.stream_said(stream, &bytes),
            Did::Closed(stream, why) => {
                if let Some(push) = &mut self.parcels.push {
                    push.sender.handle_closed(now, stream);
                }
                if let Some(incoming) = &mut self.parcels.incoming {
                    incoming.receiver.handle_closed(now, stream, why);
                }
            }
        }
        self.pump();
    }

    fn stream_open(&mut self, stream: StreamId) {
        if let Some(push) = &mut self.parcels.push {
            push.sender.handle_connected(stream);
        }
        if let Some(incoming) = &mut self.parcels.incoming {
            incoming.receiver.handle_connected(self.now, stream);
        }
    }

    fn stream_said(&mut self, stream: StreamId, bytes: &[u8]) {
        if let Some(push) = &mut self.parcels.push {
            push.sender.handle_bytes(stream, bytes);
        }
        if let Some(incoming) = &mut self.parcels.incoming {
            incoming.receiver.handle_bytes(self.now, stream, bytes);
        }
    }

    pub(crate) fn parcels_timeout(&mut self) {
        let now = self.now;
        if let Some(push) = &mut self.parcels.push {
            push.sender.handle_timeout(now);
        }
        if let Some(incoming) = &mut self.parcels.incoming {
            incoming.receiver.handle_timeout(now);
        }
        if self.parcels.look_at.is_some_and(|at| now >= at) {
            self.parcels.look_at = Some(now + LOOK_EVERY);
            self.credit();
            self.serve_late();
        }
    }

    /// Whoever came after the start gets the last save.
    fn serve_late(&mut self) {
        let (now, Role::Host(side)) = (self.now, &self.role) else { return };
        let late = side.lobby.waiting().into_iter().any(|(_, name)| !self.parcels.passed.contains(&name));
        // A relay begins with what it kept; a running game's world is worth handing out for three minutes.
        let relay = side.config.store.is_some();
        let age = self.parcels.stored_at.map(|at| now.saturating_duration_since(at));
        let fits = if relay {
            age.is_none_or(|age| age <= STORED_FOR) || !side.lobby.is_running()
        } else {
            side.lobby.is_running()
        };
        let taking = self.parcels.incoming.as_ref().is_some_and(|incoming| !incoming.receiver.is_over());
        let waits = late && fits && !taking && self.parcels.push.is_none();
        let Some(wish) = self.parcels.last.clone().filter(|_| waits) else {
            self.parcels.late_at = None;
            return;
        };
        let at = *self.parcels.late_at.get_or_insert(now + LATE_AFTER);
        if now >= at && self.parcels.fresh_by.is_none_or(|by| now >= by) {
            // What a session resumed from counts as new from then on.
            self.parcels.stored_at = self.parcels.stored_at.filter(|_| self.host_runs());
            self.begin_push(wish, None);
        }
    }

    fn host_runs(&self) -> bool {
        matches!(&self.role, Role::Host(side) if side.lobby.is_running())
    }

    /// Whether this player may bring a relay its world now: who leads, while none is handed out.
    fn may_upload(&self, from: Path, sid: u32) -> bool {
        let Role::Host(side) = &self.role else { return false };
        let known =
            self.parcels.incoming.as_ref().is_some_and(|own| own.from == from && own.receiver.offer().sid == sid);
        side.config.store.is_some() && (known || (side.lobby.leader() == Some(from) && self.parcels.push.is_none()))
    }

    /// An old program may be deaf while it hashes: as long as a transfer has patience with it, so has the lobby (pain
    /// 45). One of ours says that it is alive whatever it does.
    fn credit(&mut self) {
        let (now, Role::Host(side), Some(push)) = (self.now, &mut self.role, &self.parcels.push) else { return };
        for (path, _) in &push.names {
            if push.sender.is_serving(*path) && !side.lobby.is_ours(*path) {
                side.lobby.heard(now, *path);
            }
        }
    }

    /// Takes the events of the transfers. Whether there were any.
    pub(crate) fn pump_parcels(&mut self) -> bool {
        let mut moved = false;
        while let Some(event) = self.parcels.push.as_mut().and_then(|push| push.sender.poll_event()) {
            moved = true;
            self.on_send(event);
        }
        while let Some(event) = self.parcels.incoming.as_mut().and_then(|own| own.receiver.poll_event()) {
            moved = true;
            self.on_receive(event);
        }
        moved
    }
}

/// A world in a relay's folder.
fn kept(config: &HostConfig, names: &[String]) -> Option<Wish> {
    let folder = config.store.as_ref().filter(|_| !names.is_empty())?;
    Some(Wish { files: names.iter().map(|name| (folder.join(name), name.clone())).collect(), switch: false })
}

/// Whether a JSON text may be a message of a transfer; the parser has the last word.
pub(crate) fn may_be_word(json: &[u8]) -> bool {
    let kinds: [&[u8]; 5] = [b"\"fbegin", b"\"fack\"", b"\"fdone\"", b"\"tcp_gave_up\"", b"\"bulk_pipe\""];
    let head = json.get(..json.len().min(64)).unwrap_or_default();
    kinds.iter().any(|kind| head.windows(kind.len()).any(|window| window == *kind))
}
