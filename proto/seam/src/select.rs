//! Which wire a session uses: launch flag, else saved preference, else build default. Pure, so a log can always say why.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportKind {
    /// A session of one without a socket.
    Offline,
    /// Stock ENet 1.3.
    Enet,
    /// Sealed UDP by join code.
    Lobby,
    /// WebRTC data channels with LAN discovery.
    Nethernet,
    /// Steam's networking.
    Steam,
}

impl TransportKind {
    /// All wires, in the order help texts list them.
    pub const ALL: [Self; 5] = [Self::Offline, Self::Enet, Self::Lobby, Self::Nethernet, Self::Steam];

    /// The word for this wire in flags, settings and logs.
    #[must_use]
    pub const fn log_name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Enet => "enet",
            Self::Lobby => "lobby",
            Self::Nethernet => "nethernet",
            Self::Steam => "steam",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.log_name())
    }
}

/// What a flag or a variable says that nobody can follow. Each is one true sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectError {
    /// A wire's name that is none.
    #[error("'{0}' is no transport; choose offline, enet, lobby, nethernet or steam")]
    Transport(String),
    /// A role that is none.
    #[error("'{0}' is no role; choose host or join")]
    Role(String),
    /// An index that is no number.
    #[error("'{0}' is no index; ANYWIRE_INDEX counts the instances of one start: 0, 1, 2, ..")]
    Index(String),
    /// A joiner without a place to go.
    #[error("nobody to join; set ANYWIRE_CODE or ANYWIRE_ADDRESS, or give --join an address or a code")]
    NoAddress,
    /// Two different places to join.
    #[error("ANYWIRE_CODE and ANYWIRE_ADDRESS name two places to join; set one of them")]
    TwoAddresses,
    /// A flag without what belongs to it.
    #[error("{0} needs a value after it")]
    NoValue(String),
}

impl FromStr for TransportKind {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let word = text.trim();
        Self::ALL
            .into_iter()
            .find(|kind| kind.log_name().eq_ignore_ascii_case(word))
            .ok_or_else(|| SelectError::Transport(word.to_owned()))
    }
}

/// The build's own choice: `--no-steam` means ENet, a build with Steam takes Steam, every other takes the lobby.
#[must_use]
pub const fn default_kind(no_steam: bool, build_has_steam: bool) -> TransportKind {
    match (no_steam, build_has_steam) {
        (true, _) => TransportKind::Enet,
        (false, true) => TransportKind::Steam,
        (false, false) => TransportKind::Lobby,
    }
}

/// Launch flag over preference over default.
#[must_use]
pub fn resolve(
    launch: Option<TransportKind>,
    preference: Option<TransportKind>,
    default: TransportKind,
) -> TransportKind {
    launch.or(preference).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use TransportKind::{Enet, Lobby, Offline, Steam};

    #[test]
    fn precedence_is_flag_preference_default() {
        assert_eq!(resolve(Some(Offline), Some(Enet), Steam), Offline);
        assert_eq!(resolve(None, Some(Enet), Steam), Enet);
        assert_eq!(resolve(None, None, Lobby), Lobby);
        assert_eq!(
            [default_kind(true, true), default_kind(false, true), default_kind(false, false)],
            [Enet, Steam, Lobby]
        );
    }

    #[test]
    fn every_name_parses_back_and_an_unknown_one_is_a_message() {
        for kind in TransportKind::ALL {
            assert_eq!(kind.log_name().to_uppercase().parse(), Ok(kind));
        }
        let error = "carrier-pigeon".parse::<TransportKind>().unwrap_err();
        assert!(error.to_string().starts_with("'carrier-pigeon' is no transport; choose offline,"));
    }
}
