//! The conformance kit on the lobby: real sessions over loopback, joined by code. Bad lines are the product's own faults.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anywire::{HostOptions, JoinOptions, LobbyTransport, Peer, PeerId, Transport};
use anywire_world::conformance;
use anywire_world::seam::{Gap, Hosted, Plain, Stage};
use netem::{Impairment, LinkConfig, Loss};

/// The faults of a session's joiners, by its code.
static FAULTS: Mutex<Vec<(String, Option<Impairment>)>> = Mutex::new(Vec::new());

struct Lobby;

fn wire(impair: Option<Impairment>) -> LobbyTransport {
    let bind = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    LobbyTransport { stun: Vec::new(), bind, impair, ..LobbyTransport::default() }
}

impl Stage for Lobby {
    fn gaps(&self) -> &'static [Gap] {
        // A host in this process cannot vanish without a word.
        &[Gap::Death]
    }

    fn host(&self, options: HostOptions, line: LinkConfig, seed: u8) -> Hosted {
        let loss = if let Loss::Random(loss) = line.loss { loss } else { 0.0 };
        let impair = Impairment { loss, delay: line.delay, jitter: line.jitter, rate: None, seed: Some(seed.into()) };
        let impair = Some(impair).filter(|impair| !impair.is_none());
        let mut peer = wire(impair).host(&options).expect("loopback has ports");
        let end = Instant::now() + Duration::from_secs(20);
        let address = loop {
            if let Some(code) = peer.invite() {
                break code;
            }
            assert!(Instant::now() < end, "nobody has to be asked for this code");
            std::thread::sleep(Duration::from_millis(2));
            peer.flush();
        };
        FAULTS.lock().expect("no row panics in here").push((address.clone(), impair));
        Hosted { peer, address, network: Box::new(Plain) }
    }

    fn join(&self, address: &str, options: JoinOptions, id: Option<u32>) -> Box<dyn Peer> {
        let faults = FAULTS.lock().expect("no row panics in here");
        let impair = faults.iter().find(|(code, _)| code == address).and_then(|(_, impair)| *impair);
        let wire = LobbyTransport { id: id.and_then(PeerId::new), ..wire(impair) };
        wire.join(&JoinOptions { address: address.to_owned(), ..options }).expect("a socket")
    }
}

conformance!(Lobby);
