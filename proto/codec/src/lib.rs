//! Borrowing reader, growing writer, length guards, and JSON in the byte form old peers expect.
//!
//! Layer 0: everything that turns bytes into values or back starts here. The reader never panics and never
//! reads past its slice; every refusal names the field that was cut short.

mod json;
mod read;
mod write;

pub use json::{JsonError, Map, Value, object, to_json};
pub use read::{Reader, Short};
pub use write::Writer;

/// Bytes as lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Lower-case hexadecimal to bytes; anything else (odd length, upper case, other characters) is `None`.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).ok()
}
