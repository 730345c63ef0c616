//! STUN: a server with two addresses and two ports (RFC 8489, RFC 5780), over
//! UDP and TCP, and the client side that the probes need.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::sys;

const MAGIC: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const BINDING_REQUEST: u16 = 0x0001;
const BINDING_RESPONSE: u16 = 0x0101;
const MAPPED_ADDRESS: u16 = 0x0001;
const CHANGE_REQUEST: u16 = 0x0003;
const SOURCE_ADDRESS: u16 = 0x0004;
const CHANGED_ADDRESS: u16 = 0x0005;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const RESPONSE_PORT: u16 = 0x0027;
const SOFTWARE: u16 = 0x8022;
const RESPONSE_ORIGIN: u16 = 0x802b;
const OTHER_ADDRESS: u16 = 0x802c;

pub(crate) const CHANGE_IP: u8 = 4;
pub(crate) const CHANGE_PORT: u8 = 2;

/// The cookie and the transaction's number. Clients of RFC 3489 have no cookie:
/// theirs is one long number.
pub(crate) type Transaction = [u8; 16];

pub(crate) struct Request {
    transaction: Transaction,
    change: u8,
    response_port: Option<u16>,
}

fn attributes(message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut at = 20;
    std::iter::from_fn(move || {
        let head = message.get(at..at + 4)?;
        let kind = u16::from_be_bytes([head[0], head[1]]);
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let value = message.get(at + 4..at + 4 + length)?;
        at += 4 + length.div_ceil(4) * 4;
        Some((kind, value))
    })
}

fn header(message: &[u8]) -> Option<(u16, usize, Transaction)> {
    let head = message.get(..20)?;
    if head[0] & 0xc0 != 0 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let mut transaction = [0; 16];
    transaction.copy_from_slice(&head[4..20]);
    Some((u16::from_be_bytes([head[0], head[1]]), length, transaction))
}

pub(crate) fn parse_request(message: &[u8]) -> Option<Request> {
    let (kind, length, transaction) = header(message)?;
    if kind != BINDING_REQUEST || message.len() < 20 + length {
        return None;
    }
    let mut r = Request { transaction, change: 0, response_port: None };
    for (kind, value) in attributes(message) {
        match kind {
            CHANGE_REQUEST if value.len() == 4 => r.change = value[3] & (CHANGE_IP | CHANGE_PORT),
            RESPONSE_PORT if value.len() >= 2 => {
                r.response_port = Some(u16::from_be_bytes([value[0], value[1]]));
            }
            _ => {}
        }
    }
    Some(r)
}

fn put(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&(value.len() as u16).to_be_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
    let length = (message.len() - 20) as u16;
    message[2..4].copy_from_slice(&length.to_be_bytes());
}

fn start(kind: u16, transaction: &Transaction) -> Vec<u8> {
    let mut m = Vec::with_capacity(64);
    m.extend_from_slice(&kind.to_be_bytes());
    m.extend_from_slice(&[0, 0]);
    m.extend_from_slice(transaction);
    m
}

fn address(at: SocketAddr, xor: Option<&Transaction>) -> Vec<u8> {
    let mask = xor.unwrap_or(&[0; 16]);
    let port = at.port() ^ u16::from_be_bytes([mask[0], mask[1]]);
    let (family, octets) = match at.ip() {
        IpAddr::V4(ip) => (1, ip.octets().to_vec()),
        IpAddr::V6(ip) => (2, ip.octets().to_vec()),
    };
    let mut v = vec![0, family];
    v.extend_from_slice(&port.to_be_bytes());
    v.extend(octets.iter().zip(mask).map(|(o, m)| o ^ m));
    v
}

pub(crate) fn response(r: &Request, mapped: SocketAddr, origin: SocketAddr, other: Option<SocketAddr>) -> Vec<u8> {
    let mut m = start(BINDING_RESPONSE, &r.transaction);
    put(&mut m, MAPPED_ADDRESS, &address(mapped, None));
    let modern = r.transaction[..4] == MAGIC;
    let (from, changed) = if modern {
        put(&mut m, XOR_MAPPED_ADDRESS, &address(mapped, Some(&r.transaction)));
        (RESPONSE_ORIGIN, OTHER_ADDRESS)
    } else {
        (SOURCE_ADDRESS, CHANGED_ADDRESS)
    };
    put(&mut m, from, &address(origin, None));
    if let Some(other) = other {
        put(&mut m, changed, &address(other, None));
    }
    if modern {
        put(&mut m, SOFTWARE, b"natlab");
    }
    m
}

pub(crate) fn request(transaction: &Transaction, change: u8) -> Vec<u8> {
    let mut m = start(BINDING_REQUEST, transaction);
    if change != 0 {
        put(&mut m, CHANGE_REQUEST, &[0, 0, 0, change]);
    }
    m
}

/// The mapped address in the answer to a request of ours.
pub(crate) fn parse_response(message: &[u8], wanted: &Transaction) -> Option<SocketAddr> {
    let (kind, _, transaction) = header(message)?;
    if kind != BINDING_RESPONSE || transaction != *wanted {
        return None;
    }
    let (_, v) = attributes(message).find(|(k, _)| *k == XOR_MAPPED_ADDRESS)?;
    if v.len() < 8 {
        return None;
    }
    let port = u16::from_be_bytes([v[2] ^ MAGIC[0], v[3] ^ MAGIC[1]]);
    let octets: Vec<u8> = v[4..].iter().zip(&transaction).map(|(o, m)| o ^ m).collect();
    let ip = match octets.len() {
        4 => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
        16 => {
            let mut o = [0; 16];
            o.copy_from_slice(&octets);
            IpAddr::V6(o.into())
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The sockets of the server: every address with every port.
pub(crate) struct Server {
    udp: Vec<(SocketAddr, UdpSocket)>,
    tcp: Vec<TcpListener>,
    ports: Vec<u16>,
    addrs: Vec<IpAddr>,
}

impl Server {
    /// Binds in the calling thread's namespace.
    pub(crate) fn bind(addrs: &[IpAddr], ports: &[u16]) -> io::Result<Server> {
        let mut s = Server { udp: Vec::new(), tcp: Vec::new(), ports: ports.to_vec(), addrs: addrs.to_vec() };
        for ip in addrs {
            for port in ports {
                let at = SocketAddr::new(*ip, *port);
                let udp = UdpSocket::bind(at)?;
                udp.set_nonblocking(true)?;
                s.udp.push((at, udp));
                let tcp = TcpListener::bind(at)?;
                tcp.set_nonblocking(true)?;
                s.tcp.push(tcp);
            }
        }
        Ok(s)
    }

    fn other_port(&self, port: u16) -> Option<u16> {
        self.ports.iter().copied().find(|p| *p != port)
    }

    fn other_ip(&self, ip: IpAddr) -> Option<IpAddr> {
        self.addrs.iter().copied().find(|a| *a != ip && a.is_ipv4() == ip.is_ipv4())
    }

    fn other(&self, at: SocketAddr) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.other_ip(at.ip())?, self.other_port(at.port())?))
    }

    /// Serves until `stop` can be read or is closed.
    pub(crate) fn run(self, stop: &UnixStream) {
        let mut fds: Vec<RawFd> = vec![stop.as_raw_fd()];
        fds.extend(self.udp.iter().map(|(_, s)| s.as_raw_fd()));
        fds.extend(self.tcp.iter().map(AsRawFd::as_raw_fd));
        let mut buf = [0u8; 2048];
        while let Some(ready) = sys::wait(&fds, None) {
            if ready[0] {
                return;
            }
            for (i, (at, socket)) in self.udp.iter().enumerate() {
                if !ready[i + 1] {
                    continue;
                }
                while let Ok((n, from)) = socket.recv_from(&mut buf) {
                    if let Some(r) = parse_request(&buf[..n]) {
                        self.answer(&r, *at, from);
                    }
                }
            }
            for (i, listener) in self.tcp.iter().enumerate() {
                if !ready[i + 1 + self.udp.len()] {
                    continue;
                }
                while let Ok((stream, from)) = listener.accept() {
                    let at = self.udp[i].0;
                    let other = self.other(at);
                    std::thread::spawn(move || serve_tcp(stream, from, at, other));
                }
            }
        }
    }

    fn answer(&self, r: &Request, at: SocketAddr, from: SocketAddr) {
        let ip = if r.change & CHANGE_IP != 0 { self.other_ip(at.ip()) } else { Some(at.ip()) };
        let port = if r.change & CHANGE_PORT != 0 { self.other_port(at.port()) } else { Some(at.port()) };
        let (Some(ip), Some(port)) = (ip, port) else {
            return;
        };
        let origin = SocketAddr::new(ip, port);
        let mut to = from;
        if let Some(p) = r.response_port {
            to.set_port(p);
        }
        let message = response(r, from, origin, self.other(at));
        if let Some((_, socket)) = self.udp.iter().find(|(a, _)| *a == origin) {
            let _ = socket.send_to(&message, to);
        }
    }
}

fn serve_tcp(mut stream: TcpStream, from: SocketAddr, at: SocketAddr, other: Option<SocketAddr>) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    loop {
        let mut head = [0u8; 20];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let Some((_, length, _)) = header(&head) else {
            return;
        };
        let mut message = head.to_vec();
        message.resize(20 + length, 0);
        if stream.read_exact(&mut message[20..]).is_err() {
            return;
        }
        let Some(r) = parse_request(&message) else {
            return;
        };
        if stream.write_all(&response(&r, from, at, other)).is_err() {
            return;
        }
    }
}

/// Asks over UDP for the mapped address, with retries inside `limit`. With a
/// change flag, the answer comes from another address or port.
pub(crate) fn ask(socket: &UdpSocket, server: SocketAddr, change: u8, limit: Duration) -> Option<SocketAddr> {
    let transaction = new_transaction();
    let message = request(&transaction, change);
    let end = Instant::now() + limit;
    let retry = (limit / 3).max(Duration::from_millis(20));
    let mut buf = [0u8; 2048];
    while Instant::now() < end {
        let _ = socket.send_to(&message, server);
        let again = (Instant::now() + retry).min(end);
        loop {
            let left = again.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left)).ok()?;
            match socket.recv_from(&mut buf) {
                Ok((n, _)) => {
                    if let Some(mapped) = parse_response(&buf[..n], &transaction) {
                        return Some(mapped);
                    }
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                // An ICMP error about an earlier packet.
                Err(_) => {}
            }
        }
    }
    None
}

/// Asks over a connected TCP stream.
pub(crate) fn ask_tcp(stream: &mut TcpStream) -> Option<SocketAddr> {
    let transaction = new_transaction();
    stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
    stream.write_all(&request(&transaction, 0)).ok()?;
    let mut head = [0u8; 20];
    stream.read_exact(&mut head).ok()?;
    let (_, length, _) = header(&head)?;
    let mut message = head.to_vec();
    message.resize(20 + length, 0);
    stream.read_exact(&mut message[20..]).ok()?;
    parse_response(&message, &transaction)
}

/// The transaction of a number.
pub(crate) fn numbered(number: u64) -> Transaction {
    let mut t = [0; 16];
    t[..4].copy_from_slice(&MAGIC);
    t[4..8].copy_from_slice(&std::process::id().to_be_bytes());
    t[8..].copy_from_slice(&number.to_be_bytes());
    t
}

fn new_transaction() -> Transaction {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    numbered(NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_answer() {
        let t = new_transaction();
        let r = parse_request(&request(&t, CHANGE_IP | CHANGE_PORT)).unwrap();
        assert_eq!(r.change, 6);
        for mapped in ["198.51.100.7:40001", "[2001:db8::7]:9"] {
            let mapped: SocketAddr = mapped.parse().unwrap();
            let m = response(&r, mapped, mapped, Some(mapped));
            assert_eq!(parse_response(&m, &t), Some(mapped));
            assert_eq!(parse_response(&m, &[9; 16]), None);
            for n in 0..m.len() {
                let _ = parse_request(&m[..n]);
            }
        }
    }

    #[test]
    fn a_client_of_the_first_standard_is_answered() {
        let mut m = request(&[7; 16], CHANGE_PORT);
        let r = parse_request(&m).unwrap();
        let at = "198.51.100.7:40001".parse().unwrap();
        m = response(&r, at, at, Some(at));
        let kinds: Vec<u16> = attributes(&m).map(|(k, _)| k).collect();
        assert_eq!(kinds, [MAPPED_ADDRESS, SOURCE_ADDRESS, CHANGED_ADDRESS]);
        assert_eq!(m[4..20], [7; 16]);
    }

    #[test]
    fn the_published_test_vector_decodes() {
        // RFC 5769, 2.2: XOR-MAPPED-ADDRESS of 192.0.2.1 port 32853.
        let t: Transaction =
            [0x21, 0x12, 0xa4, 0x42, 0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae];
        let mut m = start(BINDING_RESPONSE, &t);
        put(&mut m, XOR_MAPPED_ADDRESS, &[0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43]);
        assert_eq!(parse_response(&m, &t), Some("192.0.2.1:32853".parse().unwrap()));
    }
}
