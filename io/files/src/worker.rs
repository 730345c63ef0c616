//! One transfer's disk.

use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parcel::{Answer, Ask, Fault};
use seam::{StreamEnd, StreamId};

use crate::source::Source;
use crate::stream;
use crate::target::Target;

/// Asks that wait.
pub const QUEUE_MAX: usize = 64;

type Tell = Arc<dyn Fn(Answer) + Send + Sync>;
type Streams = Arc<Mutex<BTreeMap<StreamId, TcpStream>>>;

/// Carries out what one transfer asks of the disk, in order.
///
/// Dropped, it breaks the streams it serves and waits for its threads: nothing of it writes afterwards.
pub struct Worker {
    asks: Option<SyncSender<Ask>>,
    streams: Streams,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker that writes into `folder` and tells answers from threads of its own.
    #[must_use]
    pub fn new(folder: &Path, tell: impl Fn(Answer) + Send + Sync + 'static) -> Self {
        let (asks, waiting) = sync_channel(QUEUE_MAX);
        let (streams, stop) = (Streams::default(), Arc::new(AtomicBool::new(false)));
        let mut desk = Desk {
            folder: folder.to_owned(),
            tell: Arc::new(tell),
            streams: Arc::clone(&streams),
            stop: Arc::clone(&stop),
            source: None,
            target: None,
            flows: Vec::new(),
            hashed: Arc::default(),
        };
        let thread = thread::spawn(move || desk.run(&waiting));
        Self { asks: Some(asks), streams, stop, thread: Some(thread) }
    }

    /// Asks for something. Gives the ask back when [`QUEUE_MAX`] wait already: it is to be asked again later.
    ///
    /// # Errors
    /// The ask that finds no room.
    pub fn ask(&self, ask: Ask) -> Result<(), Ask> {
        let Some(asks) = &self.asks else { return Err(ask) };
        asks.try_send(ask).map_err(|error| match error {
            TrySendError::Full(ask) | TrySendError::Disconnected(ask) => ask,
        })
    }

    /// Hands over the stream that a later [`Ask::SendFile`] or [`Ask::ReceiveFile`] names. It must block.
    pub fn give(&self, id: StreamId, stream: TcpStream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(id, stream);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Desk {
    folder: PathBuf,
    tell: Tell,
    streams: Streams,
    stop: Arc<AtomicBool>,
    source: Option<Arc<Source>>,
    target: Option<Arc<Target>>,
    /// Streams under way: a handle that breaks each, and its thread.
    flows: Vec<(TcpStream, JoinHandle<()>)>,
    /// What a stream hashed on its way, as long as nothing else was written.
    hashed: Arc<Mutex<Option<Answer>>>,
}

impl Desk {
    fn run(&mut self, waiting: &Receiver<Ask>) {
        while let Ok(ask) = waiting.recv() {
            // Dropped: what is left behind is still put in order.
            if self.stop.load(Ordering::Relaxed) && !matches!(ask, Ask::Discard | Ask::Note { .. }) {
                continue;
            }
            match self.one(ask) {
                Ok(Some(answer)) => (self.tell)(answer),
                Ok(None) => {}
                Err(fault) => (self.tell)(Answer::Failed(fault)),
            }
            self.flows.retain(|(_, thread)| !thread.is_finished());
        }
        self.break_flows();
    }

    fn break_flows(&mut self) {
        for (stream, thread) in self.flows.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = thread.join();
        }
    }

    fn one(&mut self, ask: Ask) -> Result<Option<Answer>, Fault> {
        Ok(match ask {
            Ask::Measure { files } => {
                let (source, answer) = Source::measure(&files)?;
                self.source = Some(Arc::new(source));
                Some(answer)
            }
            Ask::Read { at, len } => {
                let mut data = vec![0; len];
                self.source.as_ref().ok_or(Fault::Gone)?.read(at, &mut data)?;
                Some(Answer::Data { at, data: data.into() })
            }
            Ask::Create { files, sha256 } => {
                let (target, upto) = Target::create(&self.folder, files, sha256)?;
                self.target = Some(Arc::new(target));
                Some(Answer::Created { upto })
            }
            Ask::Write { at, data } => Some(self.write(at, &data)?),
            Ask::Look { list } => Some(Answer::Found { blocks: self.target()?.look(&list)? }),
            Ask::Keep { index, at, hash, data } => {
                let good = *blake3::hash(&data).as_bytes() == hash;
                if good {
                    self.write(at, &data)?;
                }
                Some(Answer::Kept { index, good })
            }
            Ask::Hash => {
                let known = self.hashed.lock().unwrap_or_else(PoisonError::into_inner).take();
                match known {
                    Some(answer) => Some(answer),
                    None => Some(self.target()?.hash(|done| (self.tell)(Answer::Hashing { done }))?),
                }
            }
            Ask::Commit => {
                self.break_flows();
                let target = self.target.take().and_then(Arc::into_inner);
                target.ok_or(Fault::Gone)?.commit()?;
                Some(Answer::Committed)
            }
            Ask::Discard => {
                self.break_flows();
                if let Some(mut target) = self.target.take().and_then(Arc::into_inner) {
                    target.discard();
                }
                None
            }
            Ask::Note { upto } => {
                self.target()?.note(upto);
                None
            }
            Ask::SendFile { stream, first } => self.send(stream, first),
            Ask::ReceiveFile { stream } => self.receive(stream)?,
            _ => None,
        })
    }

    fn target(&self) -> Result<&Arc<Target>, Fault> {
        self.target.as_ref().ok_or(Fault::Gone)
    }

    fn write(&self, at: u64, data: &Bytes) -> Result<Answer, Fault> {
        self.target()?.write(at, data)?;
        // What a stream hashed may not be what stands there any more.
        *self.hashed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(Answer::Written { at, len: data.len() })
    }

    fn take(&self, id: StreamId) -> Option<(TcpStream, TcpStream)> {
        let stream = self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)?;
        let handle = stream.try_clone().ok()?;
        Some((stream, handle))
    }

    fn send(&mut self, id: StreamId, first: &'static [u8]) -> Option<Answer> {
        let gone = Answer::StreamOver { stream: id, upto: 0, why: StreamEnd::Broken };
        let (Some(source), Some((stream, handle))) = (self.source.clone(), self.take(id)) else { return Some(gone) };
        let (stop, tell) = (Arc::clone(&self.stop), Arc::clone(&self.tell));
        let thread = thread::spawn(move || stream::send(stream, id, first, &source, &stop, &*tell));
        self.flows.push((handle, thread));
        None
    }

    fn receive(&mut self, id: StreamId) -> Result<Option<Answer>, Fault> {
        let target = Arc::clone(self.target()?);
        let gone = Answer::StreamOver { stream: id, upto: 0, why: StreamEnd::Broken };
        let Some((stream, handle)) = self.take(id) else { return Ok(Some(gone)) };
        let (stop, tell) = (Arc::clone(&self.stop), Arc::clone(&self.tell));
        let hashed = Arc::clone(&self.hashed);
        let thread = thread::spawn(move || {
            let into = |answer| *hashed.lock().unwrap_or_else(PoisonError::into_inner) = answer;
            stream::receive(stream, id, &target, &stop, &tell, &into);
        });
        self.flows.push((handle, thread));
        Ok(None)
    }
}
