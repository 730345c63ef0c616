//! Names a player went by until lately. The two ends of a link learn of a rename at different times; until both know,
//! the old name still means the same player.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an old name is still understood. A roster that names a player anew is repeated every 2 s.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Most old names of one player.
const MOST: usize = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct Former {
    list: Vec<(Arc<str>, Instant)>,
}

impl Former {
    pub(crate) fn add(&mut self, now: Instant, name: Arc<str>) {
        self.list.retain(|(old, until)| *until > now && *old != name);
        if self.list.len() >= MOST {
            self.list.remove(0);
        }
        self.list.push((name, now + REMEMBERED));
    }

    pub(crate) fn has(&self, now: Instant, name: &str) -> bool {
        self.list.iter().any(|(old, until)| *until > now && &**old == name)
    }
}
