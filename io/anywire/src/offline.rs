//! Alone: a connected host with a roster of one and no socket. From the game's point of view there is no single player.

use std::collections::VecDeque;

use seam::{
    Channel, CloseReason, Delivery, Event, HostOptions, JoinOptions, LinkStats, OpenError, Peer, PeerId, PeerState,
    SendError, Target, Transport, TransportKind,
};

use crate::links::{RELIABLE_MAX, UNRELIABLE_MAX};

/// Opens sessions of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfflineTransport;

impl Transport for OfflineTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Offline
    }

    fn is_available(&self) -> bool {
        true
    }

    fn host(&self, options: &HostOptions) -> Result<Box<dyn Peer>, OpenError> {
        let events = VecDeque::from([Event::Connected(PeerId::HOST)]);
        Ok(Box::new(OfflinePeer { name: options.name.clone(), state: PeerState::Connected, events }))
    }

    fn join(&self, _options: &JoinOptions) -> Result<Box<dyn Peer>, OpenError> {
        Err(OpenError::Unavailable(TransportKind::Offline, "alone there is nobody to join".to_owned()))
    }
}

struct OfflinePeer {
    name: String,
    state: PeerState,
    events: VecDeque<Event>,
}

impl Peer for OfflinePeer {
    fn id(&self) -> PeerId {
        PeerId::HOST
    }

    fn state(&self) -> PeerState {
        self.state
    }

    fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, target: Target, _: Channel, delivery: Delivery, data: &[u8]) -> Result<(), SendError> {
        if self.state != PeerState::Connected {
            return Err(SendError::NotConnected);
        }
        let max = self.max_packet_size(delivery);
        if data.len() > max {
            return Err(SendError::TooLarge { size: data.len(), max });
        }
        match target {
            Target::One(id) => Err(SendError::NoSuchPeer(id)),
            Target::AllBut(id) if id != PeerId::HOST => Err(SendError::NoSuchPeer(id)),
            Target::All | Target::AllBut(_) => Ok(()),
        }
    }

    fn max_packet_size(&self, delivery: Delivery) -> usize {
        if delivery == Delivery::Reliable { RELIABLE_MAX } else { UNRELIABLE_MAX }
    }

    fn peers(&self) -> Vec<PeerId> {
        Vec::new()
    }

    fn name(&self, peer: PeerId) -> Option<String> {
        (peer == PeerId::HOST).then(|| self.name.clone())
    }

    fn invite(&self) -> Option<String> {
        None
    }

    fn link_stats(&self, _: PeerId) -> Option<LinkStats> {
        None
    }

    fn kick(&mut self, peer: PeerId, _: u32, _: &str) -> Result<(), SendError> {
        Err(SendError::NoSuchPeer(peer))
    }

    fn ban(&mut self, peer: PeerId, _: u32, _: &str) -> Result<(), SendError> {
        Err(SendError::NoSuchPeer(peer))
    }

    fn refuse_new(&mut self, _: bool) {}

    fn close(&mut self) {
        if self.state != PeerState::Closed {
            self.state = PeerState::Closed;
            self.events.push_back(Event::Closed(CloseReason::ByUser));
        }
    }
}
