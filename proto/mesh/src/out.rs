//! The two queues out of a mesh, and its counters.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::Path;

use crate::{Event, Outgoing, Send, Stats};

/// Most payloads that wait to be sealed. More than the largest socket buffers in use hold as datagrams; what comes on
/// top is dropped, the newest first, and counted.
pub(crate) const SENDS_MAX: usize = 16_384;
/// Most frames that wait for the own game; what comes on top is dropped, the newest first, and counted.
pub(crate) const DELIVERIES_MAX: usize = 4_096;
/// Most other events that wait; at this many a mesh takes no further names of links.
pub(crate) const NOTICES_MAX: usize = 4_096;
/// How seldom a too long datagram of the own game is spoken of.
const OVERSIZE_EVERY: Duration = Duration::from_secs(5);

/// Whose frame a payload carries, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The own game's.
    Own,
    /// Another player's.
    Other,
}

#[derive(Debug)]
pub(crate) struct Out {
    /// The last instant anybody told the mesh.
    pub(crate) now: Instant,
    pub(crate) stats: Stats,
    sends: VecDeque<Send>,
    events: VecDeque<Event>,
    /// How many of the events are deliveries.
    deliveries: usize,
    oversize_said: Option<Instant>,
}

impl Out {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            now,
            stats: Stats::default(),
            sends: VecDeque::new(),
            events: VecDeque::new(),
            deliveries: 0,
            oversize_said: None,
        }
    }

    /// Queues one payload that carries a frame.
    pub(crate) fn frame(&mut self, whose: Whose, to: Vec<Path>, payload: Outgoing) {
        let copies = count(to.len());
        if copies == 0 {
            return;
        }
        if self.sends.len() >= SENDS_MAX {
            self.stats.overflow += copies;
            return;
        }
        match whose {
            Whose::Own => self.stats.sent += copies,
            Whose::Other => self.stats.forwarded += copies,
        }
        self.sends.push_back(Send { to, payload });
    }

    /// Queues the own name for a path; a name that finds the queue full is repeated by its timer.
    pub(crate) fn hi(&mut self, to: Path, name: std::sync::Arc<str>) {
        if self.sends.len() < SENDS_MAX {
            self.sends.push_back(Send { to: vec![to], payload: Outgoing::Hi(name) });
        }
    }

    /// Hands a frame to the own game.
    pub(crate) fn deliver(&mut self, from: Option<&str>, frame: Bytes) {
        if self.deliveries >= DELIVERIES_MAX {
            self.stats.overflow += 1;
            return;
        }
        self.deliveries += 1;
        self.stats.delivered += 1;
        self.events.push_back(Event::Deliver { from: from.map(str::to_owned), frame });
    }

    /// Queues anything but a delivery.
    pub(crate) fn notice(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Counts a datagram that is too long for a frame.
    pub(crate) fn oversize(&mut self, size: usize) {
        self.stats.oversize += 1;
        let quiet = self.oversize_said.is_none_or(|said| self.now.saturating_duration_since(said) >= OVERSIZE_EVERY);
        if quiet {
            self.oversize_said = Some(self.now);
            self.notice(Event::Oversize { size });
        }
    }

    /// Whether there are more notices than a stranger's words may add to.
    pub(crate) fn is_crowded(&self) -> bool {
        self.events.len().saturating_sub(self.deliveries) >= NOTICES_MAX
    }

    pub(crate) fn pop_send(&mut self) -> Option<Send> {
        self.sends.pop_front()
    }

    pub(crate) fn pop_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if matches!(event, Event::Deliver { .. }) {
            self.deliveries = self.deliveries.saturating_sub(1);
        }
        Some(event)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.events.is_empty()
    }
}

/// A length as a counter counts it.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
