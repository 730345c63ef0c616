//! Receivers that speak the word `quic`.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use seam::{Dice, Outbox, Path};

use super::{Fate, SendEvent, Sender};
use crate::quic::{BlockList, Giver, Identity};
use crate::words::{AwQuic, OfferAck};
use crate::{Ask, digest};

/// What a sender has for those receivers.
#[derive(Debug)]
pub(super) struct Means {
    me: Identity,
    list: Arc<BlockList>,
    dice: Dice,
}

impl Means {
    /// `None` where the library takes no key: chunks serve everybody then.
    pub(super) fn new(seed: [u8; 32], list: Arc<BlockList>) -> Option<Self> {
        let mut dice = Dice::new(seed);
        let me = Identity::new(&dice.bytes()).ok()?;
        Some(Self { me, list, dice })
    }

    pub(super) fn offer(&self) -> AwQuic {
        AwQuic { key: codec::hex(&self.me.public()), root: Some(codec::hex(&self.list.root())) }
    }
}

impl Sender {
    /// A receiver speaks the word `quic`. To be said before the files are measured.
    pub fn speaks_quic(&mut self, path: Path) {
        if let Some(target) = self.targets.get_mut(&path).filter(|_| self.offer.is_none()) {
            target.quic = true;
        }
    }

    /// A packet `NP1:Q` came, without its head.
    pub fn handle_quic(&mut self, now: Instant, path: Path, data: BytesMut) {
        if let Some(giver) = self.targets.get_mut(&path).and_then(|target| target.giver.as_mut()) {
            giver.handle_datagram(now, data);
        }
    }

    /// An acknowledgement that names a key.
    pub(super) fn quic_acknowledged(&mut self, now: Instant, path: Path, ack: &OfferAck) {
        let (Some(target), Some(means)) = (self.targets.get_mut(&path), &mut self.means) else { return };
        let Some(peer) = ack.aw_quic.as_ref().and_then(|word| digest(&word.key)).filter(|_| target.quic) else {
            return;
        };
        if target.giver.is_some() {
            return;
        }
        let seed = means.dice.bytes();
        if let Ok(giver) = Giver::new(&means.me, peer, Arc::clone(&means.list), seed, now) {
            (target.giver, target.peer) = (Some(Box::new(giver)), Some(peer));
            self.events.push_back(SendEvent::Fate { path, fate: Fate::Streaming });
        }
    }

    /// It does not come about: chunks from now on.
    pub(super) fn quic_gave_up(&mut self, now: Instant, path: Path) {
        if let Some(target) = self.targets.get_mut(&path).filter(|target| target.giver.is_some()) {
            (target.giver, target.peer, target.turn) = (None, None, now);
            self.events.push_back(SendEvent::Fate { path, fate: Fate::StreamBroke });
        }
    }

    pub(super) fn quic_data(&mut self, at: u64, data: &Bytes) {
        for target in self.targets.values_mut() {
            if let Some(giver) = &mut target.giver {
                giver.handle_data(at, data);
            }
        }
    }

    /// A connection that is over is awaited anew: its receiver dials again.
    pub(super) fn quic_timeout(&mut self, now: Instant) {
        for target in self.targets.values_mut().filter(|target| target.is_open()) {
            let Some(giver) = &mut target.giver else { continue };
            giver.handle_timeout(now);
            if giver.is_over()
                && let (Some(means), Some(peer)) = (&mut self.means, target.peer)
                && let Ok(again) = Giver::new(&means.me, peer, Arc::clone(&means.list), means.dice.bytes(), now)
            {
                **giver = again;
            }
        }
    }

    pub(super) fn quic_ask(&mut self) -> Option<Ask> {
        self.targets.values_mut().find_map(|target| target.giver.as_mut()?.poll_ask())
    }

    pub(super) fn quic_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        let mut wrote = false;
        for (path, target) in &mut self.targets {
            if let Some(giver) = &mut target.giver {
                wrote |= giver.poll_transmit(now, *path, out);
            }
        }
        wrote
    }

    pub(super) fn quic_next(&self) -> Option<(Instant, &'static str)> {
        let givers = self.targets.values().filter_map(|target| target.giver.as_ref());
        givers.filter_map(|giver| giver.poll_timeout()).min_by_key(|(at, _)| *at)
    }
}
