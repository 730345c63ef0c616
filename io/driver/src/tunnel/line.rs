//! Opening the connection, and its bytes with and without TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use ureq::http::Uri;
use ureq::{Proxy, ProxyProtocol};

use crate::http::{USER_AGENT, own_roots};

/// One address of several is tried for this long at most.
const ADDRESS_FOR: Duration = Duration::from_secs(3);
/// Most bytes of an answer's head.
const HEAD_MAX: usize = 8 << 10;
/// Bytes read at once.
const READ: usize = 16 << 10;

/// A connection on which datagrams travel.
pub(super) struct Line {
    pub(super) stream: mio::net::TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// What is to be written next, in clear.
    plain: Vec<u8>,
    written: usize,
}

/// Connects, through the proxy that the environment names where it does, and asks the server to upgrade.
pub(super) fn open(url: &str, protocol: &str, until: Instant, is_over: &dyn Fn() -> bool) -> Result<Line, String> {
    let uri: Uri = url.parse().map_err(|_| format!("'{url}' is no address"))?;
    let host = uri.host().ok_or_else(|| format!("'{url}' names no host"))?.to_owned();
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(format!("'{url}' is neither http nor https")),
    };
    // A port out of range reads as none.
    let named = uri.authority().map_or("", |authority| authority.as_str());
    if uri.port().is_none() && !named.ends_with(&host) {
        return Err(format!("'{url}' is no address"));
    }
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let proxy = Proxy::try_from_env().filter(|proxy| !proxy.is_no_proxy(&uri));
    let stream = match &proxy {
        None => connect(&host, port, until, is_over)?,
        Some(proxy) => {
            if proxy.protocol() != ProxyProtocol::Http {
                return Err(format!("the proxy at {} is none of the kind http", proxy.host()));
            }
            let mut stream = connect(proxy.host(), proxy.port(), until, is_over)?;
            through(&mut stream, proxy, &host, port, until)?;
            stream
        }
    };
    let _slower_without = stream.set_nodelay(true);
    let mut blocking = Blocking { stream, tls: None, until };
    if secure {
        blocking.tls = Some(Box::new(tls(&host)?));
    }
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let named = if uri.port_u16().is_some() { format!("{host}:{port}") } else { host };
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {named}\r\nUser-Agent: {USER_AGENT}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    );
    blocking.write_all(request.as_bytes()).map_err(|error| explain(&error))?;
    let status = head(&mut blocking)?;
    if status != 101 {
        return Err(format!("the master answered {status} to the wish for TCP"));
    }
    let Blocking { stream, tls, .. } = blocking;
    stream.set_nonblocking(true).map_err(|error| error.to_string())?;
    let stream = mio::net::TcpStream::from_std(stream);
    Ok(Line { stream, tls, plain: Vec::new(), written: 0 })
}

fn connect(host: &str, port: u16, until: Instant, is_over: &dyn Fn() -> bool) -> Result<TcpStream, String> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let found: Vec<SocketAddr> =
        (name, port).to_socket_addrs().map_err(|_| "its name cannot be looked up".to_owned())?.collect();
    let mut why = "its name has no address".to_owned();
    for address in found {
        let left = until.saturating_duration_since(Instant::now()).min(ADDRESS_FOR);
        if left.is_zero() || is_over() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = explain(&error),
        }
    }
    Err(why)
}

/// Has a proxy connect onward (RFC 9110, section 9.3.6).
pub(super) fn through(
    stream: &mut TcpStream,
    proxy: &Proxy,
    host: &str,
    port: u16,
    until: Instant,
) -> Result<(), String> {
    let user = match (proxy.username(), proxy.password()) {
        (Some(user), password) => {
            let pair = format!("{user}:{}", password.unwrap_or_default());
            format!("Proxy-Authorization: Basic {}\r\n", data_encoding::BASE64.encode(pair.as_bytes()))
        }
        (None, _) => String::new(),
    };
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{user}\r\n");
    let mut blocking = Blocking { stream: stream.try_clone().map_err(|error| error.to_string())?, tls: None, until };
    blocking.write_all(request.as_bytes()).map_err(|error| explain(&error))?;
    match head(&mut blocking)? {
        200..=299 => Ok(()),
        status => Err(format!("the proxy at {} answered {status}", proxy.host())),
    }
}

fn tls(host: &str) -> Result<ClientConnection, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let own = own_roots();
        if own.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        } else {
            roots.add_parsable_certificates(own.iter().map(|certificate| certificate.der().into()));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // An upgrade is a thing of HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    });
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|_| format!("'{host}' is no name for a certificate"))?;
    ClientConnection::new(config.clone()?, name).map_err(|error| error.to_string())
}

/// Reads an answer's head byte by byte, so that nothing behind it is taken, and gives its status.
fn head(stream: &mut Blocking) -> Result<u16, String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() >= HEAD_MAX {
            return Err(format!("the answer's head is over {HEAD_MAX} bytes"));
        }
        match stream.read(&mut byte) {
            Ok(0) => return Err("the connection was closed before the answer".to_owned()),
            Ok(_) => bytes.extend_from_slice(&byte),
            Err(error) => return Err(explain(&error)),
        }
    }
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
    status.ok_or_else(|| "the answer is no HTTP".to_owned())
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// The connection while it is opened, in which every call ends in time.
struct Blocking {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    until: Instant,
}

impl Blocking {
    fn hurry(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))
    }
}

impl Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.hurry()?;
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read(buffer),
            None => self.stream.read(buffer),
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hurry()?;
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).write(bytes),
            None => self.stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Line {
    /// Everything that was put is with the kernel.
    pub(super) fn is_flushed(&self) -> bool {
        self.written == self.plain.len() && self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Takes bytes to be written.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.written == self.plain.len() {
            self.plain.clear();
            self.written = 0;
        }
        self.plain.extend_from_slice(bytes);
    }

    /// Writes as much as the kernel takes; true when that was all.
    pub(super) fn write(&mut self) -> io::Result<bool> {
        loop {
            let waiting = self.plain.get(self.written..).unwrap_or_default();
            let step = match &mut self.tls {
                None if waiting.is_empty() => return Ok(true),
                None => self.stream.write(waiting),
                Some(tls) => {
                    // It takes at most its own buffer's worth, 64 KiB, of which the rest is taken next.
                    self.written += tls.writer().write(waiting)?;
                    if !tls.wants_write() {
                        return Ok(true);
                    }
                    tls.write_tls(&mut self.stream).map(|_| 0)
                }
            };
            match step {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads some of what has arrived into `inward`. An edge is told once, so this is called until there is nothing.
    pub(super) fn read(&mut self, inward: &mut BytesMut) -> io::Result<Arrived> {
        let mut buffer = [0; READ];
        loop {
            let step = match &mut self.tls {
                None => self.stream.read(&mut buffer),
                Some(tls) => match tls.reader().read(&mut buffer) {
                    // Nothing in clear is left of what was taken from the kernel.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => match tls.read_tls(&mut self.stream) {
                        Ok(0) => Ok(0),
                        Ok(_) => {
                            tls.process_new_packets().map_err(io::Error::other)?;
                            continue;
                        }
                        Err(error) => Err(error),
                    },
                    other => other,
                },
            };
            match step {
                Ok(0) => return Ok(Arrived::End),
                Ok(count) => {
                    inward.extend_from_slice(buffer.get(..count).unwrap_or_default());
                    return Ok(Arrived::Some);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Arrived::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Bytes.
    Some,
    /// None at the moment.
    Nothing,
    /// The other end has closed.
    End,
}
