//! Which chat messages were read already.

use std::collections::{BTreeSet, VecDeque};

use crate::messages::Chat;

/// Messages remembered (netpunch wire, section 23).
const REMEMBERED: usize = 512;

/// What names a message: its id and second, since a host that starts again counts from 1 again; a message without an
/// id is known by what it says.
type Key = (Option<i64>, Option<u64>, Option<(String, String)>);

/// The last 512 chat messages.
#[derive(Debug, Default)]
pub(crate) struct Read {
    order: VecDeque<Key>,
    known: BTreeSet<Key>,
}

impl Read {
    /// Whether this message is new; it no longer is afterwards.
    pub(crate) fn is_new(&mut self, chat: &Chat) -> bool {
        let words = chat.cid.is_none().then(|| (chat.from.clone(), chat.text.clone()));
        let key = (chat.cid, chat.ts, words);
        if !self.known.insert(key.clone()) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(text: &str, ts: u64, cid: Option<i64>) -> Chat {
        Chat { from: "ada".into(), text: text.into(), ts: Some(ts), cid }
    }

    #[test]
    fn copies_are_read_once_and_512_are_remembered() {
        let mut read = Read::default();
        assert!((1..=513).all(|cid| read.is_new(&chat("x", 1, Some(cid)))));
        assert!(!read.is_new(&chat("x", 1, Some(2))));
        assert!(read.is_new(&chat("x", 1, Some(1))), "the oldest is forgotten");
        assert_eq!(read.known.len(), REMEMBERED);
    }

    #[test]
    fn pain_49_a_second_message_without_an_id_is_not_taken_for_a_copy() {
        let mut read = Read::default();
        assert!(read.is_new(&chat("one", 1, None)));
        assert!(!read.is_new(&chat("one", 1, None)));
        assert!(read.is_new(&chat("two", 1, None)));
    }

    #[test]
    fn a_host_that_counts_from_one_again_is_heard() {
        let mut read = Read::default();
        assert!(read.is_new(&chat("x", 100, Some(1))));
        assert!(read.is_new(&chat("x", 200, Some(1))));
    }
}
