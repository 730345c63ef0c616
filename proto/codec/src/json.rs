//! JSON in the byte form old peers write: `", "` and `": "` separators, keys in the order given, everything beyond
//! ASCII as `\uXXXX` (surrogate pairs above U+FFFF). Reading takes any valid JSON; of a repeated key the last wins.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter};
pub use serde_json::{Map, Value};
use thiserror::Error;

/// Why bytes are not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not UTF-8, not JSON, or nested deeper than 128 levels.
    #[error("not JSON")]
    Syntax,
    /// A JSON value of another kind.
    #[error("not a JSON object")]
    NotAnObject,
}

/// Parses one JSON object.
///
/// # Errors
/// [`JsonError`] for anything else; nothing is taken from a broken text.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, JsonError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(JsonError::NotAnObject),
        Err(_) => Err(JsonError::Syntax),
    }
}

/// The bytes an old peer would write for `value`, fields in declaration order.
///
/// ```
/// let bytes = anywire_codec::to_json(&serde_json::json!({"t": "chat", "text": "gr\u{fc}\u{df}"}));
/// assert_eq!(bytes, br#"{"t": "chat", "text": "gr\u00fc\u00df"}"#);
/// ```
///
/// A value that `serde` refuses (a map with keys that are no strings) becomes `null`: our own message types have none.
#[must_use]
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut ser = serde_json::Serializer::with_formatter(&mut out, Python);
    match value.serialize(&mut ser) {
        Ok(()) => out,
        Err(_) => b"null".to_vec(),
    }
}

struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, w: &mut W, text: &str) -> io::Result<()> {
        let mut plain = 0;
        for (at, c) in text.char_indices() {
            // DEL is ASCII and Python leaves it alone, as it does everything serde_json has not escaped already.
            if c.is_ascii() {
                continue;
            }
            w.write_all(text.as_bytes().get(plain..at).unwrap_or_default())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(w, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        w.write_all(text.as_bytes().get(plain..).unwrap_or_default())
    }

    fn write_char_escape<W: ?Sized + io::Write>(&mut self, w: &mut W, escape: CharEscape) -> io::Result<()> {
        let text: &[u8] = match escape {
            CharEscape::Quote => b"\\\"",
            CharEscape::ReverseSolidus => b"\\\\",
            CharEscape::Solidus => b"/",
            CharEscape::Backspace => b"\\b",
            CharEscape::FormFeed => b"\\f",
            CharEscape::LineFeed => b"\\n",
            CharEscape::CarriageReturn => b"\\r",
            CharEscape::Tab => b"\\t",
            CharEscape::AsciiControl(byte) => return write!(w, "\\u{byte:04x}"),
        };
        w.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn separators_escapes_and_surrogates_are_as_old_peers_write_them() {
        let bytes = to_json(&json!({"a": [1, 2], "b": {}, "s": "\u{1F682}\n\u{1}\"/\\"}));
        assert_eq!(bytes, br#"{"a": [1, 2], "b": {}, "s": "\ud83d\ude82\n\u0001\"/\\"}"#);
    }

    #[test]
    fn only_objects_are_objects() {
        assert_eq!(object(b"[1]"), Err(JsonError::NotAnObject));
        assert_eq!(object(b"{\"a\": 1"), Err(JsonError::Syntax));
        assert_eq!(object(&[b'{', 0xFF, b'}']), Err(JsonError::Syntax));
        assert_eq!(object(&b"[".repeat(100_000)), Err(JsonError::Syntax));
    }

    #[test]
    fn of_a_repeated_key_the_last_wins() {
        let map = object(br#"{"t": "reject", "t": "start"}"#).unwrap();
        assert_eq!(map["t"], "start");
    }
}
