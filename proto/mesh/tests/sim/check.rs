//! What must be true of a world that ran.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use seam::Route;

use super::{Sent, World, node_of, path_of};

impl World {
    pub(crate) fn check_at_most_once(&self) {
        for ((id, node), times) in &self.got {
            assert_eq!(times.len(), 1, "seed {}: {node} got frame {id} of {} again", self.seed, self.sent[*id].by);
            assert_ne!(self.sent[*id].by, *node, "seed {}: {node} got its own frame", self.seed);
        }
    }

    /// Whoever could be reached got each frame, and nobody a second one. Says how many copies were sure to arrive.
    pub(crate) fn check_exactly_once(&self) -> u64 {
        self.check_at_most_once();
        let mut expected = 0;
        for (id, sent) in self.sent.iter().enumerate() {
            for receiver in &sent.to {
                if !self.must_arrive(sent, *receiver) {
                    continue;
                }
                expected += 1;
                let at = sent.at.duration_since(self.start);
                let Sent { by, .. } = sent;
                assert!(
                    self.got.contains_key(&(id, *receiver)),
                    "seed {}: frame {id} of {by} at {at:?} never reached {receiver}",
                    self.seed
                );
            }
        }
        expected
    }

    /// Frames of one player for another arrive in the order they were sent, once routes have settled.
    pub(crate) fn check_order_after(&self, seconds: u64) {
        let settled = self.start + Duration::from_secs(seconds);
        for ((by, node), ids) in &self.order {
            let ids: Vec<_> = ids.iter().filter(|id| self.sent[**id].at > settled).collect();
            assert!(ids.is_sorted(), "seed {}: frames of {by} overtake each other on the way to {node}", self.seed);
        }
    }

    /// Each route is what the rules of section 8.3 and 8.4 make of who can reach whom.
    pub(crate) fn check_routes(&self) {
        for (a, from) in self.nodes.iter().enumerate().filter(|(_, node)| node.member) {
            for (b, to) in self.nodes.iter().enumerate().filter(|(b, node)| node.member && !(self.relay && *b == 0)) {
                let want = match (a, b) {
                    (a, b) if a == b => Route::Local,
                    (0, _) | (_, 0) => Route::Direct,
                    (a, b) if self.is_linked(a, b) => Route::Direct,
                    _ => Route::ThroughHost,
                };
                assert_eq!(from.mesh.route_to(&to.name), want, "seed {}: {a} to {b}", self.seed);
            }
            assert_eq!(from.mesh.route_to("nobody"), Route::None);
        }
    }

    /// Every pair that can reach each other has a link, and the host knows.
    pub(crate) fn check_links(&self) {
        let most = 8 * self.open.len();
        assert!(self.hellos <= most, "seed {}: {} times mesh_hi", self.seed, self.hellos);
        for (a, node) in self.nodes.iter().enumerate().filter(|(a, node)| *a > 0 && node.meshed) {
            let others = self.nodes.iter().enumerate().filter(|(b, _)| self.is_linked(a, *b));
            let want: BTreeSet<String> = others.map(|(_, other)| other.name.clone()).collect();
            assert_eq!(self.links.get(&node.name), Some(&want), "seed {}: links of {a}", self.seed);
            assert_eq!(node.held.len(), want.len(), "seed {}: {a} keeps one path open for each link", self.seed);
            for path in &node.held {
                let (b, kind) = node_of(*path);
                let same = self.nodes[b].held.contains(&path_of(a, kind));
                assert!(same, "seed {}: {a} and {b} use different paths", self.seed);
            }
        }
    }

    pub(crate) fn check_deliveries_are_common(&self) {
        let sent: usize = self.sent.iter().map(|sent| sent.to.len()).sum();
        assert!(self.got.len() * 5 > sent, "seed {}: {} of {sent} copies arrived", self.seed, self.got.len());
    }

    /// Envelopes that joiners passed on.
    pub(crate) fn carried(&self) -> u64 {
        self.through
    }

    /// Everything that was delivered, and when.
    pub(crate) fn log(&self) -> Vec<(usize, usize, Duration)> {
        let times = self.got.iter().flat_map(|((id, node), times)| times.iter().map(move |at| (*id, *node, *at)));
        times.map(|(id, node, at)| (id, node, at.duration_since(self.start))).collect()
    }

    fn is_linked(&self, a: usize, b: usize) -> bool {
        let meshed = |node: usize| node > 0 && self.nodes[node].meshed;
        a != b && meshed(a) && meshed(b) && self.open[&(a.min(b), a.max(b))]
    }

    /// The reference: whether a frame had a way that was good all the time it needed.
    fn must_arrive(&self, sent: &Sent, receiver: usize) -> bool {
        let (at, by) = (sent.at, sent.by);
        let arrived = at + Duration::from_millis(1500);
        if arrived > self.now || [by, receiver].iter().any(|node| self.nodes[*node].left.is_some_and(|l| l < arrived)) {
            return false;
        }
        let pair = (by.min(receiver), by.max(receiver));
        // A link whose path closed is used until it was silent for 6 s.
        let closed = self.closed_at.get(&pair).into_iter().flatten();
        if closed.into_iter().any(|closed| *closed < arrived && *closed + Duration::from_secs(7) > at) {
            return false;
        }
        let steadily_up = self.host_up_through(at.checked_sub(Duration::from_secs(3)).unwrap_or(at), arrived);
        if steadily_up {
            return true;
        }
        let Some(down) = self.host_changes.iter().find(|(_, up)| !up).map(|(when, _)| *when) else { return false };
        let up = self.host_changes.iter().find(|(_, up)| *up).map_or(self.now, |(when, _)| *when);
        if at < down + Duration::from_millis(12_500) || arrived > up || by == 0 || receiver == 0 {
            return false;
        }
        let carriers = 1..self.nodes.len();
        self.is_linked(by, receiver)
            || carriers.into_iter().any(|carrier| self.is_linked(by, carrier) && self.is_linked(carrier, receiver))
    }

    fn host_up_through(&self, from: Instant, until: Instant) -> bool {
        let before = self.host_changes.iter().rev().find(|(when, _)| *when <= from).is_none_or(|(_, up)| *up);
        before && self.host_changes.iter().all(|(when, _)| *when <= from || *when > until)
    }
}
