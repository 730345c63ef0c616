//! A cursor over borrowed bytes.

use thiserror::Error;

/// The input ended before a field did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cut short at {what}: {need} bytes wanted, {have} left")]
#[non_exhaustive]
pub struct Short {
    /// Name of the field that did not fit.
    pub what: &'static str,
    /// Bytes the field needs.
    pub need: usize,
    /// Bytes that were left.
    pub have: usize,
}

/// A cursor over borrowed bytes. Every read names its field, so that an error says what was cut.
///
/// ```
/// use anywire_codec::Reader;
/// let mut r = Reader::new(&[0, 7, b'x']);
/// assert_eq!(r.u16("count"), Ok(7));
/// assert_eq!(r.rest(), b"x");
/// assert!(r.u8("more").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

macro_rules! integers {
    ($($be:ident $le:ident $ty:ty),*) => {$(
        #[doc = concat!("A big-endian `", stringify!($ty), "`.")]
        ///
        /// # Errors
        /// [`Short`] when fewer bytes are left.
        pub fn $be(&mut self, what: &'static str) -> Result<$ty, Short> {
            self.array(what).map(<$ty>::from_be_bytes)
        }

        #[doc = concat!("A little-endian `", stringify!($ty), "`.")]
        ///
        /// # Errors
        /// [`Short`] when fewer bytes are left.
        pub fn $le(&mut self, what: &'static str) -> Result<$ty, Short> {
            self.array(what).map(<$ty>::from_le_bytes)
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left.len()
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`Short`] when fewer are left; nothing is consumed then.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Short> {
        match self.left.split_at_checked(n) {
            Some((head, tail)) => {
                self.left = tail;
                Ok(head)
            }
            None => Err(Short { what, need: n, have: self.left.len() }),
        }
    }

    /// The next `N` bytes by value.
    ///
    /// # Errors
    /// [`Short`] when fewer are left; nothing is consumed then.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Short> {
        match self.left.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.left = tail;
                Ok(*head)
            }
            None => Err(Short { what, need: N, have: self.left.len() }),
        }
    }

    /// One byte.
    ///
    /// # Errors
    /// [`Short`] at the end.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Short> {
        self.array::<1>(what).map(|[b]| b)
    }

    integers!(u16 u16_le u16, u32 u32_le u32, u64 u64_le u64);

    /// Everything that is left, possibly nothing.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_byte_orders() {
        let mut r = Reader::new(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(r.u16("a"), Ok(0x0102));
        assert_eq!(r.u32_le("b"), Ok(0x0605_0403));
        assert!(r.is_empty());
    }

    #[test]
    fn a_short_field_is_named_and_consumes_nothing() {
        let mut r = Reader::new(&[1, 2, 3]);
        assert_eq!(r.u32("token"), Err(Short { what: "token", need: 4, have: 3 }));
        assert_eq!(r.take(usize::MAX, "body").map_err(|e| e.need), Err(usize::MAX));
        assert_eq!(r.remaining(), 3);
        assert_eq!(r.rest(), [1, 2, 3]);
    }
}
