//! A master on loopback and a client that speaks plain HTTP to it.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anywire_master::{Port, PortRange, Running, Settings, start};
use codec::{Map, Value};

pub(crate) const TAG: &str = "d02c31189fe2f64c0a20e521";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) struct Master {
    pub(crate) running: Option<Running>,
    pub(crate) at: SocketAddr,
    pub(crate) runtime: tokio::runtime::Runtime,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Map<String, Value> {
        codec::object(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::quiet();
    settings.port = 0;
    settings.bind = LOOPBACK;
    settings.relay_ip = Some(LOOPBACK);
    settings.relay_bind = LOOPBACK;
    settings.relay_ports = PortRange { first: 0, last: 0 };
    settings.shared_port = Port::At(0);
    (settings.stun_port, settings.stun_other_port) = (Port::At(0), Port::At(0));
    settings.pipe_port = Port::At(0);
    settings
}

impl Master {
    pub(crate) fn new(settings: Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let running = runtime.block_on(start(settings)).unwrap();
        Self { at: running.http, running: Some(running), runtime }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.at)
    }

    pub(crate) fn send(&self, raw: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(raw.as_bytes()).unwrap();
        read(&mut stream)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.send(&post(path, body, ""))
    }

    pub(crate) fn part(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop());
        }
    }
}

pub(crate) fn post(path: &str, body: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Reads one answer with a content length, or up to the end of the connection.
pub(crate) fn read(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed after {:?}", String::from_utf8_lossy(&bytes));
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).unwrap();
    Answer { status, head, body }
}

pub(crate) fn udp() -> UdpSocket {
    let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// The next datagram, or nothing for a quarter of a second.
pub(crate) fn quiet(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
    let nothing = socket.recv_from(&mut [0; 2048]).is_err();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    nothing
}

pub(crate) fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let (len, _) = socket.recv_from(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

pub(crate) fn row(id: &str, name: &str) -> String {
    format!(
        r#"{{"id": "{id}", "name": "{name}", "code": "AAAA", "players": 1, "max": 4, "type": "host", "version": "0.7"}}"#
    )
}
