//! A game as the lobby sees it: one loopback port that sends numbered frames at 60 Hz and keeps a book of all that
//! arrives, and, when told so, speaks the bridge's datagram link on the same port.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bridge::{Bridge, Config, Event};
use seam::{Path, SocketId};

const FRAME: usize = 100;
const EVERY: Duration = Duration::from_micros(16_667);
const MARK: &[u8; 4] = b"NINE";

/// Frames of one life of one game, as one other game got them.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    copies: BTreeMap<u32, u32>,
    last: u32,
    /// Frames that came after a later one.
    pub(crate) late: u32,
}

impl Stream {
    /// Frames that came more than once.
    pub(crate) fn doubled(&self) -> usize {
        self.copies.values().filter(|copies| **copies != 1).count()
    }
}

/// Who sent a frame: the player's number, and how often that player was started.
pub(crate) type Sender = (u8, u8);

/// What one game knows.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// The number of the next frame; those before it are sent.
    pub(crate) next: u32,
    pub(crate) streams: BTreeMap<Sender, Stream>,
    /// What should not have come here, in words.
    pub(crate) wrong: Vec<String>,
    /// Texts of other games by their session, in the order they came.
    pub(crate) texts: BTreeMap<u32, Vec<String>>,
    /// Events that a bridge gave up.
    pub(crate) gaps: u32,
    bridge: Option<Bridge>,
    life: u8,
    plays: bool,
}

impl Book {
    /// How many of `sender`'s frames from `first` up to `end` are not here.
    pub(crate) fn missing(&self, sender: Sender, first: u32, end: u32) -> usize {
        let span = usize::try_from(end - first).unwrap();
        span - self.streams.get(&sender).map_or(0, |stream| stream.copies.range(first..end).count())
    }

    /// The session number of the own bridge.
    pub(crate) fn session(&self) -> u32 {
        self.bridge.as_ref().unwrap().session()
    }

    /// How many other bridges are there.
    pub(crate) fn senders(&self) -> usize {
        self.bridge.as_ref().map_or(0, |bridge| bridge.senders().len())
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.bridge.as_mut().unwrap().send_event(Instant::now(), text).unwrap();
    }

    fn hear(&mut self, me: u8, data: &[u8]) {
        let Some((mark, rest)) = data.split_first_chunk::<4>() else {
            return self.wrong.push(format!("{} bytes", data.len()));
        };
        let ([sender, life, number @ ..], true) = (&frame_head(rest), mark == MARK && data.len() == FRAME) else {
            return self.wrong.push(format!("{} unknown bytes", data.len()));
        };
        let number = u32::from_be_bytes(*number);
        if *sender == me || data != frame(*sender, *life, number) {
            return self.wrong.push(format!("frame {number} of player {sender}, its own or changed on its way"));
        }
        let stream = self.streams.entry((*sender, *life)).or_default();
        *stream.copies.entry(number).or_default() += 1;
        stream.late += u32::from(number < stream.last);
        stream.last = stream.last.max(number);
    }
}

fn frame_head(rest: &[u8]) -> [u8; 6] {
    rest.first_chunk().copied().unwrap_or_default()
}

/// Every byte follows from who sent it and its number.
fn frame(sender: u8, life: u8, number: u32) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    for (at, byte) in frame.iter_mut().enumerate() {
        *byte = number.to_be_bytes()[at % 4].wrapping_add(u8::try_from(at).unwrap()) ^ sender;
    }
    frame[..4].copy_from_slice(MARK);
    frame[4..6].copy_from_slice(&[sender, life]);
    frame[6..10].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A running game.
pub(crate) struct Stub {
    number: u8,
    port: u16,
    relay: SocketAddr,
    book: Arc<Mutex<Book>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stub {
    /// A game that listens and does not play yet. `relay` is the port its lobby listens on.
    pub(crate) fn new(number: u8, relay: u16) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, relay));
        let (book, over) = (Arc::<Mutex<Book>>::default(), Arc::<AtomicBool>::default());
        let (its_book, its_over) = (Arc::clone(&book), Arc::clone(&over));
        let thread = std::thread::spawn(move || run(&socket, relay, number, &its_book, &its_over));
        Self { number, port, relay, book, over, thread: Some(thread) }
    }

    /// The game's own port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn relay(&self) -> u16 {
        self.relay.port()
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Sends frames from now on, as another life of the same player.
    pub(crate) fn play(&self) {
        let mut book = self.book();
        book.life += 1;
        book.next = 0;
        book.plays = true;
    }

    pub(crate) fn pause(&self) {
        self.book().plays = false;
    }

    /// The present life and the number of its next frame.
    pub(crate) fn point(&self) -> (Sender, u32) {
        let book = self.book();
        ((self.number, book.life), book.next)
    }

    /// Links with the other games of `world`.
    pub(crate) fn open_bridge(&self, world: [u8; 32]) {
        let config = Config { world, peer: Path::new(SocketId(1), self.relay) };
        self.book().bridge = Some(Bridge::new(config, [self.number; 32], Instant::now()));
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(socket: &UdpSocket, relay: SocketAddr, me: u8, book: &Mutex<Book>, over: &AtomicBool) {
    let mut due = Instant::now();
    let mut data = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        let wait = due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(wait)).unwrap();
        match socket.recv_from(&mut data) {
            Ok((len, from)) => hear(&mut book.lock().unwrap(), me, from, relay, &data[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => book.lock().unwrap().wrong.push(error.to_string()),
        }
        let now = Instant::now();
        if now < due {
            continue;
        }
        // A thread that was late does not catch up: a burst would test the kernel's buffers.
        due = (due + EVERY).max(now);
        let mut book = book.lock().unwrap();
        if book.plays {
            socket.send_to(&frame(me, book.life, book.next), relay).unwrap();
            book.next += 1;
        }
        turn(&mut book, now, socket);
    }
}

fn hear(book: &mut Book, me: u8, from: SocketAddr, relay: SocketAddr, data: &[u8]) {
    if from != relay {
        return book.wrong.push("a datagram from another port than the lobby's".to_owned());
    }
    if !data.starts_with(bridge::MAGIC.as_slice()) {
        return book.hear(me, data);
    }
    if let Some(bridge) = &mut book.bridge {
        // What a bridge refuses, such as a first event before any keepalive, comes again.
        let _ = bridge.handle_datagram(Instant::now(), Path::new(SocketId(1), from), data);
    }
}

fn turn(book: &mut Book, now: Instant, socket: &UdpSocket) {
    let Some(bridge) = &mut book.bridge else { return };
    bridge.handle_timeout(now);
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    while bridge.poll_transmit(now, &mut out) {}
    for (to, datagram) in out {
        socket.send_to(&datagram, to.remote).unwrap();
    }
    while let Some(event) = bridge.poll_event() {
        match event {
            Event::Text { session, text } => book.texts.entry(session).or_default().push(text),
            Event::Gap { missing, .. } => book.gaps += missing,
            _ => {}
        }
    }
}
