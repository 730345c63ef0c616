//! Which chunks are there.

use std::collections::BTreeSet;

use crate::words::NACKS_MAX;

/// Chunks held: all below `base`, and some within a window above it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    base: u32,
    above: BTreeSet<u32>,
    window: u32,
}

impl Held {
    /// None, and as many above the first gap as `window` says at most.
    pub(crate) fn new(window: u32) -> Self {
        Self { base: 0, above: BTreeSet::new(), window }
    }

    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// Whether chunk `index` is new and within the window.
    pub(crate) fn wants(&self, index: u32) -> bool {
        index >= self.base && index - self.base < self.window && !self.above.contains(&index)
    }

    pub(crate) fn insert(&mut self, index: u32) {
        if self.wants(index) {
            self.above.insert(index);
            while self.above.remove(&self.base) {
                self.base += 1;
            }
        }
    }

    /// Everything below `base` is there.
    pub(crate) fn raise(&mut self, base: u32) {
        if base > self.base {
            self.base = base;
            self.above = self.above.split_off(&base);
            while self.above.remove(&self.base) {
                self.base += 1;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.base = 0;
        self.above.clear();
    }

    /// The first missing chunks below `end`.
    pub(crate) fn missing(&self, end: u32) -> Vec<u32> {
        let mut missing = Vec::new();
        let mut next = self.base;
        for held in self.above.iter().chain([&end]) {
            let room = NACKS_MAX - missing.len();
            missing.extend((next..*held).take(room));
            if missing.len() >= NACKS_MAX {
                break;
            }
            next = held + 1;
        }
        missing
    }

    /// Behind the highest chunk held.
    pub(crate) fn end(&self) -> u32 {
        self.above.last().map_or(self.base, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_named_up_to_128_and_what_is_beyond_the_window_is_not_held() {
        let mut held = Held::new(1000);
        held.insert(999);
        held.insert(1000);
        assert_eq!(held.missing(held.end()), (0..128).collect::<Vec<_>>());
        assert_eq!(held.base(), 0);
        held.raise(999);
        assert_eq!((held.missing(1010), held.base()), ((1000..1010).collect(), 1000));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_set(indexes in proptest::collection::vec(0u32..300, 0..600), raise in 0u32..300) {
            let (mut held, mut model) = (Held::new(100), BTreeSet::new());
            for (n, index) in indexes.into_iter().enumerate() {
                let base = (0..).find(|i| !model.contains(i)).unwrap();
                if n == 50 {
                    held.raise(raise);
                    model.extend(0..raise);
                    continue;
                }
                prop_assert_eq!(held.base(), base);
                let wanted = index >= base && index < base + 100 && !model.contains(&index);
                prop_assert_eq!(held.wants(index), wanted);
                held.insert(index);
                if wanted {
                    model.insert(index);
                }
            }
            let top = model.last().copied().unwrap_or_default();
            let want: Vec<u32> = (0..top).filter(|i| !model.contains(i)).take(128).collect();
            prop_assert_eq!(held.missing(held.end()), want);
        }
    }
}
