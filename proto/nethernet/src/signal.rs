//! Signalling messages: three tokens, split at the first two spaces (NetherNet, section 5.2).

use std::fmt;

use thiserror::Error;

use crate::id::decimal;
use crate::{ConnectionId, SessionError};

/// One signalling message. Texts borrow from what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal<'a> {
    /// The attempt it belongs to.
    pub connection: ConnectionId,
    /// What it says.
    pub body: Body<'a>,
}

/// What a signalling message says (NetherNet, section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The dialer's offer: SDP.
    ConnectRequest(&'a str),
    /// The listener's answer: SDP.
    ConnectResponse(&'a str),
    /// One candidate, in any of the forms in the field. Empty, or `candidate:` alone, is the end of candidates.
    CandidateAdd(&'a str),
    /// The attempt is over.
    ConnectError(SessionError),
}

impl Body<'_> {
    /// Token 0.
    #[must_use]
    pub const fn identifier(&self) -> &'static str {
        match self {
            Self::ConnectRequest(_) => "CONNECTREQUEST",
            Self::ConnectResponse(_) => "CONNECTRESPONSE",
            Self::CandidateAdd(_) => "CANDIDATEADD",
            Self::ConnectError(_) => "CONNECTERROR",
        }
    }
}

/// Why a text is no signalling message. Such a text is ignored; only its sender can be to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SignalError {
    /// Fewer than three tokens. Keep-alives (empty, or `Ping`) are such.
    #[error("fewer than three tokens")]
    Tokens,
    /// Token 0 is none of the four words; their case counts.
    #[error("no such message")]
    Identifier,
    /// Token 1 is not an unsigned decimal number of 64 bits: no sign, no other base, digits of ASCII only.
    #[error("the connection id is not a decimal number of 64 bits")]
    ConnectionId,
    /// The data of a CONNECTERROR is not a decimal number.
    #[error("the error is not a decimal number")]
    ErrorCode,
    /// Not UTF-8.
    #[error("not text")]
    NotText,
}

impl<'a> Signal<'a> {
    /// Reads a message. An error number beyond 32 bits reads as the largest of them.
    ///
    /// # Errors
    /// [`SignalError`]; the message is to be ignored.
    pub fn parse(text: &'a str) -> Result<Self, SignalError> {
        let mut tokens = text.splitn(3, ' ');
        let (Some(word), Some(id), Some(data)) = (tokens.next(), tokens.next(), tokens.next()) else {
            return Err(SignalError::Tokens);
        };
        let body = match word {
            "CONNECTREQUEST" => Body::ConnectRequest(data),
            "CONNECTRESPONSE" => Body::ConnectResponse(data),
            "CANDIDATEADD" => Body::CandidateAdd(data),
            "CONNECTERROR" => Body::ConnectError(error_code(data)?),
            _ => return Err(SignalError::Identifier),
        };
        let connection = decimal(id).map(ConnectionId).ok_or(SignalError::ConnectionId)?;
        Ok(Self { connection, body })
    }

    /// [`parse`](Self::parse) for bytes off a wire.
    ///
    /// # Errors
    /// [`SignalError`]; the message is to be ignored.
    pub fn parse_bytes(bytes: &'a [u8]) -> Result<Self, SignalError> {
        Self::parse(std::str::from_utf8(bytes).map_err(|_| SignalError::NotText)?)
    }

    /// Token 2.
    #[must_use]
    pub fn data(&self) -> String {
        match self.body {
            Body::ConnectRequest(data) | Body::ConnectResponse(data) | Body::CandidateAdd(data) => data.to_owned(),
            Body::ConnectError(error) => error.code().to_string(),
        }
    }
}

impl fmt::Display for Signal<'_> {
    /// The message as it goes over the wire.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.body.identifier(), self.connection)?;
        match self.body {
            Body::ConnectRequest(data) | Body::ConnectResponse(data) | Body::CandidateAdd(data) => f.write_str(data),
            Body::ConnectError(error) => error.code().fmt(f),
        }
    }
}

fn error_code(data: &str) -> Result<SessionError, SignalError> {
    if data.is_empty() || !data.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SignalError::ErrorCode);
    }
    // Digits alone, so that only their number can fail.
    Ok(SessionError::from_code(data.parse().unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(connection: u64, body: Body<'_>) -> String {
        Signal { connection: ConnectionId(connection), body }.to_string()
    }

    #[test]
    fn the_rest_of_a_message_keeps_its_spaces_and_line_ends() {
        let text = "CONNECTREQUEST 7 v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\n";
        let signal = Signal::parse(text).unwrap();
        assert_eq!(signal.connection, ConnectionId(7));
        assert_eq!(signal.body, Body::ConnectRequest("v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\n"));
        assert_eq!(signal.to_string(), text);
    }

    #[test]
    fn each_reason_to_ignore_a_text_is_told() {
        for (text, want) in [
            ("", SignalError::Tokens),
            ("Ping", SignalError::Tokens),
            ("CANDIDATEADD 1", SignalError::Tokens),
            ("connectrequest 1 v=0", SignalError::Identifier),
            ("CONNECTREQUEST\t1\tv=0", SignalError::Tokens),
            ("CONNECTREQUEST  1 v=0", SignalError::ConnectionId),
            ("CONNECTREQUEST +1 v=0", SignalError::ConnectionId),
            ("CONNECTREQUEST 0x10 v=0", SignalError::ConnectionId),
            ("CONNECTREQUEST 18446744073709551616 v=0", SignalError::ConnectionId),
            ("CONNECTERROR 1 ", SignalError::ErrorCode),
            ("CONNECTERROR 1 5 6", SignalError::ErrorCode),
            ("CONNECTERROR 1 -5", SignalError::ErrorCode),
        ] {
            assert_eq!(Signal::parse(text), Err(want), "{text:?}");
        }
        assert_eq!(Signal::parse_bytes(b"CANDIDATEADD 1 \xFF"), Err(SignalError::NotText));
    }

    #[test]
    fn the_end_of_candidates_may_be_empty() {
        let signal = Signal::parse("CANDIDATEADD 1 ").unwrap();
        assert_eq!(signal.body, Body::CandidateAdd(""));
    }

    #[test]
    fn an_error_beyond_32_bits_is_an_error_without_a_name() {
        let signal = Signal::parse("CONNECTERROR 1 99999999999999999999").unwrap();
        assert_eq!(signal.body, Body::ConnectError(SessionError::Unknown(u32::MAX)));
    }

    #[test]
    fn cut_anywhere_before_its_data_a_message_is_ignored() {
        let text = written(42, Body::CandidateAdd("candidate:1"));
        let data = text.len() - "candidate:1".len();
        for end in 0..data {
            assert!(Signal::parse(&text[..end]).is_err(), "{:?}", &text[..end]);
        }
        assert!((data..text.len()).all(|end| Signal::parse(&text[..end]).is_ok()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(id: u64, data in "(?s).*", code: u32) {
            let bodies = [
                Body::ConnectRequest(&data),
                Body::ConnectResponse(&data),
                Body::CandidateAdd(&data),
                Body::ConnectError(SessionError::from_code(code)),
            ];
            for body in bodies {
                let text = written(id, body);
                let signal = Signal::parse(&text).unwrap();
                prop_assert_eq!(signal, Signal { connection: ConnectionId(id), body });
                prop_assert_eq!(signal.to_string(), text.clone());
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "(?s).*") {
            if let Ok(signal) = Signal::parse(&text) {
                let written = signal.to_string();
                prop_assert_eq!(Signal::parse(&written), Ok(signal));
            }
        }
    }
}
