//! A set of seats.

/// A set of the slots 0 to 255 of a lobby: whom somebody reaches, in 32 bytes and without a name.
///
/// ```
/// use anywire_seam::Slots;
///
/// let reached: Slots = [3, 200].into_iter().collect();
/// assert!(reached.contains(200) && !reached.contains(4));
/// assert_eq!(reached.iter().collect::<Vec<u8>>(), [3, 200]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots([u64; 4]);

impl Slots {
    /// No slot.
    pub const EMPTY: Self = Self([0; 4]);

    /// Adds a slot.
    pub fn insert(&mut self, slot: u8) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: u8) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Whether a slot is in the set.
    #[must_use]
    pub fn contains(&self, slot: u8) -> bool {
        self.0.get(usize::from(slot / 64)).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// The slots that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine &= theirs);
        both
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones()).sum::<u32>().try_into().unwrap_or(usize::MAX)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Every slot, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0u8..=3).zip(self.0).flat_map(|(at, word)| {
            let next = |rest: &u64| Some(rest & rest.wrapping_sub(1)).filter(|rest| *rest != 0);
            let bits = std::iter::successors(Some(word).filter(|word| *word != 0), next);
            bits.filter_map(move |rest| u8::try_from(rest.trailing_zeros()).ok().map(|bit| at * 64 + bit))
        })
    }

    /// Bit k of byte n stands for slot 8n + k.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            eight.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The reverse of [`to_bytes`](Self::to_bytes).
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut slots = Self::EMPTY;
        for (word, eight) in slots.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = eight.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        slots
    }
}

impl FromIterator<u8> for Slots {
    fn from_iter<T: IntoIterator<Item = u8>>(slots: T) -> Self {
        let mut set = Self::EMPTY;
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_of_slots_is_a_set() {
        let one: BTreeSet<u8> = [0, 7, 63, 64, 127, 128, 200, 255].into();
        let other: BTreeSet<u8> = (0..=u8::MAX).step_by(7).collect();
        let (mut a, b): (Slots, Slots) = (one.iter().copied().collect(), other.iter().copied().collect());
        assert!((0..=u8::MAX).all(|slot| a.contains(slot) == one.contains(&slot)));
        assert_eq!(a.iter().collect::<Vec<_>>(), one.iter().copied().collect::<Vec<_>>());
        assert_eq!((a.len(), b.len(), Slots::EMPTY.len()), (one.len(), other.len(), 0));
        assert_eq!(a.and(b).iter().collect::<Vec<_>>(), one.intersection(&other).copied().collect::<Vec<_>>());
        assert_eq!((0..=u8::MAX).collect::<Slots>().len(), 256);
        one.iter().for_each(|&slot| a.remove(slot));
        assert!(a.is_empty() && !b.is_empty());
    }

    #[test]
    fn a_set_of_slots_travels_as_bytes() {
        let slots: Slots = [0, 9, 255].into_iter().collect();
        let mut bytes = [0; 32];
        (bytes[0], bytes[1], bytes[31]) = (1, 2, 0x80);
        assert_eq!(slots.to_bytes(), bytes);
        assert_eq!(Slots::from_bytes(bytes), slots);
    }
}
