//! Names, letters and companies: what belongs to a player's seat.

use std::collections::{BTreeMap, BTreeSet};

use seam::Slots;

use crate::text;

/// Letters there are: 26 of one character, 676 of two, 17,576 of three. Old programs go round after the first 702.
const LETTERS: u32 = 26 + 26 * 26 + 26 * 26 * 26;

/// The company a player is in when there is but one.
pub(crate) const COOP_COMPANY: u32 = 1;
/// Highest company number.
pub(crate) const COMPANY_MAX: u32 = 200;

/// The name given to somebody who asked for `asked`: the first of `asked`, `asked#2`, `asked#3`, ... not taken. The
/// search ends because no more names are taken than there are players.
pub(crate) fn assign(asked: &str, taken: impl Fn(&str) -> bool) -> String {
    let name = text::name(asked);
    if !taken(&name) {
        return name;
    }
    (2..).map(|n| text::numbered(&name, n)).find(|name| !taken(name)).unwrap_or(name)
}

/// The letter with this index: a..z, aa..zz, aaa..zzz, then none.
pub(crate) fn letter(index: u32) -> Option<String> {
    let (mut rest, length) = match index {
        0..26 => (index, 1),
        26..702 => (index - 26, 2),
        702..LETTERS => (index - 702, 3),
        _ => return None,
    };
    let mut out = vec![b'a'; length];
    for place in out.iter_mut().rev() {
        *place = b'a' + u8::try_from(rest % 26).unwrap_or_default();
        rest /= 26;
    }
    String::from_utf8(out).ok()
}

/// Who has which letter, for the lobby's life. A letter once given is given to nobody else, so the table holds at
/// most 18,278 names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letters {
    by_name: BTreeMap<String, String>,
    given: BTreeSet<String>,
    next: u32,
}

impl Letters {
    /// A table that goes on where an earlier run ended.
    pub(crate) fn new(kept: &BTreeMap<String, String>) -> Self {
        let most = usize::try_from(LETTERS).unwrap_or(usize::MAX);
        let by_name: BTreeMap<_, _> = kept
            .iter()
            .filter(|(name, letter)| name.len() <= text::NAME_MAX && letter.len() <= 3)
            .take(most)
            .map(|(name, letter)| (name.clone(), letter.clone()))
            .collect();
        Self { given: by_name.values().cloned().collect(), by_name, next: 0 }
    }

    /// The letter of `name`: its old one unless somebody present has it, else the lowest never given. `None` when
    /// there is none left.
    pub(crate) fn give(&mut self, name: &str, present: impl Fn(&str) -> bool) -> Option<String> {
        if let Some(letter) = self.by_name.get(name).filter(|letter| !present(letter)) {
            return Some(letter.clone());
        }
        loop {
            let letter = letter(self.next)?;
            self.next += 1;
            if self.given.insert(letter.clone()) {
                self.by_name.insert(name.to_owned(), letter.clone());
                return Some(letter);
            }
        }
    }

    /// `letter` stays with its player, who is called `new` from now on.
    pub(crate) fn keep(&mut self, old: &str, new: &str, letter: &str) {
        if self.by_name.get(old).is_some_and(|held| held == letter) {
            self.by_name.remove(old);
        }
        self.by_name.insert(new.to_owned(), letter.to_owned());
    }

    /// Everybody's, those gone included.
    pub(crate) fn all(&self) -> &BTreeMap<String, String> {
        &self.by_name
    }
}

/// The lowest company nobody has. With 200 players at most there always is one.
pub(crate) fn free_company(taken: impl Fn(u32) -> bool) -> u32 {
    (1..=COMPANY_MAX).find(|&id| !taken(id)).unwrap_or(COOP_COMPANY)
}

/// A set of slots in hexadecimal, bit k of byte n for slot 8n + k, without zero bytes at the end.
pub(crate) fn to_hex(slots: Slots) -> String {
    let bytes = slots.to_bytes();
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    codec::hex(bytes.get(..used).unwrap_or_default())
}

/// The reverse; `None` for anything else.
pub(crate) fn from_hex(text: &str) -> Option<Slots> {
    let read = codec::unhex(text)?;
    let mut bytes = [0; 32];
    bytes.get_mut(..read.len())?.copy_from_slice(&read);
    Some(Slots::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn vector(name: &str) -> Value {
        let path = format!("{}/../../lab/vectors/netpunch/rule/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn names_as_in_the_vectors() {
        for case in ["name-blank-taken", "name-free", "name-hole", "name-taken", "name-taken-twice", "name-trim"] {
            let vector = vector(case);
            let taken: Vec<&str> =
                vector["inputs"]["taken"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
            let assigned = assign(vector["inputs"]["asked"].as_str().unwrap(), |name| taken.contains(&name));
            assert_eq!(assigned, vector["expect"]["assigned"], "{case}");
        }
    }

    #[test]
    fn pain_38_letters_as_in_the_vectors_and_then_three_of_them() {
        let vector = vector("letters");
        let pairs =
            vector["inputs"]["indexes"].as_array().unwrap().iter().zip(vector["expect"]["letters"].as_array().unwrap());
        for (index, want) in pairs {
            let index = u32::try_from(index.as_u64().unwrap()).unwrap();
            if index < 702 {
                assert_eq!(letter(index).unwrap(), *want);
            } else {
                // The vector shows the old program going round; ours goes on.
                assert_eq!((want.as_str(), letter(index).as_deref()), (Some("aa"), Some("aaa")));
            }
        }
        assert_eq!(letter(LETTERS - 1).as_deref(), Some("zzz"));
        assert_eq!(letter(LETTERS), None);
    }

    #[test]
    fn pain_38_letters_run_out_with_an_answer_instead_of_a_search_without_end() {
        let mut letters = Letters::default();
        let given = (0..LETTERS).filter_map(|n| letters.give(&format!("p{n}"), |_| false)).collect::<BTreeSet<_>>();
        assert_eq!(given.len(), usize::try_from(LETTERS).unwrap());
        assert_eq!(letters.give("late", |_| false), None);
        assert_eq!(letters.give("p3", |_| false).as_deref(), Some("d"));
    }

    #[test]
    fn a_kept_letter_is_given_back_unless_somebody_has_it_now() {
        let kept = BTreeMap::from([("ada".to_owned(), "a".to_owned()), ("lin".to_owned(), "c".to_owned())]);
        let mut letters = Letters::new(&kept);
        assert_eq!(letters.give("lin", |_| false).as_deref(), Some("c"));
        assert_eq!(letters.give("bob", |_| false).as_deref(), Some("b"));
        assert_eq!(letters.give("eve", |_| false).as_deref(), Some("d"));
        assert_eq!(letters.give("lin", |letter| letter == "c").as_deref(), Some("e"));
    }

    #[test]
    fn slots_travel_as_hexadecimal() {
        let slots: Slots = [0, 9].into_iter().collect();
        assert_eq!(to_hex(slots), "0102");
        assert_eq!(from_hex(""), Some(Slots::default()));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex(&"00".repeat(33)), None);
    }

    proptest! {
        #[test]
        fn any_set_of_slots_comes_back(set in proptest::collection::btree_set(any::<u8>(), 0..256)) {
            let slots: Slots = set.iter().copied().collect();
            let back = from_hex(&to_hex(slots)).unwrap();
            prop_assert_eq!(back.iter().collect::<BTreeSet<_>>(), set);
        }
    }
}
