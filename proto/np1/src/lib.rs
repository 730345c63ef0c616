//! NP1: the packets of the netpunch wire, what they carry, and the fragments of long lobby messages.
//!
//! ```text
//! datagram  "NP1:" kind payload                    packet   (netpunch wire, section 4)
//! payload   { ...       JSON lobby message         payload  (section 5)
//!           NPF1 ...    piece of a file            chunk    (section 9.3)
//!           g ...       game frame                 payload  (section 8.1)
//!           r ...       envelope between players   envelope (section 8.2)
//!           F ...       fragment of a JSON message fragment (section 5)
//! datagram  "TRLB" id role, "TRLA" id              relay    (section 11.4)
//! ```
//!
//! Every parser here takes any bytes, never panics and allocates nothing that a length field asks for. The one thing
//! with a memory is [`Reassembly`], and its bounds are in its [`Bounds`].

mod chunk;
mod envelope;
mod fragment;
mod packet;
mod payload;
mod reassembly;
mod relay;

pub use chunk::{CHUNK_HEADER, CHUNK_MAGIC, Chunk, chunk_size, is_tunnel, window};
pub use envelope::{ENVELOPE, Envelope, NAME_MAX};
pub use fragment::{FRAGMENT, FRAGMENT_DATA, FRAGMENT_HEADER, FRAGMENTS_MAX, Fragment, MESSAGE_MAX, split};
pub use packet::{HEADER, Kind, MAGIC, Packet, PlainTake, header, packet, plain_reject, read_plain};
pub use payload::{GAME, GAME_FRAME_MAX, Payload, game_frame};
pub use reassembly::{Bounds, Reassembly};
pub use relay::{Role, read_relay_bind, read_relay_bound, relay_bind, relay_bound};
