//! A growing byte string with the same field vocabulary as the reader.

/// Builds a message front to back.
///
/// ```
/// use anywire_codec::Writer;
/// let mut w = Writer::new();
/// w.u8(1).sized_u8(|w| { w.bytes(b"bob"); });
/// assert_eq!(w.into_vec(), b"\x01\x03bob");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

macro_rules! integers {
    ($($be:ident $le:ident $ty:ty),*) => {$(
        #[doc = concat!("Appends a big-endian `", stringify!($ty), "`.")]
        pub fn $be(&mut self, value: $ty) -> &mut Self {
            self.bytes(&value.to_be_bytes())
        }

        #[doc = concat!("Appends a little-endian `", stringify!($ty), "`.")]
        pub fn $le(&mut self, value: $ty) -> &mut Self {
            self.bytes(&value.to_le_bytes())
        }
    )*};
}

impl Writer {
    /// An empty message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty message with room for `n` bytes.
    #[must_use]
    pub fn with_capacity(n: usize) -> Self {
        Self { out: Vec::with_capacity(n) }
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.out.push(value);
        self
    }

    integers!(u16 u16_le u16, u32 u32_le u32, u64 u64_le u64);

    /// Appends what `body` writes, preceded by its length in one byte. A body over 255 bytes is cut to 255: the
    /// caller bounds its fields, and a wrong length byte would put every later field out of step.
    pub fn sized_u8(&mut self, body: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.out.len();
        self.out.push(0);
        body(self);
        self.out.truncate(at + 1 + usize::from(u8::MAX));
        let len = u8::try_from(self.out.len() - at - 1).unwrap_or(u8::MAX);
        if let Some(slot) = self.out.get_mut(at) {
            *slot = len;
        }
        self
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The message.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    #[test]
    fn what_is_written_is_read_back() {
        let mut w = Writer::new();
        w.u16(0xBEEF).u16_le(0xBEEF).u64(7).sized_u8(|w| {
            w.bytes(b"name");
        });
        let bytes = w.into_vec();
        let mut r = Reader::new(&bytes);
        assert_eq!(r.u16("a"), Ok(0xBEEF));
        assert_eq!(r.u16_le("b"), Ok(0xBEEF));
        assert_eq!(r.u64("c"), Ok(7));
        assert_eq!(r.u8("len"), Ok(4));
        assert_eq!(r.rest(), b"name");
    }

    #[test]
    fn an_oversize_body_is_cut_with_its_length_byte_right() {
        let mut w = Writer::new();
        w.sized_u8(|w| {
            w.bytes(&[1; 300]);
        });
        let bytes = w.into_vec();
        assert_eq!((bytes.len(), bytes[0]), (256, 255));
    }
}
