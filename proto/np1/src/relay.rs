//! Binding an address to the master's relay port (netpunch wire, section 11.4).
//!
//! ```text
//! ask     "TRLB" | id 16 bytes | 'J' or 'H'
//! answer  "TRLA" | id 16 bytes
//! ```

use codec::Reader;
use seam::Refused;

const BIND: [u8; 4] = *b"TRLB";
const BOUND: [u8; 4] = *b"TRLA";

/// Which end of a relayed pair binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `J`.
    Joiner,
    /// `H`.
    Host,
}

/// The datagram that binds the sender's address.
#[must_use]
pub fn relay_bind(id: &[u8; 16], role: Role) -> Vec<u8> {
    let letter: &[u8] = match role {
        Role::Joiner => b"J",
        Role::Host => b"H",
    };
    [&BIND, &id[..], letter].concat()
}

/// The relay's answer.
#[must_use]
pub fn relay_bound(id: &[u8; 16]) -> Vec<u8> {
    [&BOUND[..], id].concat()
}

/// Reads a binding: exactly 21 bytes.
///
/// # Errors
/// [`Refused::NotOurs`] for another magic, [`Refused::Malformed`] for another length or role.
pub fn read_relay_bind(datagram: &[u8]) -> Result<([u8; 16], Role), Refused> {
    let mut r = Reader::new(datagram);
    if r.array("magic") != Ok(BIND) {
        return Err(Refused::NotOurs);
    }
    let id = r.array("id").map_err(|_| Refused::Malformed)?;
    match r.rest() {
        b"J" => Ok((id, Role::Joiner)),
        b"H" => Ok((id, Role::Host)),
        _ => Err(Refused::Malformed),
    }
}

/// Reads the answer to a binding: exactly 20 bytes.
///
/// # Errors
/// [`Refused::NotOurs`] for another magic, [`Refused::Malformed`] for another length.
pub fn read_relay_bound(datagram: &[u8]) -> Result<[u8; 16], Refused> {
    let mut r = Reader::new(datagram);
    if r.array("magic") != Ok(BOUND) {
        return Err(Refused::NotOurs);
    }
    <[u8; 16]>::try_from(r.rest()).map_err(|_| Refused::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_words_are_read_back_and_every_other_length_is_refused() {
        let id = *b"0123456789abcdef";
        for role in [Role::Joiner, Role::Host] {
            let mut bytes = relay_bind(&id, role);
            assert_eq!(read_relay_bind(&bytes), Ok((id, role)));
            assert_eq!(read_relay_bound(&bytes), Err(Refused::NotOurs));
            assert!((0..bytes.len()).all(|cut| read_relay_bind(&bytes[..cut]).is_err()));
            bytes.push(0);
            assert_eq!(read_relay_bind(&bytes), Err(Refused::Malformed));
        }
        let mut bytes = relay_bound(&id);
        assert_eq!(read_relay_bound(&bytes), Ok(id));
        assert!((0..bytes.len()).all(|cut| read_relay_bound(&bytes[..cut]).is_err()));
        bytes.push(0);
        assert_eq!(read_relay_bound(&bytes), Err(Refused::Malformed));
    }
}
