//! The UDP socket under ENet: never blocks, counts bytes per address, and does not end a session over one datagram.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::UdpSocket;
use rusty_enet::{MTU_MAX, PacketReceived};

/// Asked of the system for both directions.
const BUFFER: usize = 2 << 20;
/// Receives that fail in a row before the socket counts as empty for now.
const FAILURES: u32 = 64;

/// What went to and came from an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) heard: Instant,
}

pub(super) struct Socket {
    pub(super) udp: UdpSocket,
    /// Addresses that are counted: those with a connection.
    pub(super) traffic: HashMap<SocketAddr, Traffic>,
    /// Nothing was left at the last look; the next datagram wakes the wait.
    pub(super) empty: Cell<bool>,
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        use socket2::{Domain, Protocol, Type};
        let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // A smaller buffer than wished is no reason not to play.
        let _smaller = (socket.set_recv_buffer_size(BUFFER), socket.set_send_buffer_size(BUFFER));
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let udp = UdpSocket::from_std(socket.into());
        Ok(Self { udp, traffic: HashMap::new(), empty: Cell::new(false) })
    }
}

impl rusty_enet::Socket for Socket {
    type Address = SocketAddr;
    type Error = io::Error;

    fn send(&mut self, address: SocketAddr, buffer: &[u8]) -> io::Result<usize> {
        if let Some(traffic) = self.traffic.get_mut(&address) {
            traffic.sent += u64::try_from(buffer.len()).unwrap_or(0);
        }
        // What the system does not take is lost like any other datagram; ENet would end the whole host over an error.
        Ok(self.udp.send_to(buffer, address).unwrap_or(0))
    }

    fn receive(&mut self, buffer: &mut [u8; MTU_MAX]) -> io::Result<Option<(SocketAddr, PacketReceived)>> {
        for _ in 0..FAILURES {
            match self.udp.recv_from(buffer) {
                Ok((len, from)) => {
                    self.empty.set(false);
                    if let Some(traffic) = self.traffic.get_mut(&from) {
                        traffic.received += u64::try_from(len).unwrap_or(0);
                        traffic.heard = Instant::now();
                    }
                    return Ok(Some((from, PacketReceived::Complete(len))));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.empty.set(true);
                    return Ok(None);
                }
                // Some system tells a sender here that nobody listens at the other end.
                Err(_) => {}
            }
        }
        Ok(None)
    }
}
