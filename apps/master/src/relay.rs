//! The relay's sockets and streams round [`rendezvous::Relay`].

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use rendezvous::relay::{End, Via};
use rendezvous::{Prefix, Relay};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::app::App;
use crate::http::Place;
use crate::lock;

/// What a stream asks to become.
const PROTOCOL: &str = "anywire-relay/1";
/// Longest datagram that is forwarded.
const DATAGRAM_MAX: usize = 9216;
/// Frames that wait for a stream's reader; more are dropped, as a full socket buffer would.
const STREAM_QUEUE: usize = 256;
/// A stream without a frame from its player for this long is closed.
const STREAM_IDLE: Duration = Duration::from_secs(90);
/// Streams of one address.
const ADDRESS_STREAMS: usize = 16;
const SOCKET_BUFFER: usize = 4 << 20;

/// The relay's table and the ways out of it.
pub(crate) struct Relaying {
    pub(crate) table: Mutex<Relay>,
    sockets: OnceLock<BTreeMap<Via, Arc<UdpSocket>>>,
    streams: Mutex<Streams>,
    most_streams: usize,
}

#[derive(Default)]
struct Streams {
    next: u64,
    open: BTreeMap<u64, (Prefix, mpsc::Sender<Vec<u8>>)>,
}

impl Relaying {
    pub(crate) fn new(table: Relay, most_streams: usize) -> Self {
        Self { table: Mutex::new(table), sockets: OnceLock::new(), streams: Mutex::default(), most_streams }
    }

    pub(crate) fn streams(&self) -> usize {
        lock(&self.streams).open.len()
    }

    /// Takes a datagram and sends what the table says.
    fn pass(&self, via: Via, from: End, datagram: &[u8], scratch: &mut Vec<u8>) {
        let (out, to) = {
            let mut table = lock(&self.table);
            let Some(forward) = table.receive(Instant::now(), via, from, datagram) else { return };
            scratch.clear();
            scratch.extend_from_slice(&forward.head);
            scratch.extend_from_slice(forward.body);
            (forward.via, forward.to)
        };
        match to {
            End::Udp(to) => {
                if let Some(socket) = self.sockets.get().and_then(|sockets| sockets.get(&out)) {
                    // A full socket buffer drops, as any router would.
                    let _ = socket.try_send_to(scratch, to);
                }
            }
            End::Stream(number) => {
                if let Some((_, queue)) = lock(&self.streams).open.get(&number) {
                    let _ = queue.try_send(scratch.clone());
                }
            }
        }
    }

    /// A number and a queue for a new stream, unless there are too many.
    fn open(&self, ip: IpAddr) -> Option<(u64, mpsc::Receiver<Vec<u8>>)> {
        let who = Prefix::caller(ip);
        let mut streams = lock(&self.streams);
        let same = streams.open.values().filter(|(other, _)| *other == who).count();
        if streams.open.len() >= self.most_streams || same >= ADDRESS_STREAMS {
            return None;
        }
        let number = streams.next;
        streams.next += 1;
        let (sender, receiver) = mpsc::channel(STREAM_QUEUE);
        streams.open.insert(number, (who, sender));
        Some((number, receiver))
    }

    fn close(&self, number: u64) {
        lock(&self.streams).open.remove(&number);
        lock(&self.table).stream_closed(number);
    }
}

/// A UDP socket with room for bursts.
pub(crate) fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(at), socket2::Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    // The system may grant less; that costs datagrams under load, nothing else.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&at.into())?;
    UdpSocket::from_std(socket.into())
}

/// Starts a task for each socket.
pub(crate) fn spawn(
    relay: &Arc<Relaying>,
    ports: Vec<UdpSocket>,
    shared: Option<UdpSocket>,
    services: &mut JoinSet<()>,
) {
    let named = ports.into_iter().filter_map(|socket| Some((Via::Port(socket.local_addr().ok()?.port()), socket)));
    let named = named.chain(shared.map(|socket| (Via::Shared, socket)));
    let sockets: BTreeMap<Via, Arc<UdpSocket>> = named.map(|(via, socket)| (via, Arc::new(socket))).collect();
    for (via, socket) in &sockets {
        services.spawn(receive(Arc::clone(relay), *via, Arc::clone(socket)));
    }
    let _ = relay.sockets.set(sockets);
    let relay = Arc::clone(relay);
    services.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            lock(&relay.table).handle_timeout(Instant::now());
        }
    });
}

async fn receive(relay: Arc<Relaying>, via: Via, socket: Arc<UdpSocket>) {
    let mut buffer = vec![0; DATAGRAM_MAX + 1];
    let mut scratch = Vec::with_capacity(DATAGRAM_MAX);
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        // What waits is taken in one go, up to a bound that lets other sockets have their turn.
        for _ in 0..256 {
            match socket.try_recv_from(&mut buffer) {
                Ok((len, from)) if len <= DATAGRAM_MAX => {
                    relay.pass(via, End::Udp(from), buffer.get(..len).unwrap_or_default(), &mut scratch);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An earlier datagram could not be delivered.
                Err(_) => {}
            }
        }
        tokio::task::yield_now().await;
    }
}

/// `GET /relay` with `Upgrade: anywire-relay/1`: from then on the connection carries datagrams of the shared port,
/// each after its length in two bytes.
pub(crate) fn upgrade(app: &Arc<App>, caller: IpAddr, request: &mut Request) -> Response {
    let Some(relay) = app.relay.as_ref().map(Arc::clone) else { return StatusCode::NOT_FOUND.into_response() };
    let asked =
        request.headers().get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes()));
    if request.method() != "GET" || !asked {
        return (StatusCode::UPGRADE_REQUIRED, [(UPGRADE, PROTOCOL)]).into_response();
    }
    let Some((number, queue)) = relay.open(caller) else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let place = request.extensions().get::<Arc<Place>>().cloned();
    let upgrade = hyper::upgrade::on(request);
    let mut stopping = app.stopping.clone();
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
            tokio::select! {
                () = read_frames(&relay, number, reader) => {}
                _ = write_frames(queue, writer) => {}
                _ = stopping.wait_for(|stop| *stop) => {}
            }
        }
        relay.close(number);
        drop(place);
    });
    (StatusCode::SWITCHING_PROTOCOLS, [(UPGRADE, PROTOCOL), (CONNECTION, "upgrade")]).into_response()
}

async fn read_frames(relay: &Relaying, number: u64, mut reader: impl AsyncRead + Unpin) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    let mut scratch = Vec::with_capacity(DATAGRAM_MAX);
    loop {
        let frame = async {
            let len = usize::from(reader.read_u16().await?);
            let frame = buffer.get_mut(..len).ok_or(io::ErrorKind::InvalidData)?;
            reader.read_exact(frame).await
        };
        match tokio::time::timeout(STREAM_IDLE, frame).await {
            Ok(Ok(len)) => {
                let frame = buffer.get(..len).unwrap_or_default();
                relay.pass(Via::Shared, End::Stream(number), frame, &mut scratch);
            }
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

async fn write_frames(mut queue: mpsc::Receiver<Vec<u8>>, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut out = Vec::with_capacity(DATAGRAM_MAX);
    while let Some(first) = queue.recv().await {
        out.clear();
        let mut next = Some(first);
        while let Some(frame) = next {
            if let Ok(len) = u16::try_from(frame.len()) {
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&frame);
            }
            next = if out.len() < 64 << 10 { queue.try_recv().ok() } else { None };
        }
        writer.write_all(&out).await?;
        writer.flush().await?;
    }
    Ok(())
}
