//! The players of one session, and all they heard.

use std::time::{Duration, Instant};

use anywire::{CloseReason, Delivery, Event, JoinOptions, Peer, PeerId};

use super::{Hosted, Network, Stage};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// One player.
pub struct Player {
    /// Its end.
    pub peer: Box<dyn Peer>,
    /// What it heard, in order.
    pub seen: Vec<Event>,
}

/// A session and its players; the host is the first.
pub struct Table {
    /// What joiners are given.
    pub address: String,
    /// All of them.
    pub players: Vec<Player>,
    /// Between two rounds of polling.
    pub pause: Duration,
    network: Box<dyn Network>,
}

impl Player {
    /// The packets it heard: from, channel, delivery, bytes.
    pub fn packets(&self) -> Vec<(u32, u8, Delivery, Vec<u8>)> {
        let packets = self.seen.iter().filter_map(|event| match event {
            Event::Packet { from, channel, delivery, data } => Some((from.get(), channel.0, *delivery, data.to_vec())),
            _ => None,
        });
        packets.collect()
    }

    /// How many packets it heard.
    pub fn packet_count(&self) -> usize {
        self.seen.iter().filter(|event| matches!(event, Event::Packet { .. })).count()
    }

    /// Whose arrival it heard of.
    pub fn joined(&self) -> Vec<PeerId> {
        self.seen.iter().filter_map(|event| if let Event::Joined(id) = event { Some(*id) } else { None }).collect()
    }

    /// How the session ended for it.
    pub fn closed(&self) -> Option<&CloseReason> {
        self.seen.iter().find_map(|event| if let Event::Closed(why) = event { Some(why) } else { None })
    }

    /// Why another player left.
    pub fn left(&self, id: PeerId) -> Option<&CloseReason> {
        self.seen.iter().find_map(|event| match event {
            Event::Left(who, why) if *who == id => Some(why),
            _ => None,
        })
    }

    fn poll(&mut self) {
        while let Some(event) = self.peer.poll() {
            assert!(self.closed().is_none() || self.peer.state() != anywire::PeerState::Closed || !is_news(&event));
            self.seen.push(event);
        }
    }
}

fn is_news(event: &Event) -> bool {
    !matches!(event, Event::Closed(_))
}

impl Table {
    /// A host and nobody else.
    pub fn new(hosted: Hosted) -> Self {
        let Hosted { peer, address, network } = hosted;
        let players = vec![Player { peer, seen: Vec::new() }];
        Self { address, players, pause: Duration::from_millis(1), network }
    }

    /// Adds a joiner, which is not in yet.
    pub fn add(&mut self, peer: Box<dyn Peer>) {
        self.players.push(Player { peer, seen: Vec::new() });
    }

    /// Adds `count` joiners and waits until everybody has heard of everybody.
    pub fn seat(&mut self, stage: &dyn Stage, count: usize) {
        for number in 0..count {
            let options = JoinOptions { name: format!("joiner {number}"), ..JoinOptions::default() };
            self.add(stage.join(&self.address, options, None));
        }
        let all = self.players.len() - 1;
        self.until("everybody has heard of everybody", |table| {
            table.players.iter().all(|player| player.joined().len() == all)
        });
    }

    /// One round of polling.
    pub fn round(&mut self) {
        for player in &mut self.players {
            player.poll();
        }
    }

    /// Polls until `done`.
    ///
    /// # Panics
    /// When it is not within a minute.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.round();
            if done(self) {
                return;
            }
            assert!(Instant::now() < end, "not within a minute: {what}; {}", self.story());
            std::thread::sleep(self.pause);
        }
    }

    /// Polls for a while.
    pub fn play(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.round();
            std::thread::sleep(self.pause);
        }
    }

    /// The ids in order of players.
    pub fn ids(&self) -> Vec<PeerId> {
        self.players.iter().map(|player| player.peer.id()).collect()
    }

    /// Forgets what was heard.
    pub fn forget(&mut self) {
        self.players.iter_mut().for_each(|player| player.seen.clear());
    }

    /// Every datagram vanishes from now on.
    pub fn cut(&self) {
        self.network.cut();
    }

    fn story(&self) -> String {
        let player = |player: &Player| {
            let rest: Vec<&Event> = player.seen.iter().filter(|event| !matches!(event, Event::Packet { .. })).collect();
            format!("{} ({} packets): {rest:?}\n", player.peer.id(), player.packet_count())
        };
        self.players.iter().map(player).collect()
    }
}
