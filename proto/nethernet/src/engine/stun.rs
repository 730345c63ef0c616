//! The little of STUN that is read before the engine sees a datagram (RFC 8489, sections 5 and 14).

use std::net::{IpAddr, SocketAddr};

/// The magic cookie.
pub(crate) const MAGIC: [u8; 4] = [0x21, 0x12, 0xA4, 0x42];
pub(crate) const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;

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
    whole: &'a [u8],
    body: &'a [u8],
}

impl<'a> Message<'a> {
    pub(crate) fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (head, body) = datagram.split_first_chunk::<20>()?;
        let [k0, k1, l0, l1, m0, m1, m2, m3, id @ ..] = *head;
        let kind = u16::from_be_bytes([k0, k1]);
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let sound = kind < 0x4000 && [m0, m1, m2, m3] == MAGIC && length == body.len() && length.is_multiple_of(4);
        sound.then_some(Self { kind, id, whole: datagram, body })
    }

    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.body)
    }

    pub(crate) fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.attributes().find(|(k, _)| *k == kind).map(|(_, value)| value)
    }

    /// Whether it carries the signature of a key.
    pub(crate) fn is_signed(&self, key: &[u8]) -> bool {
        let mut at = 20;
        for (kind, value) in self.attributes() {
            if kind == MESSAGE_INTEGRITY {
                let Some((&[k0, k1], rest)) = self.whole.get(..at).and_then(|b| b.split_first_chunk::<2>()) else {
                    return false;
                };
                // Signed as if nothing followed the signature.
                let length = u16::try_from(at + 4).unwrap_or(u16::MAX).to_be_bytes();
                let mac = hmac_sha1(key, &[&[k0, k1], &length, rest.get(2..).unwrap_or_default()]);
                return value.len() == 20 && mac.iter().zip(value).fold(0, |d, (a, b)| d | (a ^ b)) == 0;
            }
            at += 4 + value.len().next_multiple_of(4);
        }
        false
    }

    /// The code of an error response.
    pub(crate) fn error(&self) -> Option<u16> {
        let [_, _, class, number, ..] = *self.get(0x0009)? else { return None };
        Some(u16::from(class & 7) * 100 + u16::from(number))
    }

    /// The receiver's half of the user name of a binding request: which connection it is for.
    pub(crate) fn ufrag(&self) -> Option<&'a str> {
        let name = std::str::from_utf8(self.get(USERNAME)?).ok()?;
        Some(name.split_once(':')?.0)
    }
}

/// Puts a message together, attribute by attribute.
pub(crate) struct Builder(Vec<u8>);

impl Builder {
    pub(crate) fn new(kind: u16, id: [u8; 12]) -> Self {
        let mut bytes = kind.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&id);
        Self(bytes)
    }

    /// An attribute; a value over 65,535 bytes is left out.
    pub(crate) fn put(mut self, kind: u16, value: &[u8]) -> Self {
        if let Ok(length) = u16::try_from(value.len()) {
            self.0.extend_from_slice(&kind.to_be_bytes());
            self.0.extend_from_slice(&length.to_be_bytes());
            self.0.extend_from_slice(value);
            self.0.resize(self.0.len().next_multiple_of(4), 0);
        }
        self
    }

    /// XOR-MAPPED-ADDRESS and its like.
    pub(crate) fn address(self, kind: u16, addr: SocketAddr) -> Self {
        let id = self.id();
        self.put(kind, &xor_address(addr, id))
    }

    fn id(&self) -> [u8; 12] {
        let mut id = [0; 12];
        if let Some(bytes) = self.0.get(8..20) {
            id.copy_from_slice(bytes);
        }
        id
    }

    fn set_length(&mut self, more: usize) {
        let length = u16::try_from(self.0.len() - 20 + more).unwrap_or(u16::MAX);
        if let Some(field) = self.0.get_mut(2..4) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The message, signed with a key when there is one (RFC 8489, section 14.5).
    pub(crate) fn finish(mut self, key: Option<&[u8]>) -> Vec<u8> {
        if let Some(key) = key {
            self.set_length(24);
            let mac = hmac_sha1(key, &[&self.0]);
            self = self.put(MESSAGE_INTEGRITY, &mac);
        }
        self.set_length(0);
        self.0
    }
}

/// HMAC-SHA1 over several parts.
pub(crate) fn hmac_sha1(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<sha1::Sha1>::new_from_slice(key) else { return [0; 20] };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn xor_address(addr: SocketAddr, id: [u8; 12]) -> Vec<u8> {
    let mut pad = MAGIC.to_vec();
    pad.extend_from_slice(&id);
    let (family, ip) = match addr.ip() {
        IpAddr::V4(ip) => (1, ip.octets().to_vec()),
        IpAddr::V6(ip) => (2, ip.octets().to_vec()),
    };
    let [p0, p1] = (addr.port() ^ 0x2112).to_be_bytes();
    let mut out = vec![0, family, p0, p1];
    out.extend(ip.iter().zip(pad).map(|(byte, pad)| byte ^ pad));
    out
}

/// The address of XOR-MAPPED-ADDRESS and its like.
pub(crate) fn unxor_address(value: &[u8], id: [u8; 12]) -> Option<SocketAddr> {
    let (&[_, family, p0, p1], ip) = value.split_first_chunk::<4>()?;
    let port = u16::from_be_bytes([p0, p1]) ^ 0x2112;
    let mut pad = [0; 16];
    pad[..4].copy_from_slice(&MAGIC);
    pad[4..].copy_from_slice(&id);
    let ip: IpAddr = match family {
        1 => {
            let ip: [u8; 4] = ip.try_into().ok()?;
            (u32::from_be_bytes(ip) ^ u32::from_be_bytes(MAGIC)).to_be_bytes().into()
        }
        2 => {
            let ip: [u8; 16] = ip.try_into().ok()?;
            (u128::from_be_bytes(ip) ^ u128::from_be_bytes(pad)).to_be_bytes().into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// The address of ALTERNATE-SERVER, which is not masked.
pub(crate) fn plain_address(value: &[u8]) -> Option<SocketAddr> {
    let (&[_, family, p0, p1], ip) = value.split_first_chunk::<4>()?;
    let ip: IpAddr = match family {
        1 => <[u8; 4]>::try_from(ip).ok()?.into(),
        2 => <[u8; 16]>::try_from(ip).ok()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([p0, p1])))
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

    #[test]
    fn a_signature_holds_for_its_key_alone_and_for_what_it_covers() {
        let mut bytes = Builder::new(3, [9; 12]).put(USERNAME, b"user").finish(Some(b"key"));
        assert!(Message::parse(&bytes).unwrap().is_signed(b"key"));
        assert!(!Message::parse(&bytes).unwrap().is_signed(b"other"));
        bytes[24] ^= 1;
        assert!(!Message::parse(&bytes).unwrap().is_signed(b"key"));
        let bare = Builder::new(3, [9; 12]).finish(None);
        assert!(!Message::parse(&bare).unwrap().is_signed(b"key"));
    }

    #[test]
    fn the_signed_request_of_rfc_5769_is_signed() {
        // RFC 5769, section 2.1, without the FINGERPRINT that follows the signature; the length counts it.
        const REQUEST: &str = "000100582112a442b7e7a701bc34d686fa87dfae802200105354554e207465737420636c69656e74002400\
            046e0001ff80290008932ff9b151263b36000600096576746a3a683676592020200008001 49aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a280280004e57a3bcf";
        let hex: String = REQUEST.chars().filter(|c| !c.is_whitespace()).collect();
        let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap();
        let message = Message::parse(&bytes).unwrap();
        assert!(message.is_signed(b"VOkJxbRl1RmTxUk/WvJxBt"));
        assert_eq!(message.ufrag(), Some("evtj"));
    }

    proptest! {
        #[test]
        fn addresses_come_back(ip: [u8; 16], four: bool, port: u16, id: [u8; 12]) {
            let ip: IpAddr = if four { <[u8; 4]>::try_from(&ip[..4]).unwrap().into() } else { ip.into() };
            let addr = SocketAddr::new(ip.to_canonical(), port);
            prop_assert_eq!(unxor_address(&xor_address(addr, id), id), Some(addr));
        }

        #[test]
        fn nothing_is_too_strange(bytes: Vec<u8>) {
            if let Some(message) = Message::parse(&bytes) {
                prop_assert!(message.attributes().map(|(_, value)| value.len() + 4).sum::<usize>() <= bytes.len());
            }
        }
    }
}
