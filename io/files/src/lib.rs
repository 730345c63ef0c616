//! Files of transfers on the disk, and the byte streams that carry them.
//!
//! A [`Worker`] carries out what one transfer asks of the disk ([`parcel::Ask`]), in order, on a thread of its own. A
//! stream that carries whole files runs on a further thread, and hashing on one more: its bytes go from the disk to the
//! kernel, or the other way, and never through a session. [`listen`] opens the port at which streams are greeted, and
//! [`greeting`] reads what a stranger says first, without taking a byte of what follows.
//!
//! What is written stands beside its final name as `<name>.part` until all of it verified. Then the files are flushed and
//! renamed, the save itself last. Bounds: 64 asks wait for a worker, a stream has 8 buffers of 1 MiB between socket, disk
//! and hash.

mod hashes;
mod place;
mod save;
mod source;
mod stream;
mod target;
mod worker;

pub use save::{SaveError, save};
pub use stream::{GREETING_FOR, dial, greeting, listen, listen_at};
pub use worker::{QUEUE_MAX, Worker};
