//! Finding out, from the outside, how a lab behaves: NAT discovery after RFC
//! 5780, hole punching, UPnP, broadcasts, link quality.

mod gateway;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::lab::Handle;
use crate::nat::Dependence;
use crate::net::Result;
use crate::stun::{self, CHANGE_IP, CHANGE_PORT};
use crate::sys;

pub use gateway::{Gateway, find_gateway};

/// How a NAT chooses outside ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortUse {
    /// The inside port.
    Preserved,
    /// The one after the last.
    Sequential,
    /// Any.
    Random,
}

/// What becomes of a connection from a stranger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpIn {
    /// It is made.
    Accepted,
    /// Nobody answers.
    Dropped,
    /// It is answered with a reset.
    Refused,
}

/// How what stands in front of a host behaves.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// UDP goes out and comes back.
    pub udp: bool,
    /// The outside sees another address than the host's own.
    pub translated: bool,
    /// What the first STUN server saw.
    pub mapped: Option<SocketAddr>,
    /// Which remotes share an outside port.
    pub mapping: Option<Dependence>,
    /// Which remotes are let in.
    pub filtering: Option<Dependence>,
    /// How outside ports are chosen, where there is a NAT.
    pub ports: Option<PortUse>,
    /// As `mapping`, for TCP.
    pub tcp_mapping: Option<Dependence>,
    /// What becomes of a stranger's connection to the mapped port.
    pub tcp_in: Option<TcpIn>,
}

/// EIM, ADM, APDM, EIF and so on; '-' for nothing seen.
pub fn short(d: Option<Dependence>, suffix: &str) -> String {
    match d {
        Some(Dependence::Independent) => format!("EI{suffix}"),
        Some(Dependence::Address) => format!("AD{suffix}"),
        Some(Dependence::AddressPort) => format!("APD{suffix}"),
        None => "-".into(),
    }
}

/// A UDP socket of a node, bound to a port of all its addresses (0 for any).
pub fn udp_socket(lab: &Handle, node: &str, port: u16) -> Result<UdpSocket> {
    lab.inside(node, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?
        .map_err(|e| format!("{node} cannot bind UDP port {port}: {e}"))
}

/// A socket's outside address, as a STUN server of the lab sees it.
pub fn mapped(socket: &UdpSocket, server: SocketAddr, limit: Duration) -> Result<SocketAddr> {
    stun::ask(socket, server, 0, limit).ok_or_else(|| format!("no answer from STUN at {server}"))
}

/// What mapped addresses, seen from each server address and port in turn, say.
fn dependence(seen: [[SocketAddr; 2]; 2]) -> Dependence {
    if seen[0][0] == seen[0][1] && seen[0][0] == seen[1][0] && seen[0][0] == seen[1][1] {
        Dependence::Independent
    } else if seen[0][0] == seen[0][1] && seen[1][0] == seen[1][1] {
        Dependence::Address
    } else {
        Dependence::AddressPort
    }
}

/// NAT discovery from one host. `patience` is how long an answer may take.
pub fn discover(lab: &Handle, host: &str, patience: Duration) -> Result<Behaviour> {
    let servers = lab.stun_servers();
    let own = lab.topology.ip(host).map(IpAddr::V4);
    let mut b = Behaviour {
        udp: false,
        translated: false,
        mapped: None,
        mapping: None,
        filtering: None,
        ports: None,
        tcp_mapping: None,
        tcp_in: None,
    };
    let socket = udp_socket(lab, host, 0)?;
    if let Some(first) = stun::ask(&socket, servers[0][0], 0, patience) {
        b.udp = true;
        b.mapped = Some(first);
        b.translated = Some(first.ip()) != own;
        let ask = |s| stun::ask(&socket, s, 0, patience * 2).ok_or("a STUN server fell silent");
        b.mapping = Some(dependence([[first, ask(servers[0][1])?], [ask(servers[1][0])?, ask(servers[1][1])?]]));
        // Sockets that have talked to nobody else.
        let quiet = |change| -> Result<bool> {
            let s = udp_socket(lab, host, 0)?;
            Ok(stun::ask(&s, servers[0][0], change, patience).is_some())
        };
        b.filtering = Some(if quiet(CHANGE_IP | CHANGE_PORT)? {
            Dependence::Independent
        } else if quiet(CHANGE_PORT)? {
            Dependence::Address
        } else {
            Dependence::AddressPort
        });
        if b.translated {
            let mut pairs = Vec::new();
            for _ in 0..6 {
                let s = udp_socket(lab, host, 0)?;
                let local = s.local_addr().map_err(|e| e.to_string())?.port();
                let mapped = stun::ask(&s, servers[0][0], 0, patience * 2).ok_or("STUN fell silent")?;
                pairs.push((local, mapped.port()));
            }
            b.ports = Some(if pairs.iter().all(|(l, m)| l == m) {
                PortUse::Preserved
            } else if pairs.windows(2).all(|w| (1..=3).contains(&w[1].1.wrapping_sub(w[0].1))) {
                PortUse::Sequential
            } else {
                PortUse::Random
            });
        }
    }
    tcp(lab, host, &mut b, patience)?;
    Ok(b)
}

fn tcp(lab: &Handle, host: &str, b: &mut Behaviour, patience: Duration) -> Result<()> {
    let servers = lab.stun_servers();
    let listener = lab.inside(host, || tcp_listen(0))?.map_err(|e| format!("{host} cannot listen: {e}"))?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let mut streams = Vec::new();
    let mut seen = Vec::new();
    for server in servers.iter().flatten() {
        let stream = lab.inside(host, || tcp_connect(port, *server, patience.max(Duration::from_millis(500))))?;
        let Ok(mut stream) = stream else {
            return Ok(());
        };
        let Some(mapped) = stun::ask_tcp(&mut stream) else {
            return Ok(());
        };
        seen.push(mapped);
        streams.push(stream);
    }
    b.tcp_mapping = Some(dependence([[seen[0], seen[1]], [seen[2], seen[3]]]));
    let target = seen[0];
    let attempt = lab.inside("master", || tcp_connect(0, target, patience))?;
    b.tcp_in = Some(match attempt {
        Ok(_) => TcpIn::Accepted,
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => TcpIn::Refused,
        Err(_) => TcpIn::Dropped,
    });
    Ok(())
}

/// A TCP socket on a port that others of ours may share.
fn tcp_socket(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    Ok(socket)
}

/// Listens on a port that others of ours may share.
pub fn tcp_listen(port: u16) -> io::Result<TcpListener> {
    let socket = tcp_socket(port)?;
    socket.listen(16)?;
    Ok(socket.into())
}

/// Connects from a given local port (0 for any).
pub fn tcp_connect(port: u16, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let socket = tcp_socket(port)?;
    socket.connect_timeout(&to.into(), limit.max(Duration::from_millis(1)))?;
    Ok(socket.into())
}

/// Two peers that know each other's STUN address send to it, answer whoever
/// reaches them, and are done when each has heard that the other hears it.
pub fn punch(lab: &Handle, a: &str, b: &str, limit: Duration) -> Result<bool> {
    let server = lab.stun_servers()[0][0];
    let mut ends = Vec::new();
    for node in [a, b] {
        let socket = udp_socket(lab, node, 0)?;
        let Some(mapped) = stun::ask(&socket, server, 0, limit) else {
            return Ok(false);
        };
        ends.push((socket, mapped));
    }
    let targets = [ends[1].1, ends[0].1];
    let sockets: Vec<UdpSocket> = ends.into_iter().map(|(s, _)| s).collect();
    meet(&sockets, targets, limit)
}

/// The exchange itself, for sockets that know where to send.
pub fn meet(sockets: &[UdpSocket], mut targets: [SocketAddr; 2], limit: Duration) -> Result<bool> {
    for s in sockets {
        s.set_nonblocking(true).map_err(|e| e.to_string())?;
    }
    let end = Instant::now() + limit;
    let (mut heard, mut answered) = ([false; 2], [false; 2]);
    let mut next = Instant::now();
    let mut buf = [0u8; 64];
    while Instant::now() < end {
        if Instant::now() >= next {
            for i in 0..2 {
                let _ = sockets[i].send_to(&[b'p', u8::from(heard[i])], targets[i]);
            }
            next += Duration::from_millis(25);
        }
        for i in 0..2 {
            while let Ok((n, from)) = sockets[i].recv_from(&mut buf) {
                if n == 2 && buf[0] == b'p' {
                    heard[i] = true;
                    answered[i] |= buf[1] == 1;
                    targets[i] = from;
                }
            }
        }
        if answered == [true; 2] {
            return Ok(true);
        }
        let fds = [sockets[0].as_raw_fd(), sockets[1].as_raw_fd()];
        sys::wait(&fds, Some(next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))));
    }
    Ok(false)
}

/// TCP hole punching: each side listens on the port that it asked STUN from,
/// and connects from it to the other's STUN address, until bytes cross.
pub fn tcp_punch(lab: &Handle, a: &str, b: &str, limit: Duration) -> Result<bool> {
    let server = lab.stun_servers()[0][0];
    let mut ends = Vec::new();
    for node in [a, b] {
        let ns = lab.namespace(node)?;
        let listener = crate::net::inside(&ns, || tcp_listen(0))
            .and_then(|l| l)
            .map_err(|e| format!("{node} cannot listen: {e}"))?;
        listener.set_nonblocking(true).map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let stream = crate::net::inside(&ns, || tcp_connect(port, server, limit));
        let Ok(Ok(mut stream)) = stream else {
            return Ok(false);
        };
        let Some(mapped) = stun::ask_tcp(&mut stream) else {
            return Ok(false);
        };
        ends.push((ns, listener, port, mapped, stream));
    }
    let end = Instant::now() + limit;
    let met = [AtomicBool::new(false), AtomicBool::new(false)];
    let (ends, met) = (&ends, &met);
    std::thread::scope(|s| {
        for i in 0..2 {
            let (ns, listener, port, _, _) = &ends[i];
            let to = ends[1 - i].3;
            let greet = move |stream: TcpStream| {
                if greeted(stream, i as u8, end) {
                    met[i].store(true, Relaxed);
                }
            };
            let going = move || !met[i].load(Relaxed) && Instant::now() < end;
            s.spawn(move || {
                while going() {
                    sys::wait(&[listener.as_raw_fd()], Some(Duration::from_millis(20)));
                    if let Ok((stream, _)) = listener.accept() {
                        let _ = stream.set_nonblocking(false);
                        greet(stream);
                    }
                }
            });
            s.spawn(move || {
                while going() {
                    let left = end.saturating_duration_since(Instant::now());
                    match crate::net::inside(ns, || tcp_connect(*port, to, left)) {
                        Ok(Ok(stream)) => greet(stream),
                        _ => std::thread::sleep(Duration::from_millis(20)),
                    }
                }
            });
        }
    });
    Ok(met.iter().all(|m| m.load(Relaxed)))
}

/// Says who we are and hears that the peer is the other one.
fn greeted(mut stream: TcpStream, own: u8, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(50))));
    let mut got = [0u8; 2];
    stream.write_all(&[b'x', own]).is_ok() && stream.read_exact(&mut got).is_ok() && got == [b'x', 1 - own]
}

/// Whether datagrams from a stranger reach `port` of a host at `outside`.
pub fn reachable(lab: &Handle, host: &str, port: u16, outside: SocketAddr, limit: Duration) -> Result<bool> {
    let receiver = udp_socket(lab, host, port)?;
    let stranger = udp_socket(lab, "master", 0)?;
    receiver.set_read_timeout(Some(Duration::from_millis(30))).map_err(|e| e.to_string())?;
    let end = Instant::now() + limit;
    let mut buf = [0u8; 64];
    while Instant::now() < end {
        let _ = stranger.send_to(b"knock", outside);
        if let Ok((5, from)) = receiver.recv_from(&mut buf) {
            let _ = receiver.send_to(b"yes", from);
            stranger.set_read_timeout(Some(limit)).map_err(|e| e.to_string())?;
            return Ok(matches!(stranger.recv_from(&mut buf), Ok((3, at)) if at == outside));
        }
    }
    Ok(false)
}

/// Who of `listeners` hears a broadcast of `sender` to `to`.
pub fn broadcast(lab: &Handle, sender: &str, to: SocketAddr, listeners: &[&str]) -> Result<Vec<bool>> {
    let mut sockets = Vec::new();
    for node in listeners {
        sockets.push(udp_socket(lab, node, to.port())?);
    }
    let socket = udp_socket(lab, sender, 0)?;
    socket.set_broadcast(true).map_err(|e| e.to_string())?;
    for _ in 0..5 {
        socket.send_to(b"anyone?", to).map_err(|e| format!("{sender} cannot broadcast: {e}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    let mut buf = [0u8; 64];
    let mut heard = Vec::new();
    for s in sockets {
        s.set_nonblocking(true).map_err(|e| e.to_string())?;
        heard.push(s.recv_from(&mut buf).is_ok());
    }
    Ok(heard)
}

/// What became of a row of echoes.
pub struct Quality {
    /// How many were sent.
    pub sent: u32,
    /// How many came back.
    pub received: u32,
    /// Round trips in order of size.
    pub round_trips: Vec<Duration>,
}

/// Round trips and losses of echoes from a host to the STUN server.
pub fn quality(lab: &Handle, host: &str, count: u32, gap: Duration) -> Result<Quality> {
    let server = lab.stun_servers()[0][0];
    let socket = udp_socket(lab, host, 0)?;
    socket.set_nonblocking(true).map_err(|e| e.to_string())?;
    let mut q = Quality { sent: 0, received: 0, round_trips: Vec::new() };
    let mut sent_at = Vec::new();
    let mut buf = [0u8; 256];
    let start = Instant::now();
    let end = start + gap * count + Duration::from_millis(700);
    while Instant::now() < end && q.received < count {
        while q.sent < count && Instant::now() >= start + gap * q.sent {
            sent_at.push(Instant::now());
            let _ = socket.send_to(&stun::request(&stun::numbered(u64::from(q.sent)), 0), server);
            q.sent += 1;
        }
        while let Ok((n, _)) = socket.recv_from(&mut buf) {
            if n >= 20 {
                let i = u32::from_be_bytes([buf[16], buf[17], buf[18], buf[19]]) as usize;
                if let Some(at) = sent_at.get(i) {
                    q.received += 1;
                    q.round_trips.push(at.elapsed());
                }
            }
        }
        sys::wait(&[socket.as_raw_fd()], Some(Duration::from_millis(1)));
    }
    q.round_trips.sort();
    Ok(q)
}

/// Bits a second of one TCP stream from a host to the server `master`.
pub fn throughput(lab: &Handle, host: &str, time: Duration) -> Result<f64> {
    let listener = lab.inside("master", || tcp_listen(0))?.map_err(|e| format!("master cannot listen: {e}"))?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let ip = lab.topology.ip("master").ok_or("there is no server 'master'")?;
    let reader = std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else {
            return (0u64, Duration::ZERO);
        };
        let mut buf = vec![0u8; 1 << 16];
        let start = Instant::now();
        let mut total = 0u64;
        while let Ok(n @ 1..) = stream.read(&mut buf) {
            total += n as u64;
        }
        (total, start.elapsed())
    });
    let stream = lab.inside(host, || tcp_connect(0, SocketAddr::from((ip, port)), Duration::from_secs(3)))?;
    let mut stream = stream.map_err(|e| format!("{host} cannot connect: {e}"))?;
    let end = Instant::now() + time;
    let block = vec![0u8; 1 << 15];
    while Instant::now() < end {
        if stream.write_all(&block).is_err() {
            break;
        }
    }
    drop(stream);
    let (total, took) = reader.join().map_err(|_| "the reader failed")?;
    Ok(total as f64 * 8.0 / took.as_secs_f64().max(1e-3))
}
