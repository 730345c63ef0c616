//! The tunnel: datagrams over one HTTP connection that was upgraded, on a thread of its own.
//!
//! At most [`QUEUE`] datagrams and [`QUEUE_BYTES`] wait to be sent, the oldest is dropped for the next, as a full socket
//! would; at most [`QUEUE`] wait to be taken, and then the connection stands still. The thread ends with the connection,
//! and within a moment of being told to; only a lookup or a connect under way may hold it for as long as its time out.

mod line;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mio::{Events, Interest, Poll, Token, Waker};
use net::Wake;
use seam::{Path, Reply, Request, RequestId, SocketId};

use line::{Arrived, Line};

/// Datagrams that wait, each way.
const QUEUE: usize = 1024;
/// Bytes that wait to be sent.
const QUEUE_BYTES: usize = 1 << 20;
/// Longest datagram; a longer one ends the stream, at the other end as well.
const DATAGRAM_MAX: usize = 9216;
/// Bytes made ready for the connection at once: what waits behind them may still be dropped.
const READY: usize = 16 << 10;
/// Between two looks at whether anybody still wants it, while the reader of datagrams is behind.
const PAUSE: Duration = Duration::from_millis(2);

const WAKE: Token = Token(0);
const STREAM: Token = Token(1);

/// What a tunnel has to tell.
#[derive(Debug)]
pub(crate) enum Came {
    /// The request is answered.
    Reply(RequestId, Reply),
    /// A datagram came.
    Datagram(Path, BytesMut),
}

/// The one tunnel of a driver.
pub(crate) struct Tunnels {
    wake: Wake,
    current: Option<Current>,
    /// Of a tunnel that could not even be begun.
    failed: Option<(RequestId, String)>,
}

struct Current {
    id: RequestId,
    socket: SocketId,
    shared: Arc<Shared>,
    events: Receiver<Told>,
}

enum Told {
    Open,
    Datagram(SocketAddr, BytesMut),
    Over(String),
}

/// What both threads hold.
struct Shared {
    out: Mutex<VecDeque<Vec<u8>>>,
    /// Bytes that are not with the kernel yet.
    unsent: AtomicUsize,
    /// The driver waits for `unsent` to be 0.
    ending: AtomicBool,
    over: AtomicBool,
    waker: Waker,
}

impl Drop for Current {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // The thread also sees that nobody takes what it tells.
        let _woken = self.shared.waker.wake();
    }
}

impl Tunnels {
    pub(crate) fn new(wake: Wake) -> Self {
        Self { wake, current: None, failed: None }
    }

    /// Carries out [`Request::OpenTunnel`] and [`Request::CloseTunnel`]; gives back every other request.
    pub(crate) fn submit(&mut self, id: RequestId, request: Request) -> Option<Request> {
        match request {
            Request::OpenTunnel { socket, url, protocol, timeout } => {
                self.current = None;
                match self.open(id, socket, &url, protocol, timeout) {
                    Ok(current) => self.current = Some(current),
                    Err(error) => {
                        self.failed = Some((id, error.to_string()));
                        self.wake.wake();
                    }
                }
                None
            }
            Request::CloseTunnel => {
                self.current = None;
                None
            }
            other => Some(other),
        }
    }

    fn open(
        &self,
        id: RequestId,
        socket: SocketId,
        url: &str,
        protocol: &'static str,
        timeout: Duration,
    ) -> io::Result<Current> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let shared = Arc::new(Shared {
            out: Mutex::default(),
            unsent: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            over: AtomicBool::new(false),
            waker,
        });
        let (tell, events) = sync_channel(QUEUE);
        let worker = Worker { shared: Arc::clone(&shared), tell, wake: self.wake.clone(), poll };
        let url = url.to_owned();
        thread::Builder::new()
            .name("anywire-tunnel".to_owned())
            .spawn(move || worker.run(&url, protocol, Instant::now() + timeout))?;
        Ok(Current { id, socket, shared, events })
    }

    /// The next thing it has to tell.
    pub(crate) fn poll(&mut self) -> Option<Came> {
        if let Some((id, why)) = self.failed.take() {
            return Some(Came::Reply(id, Reply::Unreachable(why)));
        }
        let current = self.current.as_ref()?;
        Some(match current.events.try_recv().ok()? {
            Told::Open => Came::Reply(current.id, Reply::TunnelOpen),
            Told::Datagram(from, data) => Came::Datagram(Path::new(current.socket, from), data),
            Told::Over(why) => {
                let id = current.id;
                self.current = None;
                Came::Reply(id, Reply::Unreachable(why))
            }
        })
    }

    /// Whether datagrams to `socket` are the tunnel's.
    pub(crate) fn is_at(&self, socket: SocketId) -> bool {
        self.current.as_ref().is_some_and(|current| current.socket == socket)
    }

    /// Takes one datagram.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        let Some(current) = &self.current else { return };
        let mut bytes = vec![0; len];
        let used = fill(&mut bytes);
        bytes.truncate(used);
        if used > 0 && used <= DATAGRAM_MAX {
            current.shared.push(bytes);
        }
    }

    /// Lets the thread send what was taken.
    pub(crate) fn flush(&self) {
        if let Some(current) = &self.current
            && !current.shared.queue().is_empty()
        {
            let _woken = current.shared.waker.wake();
        }
    }

    /// Everything that was taken is with the kernel. Asked at the end: whoever is answered no is woken when it is so.
    pub(crate) fn is_drained(&self) -> bool {
        let Some(Current { shared, .. }) = &self.current else { return true };
        shared.ending.store(true, Ordering::Release);
        shared.unsent.load(Ordering::Acquire) == 0
    }
}

impl Shared {
    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, datagram: Vec<u8>) {
        let mut queue = self.queue();
        self.unsent.fetch_add(datagram.len(), Ordering::AcqRel);
        queue.push_back(datagram);
        while queue.len() > QUEUE || self.unsent.load(Ordering::Acquire) > QUEUE_BYTES {
            let Some(oldest) = queue.pop_front() else { return };
            self.unsent.fetch_sub(oldest.len(), Ordering::AcqRel);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// The tunnel's thread.
struct Worker {
    shared: Arc<Shared>,
    tell: SyncSender<Told>,
    wake: Wake,
    poll: Poll,
}

impl Worker {
    fn run(mut self, url: &str, protocol: &str, until: Instant) {
        let result = line::open(url, protocol, until, &|| self.shared.is_over()).and_then(|line| self.carry(line));
        if let Err(why) = result {
            self.tell(Told::Over(why));
        }
    }

    /// Waits for room where the reader is behind. False when nobody reads any more.
    fn tell(&self, mut told: Told) -> bool {
        loop {
            match self.tell.try_send(told) {
                Ok(()) => {
                    self.wake.wake();
                    return true;
                }
                Err(TrySendError::Full(back)) if !self.shared.is_over() => told = back,
                Err(_) => return false,
            }
            self.wake.wake();
            thread::sleep(PAUSE);
        }
    }

    fn carry(&mut self, mut line: Line) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut line.stream, STREAM, interest).map_err(text)?;
        let from = line.stream.peer_addr().unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        if !self.tell(Told::Open) {
            return Ok(());
        }
        let mut events = Events::with_capacity(8);
        let mut inward = BytesMut::new();
        // Bytes of datagrams that the line holds and the kernel does not.
        let mut held = 0;
        loop {
            loop {
                if line.is_flushed() {
                    self.shared.unsent.fetch_sub(held, Ordering::AcqRel);
                    if held > 0 && self.shared.ending.load(Ordering::Acquire) {
                        self.wake.wake();
                    }
                    held = self.load(&mut line);
                    if held == 0 {
                        break;
                    }
                }
                if !line.write().map_err(text)? {
                    break;
                }
            }
            if self.shared.is_over() {
                return Ok(());
            }
            loop {
                match line.read(&mut inward).map_err(text)? {
                    Arrived::Nothing => break,
                    Arrived::End => return Err("the master closed the connection".to_owned()),
                    Arrived::Some => {}
                }
                while let Some(datagram) = next(&mut inward)? {
                    if !self.tell(Told::Datagram(from, datagram)) {
                        return Ok(());
                    }
                }
            }
            // What arrives of TLS may have made something to write, for which no edge comes.
            if line.is_flushed() || !line.write().map_err(text)? {
                match self.poll.poll(&mut events, None) {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.to_string()),
                    Ok(()) | Err(_) => {}
                }
            }
        }
    }

    /// Gives the line as much as it should hold; how many bytes of datagrams that is.
    fn load(&self, line: &mut Line) -> usize {
        let (mut held, mut queue) = (0, self.shared.queue());
        while held < READY
            && let Some(datagram) = queue.pop_front()
        {
            held += datagram.len();
            if let Ok(len) = u16::try_from(datagram.len()) {
                line.put(&len.to_be_bytes());
                line.put(&datagram);
            }
        }
        held
    }
}

/// The next whole datagram.
fn next(inward: &mut BytesMut) -> Result<Option<BytesMut>, String> {
    let Some([high, low]) = inward.first_chunk::<2>().copied() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > DATAGRAM_MAX {
        return Err(format!("a datagram of {len} bytes is over {DATAGRAM_MAX}"));
    }
    if inward.len() < 2 + len {
        return Ok(None);
    }
    let mut datagram = inward.split_to(2 + len);
    Ok(Some(datagram.split_off(2)))
}

/// Whether a server lets a connection become a stream of datagrams: asks it to, and hangs up. Blocks for up to `timeout`.
///
/// # Errors
/// Why it does not, in words.
pub fn try_tunnel(url: &str, protocol: &str, timeout: Duration) -> Result<(), String> {
    line::open(url, protocol, Instant::now() + timeout, &|| false).map(drop)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]
mod tests;
