//! What waits to be fetched.

use std::collections::VecDeque;

use seam::Path;

use crate::{Event, text};

/// Messages that wait for the composer. It drains them after every batch of inputs, so this is reached only when it
/// does not; the newest are dropped then, as a full socket would.
const OUT_MAX: usize = 16_384;
/// Chat and log lines that wait; beyond this the newest are dropped. Other events are as many as inputs are.
const TALK_MAX: usize = 4_096;

/// How a note to the own player is signed.
pub(crate) const NOTE_FROM: &str = "MULTIPLAYER";

/// A chat line of this program.
pub(crate) fn note(said: &str) -> Event {
    Event::Chat { from: NOTE_FROM.to_owned(), text: text::line(said, text::CHAT_MAX), ts: None }
}

/// The two queues of a machine.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    out: VecDeque<(Path, Vec<u8>)>,
    events: VecDeque<Event>,
    talk: usize,
}

impl Queues {
    pub(crate) fn send(&mut self, to: Path, json: Vec<u8>) {
        if self.out.len() < OUT_MAX {
            self.out.push_back((to, json));
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        if is_talk(&event) {
            if self.talk >= TALK_MAX {
                return;
            }
            self.talk += 1;
        }
        if matches!(event, Event::Roster(_)) {
            self.events.retain(|waiting| !matches!(waiting, Event::Roster(_)));
        }
        self.events.push_back(event);
    }

    pub(crate) fn next_message(&mut self) -> Option<(Path, Vec<u8>)> {
        self.out.pop_front()
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if is_talk(&event) {
            self.talk -= 1;
        }
        Some(event)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty() && self.events.is_empty()
    }

    /// What waits for `old` goes to `new`.
    pub(crate) fn rekey(&mut self, old: Path, new: Path) {
        self.out.iter_mut().filter(|(path, _)| *path == old).for_each(|(path, _)| *path = new);
    }
}

fn is_talk(event: &Event) -> bool {
    matches!(event, Event::Chat { .. } | Event::PeerLog { .. } | Event::Log(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn of_rosters_that_wait_only_the_newest_is_kept_and_talk_is_bounded() {
        let mut queues = Queues::default();
        for n in 0..5_000 {
            queues.tell(Event::Roster(Arc::default()));
            queues.tell(Event::Log(n.to_string()));
        }
        let events: Vec<_> = std::iter::from_fn(|| queues.next_event()).collect();
        assert_eq!(events.iter().filter(|event| matches!(event, Event::Roster(_))).count(), 1);
        assert_eq!(events.len(), TALK_MAX + 1);
        queues.tell(Event::Log("again".into()));
        assert_eq!(queues.next_event(), Some(Event::Log("again".into())));
    }
}
