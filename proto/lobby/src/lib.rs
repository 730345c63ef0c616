//! The lobby of a netpunch session: admission, names, letters, roster, chat, companies, start.
//!
//! Two machines, [`Host`] and [`Joiner`], speak the JSON messages of netpunch wire, section 6. Both are sans-IO: a
//! composer hands in every message it opened and authenticated, and fetches what is to be sealed and sent. Between our
//! own ends a few words more are spoken; `docs/wire/extensions.md` is their registry.
//!
//! Law of use: feed inputs at one `now`, drain `poll_message` and `poll_event` until both are empty, only then wait
//! until `poll_timeout`. While anything is queued, `poll_timeout` answers an instant that has passed.
//!
//! * A peer is known by its [`seam::Path`] and nothing else; a composer that sees it move calls `rekey`.
//! * No message of anybody ends a lobby: what does not decode is refused and changes nothing.
//! * Nothing here grows without bound; each bound stands at its constant.

mod chat;
mod config;
mod copies;
mod facts;
mod host;
mod joiner;
mod logs;
mod messages;
mod queue;
mod seats;
mod text;
mod view;
mod words;

/// A loop that stood still for longer owes its peers that time (pain 44).
const STALL: std::time::Duration = std::time::Duration::from_secs(2);

pub use config::{HostConfig, JoinConfig};
pub use host::Host;
pub use joiner::Joiner;
pub use words::{End, Event, Mode, Player, Roster, State, UnknownWord};
