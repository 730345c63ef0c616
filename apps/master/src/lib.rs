//! The master server: an HTTP shell round [`rendezvous::Server`], UDP round [`rendezvous::Relay`], a TCP pipe, STUN.
//!
//! It holds no key and cannot read what it forwards. What it keeps is bounded by [`Settings`]; what it keeps of a
//! stranger before a refusal is nothing. Sockets, clocks and tasks are here, every decision is in `proto/rendezvous`.

mod app;
mod http;
mod metrics;
mod page;
mod patient;
mod pipe;
mod redis;
mod relay;
mod settings;
mod store;
mod stun;
mod tls;
mod waiters;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::relay::RelayAt;
use rendezvous::{Relay, Server};
use thiserror::Error;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use app::App;
pub use settings::{Port, PortRange, Range, Settings};
use store::Store;

/// Why a master cannot start. Each is one true sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port is taken, or may not be used.
    #[error("cannot open {what} at {at}: {error}")]
    Bind {
        /// Which service.
        what: &'static str,
        /// Where.
        at: SocketAddr,
        /// The system's words.
        error: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use the certificate: {0}")]
    Tls(String),
    /// The database cannot be used.
    #[error("cannot use the database: {0}")]
    Database(String),
    /// The settings contradict each other or this machine.
    #[error("cannot do what the settings say: {0}")]
    Settings(String),
    /// The system has no random numbers or no threads.
    #[error("cannot start: {0}")]
    System(String),
}

/// A master at work.
#[derive(Debug)]
pub struct Running {
    /// The HTTP service.
    pub http: SocketAddr,
    /// STUN, where it is offered.
    pub stun: Option<SocketAddr>,
    /// The shared relay port, where there is one.
    pub shared: Option<SocketAddr>,
    /// The TCP pipe, where it is offered.
    pub pipe: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    drained: tokio::task::JoinHandle<()>,
    services: JoinSet<()>,
    reload: Option<tls::Reload>,
}

impl Running {
    /// Takes no new connection, answers what is under way, and ends.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = self.drained.await;
        self.services.shutdown().await;
    }

    /// Reads the certificate again.
    pub fn reload(&self) {
        if let Some(Err(error)) = self.reload.as_ref().map(tls::Reload::again) {
            eprintln!("the old certificate stays: {error}");
        }
    }
}

/// Starts a master.
///
/// # Errors
/// [`StartError`]; nothing is left running then.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    let now = Instant::now();
    let limits = settings.limits();
    let mut services = JoinSet::new();
    let (stop, stopping) = watch::channel(false);
    let waiters = Arc::new(waiters::Waiters::new(settings.held_polls));
    let store: Box<dyn Store> = match &settings.redis {
        None => Box::new(store::InMemory::new(limits.clone())),
        Some(url) => Box::new(redis::Redis::open(url, limits.clone(), &waiters).await.map_err(StartError::Database)?),
    };
    let tls = match (&settings.tls_cert, &settings.tls_key) {
        (Some(cert), Some(key)) => Some(tls::Reload::open(cert, key).map_err(StartError::Tls)?),
        _ => None,
    };
    let listener = tcp("HTTP", SocketAddr::new(settings.bind, settings.port)).await?;
    let http = listener.local_addr().map_err(system)?;

    let mut pipe = None;
    if let (Some(ip), Port::At(port)) = (settings.relay_ip, settings.pipe_port) {
        let listener = tcp("the pipe", SocketAddr::new(settings.relay_bind, port)).await?;
        pipe = Some((SocketAddr::new(ip, listener.local_addr().map_err(system)?.port()), listener));
    }
    let (ports, shared) = match settings.relay_ip {
        Some(_) => relay_sockets(&settings)?,
        None => (Vec::new(), None),
    };
    let relay = settings.relay_ip.map(|ip| {
        let ports = ports.iter().filter_map(|socket| socket.local_addr().ok()).map(|at| at.port()).collect();
        let shared = shared.as_ref().and_then(|socket| socket.local_addr().ok()).map(|at| at.port());
        let table = Relay::new(RelayAt { ip, ports, shared }, limits.clone(), seed()?, now);
        Ok::<_, StartError>(relay::Relaying::new(table, settings.streams))
    });
    let relay = relay.transpose()?.map(Arc::new);
    let shared_at = shared.as_ref().and_then(|socket| socket.local_addr().ok());
    let pipe_at = pipe.as_ref().map(|(at, _)| *at);

    let mut stun_at = None;
    if let Some(places) = stun::Places::open(&settings)? {
        stun_at = places.main();
        stun::spawn(places, &mut services)?;
    }
    if let Some(relay) = &relay {
        relay::spawn(relay, ports, shared, &mut services);
    }
    let pipes = Arc::new(pipe::PipeServer::new(limits.clone()));
    if let Some((_, listener)) = pipe {
        services.spawn(pipe::serve(Arc::clone(&pipes), listener));
    }
    let app = Arc::new(App::new(settings, Server::new(limits, pipe_at), store, relay, waiters, pipes, stopping));
    let drained = tokio::spawn(http::serve(app, listener, tls.clone()));
    Ok(Running { http, stun: stun_at, shared: shared_at, pipe: pipe_at, stop, drained, services, reload: tls })
}

/// A master on threads of its own, for programs without a runtime.
#[derive(Debug)]
pub struct Background {
    runtime: tokio::runtime::Runtime,
    running: Running,
}

impl Background {
    /// Starts one.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(system)?;
        let running = runtime.block_on(start(settings))?;
        Ok(Self { runtime, running })
    }

    /// Where it can be reached.
    #[must_use]
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// See [`Running::stop`].
    pub fn stop(self) {
        self.runtime.block_on(self.running.stop());
    }
}

/// Runs a master until SIGTERM or SIGINT.
///
/// # Errors
/// [`StartError`] when it cannot start.
pub fn run(settings: Settings) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        let running = start(settings).await?;
        eprintln!("the master listens at {}", running.http);
        signals(&running).await;
        eprintln!("draining");
        running.stop().await;
        Ok(())
    })
}

/// The program: 0 after a signal, 1 when it cannot start, 2 for arguments that cannot be meant.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let settings = match Settings::parse(args) {
        Ok(settings) => settings,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(unix)]
async fn signals(running: &Running) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    loop {
        tokio::select! {
            _ = term.recv() => return,
            _ = tokio::signal::ctrl_c() => return,
            _ = hangup.recv() => running.reload(),
        }
    }
}

#[cfg(not(unix))]
async fn signals(_: &Running) {
    let _ = tokio::signal::ctrl_c().await;
}

async fn tcp(what: &'static str, at: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(at).await.map_err(|error| StartError::Bind { what, at, error })
}

fn udp(what: &'static str, ip: IpAddr, port: u16) -> Result<UdpSocket, StartError> {
    let at = SocketAddr::new(ip, port);
    relay::socket(at).map_err(|error| StartError::Bind { what, at, error })
}

/// One socket for each port of the range that is free, and the shared one.
fn relay_sockets(settings: &Settings) -> Result<(Vec<UdpSocket>, Option<UdpSocket>), StartError> {
    let shared = match settings.shared_port {
        Port::At(port) => Some(udp("the shared relay port", settings.relay_bind, port)?),
        Port::Off => None,
    };
    let mut ports = Vec::new();
    let mut refused = None;
    for port in settings.relay_ports.first..=settings.relay_ports.last {
        match udp("a relay port", settings.relay_bind, port) {
            Ok(socket) => ports.push(socket),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if ports.is_empty() => Err(error),
        Some(error) => {
            eprintln!("{} relay ports; {error}", ports.len());
            Ok((ports, shared))
        }
        None => Ok((ports, shared)),
    }
}

fn seed() -> Result<[u8; 32], StartError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| StartError::System(error.to_string()))?;
    Ok(seed)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn system(error: std::io::Error) -> StartError {
    StartError::System(error.to_string())
}

/// The time since 1970.
fn wall() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// A lock whose owner does not panic while holding it; one that did leaves a table that is still whole.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
