//! Disks and byte streams of transfers, beside the network thread.
//!
//! Every transfer has a [`files::Worker`] of its own, every dialled stream a thread for as long as it is spoken on, and the
//! port at which others fetch files a thread per address family. Whoever connects there is listened to for 5 s at most,
//! [`GREETINGS`] at a time; what comes beyond is closed. Nothing here ever holds up the network thread.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use net::Wake;
use seam::{ACCEPTED, StreamAsk, StreamEnd, StreamId, Until};
use session::{Answer, Ask, Did, Job, TransferId};

/// Strangers listened to at once.
const GREETINGS: usize = 32;
/// A stream that says nothing for so long, when something is to be read, is given up: longer than the wait at a pipe.
const SILENT: Duration = Duration::from_secs(60);
/// How long an ending driver waits for disks to put in order what they hold.
const TIDY: Duration = Duration::from_millis(500);

/// What threads tell.
enum Came {
    Did(Did),
    Greeted {
        stream: TcpStream,
        remote: SocketAddr,
        line: Vec<u8>,
    },
    /// A worker has put everything in order.
    Tidied,
}

type Back = Sender<Came>;

/// The transfers of one session.
pub(crate) struct Jobs {
    folder: PathBuf,
    back: Back,
    came: Receiver<Came>,
    wake: Wake,
    benches: BTreeMap<TransferId, Bench>,
    streams: BTreeMap<StreamId, Stream>,
    /// Workers that are being put away: another writes into the folder only when they are.
    tidying: usize,
    accepted: u64,
    port: Option<Listening>,
}

/// One transfer: its worker, and what it is asked when it has room.
struct Bench {
    worker: Option<files::Worker>,
    waiting: VecDeque<Ask>,
}

/// One stream.
struct Stream {
    handle: Arc<Mutex<Option<TcpStream>>>,
    /// Its thread's work, where it has a thread.
    asks: Option<Sender<StreamAsk>>,
    reading: bool,
}

impl Jobs {
    /// Received files go to `folder`; `listeners` is where others fetch them.
    pub(crate) fn new(folder: PathBuf, listeners: Vec<TcpListener>, wake: Wake) -> Self {
        let (back, came) = channel();
        let port = (!listeners.is_empty()).then(|| Listening::start(listeners, &back, &wake));
        Self {
            folder,
            back,
            came,
            wake,
            benches: BTreeMap::new(),
            streams: BTreeMap::new(),
            tidying: 0,
            accepted: 0,
            port,
        }
    }

    /// Does, or begins to do, what is asked.
    pub(crate) fn submit(&mut self, job: Job) {
        match job {
            Job::Disk { transfer, ask } => {
                let bench =
                    self.benches.entry(transfer).or_insert_with(|| Bench { worker: None, waiting: VecDeque::new() });
                bench.waiting.push_back(ask);
                self.feed();
            }
            Job::Over(transfer) => {
                self.feed();
                if let Some(bench) = self.benches.remove(&transfer) {
                    self.put_away(bench);
                }
            }
            Job::Stream(ask) => self.stream(ask),
            _ => {}
        }
    }

    /// What became of it.
    pub(crate) fn poll(&mut self) -> Option<Did> {
        loop {
            let Ok(came) = self.came.try_recv() else { return None };
            match came {
                Came::Did(did) => {
                    match &did {
                        Did::Disk { .. } => self.feed(),
                        Did::Closed(stream, _) => {
                            self.streams.remove(stream);
                        }
                        Did::Bytes(stream, _) => {
                            if let Some(stream) = self.streams.get_mut(stream) {
                                stream.reading = false;
                            }
                        }
                        _ => {}
                    }
                    return Some(did);
                }
                Came::Greeted { stream, remote, line } => {
                    let id = StreamId(ACCEPTED + self.accepted);
                    self.accepted += 1;
                    let handle = Arc::new(Mutex::new(Some(stream)));
                    self.streams.insert(id, Stream { handle, asks: None, reading: false });
                    return Some(Did::Greeted { stream: id, remote, line });
                }
                Came::Tidied => {
                    self.tidying = self.tidying.saturating_sub(1);
                    self.feed();
                }
            }
        }
    }

    /// Gives workers what waits for them.
    fn feed(&mut self) {
        if self.tidying > 0 {
            return;
        }
        for (transfer, bench) in &mut self.benches {
            while let Some(ask) = bench.waiting.pop_front() {
                let worker = bench.worker.get_or_insert_with(|| {
                    let (back, wake, transfer) = (self.back.clone(), self.wake.clone(), *transfer);
                    files::Worker::new(&self.folder, move |answer: Answer| {
                        if back.send(Came::Did(Did::Disk { transfer, answer })).is_ok() {
                            wake.wake();
                        }
                    })
                });
                if let Ask::SendFile { stream, .. } | Ask::ReceiveFile { stream } = &ask
                    && let Some(own) = self.streams.remove(stream).and_then(|own| lock(&own.handle).take())
                {
                    worker.give(*stream, own);
                }
                if let Err(ask) = worker.ask(ask) {
                    bench.waiting.push_front(ask);
                    break;
                }
            }
        }
    }

    /// A worker is waited for on a thread of its own: it may be in the middle of a large file.
    fn put_away(&mut self, bench: Bench) {
        let Some(worker) = bench.worker else { return };
        let (back, wake) = (self.back.clone(), self.wake.clone());
        let away = move || {
            // Whatever found no room at the worker, few words at most, was not worth waiting for.
            drop(worker);
            if back.send(Came::Tidied).is_ok() {
                wake.wake();
            }
        };
        if thread::Builder::new().name("anywire-tidy".to_owned()).spawn(away).is_ok() {
            self.tidying += 1;
        }
    }

    fn stream(&mut self, ask: StreamAsk) {
        let id = match &ask {
            StreamAsk::Dial { stream, .. }
            | StreamAsk::Read { stream, .. }
            | StreamAsk::Write { stream, .. }
            | StreamAsk::Close { stream } => *stream,
            _ => return,
        };
        if let StreamAsk::Close { .. } = ask {
            if let Some(stream) = self.streams.remove(&id) {
                close(&stream, ask);
            }
            return;
        }
        let stream =
            self.streams.entry(id).or_insert_with(|| Stream { handle: Arc::default(), asks: None, reading: false });
        stream.reading = matches!(ask, StreamAsk::Read { .. });
        if stream.asks.is_none() {
            let (asks, work) = channel();
            let (handle, back, wake) = (Arc::clone(&stream.handle), self.back.clone(), self.wake.clone());
            let talk = move || {
                let tell = |did| {
                    if back.send(Came::Did(did)).is_ok() {
                        wake.wake();
                    }
                };
                if let Err(why) = talk(id, &handle, &work, &tell) {
                    tell(Did::Closed(id, why));
                }
            };
            if thread::Builder::new().name("anywire-stream".to_owned()).spawn(talk).is_ok() {
                stream.asks = Some(asks);
            }
        }
        let sent = stream.asks.as_ref().is_some_and(|asks| asks.send(ask).is_ok());
        if !sent && self.back.send(Came::Did(Did::Closed(id, StreamEnd::Broken))).is_ok() {
            self.wake.wake();
        }
    }
}

impl Drop for Jobs {
    /// Disks put in order what they hold, as far as that is done in no time.
    fn drop(&mut self) {
        self.port = None;
        for (_, stream) in std::mem::take(&mut self.streams) {
            close(&stream, StreamAsk::Close { stream: StreamId(0) });
        }
        for (_, bench) in std::mem::take(&mut self.benches) {
            self.put_away(bench);
        }
        let until = Instant::now() + TIDY;
        while self.tidying > 0
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            match self.came.recv_timeout(left) {
                Ok(Came::Tidied) => self.tidying -= 1,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

/// Closes a stream after what was written to it.
fn close(stream: &Stream, ask: StreamAsk) {
    let told = stream.asks.as_ref().is_some_and(|asks| asks.send(ask).is_ok());
    if (!told || stream.reading)
        && let Some(own) = lock(&stream.handle).take()
    {
        let _gone = own.shutdown(Shutdown::Both);
    }
}

/// Speaks on one stream until it is closed or given to somebody else.
fn talk(
    id: StreamId,
    handle: &Mutex<Option<TcpStream>>,
    work: &Receiver<StreamAsk>,
    tell: &dyn Fn(Did),
) -> Result<(), StreamEnd> {
    let broken = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => StreamEnd::TimedOut,
        io::ErrorKind::UnexpectedEof => StreamEnd::Closed,
        _ => StreamEnd::Broken,
    };
    let mut own = lock(handle).as_ref().and_then(|stream| stream.try_clone().ok());
    while let Ok(ask) = work.recv() {
        match (ask, &mut own) {
            (StreamAsk::Dial { remote, from, timeout, .. }, _) => {
                let stream = files::dial(remote, from, timeout)?;
                stream.set_read_timeout(Some(SILENT)).map_err(broken)?;
                stream.set_write_timeout(Some(SILENT)).map_err(broken)?;
                *lock(handle) = Some(stream.try_clone().map_err(broken)?);
                own = Some(stream);
                tell(Did::Connected(id));
            }
            (StreamAsk::Write { bytes, .. }, Some(stream)) => stream.write_all(&bytes).map_err(broken)?,
            (StreamAsk::Read { until, .. }, Some(stream)) => {
                let bytes = read(stream, until).map_err(broken)?;
                tell(Did::Bytes(id, bytes));
            }
            (StreamAsk::Close { .. }, own) => {
                if let Some(stream) = own {
                    let _gone = stream.shutdown(Shutdown::Both);
                }
                return Ok(());
            }
            _ => return Err(StreamEnd::Broken),
        }
    }
    Ok(())
}

/// Reads so much and not a byte more: what follows is somebody else's.
fn read(stream: &mut TcpStream, until: Until) -> io::Result<Vec<u8>> {
    match until {
        Until::Bytes(len) => {
            let mut bytes = vec![0; len];
            stream.read_exact(&mut bytes)?;
            Ok(bytes)
        }
        Until::Line(most) => {
            let (mut line, mut byte) = (Vec::new(), [0]);
            while line.len() < most && line.last() != Some(&b'\n') {
                stream.read_exact(&mut byte)?;
                line.extend_from_slice(&byte);
            }
            Ok(line)
        }
    }
}

/// The port at which others fetch files.
struct Listening {
    at: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Listening {
    fn start(listeners: Vec<TcpListener>, back: &Back, wake: &Wake) -> Self {
        let (stop, busy) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let at = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let threads = listeners.into_iter().filter_map(|listener| {
            let (stop, busy, back, wake) = (Arc::clone(&stop), Arc::clone(&busy), back.clone(), wake.clone());
            let accept = move || {
                while let Ok((stream, remote)) = listener.accept() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    greet(stream, remote, &busy, &back, &wake);
                }
            };
            thread::Builder::new().name("anywire-accept".to_owned()).spawn(accept).ok()
        });
        Self { at, threads: threads.collect(), stop }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for at in &self.at {
            // A thread that waits for somebody is woken by somebody.
            let ip = match at.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            let _woken = TcpStream::connect_timeout(&SocketAddr::new(ip, at.port()), TIDY);
        }
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// Listens to what a stranger says first.
fn greet(mut stream: TcpStream, remote: SocketAddr, busy: &Arc<AtomicUsize>, back: &Back, wake: &Wake) {
    if busy.fetch_add(1, Ordering::Relaxed) >= GREETINGS {
        busy.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (theirs, back, wake) = (Arc::clone(busy), back.clone(), wake.clone());
    let listen = move || {
        let line = files::greeting(&mut stream);
        theirs.fetch_sub(1, Ordering::Relaxed);
        if let Some(line) = line
            && back.send(Came::Greeted { stream, remote, line }).is_ok()
        {
            wake.wake();
        }
    };
    if thread::Builder::new().name("anywire-greet".to_owned()).spawn(listen).is_err() {
        busy.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
