//! Codes behind a password (netpunch wire, section 2.4).

use std::fmt;

use codec::{Reader, Writer};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::profile::Packing;
use crate::{CodeError, LOCKED, Profile, base32};

/// Rounds of PBKDF2 that [`stretch`] costs.
pub const ROUNDS: u32 = 600_000;

const TAG: usize = 16;

/// The key of one locked code: a password stretched together with the code's time.
#[derive(Clone, PartialEq, Eq)]
pub struct LockKey([u8; 32]);

/// Stretches a password: PBKDF2-HMAC-SHA256 with [`ROUNDS`] rounds. This takes tenths of a second: it is
/// for a worker, never for the thread that moves packets.
#[must_use]
pub fn stretch(password: &str, timestamp: u32) -> LockKey {
    let mut salt = Writer::with_capacity(16);
    salt.bytes(b"tpf2mp-code|").u32(timestamp);
    LockKey(pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), &salt.into_vec(), ROUNDS))
}

impl LockKey {
    /// A key that a worker returned.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key, for its way back from a worker.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Hides or shows `text`: XOR with SHA-256 of the key, a label and the number of each 32-byte block.
    pub(crate) fn toggle(&self, text: &mut [u8]) {
        for (block, number) in text.chunks_mut(32).zip(0_u32..) {
            let stream = Sha256::new().chain_update(self.0).chain_update(b"|ks|").chain_update(number.to_be_bytes());
            for (byte, key) in block.iter_mut().zip(stream.finalize()) {
                *byte ^= key;
            }
        }
    }

    /// The tag's state over a time and a ciphertext. HMAC takes keys of any length, so `None` never comes.
    fn mac(&self, timestamp: u32, hidden: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(&timestamp.to_be_bytes());
        mac.update(hidden);
        Some(mac)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockKey(..)")
    }
}

/// A code that needs a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Locked {
    timestamp: u32,
    hidden: Vec<u8>,
    tag: [u8; TAG],
}

impl Locked {
    /// When the code was made, in Unix seconds. It stands outside of the lock, since the key depends on it.
    #[must_use]
    pub fn timestamp(&self) -> u32 {
        self.timestamp
    }

    /// Opens the code with a key that [`stretch`] made from the password and [`timestamp`](Self::timestamp).
    ///
    /// # Errors
    /// [`CodeError::WrongPassword`] when the tag does not match: a changed code looks the same.
    /// [`CodeError::EmptyBody`] when nothing is inside, else what [`Profile`]s are refused for.
    pub fn open(&self, key: &LockKey) -> Result<Profile, CodeError> {
        let mac = key.mac(self.timestamp, &self.hidden).ok_or(CodeError::WrongPassword)?;
        mac.verify_truncated_left(&self.tag).map_err(|_| CodeError::WrongPassword)?;
        let mut body = self.hidden.clone();
        key.toggle(&mut body);
        let Some((&flags, fields)) = body.split_first() else { return Err(CodeError::EmptyBody) };
        Profile::from_parts(flags, self.timestamp, &mut Reader::new(fields))
    }

    /// [`stretch`] and [`open`](Self::open) in one: as slow as the first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`CodeError::NeedsPassword`] for an empty password: nobody locks with one.
    pub fn open_with(&self, password: &str) -> Result<Profile, CodeError> {
        if password.is_empty() {
            return Err(CodeError::NeedsPassword);
        }
        self.open(&stretch(password, self.timestamp))
    }

    /// Reads what follows the first byte of a locked code.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, CodeError> {
        let mut r = Reader::new(bytes);
        let timestamp = r.u32("time")?;
        let body = r.remaining().checked_sub(TAG).ok_or(CodeError::CutShort { what: "lock" })?;
        let hidden = r.take(body, "locked body")?.to_vec();
        Ok(Self { timestamp, hidden, tag: r.array("lock")? })
    }
}

impl fmt::Debug for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked").field("timestamp", &self.timestamp).finish_non_exhaustive()
    }
}

impl Profile {
    /// The profile as a locked code. `key` is [`stretch`] of the password and this profile's own `timestamp`.
    #[must_use]
    pub fn lock(&self, key: &LockKey) -> String {
        let (flags, fields) = self.parts(Packing::Short);
        let mut hidden = Vec::with_capacity(1 + fields.len());
        hidden.push(flags);
        hidden.extend_from_slice(&fields);
        key.toggle(&mut hidden);
        let tag = key.mac(self.timestamp, &hidden).map(|mac| mac.finalize().into_bytes()).unwrap_or_default();
        let tag = tag.get(..TAG).unwrap_or_default();
        let mut w = Writer::with_capacity(5 + hidden.len() + TAG);
        w.u8(LOCKED).u32(self.timestamp).bytes(&hidden).bytes(tag);
        base32::encode(&w.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authentic_code_with_nothing_inside_is_refused() {
        let key = LockKey::from_bytes([7; 32]);
        let tag = key.mac(9, &[]).unwrap().finalize().into_bytes();
        let bytes = [&[0, 0, 0, 9], &tag[..TAG]].concat();
        let locked = Locked::from_bytes(&bytes).unwrap();
        assert_eq!(locked.open(&key), Err(CodeError::EmptyBody));
        assert_eq!(locked.open(&LockKey::from_bytes([8; 32])), Err(CodeError::WrongPassword));
    }

    #[test]
    fn an_authentic_code_cut_inside_says_where() {
        let key = LockKey::from_bytes([7; 32]);
        let mut hidden = vec![0x80, 1, 2, 3];
        key.toggle(&mut hidden);
        let tag = key.mac(9, &hidden).unwrap().finalize().into_bytes();
        let bytes = [&[0, 0, 0, 9], &hidden[..], &tag[..TAG]].concat();
        let locked = Locked::from_bytes(&bytes).unwrap();
        assert_eq!(locked.open(&key), Err(CodeError::CutShort { what: "secret" }));
    }

    #[test]
    fn nothing_secret_is_printed() {
        let key = LockKey::from_bytes([0xAB; 32]);
        let locked = Locked { timestamp: 5, hidden: vec![0xAB; 3], tag: [0xAB; TAG] };
        let shown = format!("{key:?} {locked:?}");
        assert_eq!(shown, "LockKey(..) Locked { timestamp: 5, .. }");
    }
}
