//! What the host is told of the own direct links (netpunch wire, section 6.1, `links`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Event;
use crate::out::Out;

/// How often the links are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// A link that got its name is reported at once, but reports follow each other no faster than this: a lobby that starts
/// together names all its links together.
const SETTLE: Duration = Duration::from_millis(200);
/// A report travels once and may be lost. When the roster goes on saying something else it is repeated, at first after
/// this long, then twice as long each time up to [`REPEAT_MAX`]: a host that leaves links out of a large roster does
/// not cause a stream of reports.
const REPEAT: Duration = Duration::from_secs(4);
const REPEAT_MAX: Duration = Duration::from_secs(64);
/// Most names in a report; a host keeps no more.
const NAMES_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct Report {
    sent: Option<Sent>,
    look: Instant,
    /// The links may differ from what was sent.
    changed: bool,
}

#[derive(Debug)]
struct Sent {
    names: Vec<Arc<str>>,
    at: Instant,
    /// The roster says the same.
    echoed: bool,
    repeat: Duration,
}

impl Report {
    pub(crate) fn new(now: Instant) -> Self {
        Self { sent: None, look: now, changed: true }
    }

    /// The host may not know anything of the past: the next report is the first one.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// A link went or came.
    pub(crate) fn changed(&mut self) {
        self.changed = true;
    }

    /// A link got its name: the host learns it without waiting for the next look.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.changed = true;
        let soonest = self.sent.as_ref().map_or(now, |sent| (sent.at + SETTLE).max(now));
        self.look = self.look.min(soonest);
    }

    /// What the newest roster says of the own links.
    pub(crate) fn heard_back<'a>(&mut self, listed: impl Iterator<Item = &'a str>, host: Option<&str>) {
        let Some(sent) = &mut self.sent else { return };
        let listed = listed.filter(|name| Some(*name) != host);
        sent.echoed = listed.eq(sent.names.iter().map(|name| &**name));
    }

    /// Looks at the links when it is time; `direct` is sorted.
    pub(crate) fn handle_timeout<'a>(&mut self, out: &mut Out, direct: impl Iterator<Item = &'a Arc<str>>) {
        if self.timeout().is_none_or(|at| at > out.now) {
            return;
        }
        self.look = out.now + LOOK;
        self.changed = false;
        let names: Vec<Arc<str>> = direct.take(NAMES_MAX).cloned().collect();
        let repeat = match &self.sent {
            Some(sent) if sent.names == names => {
                if sent.echoed || out.now.saturating_duration_since(sent.at) < sent.repeat {
                    return;
                }
                (sent.repeat * 2).min(REPEAT_MAX)
            }
            Some(_) | None => REPEAT,
        };
        out.notice(Event::Direct(names.iter().map(ToString::to_string).collect()));
        self.sent = Some(Sent { names, at: out.now, echoed: false, repeat });
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        match &self.sent {
            None => Some(self.look),
            Some(_) if self.changed => Some(self.look),
            Some(sent) if !sent.echoed => Some((sent.at + sent.repeat).max(self.look)),
            Some(_) => None,
        }
    }
}
