//! How a game was started: the environment contract that every adapter reads, and the few flags beside it. Pure: the
//! caller passes what it was given.
//!
//! | variable | meaning |
//! |---|---|
//! | `ANYWIRE_TRANSPORT` | the wire: `offline`, `enet`, `lobby`, `nethernet`, `steam` |
//! | `ANYWIRE_ROLE` | `host` or `join` |
//! | `ANYWIRE_ADDRESS` or `ANYWIRE_CODE` | where to join, as the wire wants it |
//! | `ANYWIRE_NAME` | the player's name |
//! | `ANYWIRE_INDEX` | which of several instances of one start this is, from 0 |
//!
//! Flags go before variables: `--transport WIRE`, `--no-steam`, `--host`, `--join PLACE`, `--name NAME`, each also as
//! `--flag=value`. Other arguments are the game's own and are passed over.

use std::str::FromStr;

use crate::{SelectError, TransportKind, default_kind, resolve};

/// Which end of a session to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchRole {
    /// Open a session.
    Host,
    /// Join one.
    Join,
}

impl FromStr for LaunchRole {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        match text.trim() {
            word if word.eq_ignore_ascii_case("host") => Ok(Self::Host),
            word if word.eq_ignore_ascii_case("join") => Ok(Self::Join),
            word => Err(SelectError::Role(word.to_owned())),
        }
    }
}

/// What flags and environment say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The wire asked for.
    pub transport: Option<TransportKind>,
    /// `--no-steam`: the build's default is ENet.
    pub no_steam: bool,
    /// Which end to be.
    pub role: Option<LaunchRole>,
    /// Where to join: a code or an address.
    pub address: Option<String>,
    /// The player's name.
    pub name: Option<String>,
    /// Which instance this is.
    pub index: u32,
}

impl Launch {
    /// Reads the arguments after the program's own name, and variables by `env`. Empty variables count as absent.
    ///
    /// # Errors
    /// [`SelectError`] for the first word that cannot be followed.
    pub fn read<'a>(
        args: impl IntoIterator<Item = &'a str>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SelectError> {
        let flags = Self::flags(args)?;
        let var = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let parsed = |name: &str| var(name).map(|value| value.parse()).transpose();
        let address = match (var("ANYWIRE_CODE"), var("ANYWIRE_ADDRESS")) {
            (Some(code), Some(address)) if code != address => return Err(SelectError::TwoAddresses),
            (code, address) => code.or(address),
        };
        let role = var("ANYWIRE_ROLE").map(|value| value.parse()).transpose()?;
        let index = match var("ANYWIRE_INDEX") {
            Some(text) => text.trim().parse().map_err(|_| SelectError::Index(text))?,
            None => 0,
        };
        let launch = Self {
            transport: flags.transport.or(parsed("ANYWIRE_TRANSPORT")?),
            no_steam: flags.no_steam,
            role: flags.role.or(role),
            address: flags.address.or(address),
            name: flags.name.or_else(|| var("ANYWIRE_NAME")),
            index,
        };
        match (launch.role, &launch.address) {
            (Some(LaunchRole::Join), None) => Err(SelectError::NoAddress),
            _ => Ok(launch),
        }
    }

    /// The wire to use: flag or variable, else the player's saved `preference`, else the build's default.
    #[must_use]
    pub fn kind(&self, preference: Option<TransportKind>, build_has_steam: bool) -> TransportKind {
        resolve(self.transport, preference, default_kind(self.no_steam, build_has_steam))
    }

    fn flags<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Self, SelectError> {
        let mut launch = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let (flag, inline) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (arg, None),
            };
            let mut value = || {
                let value = inline.or_else(|| args.next()).filter(|value| !value.is_empty());
                value.map(str::to_owned).ok_or_else(|| SelectError::NoValue(flag.to_owned()))
            };
            match flag {
                "--transport" => launch.transport = Some(value()?.parse()?),
                "--no-steam" => launch.no_steam = true,
                "--host" => launch.role = Some(LaunchRole::Host),
                "--join" => {
                    launch.role = Some(LaunchRole::Join);
                    launch.address = Some(value()?);
                }
                "--name" => launch.name = Some(value()?),
                _ => {}
            }
        }
        Ok(launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Launch, SelectError> {
        Launch::read(args.iter().copied(), |name| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn flags_go_before_variables_and_other_arguments_are_the_games() {
        let env = [("ANYWIRE_TRANSPORT", "lobby"), ("ANYWIRE_ROLE", "host"), ("ANYWIRE_NAME", "ada")];
        let launch = read(&["--fullscreen", "--transport=enet", "--join", "1.2.3.4:7777"], &env).unwrap();
        assert_eq!(launch.transport, Some(TransportKind::Enet));
        assert_eq!(launch.role, Some(LaunchRole::Join));
        assert_eq!(launch.address.as_deref(), Some("1.2.3.4:7777"));
        assert_eq!(launch.name.as_deref(), Some("ada"));
    }

    #[test]
    fn the_whole_contract_is_read_from_the_environment() {
        let env = [
            ("ANYWIRE_TRANSPORT", "Lobby"),
            ("ANYWIRE_ROLE", "join"),
            ("ANYWIRE_CODE", "ABCDE"),
            ("ANYWIRE_NAME", "bea"),
            ("ANYWIRE_INDEX", "3"),
        ];
        let expected = Launch {
            transport: Some(TransportKind::Lobby),
            no_steam: false,
            role: Some(LaunchRole::Join),
            address: Some("ABCDE".to_owned()),
            name: Some("bea".to_owned()),
            index: 3,
        };
        assert_eq!(read(&[], &env), Ok(expected));
        assert_eq!(read(&[], &[("ANYWIRE_ROLE", " ")]), Ok(Launch::default()));
    }

    #[test]
    fn no_steam_means_enet_unless_a_wire_is_asked_for() {
        assert_eq!(read(&["--no-steam"], &[]).unwrap().kind(None, true), TransportKind::Enet);
        assert_eq!(read(&[], &[]).unwrap().kind(None, true), TransportKind::Steam);
        assert_eq!(read(&[], &[]).unwrap().kind(Some(TransportKind::Offline), true), TransportKind::Offline);
        let asked = read(&["--no-steam", "--transport", "steam"], &[]).unwrap();
        assert_eq!(asked.kind(Some(TransportKind::Lobby), false), TransportKind::Steam);
    }

    #[test]
    fn what_cannot_be_followed_is_one_sentence_with_the_remedy() {
        let error = |args: &[&str], env: &[(&str, &str)]| read(args, env).unwrap_err().to_string();
        assert!(error(&["--transport", "pigeon"], &[]).contains("choose offline, enet"));
        assert!(error(&["--join"], &[]).contains("--join needs a value"));
        assert!(error(&[], &[("ANYWIRE_ROLE", "watch")]).contains("choose host or join"));
        assert!(error(&[], &[("ANYWIRE_ROLE", "join")]).contains("set ANYWIRE_CODE or ANYWIRE_ADDRESS"));
        assert!(error(&[], &[("ANYWIRE_INDEX", "two")]).contains("'two' is no index"));
        assert!(error(&[], &[("ANYWIRE_CODE", "A"), ("ANYWIRE_ADDRESS", "B")]).contains("set one of them"));
    }
}
