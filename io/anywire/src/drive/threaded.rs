//! A party on a thread of its own, and the two bounded queues between it and the game.
//!
//! * Out: 8,192 packets and 4 MiB; more is `WouldBlock`. Unreliable packets pass reliable ones that wait for room.
//! * In: with 16,384 events or 16 MiB unread, unreliable packets are dropped and counted; with four times as many the
//!   thread stands still until the game reads, and the other ends see a silent player.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::{Channel, CloseReason, Delivery, Event, LinkStats, OpenError, Peer, PeerId, PeerState, SendError, Target};

use crate::links::Waker;
use crate::party::{Facts, Party};

const OUT_PACKETS: usize = 8_192;
const OUT_BYTES: usize = 4 << 20;
const IN_EVENTS: usize = 16_384;
const IN_BYTES: usize = 16 << 20;
/// How often the game's view of names and statistics is made anew when nobody comes or goes.
const FACTS_EVERY: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_millis(50);
/// How long a thread whose handle was dropped may take to say goodbye.
const STILL: Duration = Duration::from_millis(5);

enum Order {
    Send(Target, Channel, Delivery, Bytes),
    Remove { peer: PeerId, code: u32, text: String, ban: bool },
    Refuse(bool),
    Close,
}

#[derive(Default)]
struct Out {
    orders: VecDeque<Order>,
    packets: usize,
    bytes: usize,
    /// The game was told to wait.
    blocked: bool,
}

#[derive(Default)]
struct In {
    events: VecDeque<Event>,
    bytes: usize,
    dropped: u64,
    facts: Arc<BTreeMap<PeerId, Facts>>,
    invite: Option<String>,
}

struct Shared {
    out: Mutex<Out>,
    inward: Mutex<In>,
    /// Something is in `inward.events`: a game that polls a thousand times a second takes no lock for nothing.
    news: AtomicBool,
    /// Nobody holds the peer any more.
    dropped: AtomicBool,
}

pub(super) struct ThreadedPeer {
    shared: Arc<Shared>,
    wake: Waker,
    id: PeerId,
    name: String,
    state: PeerState,
    /// Everybody whose arrival the game has heard of.
    players: BTreeSet<PeerId>,
    ready: VecDeque<Event>,
    /// The game has closed it, whatever else ends it meanwhile.
    closing: bool,
}

impl ThreadedPeer {
    pub(super) fn start(party: Party) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared {
            out: Mutex::default(),
            inward: Mutex::default(),
            news: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
        });
        let (id, state, wake) = (party.id(), party.state(), party.waker());
        let name = party.own_name().to_owned();
        let theirs = Arc::clone(&shared);
        let thread = Builder::new().name("anywire-peer".to_owned());
        let started = thread.spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| run(party, &theirs))).is_err() {
                // Our own fault; the game learns that the session is over rather than waiting for ever.
                let mut inward = lock(&theirs.inward);
                inward.events.push_back(Event::Closed(CloseReason::SessionEnded));
                theirs.news.store(true, Ordering::Release);
            }
        });
        started.map_err(|error| OpenError::Socket(format!("no thread: {error}")))?;
        Ok(Self { shared, wake, id, name, state, players: BTreeSet::new(), ready: VecDeque::new(), closing: false })
    }

    fn order(&self, order: Order) {
        lock(&self.shared.out).orders.push_back(order);
        (self.wake)();
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Connected(id) => {
                self.id = *id;
                self.state = PeerState::Connected;
            }
            Event::Joined(id) => {
                self.players.insert(*id);
            }
            Event::Left(id, _) => {
                self.players.remove(id);
            }
            Event::Closed(_) => {
                self.state = PeerState::Closed;
                self.players.clear();
            }
            _ => {}
        }
    }

    fn facts<T>(&self, peer: PeerId, read: impl FnOnce(&Facts) -> T) -> Option<T> {
        if !self.players.contains(&peer) {
            return None;
        }
        let facts = Arc::clone(&lock(&self.shared.inward).facts);
        facts.get(&peer).map(read)
    }

    fn remove(&mut self, peer: PeerId, code: u32, text: &str, ban: bool) -> Result<(), SendError> {
        if self.id != PeerId::HOST {
            return Err(SendError::HostOnly);
        }
        if !self.players.contains(&peer) {
            return Err(SendError::NoSuchPeer(peer));
        }
        self.order(Order::Remove { peer, code, text: text.to_owned(), ban });
        Ok(())
    }

    /// What a stock peer does not carry is refused here, where the game still hears of it.
    fn carries(&self, target: Target, channel: Channel) -> bool {
        let facts = Arc::clone(&lock(&self.shared.inward).facts);
        facts.iter().all(|(id, facts)| {
            let meant = match target {
                Target::All => true,
                Target::One(one) => one == *id,
                Target::AllBut(but) => but != *id,
            };
            !meant || facts.stock.is_none_or(|channels| u16::from(channel.0) < channels)
        })
    }
}

impl Peer for ThreadedPeer {
    fn id(&self) -> PeerId {
        self.id
    }

    fn state(&self) -> PeerState {
        self.state
    }

    fn poll(&mut self) -> Option<Event> {
        if self.ready.is_empty() {
            if !self.shared.news.swap(false, Ordering::AcqRel) {
                return None;
            }
            let mut inward = lock(&self.shared.inward);
            std::mem::swap(&mut self.ready, &mut inward.events);
            inward.bytes = 0;
        }
        let mut event = self.ready.pop_front()?;
        if self.closing && matches!(event, Event::Closed(_)) {
            event = Event::Closed(CloseReason::ByUser);
        }
        self.note(&event);
        Some(event)
    }

    fn send(&mut self, target: Target, channel: Channel, delivery: Delivery, data: &[u8]) -> Result<(), SendError> {
        if self.state != PeerState::Connected {
            return Err(SendError::NotConnected);
        }
        let max = self.max_packet_size(delivery);
        if data.len() > max {
            return Err(SendError::TooLarge { size: data.len(), max });
        }
        match target {
            Target::One(id) if !self.players.contains(&id) => return Err(SendError::NoSuchPeer(id)),
            Target::AllBut(id) if id != self.id && !self.players.contains(&id) => {
                return Err(SendError::NoSuchPeer(id));
            }
            _ => {}
        }
        if !self.carries(target, channel) {
            return Err(SendError::NotCarried);
        }
        {
            let mut out = lock(&self.shared.out);
            if out.packets >= OUT_PACKETS || out.bytes + data.len() > OUT_BYTES {
                out.blocked = true;
                return Err(SendError::WouldBlock);
            }
            out.packets += 1;
            out.bytes += data.len();
            out.orders.push_back(Order::Send(target, channel, delivery, Bytes::copy_from_slice(data)));
        }
        (self.wake)();
        Ok(())
    }

    fn max_packet_size(&self, delivery: Delivery) -> usize {
        Party::max_packet_size(delivery)
    }

    fn peers(&self) -> Vec<PeerId> {
        self.players.iter().copied().collect()
    }

    fn name(&self, peer: PeerId) -> Option<String> {
        if peer == self.id && self.state == PeerState::Connected {
            return Some(self.name.clone());
        }
        self.facts(peer, |facts| facts.name.clone())
    }

    fn invite(&self) -> Option<String> {
        lock(&self.shared.inward).invite.clone()
    }

    fn link_stats(&self, peer: PeerId) -> Option<LinkStats> {
        self.facts(peer, |facts| facts.stats.clone())
    }

    fn kick(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError> {
        self.remove(peer, code, text, false)
    }

    fn ban(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError> {
        self.remove(peer, code, text, true)
    }

    fn refuse_new(&mut self, refuse: bool) {
        self.order(Order::Refuse(refuse));
    }

    fn close(&mut self) {
        if self.state != PeerState::Closed {
            self.closing = true;
            self.order(Order::Close);
        }
    }
}

impl Drop for ThreadedPeer {
    fn drop(&mut self) {
        self.shared.dropped.store(true, Ordering::Release);
        self.order(Order::Close);
    }
}

/// The thread's side.
struct Worker<'a> {
    party: Party,
    shared: &'a Shared,
    orders: VecDeque<Order>,
    /// Reliable packets that found no room, with all reliable ones after them.
    waiting: VecDeque<(Target, Channel, Bytes)>,
    waiting_bytes: usize,
    facts_at: Instant,
}

fn run(party: Party, shared: &Shared) {
    let facts_at = Instant::now();
    let mut worker =
        Worker { party, shared, orders: VecDeque::new(), waiting: VecDeque::new(), waiting_bytes: 0, facts_at };
    loop {
        let now = Instant::now();
        worker.party.receive(now);
        worker.obey(now);
        worker.party.finish(now);
        worker.publish(now);
        if worker.party.is_gone() {
            return;
        }
        worker.party.wait(now + WAIT_MAX);
    }
}

impl Worker<'_> {
    fn obey(&mut self, now: Instant) {
        while let Some((target, channel, data)) = self.waiting.pop_front() {
            if self.party.send(now, target, channel, Delivery::Reliable, &data) == Err(SendError::WouldBlock) {
                self.waiting.push_front((target, channel, data));
                break;
            }
            self.waiting_bytes = self.waiting_bytes.saturating_sub(data.len());
        }
        std::mem::swap(&mut self.orders, &mut lock(&self.shared.out).orders);
        while let Some(order) = self.orders.pop_front() {
            match order {
                Order::Send(target, channel, Delivery::Reliable, data) => {
                    let full = !self.waiting.is_empty()
                        || self.party.send(now, target, channel, Delivery::Reliable, &data)
                            == Err(SendError::WouldBlock);
                    if full {
                        self.waiting_bytes += data.len();
                        self.waiting.push_back((target, channel, data));
                    }
                }
                Order::Send(target, channel, delivery, data) => {
                    // Who left since the game sent this, or has no room for it, misses it.
                    let _lost = self.party.send(now, target, channel, delivery, &data);
                }
                Order::Remove { peer, code, text, ban } => {
                    let _left_already = self.party.kick(now, peer, code, &text, ban);
                }
                Order::Refuse(refuse) => self.party.refuse_new(refuse),
                Order::Close => self.party.close(now),
            }
        }
        let mut out = lock(&self.shared.out);
        let newer: usize = out.orders.iter().map(Order::bytes).sum();
        out.packets = self.waiting.len() + out.orders.len();
        out.bytes = self.waiting_bytes + newer;
        let room = out.packets <= OUT_PACKETS / 2 && out.bytes <= OUT_BYTES / 2;
        if room && std::mem::take(&mut out.blocked) {
            drop(out);
            self.push(Event::Writable);
        }
    }

    fn push(&self, event: Event) {
        lock(&self.shared.inward).events.push_back(event);
        self.shared.news.store(true, Ordering::Release);
    }

    fn publish(&mut self, now: Instant) {
        let mut told = false;
        let mut inward = lock(&self.shared.inward);
        while let Some(event) = self.party.poll_event() {
            // Room is said by this side's queue.
            if event == Event::Writable {
                continue;
            }
            if let Event::Packet { delivery, data, .. } = &event {
                let full = inward.events.len() >= IN_EVENTS || inward.bytes >= IN_BYTES;
                if full && *delivery != Delivery::Reliable {
                    inward.dropped += 1;
                    continue;
                }
                inward.bytes += data.len();
            } else {
                told = true;
            }
            inward.events.push_back(event);
            self.shared.news.store(true, Ordering::Release);
        }
        if told || now >= self.facts_at {
            self.facts_at = now + FACTS_EVERY;
            inward.facts = Arc::new(self.party.facts());
            inward.invite = self.party.invite();
        }
        while inward.events.len() >= 4 * IN_EVENTS || inward.bytes >= 4 * IN_BYTES {
            drop(inward);
            if self.shared.dropped.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(STILL);
            inward = lock(&self.shared.inward);
        }
    }
}

impl Order {
    fn bytes(&self) -> usize {
        if let Self::Send(.., data) = self { data.len() } else { 0 }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
