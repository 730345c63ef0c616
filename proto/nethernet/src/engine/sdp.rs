//! The part of SDP that NetherNet needs (RFC 8866, RFC 8839, RFC 8841, RFC 8842): one data section, no media.
//!
//! Written exactly as every program in the field reads it, and read as tolerantly as they write it.

use std::fmt::{self, Write as _};

use thiserror::Error;

use super::candidate::{self, Candidate, Parsed};

/// Longest description taken.
pub const SDP_MAX: usize = 64 << 10;
/// Most inline candidates kept; the rest is ignored.
pub const CANDIDATES_MAX: usize = 64;
/// Most fingerprint lines kept.
const FINGERPRINTS_MAX: usize = 8;
/// What NetherNet announces (section 6.1).
pub const MESSAGE_MAX: u64 = 262_144;
/// The hash of a certificate, as `a=fingerprint` carries it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    /// Upper-case pairs with colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `a=setup`: who begins the DTLS handshake (RFC 8842, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Either; what an offer says.
    ActPass,
    /// The sender of this description is DTLS client.
    Active,
    /// The sender of this description is DTLS server.
    Passive,
}

impl Setup {
    const fn word(self) -> &'static str {
        match self {
            Self::ActPass => "actpass",
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

/// One side's description of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The number of the `o=` line.
    pub origin: u64,
    /// `a=mid`; an answer repeats the offer's.
    pub mid: String,
    /// `a=ice-ufrag`, 4 to 256 characters.
    pub ufrag: String,
    /// `a=ice-pwd`, 22 to 256 characters.
    pub pwd: String,
    /// The sender only answers checks (RFC 8445, section 2.5).
    pub ice_lite: bool,
    /// The sha-256 fingerprints, at least one. A certificate may match any.
    pub fingerprints: Vec<Fingerprint>,
    /// Who begins the DTLS handshake.
    pub setup: Setup,
    /// `a=max-message-size` as it was announced; 0 means no limit.
    pub max_message_size: Option<u64>,
    /// Inline candidates.
    pub candidates: Vec<Candidate>,
    /// Whether no more candidates will come.
    pub end_of_candidates: bool,
    /// `a=identity`, the base64 text.
    pub identity: Option<String>,
}

/// Why a description cannot be used; the peer is to blame. Answered with error 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SdpError {
    /// Over [`SDP_MAX`].
    #[error("a description of {0} bytes; at most {SDP_MAX}")]
    TooLong(usize),
    /// No `m=application` section, or more sections than that.
    #[error("{0} media sections where there must be one, for data channels")]
    Sections(usize),
    /// The section carries something else than data channels over DTLS.
    #[error("the media section is not for data channels")]
    NotData,
    /// A line that must be there is not.
    #[error("the description has no {0}")]
    Missing(&'static str),
    /// A line cannot be read.
    #[error("the {0} of the description cannot be read")]
    Bad(&'static str),
}

/// Reads a description. Lines it does not know are skipped, as are candidates it cannot read.
///
/// # Errors
/// [`SdpError`] names the line that is missing or wrong.
pub fn parse(text: &str) -> Result<Description, SdpError> {
    if text.len() > SDP_MAX {
        return Err(SdpError::TooLong(text.len()));
    }
    let mut draft = Draft::default();
    for line in text.split(['\r', '\n']) {
        let line = line.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        let Some((kind, value)) = line.split_once('=') else { continue };
        match kind {
            "o" => draft.origin = value.split_ascii_whitespace().nth(1).and_then(|id| id.parse().ok()).unwrap_or(0),
            "m" => draft.section(value),
            "a" => draft.attribute(value)?,
            _ => {}
        }
    }
    draft.finish()
}

#[derive(Default)]
struct Draft {
    origin: u64,
    sections: usize,
    data: bool,
    /// Values of the session level come first and those of the section replace them.
    mid: Option<String>,
    ufrag: Option<String>,
    pwd: Option<String>,
    lite: bool,
    fingerprints: Vec<Fingerprint>,
    other_hash: bool,
    setup: Option<Setup>,
    max_message_size: Option<u64>,
    candidates: Vec<Candidate>,
    end: bool,
    identity: Option<String>,
}

impl Draft {
    fn section(&mut self, value: &str) {
        self.sections += 1;
        let mut words = value.split_ascii_whitespace();
        let media = words.next().unwrap_or_default();
        let (_port, protocol) = (words.next(), words.next().unwrap_or_default());
        // Older peers write the SCTP port where newer ones write `webrtc-datachannel`.
        self.data = media == "application" && protocol.contains("DTLS") && protocol.contains("SCTP");
    }

    fn attribute(&mut self, text: &str) -> Result<(), SdpError> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.trim();
        match name {
            "mid" => self.mid = Some(token(value, 1, 64).ok_or(SdpError::Bad("mid"))?),
            "ice-ufrag" => self.ufrag = Some(token(value, 4, 256).ok_or(SdpError::Bad("ice-ufrag"))?),
            "ice-pwd" => self.pwd = Some(token(value, 22, 256).ok_or(SdpError::Bad("ice-pwd"))?),
            "ice-lite" => self.lite = true,
            "fingerprint" => self.fingerprint(value)?,
            "setup" => {
                self.setup = Some(match value.to_ascii_lowercase().as_str() {
                    "actpass" => Setup::ActPass,
                    "active" => Setup::Active,
                    "passive" => Setup::Passive,
                    _ => return Err(SdpError::Bad("setup")),
                });
            }
            "max-message-size" => {
                self.max_message_size = Some(value.parse().map_err(|_| SdpError::Bad("max-message-size"))?);
            }
            "candidate" => {
                if let Ok(Parsed::Candidate(candidate)) = candidate::parse(text)
                    && self.candidates.len() < CANDIDATES_MAX
                {
                    self.candidates.push(candidate);
                }
            }
            "end-of-candidates" => self.end = true,
            "identity" => self.identity = Some(value.to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn fingerprint(&mut self, value: &str) -> Result<(), SdpError> {
        let (hash, digest) = value.split_once(' ').ok_or(SdpError::Bad("fingerprint"))?;
        if !hash.eq_ignore_ascii_case("sha-256") {
            self.other_hash = true;
            return Ok(());
        }
        let mut bytes = [0; 32];
        let mut pairs = digest.trim().split(':');
        for byte in &mut bytes {
            let pair = pairs.next().filter(|p| p.len() == 2).ok_or(SdpError::Bad("fingerprint"))?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| SdpError::Bad("fingerprint"))?;
        }
        if pairs.next().is_some() {
            return Err(SdpError::Bad("fingerprint"));
        }
        if self.fingerprints.len() < FINGERPRINTS_MAX {
            self.fingerprints.push(Fingerprint(bytes));
        }
        Ok(())
    }

    fn finish(self) -> Result<Description, SdpError> {
        if self.sections != 1 {
            return Err(SdpError::Sections(self.sections));
        }
        if !self.data {
            return Err(SdpError::NotData);
        }
        if self.fingerprints.is_empty() {
            return Err(SdpError::Missing(if self.other_hash { "sha-256 fingerprint" } else { "fingerprint" }));
        }
        Ok(Description {
            origin: self.origin,
            mid: self.mid.unwrap_or_else(|| "0".to_owned()),
            ufrag: self.ufrag.ok_or(SdpError::Missing("ice-ufrag"))?,
            pwd: self.pwd.ok_or(SdpError::Missing("ice-pwd"))?,
            ice_lite: self.lite,
            fingerprints: self.fingerprints,
            setup: self.setup.ok_or(SdpError::Missing("setup"))?,
            max_message_size: self.max_message_size,
            candidates: self.candidates,
            end_of_candidates: self.end,
            identity: self.identity,
        })
    }
}

/// A value without spaces or control characters, within its lengths.
fn token(value: &str, least: usize, most: usize) -> Option<String> {
    let fits = (least..=most).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_graphic());
    fits.then(|| value.to_owned())
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(512);
        write!(text, "v=0\r\no=- {} 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n", self.origin)?;
        if let Some(identity) = &self.identity {
            write!(text, "a=identity:{identity}\r\n")?;
        }
        write!(text, "a=group:BUNDLE {}\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n", self.mid)?;
        text.push_str("m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n");
        for candidate in &self.candidates {
            write!(text, "a={candidate}\r\n")?;
        }
        if self.end_of_candidates {
            text.push_str("a=end-of-candidates\r\n");
        }
        write!(text, "a=ice-ufrag:{}\r\na=ice-pwd:{}\r\na=ice-options:trickle\r\n", self.ufrag, self.pwd)?;
        for fingerprint in &self.fingerprints {
            write!(text, "a=fingerprint:sha-256 {fingerprint}\r\n")?;
        }
        write!(text, "a=setup:{}\r\na=mid:{}\r\na=sctp-port:5000\r\n", self.setup.word(), self.mid)?;
        if let Some(size) = self.max_message_size {
            write!(text, "a=max-message-size:{size}\r\n")?;
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests;
