//! Starts that go with a save: who waits for one, who has it, and a world that replaces another (netpunch wire, section
//! 9.8). The files themselves are the composer's affair.

use std::time::Instant;

use codec::to_json;
use seam::Path;

use super::Host;
use crate::Event;
use crate::messages::{Start, Words};

impl Host {
    /// Joiners who were not started, in the order in which they came.
    #[must_use]
    pub fn waiting(&self) -> Vec<(Path, String)> {
        let seats =
            self.members.paths_by_age().into_iter().filter_map(|path| Some((path, &self.members.at(path)?.seat)));
        seats.filter(|(_, seat)| !seat.started).map(|(path, seat)| (path, seat.name.clone())).collect()
    }

    /// Whether the game runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Whether this member can take files by QUIC.
    #[must_use]
    pub fn speaks_quic(&self, path: Path) -> bool {
        self.members.at(path).is_some_and(|member| member.words.quic)
    }

    /// Whether this member is an end of ours: it is heard whatever it is busy with, so that its silence means what
    /// silence means.
    #[must_use]
    pub fn is_ours(&self, path: Path) -> bool {
        self.members.at(path).is_some_and(|member| member.words != Words::default())
    }

    /// Starts those of `ready` who are members and were not started: each has verified the save. On the first time the
    /// host's own player starts as well.
    pub fn start_with_save(&mut self, now: Instant, ready: &[Path]) {
        self.enter(now);
        let (mut plain, mut switching) = (Vec::new(), Vec::new());
        for (path, member) in self.members.iter_mut().filter(|(path, _)| ready.contains(path)) {
            if !member.seat.started {
                member.seat.started = true;
                let list = if std::mem::take(&mut member.seat.switching) { &mut switching } else { &mut plain };
                list.push(path);
            }
        }
        let (count, all) = (plain.len() + switching.len(), self.members.len());
        if count > 0 {
            self.log(format!("[host] START broadcast (save=True) to {count} of {all} peer(s)"));
            let switched = !switching.is_empty();
            self.copies.send(now, plain, to_json(&Start { save: true, switch: false }));
            self.copies.send(now, switching, to_json(&Start { save: true, switch: true }));
            if !self.running && self.own.is_some() {
                self.queues.tell(Event::Start { save: true, switch: switched });
            }
            (self.running, self.start_save) = (true, true);
            self.published.stale();
        }
        self.settle(now);
    }

    /// Another world replaces the running one: everybody waits for it, under a new nonce. False when none runs, or nobody is here.
    pub fn switch_world(&mut self, now: Instant) -> bool {
        self.enter(now);
        let runs = self.running && !self.members.is_empty();
        if runs {
            self.transport_lobby = codec::hex(&self.dice.bytes::<16>());
            self.queues.tell(Event::TransportLobby(self.transport_lobby.clone()));
            for (_, member) in self.members.iter_mut() {
                (member.seat.started, member.seat.switching) = (false, true);
            }
            self.running = false;
            self.published.stale();
            self.log("[host] another world replaces the running one".to_owned());
        }
        self.settle(now);
        runs
    }
}
