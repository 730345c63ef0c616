//! Session keys, sealed and signed frames, replay windows (netpunch wire, section 3).
//!
//! A sealed frame is `salt | counter | body XOR keystream | tag`, a signed frame the same with the body in the clear.
//! Keystream and tag are made of SHA-256 alone: block i of the keystream is the digest of 44 bytes, the tag is half an
//! HMAC. That fixes the price of a frame in *compressions*, the runs of SHA-256's inner function over 64 bytes:
//!
//! ```text
//! body of n bytes   ceil(n/32) keystream + ceil((n+17)/64) inner + 1 outer
//!        100        4 + 2 + 1 = 7
//!      1,200        38 + 20 + 1 = 59
//! ```
//!
//! (`n+17`: eight bytes of salt and counter, and at least nine of SHA-256's own padding.)
//! This room spends exactly those, never the two key blocks that a plain HMAC pays per frame. On x86-64 with SHA
//! instructions it runs several side by side and skips the ten of 64 rounds that are the same for every keystream
//! block of a frame. `docs/benchmarks.md` has the numbers.
//!
//! * [`Sealer`] owns salts and counters: a keystream is never used twice.
//! * [`Opener`] checks in the order length, tag, replay, and changes a frame only when all three hold. A stranger
//!   without the key leaves no trace in memory.
//! * Nothing here allocates per frame, except for the first frame under a new salt.

mod cipher;
mod key;
mod opener;
mod sealer;
mod window;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use key::{SessionKey, knock_tag};
pub use opener::{Opened, Opener, SALTS};
pub use sealer::Sealer;
pub use window::WINDOW;

/// Bytes a frame has over its plaintext: salt, counter and tag.
pub const OVERHEAD: usize = 24;

/// Compressions of SHA-256 that sealing or opening `body` bytes needs: the bound every implementation works against.
///
/// ```
/// assert_eq!([0, 100, 1200].map(anywire_seal::compressions), [2, 7, 59]);
/// ```
#[must_use]
pub const fn compressions(body: usize) -> usize {
    body.div_ceil(32) + (body + 17).div_ceil(64) + 1
}
