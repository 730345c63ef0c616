//! Opening data channels (RFC 8832): two messages inside the channel they open.

use super::Reliability;

/// Payload protocol identifiers (RFC 8831, section 8).
pub(super) mod ppid {
    pub(crate) const DCEP: u32 = 50;
    pub(crate) const STRING: u32 = 51;
    pub(crate) const BINARY: u32 = 53;
    pub(crate) const STRING_EMPTY: u32 = 56;
    pub(crate) const BINARY_EMPTY: u32 = 57;
}

/// Longest label taken. NetherNet's have 19 and 21 bytes.
const LABEL_MAX: usize = 256;
const ACK: u8 = 2;
const OPEN: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dcep {
    Ack,
    Open { label: String, reliability: Reliability },
}

impl Dcep {
    /// `None` for what is no such message; the channel stays unopened.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&ACK, _) => Some(Self::Ack),
            (&OPEN, rest) => {
                let (head, rest) = rest.split_first_chunk::<11>()?;
                let [kind, _, _, v0, v1, v2, v3, l0, l1, _, _] = *head;
                let label = rest.get(..usize::from(u16::from_be_bytes([l0, l1])))?;
                if label.len() > LABEL_MAX {
                    return None;
                }
                let value = u32::from_be_bytes([v0, v1, v2, v3]);
                let retransmits = match kind & 0x7F {
                    0 => None,
                    1 => Some(u16::try_from(value).unwrap_or(u16::MAX)),
                    // A lifetime: what it bounds here is answered by no retransmission at all.
                    2 => Some(0),
                    _ => return None,
                };
                let reliability = Reliability { ordered: kind & 0x80 == 0, retransmits };
                Some(Self::Open { label: String::from_utf8_lossy(label).into_owned(), reliability })
            }
            _ => None,
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let Self::Open { label, reliability } = self else { return vec![ACK] };
        let mut kind = u8::from(reliability.retransmits.is_some());
        if !reliability.ordered {
            kind |= 0x80;
        }
        let length = u16::try_from(label.len()).unwrap_or(0);
        let mut out = vec![OPEN, kind, 0, 0];
        out.extend_from_slice(&u32::from(reliability.retransmits.unwrap_or(0)).to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(label.as_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pain_14_the_bytes_of_both_channels() {
        let open = |label: &str, reliability| Dcep::Open { label: label.into(), reliability }.write();
        let reliable = open("ReliableDataChannel", Reliability::RELIABLE);
        assert_eq!(reliable.split_at(12), (&[3, 0, 0, 0, 0, 0, 0, 0, 0, 19, 0, 0][..], &b"ReliableDataChannel"[..]));
        let unreliable = open("UnreliableDataChannel", Reliability::UNRELIABLE);
        let head = [3, 0x81, 0, 0, 0, 0, 0, 0, 0, 21, 0, 0];
        assert_eq!(unreliable.split_at(12), (&head[..], &b"UnreliableDataChannel"[..]));
        assert_eq!(Dcep::Ack.write(), [2]);
    }

    #[test]
    fn every_truncation_is_refused() {
        let whole = Dcep::Open { label: "ReliableDataChannel".into(), reliability: Reliability::RELIABLE }.write();
        for cut in 0..whole.len() {
            assert_eq!(Dcep::parse(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(Dcep::parse(&[7]), None);
        assert_eq!(Dcep::parse(&[3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(label in "[ -~]{0,256}", ordered: bool, retransmits: Option<u16>) {
            let open = Dcep::Open { label, reliability: Reliability { ordered, retransmits } };
            prop_assert_eq!(Dcep::parse(&open.write()), Some(open));
        }

        #[test]
        fn nothing_is_too_strange(bytes: Vec<u8>) {
            let _ = Dcep::parse(&bytes);
        }
    }
}
