//! Codes and passwords from where they cannot be seen: files, standard input, the environment.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Most bytes taken of a file or a line.
const LIMIT: usize = 4_096;

/// Why a code or password could not be read.
#[derive(Debug, Error)]
pub(crate) enum InputError {
    /// A file cannot be read.
    #[error("cannot read the {what} from {path}: {error}", path = .path.display())]
    File {
        /// "code" or "password".
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Standard input ended or failed.
    #[error("no {0} came from standard input")]
    Stdin(&'static str),
    /// Nothing was given.
    #[error("no code: give the one your host shows, as in: anywire join CODE")]
    NoCode,
}

/// Where one secret is to come from, in order of precedence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// What it is, for messages.
    pub(crate) what: &'static str,
    /// Typed on the command line.
    pub(crate) typed: Option<String>,
    /// First line of a file; all of it for a code, which may have been pasted over several lines.
    pub(crate) file: Option<PathBuf>,
    /// A line of standard input.
    pub(crate) stdin: bool,
    /// The environment's.
    pub(crate) env: Option<String>,
}

/// Reads secrets in the order asked for; each one from standard input is a line of its own.
pub(crate) struct Inputs<R> {
    stdin: R,
}

impl<R: BufRead> Inputs<R> {
    /// Reads lines of `stdin` where a source wants it.
    pub(crate) fn new(stdin: R) -> Self {
        Self { stdin }
    }

    /// The secret, without the line end; an empty one counts as none.
    ///
    /// # Errors
    /// [`InputError`] when the place it should come from cannot be read.
    pub(crate) fn read(&mut self, source: Source) -> Result<Option<String>, InputError> {
        let text = if let Some(typed) = source.typed {
            Some(typed)
        } else if let Some(path) = source.file {
            let text = if source.what == "code" { whole(&path) } else { first_line(&path) };
            Some(text.map_err(|error| InputError::File { what: source.what, path, error })?)
        } else if source.stdin {
            let mut line = String::new();
            let mut limited = io::Read::take(&mut self.stdin, u64::try_from(LIMIT).unwrap_or(u64::MAX));
            match limited.read_line(&mut line) {
                Ok(n) if n > 0 => Some(line),
                Ok(_) | Err(_) => return Err(InputError::Stdin(source.what)),
            }
        } else {
            source.env
        };
        Ok(text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()).filter(|text| !text.is_empty()))
    }
}

fn whole(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    io::Read::read_to_string(&mut io::Read::take(file, u64::try_from(LIMIT).unwrap_or(u64::MAX)), &mut text)?;
    Ok(text)
}

fn first_line(path: &Path) -> io::Result<String> {
    let file = std::fs::File::open(path)?;
    let mut line = String::new();
    io::BufReader::new(io::Read::take(file, u64::try_from(LIMIT).unwrap_or(u64::MAX))).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dir;

    fn source() -> Source {
        Source { what: "password", ..Source::default() }
    }

    #[test]
    fn a_code_and_a_password_from_standard_input_are_two_lines() {
        let mut inputs = Inputs::new(&b"TFVLCO4A\r\nsesame\n"[..]);
        let stdin = Source { stdin: true, ..source() };
        assert_eq!(inputs.read(stdin.clone()).unwrap().as_deref(), Some("TFVLCO4A"));
        assert_eq!(inputs.read(stdin.clone()).unwrap().as_deref(), Some("sesame"));
        assert_eq!(inputs.read(stdin).unwrap_err().to_string(), "no password came from standard input");
    }

    #[test]
    fn what_was_typed_wins_over_the_environment_and_empty_is_none() {
        let mut inputs = Inputs::new(io::empty());
        let both = Source { typed: Some("typed".into()), env: Some("env".into()), ..source() };
        assert_eq!(inputs.read(both).unwrap().as_deref(), Some("typed"));
        assert_eq!(inputs.read(Source { env: Some("env".into()), ..source() }).unwrap().as_deref(), Some("env"));
        assert_eq!(inputs.read(Source { typed: Some(String::new()), ..source() }).unwrap(), None);
        assert_eq!(inputs.read(source()).unwrap(), None);
    }

    #[test]
    fn a_file_gives_its_first_line_or_a_reason() {
        let dir = Dir::new("secrets-file");
        let path = dir.path().join("password");
        std::fs::write(&path, "se same\nsecond\n").unwrap();
        let mut inputs = Inputs::new(io::empty());
        let file = |path: &Path| Source { file: Some(path.to_owned()), ..source() };
        assert_eq!(inputs.read(file(&path)).unwrap().as_deref(), Some("se same"));
        let error = inputs.read(file(&dir.path().join("none"))).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the password from "), "{error}");
    }
}
