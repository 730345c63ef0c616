//! Seeded chance. A machine draws everything it needs from the seed it was made with, so a run can be repeated.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

/// A stream of random numbers fit for tokens, salts and keys when its seed is secret.
#[derive(Clone, Debug)]
pub struct Dice {
    rng: ChaCha12Rng,
}

impl Dice {
    /// The stream that belongs to `seed`.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { rng: ChaCha12Rng::from_seed(seed) }
    }

    /// A stream of its own for one part of a machine. Order of calls matters, names do not.
    #[must_use]
    pub fn child(&mut self) -> Self {
        Self::new(self.bytes())
    }

    /// Random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.rng.fill_bytes(&mut out);
        out
    }

    /// Any 32-bit number.
    pub fn u32(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// Any 64-bit number.
    pub fn u64(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// A number from 0 to `n - 1`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high half of a 128-bit product; its bias is under n / 2^64.
        let wide = u128::from(self.u64()) * u128::from(n);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// True with the given probability, 0 to 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        let unit = f64::from(self.u32()) / (f64::from(u32::MAX) + 1.0);
        unit < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_stream() {
        let (mut a, mut b) = (Dice::new([7; 32]), Dice::new([7; 32]));
        assert_eq!(a.bytes::<16>(), b.bytes::<16>());
        assert_eq!(a.child().u64(), b.child().u64());
        assert_ne!(a.u64(), Dice::new([8; 32]).u64());
    }

    #[test]
    fn numbers_stay_in_range_and_certainties_are_certain() {
        let mut dice = Dice::new([1; 32]);
        assert!((0..10_000).all(|_| dice.below(6) < 6));
        assert_eq!(dice.below(0), 0);
        assert!((0..1000).all(|_| dice.chance(1.0) && !dice.chance(0.0)));
    }
}
