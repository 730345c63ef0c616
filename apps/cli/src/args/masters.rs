//! Which master server: flags, then the environment.

use clap::Args;
use thiserror::Error;

use super::Switch;

/// Names the master where no flag does.
const ENV: &str = "ANYWIRE_MASTER";

/// The flags about master servers.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Master server")]
pub(crate) struct MasterArgs {
    /// Master server that brings players together, or "off" [default: that of --publish, else ANYWIRE_MASTER, else
    /// off: there is no master of ours].
    #[arg(long, value_name = "URL")]
    pub(crate) rendezvous: Option<String>,

    /// Master server whose public list is used [default: that of --rendezvous]. A --relay-only lobby with this is
    /// listed, others are with --public.
    #[arg(long, value_name = "URL")]
    pub(crate) publish: Option<String>,

    /// List the lobby for everybody to see and join.
    #[arg(long)]
    pub(crate) public: bool,

    /// Guess a port together with the other end where both routers hide theirs, while the relay carries the game.
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "on")]
    pub(crate) guess: Option<Switch>,
}

/// An address of a master that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadUrl {
    /// Not an address of a web server.
    #[error("{from}: '{text}' is no address of a master server; one looks like https://master.example")]
    NotHttp {
        /// The flag or variable.
        from: &'static str,
        /// What it says.
        text: String,
    },
    /// `--public` without a master.
    #[error("--public needs a master server: name one with --publish, --rendezvous or ANYWIRE_MASTER")]
    NoMaster,
    /// `anywire list` without a master.
    #[error("which list? name a master server: anywire list https://master.example, or set ANYWIRE_MASTER")]
    NoList,
}

impl MasterArgs {
    /// Whether ports are guessed.
    pub(crate) fn guesses(&self) -> bool {
        self.guess != Some(Switch::Off)
    }

    /// The master that joiners knock at; `None` for none.
    ///
    /// # Errors
    /// [`BadUrl`] for what is neither an address nor `off`.
    pub(crate) fn rendezvous(&self) -> Result<Option<String>, BadUrl> {
        self.knock_at(std::env::var(ENV).ok().as_deref())
    }

    /// The master that lists the lobby, and whether it does from the start; `None` where there is no master.
    ///
    /// # Errors
    /// [`BadUrl`] for no address, and for `--public` without one.
    pub(crate) fn listed(&self, relay_only: bool) -> Result<Option<(String, bool)>, BadUrl> {
        self.list_at(std::env::var(ENV).ok().as_deref(), relay_only)
    }

    fn knock_at(&self, env: Option<&str>) -> Result<Option<String>, BadUrl> {
        let named = [("--rendezvous", self.rendezvous.as_deref()), ("--publish", self.publish.as_deref()), (ENV, env)];
        match first(named) {
            Some((_, "off")) | None => Ok(None),
            Some((from, text)) => url(from, text).map(Some),
        }
    }

    fn list_at(&self, env: Option<&str>, relay_only: bool) -> Result<Option<(String, bool)>, BadUrl> {
        let at = match first([("--publish", self.publish.as_deref())]) {
            Some((from, text)) => Some(url(from, text)?),
            None => self.knock_at(env)?,
        };
        match at {
            None if self.public => Err(BadUrl::NoMaster),
            None => Ok(None),
            Some(at) => Ok(Some((at, self.public || (relay_only && self.publish.is_some())))),
        }
    }
}

/// The master that `anywire doctor` looks at.
///
/// # Errors
/// [`BadUrl`] for what is neither an address nor `off`.
pub(super) fn looked_at(rendezvous: Option<&str>) -> Result<Option<String>, BadUrl> {
    let args = MasterArgs { rendezvous: rendezvous.map(str::to_owned), ..MasterArgs::default() };
    args.rendezvous()
}

/// `anywire list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// The master server's address [default: ANYWIRE_MASTER].
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// Print the rows as JSON, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ListArgs {
    /// Whose list.
    ///
    /// # Errors
    /// [`BadUrl`] for none and for what is no address.
    pub(crate) fn url(&self) -> Result<String, BadUrl> {
        let env = std::env::var(ENV).ok();
        let (from, text) = first([("list", self.url.as_deref()), (ENV, env.as_deref())])
            .filter(|(_, text)| *text != "off")
            .ok_or(BadUrl::NoList)?;
        url(from, text)
    }
}

/// The first that says something.
fn first<'a, const N: usize>(named: [(&'static str, Option<&'a str>); N]) -> Option<(&'static str, &'a str)> {
    named.into_iter().filter_map(|(from, text)| Some((from, text?.trim()))).find(|(_, text)| !text.is_empty())
}

/// An address of a web server without its last slash.
pub(crate) fn url(from: &'static str, text: &str) -> Result<String, BadUrl> {
    let text = text.trim();
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        text.get(..scheme.len()).filter(|head| head.eq_ignore_ascii_case(scheme)).and_then(|_| text.get(scheme.len()..))
    });
    match rest {
        Some(rest)
            if rest.starts_with(|c: char| c.is_alphanumeric() || c == '[') && !rest.contains([' ', '\t', '@']) =>
        {
            Ok(text.trim_end_matches('/').to_owned())
        }
        Some(_) | None => Err(BadUrl::NotHttp { from, text: text.chars().take(100).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(rendezvous: Option<&str>, publish: Option<&str>, public: bool) -> MasterArgs {
        MasterArgs {
            rendezvous: rendezvous.map(str::to_owned),
            publish: publish.map(str::to_owned),
            public,
            guess: None,
        }
    }

    #[test]
    fn the_master_is_that_of_rendezvous_then_publish_then_the_environment() {
        let at = |rendezvous, publish, env| args(rendezvous, publish, false).knock_at(env).unwrap();
        assert_eq!(at(Some("http://a/"), Some("http://b"), Some("http://c")).as_deref(), Some("http://a"));
        assert_eq!(at(None, Some("http://b"), Some("http://c")).as_deref(), Some("http://b"));
        assert_eq!(at(None, Some(""), Some("http://c")).as_deref(), Some("http://c"));
        assert_eq!(at(None, None, None), None);
        assert_eq!(at(Some("off"), Some("http://b"), Some("http://c")), None);
    }

    #[test]
    fn a_lobby_is_listed_where_publish_says_and_when_public_says() {
        let listed = |rendezvous, publish, public, relay| args(rendezvous, publish, public).list_at(None, relay);
        let some = |url: &str, on| Ok(Some((url.to_owned(), on)));
        assert_eq!(listed(None, Some("http://b"), false, false), some("http://b", false));
        assert_eq!(listed(None, Some("http://b"), false, true), some("http://b", true));
        assert_eq!(listed(Some("off"), Some("http://b"), true, false), some("http://b", true));
        assert_eq!(listed(Some("http://a"), None, true, false), some("http://a", true));
        assert_eq!(listed(Some("http://a"), None, false, true), some("http://a", false));
        assert_eq!(listed(None, None, false, true), Ok(None));
        assert_eq!(listed(Some("off"), None, true, false), Err(BadUrl::NoMaster));
    }

    #[test]
    fn what_is_no_address_is_named_with_its_flag() {
        for bad in
            ["master.example", "ftp://x", "http://", "https:///list", "http://a b", "http://user:secret@x", "\u{e9}"]
        {
            let error = args(Some(bad), None, false).knock_at(None).unwrap_err();
            assert!(error.to_string().starts_with("--rendezvous: "), "{error}");
        }
        for good in ["HTTP://x", "https://[::1]:8471/", "http://127.0.0.1:1/base/"] {
            assert!(args(Some(good), None, false).knock_at(None).is_ok(), "{good}");
        }
        assert!(args(None, Some("x"), true).list_at(Some("http://c"), false).is_err());
    }
}
