//! Candidates that came before the offer they belong to. Some programs send them first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::engine::Candidate;
use crate::{ConnectionId, NetworkId};

/// Attempts kept.
const ATTEMPTS_MAX: usize = 64;
/// Candidates kept of one attempt.
const CANDIDATES_MAX: usize = 16;
/// How long they are kept.
const KEPT: Duration = Duration::from_secs(10);

type Key = (NetworkId, ConnectionId);

#[derive(Debug, Default)]
pub(super) struct Early {
    attempts: BTreeMap<Key, (Instant, Vec<Candidate>)>,
}

impl Early {
    pub(super) fn add(&mut self, now: Instant, key: Key, candidate: Candidate) {
        if self.attempts.len() >= ATTEMPTS_MAX && !self.attempts.contains_key(&key) {
            let oldest = self.attempts.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.attempts.remove(&oldest);
            }
        }
        let (_, candidates) = self.attempts.entry(key).or_insert_with(|| (now + KEPT, Vec::new()));
        if candidates.len() < CANDIDATES_MAX {
            candidates.push(candidate);
        }
    }

    pub(super) fn take(&mut self, key: &Key) -> Vec<Candidate> {
        self.attempts.remove(key).map(|(_, candidates)| candidates).unwrap_or_default()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.attempts.retain(|_, (until, _)| *until > now);
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.attempts.values().map(|(until, _)| (*until, "early candidates are forgotten")).min()
    }
}
