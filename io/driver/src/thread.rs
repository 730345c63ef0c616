//! The network thread and the handle to it.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use lobby::End;
use net::Wake;
use session::{Command, Event};

use crate::core::Core;
use crate::machine::Machine;
use crate::queue::{CommandError, Commands, Events, Missed};
use crate::setup::{Facts, OpenError, Opened, Setup, open};

/// How long a session that was told to leave may take for it.
const LEAVING: Duration = Duration::from_secs(3);

/// A running session. Its methods take `&self`, so that several threads may share one handle; none of them blocks except
/// where the name says so.
///
/// * Commands: at most 4,096 wait; [`Command::Quit`] always finds room and goes last.
/// * Events: of roster and link facts only the newest waits; at most 4,096 frames and 1,024 log lines wait, further ones
///   are dropped and counted ([`Handle::missed`]); nothing else is lost. With 1,024 such events unread the network thread
///   stands still until they are read, so a reader must never wait for anything but events.
/// * [`Event::Ended`] is the last event; it comes after the session's last datagrams are with the kernel. A panic in the
///   network thread ends the session with [`End::Fault`].
/// * Dropping the handle leaves the lobby without waiting; [`Handle::join`] waits.
pub struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    facts: Facts,
}

struct Shared {
    commands: Commands,
    events: Events,
    wake: Wake,
    end: Mutex<Option<End>>,
}

impl Handle {
    /// Tells the session something.
    ///
    /// # Errors
    /// [`CommandError`]: too many commands wait, or the session is over.
    pub fn command(&self, command: Command) -> Result<(), CommandError> {
        self.shared.commands.push(command)?;
        self.shared.wake.wake();
        Ok(())
    }

    /// The next event, if one waits.
    #[must_use]
    pub fn try_event(&self) -> Option<Event> {
        self.shared.events.take()
    }

    /// Blocks until an event comes, `patience` is over or the session is.
    #[must_use]
    pub fn event_timeout(&self, patience: Duration) -> Option<Event> {
        self.shared.events.take_within(patience)
    }

    /// What was dropped because nobody read it in time.
    #[must_use]
    pub fn missed(&self) -> Missed {
        self.shared.events.missed()
    }

    /// The session is over and every event was read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.events.is_drained()
    }

    /// What the driver found out while opening: ports and addresses.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Blocks until the session is over and its thread gone, and says why it ended. Events that were not read by now are
    /// dropped. It does not tell the session to leave: [`Command::Quit`] does.
    pub fn join(&self) -> End {
        self.shared.events.abandon();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread's body catches panics; what it ended with is in `end`.
            let _caught = thread.join();
        }
        let end = self.shared.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.clone().unwrap_or_else(|| End::Fault("the network thread left no reason".to_owned()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Over already: nothing to leave.
        let _over = self.shared.commands.push(Command::Quit);
        self.shared.events.abandon();
        self.shared.wake.wake();
    }
}

/// Opens a session and runs it on a thread of its own.
///
/// # Errors
/// [`OpenError`]: a port is taken, or the operating system refuses something.
pub fn spawn(setup: Setup) -> Result<Handle, OpenError> {
    let Opened { core, facts, remarks } = open(setup)?;
    start(core, facts, remarks).map_err(OpenError::Thread)
}

/// Runs `core` on a thread of its own; `first` are the events before all others.
pub(crate) fn start<M: Machine + Send + 'static>(
    core: Core<M>,
    facts: Facts,
    mut first: Vec<Event>,
) -> io::Result<Handle> {
    let shared = Arc::new(Shared {
        commands: Commands::default(),
        events: Events::default(),
        wake: core.wake(),
        end: Mutex::new(None),
    });
    shared.events.publish(&mut first);
    let theirs = Arc::clone(&shared);
    let thread = Builder::new().name("anywire-net".to_owned()).spawn(move || {
        let ran = catch_unwind(AssertUnwindSafe(|| run(core, &theirs)));
        let end = ran.unwrap_or_else(|panic| End::Fault(panic_text(panic.as_ref())));
        theirs.commands.close();
        *theirs.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end.clone());
        theirs.events.finish(Event::Ended(end));
    })?;
    Ok(Handle { shared, thread: Mutex::new(Some(thread)), facts })
}

fn run<M: Machine>(mut core: Core<M>, shared: &Shared) -> End {
    let mut commands = VecDeque::new();
    let mut events = Vec::new();
    let mut end = None;
    let mut leave_by = None;
    loop {
        let now = Instant::now();
        shared.commands.take(&mut commands);
        if leave_by.is_none() && commands.back() == Some(&Command::Quit) {
            leave_by = Some(now + LEAVING);
        }
        core.turn(now, &mut commands, &mut events);
        // Kept for the very end: whoever reads it may end the process.
        if let Some(Event::Ended(_)) = events.last()
            && let Some(Event::Ended(why)) = events.pop()
        {
            end = Some(why);
        }
        shared.events.publish(&mut events);
        if core.is_done(now) {
            return end.unwrap_or(End::Quit);
        }
        if leave_by.is_some_and(|by| now >= by) {
            return end.unwrap_or(End::Quit);
        }
        if let Err(error) = core.wait(now, leave_by) {
            return end.unwrap_or_else(|| End::Fault(format!("cannot wait for sockets: {error}")));
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the network thread panicked: {}", text.unwrap_or("no message"))
}
