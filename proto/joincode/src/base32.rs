//! RFC 4648 Base32 as old peers read and write it: padding left out, unused low bits not checked.

use crate::CodeError;

const ALPHABET: [u8; 32] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Bytes as text without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity((bytes.len() * 8).div_ceil(5));
    let (mut bits, mut have) = (0_u32, 0_u32);
    for &byte in bytes {
        bits = bits << 8 | u32::from(byte);
        have += 8;
        while have >= 5 {
            have -= 5;
            out.push(letter(bits >> have));
        }
    }
    if have > 0 {
        out.push(letter(bits << (5 - have)));
    }
    out
}

fn letter(bits: u32) -> char {
    ALPHABET.into_iter().nth((bits & 31) as usize).map_or('=', char::from)
}

/// Text to bytes. Characters come with their positions. Padding at the end is fine when a strict decoder that pads to
/// a multiple of eight would take it.
pub(crate) fn decode(text: &[(usize, char)]) -> Result<Vec<u8>, CodeError> {
    let typed = text.iter().rev().take_while(|(_, c)| *c == '=').count();
    let digits = text.get(..text.len() - typed).unwrap_or_default();
    let mut out = Vec::with_capacity(digits.len() * 5 / 8);
    let (mut bits, mut have) = (0_u32, 0_u32);
    for &(position, character) in digits {
        let value = value(character).ok_or(CodeError::IllegalCharacter { position, character })?;
        bits = bits << 5 | value;
        have += 5;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have & 0xFF) as u8);
        }
    }
    let padding = text.len().next_multiple_of(8) - digits.len();
    if matches!(padding, 0 | 1 | 3 | 4 | 6) { Ok(out) } else { Err(CodeError::BadLength { characters: digits.len() }) }
}

fn value(character: char) -> Option<u32> {
    match character.to_ascii_uppercase() {
        c @ 'A'..='Z' => Some(u32::from(c) - u32::from('A')),
        c @ '2'..='7' => Some(u32::from(c) - u32::from('2') + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Result<Vec<u8>, CodeError> {
        decode(&(1..).zip(text.chars()).collect::<Vec<_>>())
    }

    #[test]
    fn the_examples_of_rfc_4648_hold() {
        for (plain, text) in
            [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foo", "MZXW6"), ("foob", "MZXW6YQ"), ("fooba", "MZXW6YTB")]
        {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decoded(text).unwrap(), plain.as_bytes());
            let padded = format!("{text:=<0$}", text.len().next_multiple_of(8));
            assert_eq!(decoded(&padded).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn impossible_lengths_and_padding_are_refused() {
        for (text, characters) in
            [("A", 1), ("ABC", 3), ("ABCDEF", 6), ("ABCDEFGH========", 8), ("ABCDEFGH=", 8), ("=", 0)]
        {
            assert_eq!(decoded(text), Err(CodeError::BadLength { characters }), "{text}");
        }
    }

    #[test]
    fn padding_may_be_partial_but_stands_at_the_end() {
        assert_eq!(decoded("MY==").unwrap(), b"f");
        assert_eq!(decoded("M=Y"), Err(CodeError::IllegalCharacter { position: 2, character: '=' }));
    }

    #[test]
    fn letters_beyond_ascii_are_not_folded_into_the_alphabet() {
        for character in ['\u{17F}', '\u{131}', '\u{FF21}', '\u{DF}'] {
            let text = format!("AB{character}A");
            assert_eq!(decoded(&text), Err(CodeError::IllegalCharacter { position: 3, character }));
        }
    }
}
