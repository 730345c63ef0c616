//! Keys and where they come from.

use std::fmt;

use sha2::{Digest, Sha256};

/// What everybody in a lobby shares. Sealing and signing keys are derived from it.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// The key of a lobby: `secret` from the join code and the password, which may be empty.
    #[must_use]
    pub fn derive(secret: &[u8; 12], password: &str) -> Self {
        Self(hash(&[b"tpf2mp-seal-v1|", secret, b"|", password.as_bytes()]))
    }

    /// The key that seals knocks, for meeting somebody before the session proper.
    #[must_use]
    pub fn rendezvous(&self) -> Self {
        Self(self.label(b"|rendezvous"))
    }

    /// A key received by other means.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn encryption(&self) -> [u8; 32] {
        self.label(b"|enc")
    }

    pub(crate) fn authentication(&self) -> [u8; 32] {
        self.label(b"|mac")
    }

    fn label(&self, label: &[u8]) -> [u8; 32] {
        hash(&[&self.0, label])
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// The public name under which a lobby's knocks are exchanged: 24 hex digits that depend on the secret alone.
#[must_use]
pub fn knock_tag(secret: &[u8; 12]) -> String {
    let digest = hash(&[b"tpf2mp-rendezvous-v1|", secret]);
    digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part);
    }
    sha.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_shows_in_a_log() {
        assert_eq!(format!("{:?}", SessionKey::from_bytes([0x41; 32])), "SessionKey(..)");
    }
}
