//! The two queues between the network thread and whoever holds the handle.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use session::{Command, Event};
use thiserror::Error;

/// Commands that wait for the network thread.
const COMMANDS: usize = 4096;
/// Frames that wait for the reader.
const FRAMES: usize = 4096;
/// Log lines that wait for the reader.
const LINES: usize = 1024;
/// Other events that wait for the reader before the network thread waits too.
const FIRM: usize = 1024;

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// 4,096 commands wait already.
    #[error("the network thread is busy; try again")]
    Full,
    /// The session is over.
    #[error("the session is over")]
    Over,
}

/// What a slow reader missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Frames of the game.
    pub frames: u64,
    /// Log lines.
    pub lines: u64,
}

/// Commands on their way to the network thread.
#[derive(Default)]
pub(crate) struct Commands {
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    quit: bool,
    over: bool,
}

impl Commands {
    pub(crate) fn push(&self, command: Command) -> Result<(), CommandError> {
        let mut waiting = lock(&self.state);
        if waiting.over {
            return Err(CommandError::Over);
        }
        // Leaving is never refused, and nothing goes after it.
        if command == Command::Quit {
            waiting.quit = true;
            return Ok(());
        }
        if waiting.commands.len() >= COMMANDS {
            return Err(CommandError::Full);
        }
        waiting.commands.push_back(command);
        Ok(())
    }

    /// Moves what waits into `into`, which is empty.
    pub(crate) fn take(&self, into: &mut VecDeque<Command>) {
        let mut waiting = lock(&self.state);
        std::mem::swap(&mut waiting.commands, into);
        if std::mem::take(&mut waiting.quit) {
            into.push_back(Command::Quit);
        }
    }

    pub(crate) fn close(&self) {
        lock(&self.state).over = true;
    }
}

/// Events on their way to the reader. What happens when nobody reads:
///
/// * of `Roster` and `Links` only the newest waits;
/// * of `Frame` 4,096 wait, further ones are dropped and counted;
/// * of `Log` and `PeerLog` 1,024 wait, further ones are dropped and counted;
/// * everything else is never lost: with 1,024 of it unread the network thread stands still until the reader comes.
#[derive(Default)]
pub(crate) struct Events {
    state: Mutex<Unread>,
    news: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct Unread {
    events: VecDeque<Event>,
    frames: usize,
    lines: usize,
    firm: usize,
    roster: bool,
    links: bool,
    missed: Missed,
    reader_gone: bool,
    over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Roster,
    Links,
    Frame,
    Line,
    Firm,
}

fn class(event: &Event) -> Class {
    match event {
        Event::Roster(_) => Class::Roster,
        Event::Links(_) => Class::Links,
        Event::Frame { .. } => Class::Frame,
        Event::Log(_) | Event::PeerLog { .. } => Class::Line,
        _ => Class::Firm,
    }
}

impl Unread {
    fn push(&mut self, event: Event) -> Result<(), Event> {
        match class(&event) {
            class @ (Class::Roster | Class::Links) => {
                let queued = if class == Class::Roster { &mut self.roster } else { &mut self.links };
                if std::mem::replace(queued, true) {
                    let old = self.events.iter().rposition(|waiting| self::class(waiting) == class);
                    old.and_then(|index| self.events.remove(index));
                }
            }
            Class::Frame if self.frames >= FRAMES => {
                self.missed.frames += 1;
                return Ok(());
            }
            Class::Frame => self.frames += 1,
            Class::Line if self.lines >= LINES => {
                self.missed.lines += 1;
                return Ok(());
            }
            Class::Line => self.lines += 1,
            Class::Firm if self.firm >= FIRM => return Err(event),
            Class::Firm => self.firm += 1,
        }
        self.events.push_back(event);
        Ok(())
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match class(&event) {
            Class::Roster => self.roster = false,
            Class::Links => self.links = false,
            Class::Frame => self.frames -= 1,
            Class::Line => self.lines -= 1,
            Class::Firm => self.firm -= 1,
        }
        Some(event)
    }
}

impl Events {
    /// Hands over `events` in order. Stands still while events that may not be lost find no room.
    pub(crate) fn publish(&self, events: &mut Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut unread = lock(&self.state);
        for event in events.drain(..) {
            let mut waiting = Some(event);
            while let Some(event) = waiting.take() {
                if unread.reader_gone {
                    break;
                }
                if let Err(refused) = unread.push(event) {
                    waiting = Some(refused);
                    self.news.notify_all();
                    unread = self.room.wait(unread).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        drop(unread);
        self.news.notify_all();
    }

    /// The last event, past every bound: nothing follows.
    pub(crate) fn finish(&self, last: Event) {
        let mut unread = lock(&self.state);
        if !unread.reader_gone {
            unread.firm += 1;
            unread.events.push_back(last);
        }
        unread.over = true;
        drop(unread);
        self.news.notify_all();
    }

    pub(crate) fn take(&self) -> Option<Event> {
        let event = lock(&self.state).pop();
        if event.is_some() {
            self.room.notify_one();
        }
        event
    }

    pub(crate) fn take_within(&self, patience: Duration) -> Option<Event> {
        let until = Instant::now().checked_add(patience);
        let mut unread = lock(&self.state);
        loop {
            if let Some(event) = unread.pop() {
                self.room.notify_one();
                return Some(event);
            }
            if unread.over {
                return None;
            }
            let left = until.map_or(patience, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            unread = self.news.wait_timeout(unread, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn missed(&self) -> Missed {
        lock(&self.state).missed
    }

    /// Nothing follows and everything was read.
    pub(crate) fn is_drained(&self) -> bool {
        let unread = lock(&self.state);
        unread.over && unread.events.is_empty()
    }

    /// Nobody will read again: what waits is dropped.
    pub(crate) fn abandon(&self) {
        let mut unread = lock(&self.state);
        unread.reader_gone = true;
        unread.events.clear();
        drop(unread);
        self.room.notify_one();
    }
}

/// The state of a queue is whole between any two statements, so a panic elsewhere does not make it unusable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use lobby::Roster;

    use super::*;

    fn chat(text: &str) -> Event {
        Event::Chat { from: "ada".to_owned(), text: text.to_owned(), ts: None }
    }

    fn roster(lobby: &str) -> Event {
        Event::Roster(Arc::new(Roster { lobby: lobby.to_owned(), ..Roster::default() }))
    }

    fn frame(number: usize) -> Event {
        Event::Frame { from: None, data: Bytes::from(number.to_string()) }
    }

    fn all(events: &Events) -> Vec<Event> {
        std::iter::from_fn(|| events.take()).collect()
    }

    #[test]
    fn of_rosters_only_the_newest_waits_and_it_keeps_its_place_behind_what_came_before() {
        let events = Events::default();
        events.publish(&mut vec![roster("1"), chat("a"), roster("2"), chat("b"), roster("3")]);
        assert_eq!(all(&events), [chat("a"), chat("b"), roster("3")]);
        events.publish(&mut vec![roster("4")]);
        assert_eq!(all(&events), [roster("4")]);
    }

    #[test]
    fn frames_over_the_bound_are_dropped_and_counted_and_nothing_else_suffers() {
        let events = Events::default();
        events.publish(&mut (0..FRAMES + 10).map(frame).collect());
        events.publish(&mut vec![chat("still here")]);
        assert_eq!(events.missed(), Missed { frames: 10, lines: 0 });
        let got = all(&events);
        assert_eq!(got.len(), FRAMES + 1);
        assert_eq!(got.last(), Some(&chat("still here")));
        events.publish(&mut vec![frame(7)]);
        assert_eq!(all(&events), [frame(7)]);
    }

    #[test]
    fn log_lines_over_the_bound_are_dropped_and_counted() {
        let events = Events::default();
        events.publish(&mut (0..LINES + 3).map(|n| Event::Log(n.to_string())).collect());
        assert_eq!((all(&events).len(), events.missed().lines), (LINES, 3));
    }

    #[test]
    fn what_may_not_be_lost_waits_for_the_reader() {
        let events = Arc::new(Events::default());
        let count = FIRM * 3;
        let writer = std::thread::spawn({
            let events = Arc::clone(&events);
            move || events.publish(&mut (0..count).map(|n| chat(&n.to_string())).collect())
        });
        let got: Vec<Event> = (0..count).filter_map(|_| events.take_within(Duration::from_secs(10))).collect();
        writer.join().unwrap();
        assert!(got.into_iter().eq((0..count).map(|n| chat(&n.to_string()))));
    }

    #[test]
    fn a_reader_that_goes_lets_the_writer_go_on() {
        let events = Arc::new(Events::default());
        let writer = std::thread::spawn({
            let events = Arc::clone(&events);
            move || events.publish(&mut (0..FIRM * 2).map(|n| chat(&n.to_string())).collect())
        });
        std::thread::sleep(Duration::from_millis(20));
        events.abandon();
        writer.join().unwrap();
        assert_eq!(events.take(), None);
    }

    #[test]
    fn the_last_event_passes_full_queues_and_then_the_reader_does_not_wait() {
        let events = Events::default();
        events.publish(&mut (0..FIRM).map(|n| chat(&n.to_string())).collect());
        events.finish(Event::Ended(lobby::End::Quit));
        assert!(!events.is_drained());
        assert_eq!(all(&events).last(), Some(&Event::Ended(lobby::End::Quit)));
        let start = Instant::now();
        assert_eq!(events.take_within(Duration::from_secs(60)), None);
        assert!(events.is_drained() && start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_full_command_queue_says_so_and_quit_always_fits_and_goes_last() {
        let commands = Commands::default();
        let accepted = (0..COMMANDS + 1).filter(|n| commands.push(Command::Stage(n.to_string())).is_ok()).count();
        assert_eq!(accepted, COMMANDS);
        assert_eq!(commands.push(Command::Stage(String::new())), Err(CommandError::Full));
        assert_eq!(commands.push(Command::Quit), Ok(()));
        let mut taken = VecDeque::new();
        commands.take(&mut taken);
        assert_eq!((taken.len(), taken.back()), (COMMANDS + 1, Some(&Command::Quit)));
        commands.close();
        assert_eq!(commands.push(Command::Quit), Err(CommandError::Over));
    }
}
