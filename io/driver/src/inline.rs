//! A session that runs on its caller's thread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use session::{Command, Event, Session};

use crate::core::Core;
use crate::setup::{Facts, OpenError, Setup, open};

/// A session without a thread of its own: it works when [`Inline::poll`] is called and stands still otherwise. For
/// servers with their own loop and for tests; names are still looked up and passwords stretched by worker threads.
///
/// Nothing is dropped or merged on the way: events wait here only until `poll` hands them out, one turn's worth at most.
/// After [`Event::Ended`] nothing follows.
pub struct Inline {
    core: Core<Session>,
    commands: VecDeque<Command>,
    events: VecDeque<Event>,
    fresh: Vec<Event>,
    facts: Facts,
}

impl Inline {
    /// Opens a session.
    ///
    /// # Errors
    /// [`OpenError`]: a port is taken, or the operating system refuses something.
    pub fn open(setup: Setup) -> Result<Self, OpenError> {
        let opened = open(setup)?;
        Ok(Self {
            core: opened.core,
            commands: VecDeque::new(),
            events: opened.remarks.into(),
            fresh: Vec::new(),
            facts: opened.facts,
        })
    }

    /// The next event. Takes a turn when none waits; never blocks.
    pub fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.wait(Duration::ZERO);
            self.turn();
        }
        self.events.pop_front()
    }

    /// Tells the session something, at once: what it says to that is on its way when this returns.
    pub fn command(&mut self, command: Command) {
        self.commands.push_back(command);
        self.turn();
    }

    /// Tells the session something in its next turn: many commands share one that way.
    pub fn queue(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// Takes a turn, whatever waits to be read.
    pub fn work(&mut self) {
        self.turn();
    }

    /// Ends [`Inline::wait`] from any thread.
    #[must_use]
    pub fn wake(&self) -> net::Wake {
        self.core.wake()
    }

    /// Blocks until the session has something to do or `patience` is over.
    pub fn wait(&mut self, patience: Duration) {
        let now = Instant::now();
        // Whatever it is that cannot be waited for shows as an error of a socket in the next turn.
        let _shown_later = self.core.wait(now, now.checked_add(patience));
    }

    /// What the driver found out while opening: ports and addresses.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The session is over, every event was handed out and the last datagrams are with the kernel.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.events.is_empty() && self.core.is_done(Instant::now())
    }

    fn turn(&mut self) {
        self.core.turn(Instant::now(), &mut self.commands, &mut self.fresh);
        self.events.extend(self.fresh.drain(..));
    }
}
