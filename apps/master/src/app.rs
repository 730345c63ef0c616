//! What one request is answered.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use rendezvous::words::ProbeProtocol;
use rendezvous::{BODY_MAX, Call, Probe, ResponseBody, Server, Step, Then, is_trusted};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;

use crate::pipe::PipeServer;
use crate::relay::Relaying;
use crate::settings::{Range, Settings};
use crate::store::Store;
use crate::waiters::Waiters;
use crate::{lock, metrics, page, relay, wall};

/// How long a TCP probe tries.
const PROBE_TIME: Duration = Duration::from_secs(3);

/// Everything requests share.
pub(crate) struct App {
    pub(crate) settings: Settings,
    pub(crate) server: Mutex<Server>,
    pub(crate) store: Box<dyn Store>,
    pub(crate) relay: Option<Arc<Relaying>>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) pipes: Arc<PipeServer>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) gauges: metrics::Gauges,
    trusted: Vec<(IpAddr, u8)>,
    metrics_from: Vec<(IpAddr, u8)>,
}

impl App {
    pub(crate) fn new(
        settings: Settings,
        server: Server,
        store: Box<dyn Store>,
        relay: Option<Arc<Relaying>>,
        waiters: Arc<Waiters>,
        pipes: Arc<PipeServer>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let ranges = |list: &[Range]| list.iter().map(|Range(ip, len)| (*ip, *len)).collect();
        let (trusted, metrics_from) = (ranges(&settings.trusted_proxy), ranges(&settings.metrics_from));
        let gauges = metrics::Gauges::default();
        let server = Mutex::new(server);
        Self { settings, server, store, relay, waiters, pipes, stopping, gauges, trusted, metrics_from }
    }

    /// Whether a connection comes from a proxy that speaks for others.
    pub(crate) fn is_proxy(&self, peer: IpAddr) -> bool {
        is_trusted(peer, &self.trusted)
    }

    /// Whom a request comes from. A header counts only when a trusted proxy wrote it.
    fn caller(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let named = headers.get("x-real-ip").and_then(|value| value.to_str().ok()?.trim().parse().ok());
        named.filter(|_| self.is_proxy(peer)).unwrap_or(peer).to_canonical()
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// A connection's other end, put into each of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

pub(crate) async fn handle(State(app): State<Arc<App>>, mut request: Request) -> Response {
    let Some(Peer(peer)) = request.extensions().get::<Peer>().copied() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let start = Instant::now();
    let caller = app.caller(peer.ip(), request.headers());
    let last = request.uri().path().rsplit('/').next().unwrap_or_default();
    let response = match last {
        "healthz" => "ok\n".into_response(),
        "readyz" if app.is_stopping() => (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response(),
        "readyz" => "ok\n".into_response(),
        "metrics" if is_trusted(caller, &app.metrics_from) => {
            ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::write(&app)).into_response()
        }
        "metrics" => StatusCode::FORBIDDEN.into_response(),
        "relay" => relay::upgrade(&app, caller, &mut request),
        _ => answer(&app, caller, request).await,
    };
    app.gauges.took(start.elapsed());
    response
}

async fn answer(app: &Arc<App>, caller: IpAddr, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let html = path.ends_with('/') && wants_html(&parts.headers);
    let body = if parts.method == "POST" { read_body(app, body).await } else { None };
    let query = parts.uri.query().unwrap_or_default();
    let call = Call { method: parts.method.as_str(), path, query, body: body.as_deref(), html };
    let mut step = {
        let mut relay = app.relay.as_ref().map(|relay| lock(&relay.table));
        lock(&app.server).begin(Instant::now(), wall(), caller, &call, relay.as_deref_mut())
    };
    loop {
        step = match step {
            Step::Answer(response) => return dress(response, query),
            Step::Probe(ask) => return dress(probe(ask, app.settings.stun_other_address).await, query),
            Step::Do { op, then } | Step::Hold { op, then, .. } => ask_store(app, op, then).await,
        }
    }
}

/// Runs an op and, where a poll may be held, waits once for a note.
async fn ask_store(app: &Arc<App>, op: rendezvous::store::Op, mut then: Then) -> Step {
    let seat = then.tag().and_then(|tag| app.waiters.sit(tag));
    if seat.is_none() || app.is_stopping() {
        then.give_up();
    }
    // Listening begins before the store is asked, so that no note falls between.
    let mut woken = seat.as_ref().map(|seat| Box::pin(seat.notify.notified()));
    if let Some(woken) = &mut woken {
        woken.as_mut().enable();
    }
    let knocked = match &op {
        rendezvous::store::Op::Knock { tag, .. } => Some(tag.clone()),
        _ => None,
    };
    let outcome = app.store.run(op).await;
    if let (Some(tag), rendezvous::store::Outcome::Kept) = (&knocked, &outcome) {
        app.waiters.wake(tag);
    }
    let step = {
        let mut relay = app.relay.as_ref().map(|relay| lock(&relay.table));
        lock(&app.server).finish(Instant::now(), wall(), then, outcome, relay.as_deref_mut())
    };
    if let (Step::Hold { until, .. }, Some(woken)) = (&step, woken) {
        let mut stopping = app.stopping.clone();
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep_until((*until).into()) => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    }
    step
}

/// The body, when it is there, whole, in time and not too long.
async fn read_body(app: &App, body: Body) -> Option<Bytes> {
    let least = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if least > BODY_MAX {
        return None;
    }
    let reading = axum::body::to_bytes(body, BODY_MAX);
    tokio::time::timeout(Duration::from_secs(app.settings.request_seconds), reading).await.ok()?.ok()
}

fn wants_html(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

fn dress(response: rendezvous::Response, query: &str) -> Response {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut dressed = match response.body {
        ResponseBody::Json(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        ResponseBody::Text(text) => text.into_response(),
        ResponseBody::Page(rows) => page::response(&rows, query),
        ResponseBody::Empty => ().into_response(),
    };
    *dressed.status_mut() = status;
    let headers = dressed.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    if matches!(response.status, 204 | 405) {
        headers.insert(ALLOW, HeaderValue::from_static("GET, POST, OPTIONS"));
    }
    dressed
}

/// Sends the token to the caller's own address: from this machine's other address where it has one, to which the caller
/// may well have sent nothing yet. A router that lets in whoever it sent to would make any port look open else.
async fn probe(Probe { to, protocol, datagram }: Probe, other: Option<IpAddr>) -> rendezvous::Response {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let any = other.filter(|other| other.is_ipv4() == to.is_ipv4()).map_or(any, |other| SocketAddr::new(other, 0));
    match protocol {
        ProbeProtocol::Udp => {
            if let Ok(socket) = UdpSocket::bind(any).await {
                let _ = socket.send_to(&datagram, to).await;
            }
            rendezvous::Response::probed(None)
        }
        ProbeProtocol::Tcp => {
            let attempt = async {
                let mut stream = TcpStream::connect(to).await?;
                stream.write_all(&datagram).await?;
                stream.shutdown().await
            };
            let reached = matches!(tokio::time::timeout(PROBE_TIME, attempt).await, Ok(Ok(())));
            rendezvous::Response::probed(Some(reached))
        }
    }
}
