//! Polls that are held open until a note comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rendezvous::words::Tag;
use tokio::sync::Notify;

use crate::lock;

/// Who waits for which tag; at most `most` polls at once.
#[derive(Debug)]
pub(crate) struct Waiters {
    most: usize,
    tags: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    count: usize,
    tags: BTreeMap<Tag, (Arc<Notify>, usize)>,
}

/// One held poll; gone when dropped.
pub(crate) struct Seat {
    waiters: Arc<Waiters>,
    tag: Tag,
    pub(crate) notify: Arc<Notify>,
}

impl Waiters {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, tags: Mutex::default() }
    }

    /// A seat for one poll, unless there are too many.
    pub(crate) fn sit(self: &Arc<Self>, tag: &Tag) -> Option<Seat> {
        let mut waiting = lock(&self.tags);
        if waiting.count >= self.most {
            return None;
        }
        waiting.count += 1;
        let (notify, count) = waiting.tags.entry(tag.clone()).or_default();
        *count += 1;
        Some(Seat { waiters: Arc::clone(self), tag: tag.clone(), notify: Arc::clone(notify) })
    }

    /// A note came for `tag`.
    pub(crate) fn wake(&self, tag: &Tag) {
        if let Some((notify, _)) = lock(&self.tags).tags.get(tag) {
            notify.notify_waiters();
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.tags).count
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiters.tags);
        waiting.count -= 1;
        if let Some((_, count)) = waiting.tags.get_mut(&self.tag) {
            *count -= 1;
            if *count == 0 {
                waiting.tags.remove(&self.tag);
            }
        }
    }
}
