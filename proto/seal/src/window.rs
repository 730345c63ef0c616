//! Which counters of one salt were seen.

/// Counters remembered below the highest one seen.
pub const WINDOW: u32 = 1024;

const WORDS: usize = 16;

/// A ring of bits: bit `counter % 1024` belongs to the one counter with that remainder inside the window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    high: u32,
    seen: [u64; WORDS],
}

/// Why a counter is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// It was taken before.
    Seen,
    /// It lies below the window.
    TooOld,
}

impl Window {
    /// A window whose first counter is `first`.
    pub(crate) fn new(first: u32) -> Self {
        let mut window = Self { high: first, seen: [0; WORDS] };
        window.set(first);
        window
    }

    /// Takes `counter`, unless it was taken before or lies below the window.
    pub(crate) fn take(&mut self, counter: u32) -> Result<(), Stale> {
        if counter > self.high {
            if counter - self.high >= WINDOW {
                self.seen = [0; WORDS];
            } else {
                for passed in self.high + 1..counter {
                    self.clear(passed);
                }
            }
            self.high = counter;
            self.set(counter);
            return Ok(());
        }
        if self.high - counter >= WINDOW {
            return Err(Stale::TooOld);
        }
        if self.is_set(counter) {
            return Err(Stale::Seen);
        }
        self.set(counter);
        Ok(())
    }

    fn is_set(&self, counter: u32) -> bool {
        let (word, bit) = place(counter);
        self.seen.get(word).is_some_and(|w| w & bit != 0)
    }

    fn set(&mut self, counter: u32) {
        let (word, bit) = place(counter);
        if let Some(w) = self.seen.get_mut(word) {
            *w |= bit;
        }
    }

    fn clear(&mut self, counter: u32) {
        let (word, bit) = place(counter);
        if let Some(w) = self.seen.get_mut(word) {
            *w &= !bit;
        }
    }
}

const fn place(counter: u32) -> (usize, u64) {
    let slot = counter % WINDOW;
    ((slot / 64) as usize, 1 << (slot % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_is_exactly_1024_wide() {
        let mut window = Window::new(5_000);
        assert_eq!(window.take(5_000 - 1_024), Err(Stale::TooOld));
        assert_eq!(window.take(5_000 - 1_023), Ok(()));
        assert_eq!(window.take(5_000 - 1_023), Err(Stale::Seen));
        // The next counter up shares the slot of the one that falls out of the window.
        assert_eq!(window.take(5_001), Ok(()));
        assert_eq!(window.take(5_001 - 1_023), Ok(()));
        assert_eq!(window.take(5_001 - 1_024), Err(Stale::TooOld));
    }

    #[test]
    fn the_ends_of_the_counter_range_are_ordinary() {
        let mut window = Window::new(0);
        assert_eq!(window.take(0), Err(Stale::Seen));
        assert_eq!(window.take(u32::MAX), Ok(()));
        assert_eq!(window.take(u32::MAX), Err(Stale::Seen));
        assert_eq!(window.take(u32::MAX - 1_023), Ok(()));
        assert_eq!(window.take(0), Err(Stale::TooOld));
    }

    proptest! {
        #[test]
        fn it_answers_as_a_set_of_everything_seen_would(
            start in prop_oneof![0u32..3_000, u32::MAX - 6_000..u32::MAX - 5_000],
            steps in proptest::collection::vec(0u32..5_000, 1..400),
        ) {
            let mut window = Window::new(start);
            let mut seen = BTreeSet::from([start]);
            for step in steps {
                let counter = start.saturating_add(step);
                let high = *seen.last().unwrap();
                let want = if counter <= high && high - counter >= WINDOW {
                    Err(Stale::TooOld)
                } else if seen.insert(counter) {
                    Ok(())
                } else {
                    Err(Stale::Seen)
                };
                prop_assert_eq!(window.take(counter), want);
            }
        }
    }
}
