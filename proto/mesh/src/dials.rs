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
}

#[derive(Debug)]
struct Dial {
    profile: String,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Not dialled at the moment; `began` is when it was last.
    Idle { began: Option<Instant>, due: Instant },
    /// Handed out as [`Event::Dial`], the outcome is not known yet.
    Running { began: Instant },
}

impl Dials {
    /// Sets whom to dial by name and profile code.
    pub(crate) fn wish<'a>(&mut self, out: &mut Out, wanted: impl Iterator<Item = (&'a str, &'a str)>) {
        let wanted: BTreeMap<&str, &str> = wanted.take(DIALS_MAX).collect();
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
                }
                None => {
                    let state = State::Idle { began: None, due: out.now };
                    self.by_name.insert(name.into(), Dial { profile: profile.to_owned(), state });
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

    /// Begins every dial that is due, of those that are not linked.
    pub(crate) fn handle_timeout(&mut self, out: &mut Out, is_linked: impl Fn(&str) -> bool) {
        for (name, dial) in &mut self.by_name {
            if dial.due() > out.now || is_linked(name) {
                continue;
            }
            // A dial whose outcome nobody reported counts as failed by now.
            dial.cancel(out, name);
            dial.state = State::Running { began: out.now };
            out.notice(Event::Dial { name: name.to_string(), profile: dial.profile.clone() });
        }
    }

    pub(crate) fn timeout(&self, is_linked: impl Fn(&str) -> bool) -> Option<Instant> {
        self.by_name.iter().filter(|(name, _)| !is_linked(name)).map(|(_, dial)| dial.due()).min()
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
