//! One UDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use bytes::BytesMut;
use mio::net::UdpSocket as MioSocket;
use quinn_udp::{BATCH_SIZE, Transmit, UdpSockRef, UdpSocketState};
use seam::SocketId;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::RecvPool;

/// Receive and send buffers asked of the kernel.
pub const BUFFER_WANTED: usize = 4 << 20;

/// Whether one receive call takes many messages, so that a call which was not full has emptied the socket.
const RECEIVES_MANY: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// A non-blocking UDP socket with batched receive and send.
pub struct UdpSocket {
    id: SocketId,
    pub(crate) io: MioSocket,
    state: UdpSocketState,
    local: SocketAddr,
    granted: (usize, usize),
}

impl UdpSocket {
    /// Binds `address` for this process alone: a second program that asks for the same port is refused instead of
    /// taking the first one's datagrams away (UDP has no lingering state that would need address sharing).
    ///
    /// # Errors
    /// The operating system's refusal, [`io::ErrorKind::AddrInUse`] among them.
    pub fn bind(id: SocketId, address: SocketAddr) -> io::Result<Self> {
        Self::open(id, address, false)
    }

    /// Binds `address` with SO_REUSEADDR, as old peers do (netpunch wire, section 1). On most systems two sockets bound
    /// like this share the port and only one of them hears anything.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn bind_shared(id: SocketId, address: SocketAddr) -> io::Result<Self> {
        Self::open(id, address, true)
    }

    /// Binds `address` for one family alone, able to send broadcasts. With `shared` other processes may bind it the same
    /// way; all of them hear a broadcast, and only one of them a datagram to the machine's own address.
    ///
    /// # Errors
    /// The operating system's refusal, [`io::ErrorKind::AddrInUse`] where somebody does not share the port.
    pub fn bind_broadcast(id: SocketId, address: SocketAddr, shared: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_broadcast(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if shared {
            socket.set_reuse_address(true)?;
            // There the first option alone does not let two processes bind one address.
            #[cfg(all(
                unix,
                not(any(target_os = "linux", target_os = "android", target_os = "solaris", target_os = "illumos"))
            ))]
            socket.set_reuse_port(true)?;
        }
        Self::ready(id, socket, address)
    }

    fn open(id: SocketId, address: SocketAddr, shared: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if shared {
            socket.set_reuse_address(true)?;
        }
        if address.is_ipv6() {
            // Best effort: a system without dual-stack sockets still has IPv6.
            let _single_stack = socket.set_only_v6(false);
        }
        Self::ready(id, socket, address)
    }

    fn ready(id: SocketId, socket: Socket, address: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        // A refusal shows in `granted`.
        let _receive = socket.set_recv_buffer_size(BUFFER_WANTED);
        let _send = socket.set_send_buffer_size(BUFFER_WANTED);
        let io = MioSocket::from_std(socket.into());
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        crate::tune::tune(&io);
        let local = io.local_addr()?;
        let granted = {
            let socket = SockRef::from(&io);
            // Linux reports twice what it was asked, the other half being its own bookkeeping.
            let share = if cfg!(any(target_os = "linux", target_os = "android")) { 2 } else { 1 };
            (socket.recv_buffer_size()? / share, socket.send_buffer_size()? / share)
        };
        Ok(Self { id, io, state, local, granted })
    }

    /// The number its owner gave it.
    #[must_use]
    pub fn id(&self) -> SocketId {
        self.id
    }

    /// The address it is bound to; the port is the real one.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Bytes of receive and send buffer that the kernel granted.
    #[must_use]
    pub fn granted(&self) -> (usize, usize) {
        self.granted
    }

    /// A sentence for the log when the kernel grants less than [`BUFFER_WANTED`] (pain 77).
    #[must_use]
    pub fn shortfall(&self) -> Option<String> {
        let (receive, send) = self.granted;
        if receive >= BUFFER_WANTED && send >= BUFFER_WANTED {
            return None;
        }
        let hint = if cfg!(target_os = "linux") {
            "; sysctl net.core.rmem_max and net.core.wmem_max set the limit"
        } else {
            ""
        };
        Some(format!(
            "the system grants {} KiB of receive and {} KiB of send buffer where {} KiB were asked: bursts may be \
             lost{hint}",
            receive >> 10,
            send >> 10,
            BUFFER_WANTED >> 10
        ))
    }

    /// Takes what is waiting, at most 32 messages of up to 64 coalesced datagrams, and appends each datagram with its
    /// sender to `out`, in order of arrival. Empty datagrams are dropped. True means that more may wait: call again
    /// before the next wait.
    ///
    /// # Errors
    /// What the system says of the socket itself. An unreachable peer is no error of the socket.
    pub fn recv_batch(&mut self, pool: &mut RecvPool, out: &mut Vec<(SocketAddr, BytesMut)>) -> io::Result<bool> {
        let received =
            pool.land(|slots, meta| self.io.try_io(|| self.state.recv(UdpSockRef::from(&self.io), slots, meta)));
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(false),
                    // Some systems report an earlier datagram's ICMP answer here; the next call goes on behind it.
                    io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::Interrupted => Ok(true),
                    _ => Err(error),
                };
            }
        };
        for index in 0..count {
            let Some(meta) = pool.meta.get(index).copied() else { break };
            let from = canonical(meta.addr);
            pool.lift(index, meta.len, meta.stride, |datagram| out.push((from, datagram)));
        }
        Ok(!RECEIVES_MANY || count >= BATCH_SIZE)
    }

    /// Most datagrams of one size that leave in one call at present; 1 when the kernel cannot do it.
    #[must_use]
    pub fn max_segments(&self) -> usize {
        self.state.max_gso_segments().max(1)
    }

    /// Sends one datagram.
    pub(crate) fn send_one(&self, remote: SocketAddr, data: &[u8]) -> io::Result<()> {
        self.io.send_to(data, self.outward(remote)).map(drop)
    }

    /// Sends a run of datagrams of `segment` bytes each, the last possibly shorter, in one call.
    pub(crate) fn send_run(&self, remote: SocketAddr, data: &[u8], segment: usize) -> io::Result<()> {
        let transmit = Transmit {
            destination: self.outward(remote),
            ecn: None,
            contents: data,
            segment_size: Some(segment),
            src_ip: None,
        };
        self.io.try_io(|| self.state.try_send(UdpSockRef::from(&self.io), &transmit))
    }

    /// IPv4 addresses as an IPv6 socket wants them.
    fn outward(&self, remote: SocketAddr) -> SocketAddr {
        match remote {
            SocketAddr::V4(v4) if self.local.is_ipv6() => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            _ => remote,
        }
    }
}

/// IPv4-mapped IPv6 addresses written as IPv4: one sender, one address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), address.port()),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}
