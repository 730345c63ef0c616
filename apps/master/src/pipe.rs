//! The TCP pipe's connections round [`rendezvous::Pipes`].

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rendezvous::{Arrival, Limits, PIPE_PAIRED, Pipes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use crate::lock;

/// `TPF2PIPE1`, 32 digits, a letter, two spaces and the newline.
const HELLO_MAX: usize = 64;
/// Connections that have not greeted yet, besides those that wait or are joined.
const GREETING_MAX: usize = 64;
const BUFFER: usize = 64 << 10;

/// Who waits, with the way to hand them their other end.
pub(crate) struct PipeServer {
    limits: Limits,
    table: Mutex<Pipes>,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<TcpStream>>>,
    next: AtomicU64,
    pub(crate) carried: AtomicU64,
}

impl PipeServer {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            table: Mutex::new(Pipes::new(limits.clone())),
            limits,
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            carried: AtomicU64::new(0),
        }
    }

    /// Connections that wait, and pairs.
    pub(crate) fn len(&self) -> (usize, usize) {
        lock(&self.table).len()
    }
}

pub(crate) async fn serve(pipes: Arc<PipeServer>, listener: TcpListener) {
    let most = pipes.limits.pipe_waiting + 2 * pipes.limits.pipe_pairs + GREETING_MAX;
    let places = Arc::new(Semaphore::new(most));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let pipes = Arc::clone(&pipes);
        tokio::spawn(async move {
            greet(&pipes, stream).await;
            drop(place);
        });
    }
}

async fn greet(pipes: &PipeServer, mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(Some(line)) = tokio::time::timeout(pipes.limits.pipe_hello, hello(&mut stream)).await else { return };
    let number = pipes.next.fetch_add(1, Ordering::Relaxed);
    let (sender, receiver) = oneshot::channel();
    // The way to this connection is known before the table says that it waits.
    lock(&pipes.waiting).insert(number, sender);
    let arrival = lock(&pipes.table).greet(Instant::now(), number, &line);
    match arrival {
        Arrival::Refused => {
            lock(&pipes.waiting).remove(&number);
        }
        Arrival::Paired(other) => {
            lock(&pipes.waiting).remove(&number);
            let other = lock(&pipes.waiting).remove(&other);
            // The one that waited carries the bytes; when it is gone already, so is the pair.
            if other.is_none_or(|other| other.send(stream).is_err()) {
                lock(&pipes.table).parted();
            }
        }
        Arrival::Waits { instead_of } => {
            if let Some(old) = instead_of {
                lock(&pipes.waiting).remove(&old);
            }
            wait(pipes, number, stream, receiver).await;
        }
    }
}

/// The greeting, byte by byte: what follows it belongs to the other end.
async fn hello(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut line = Vec::with_capacity(HELLO_MAX);
    while line.len() < HELLO_MAX {
        let byte = stream.read_u8().await.ok()?;
        line.push(byte);
        if byte == b'\n' {
            return Some(line);
        }
    }
    None
}

async fn wait(pipes: &PipeServer, number: u64, stream: TcpStream, receiver: oneshot::Receiver<TcpStream>) {
    let closed = async {
        // Bytes may come early and stay where they are; then nothing tells when the connection ends.
        let mut byte = [0];
        match stream.peek(&mut byte).await {
            Ok(0) | Err(_) => {}
            Ok(_) => std::future::pending().await,
        }
    };
    let mut receiver = receiver;
    let other = tokio::select! {
        other = &mut receiver => other.ok(),
        () = closed => None,
        () = tokio::time::sleep(pipes.limits.pipe_wait) => None,
    };
    // Its other end may have been handed over in this very moment.
    let other = other.or_else(|| {
        lock(&pipes.table).gone(number);
        lock(&pipes.waiting).remove(&number);
        receiver.try_recv().ok()
    });
    let Some(other) = other else { return };
    let _ = join(pipes, stream, other).await;
    lock(&pipes.table).parted();
}

/// Carries bytes both ways until both ends are done, or neither says anything for too long.
async fn join(pipes: &PipeServer, mut a: TcpStream, mut b: TcpStream) -> io::Result<()> {
    a.write_all(PIPE_PAIRED).await?;
    b.write_all(PIPE_PAIRED).await?;
    let (a_in, a_out) = a.into_split();
    let (b_in, b_out) = b.into_split();
    let carried = AtomicU64::new(0);
    let both = async { tokio::try_join!(carry(pipes, &carried, a_in, b_out), carry(pipes, &carried, b_in, a_out)) };
    // Idle is a pair without a byte in either direction: a file goes one way only.
    let idle = async {
        let mut before = 0;
        let mut since = Instant::now();
        loop {
            tokio::time::sleep(pipes.limits.pipe_idle / 16).await;
            let now = carried.load(Ordering::Relaxed);
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() >= pipes.limits.pipe_idle {
                return;
            }
        }
    };
    tokio::select! {
        _ = both => {}
        () = idle => {}
    }
    Ok(())
}

async fn carry(
    pipes: &PipeServer,
    carried: &AtomicU64,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut left = pipes.limits.pipe_bytes;
    loop {
        let len = from.read(&mut buffer).await?;
        let bytes = u64::try_from(len).unwrap_or(u64::MAX);
        if len == 0 {
            return to.shutdown().await;
        }
        left = left.checked_sub(bytes).ok_or(io::ErrorKind::QuotaExceeded)?;
        to.write_all(buffer.get(..len).unwrap_or_default()).await?;
        carried.fetch_add(bytes, Ordering::Relaxed);
        pipes.carried.fetch_add(bytes, Ordering::Relaxed);
    }
}
