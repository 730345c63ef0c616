//! How a router chooses the ports it gives out (RFC 4787, section 4.2), as far as the answers of several servers tell.

use crate::Observation;

/// Ports this far apart were counted up: each server asked took one, and other programs behind the router a few.
const COUNTED: u16 = 16;

/// How external ports are chosen for one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allocation {
    /// The same for every destination: preserved, or chosen once.
    Kept,
    /// Another for every destination, one after the other.
    Counted,
    /// Another for every destination, any.
    Random,
}

impl Allocation {
    /// The word that travels.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Counted => "counted",
            Self::Random => "random",
        }
    }

    /// What a word that travelled means.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Kept, Self::Counted, Self::Random].into_iter().find(|allocation| allocation.word() == word)
    }
}

impl Observation {
    /// How the router chose the ports that were seen. `None` when nobody answered. A random choice looks counted once in
    /// two thousand times.
    #[must_use]
    pub fn allocation(&self) -> Option<Allocation> {
        let first = self.public.first()?;
        if !self.symmetric {
            return Some(Allocation::Kept);
        }
        let counted = self.public.iter().all(|seen| seen.port().abs_diff(first.port()) <= COUNTED);
        Some(if counted { Allocation::Counted } else { Allocation::Random })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ports: &[u16]) -> Option<Allocation> {
        Observation::of(ports.iter().map(|port| ([203, 0, 113, 5], *port).into())).allocation()
    }

    #[test]
    fn the_ports_that_were_seen_tell_how_they_were_chosen() {
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&[4000]), Some(Allocation::Kept));
        assert_eq!(seen(&[4000, 4000]), Some(Allocation::Kept));
        assert_eq!(seen(&[4001, 4000]), Some(Allocation::Counted));
        assert_eq!(seen(&[4000, 4003, 4001]), Some(Allocation::Counted));
        assert_eq!(seen(&[4000, 61_234]), Some(Allocation::Random));
        assert_eq!(seen(&[4000, 4001, 30_000]), Some(Allocation::Random));
    }

    #[test]
    fn words_travel_there_and_back() {
        for allocation in [Allocation::Kept, Allocation::Counted, Allocation::Random] {
            assert_eq!(Allocation::of_word(allocation.word()), Some(allocation));
        }
        assert_eq!(Allocation::of_word("Random"), None);
    }
}
