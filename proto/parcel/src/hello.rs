//! The first line of a stream that carries a file (netpunch wire, section 9.6), and of the master's pipe (9.7).
//!
//! ```text
//! TPF2BULK1 <recv|send> <sid decimal> <token> <name>\n      answered OK\n
//! TPF2PIPE1 <pair> <H|J>\n                                  answered PAIRED\n
//! ```

use std::fmt;

use seam::Refused;

/// What a greeting begins with.
pub const PREFIX: &str = "TPF2BULK1 ";
/// Most bytes of a greeting, its newline included.
pub const LINE_MAX: usize = 256;
/// Most bytes of the name in it, cut at a character.
const NAME_MAX: usize = 64;
/// The answer to a greeting. Exactly these bytes: the file follows at once (pain 62).
pub const ANSWER: &[u8; 3] = b"OK\n";
/// The answer of a pipe.
pub const PAIRED: &[u8; 7] = b"PAIRED\n";

/// What somebody who connected wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The file.
    Receive,
    /// To bring it.
    Send,
}

/// A greeting.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// What is wanted.
    pub role: Role,
    /// Of which transfer.
    pub sid: u32,
    /// The token that the offer named.
    pub token: String,
    /// The receiver's name, possibly empty.
    pub name: String,
}

impl fmt::Debug for Hello {
    /// Without the token, which opens the file to whoever reads a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hello({:?}, sid {}, {:?})", self.role, self.sid, self.name)
    }
}

impl Hello {
    /// The line with its newline.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let role = match self.role {
            Role::Receive => "recv",
            Role::Send => "send",
        };
        let end = (0..=NAME_MAX.min(self.name.len())).rev().find(|end| self.name.is_char_boundary(*end));
        let name: String = self.name.get(..end.unwrap_or_default()).unwrap_or_default().replace('\n', " ");
        format!("{PREFIX}{role} {} {} {name}\n", self.sid, self.token).into_bytes()
    }

    /// Reads a line with its newline.
    ///
    /// # Errors
    /// [`Refused::NotOurs`] without [`PREFIX`], [`Refused::Malformed`] for anything else that is not the one form.
    pub fn parse(line: &[u8]) -> Result<Self, Refused> {
        let line = line.strip_prefix(PREFIX.as_bytes()).ok_or(Refused::NotOurs)?;
        if line.len() + PREFIX.len() > LINE_MAX {
            return Err(Refused::Malformed);
        }
        let text = std::str::from_utf8(line).ok().and_then(|text| text.strip_suffix('\n')).ok_or(Refused::Malformed)?;
        let mut fields = text.splitn(4, ' ');
        let (Some(role), Some(sid), Some(token), Some(name)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(Refused::Malformed);
        };
        let role = match role {
            "recv" => Role::Receive,
            "send" => Role::Send,
            _ => return Err(Refused::Malformed),
        };
        if sid.is_empty() || sid.len() > 10 || !sid.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Refused::Malformed);
        }
        let sid = sid.parse().map_err(|_| Refused::Malformed)?;
        if name.len() > NAME_MAX || name.contains('\n') || token.is_empty() {
            return Err(Refused::Malformed);
        }
        Ok(Self { role, sid, token: token.to_owned(), name: name.to_owned() })
    }
}

/// What one end says to the master's pipe.
#[must_use]
pub fn pipe_line(pair: &str, host: bool) -> Vec<u8> {
    format!("TPF2PIPE1 {pair} {}\n", if host { 'H' } else { 'J' }).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_cut_and_a_line_too_long_are_refused() {
        let line = Hello { role: Role::Receive, sid: 7, token: "ab".repeat(16), name: "a b".to_owned() }.write();
        for cut in 0..line.len() {
            assert!(Hello::parse(&line[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Hello::parse(&[PREFIX.as_bytes(), &b"a".repeat(400), b"\n"].concat()).is_err());
        for bad in ["TPF2BULK1 recv +1 t n\n", "TPF2BULK1 recv 4294967296 t n\n", "TPF2BULK1 recv  t n\n"] {
            assert_eq!(Hello::parse(bad.as_bytes()), Err(Refused::Malformed), "{bad}");
        }
    }

    #[test]
    fn a_greeting_shows_no_token() {
        let hello = Hello { role: Role::Send, sid: 7, token: "secret".to_owned(), name: "ada".to_owned() };
        assert!(!format!("{hello:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(send: bool, sid: u32, token in "[0-9a-f]{32}", name in "\\PC{0,16}") {
            let role = if send { Role::Send } else { Role::Receive };
            let hello = Hello { role, sid, token, name };
            prop_assert_eq!(Hello::parse(&hello.write()), Ok(hello));
        }
    }
}
