//! Peers of one process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{Channel, Incoming, Undelivered};
use crate::NetworkId;

/// Most messages that wait for one id; then sending fails.
pub const MAILBOX_MAX: usize = 1_024;

/// One end of a switchboard. Ends made by [`end`](Self::end) reach each other by their ids, from any thread.
#[derive(Clone, Debug)]
pub struct Memory {
    id: NetworkId,
    boxes: Arc<Mutex<BTreeMap<NetworkId, VecDeque<Incoming>>>>,
}

impl Memory {
    /// The first end of a new switchboard.
    #[must_use]
    pub fn new(id: NetworkId) -> Self {
        let boxes = BTreeMap::from([(id.clone(), VecDeque::new())]);
        Self { id, boxes: Arc::new(Mutex::new(boxes)) }
    }

    /// Another end of the same switchboard.
    #[must_use]
    pub fn end(&self, id: NetworkId) -> Self {
        self.with(|boxes| {
            boxes.entry(id.clone()).or_default();
        });
        Self { id, boxes: Arc::clone(&self.boxes) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<NetworkId, VecDeque<Incoming>>) -> T) -> T {
        // A thread that panicked within left whole messages behind.
        work(&mut self.boxes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Channel for Memory {
    fn send(&mut self, _now: Instant, from: &NetworkId, to: &NetworkId, text: &str) -> Result<(), Undelivered> {
        self.with(|boxes| {
            let mailbox = boxes.get_mut(to).ok_or_else(|| Undelivered::NoWay(to.clone()))?;
            if mailbox.len() >= MAILBOX_MAX {
                return Err(Undelivered::Failed("too many messages wait".to_owned()));
            }
            mailbox.push_back(Incoming { from: from.clone(), to: to.clone(), text: text.to_owned() });
            Ok(())
        })
    }

    fn poll(&mut self) -> Option<Incoming> {
        self.with(|boxes| boxes.get_mut(&self.id)?.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_reach_each_other_in_order_and_nobody_else() {
        let now = Instant::now();
        let (one, two): (NetworkId, NetworkId) = (1.into(), "550e8400-e29b-41d4-a716-446655440000".parse().unwrap());
        let mut a = Memory::new(one.clone());
        let mut b = a.end(two.clone());
        a.send(now, &one, &two, "x").unwrap();
        a.send(now, &one, &two, "y").unwrap();
        assert_eq!(a.poll(), None);
        assert_eq!(
            [b.poll(), b.poll(), b.poll()].map(|m| m.map(|m| m.text)),
            [Some("x".into()), Some("y".into()), None]
        );
        assert_eq!(b.send(now, &two, &3.into(), "z"), Err(Undelivered::NoWay(3.into())));
    }

    #[test]
    fn a_mailbox_nobody_empties_is_bounded() {
        let mut a = Memory::new(1.into());
        let sent = (0..2_000).filter(|_| a.send(Instant::now(), &1.into(), &1.into(), "x").is_ok()).count();
        assert_eq!(sent, MAILBOX_MAX);
    }
}
