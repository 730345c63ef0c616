//! Whose thread does a party's work: the game's, or one of its own.

mod threaded;

use std::time::Instant;

use seam::{Channel, Delivery, Drive, Event, LinkStats, OpenError, Peer, PeerId, PeerState, SendError, Target};

use crate::party::Party;

/// A peer of this party.
pub(crate) fn drive(mut party: Party, drive: Drive) -> Result<Box<dyn Peer>, OpenError> {
    // A host's invitation is known before anybody polls.
    party.turn(Instant::now());
    match drive {
        Drive::Inline => Ok(Box::new(InlinePeer { party })),
        Drive::Threaded => Ok(Box::new(threaded::ThreadedPeer::start(party)?)),
    }
}

/// A peer that works when it is polled.
struct InlinePeer {
    party: Party,
}

impl Peer for InlinePeer {
    fn id(&self) -> PeerId {
        self.party.id()
    }

    fn state(&self) -> PeerState {
        self.party.state()
    }

    fn poll(&mut self) -> Option<Event> {
        if let Some(event) = self.party.poll_event() {
            return Some(event);
        }
        self.party.turn(Instant::now());
        self.party.poll_event()
    }

    fn send(&mut self, target: Target, channel: Channel, delivery: Delivery, data: &[u8]) -> Result<(), SendError> {
        self.party.send(Instant::now(), target, channel, delivery, data)
    }

    fn flush(&mut self) {
        self.party.turn(Instant::now());
    }

    fn max_packet_size(&self, delivery: Delivery) -> usize {
        Party::max_packet_size(delivery)
    }

    fn peers(&self) -> Vec<PeerId> {
        self.party.peers()
    }

    fn name(&self, peer: PeerId) -> Option<String> {
        self.party.name(peer)
    }

    fn invite(&self) -> Option<String> {
        self.party.invite()
    }

    fn link_stats(&self, peer: PeerId) -> Option<LinkStats> {
        self.party.link_stats(peer)
    }

    fn kick(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError> {
        self.party.kick(Instant::now(), peer, code, text, false)
    }

    fn ban(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), SendError> {
        self.party.kick(Instant::now(), peer, code, text, true)
    }

    fn refuse_new(&mut self, refuse: bool) {
        self.party.refuse_new(refuse);
    }

    fn close(&mut self) {
        self.party.close(Instant::now());
    }
}
