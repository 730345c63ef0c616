//! The receiving side.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use seam::Refused;

use crate::cipher::{Ahead, Cipher, HEAD, TAG, same};
use crate::window::{Stale, Window};
use crate::{OVERHEAD, SessionKey};

/// Salts remembered at once. One more makes the least recently used go, and with it what was known of its counters:
/// its old frames would be taken once more. Only who holds the key can bring new salts. At about 160 bytes each that is
/// 160 KiB, and 200 players with two salts each fit more than twice.
pub const SALTS: usize = 1024;

/// Opens sealed frames and verifies signed ones of one key.
///
/// Replay windows belong to salts, not to addresses, so a sender may move; sealed and signed frames share them. A salt
/// is remembered only once a frame with it was authentic: who has no key costs no memory.
pub struct Opener {
    cipher: Cipher,
    ahead: Box<Ahead>,
    senders: BTreeMap<[u8; 4], Sender>,
    too_old: u64,
}

struct Sender {
    window: Window,
    last: Instant,
}

/// An authentic frame that was not seen before.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// Names the sending process.
    pub salt: [u8; 4],
    /// The frame's number under that salt.
    pub counter: u32,
    /// The plaintext: `frame[8..len - 16]`, decrypted in place.
    pub plain: &'a mut [u8],
}

impl Opener {
    /// An opener that has seen nothing.
    #[must_use]
    pub fn new(key: &SessionKey) -> Self {
        Self { cipher: Cipher::new(key), ahead: Box::new(Ahead::new()), senders: BTreeMap::new(), too_old: 0 }
    }

    /// Opens a sealed frame in place.
    ///
    /// # Errors
    /// Leaves `frame` as it came and answers [`Refused::Malformed`] when it is shorter than [`OVERHEAD`],
    /// [`Refused::NotAuthentic`] when the tag is wrong, [`Refused::Replayed`] or [`Refused::TooOld`] when its counter
    /// was seen or lies below the window.
    pub fn open<'a>(&mut self, now: Instant, frame: &'a mut [u8]) -> Result<Opened<'a>, Refused> {
        let (data, tag) = cut(frame)?;
        if !same(&self.cipher.tag_sealed(data, &mut self.ahead), tag) {
            return Err(Refused::NotAuthentic);
        }
        let opened = self.admit(now, data)?;
        let head = head(opened.salt, opened.counter);
        self.cipher.decrypt(head, opened.plain, &self.ahead);
        Ok(opened)
    }

    /// Verifies a signed frame, whose plaintext is in the clear.
    ///
    /// # Errors
    /// As [`Opener::open`]. A sealed frame is not authentic here, nor a signed one there.
    pub fn verify_signed<'a>(&mut self, now: Instant, frame: &'a mut [u8]) -> Result<Opened<'a>, Refused> {
        let (data, tag) = cut(frame)?;
        if !same(&self.cipher.tag_signed(data), tag) {
            return Err(Refused::NotAuthentic);
        }
        self.admit(now, data)
    }

    /// Authentic frames refused because they came later than the window holds.
    #[must_use]
    pub const fn too_old(&self) -> u64 {
        self.too_old
    }

    /// Salts remembered, at most [`SALTS`].
    #[must_use]
    pub fn salts(&self) -> usize {
        self.senders.len()
    }

    /// Takes note of an authentic frame's counter.
    fn admit<'a>(&mut self, now: Instant, data: &'a mut [u8]) -> Result<Opened<'a>, Refused> {
        let (&mut [a, b, c, d, w, x, y, z], plain) = data.split_first_chunk_mut().ok_or(Refused::Malformed)?;
        let (salt, counter) = ([a, b, c, d], u32::from_be_bytes([w, x, y, z]));
        if let Some(sender) = self.senders.get_mut(&salt) {
            match sender.window.take(counter) {
                Ok(()) => sender.last = now,
                Err(Stale::Seen) => return Err(Refused::Replayed),
                Err(Stale::TooOld) => {
                    self.too_old += 1;
                    return Err(Refused::TooOld);
                }
            }
        } else {
            if self.senders.len() >= SALTS {
                let oldest = self.senders.iter().min_by_key(|(_, sender)| sender.last).map(|(salt, _)| *salt);
                self.senders.remove(&oldest.unwrap_or_default());
            }
            self.senders.insert(salt, Sender { window: Window::new(counter), last: now });
        }
        Ok(Opened { salt, counter, plain })
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salts, too_old) = (self.senders.len(), self.too_old);
        f.debug_struct("Opener").field("salts", &salts).field("too_old", &too_old).finish_non_exhaustive()
    }
}

/// Head and body, and the tag.
fn cut(frame: &mut [u8]) -> Result<(&mut [u8], &mut [u8; TAG]), Refused> {
    if frame.len() < OVERHEAD {
        return Err(Refused::Malformed);
    }
    frame.split_last_chunk_mut().ok_or(Refused::Malformed)
}

fn head(salt: [u8; 4], counter: u32) -> [u8; HEAD] {
    let ([a, b, c, d], [w, x, y, z]) = (salt, counter.to_be_bytes());
    [a, b, c, d, w, x, y, z]
}
