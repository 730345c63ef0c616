//! Keys, read on a thread of their own.
//!
//! A terminal that was closed makes the reader spin on its end without ever coming back. The panel must not hang with it:
//! it is the panel's thread that sees the signal and leaves.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use crossterm::event::{self, Event};

/// Events that wait for the panel at most; further ones wait in the terminal.
const WAITING: usize = 256;

/// What a person types, in order.
pub(super) struct Keys {
    events: Receiver<io::Result<Event>>,
}

impl Keys {
    /// Begins to read. The thread ends with the terminal or with the panel's end of the channel.
    pub(super) fn listen() -> Self {
        let (sender, events) = sync_channel(WAITING);
        let reader = move || {
            loop {
                let event = event::read();
                let is_last = event.is_err();
                if sender.send(event).is_err() || is_last {
                    break;
                }
            }
        };
        // Without a thread nobody can type, but the panel still shows and signals still end it.
        let _ = std::thread::Builder::new().name("anywire-keys".to_owned()).spawn(reader);
        Self { events }
    }

    /// The next event, at most `patience` from now.
    ///
    /// # Errors
    /// What the terminal says when it is gone.
    pub(super) fn next(&self, patience: Duration) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(patience) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                // The error itself was handed over before; what is left is to wait as long as was asked.
                std::thread::sleep(patience);
                Ok(None)
            }
        }
    }
}
