//! A small seeded generator (SplitMix64), so that a lab's random ports, losses
//! and jitter can be repeated.

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// A generator for one named part, independent of the others.
    pub(crate) fn named(seed: u64, name: &str) -> Self {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        for b in name.bytes() {
            state = (state ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Rng(state)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low..=high`.
    pub(crate) fn between(&mut self, low: u16, high: u16) -> u16 {
        let span = u64::from(high - low) + 1;
        low + (self.bits() % span) as u16
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}
