//! Join codes to and from text (netpunch wire, sections 2 and 11.1).
//!
//! A code is a short text that a host gives to friends and that a joiner turns back into addresses and a secret. Three
//! forms: [`Code::Plain`], [`Code::Locked`] with a password, and [`Code::Steam`], a bare Steam ID.
//!
//! * [`parse`] is strict: it takes exactly what old peers take.
//! * [`clean()`] repairs what a person pasted, and [`read`] is both in one step with the positions in its errors counted
//!   in the text that was pasted. Every front door uses one of the two.
//! * [`stretch`] is slow on purpose (tenths of a second) and belongs on a worker; everything else is instant.
//!
//! Texts over [`TEXT_MAX`] characters are refused unread, so a code of any origin costs a few KiB at most.

mod base32;
mod clean;
mod dial;
mod error;
mod lock;
mod profile;
mod steam;

pub use clean::clean;
pub use dial::{dial_order, knock_targets};
pub use error::CodeError;
pub use lock::{LockKey, Locked, ROUNDS, stretch};
pub use profile::{NatFlags, Profile, STALE_AFTER, age, is_stale};
pub use steam::STEAM_ID_BASE;

/// Longest text that is looked at, in characters. The longest code with a meaning has 135.
pub const TEXT_MAX: usize = 4096;

/// First byte of a locked code.
const LOCKED: u8 = 0xFF;

/// A join code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// Everything in clear.
    Plain(Profile),
    /// Everything but the time behind a password.
    Locked(Locked),
    /// A SteamID64: the host is reached through Steam and the secret is agreed on there.
    Steam(u64),
}

impl Code {
    /// Reads the bytes behind the letters of a plain or locked code. Any bytes may be given.
    ///
    /// # Errors
    /// [`CodeError`] naming the first field that is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodeError> {
        match bytes.split_first() {
            Some((&LOCKED, sealed)) => Locked::from_bytes(sealed).map(Self::Locked),
            _ => Profile::from_bytes(bytes).map(Self::Plain),
        }
    }

    /// When the code was made, in Unix seconds. A Steam ID does not say.
    #[must_use]
    pub fn timestamp(&self) -> Option<u32> {
        match self {
            Self::Plain(profile) => Some(profile.timestamp),
            Self::Locked(locked) => Some(locked.timestamp()),
            Self::Steam(_) => None,
        }
    }
}

/// Reads a code strictly: white space around it, lower case and Base32 padding are fine, nothing else is repaired.
///
/// ```
/// let code = anywire_joincode::parse("ABVLCO4A").unwrap();
/// assert_eq!(code.timestamp(), Some(1_790_000_000));
/// assert_eq!(
///     anywire_joincode::parse("ABVL1O4A").unwrap_err().to_string(),
///     "character 5 of the code is '1', but codes hold only the letters A to Z and the digits 2 to 7",
/// );
/// ```
///
/// # Errors
/// [`CodeError`]; positions count the characters of `text` from 1.
pub fn parse(text: &str) -> Result<Code, CodeError> {
    check_length(text)?;
    let numbered: Vec<(usize, char)> = (1..).zip(text.chars()).collect();
    parse_numbered(&numbered)
}

/// Repairs what a person pasted and reads it: [`clean()`], then [`parse`].
///
/// # Errors
/// [`CodeError`]; positions count the characters of `pasted` from 1, not those of the repaired text.
pub fn read(pasted: &str) -> Result<Code, CodeError> {
    check_length(pasted)?;
    parse_numbered(&clean::cleaned(pasted))
}

fn check_length(text: &str) -> Result<(), CodeError> {
    match text.chars().nth(TEXT_MAX) {
        Some(_) => Err(CodeError::TooLong { most: TEXT_MAX }),
        None => Ok(()),
    }
}

fn parse_numbered(text: &[(usize, char)]) -> Result<Code, CodeError> {
    let text = trim(text);
    if text.is_empty() {
        return Err(CodeError::Empty);
    }
    if let Some(id) = steam::id(text) {
        return Ok(Code::Steam(id));
    }
    match base32::decode(text) {
        Ok(bytes) => Code::from_bytes(&bytes),
        // No Base32 either: what the player meant decides which of the two mistakes to name.
        Err(_) if steam::is_meant(text) => Err(CodeError::NotASteamId),
        Err(error) => Err(error),
    }
}

/// Without white space at both ends.
fn trim(text: &[(usize, char)]) -> &[(usize, char)] {
    let start = text.iter().position(|(_, c)| !c.is_whitespace()).unwrap_or(text.len());
    let end = text.iter().rposition(|(_, c)| !c.is_whitespace()).map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}
