//! The conformance kit on a host with two wires at once; joiners come by each of them in turn.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anywire::{EnetTransport, HostOptions, HostWire, JoinOptions, LobbyTransport, Peer, PeerId, Transport, host_on};
use anywire_world::conformance;
use anywire_world::seam::{Gap, Hosted, Plain, Stage};
use netem::LinkConfig;

struct Both(AtomicUsize);

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn enet() -> EnetTransport {
    EnetTransport { bind: here(), ..EnetTransport::default() }
}

fn lobby() -> LobbyTransport {
    LobbyTransport { stun: Vec::new(), bind: Some(here()), ..LobbyTransport::default() }
}

impl Stage for Both {
    fn gaps(&self) -> &'static [Gap] {
        // Each wire shows these by itself.
        &[Gap::BadLine, Gap::Death]
    }

    fn host(&self, options: HostOptions, _: LinkConfig, _: u8) -> Hosted {
        let wires = [HostWire::Enet(enet()), HostWire::Lobby(lobby())];
        let mut peer = host_on(&wires, &options).expect("loopback has ports");
        let end = Instant::now() + Duration::from_secs(20);
        let address = loop {
            if let Some(both) = peer.invite().filter(|both| both.contains(' ')) {
                break both;
            }
            assert!(Instant::now() < end, "nobody has to be asked for these");
            std::thread::sleep(Duration::from_millis(2));
            peer.flush();
        };
        Hosted { peer, address, network: Box::new(Plain) }
    }

    fn join(&self, address: &str, options: JoinOptions, id: Option<u32>) -> Box<dyn Peer> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let address = address.split(' ').nth(number % 2).expect("two of them").to_owned();
        let (options, id) = (JoinOptions { address, ..options }, id.and_then(PeerId::new));
        let joined = if number.is_multiple_of(2) {
            EnetTransport { id, ..enet() }.join(&options)
        } else {
            LobbyTransport { id, ..lobby() }.join(&options)
        };
        joined.expect("a socket")
    }
}

conformance!(Both(AtomicUsize::new(0)));
