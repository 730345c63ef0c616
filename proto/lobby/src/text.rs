//! Text of others, made harmless: bounded, and without characters that move a terminal's cursor or turn its writing
//! direction.

/// Longest name in UTF-8 bytes: envelopes carry its length in one byte.
pub(crate) const NAME_MAX: usize = 255;
/// Longest stage in characters.
pub(crate) const STAGE_MAX: usize = 80;
/// Longest chat text in characters.
pub(crate) const CHAT_MAX: usize = 1_000;
/// Longest reason, status or log line in characters.
pub(crate) const LINE_MAX: usize = 240;
/// Longest join code of a player; the longest there is has 108 characters.
pub(crate) const PROFILE_MAX: usize = 300;
/// Old panels read event lines into 2,048 bytes; this much of one is not name or text.
const OLD_LINE_TEXT: usize = 2_047 - 64;

/// Characters that do something instead of showing something.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// At most `bytes` bytes of `text`, ending between characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// A name as it may be used: trimmed, never empty, at most 255 bytes.
pub(crate) fn name(asked: &str) -> String {
    let shown: String = asked.trim().chars().take(NAME_MAX).map(|c| if acts(c) { '_' } else { c }).collect();
    match cut(&shown, NAME_MAX).trim_end() {
        "" => "player".to_owned(),
        name => name.to_owned(),
    }
}

/// The same for a name that may be missing.
pub(crate) fn optional_name(asked: &str) -> String {
    if asked.trim().is_empty() { String::new() } else { name(asked) }
}

/// `name#n`, still at most 255 bytes.
pub(crate) fn numbered(name: &str, n: usize) -> String {
    let suffix = format!("#{n}");
    format!("{}{suffix}", cut(name, NAME_MAX - suffix.len()))
}

/// The first `most` characters, with a space for each that acts.
pub(crate) fn line(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if acts(c) { ' ' } else { c }).collect()
}

/// A stage: one short line.
pub(crate) fn stage(text: &str) -> String {
    line(text.trim(), STAGE_MAX)
}

/// A chat text that fits, with the name of who said it, into the line of an old panel.
pub(crate) fn chat(from: &str, text: &str) -> String {
    let mut room = OLD_LINE_TEXT.saturating_sub(from.chars().map(escaped).sum());
    let shown = line(text, CHAT_MAX);
    let mut kept = String::with_capacity(shown.len());
    for c in shown.chars() {
        match room.checked_sub(escaped(c)) {
            Some(left) => room = left,
            None => break,
        }
        kept.push(c);
    }
    kept
}

/// Bytes a character takes in JSON as old peers write it.
fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        ' '..='\u{7f}' => 1,
        _ => 6 * c.len_utf16(),
    }
}

/// A player's join code, if it can be one.
pub(crate) fn profile(code: Option<String>) -> Option<String> {
    code.filter(|code| {
        !code.is_empty() && code.len() <= PROFILE_MAX && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'=')
    })
}

/// A world nonce: 32 lower-case hexadecimal digits.
pub(crate) fn is_nonce(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_cut_between_characters_and_never_empty() {
        assert_eq!(name("  bob "), "bob");
        assert_eq!(name(" \t"), "player");
        assert_eq!(name("a\u{1b}[2Jb\u{202e}c"), "a_[2Jb_c");
        assert_eq!(name(&"\u{fc}".repeat(200)).len(), 254);
        assert_eq!(numbered(&"x".repeat(255), 17), format!("{}#17", "x".repeat(252)));
    }

    #[test]
    fn a_chat_line_fits_an_old_panel_whatever_it_says() {
        for text in ["\u{1F682}", "\u{fc}", "x", "\"", "\u{1}"] {
            for from in ["ada".to_owned(), "\u{fc}".repeat(127)] {
                let kept = chat(&from, &text.repeat(3_000));
                let event = serde_json::json!({"type": "chat", "from": from, "text": kept, "ts": 1_790_000_321u64});
                assert!(codec::to_json(&event).len() <= 2_047, "{from} {text}");
                assert!(kept.chars().count() >= 90);
            }
        }
        assert_eq!(chat("ada", "a\nb"), "a b");
    }

    #[test]
    fn a_profile_is_a_code_or_nothing() {
        assert_eq!(profile(Some("ABC234".into())).as_deref(), Some("ABC234"));
        assert_eq!(profile(Some("\u{1b}[2J".into())), None);
        assert_eq!(profile(Some("A".repeat(301))), None);
        assert!(is_nonce("0123456789abcdef0123456789abcdef") && !is_nonce("0123456789ABCDEF0123456789abcdef"));
    }
}
