//! Waiting: for sockets, for a wake-up from another thread, for an instant.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::{Events, Interest, Poll, Token, Waker};
use seam::SocketId;

use crate::UdpSocket;

/// Sockets with this number and higher ones have no place in [`Ready`]; [`Poller::ready_beyond`] names them.
pub const FIRST_BEYOND: u16 = 32;

const WAKE: Token = Token(usize::MAX);

/// One thread's wait.
pub struct Poller {
    poll: Poll,
    events: Events,
    wake: Wake,
}

/// Ends a [`Poller::wait`] from any thread. Cheap to clone, and cheap to call often: one system call per wait, not per
/// wake-up.
#[derive(Clone)]
pub struct Wake {
    inner: Arc<Inner>,
}

struct Inner {
    waker: Waker,
    pending: AtomicBool,
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    readable: u32,
    writable: u32,
    /// [`Wake::wake`] was called.
    pub woken: bool,
}

impl Ready {
    /// Datagrams wait at this socket.
    #[must_use]
    pub fn readable(&self, id: SocketId) -> bool {
        self.readable & bit(id) != 0
    }

    /// The kernel takes datagrams of this socket again.
    #[must_use]
    pub fn writable(&self, id: SocketId) -> bool {
        self.writable & bit(id) != 0
    }
}

impl Wake {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // Whoever set the flag first does the system call; the poller clears it before its owner looks for news.
        if !self.inner.pending.swap(true, Ordering::AcqRel) && self.inner.waker.wake().is_err() {
            self.inner.pending.store(false, Ordering::Release);
        }
    }
}

impl Poller {
    /// A wait with nothing in it.
    ///
    /// # Errors
    /// The operating system is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let wake = Wake { inner: Arc::new(Inner { waker, pending: AtomicBool::new(false) }) };
        Ok(Self { poll, events: Events::with_capacity(64), wake })
    }

    /// The handle other threads end the wait with.
    #[must_use]
    pub fn wake(&self) -> Wake {
        self.wake.clone()
    }

    /// Waits for datagrams at `socket` from now on.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn add(&mut self, socket: &mut UdpSocket) -> io::Result<()> {
        let token = token(socket.id());
        self.poll.registry().register(&mut socket.io, token, Interest::READABLE)
    }

    /// Whether to wait for room in the send buffer of `socket` too. Off in ordinary times, when every sent datagram
    /// would be a wake-up.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn want_writable(&mut self, socket: &mut UdpSocket, want: bool) -> io::Result<()> {
        let interest = if want { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = token(socket.id());
        self.poll.registry().reregister(&mut socket.io, token, interest)
    }

    /// The sockets from [`FIRST_BEYOND`] on at which datagrams waited when the last wait ended. When many are ready, some are
    /// named by the next wait.
    pub fn ready_beyond(&self) -> impl Iterator<Item = SocketId> {
        let readable = self.events.iter().filter(|event| event.is_readable() || event.is_error());
        readable
            .filter_map(|event| u16::try_from(event.token().0).ok())
            .filter(|number| *number >= FIRST_BEYOND)
            .map(SocketId)
    }

    /// Waits until something is ready or `until` has come (at once when it is past; for ever when it is `None`). Never
    /// ends early, and at most about a millisecond late on an idle machine.
    ///
    /// # Errors
    /// What the system says of the wait itself. A signal ends the wait with nothing ready.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let timeout = until.map(|instant| instant.saturating_duration_since(Instant::now()));
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Ready::default()),
            Err(error) => return Err(error),
        }
        let mut ready = Ready::default();
        for event in &self.events {
            if event.token() == WAKE {
                self.wake.inner.pending.store(false, Ordering::Release);
                ready.woken = true;
                continue;
            }
            let mask = u32::try_from(event.token().0).ok().and_then(|shift| 1_u32.checked_shl(shift)).unwrap_or(0);
            if event.is_readable() || event.is_error() {
                ready.readable |= mask;
            }
            if event.is_writable() {
                ready.writable |= mask;
            }
        }
        Ok(ready)
    }
}

fn bit(id: SocketId) -> u32 {
    1_u32.checked_shl(u32::from(id.0)).unwrap_or(0)
}

fn token(id: SocketId) -> Token {
    Token(usize::from(id.0))
}
