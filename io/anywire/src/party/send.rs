//! Sending: who gets a packet, by which link, and whether all of them can take it.

use std::time::Instant;

use bytes::Bytes;
use lanes::control::Mark;
use seam::{Channel, Delivery, PeerId, PeerState, SendError, Target};

use super::{Key, Party, Role};
use crate::links::{Lane, RELIABLE_MAX, UNRELIABLE_MAX};

/// One copy: the link, and the mark in front where the other end reads marks.
type Copy = (Key, Option<Mark>);

impl Party {
    pub(crate) fn max_packet_size(delivery: Delivery) -> usize {
        if delivery == Delivery::Reliable { RELIABLE_MAX } else { UNRELIABLE_MAX }
    }

    pub(crate) fn send(
        &mut self,
        now: Instant,
        target: Target,
        channel: Channel,
        delivery: Delivery,
        data: &[u8],
    ) -> Result<(), SendError> {
        self.now = now;
        if self.state != PeerState::Connected {
            return Err(SendError::NotConnected);
        }
        let max = Self::max_packet_size(delivery);
        if data.len() > max {
            return Err(SendError::TooLarge { size: data.len(), max });
        }
        let copies = self.copies(target)?;
        let lane = Lane::Game(channel);
        for (key, _) in &copies {
            let Some(links) = self.wires.get_mut(key.0) else { continue };
            if !links.carries(key.1, lane, delivery) {
                return Err(SendError::NotCarried);
            }
            if delivery == Delivery::Reliable && !links.has_room(key.1, data.len() + lanes::control::MARK_MAX) {
                self.blocked = true;
                return Err(SendError::WouldBlock);
            }
        }
        let single = copies.len() == 1;
        let mut last: Option<(Option<Mark>, Bytes)> = None;
        for (key, mark) in copies {
            let bytes = match &last {
                Some((before, bytes)) if *before == mark => bytes.clone(),
                _ => self.marked(mark, data),
            };
            last = Some((mark, bytes.clone()));
            let Some(links) = self.wires.get_mut(key.0) else { continue };
            let sent = links.send(now, key.1, lane, delivery, &bytes, false);
            // One of many who has no room for an unreliable packet misses it.
            if single && let Err(error) = sent {
                self.blocked |= error == SendError::WouldBlock;
                return Err(error);
            }
        }
        Ok(())
    }

    fn marked(&mut self, mark: Option<Mark>, data: &[u8]) -> Bytes {
        let Some(mark) = mark else { return Bytes::copy_from_slice(data) };
        self.scratch.clear();
        mark.write(&mut self.scratch);
        self.scratch.extend_from_slice(data);
        Bytes::copy_from_slice(&self.scratch)
    }

    fn copies(&self, target: Target) -> Result<Vec<Copy>, SendError> {
        if let Target::One(id) | Target::AllBut(id) = target
            && !self.players.contains_key(&id)
            && !(target == Target::AllBut(id) && id == self.id)
        {
            return Err(SendError::NoSuchPeer(id));
        }
        let direct = |key: Key| (key, self.links.get(&key).is_some_and(|link| link.speaks).then_some(Mark::Direct));
        match (&self.role, target) {
            (_, Target::One(id)) => {
                let player = self.players.get(&id).ok_or(SendError::NoSuchPeer(id))?;
                match (player.via, &self.role) {
                    (Some(key), _) => Ok(vec![direct(key)]),
                    (None, Role::Joiner(joiner)) if player.speaks => {
                        Ok(joiner.host.map(|host| (host, Some(Mark::To(id)))).into_iter().collect())
                    }
                    (None, _) => Err(SendError::NotCarried),
                }
            }
            (Role::Host(_), Target::All | Target::AllBut(_)) => {
                let but = if let Target::AllBut(id) = target { Some(id) } else { None };
                let others = self.players.iter().filter(|(id, _)| Some(**id) != but);
                Ok(others.filter_map(|(_, player)| player.via).map(direct).collect())
            }
            (Role::Joiner(joiner), Target::All | Target::AllBut(_)) => {
                let but = if let Target::AllBut(id) = target { Some(id) } else { None };
                let Some(host) = joiner.host else { return Ok(Vec::new()) };
                Ok(self.joiner_copies(host, but))
            }
        }
    }

    fn joiner_copies(&self, host: Key, but: Option<PeerId>) -> Vec<Copy> {
        let speaks = self.links.get(&host).is_some_and(|link| link.speaks);
        if !speaks {
            return if but == Some(PeerId::HOST) { Vec::new() } else { vec![(host, None)] };
        }
        let own_links = self.players.iter().any(|(id, player)| *id != PeerId::HOST && player.via.is_some());
        if !own_links {
            let mark = match but {
                Some(id) if id != self.id => Mark::ToAllBut(id),
                _ => Mark::ToAll,
            };
            return vec![(host, Some(mark))];
        }
        // Those with a link of their own get their copy on it, the others by way of the host.
        let others =
            self.players.iter().filter(|(id, player)| Some(**id) != but && (player.speaks || player.via.is_some()));
        others
            .map(|(id, player)| match player.via {
                Some(key) => (key, Some(Mark::Direct)),
                None => (host, Some(Mark::To(*id))),
            })
            .collect()
    }
}
