//! One session, as an application holds it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nethernet::NetworkId;
use nethernet::frame::Channel;
use nethernet::session::{self, SessionId};

use crate::error::{CloseInfo, SendError};
use crate::state::{Shared, State};

/// An open session. Dropping it closes it in order: what was sent still arrives, as long as its node lives.
pub struct Session {
    shared: Arc<Shared>,
    id: SessionId,
    peer: NetworkId,
    identity: Option<String>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, id: SessionId, peer: NetworkId, identity: Option<String>) -> Self {
        Self { shared, id, peer, identity }
    }

    /// Which.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// With whom.
    #[must_use]
    pub fn peer(&self) -> &NetworkId {
        &self.peer
    }

    /// The value of `a=identity` in the other side's description.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Sends a packet, waiting for room.
    ///
    /// # Errors
    /// [`SendError::Closed`] or [`SendError::Frame`].
    pub fn send(&self, channel: Channel, packet: Bytes) -> Result<(), SendError> {
        let sent = self.shared.wait(None, |state| match self.put(state, channel, packet.clone()) {
            Err(SendError::WouldBlock) => None,
            other => Some(other),
        });
        self.shared.wake.wake();
        sent.unwrap_or_else(|| Err(SendError::Closed(self.lost())))
    }

    /// Sends a packet if there is room.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    pub fn try_send(&self, channel: Channel, packet: Bytes) -> Result<(), SendError> {
        let sent = self.put(&mut self.shared.lock(), channel, packet);
        self.shared.wake.wake();
        sent
    }

    fn put(&self, state: &mut State, channel: Channel, packet: Bytes) -> Result<(), SendError> {
        if let Some(info) = state.sessions.get(&self.id).and_then(|known| known.closed) {
            return Err(SendError::Closed(info));
        }
        state.endpoint.send(Instant::now(), self.id, channel, packet).map_err(|error| match error {
            session::SendError::WouldBlock => SendError::WouldBlock,
            session::SendError::Frame(error) => SendError::Frame(error),
            // It is being closed; the event that says so comes with the next turn.
            _ => SendError::Closed(self.lost()),
        })
    }

    /// The next packet, waiting for it. `None` when the other side has closed the session in order.
    ///
    /// # Errors
    /// [`CloseInfo`]: the session ended in another way. Packets that arrived before were handed out before.
    pub fn recv(&self) -> Result<Option<(Channel, Bytes)>, CloseInfo> {
        self.take(None).unwrap_or(Ok(None))
    }

    /// [`recv`](Self::recv), waiting for at most `patience`; then `Ok(None)` as well.
    ///
    /// # Errors
    /// [`CloseInfo`]: the session ended, in order or not.
    pub fn recv_timeout(&self, patience: Duration) -> Result<Option<(Channel, Bytes)>, CloseInfo> {
        match self.take(Some(Instant::now() + patience)) {
            Some(Ok(None)) => Err(self.ended().unwrap_or_else(|| self.lost())),
            Some(other) => other,
            None => Ok(None),
        }
    }

    /// A packet or the end; `None` when there was neither in time.
    fn take(&self, until: Option<Instant>) -> Option<Result<Option<(Channel, Bytes)>, CloseInfo>> {
        let taken = self.shared.wait(until, |state| {
            let now = Instant::now();
            if let Some(packet) = state.endpoint.recv(now, self.id) {
                return Some(Ok(Some(packet)));
            }
            if state.hear(now) {
                self.shared.changed.notify_all();
            }
            let info = state.sessions.get(&self.id)?.closed?;
            Some(if info.error == nethernet::SessionError::None { Ok(None) } else { Err(info) })
        });
        // What was read opens the window.
        self.shared.wake.wake();
        taken
    }

    /// How the session ended, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<CloseInfo> {
        self.shared.lock().sessions.get(&self.id).and_then(|known| known.closed)
    }

    /// Bytes sent and not acknowledged yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.shared.lock().endpoint.buffered(self.id)
    }

    /// Begins to close in order; [`recv`](Self::recv) tells the end.
    pub fn begin_close(&self) {
        self.shared.lock().endpoint.close(Instant::now(), self.id);
        self.shared.wake.wake();
    }

    /// Closes in order and waits until everything sent has arrived, for as long as the protocol allows.
    pub fn close(self) {
        self.begin_close();
        // The endpoint's own time out ends the wait.
        let _ended = self.shared.wait(None, |state| state.sessions.get(&self.id)?.closed);
    }

    fn lost(&self) -> CloseInfo {
        CloseInfo {
            error: nethernet::SessionError::DataChannelClosed,
            by: session::By::Local,
            stage: "the session is being closed",
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let known = state.sessions.remove(&self.id);
        if known.is_some_and(|known| known.closed.is_none()) {
            state.endpoint.close(Instant::now(), self.id);
        }
        drop(state);
        self.shared.wake.wake();
    }
}
