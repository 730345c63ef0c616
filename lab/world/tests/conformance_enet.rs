//! The conformance kit on ENet; bad lines are made by a small relay.

use std::net::SocketAddr;
use std::time::Duration;

use anywire::{EnetTransport, HostOptions, JoinOptions, Peer, PeerId, Transport};
use anywire_world::conformance;
use anywire_world::seam::{Gap, Hosted, Stage, UdpRelay};
use netem::LinkConfig;

struct Enet;

fn wire() -> EnetTransport {
    EnetTransport { bind: SocketAddr::from(([127, 0, 0, 1], 0)), silence: Duration::from_secs(8), id: None }
}

impl Stage for Enet {
    fn gaps(&self) -> &'static [Gap] {
        &[]
    }

    fn host(&self, options: HostOptions, line: LinkConfig, seed: u8) -> Hosted {
        let mut peer = wire().host(&options).expect("loopback has ports");
        while peer.invite().is_none() {
            // The first event is the connection; it is heard once more by the row, from the peer's own state.
            std::thread::sleep(Duration::from_millis(1));
            if options.drive == anywire::Drive::Inline {
                peer.flush();
            }
        }
        let address: SocketAddr = peer.invite().and_then(|text| text.parse().ok()).expect("an address");
        let relay = UdpRelay::new(address, line, seed);
        Hosted { peer, address: relay.address().to_string(), network: Box::new(relay) }
    }

    fn join(&self, address: &str, options: JoinOptions, id: Option<u32>) -> Box<dyn Peer> {
        let wire = EnetTransport { id: id.and_then(PeerId::new), ..wire() };
        wire.join(&JoinOptions { address: address.to_owned(), ..options }).expect("a socket")
    }
}

conformance!(Enet);
