//! A host's long-lived key (ES384), made once and kept in a file.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use nethernet::signaling::identity::{Point, Signer};
use thiserror::Error;

/// A P-384 key pair. It never shows in a log.
pub struct OwnKey {
    pair: EcdsaKeyPair,
    point: Point,
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnKey(..)")
    }
}

/// Why there is no key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot use the key file: {0}")]
    File(#[from] io::Error),
    /// It holds something else.
    #[error("the key file does not hold a P-384 key; remove it to get a new one")]
    NotAKey,
    /// The system has no randomness to give.
    #[error("cannot make a key")]
    Make,
}

impl OwnKey {
    /// A new key, kept nowhere.
    ///
    /// # Errors
    /// [`KeyError::Make`].
    pub fn generate() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).map_err(|_| KeyError::Make)?;
        Self::of(pair)
    }

    /// The key in this file, which is made at the first call and readable by its owner alone. Hosts of one operator may
    /// share a file; whoever has it can stand in for them.
    ///
    /// # Errors
    /// [`KeyError`]; an existing file is never written over.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match fs::read(path) {
            Ok(bytes) => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &bytes);
                Self::of(pair.map_err(|_| KeyError::NotAKey)?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = Self::generate()?;
                let document = key.pair.to_pkcs8v1().map_err(|_| KeyError::Make)?;
                let mut options = OpenOptions::new();
                options.write(true).create_new(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                let mut file = options.open(path)?;
                file.write_all(document.as_ref())?;
                file.sync_all()?;
                Ok(key)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn of(pair: EcdsaKeyPair) -> Result<Self, KeyError> {
        let point = pair.public_key().as_ref().try_into().map_err(|_| KeyError::NotAKey)?;
        Ok(Self { pair, point })
    }
}

impl Signer for OwnKey {
    fn public_key(&self) -> Point {
        self.point
    }

    fn sign(&self, message: &[u8]) -> Option<[u8; 96]> {
        self.pair.sign(&SystemRandom::new(), message).ok()?.as_ref().try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_by_its_owner_alone() {
        let path = std::env::temp_dir().join(format!("nethernet-key-{}", std::process::id()));
        let _gone = fs::remove_file(&path);
        let first = OwnKey::load_or_create(&path).unwrap();
        let second = OwnKey::load_or_create(&path).unwrap();
        assert_eq!(first.public_key(), second.public_key());
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);
        fs::write(&path, b"something else").unwrap();
        assert!(matches!(OwnKey::load_or_create(&path), Err(KeyError::NotAKey)));
        assert_eq!(fs::read(&path).unwrap(), b"something else");
        fs::remove_file(&path).unwrap();
    }
}
