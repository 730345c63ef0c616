//! Answers STUN binding requests, in both forms.

use std::time::{Duration, Instant};

use seam::{Dice, RateTable};
use stun::{Answer, Request};
use tokio::net::UdpSocket;

/// An answer is about twice as long as its question, so a forged sender must not get many.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn serve(socket: UdpSocket, seed: [u8; 32]) {
    let start = Instant::now();
    let mut rates = RateTable::new(16_384, BURST, EVERY, Dice::new(seed).u64());
    let mut buffer = [0; 1500];
    loop {
        // An error here is an earlier answer that could not be delivered.
        let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
        let Ok(request) = Request::parse(buffer.get(..len).unwrap_or_default()) else { continue };
        let seen = std::net::SocketAddr::new(from.ip().to_canonical(), from.port());
        if rates.allow(start, Instant::now(), seen) {
            let _ = socket.send_to(&Answer::of(&request, seen).encode(), from).await;
        }
    }
}
