//! Reaching each other: dialling and answering, proof of an address, STUN observation, keep-alive and measurement.
//!
//! [`Punch`] speaks the four small packets of netpunch wire, section 4 (H, A, C, K) and STUN. It ends in an open
//! [`seam::Path`]; what travels on it belongs to other rooms.
//!
//! * **Dial.** H with one random token goes to every candidate every 100 ms. The first A that echoes the token names
//!   the path, whatever address it came from; C is sent once and the other candidates are left alone.
//! * **Answer.** Every H is answered with an A of the same length. A stranger's H creates no state, and strangers
//!   share a rate limit, so a forged source address gets nothing worth having. H of our own that comes back to
//!   ourselves (two homes with the same private addresses) is not answered: a machine never dials itself.
//! * **Punch.** H goes toward who knocked at the master, every 200 ms for 15 s, so that their hellos get in.
//! * **Guess.** A router with another port per destination often counts them up. Whoever keeps its own port punches toward
//!   the next 24 for 4 s; one of them is the one the other's hellos come from. From one
//!   socket random ports are out of reach, so the end that has them opens 256, and the other probes 1,200 ports
//!   ([`Punch::spray`], [`Punch::probe_ports`]). Where both count, both take strides ([`Punch::stride`]).
//! * **Prove.** An authenticated frame from a new address may be a replay from elsewhere. [`Punch::challenge`] sends it
//!   a token of its own; only who receives there can echo it.
//! * **Hold.** A live path is probed with H every 2 s. Every peer answers, old ones too, so round trip and loss are
//!   known for all of them. The joiner's side adds K every 15 s.
//! * **Observe.** All STUN servers are asked at once over the lobby socket, whose mapping is the one that matters.
//! * **Survey.** The tests of RFC 5780 follow where somebody wants to know how the router behaves; nothing waits for them.
//!
//! Order of calls, as for every machine of the house: feed a batch of inputs at one `now`, drain transmits and events,
//! then wait for [`Punch::poll_timeout`].

mod birthday;
mod challenge;
mod dial;
mod link;
mod observe;
mod outgoing;
mod punch;
mod survey;
mod toward;

pub use birthday::{GUESS_FOR, PROBES, SOCKETS};
pub use challenge::CHALLENGES_MAX;
pub use dial::{CANDIDATES_MAX, DIALS_MAX, DialId};
pub use link::LINKS_MAX;
pub use observe::SERVERS_MAX;
pub use punch::{Config, Event, Punch};
pub use stun::{Behaviour, Observation};
pub use survey::Survey;
pub use toward::{GUESSES, TOWARD_FOR, TOWARD_MAX};

/// Bytes that name one question: whoever echoes them received them.
type Token = [u8; 8];
