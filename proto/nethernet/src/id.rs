//! Who and which: network ids, connection ids, correlation ids (NetherNet, section 3).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// Most bytes of an id that is text.
pub const OPAQUE_MAX: usize = 256;

/// Names a peer (NetherNet, section 3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkId {
    /// None.
    #[default]
    Unset,
    /// The form of LAN signalling and discovery.
    P2p(u64),
    /// A UUID, as Realms use.
    Realms(u128),
    /// Any other text. HTTP signalling carries ids that a host must not look into.
    Opaque(Arc<str>),
}

impl NetworkId {
    /// Reads the string form (NetherNet, section 3.2): a decimal number, else a UUID, else [`NetworkId::Unset`].
    ///
    /// A UUID may be canonical, bare, in braces or a URN, in either case.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Some(id) = decimal(text) {
            return Self::P2p(id);
        }
        uuid(text).map_or(Self::Unset, Self::Realms)
    }

    /// [`parse`](Self::parse), where any other text is an id of its own.
    ///
    /// # Errors
    /// [`BadId`] for a text that is empty, longer than [`OPAQUE_MAX`] bytes or holds control characters.
    pub fn from_text(text: &str) -> Result<Self, BadId> {
        match Self::parse(text) {
            Self::Unset if text.is_empty() => Err(BadId::Empty),
            Self::Unset if text.len() > OPAQUE_MAX => Err(BadId::TooLong(text.len())),
            Self::Unset if text.chars().any(char::is_control) => Err(BadId::Control),
            Self::Unset => Ok(Self::Opaque(text.into())),
            id => Ok(id),
        }
    }

    /// The number of the LAN form.
    #[must_use]
    pub fn p2p(&self) -> Option<u64> {
        if let Self::P2p(id) = self { Some(*id) } else { None }
    }
}

impl fmt::Display for NetworkId {
    /// The string form; empty when unset.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => Ok(()),
            Self::P2p(id) => id.fmt(f),
            Self::Opaque(text) => f.write_str(text),
            Self::Realms(id) => {
                let hex = format!("{id:032x}");
                for (at, c) in hex.chars().enumerate() {
                    if matches!(at, 8 | 12 | 16 | 20) {
                        f.write_str("-")?;
                    }
                    write!(f, "{c}")?;
                }
                Ok(())
            }
        }
    }
}

impl From<u64> for NetworkId {
    fn from(id: u64) -> Self {
        Self::P2p(id)
    }
}

/// Why a text is no network id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadId {
    /// Nothing there.
    #[error("an id must not be empty")]
    Empty,
    /// Over the bound.
    #[error("an id of {0} bytes; at most {OPAQUE_MAX}")]
    TooLong(usize),
    /// Line ends and the like.
    #[error("an id must not hold control characters")]
    Control,
}

impl FromStr for NetworkId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::from_text(text)
    }
}

/// Names one attempt to connect (NetherNet, section 3.3). The dialer draws it, the listener repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How logs of other programs write a LAN id (NetherNet, section 3.4). Never on the wire.
///
/// ```
/// assert_eq!(nethernet::correlation_id(0xDEAD_BEEF), "<nethernet>0000-0000-dead-beef");
/// ```
#[must_use]
pub fn correlation_id(id: u64) -> String {
    let [a, b, c, d, e, f, g, h] = id.to_be_bytes();
    let word = |high, low| u16::from_be_bytes([high, low]);
    format!("<nethernet>{:04x}-{:04x}-{:04x}-{:04x}", word(a, b), word(c, d), word(e, f), word(g, h))
}

/// An unsigned decimal number: digits alone, no sign, within 64 bits.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn uuid(text: &str) -> Option<u128> {
    let text = text.strip_prefix("urn:uuid:").unwrap_or(text);
    let text = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let mut hex = String::with_capacity(32);
    match text.len() {
        32 => hex.push_str(text),
        36 => {
            let mut parts = text.split('-');
            for want in [8, 4, 4, 4, 12] {
                hex.push_str(parts.next().filter(|part| part.len() == want)?);
            }
            if parts.next().is_some() {
                return None;
            }
        }
        _ => return None,
    }
    if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pain_17_a_realms_address_is_an_id_as_well() {
        let id = NetworkId::parse("550E8400-E29B-41D4-A716-446655440000");
        assert_eq!(id, NetworkId::Realms(0x550e_8400_e29b_41d4_a716_4466_5544_0000));
        assert_eq!(id.to_string(), "550e8400-e29b-41d4-a716-446655440000");
    }

    #[test]
    fn other_text_is_unset_by_the_rule_and_opaque_where_a_channel_carries_text() {
        for text in ["", " 1", "+1", "-1", "1.5", "0x10", "18446744073709551616", "{550e8400", "a-b-c-d-e"] {
            assert_eq!(NetworkId::parse(text), NetworkId::Unset, "{text:?}");
        }
        assert_eq!(NetworkId::from_text("guest-7").unwrap().to_string(), "guest-7");
        assert_eq!(NetworkId::from_text(""), Err(BadId::Empty));
        assert_eq!(NetworkId::from_text("a\nb"), Err(BadId::Control));
        assert_eq!(NetworkId::from_text(&"x".repeat(257)), Err(BadId::TooLong(257)));
    }

    #[test]
    fn dashes_belong_where_a_uuid_has_them() {
        assert_eq!(NetworkId::parse("550e84-00e29b-41d4-a716-446655440000"), NetworkId::Unset);
        assert_eq!(NetworkId::parse("550e8400-e29b-41d4-a716-44665544-000"), NetworkId::Unset);
        assert_eq!(NetworkId::parse("550e8400-e29b-41d4-a716-44665544\u{fc}00"), NetworkId::Unset);
    }

    proptest! {
        #[test]
        fn ids_come_back_from_their_text(id: u64, uuid: u128) {
            // A bare UUID of digits would be no number: it has 32 of them.
            for id in [NetworkId::P2p(id), NetworkId::Realms(uuid)] {
                prop_assert_eq!(NetworkId::parse(&id.to_string()), id.clone());
                prop_assert_eq!(id.to_string().parse::<NetworkId>(), Ok(id));
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC*") {
            let id = NetworkId::parse(&text);
            prop_assert_eq!(NetworkId::parse(&id.to_string()), id);
        }
    }
}
