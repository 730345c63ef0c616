//! The sending side.

use std::fmt;

use seam::Dice;

use crate::cipher::{Cipher, HEAD, TAG};
use crate::{OVERHEAD, SessionKey};

/// Seals and signs for one process. There is one for each key, and its counters run across all destinations, so a
/// frame sealed once may be sent to many.
///
/// A sealer cannot be cloned, and its `dice` must be its own ([`Dice::child`]) and freshly seeded at every start: two
/// sealers with one key and one salt would repeat a keystream.
pub struct Sealer {
    cipher: Cipher,
    dice: Dice,
    sealed: Series,
    signed: Series,
}

/// One salt and the counter of its next frame; `None` when the salt is used up.
#[derive(Clone, Copy)]
struct Series {
    salt: [u8; 4],
    next: Option<u32>,
}

impl Sealer {
    /// A sealer with two new salts.
    #[must_use]
    pub fn new(key: &SessionKey, mut dice: Dice) -> Self {
        let sealed = Series { salt: dice.bytes(), next: Some(1) };
        let signed = Series { salt: other_salt(&mut dice, &[sealed.salt]), next: Some(1) };
        Self { cipher: Cipher::new(key), dice, sealed, signed }
    }

    /// Seals the concatenation of `parts` into `out` and says how long the frame is: [`OVERHEAD`] over their sum.
    /// An `out` too small for that gets nothing: the answer is 0, and no counter is spent.
    pub fn seal(&mut self, parts: &[&[u8]], out: &mut [u8]) -> usize {
        let Some(frame) = lay_out(parts, out) else { return 0 };
        put_head(&mut self.dice, &mut self.sealed, self.signed.salt, frame);
        self.cipher.seal(frame);
        frame.len()
    }

    /// Signs the concatenation of `parts` into `out`, readable by anybody; otherwise as [`Sealer::seal`].
    pub fn sign(&mut self, parts: &[&[u8]], out: &mut [u8]) -> usize {
        let Some(frame) = lay_out(parts, out) else { return 0 };
        put_head(&mut self.dice, &mut self.signed, self.sealed.salt, frame);
        if let Some((data, tag)) = frame.split_last_chunk_mut::<TAG>() {
            *tag = self.cipher.tag_signed(data);
        }
        frame.len()
    }

    /// The salt of the next sealed frame, unless its counter is used up just now.
    #[must_use]
    pub const fn salt(&self) -> [u8; 4] {
        self.sealed.salt
    }

    /// The salt of the next signed frame, likewise.
    #[must_use]
    pub const fn signing_salt(&self) -> [u8; 4] {
        self.signed.salt
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sealed, signed) = (self.sealed.next, self.signed.next);
        f.debug_struct("Sealer").field("sealed", &sealed).field("signed", &signed).finish_non_exhaustive()
    }
}

/// Cuts a frame off `out` and copies the plaintext to its place.
fn lay_out<'a>(parts: &[&[u8]], out: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let plain: usize = parts.iter().map(|part| part.len()).sum();
    let frame = out.get_mut(..plain + OVERHEAD)?;
    let mut at = HEAD;
    for part in parts {
        frame.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(frame)
}

/// Writes salt and counter and spends the counter. A used-up salt is replaced first.
fn put_head(dice: &mut Dice, series: &mut Series, taken: [u8; 4], frame: &mut [u8]) {
    let counter = match series.next {
        Some(counter) => counter,
        None => {
            series.salt = other_salt(dice, &[taken, series.salt]);
            1
        }
    };
    series.next = counter.checked_add(1);
    if let Some(head) = frame.first_chunk_mut::<HEAD>() {
        let (salt, count) = head.split_at_mut(4);
        salt.copy_from_slice(&series.salt);
        count.copy_from_slice(&counter.to_be_bytes());
    }
}

fn other_salt(dice: &mut Dice, taken: &[[u8; 4]]) -> [u8; 4] {
    loop {
        let salt = dice.bytes();
        if !taken.contains(&salt) {
            return salt;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Opener;

    fn sealer(seed: u8) -> Sealer {
        Sealer::new(&SessionKey::from_bytes([9; 32]), Dice::new([seed; 32]))
    }

    #[test]
    fn counters_start_at_one_and_count_every_frame() {
        let mut sealer = sealer(1);
        let mut out = [0; 64];
        for want in 1..=3u32 {
            assert_eq!(sealer.seal(&[b"a", b"bc"], &mut out), 27);
            assert_eq!(out[..4], sealer.salt());
            assert_eq!(out[4..8], want.to_be_bytes());
        }
        assert_eq!(sealer.sign(&[b"abc"], &mut out), 27);
        assert_eq!(out[4..8], 1u32.to_be_bytes());
        assert_eq!(out[..4], sealer.signing_salt());
        assert_ne!(sealer.salt(), sealer.signing_salt());
    }

    /// Pain 22: a wrapped counter under the same salt repeats keystream.
    #[test]
    fn a_used_up_salt_is_replaced_and_counting_begins_again() {
        let key = SessionKey::from_bytes([9; 32]);
        let (mut sealer, mut opener) = (sealer(2), Opener::new(&key));
        let signing = sealer.signing_salt();
        sealer.sealed.next = Some(u32::MAX - 1);
        let mut heads = Vec::new();
        for _ in 0..4 {
            let mut out = [0; 29];
            assert_eq!(sealer.seal(&[b"hello"], &mut out), 29);
            let opened = opener.open(Instant::now(), &mut out).unwrap();
            assert_eq!(opened.plain, b"hello");
            heads.push((opened.salt, opened.counter));
        }
        assert_eq!(heads.iter().map(|head| head.1).collect::<Vec<_>>(), [u32::MAX - 1, u32::MAX, 1, 2]);
        assert_eq!(heads[0].0, heads[1].0);
        assert_ne!(heads[1].0, heads[2].0);
        assert_eq!(heads[2].0, heads[3].0);
        assert_eq!(sealer.salt(), heads[3].0);
        assert_eq!(sealer.signing_salt(), signing);
    }

    #[test]
    fn a_signing_salt_is_replaced_as_well() {
        let mut sealer = sealer(3);
        let (sealing, before) = (sealer.salt(), sealer.signing_salt());
        sealer.signed.next = Some(u32::MAX);
        let mut out = [0; 24];
        assert_eq!(sealer.sign(&[], &mut out), 24);
        assert_eq!(out[..8], [&before[..], &[0xFF; 4]].concat());
        assert_eq!(sealer.sign(&[], &mut out), 24);
        assert_ne!(out[..4], before);
        assert_eq!(out[4..8], 1u32.to_be_bytes());
        assert_eq!(sealer.salt(), sealing);
    }

    #[test]
    fn a_buffer_too_small_spends_no_counter() {
        let mut sealer = sealer(4);
        let mut out = [0; 26];
        assert_eq!(sealer.seal(&[b"abc"], &mut out), 0);
        assert_eq!(sealer.sign(&[b"abc"], &mut out), 0);
        assert_eq!(out, [0; 26]);
        assert_eq!((sealer.sealed.next, sealer.signed.next), (Some(1), Some(1)));
    }

    #[test]
    fn two_starts_never_share_a_salt() {
        let salts: std::collections::BTreeSet<_> =
            (0..100).flat_map(|seed| [sealer(seed).salt(), sealer(seed).signing_salt()]).collect();
        assert_eq!(salts.len(), 200);
    }

    #[test]
    fn a_sealer_shows_no_key() {
        assert_eq!(format!("{:?}", sealer(5)), "Sealer { sealed: Some(1), signed: Some(1), .. }");
    }
}
