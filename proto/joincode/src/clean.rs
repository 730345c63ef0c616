//! Repairs what a person pasted.

use crate::steam::{self, PROFILES};

/// Repairs what a person pasted, so that [`parse`](crate::parse) judges the code and not its journey: white space and
/// line breaks inside, lower case, quotes, brackets, backticks and emphasis marks around it, a full stop or comma picked
/// up behind it, a `CODE=` or `code:` in front, characters of no width. Nothing else is touched: whatever is wrong after
/// that is worth telling.
///
/// Of a Steam profile address what matters is kept: `https://steamcommunity.com/profiles/` and the ID, without what
/// follows it.
///
/// ```
/// use anywire_joincode::clean;
/// assert_eq!(clean("> Code: `abvl co4a`.\n"), "ABVLCO4A");
/// assert_eq!(
///     clean("<https://steamcommunity.com/profiles/76561198012345678/?l=english>"),
///     "https://steamcommunity.com/profiles/76561198012345678",
/// );
/// ```
#[must_use]
pub fn clean(pasted: &str) -> String {
    cleaned(pasted).into_iter().map(|(_, c)| c).collect()
}

/// The repaired text, each character with its position in `pasted` counted from 1.
pub(crate) fn cleaned(pasted: &str) -> Vec<(usize, char)> {
    // White space goes first: where a text is torn inside its label, the label is still one.
    let counted = (1..).zip(pasted.chars());
    let visible: Vec<(usize, char)> = counted.filter(|(_, c)| !has_no_width(*c) && !c.is_whitespace()).collect();
    let mut text = visible.as_slice();
    loop {
        let inner = without_label(without_wrapping(text));
        if inner.len() == text.len() {
            break;
        }
        text = inner;
    }
    match steam_profile(text) {
        Some(address) => address,
        None => text.iter().map(|(at, c)| (*at, c.to_ascii_uppercase())).collect(),
    }
}

/// Without marks at both ends.
fn without_wrapping(text: &[(usize, char)]) -> &[(usize, char)] {
    let start = text.iter().position(|(_, c)| !wraps(*c)).unwrap_or(text.len());
    let end = text.iter().rposition(|(_, c)| !wraps(*c) && !follows(*c)).map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}

/// Without `code` and one of `=` and `:` in front, and without the command that the code was shown in. No code begins
/// like these commands: the letters would be flags of one without a secret, or of one that is refused.
fn without_label(text: &[(usize, char)]) -> &[(usize, char)] {
    if let Some(code) = ["anywirejoin", "netpunchjoin"].iter().find_map(|command| steam::strip(text, command)) {
        return code;
    }
    match steam::strip(text, "code").and_then(<[_]>::split_first) {
        Some(((_, '=' | ':'), code)) => code,
        Some(_) | None => text,
    }
}

/// The profile address in a form that is read as one, when the text is one.
fn steam_profile(text: &[(usize, char)]) -> Option<Vec<(usize, char)>> {
    let host = ["https://", "http://"].iter().find_map(|scheme| steam::strip(text, scheme)).unwrap_or(text);
    let host = steam::strip(host, "www.").unwrap_or(host);
    let number = steam::strip(host, PROFILES)?;
    let start = text.first().map_or(1, |(at, _)| *at);
    let prefix = "https://".chars().chain(PROFILES.chars()).map(|c| (start, c));
    let end = number.iter().position(|(_, c)| matches!(c, '/' | '?' | '#')).unwrap_or(number.len());
    let id = without_wrapping(number.get(..end).unwrap_or_default());
    Some(prefix.chain(id.iter().copied()).collect())
}

/// Marks that a person or a program puts around a text.
fn wraps(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '\u{B4}' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '*' | '_' | '~' | '|')
        || matches!(
            c,
            '\u{2018}'..='\u{201F}' | '\u{AB}' | '\u{BB}' | '\u{2039}' | '\u{203A}' | '\u{300C}' | '\u{300D}'
        )
}

/// Marks that end a sentence or a part of one.
fn follows(c: char) -> bool {
    matches!(c, '.' | ',' | ';' | ':' | '!' | '?')
}

/// Characters that are not seen: soft hyphen, zero-width space and joiners, direction marks, byte order mark.
fn has_no_width(c: char) -> bool {
    matches!(c, '\u{AD}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}')
}
