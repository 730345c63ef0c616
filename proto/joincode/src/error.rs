//! What can be wrong with a code, in sentences for the player.

use codec::Short;
use thiserror::Error;

/// Why a text is no usable code. Each is one sentence that says what is wrong and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodeError {
    /// Nothing but white space.
    #[error("the code is empty")]
    Empty,
    /// Nobody's code is that long; it was not looked at.
    #[error("the text is longer than {most} characters, which no code is")]
    TooLong {
        /// Longest text that is looked at.
        most: usize,
    },
    /// A character outside the alphabet.
    #[error(
        "character {position} of the code is {character:?}, but codes hold only the letters A to Z and the digits 2 to 7"
    )]
    IllegalCharacter {
        /// Counted in characters from 1.
        position: usize,
        /// What stands there.
        character: char,
    },
    /// No whole number of bytes.
    #[error("the code has {characters} characters, which no code has: at least one is missing or too many")]
    BadLength {
        /// Characters without padding.
        characters: usize,
    },
    /// A field is missing its end: the text was not copied whole.
    #[error("the code is cut short in its {what}")]
    CutShort {
        /// The field.
        what: &'static str,
    },
    /// The IPv6 address is written as a part of an IPv4 address that is not there.
    #[error("the code shortens its IPv6 address by a public IPv4 address that it does not hold")]
    NoPublicForIpv6,
    /// Digits or a Steam profile address, but not the ID of a player.
    #[error("this is not the Steam ID of a player: that has 17 digits and begins with 76561")]
    NotASteamId,
    /// A locked code without a password.
    #[error("the code is locked: it needs the host's password")]
    NeedsPassword,
    /// The password does not open the code.
    #[error("the password does not open the code: the password is wrong, or a character of the code is")]
    WrongPassword,
    /// The password opens the code and nothing is in it.
    #[error("the locked code holds nothing")]
    EmptyBody,
}

impl From<Short> for CodeError {
    fn from(short: Short) -> Self {
        Self::CutShort { what: short.what }
    }
}
