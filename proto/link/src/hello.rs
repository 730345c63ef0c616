//! The greeting of a link.
//!
//! ```text
//! TPF2LINK1 <name> <hex of an E frame that seals the same name>\n
//! ```

use std::time::Instant;

use seal::{OVERHEAD, Opener, Sealer};
use thiserror::Error;

/// What a greeting begins with.
pub const PREFIX: &str = "TPF2LINK1 ";
/// Most bytes of a name, cut at a character.
pub const NAME_MAX: usize = 64;
/// Most bytes of a greeting, its newline included.
pub const LINE_MAX: usize = 256;

/// Why a greeting is not taken. The other end is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Not a greeting, or longer than one.
    #[error("not a greeting of a backup link")]
    Malformed,
    /// What it seals does not open under the session key, or was said before.
    #[error("a greeting of another session, or a copied one")]
    NotAuthentic,
    /// The sealed name is not the written one.
    #[error("the sealed name is another than the written one")]
    OtherName,
}

/// A greeting as it was written, not yet believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who it says it is.
    pub name: String,
    /// The sealed frame.
    pub sealed: Vec<u8>,
}

/// A name as greetings carry it.
#[must_use]
pub(crate) fn cut(name: &str) -> &str {
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
    name.get(..end).unwrap_or_default()
}

/// The greeting of `name`, sealed now: it is good for one connection.
#[must_use]
pub fn hello(name: &str, sealer: &mut Sealer) -> Vec<u8> {
    // A line feed in a name would end the line.
    let name: String = cut(name).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let name = cut(&name);
    let mut sealed = vec![0; name.len() + OVERHEAD];
    let used = sealer.seal(&[name.as_bytes()], &mut sealed);
    sealed.truncate(used);
    Hello { name: name.to_owned(), sealed }.write()
}

impl Hello {
    /// The line with its newline.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        format!("{PREFIX}{} {}\n", cut(&self.name), codec::hex(&self.sealed)).into_bytes()
    }

    /// Reads a line with its newline.
    ///
    /// # Errors
    /// [`HelloError::Malformed`] for anything but the one form.
    pub fn parse(line: &[u8]) -> Result<Self, HelloError> {
        if line.len() > LINE_MAX {
            return Err(HelloError::Malformed);
        }
        let text = std::str::from_utf8(line).map_err(|_| HelloError::Malformed)?;
        let fields = text.strip_suffix('\n').and_then(|text| text.strip_prefix(PREFIX));
        // The name may hold spaces; the last field is the seal.
        let (name, sealed) = fields.and_then(|fields| fields.rsplit_once(' ')).ok_or(HelloError::Malformed)?;
        let sealed = codec::unhex(sealed).ok_or(HelloError::Malformed)?;
        if name.len() > NAME_MAX || name.contains('\n') || sealed.len() < OVERHEAD {
            return Err(HelloError::Malformed);
        }
        Ok(Self { name: name.to_owned(), sealed })
    }

    /// The name, once it is known to be of this session and said for the first time.
    ///
    /// # Errors
    /// [`HelloError::NotAuthentic`] and [`HelloError::OtherName`].
    pub fn open(mut self, now: Instant, opener: &mut Opener) -> Result<String, HelloError> {
        let opened = opener.open(now, &mut self.sealed).map_err(|_| HelloError::NotAuthentic)?;
        if opened.plain != self.name.as_bytes() {
            return Err(HelloError::OtherName);
        }
        Ok(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use seal::SessionKey;
    use seam::Dice;

    fn pair() -> (Sealer, Opener) {
        let key = SessionKey::from_bytes([5; 32]);
        (Sealer::new(&key, Dice::new([1; 32])), Opener::new(&key))
    }

    #[test]
    fn every_cut_and_every_longer_line_is_refused() {
        let (mut sealer, mut opener) = pair();
        let line = hello("Comrade Silver", &mut sealer);
        for cut in 0..line.len() {
            assert_eq!(Hello::parse(&line[..cut]), Err(HelloError::Malformed), "cut at {cut}");
        }
        let long = [PREFIX.as_bytes(), &b"a".repeat(LINE_MAX), b"\n"].concat();
        assert_eq!(Hello::parse(&long), Err(HelloError::Malformed));
        let hello = Hello::parse(&line).unwrap();
        assert_eq!(hello.open(Instant::now(), &mut opener).as_deref(), Ok("Comrade Silver"));
    }

    #[test]
    fn a_copied_greeting_opens_nothing() {
        let (mut sealer, mut opener) = pair();
        let line = hello("bob", &mut sealer);
        let now = Instant::now();
        assert!(Hello::parse(&line).unwrap().open(now, &mut opener).is_ok());
        assert_eq!(Hello::parse(&line).unwrap().open(now, &mut opener), Err(HelloError::NotAuthentic));
    }

    #[test]
    fn a_line_feed_in_a_name_does_not_end_the_greeting() {
        let (mut sealer, mut opener) = pair();
        let line = hello("a\nb", &mut sealer);
        assert_eq!(Hello::parse(&line).unwrap().open(Instant::now(), &mut opener).as_deref(), Ok("a b"));
    }

    proptest! {
        #[test]
        fn any_name_is_greeted_within_the_line_and_read_back_cut_to_64_bytes(name in "\\PC{0,80}") {
            let (mut sealer, mut opener) = pair();
            let line = hello(&name, &mut sealer);
            prop_assert!(line.len() <= LINE_MAX);
            let read = Hello::parse(&line).unwrap().open(Instant::now(), &mut opener).unwrap();
            prop_assert_eq!(&*read, cut(&name));
        }
    }
}
