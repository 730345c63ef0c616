//! What a wire is to a party: numbered links to other ends, each with reliable, ordered and unordered packets.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use seam::{Channel, CloseReason, Delivery, LinkStats, PeerId, SendError};

/// A link of one wire. Never used twice in the life of a wire.
pub(crate) type LinkId = u32;

/// Bytes of one packet that a game may send reliably, on every wire.
pub(crate) const RELIABLE_MAX: usize = lanes::RELIABLE_MAX - lanes::control::MARK_MAX;
/// The same for both unreliable deliveries.
pub(crate) const UNRELIABLE_MAX: usize = lanes::UNRELIABLE_MAX - lanes::control::MARK_MAX;
/// Bytes of reliable packets that may wait on one link before a sender is told to wait; the same where packets are passed
/// on for others, on top of which the link is given up.
pub(crate) const QUEUE_MAX: usize = lanes::QUEUE_MAX;
pub(crate) const RELAY_MAX: usize = 3 * lanes::QUEUE_MAX;

/// Ends a wire's wait from any thread.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// Where on a link a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Messages of the party itself.
    Control,
    /// The game's.
    Game(Channel),
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The host.
    Host,
    /// At a host: somebody who wants in, under this id where the wire says so.
    Joiner(Option<PeerId>),
    /// At a joiner: another joiner, by its name.
    Fellow(String),
}

/// What happens on a wire.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A link stands.
    Up {
        link: LinkId,
        who: Who,
        /// The other end understands control messages and marks.
        speaks: bool,
        /// A name that the wire keeps unique.
        name: Option<String>,
        /// What a ban may go by.
        address: Option<String>,
    },
    /// A packet.
    Packet { link: LinkId, lane: Lane, delivery: Delivery, data: Bytes },
    /// A link is gone. Nothing follows on it.
    Down(LinkId, CloseReason),
    /// Some link has room again.
    Writable,
    /// What a friend types in to join.
    Invite(String),
    /// What the wire calls this player.
    Me(String),
    /// The wire as a whole is over.
    Over(CloseReason),
}

/// One wire of a party.
pub(crate) trait Links: Send {
    /// Does what is to be done now: receives, sends, minds timers.
    fn turn(&mut self, now: Instant);

    /// The next event of the last turn.
    fn poll(&mut self) -> Option<LinkEvent>;

    /// Sends what waits.
    fn flush(&mut self, now: Instant);

    /// Whether a link carries this at all.
    fn carries(&self, link: LinkId, lane: Lane, delivery: Delivery) -> bool;

    /// Whether a reliable packet of `len` bytes would be taken. If not, `Writable` follows once it would.
    fn has_room(&mut self, link: LinkId, len: usize) -> bool;

    /// Queues a packet; `relay` for another player's.
    fn send(
        &mut self,
        now: Instant,
        link: LinkId,
        lane: Lane,
        delivery: Delivery,
        data: &Bytes,
        relay: bool,
    ) -> Result<(), SendError>;

    /// At a joiner: the link to another joiner by the name the wire keeps unique, made if there is none. Packets wait on it
    /// until the other end answers.
    fn link_to(&mut self, now: Instant, name: &str) -> Option<LinkId> {
        let _no_wire_but_one_has_them = (now, name);
        None
    }

    /// Ends a link once the other end has what was queued, or soon after. No event follows on it.
    fn hang_up(&mut self, now: Instant, link: LinkId, code: u32, text: &str);

    /// What is known of a link, its route included.
    fn stats(&self, link: LinkId) -> LinkStats;

    /// Leaves, telling everybody; what is queued goes first where it can.
    fn leave(&mut self, now: Instant);

    /// Everything of a wire that leaves is said.
    fn is_gone(&self) -> bool;

    /// When the next turn is due.
    fn timeout(&self, now: Instant) -> Option<Instant>;

    /// Blocks until something comes, somebody wakes it, or `until`.
    fn wait(&mut self, until: Instant);

    /// Ends the wait.
    fn waker(&self) -> Waker;
}
