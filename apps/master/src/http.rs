//! Connections: how many, how long they may take, and how they end.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rendezvous::Prefix;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;

use crate::app::{App, Peer, handle};
use crate::lock;
use crate::patient::Patient;
use crate::tls::Reload;

/// Most bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;

/// Connections of each address.
type Counts = Arc<Mutex<BTreeMap<Prefix, usize>>>;

/// A connection's place among all, and among those of its address.
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    per_address: Option<(Counts, Prefix)>,
}

impl Place {
    /// A place, unless the address has too many. Proxies speak for many and are not counted.
    fn take(all: OwnedSemaphorePermit, counts: &Counts, ip: IpAddr, most: usize, proxy: bool) -> Option<Self> {
        if proxy {
            return Some(Self { _all: all, per_address: None });
        }
        let who = Prefix::caller(ip);
        let mut held = lock(counts);
        let count = held.entry(who).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { _all: all, per_address: Some((Arc::clone(counts), who)) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((counts, who)) = &self.per_address {
            let mut held = lock(counts);
            if let Some(count) = held.get_mut(who) {
                *count -= 1;
                if *count == 0 {
                    held.remove(who);
                }
            }
        }
    }
}

/// Takes connections until told to stop, then waits for those under way.
pub(crate) async fn serve(app: Arc<App>, listener: TcpListener, tls: Option<Reload>) {
    let router = Router::new().fallback(handle).with_state(Arc::clone(&app));
    let places = Arc::new(Semaphore::new(app.settings.connections));
    let counts = Counts::default();
    let mut stopping = app.stopping.clone();
    loop {
        // The next connection is not even accepted before there is a place for it.
        let accepted = tokio::select! {
            accepted = async {
                let permit = Arc::clone(&places).acquire_owned().await;
                (permit, listener.accept().await)
            } => accepted,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        let (Ok(permit), Ok((stream, peer))) = accepted else {
            // Out of file descriptors, most likely: whoever holds one must finish first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let proxy = app.is_proxy(peer.ip());
        let Some(place) = Place::take(permit, &counts, peer.ip(), app.settings.address_connections, proxy) else {
            app.gauges.turned_away.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        tokio::spawn(connection(Arc::clone(&app), router.clone(), stream, peer, tls.clone(), place));
    }
    drop(listener);
    let all = u32::try_from(app.settings.connections).unwrap_or(u32::MAX);
    let drain = Duration::from_secs(app.settings.drain_seconds);
    let _ = tokio::time::timeout(drain, places.acquire_many(all)).await;
}

async fn connection(
    app: Arc<App>,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Reload>,
    place: Place,
) {
    let _ = stream.set_nodelay(true);
    let limit = Duration::from_secs(app.settings.request_seconds);
    app.gauges.connections.fetch_add(1, Ordering::Relaxed);
    match tls {
        None => http(&app, router, stream, peer, limit, place).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(limit, tls.acceptor().accept(stream)).await {
                http(&app, router, stream, peer, limit, place).await;
            }
        }
    }
    app.gauges.connections.fetch_sub(1, Ordering::Relaxed);
}

async fn http<S>(app: &App, router: Router, stream: S, peer: SocketAddr, limit: Duration, place: Place)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let place = Arc::new(place);
    let held = Arc::clone(&place);
    let service = router.map_request(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Peer(peer));
        // An upgraded stream keeps the place of its connection.
        request.extensions_mut().insert(Arc::clone(&held));
        request
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, limit)), TowerToHyperService::new(service))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut stopping = app.stopping.clone();
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
