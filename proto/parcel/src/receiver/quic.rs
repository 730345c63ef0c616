//! A sender that speaks the word `quic`.

use std::time::Instant;

use bytes::BytesMut;
use seam::{Dice, Outbox};

use super::{Line, ReceiveEvent, Receiver, Stage};
use crate::quic::{Identity, TakeEvent, Taker};
use crate::words::{AwQuic, GaveUp, Word};
use crate::{Answer, Ask, digest};

impl Receiver {
    /// Dials the sender, where both ends speak the word. The key to be named in the acknowledgement is kept.
    pub(super) fn begin_quic(&mut self, now: Instant) {
        let (Some(word), Some(seed)) = (&self.offer.aw_quic, self.intake.quic) else { return };
        let (Some(peer), Some(root)) = (digest(&word.key), word.root.as_ref().and_then(|root| digest(root))) else {
            return;
        };
        let mut dice = Dice::new(seed);
        let Ok(me) = Identity::new(&dice.bytes()) else { return };
        let key = codec::hex(&me.public());
        if let Ok(taker) = Taker::new(me, peer, root, self.offer.total_bytes, dice.bytes(), now) {
            self.taker = Some(Box::new(taker));
            self.key = Some(AwQuic { key, root: None });
            self.line = Line::None;
        }
    }

    /// A packet `NP1:Q` came, without its head.
    pub fn handle_quic(&mut self, now: Instant, data: BytesMut) {
        if let Some(taker) = &mut self.taker {
            taker.handle_datagram(now, data);
            self.quic_events(now);
        }
    }

    /// Writes datagrams that are due. Says whether it wrote any.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) -> bool {
        self.taker.as_mut().is_some_and(|taker| taker.poll_transmit(now, self.from, out))
    }

    pub(super) fn quic_answer(&mut self, now: Instant, answer: &Answer) {
        let Some(taker) = &mut self.taker else { return };
        match answer {
            Answer::Found { blocks } => taker.handle_found(now, blocks),
            Answer::Kept { index, good } => taker.handle_kept(now, *index, *good),
            _ => return,
        }
        self.moved = now;
        self.quic_events(now);
    }

    pub(super) fn quic_timeout(&mut self, now: Instant) {
        if let Some(taker) = &mut self.taker {
            taker.handle_timeout(now);
            self.quic_events(now);
        }
    }

    pub(super) fn quic_ask(&mut self) -> Option<Ask> {
        self.taker.as_mut()?.poll_ask()
    }

    pub(super) fn quic_next(&self) -> Option<(Instant, &'static str)> {
        self.taker.as_ref()?.poll_timeout()
    }

    fn quic_events(&mut self, now: Instant) {
        while let Some(event) = self.taker.as_mut().and_then(|taker| taker.poll_event()) {
            match event {
                // The list is of the root that the sealed offer names, and every block of it is there.
                TakeEvent::Complete if self.stage == Stage::Receiving => {
                    self.stage = Stage::Committing;
                    self.moved = now;
                    self.asks.push_back(Ask::Commit);
                    self.feedback(now);
                }
                TakeEvent::GaveUp(_) => {
                    self.taker = None;
                    self.key = None;
                    self.moved = now;
                    self.events.push_back(ReceiveEvent::Again);
                    self.say(&Word::GaveUp(GaveUp { sid: self.offer.sid }));
                }
                _ => {}
            }
        }
    }
}
