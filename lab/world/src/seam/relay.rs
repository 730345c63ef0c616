//! A small UDP relay on loopback that makes a clean network bad, with the product's own model of a bad one.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netem::{Link, LinkConfig};

use super::Network;

/// Everything sent to it goes to one address, and back, over two impaired links per sender.
pub struct UdpRelay {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Way {
    socket: UdpSocket,
    there: Link,
    back: Link,
}

impl UdpRelay {
    /// A relay in front of `target`.
    ///
    /// # Panics
    /// When loopback has no port left.
    pub fn new(target: SocketAddr, line: LinkConfig, seed: u8) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
        front.set_nonblocking(true).expect("a socket of ours");
        let address = front.local_addr().expect("bound");
        let (cut, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (Arc::clone(&cut), Arc::clone(&over));
        let thread = std::thread::spawn(move || run(&front, target, line, seed, &flags.0, &flags.1));
        Self { address, cut, over, thread: Some(thread) }
    }

    /// Where to send.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Network for UdpRelay {
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }
}

impl Drop for UdpRelay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(front: &UdpSocket, target: SocketAddr, line: LinkConfig, seed: u8, cut: &AtomicBool, over: &AtomicBool) {
    let mut ways: HashMap<SocketAddr, Way> = HashMap::new();
    let mut buffer = vec![0; 65_536];
    while !over.load(Ordering::Acquire) {
        let now = Instant::now();
        let dead = cut.load(Ordering::Acquire);
        while let Ok((len, from)) = front.recv_from(&mut buffer) {
            let number = u8::try_from(ways.len() % 200).unwrap_or(0);
            let way = ways.entry(from).or_insert_with(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
                socket.set_nonblocking(true).expect("a socket of ours");
                let link = |way: u8| Link::new(line, [seed.wrapping_add(number).wrapping_mul(2).wrapping_add(way); 32]);
                Way { socket, there: link(0), back: link(1) }
            });
            if !dead {
                way.there.push(now, buffer[..len].to_vec());
            }
        }
        for (from, way) in &mut ways {
            while let Ok((len, _)) = way.socket.recv_from(&mut buffer) {
                if !dead {
                    way.back.push(now, buffer[..len].to_vec());
                }
            }
            while let Some(datagram) = way.there.pop(now) {
                let _ = way.socket.send_to(&datagram, target);
            }
            while let Some(datagram) = way.back.pop(now) {
                let _ = front.send_to(&datagram, from);
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}
