//! Who was heard lately, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seam::Path;

/// Most peers that are remembered.
pub(super) const PEERS_MAX: usize = 1_024;
/// Most peers of one address; the one longest silent makes room for a new one.
pub(super) const PEERS_PER_ADDRESS: usize = 64;

/// A peer.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Where it was heard last, from the own socket that answers it.
    pub(super) path: Path,
    heard: Instant,
}

/// A peer that answers Requests.
#[derive(Clone, Debug)]
struct Host {
    wire: Bytes,
    told: Instant,
    answered: Instant,
}

/// What a host's answer means to who looks for hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A host nobody knew.
    New,
    /// Worth telling again.
    Again,
    /// Nothing new.
    Same,
}

/// Peers by id, at most [`PEERS_MAX`], and which of them host.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    by_id: BTreeMap<u64, Peer>,
    by_silence: BTreeSet<(Instant, u64)>,
    hosts: BTreeMap<u64, Host>,
    by_answer: BTreeSet<(Instant, u64)>,
}

impl Peers {
    pub(super) fn get(&self, id: u64) -> Option<&Peer> {
        self.by_id.get(&id)
    }

    /// A peer was heard. Hands out whether it is new, and the host that had to make room for it.
    pub(super) fn heard(&mut self, now: Instant, id: u64, path: Path) -> (bool, Option<u64>) {
        if let Some(peer) = self.by_id.get_mut(&id) {
            self.by_silence.remove(&(peer.heard, id));
            self.by_silence.insert((now, id));
            *peer = Peer { path, heard: now };
            return (false, None);
        }
        let gone = self.make_room(path.remote.ip());
        self.by_id.insert(id, Peer { path, heard: now });
        self.by_silence.insert((now, id));
        (true, gone)
    }

    /// A known peer answered. `again` is how long an unchanged answer is no news.
    pub(super) fn answered(&mut self, now: Instant, id: u64, wire: &Bytes, again: Duration) -> Answer {
        if !self.by_id.contains_key(&id) {
            return Answer::Same;
        }
        let before = self.remove_host(id);
        let answer = match &before {
            None => Answer::New,
            Some(host) if host.wire != *wire || host.told + again <= now => Answer::Again,
            Some(_) => Answer::Same,
        };
        let told = before.filter(|_| answer == Answer::Same).map_or(now, |host| host.told);
        self.hosts.insert(id, Host { wire: wire.clone(), told, answered: now });
        self.by_answer.insert((now, id));
        answer
    }

    /// Where hosts are that have not answered since `since`.
    pub(super) fn silent_hosts(&self, since: Instant) -> impl Iterator<Item = Path> {
        let late = self.by_answer.iter().take_while(move |(answered, _)| *answered <= since);
        late.filter_map(|(_, id)| self.get(*id).map(|peer| peer.path))
    }

    fn make_room(&mut self, ip: IpAddr) -> Option<u64> {
        let mut same = self.by_silence.iter().filter(|(_, id)| self.get(*id).is_some_and(|p| p.path.remote.ip() == ip));
        let oldest_same = same.next().map(|(_, id)| *id);
        let leaves = if oldest_same.is_some() && same.count() + 1 >= PEERS_PER_ADDRESS {
            oldest_same
        } else if self.by_id.len() >= PEERS_MAX {
            self.by_silence.first().map(|(_, id)| *id)
        } else {
            None
        }?;
        if let Some(peer) = self.by_id.remove(&leaves) {
            self.by_silence.remove(&(peer.heard, leaves));
        }
        self.remove_host(leaves).map(|_| leaves)
    }

    fn remove_host(&mut self, id: u64) -> Option<Host> {
        let host = self.hosts.remove(&id)?;
        self.by_answer.remove(&(host.answered, id));
        Some(host)
    }

    /// Forgets who was silent for `patience`, and hands out the next host that has not answered for so long.
    pub(super) fn expire(&mut self, now: Instant, patience: Duration) -> Option<u64> {
        // A peer is heard whenever it answers, so its host is lost no later than it is forgotten.
        if let Some(&(answered, id)) = self.by_answer.first()
            && answered + patience <= now
        {
            self.remove_host(id);
            return Some(id);
        }
        while let Some(&(heard, id)) = self.by_silence.first()
            && heard + patience <= now
        {
            self.by_silence.pop_first();
            self.by_id.remove(&id);
        }
        None
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn next_expiry(&self, patience: Duration) -> Option<Instant> {
        let firsts = [self.by_silence.first(), self.by_answer.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at + patience).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam::SocketId;

    fn path(host: u8, port: u16) -> Path {
        Path::new(SocketId(0), ([10, 0, 0, host], port).into())
    }

    #[test]
    fn a_flood_of_ids_from_one_address_pushes_out_its_own() {
        let now = Instant::now();
        let mut peers = Peers::default();
        peers.heard(now, 1, path(1, 1));
        for id in 100..2_000 {
            peers.heard(now + Duration::from_millis(id), id, path(2, 1));
        }
        assert!(peers.get(1).is_some());
        assert_eq!(peers.by_id.len(), 1 + PEERS_PER_ADDRESS);
        assert!(peers.get(1_999).is_some());
    }

    #[test]
    fn the_table_is_bounded_whatever_addresses_come() {
        let now = Instant::now();
        let mut peers = Peers::default();
        for n in 0..3_000_u32 {
            let [_, _, a, b] = n.to_be_bytes();
            peers.heard(now, u64::from(n) + 1, Path::new(SocketId(0), ([10, 0, a, b], 1).into()));
        }
        assert_eq!((peers.by_id.len(), peers.by_silence.len()), (PEERS_MAX, PEERS_MAX));
    }

    #[test]
    fn whoever_speaks_is_not_forgotten() {
        let now = Instant::now();
        let mut peers = Peers::default();
        let s = Duration::from_secs;
        peers.heard(now, 1, path(1, 1));
        peers.heard(now, 2, path(2, 1));
        peers.heard(now + s(10), 1, path(1, 9));
        assert_eq!(peers.next_expiry(s(15)), Some(now + s(15)));
        assert_eq!(peers.expire(now + s(15), s(15)), None);
        assert_eq!(peers.get(1).map(|p| p.path), Some(path(1, 9)));
        assert!(peers.get(2).is_none());
    }

    #[test]
    fn a_host_that_only_asks_is_a_host_no_more() {
        let now = Instant::now();
        let mut peers = Peers::default();
        let (s, wire) = (Duration::from_secs, Bytes::from_static(b"x"));
        peers.heard(now, 1, path(1, 1));
        assert_eq!(peers.answered(now, 1, &wire, s(1)), Answer::New);
        assert_eq!(peers.silent_hosts(now).count(), 1);
        peers.heard(now + s(10), 1, path(1, 1));
        assert_eq!(peers.expire(now + s(15), s(15)), Some(1));
        assert_eq!(peers.expire(now + s(15), s(15)), None);
        assert!(peers.get(1).is_some());
        assert_eq!(peers.answered(now + s(16), 2, &wire, s(1)), Answer::Same, "of nobody");
    }
}
