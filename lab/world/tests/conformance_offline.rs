//! The conformance kit on the offline wire, which is alone by design.

use anywire::{HostOptions, JoinOptions, OfflineTransport, OpenError, Peer, Transport};
use anywire_world::conformance;
use anywire_world::seam::{Gap, Hosted, Plain, Stage};
use netem::LinkConfig;

struct Offline;

impl Stage for Offline {
    fn gaps(&self) -> &'static [Gap] {
        &[Gap::Alone]
    }

    fn host(&self, options: HostOptions, _: LinkConfig, _: u8) -> Hosted {
        let peer = OfflineTransport.host(&options).expect("nothing can fail");
        Hosted { peer, address: String::new(), network: Box::new(Plain) }
    }

    fn join(&self, _: &str, options: JoinOptions, _: Option<u32>) -> Box<dyn Peer> {
        OfflineTransport.join(&options).expect("rows do not join here")
    }
}

conformance!(Offline);

#[test]
fn alone_there_is_nobody_to_join() {
    let refused = OfflineTransport.join(&JoinOptions::default()).err();
    assert!(matches!(&refused, Some(OpenError::Unavailable(..))), "{refused:?}");
}
