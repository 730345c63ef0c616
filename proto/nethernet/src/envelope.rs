//! The sealed envelope of discovery: HMAC-SHA256 over the plaintext, then AES-256-ECB of it (NetherNet, section 8).
//!
//! It hides little: ECB shows equal blocks, nothing stops a replay, and the application id that the key comes from is
//! the same for everybody. It keeps noise and other applications apart. Nothing that arrives in it may be trusted.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The application id that everybody uses.
pub const APP_ID: u64 = 0xDEAD_BEEF;

/// Bytes of the authentication code in front.
pub const MAC: usize = 32;

const BLOCK: usize = 16;

/// The key of an application id, with its schedules computed once. 1 KiB.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; 32],
    aes: Aes256,
    hmac: Hmac<Sha256>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why an envelope does not open. It is dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Shorter than a code and one block.
    #[error("shorter than an envelope")]
    Short,
    /// The ciphertext is not a whole number of blocks.
    #[error("not a whole number of blocks")]
    Blocks,
    /// The padding is none of PKCS #7: another key, or not an envelope.
    #[error("no valid padding")]
    Padding,
    /// The authentication code is another.
    #[error("not authentic")]
    NotAuthentic,
}

impl Key {
    /// The key of an application id: SHA-256 of its eight bytes, little-endian.
    #[must_use]
    pub fn from_app_id(app_id: u64) -> Self {
        let bytes: [u8; 32] = Sha256::digest(app_id.to_le_bytes()).into();
        let hmac = <Hmac<Sha256> as KeyInit>::new(&hmac_key(&bytes));
        Self { bytes, aes: Aes256::new(&bytes.into()), hmac }
    }

    /// The 32 bytes of both keys.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Bytes of an envelope round `len` bytes.
    #[must_use]
    pub const fn sealed_len(len: usize) -> usize {
        MAC + (len / BLOCK + 1) * BLOCK
    }

    /// The envelope round `plaintext`.
    #[must_use]
    pub fn seal(&self, plaintext: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::sealed_len(plaintext.len()));
        out.extend_from_slice(&self.code(plaintext).finalize().into_bytes());
        out.extend_from_slice(plaintext);
        let pad = BLOCK - plaintext.len() % BLOCK;
        out.resize(out.len() + pad, u8::try_from(pad).unwrap_or(0));
        if let Some(text) = out.get_mut(MAC..) {
            let (blocks, _) = Array::slice_as_chunks_mut(text);
            self.aes.encrypt_blocks(blocks);
        }
        out
    }

    /// Opens an envelope in place and hands out the plaintext within it. The code is compared in constant time.
    ///
    /// # Errors
    /// [`OpenError`]; what `envelope` holds then is of no use.
    pub fn open<'a>(&self, envelope: &'a mut [u8]) -> Result<&'a [u8], OpenError> {
        let (code, text) = envelope.split_at_mut_checked(MAC).ok_or(OpenError::Short)?;
        if text.is_empty() {
            return Err(OpenError::Short);
        }
        let (blocks, rest) = Array::slice_as_chunks_mut(text);
        if !rest.is_empty() {
            return Err(OpenError::Blocks);
        }
        self.aes.decrypt_blocks(blocks);
        let plaintext = unpad(text).ok_or(OpenError::Padding)?;
        self.code(plaintext).verify_slice(code).map_err(|_| OpenError::NotAuthentic)?;
        Ok(plaintext)
    }

    fn code(&self, plaintext: &[u8]) -> Hmac<Sha256> {
        let mut hmac = self.hmac.clone();
        hmac.update(plaintext);
        hmac
    }
}

/// A key as HMAC wants it: one block of SHA-256, zeros behind (RFC 2104, section 2).
fn hmac_key(bytes: &[u8; 32]) -> hmac::digest::Key<Hmac<Sha256>> {
    let mut key = hmac::digest::Key::<Hmac<Sha256>>::default();
    for (slot, byte) in key.iter_mut().zip(bytes) {
        *slot = *byte;
    }
    key
}

/// What is in front of the padding (PKCS #7).
fn unpad(text: &[u8]) -> Option<&[u8]> {
    let pad = *text.last()?;
    let count = usize::from(pad);
    if count == 0 || count > BLOCK {
        return None;
    }
    let (plaintext, padding) = text.split_at_checked(text.len().checked_sub(count)?)?;
    padding.iter().all(|byte| *byte == pad).then_some(plaintext)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_truncation_is_refused() {
        let key = Key::from_app_id(APP_ID);
        let envelope = key.seal(&[7; 40]);
        for end in 0..envelope.len() {
            assert!(key.open(&mut envelope[..end].to_vec()).is_err(), "cut to {end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let key = Key::from_app_id(APP_ID);
        let envelope = key.seal(b"a packet of some length");
        for bit in 0..envelope.len() * 8 {
            let mut bent = envelope.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(key.open(&mut bent).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn swapped_blocks_are_caught_by_the_code_alone() {
        let key = Key::from_app_id(APP_ID);
        let plaintext: Vec<u8> = (0..64).collect();
        let mut envelope = key.seal(&plaintext);
        let (a, b) = envelope[MAC..].split_at_mut(16);
        a.swap_with_slice(&mut b[..16]);
        assert_eq!(key.open(&mut envelope), Err(OpenError::NotAuthentic));
    }

    #[test]
    fn another_application_is_not_heard() {
        let mut envelope = Key::from_app_id(1).seal(b"secret");
        assert!(Key::from_app_id(2).open(&mut envelope).is_err());
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens(app_id: u64, plaintext in proptest::collection::vec(any::<u8>(), 0..200)) {
            let key = Key::from_app_id(app_id);
            let mut envelope = key.seal(&plaintext);
            prop_assert_eq!(envelope.len(), Key::sealed_len(plaintext.len()));
            prop_assert_eq!(key.open(&mut envelope), Ok(&plaintext[..]));
        }

        #[test]
        fn no_bytes_are_too_strange(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Key::from_app_id(APP_ID).open(&mut bytes).is_err());
        }
    }
}
