//! Byte streams that carry whole files.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parcel::Answer;
use seam::{StreamEnd, StreamId};
use socket2::{Domain, Protocol, Socket, Type};

use crate::hashes::Sha;
use crate::source::Source;
use crate::target::Target;

/// Time for a greeting to come whole.
pub const GREETING_FOR: Duration = Duration::from_secs(5);
/// Longest greeting, its line feed included.
const GREETING_MAX: usize = 256;
/// A buffer between socket and disk, and how many there are.
const BUFFER: usize = 1 << 20;
const BUFFERS: usize = 8;
/// Between two words of how far a stream is.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// Nothing moves for so long: broken.
const STILL: Duration = Duration::from_secs(30);
const BACKLOG: i32 = 64;

/// Listens at `port` on IPv4 and, where this machine has it, on IPv6 alone; port 0 takes one the system chooses, the same
/// for both. The port may be shared with outgoing connections of this program (pain 90).
///
/// # Errors
/// Why IPv4 cannot be listened at.
pub fn listen(port: u16) -> io::Result<Vec<TcpListener>> {
    let first = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    first.listen(BACKLOG)?;
    let first = TcpListener::from(first);
    let port = first.local_addr()?.port();
    let second = bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let second = second.and_then(|socket| socket.listen(BACKLOG).map(|()| TcpListener::from(socket)));
    Ok(std::iter::once(first).chain(second).collect())
}

/// Listens at one address alone, as [`listen`] does at all of them.
///
/// # Errors
/// Why not.
pub fn listen_at(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind(at)?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from(socket))
}

fn bind(at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Connects within `timeout`, from the own port `from` where the system allows that and else from any.
///
/// # Errors
/// [`StreamEnd::Refused`], [`StreamEnd::TimedOut`], or [`StreamEnd::Broken`] for anything else.
pub fn dial(remote: SocketAddr, from: Option<u16>, timeout: Duration) -> Result<TcpStream, StreamEnd> {
    let any = match remote.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let own = from.and_then(|port| bind(SocketAddr::new(any, port)).ok());
    let socket = match own {
        Some(socket) => socket,
        None => Socket::new(Domain::for_address(remote), Type::STREAM, Some(Protocol::TCP)).map_err(|e| end(&e))?,
    };
    socket.connect_timeout(&remote.into(), timeout).map_err(|error| end(&error))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).map_err(|error| end(&error))?;
    Ok(stream)
}

fn end(error: &io::Error) -> StreamEnd {
    match error.kind() {
        ErrorKind::ConnectionRefused => StreamEnd::Refused,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => StreamEnd::TimedOut,
        _ => StreamEnd::Broken,
    }
}

/// Reads the line a stranger says first, and not a byte behind it (pain 92). `None` when it does not come within
/// [`GREETING_FOR`] or is longer than 256 bytes.
pub fn greeting(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let until = Instant::now() + GREETING_FOR;
    let mut line = Vec::new();
    let mut seen = [0; GREETING_MAX];
    while line.len() < GREETING_MAX {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        let got = stream.peek(seen.get_mut(..GREETING_MAX - line.len())?).ok().filter(|got| *got > 0)?;
        let part = seen.get(..got)?;
        let take = part.iter().position(|byte| *byte == b'\n').map_or(got, |place| place + 1);
        let mut taken = vec![0; take];
        stream.read_exact(&mut taken).ok()?;
        line.extend_from_slice(&taken);
        if line.last() == Some(&b'\n') {
            stream.set_read_timeout(None).ok()?;
            return Some(line);
        }
    }
    None
}

/// Writes `first` and the whole files, and closes.
pub(crate) fn send(
    stream: TcpStream,
    id: StreamId,
    first: &'static [u8],
    source: &Source,
    stop: &AtomicBool,
    tell: &(dyn Fn(Answer) + Send + Sync),
) {
    let mut sent = 0;
    let result = pour(stream, first, source, stop, &mut |upto| {
        sent = upto;
        tell(Answer::Sent { stream: id, upto });
    });
    match result {
        Ok(()) => tell(Answer::StreamOver { stream: id, upto: source.total(), why: StreamEnd::Closed }),
        Err(Trouble::Disk(fault)) => tell(Answer::Failed(fault)),
        Err(Trouble::Stream) => tell(Answer::StreamOver { stream: id, upto: sent, why: StreamEnd::Broken }),
    }
}

enum Trouble {
    Disk(parcel::Fault),
    Stream,
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Self::Stream
    }
}

impl From<parcel::Fault> for Trouble {
    fn from(fault: parcel::Fault) -> Self {
        Self::Disk(fault)
    }
}

fn pour(
    mut stream: TcpStream,
    first: &[u8],
    source: &Source,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(u64),
) -> Result<(), Trouble> {
    stream.set_write_timeout(Some(STILL))?;
    stream.write_all(first)?;
    let (total, mut at) = (source.total(), 0u64);
    let mut buffer = vec![0; BUFFER];
    let mut told = Instant::now();
    while at < total {
        if stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stream);
        }
        let len = usize::try_from(total - at).unwrap_or(usize::MAX).min(BUFFER);
        let Some(part) = buffer.get_mut(..len) else { break };
        source.read(at, part)?;
        stream.write_all(part)?;
        at += u64::try_from(len).unwrap_or_default();
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            tell(at);
        }
    }
    tell(at);
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(())
}

/// Takes the whole files out of a stream. Their hashes are `hashed` before the end is told: none when not all came.
pub(crate) fn receive(
    mut stream: TcpStream,
    id: StreamId,
    target: &Arc<Target>,
    stop: &AtomicBool,
    tell: &Arc<dyn Fn(Answer) + Send + Sync>,
    hashed: &dyn Fn(Option<Answer>),
) {
    let _ = stream.set_read_timeout(Some(STILL));
    let (full, filled) = sync_channel::<(Vec<u8>, usize)>(BUFFERS);
    let (empty, emptied) = sync_channel::<Vec<u8>>(BUFFERS * 2);
    for _ in 0..BUFFERS {
        let _ = empty.send(vec![0; BUFFER]);
    }
    let written = Arc::new(AtomicU64::new(0));
    let keeper = {
        let (target, tell, written) = (Arc::clone(target), Arc::clone(tell), Arc::clone(&written));
        thread::spawn(move || keep(&target, id, &filled, &empty, &written, &*tell))
    };
    let total = target.total();
    let (mut read, mut why) = (0u64, StreamEnd::Broken);
    while !stop.load(Ordering::Relaxed) {
        if read == total {
            why = StreamEnd::Closed;
            break;
        }
        let Ok(mut buffer) = emptied.recv() else { break };
        let want = usize::try_from(total - read).unwrap_or(usize::MAX).min(buffer.len());
        match fill(&mut stream, &mut buffer, want) {
            0 => break,
            got => {
                read += u64::try_from(got).unwrap_or_default();
                if full.send((buffer, got)).is_err() {
                    break;
                }
            }
        }
    }
    drop(full);
    hashed(keeper.join().ok().flatten());
    let upto = written.load(Ordering::Relaxed);
    tell(Answer::StreamOver { stream: id, upto, why });
}

/// Fills a buffer as far as bytes come without a wait of their own.
fn fill(stream: &mut TcpStream, buffer: &mut [u8], want: usize) -> usize {
    let mut got = 0;
    while got < want {
        let Some(rest) = buffer.get_mut(got..want) else { break };
        match stream.read(rest) {
            Ok(0) | Err(_) => break,
            Ok(read) => got += read,
        }
        // Small pieces are passed on when half a buffer is there, so that progress shows.
        if got >= want / 2 {
            break;
        }
    }
    got
}

/// Writes buffers to the disk while another thread hashes them.
fn keep(
    target: &Target,
    id: StreamId,
    filled: &Receiver<(Vec<u8>, usize)>,
    empty: &SyncSender<Vec<u8>>,
    written: &AtomicU64,
    tell: &(dyn Fn(Answer) + Send + Sync),
) -> Option<Answer> {
    let (hash, hashing) = sync_channel::<(Vec<u8>, usize)>(BUFFERS);
    let sizes = target.sizes().to_vec();
    let empty = empty.clone();
    let hasher = thread::spawn(move || {
        let mut sha = Sha::new(&sizes);
        for (buffer, len) in hashing {
            sha.update(buffer.get(..len).unwrap_or_default());
            let _ = empty.try_send(buffer);
        }
        sha.finish()
    });
    let mut at = 0;
    let mut told = Instant::now();
    for (buffer, len) in filled {
        if let Err(fault) = target.write(at, buffer.get(..len).unwrap_or_default()) {
            tell(Answer::Failed(fault));
            break;
        }
        at += u64::try_from(len).unwrap_or_default();
        written.store(at, Ordering::Relaxed);
        // The end is told with the hashes, by whoever waits for this thread.
        if told.elapsed() >= TELL_EVERY && at < target.total() {
            told = Instant::now();
            tell(Answer::Arrived { stream: id, upto: at });
        }
        if hash.send((buffer, len)).is_err() {
            break;
        }
    }
    drop(hash);
    let (files, sha256) = hasher.join().ok().flatten()?;
    Some(Answer::Hashed { files, sha256 })
}
