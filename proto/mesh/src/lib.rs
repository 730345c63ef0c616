//! Game frames between the players of a session: links between joiners, envelopes, routing (netpunch wire, section 8).
//!
//! A [`Mesh`] is one player's part. It holds no socket and no key: it says who gets which payload ([`Mesh::poll_send`])
//! and what the own game gets ([`Event::Deliver`]); the composer seals and sends. A peer is known by its [`Path`].
//!
//! ```text
//!  host    own frame  -> g to every joiner                 joiner  own frame -> g to the host and on direct links,
//!          g          -> own game; a star client's also                         an envelope each for the others, by
//!                        to all other joiners                                   the host, or by a player with a link
//!          r          -> own game, or on to its receiver           g         -> own game
//!  relay   g          -> leader; a star client's to all            r         -> own game, or on a direct link
//!          r          -> on to its receiver
//! ```
//!
//! Guarantees:
//! * every player gets at most one copy of a frame, and exactly one when the network loses none and there is a way;
//! * frames for one player leave in the order they came;
//! * an envelope is passed on only for a sender that is who it says, only to a direct link, and never back.
//!
//! Not guaranteed: delivery (nothing is sent again), order across a change of route, the truth of a name inside an
//! envelope that another player carried: everybody in a session holds the same key.
//!
//! Bounds: 512 dials, 256 linked players with 3 paths each, 256 nameless links, 512 members at a host, 16,384 queued
//! payloads, 4,096 queued deliveries. A full queue drops the newest frame and counts it ([`Stats::overflow`]).

mod dials;
mod envelope;
mod host;
mod joiner;
mod links;
mod names;
mod out;
mod reach;
mod report;
mod types;

use std::time::{Duration, Instant};

use np1::GAME_FRAME_MAX;
use seam::{Path, PooledBuf, Refused, Route};

use crate::host::Host;
use crate::joiner::Joiner;
use crate::out::Out;

pub use types::{Config, Down, Event, Outgoing, Role, RosterView, Seat, Send, Stats};

/// How long one dial to another joiner may take.
pub const DIAL_FOR: Duration = Duration::from_secs(8);

/// One player's part in the exchange of game frames.
///
/// Feed inputs at one `now`, then drain [`poll_send`](Self::poll_send) and [`poll_event`](Self::poll_event), then wait
/// until [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Mesh {
    out: Out,
    part: Part,
}

#[derive(Debug)]
enum Part {
    Host(Host),
    Joiner(Box<Joiner>),
}

impl Mesh {
    /// A mesh without a name, a host or members.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let part = match config.role {
            Role::Host { relay_only } => Part::Host(Host::new(relay_only)),
            Role::Joiner { mesh } => Part::Joiner(Box::new(Joiner::new(mesh, seed, now))),
        };
        Self { out: Out::new(now), part }
    }

    /// Host: the own name, by which envelopes for the host's game are addressed. A joiner learns its name from the
    /// roster.
    pub fn set_me(&mut self, now: Instant, name: &str) {
        if let (_, Some(host)) = self.host(now) {
            host.set_me(now, name);
        }
    }

    /// Relay: who leads the session.
    pub fn set_leader(&mut self, now: Instant, name: Option<&str>) {
        if let (_, Some(host)) = self.host(now) {
            host.set_leader(name);
        }
    }

    /// Host: a player was admitted. A known path is a rename or a change of kind; a known name on another path moves
    /// there.
    pub fn member_joined(&mut self, now: Instant, name: &str, path: Path, mesh: bool) {
        if let (_, Some(host)) = self.host(now) {
            host.member_joined(now, name, path, mesh);
        }
    }

    /// Host: a player is gone.
    pub fn member_left(&mut self, now: Instant, path: Path) {
        if let (_, Some(host)) = self.host(now) {
            host.member_left(path);
        }
    }

    /// Host: a player goes by another name. The old one is understood for 30 s more, until every roster says it.
    pub fn rename(&mut self, now: Instant, path: Path, name: &str) {
        if let (_, Some(host)) = self.host(now) {
            host.rename(now, path, name);
        }
    }

    /// Joiner: the path to the host, or that there is none at the moment.
    pub fn host_link(&mut self, now: Instant, path: Option<Path>) {
        if let (out, Some(joiner)) = self.joiner(now) {
            joiner.host_link(out, path);
        }
    }

    /// Joiner: the newest roster. The first one opens the mesh: before it, nothing of the game goes in or out.
    pub fn roster(&mut self, now: Instant, roster: &RosterView<'_>) {
        if let (out, Some(joiner)) = self.joiner(now) {
            joiner.roster(out, roster);
        }
    }

    /// A peer's address changed: everything known of `old` holds for `new`.
    pub fn rekey(&mut self, now: Instant, old: Path, new: Path) {
        self.out.now = now;
        match &mut self.part {
            Part::Host(host) => host.rekey(old, new),
            Part::Joiner(joiner) => joiner.rekey(&mut self.out, old, new),
        }
    }

    /// A sign of life came on `from`. Frames, envelopes and `mesh_hi` count by themselves.
    pub fn heard(&mut self, now: Instant, from: Path) {
        if let (out, Some(joiner)) = self.joiner(now) {
            joiner.heard(out, from);
        }
    }

    /// The player at this path was heard from an address that has yet to prove itself. What came counts as the
    /// player's, but says nothing for the path: a link between joiners is gone around until it is heard again or moves.
    pub fn doubt(&mut self, now: Instant, path: Path) {
        if let (out, Some(joiner)) = self.joiner(now) {
            joiner.doubt(out.now, path);
        }
    }

    /// An authenticated game frame came, without its letter `g`. A joiner takes one from any path, as it may come
    /// from a player whose name is still on its way.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] when nobody on that path may send frames, [`Refused::Unexpected`] before the first
    /// roster.
    pub fn handle_frame(&mut self, now: Instant, from: Path, frame: PooledBuf) -> Result<(), Refused> {
        self.out.now = now;
        let taken = match &mut self.part {
            Part::Host(host) => host.handle_frame(&mut self.out, from, frame.freeze()),
            Part::Joiner(joiner) => joiner.handle_frame(&mut self.out, from, frame.freeze()),
        };
        self.counted(taken)
    }

    /// An authenticated envelope came, letter `r` included.
    ///
    /// # Errors
    /// [`Refused::Malformed`] when it is none or carries no game frame, [`Refused::NotAllowed`] when its sender is not
    /// who it says or may not send, [`Refused::Unexpected`] before the first roster.
    pub fn handle_envelope(&mut self, now: Instant, from: Path, payload: PooledBuf) -> Result<(), Refused> {
        self.out.now = now;
        let taken = match &mut self.part {
            Part::Host(host) => host.handle_envelope(&mut self.out, from, payload),
            Part::Joiner(joiner) => joiner.handle_envelope(&mut self.out, from, payload),
        };
        self.counted(taken)
    }

    /// The message `mesh_hi` came, authenticated. A host ignores it.
    ///
    /// # Errors
    /// [`Refused::NotAllowed`] for a name that cannot be another joiner's, [`Refused::OverLimit`] when the table of
    /// links is full, [`Refused::Unexpected`] before the first roster.
    pub fn handle_hi(&mut self, now: Instant, from: Path, name: &str) -> Result<(), Refused> {
        match self.joiner(now) {
            (out, Some(joiner)) => joiner.handle_hi(out, from, name),
            (_, None) => Ok(()),
        }
    }

    /// A datagram of the own game. One over 1,400 bytes is dropped and counted.
    pub fn local_frame(&mut self, now: Instant, frame: PooledBuf) {
        self.out.now = now;
        if frame.len() > GAME_FRAME_MAX {
            self.out.oversize(frame.len());
            return;
        }
        self.out.stats.local += 1;
        let frame = frame.freeze();
        match &mut self.part {
            Part::Host(host) => host.local_frame(&mut self.out, frame),
            Part::Joiner(joiner) => joiner.local_frame(&mut self.out, &frame),
        }
    }

    /// A datagram of the own game for one player alone. One over 1,400 bytes is dropped and counted.
    pub fn local_frame_to(&mut self, now: Instant, to: &str, frame: PooledBuf) {
        self.out.now = now;
        if frame.len() > GAME_FRAME_MAX {
            self.out.oversize(frame.len());
            return;
        }
        self.out.stats.local += 1;
        let frame = frame.freeze();
        match &mut self.part {
            Part::Host(host) => host.local_frame_to(&mut self.out, to, frame),
            Part::Joiner(joiner) => joiner.local_frame_to(&mut self.out, to, frame),
        }
    }

    /// A dial ended in an open path: its token came back. Whose path it is, `mesh_hi` has to say: an address in a
    /// profile may belong to somebody else by now.
    pub fn link_opened(&mut self, now: Instant, dial: &str, path: Path) {
        if let (out, Some(joiner)) = self.joiner(now) {
            joiner.link_opened(out, dial, path);
        }
    }

    /// A dial ended without a path.
    pub fn dial_failed(&mut self, now: Instant, name: &str) {
        if let (_, Some(joiner)) = self.joiner(now) {
            joiner.dial_failed(now, name);
        }
    }

    /// Timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let (out, Some(joiner)) = self.joiner(now) {
            joiner.handle_timeout(out);
        }
    }

    /// The next payload to seal and send.
    pub fn poll_send(&mut self) -> Option<Send> {
        self.out.pop_send()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.out.pop_event()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.out.is_empty() {
            return Some((self.out.now, "mesh output"));
        }
        match &self.part {
            Part::Host(_) => None,
            Part::Joiner(joiner) => joiner.timeout(),
        }
    }

    /// How a player's copy of a frame travels at the moment.
    #[must_use]
    pub fn route_to(&self, name: &str) -> Route {
        match &self.part {
            Part::Host(host) => host.route_to(name),
            Part::Joiner(joiner) => joiner.route_to(self.out.now, name),
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.out.stats
    }

    fn host(&mut self, now: Instant) -> (&mut Out, Option<&mut Host>) {
        self.out.now = now;
        match &mut self.part {
            Part::Host(host) => (&mut self.out, Some(host)),
            Part::Joiner(_) => (&mut self.out, None),
        }
    }

    fn joiner(&mut self, now: Instant) -> (&mut Out, Option<&mut Joiner>) {
        self.out.now = now;
        match &mut self.part {
            Part::Host(_) => (&mut self.out, None),
            Part::Joiner(joiner) => (&mut self.out, Some(joiner)),
        }
    }

    fn counted(&mut self, taken: Result<(), Refused>) -> Result<(), Refused> {
        if taken == Err(Refused::NotAllowed) {
            self.out.stats.refused += 1;
        }
        taken
    }
}
