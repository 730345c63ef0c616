//! The little of STUN that is read before the engine sees a datagram (RFC 8489, sections 5 and 14).

/// The magic cookie.
pub(crate) const MAGIC: [u8; 4] = [0x21, 0x12, 0xA4, 0x42];
const USERNAME: u16 = 0x0006;

/// Attributes in order, values without their padding. Ends at the first that does not fit.
pub(crate) struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[t0, t1, l0, l1], rest) = self.0.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let value = rest.get(..length)?;
        self.0 = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_be_bytes([t0, t1]), value))
    }
}

/// A message whose header and length are right.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Method and class.
    pub(crate) kind: u16,
    /// The transaction.
    pub(crate) id: [u8; 12],
    body: &'a [u8],
}

impl<'a> Message<'a> {
    pub(crate) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (head, body) = datagram.split_first_chunk::<20>()?;
        let [k0, k1, l0, l1, m0, m1, m2, m3, id @ ..] = *head;
        let kind = u16::from_be_bytes([k0, k1]);
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let sound = kind < 0x4000 && [m0, m1, m2, m3] == MAGIC && length == body.len() && length.is_multiple_of(4);
        sound.then_some(Self { kind, id, body })
    }

    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.body)
    }

    pub(crate) fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.attributes().find(|(k, _)| *k == kind).map(|(_, value)| value)
    }

    /// The receiver's half of the user name of a binding request: which connection it is for.
    pub(crate) fn ufrag(&self) -> Option<&'a str> {
        let name = std::str::from_utf8(self.get(USERNAME)?).ok()?;
        Some(name.split_once(':')?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> Vec<u8> {
        let mut out = vec![0, 1, 0, 16];
        out.extend(MAGIC);
        out.extend([7; 12]);
        out.extend([0, 6, 0, 9]);
        out.extend(b"abcd:efgh\0\0\0");
        out
    }

    #[test]
    fn the_user_name_says_whose_it_is() {
        let bytes = request();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!((message.kind, message.id, message.ufrag()), (1, [7; 12], Some("abcd")));
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = request();
        for cut in 0..bytes.len() {
            assert!(Message::parse(&bytes[..cut]).is_none(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(bytes: Vec<u8>) {
            if let Some(message) = Message::parse(&bytes) {
                prop_assert!(message.attributes().map(|(_, value)| value.len() + 4).sum::<usize>() <= bytes.len());
            }
        }
    }
}
