//! The original's command line: what a game types when it starts a program called `netpunch`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Whether a program of this name stands in for the original.
#[must_use]
pub(crate) fn is_legacy(argv0: Option<&OsStr>) -> bool {
    let stem = argv0.map(Path::new).and_then(Path::file_stem).and_then(OsStr::to_str);
    stem.is_some_and(|stem| stem.eq_ignore_ascii_case("netpunch") || stem.eq_ignore_ascii_case("lobby"))
}

/// The original's words in those of this program; what needs no translation stays as it is.
#[must_use]
pub(crate) fn translate(args: Vec<OsString>) -> Vec<OsString> {
    let mut out = args.clone();
    let Some(first) = args.get(1).and_then(|arg| arg.to_str()) else { return args };
    let words: Vec<&str> = match first {
        "--selftest" => vec!["selftest", "lobby"],
        "--print-public-list" => vec!["public-list"],
        _ => match first.strip_prefix("--selftest-") {
            Some(kind) => vec!["selftest", kind],
            None => match first.strip_prefix("--print-public-list=") {
                Some(url) => vec!["public-list", url],
                None => return args,
            },
        },
    };
    out.splice(1..2, words.into_iter().map(OsString::from));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Check, Cli, Command};
    use clap::Parser;

    fn parsed(line: &str) -> Command {
        let args = line.split(' ').map(OsString::from).collect();
        Cli::try_parse_from(translate(args)).unwrap().command
    }

    #[test]
    fn the_original_is_known_by_its_name() {
        for name in ["netpunch", "/opt/netpunch", "NetPunch.exe", "lobby", "./lobby.py"] {
            assert!(is_legacy(Some(OsStr::new(name))), "{name}");
        }
        for name in ["anywire", "netpunch2", ""] {
            assert!(!is_legacy(Some(OsStr::new(name))), "{name}");
        }
        assert!(!is_legacy(None));
    }

    #[test]
    fn its_switches_become_commands() {
        for (line, check) in [
            ("netpunch --selftest", Check::Lobby),
            ("netpunch --selftest-transfer", Check::Transfer),
            ("netpunch --selftest-relay", Check::Relay),
            ("netpunch --selftest-mesh", Check::Mesh),
            ("netpunch --selftest-mods", Check::Mods),
            ("netpunch --selftest-dual", Check::Dual),
        ] {
            let Command::Selftest(args) = parsed(line) else { panic!("{line}") };
            assert_eq!(args.what, check);
        }
        assert!(
            matches!(parsed("netpunch --print-public-list http://x"), Command::PublicList { url } if url == "http://x")
        );
        assert!(
            matches!(parsed("netpunch --print-public-list=http://x"), Command::PublicList { url } if url == "http://x")
        );
    }

    #[test]
    fn host_and_join_are_the_same_words() {
        assert!(matches!(parsed("netpunch host --name ada --local-port 0"), Command::Host(_)));
        assert!(matches!(parsed("netpunch join ABCD --name lin"), Command::Join(args) if args.code == ["ABCD"]));
    }
}
