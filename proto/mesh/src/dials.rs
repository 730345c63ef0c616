//! Whom to dial, and when again (netpunch wire, section 8.5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Event;
use crate::out::Out;

/// Most players that are dialled or wait for it; the rest of a larger roster is reached in envelopes.
pub(crate) const DIALS_MAX: usize = 512;
/// A dial may be tried again so long after it began.
pub(crate) const RETRY: Duration = Duration::from_secs(30);
/// A changed profile is dialled at once, but not sooner than this after the last dial began.
const CHANGED: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Dials {
    by_name: BTreeMap<Arc<str>, Dial>,
    /// Nothing is due before; it may be early, never late.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Dial {
    profile: String,
    state: State,
    /// There is a link to the player: nothing is due.
    linked: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Not dialled at the moment; `began` is when it was last.
    Idle { began: Option<Instant>, due: Instant },
    /// Handed out as [`Event::Dial`], the outcome is not known yet.
    Running { began: Instant },
}

impl Dials {
    /// Sets whom to dial by name and profile code, in the order of names.
    pub(crate) fn wish<'a>(
        &mut self,
        out: &mut Out,
        wanted: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        is_linked: impl Fn(&str) -> bool,
    ) {
        let wanted = wanted.take(DIALS_MAX);
        let mut held = self.by_name.iter();
        let mut is_held = |(name, profile): (&str, &str)| {
            held.next().is_some_and(|(held, dial)| **held == *name && dial.profile == profile)
        };
        if wanted.clone().all(&mut is_held) && held.next().is_none() {
            return;
        }
        let wanted: BTreeMap<&str, &str> = wanted.collect();
        self.by_name.retain(|name, dial| {
            let keep = wanted.contains_key(&**name);
            if !keep {
                dial.cancel(out, name);
            }
            keep
        });
        for (name, profile) in wanted {
            match self.by_name.get_mut(name) {
                Some(dial) if dial.profile == profile => {}
                Some(dial) => {
                    profile.clone_into(&mut dial.profile);
                    dial.cancel(out, name);
                    let State::Idle { began, due } = dial.state else { continue };
                    let soon = began.map_or(out.now, |began| (began + CHANGED).max(out.now));
                    dial.state = State::Idle { began, due: due.min(soon) };
                    self.due = self.due.into_iter().chain([due.min(soon)]).min();
                }
                None => {
                    let state = State::Idle { began: None, due: out.now };
                    let dial = Dial { profile: profile.to_owned(), state, linked: is_linked(name) };
                    self.by_name.insert(name.into(), dial);
                    self.due = self.due.into_iter().chain([out.now]).min();
                }
            }
        }
    }

    /// The dial to this player ended, well or not.
    pub(crate) fn ended(&mut self, name: &str) {
        if let Some(dial) = self.by_name.get_mut(name)
            && let State::Running { began } = dial.state
        {
            dial.state = State::Idle { began: Some(began), due: began + RETRY };
        }
    }

    /// There is a link to this player: a dial that still runs is of no use.
    pub(crate) fn linked(&mut self, out: &mut Out, name: &str) {
        if let Some(dial) = self.by_name.get_mut(name) {
            dial.cancel(out, name);
        }
    }

    /// There is a link to this player now, or none any more.
    pub(crate) fn set_linked(&mut self, name: &str, linked: bool) {
        if let Some(dial) = self.by_name.get_mut(name) {
            dial.linked = linked;
            if !linked {
                self.due = self.due.into_iter().chain([dial.due()]).min();
            }
        }
    }

    /// Begins every dial that is due, of those that are not linked.
    pub(crate) fn handle_timeout(&mut self, out: &mut Out) {
        if self.due.is_none_or(|due| out.now < due) {
            return;
        }
        for (name, dial) in &mut self.by_name {
            if dial.linked || dial.due() > out.now {
                continue;
            }
            // A dial whose outcome nobody reported counts as failed by now.
            dial.cancel(out, name);
            dial.state = State::Running { began: out.now };
            out.notice(Event::Dial { name: name.to_string(), profile: dial.profile.clone() });
        }
        self.due = self.by_name.values().filter(|dial| !dial.linked).map(Dial::due).min();
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.due
    }
}

impl Dial {
    fn cancel(&mut self, out: &mut Out, name: &str) {
        if let State::Running { began } = self.state {
            self.state = State::Idle { began: Some(began), due: began + RETRY };
            out.notice(Event::CancelDial { name: name.to_owned() });
        }
    }

    fn due(&self) -> Instant {
        match self.state {
            State::Idle { due, .. } => due,
            State::Running { began } => began + RETRY,
        }
    }
}
