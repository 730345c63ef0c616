//! Text from other players, made fit for a screen: no control characters, no invisible ones, no more than fits.

use unicode_width::UnicodeWidthChar;

/// What stands in for a character that may not reach a terminal.
const STAND_IN: char = '\u{b7}';

/// Most combining marks kept on one character.
const MARKS: usize = 2;

/// `text` without characters that move the cursor, turn the writing direction or take no place; each run of marks is
/// cut to two. Line breaks become spaces.
#[must_use]
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.chars() {
        if matches!(c, '\n' | '\r' | '\t') {
            out.push(' ');
            marks = 0;
        } else if c.is_control() || is_invisible(c) {
            out.push(STAND_IN);
            marks = 0;
        } else if c.width() == Some(0) {
            marks += 1;
            if marks <= MARKS && !out.is_empty() {
                out.push(c);
            }
        } else {
            out.push(c);
            marks = 0;
        }
    }
    out
}

/// Formatting characters: zero-width, direction, separators, joiners, tags.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Columns `text` takes on a terminal.
#[must_use]
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// `text` cleaned and cut to `columns`, an ellipsis showing that something is missing.
#[must_use]
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let text = clean(text);
    if width(&text) <= columns {
        return text;
    }
    let mut out = head(&text, columns.saturating_sub(1)).to_owned();
    if columns > 0 {
        out.push('\u{2026}');
    }
    out
}

/// The longest beginning of `text` that fits into `columns`.
#[must_use]
pub(crate) fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// The longest end of `text` that fits into `columns`.
#[must_use]
pub(crate) fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return text.get(at + c.len_utf8()..).unwrap_or_default();
        }
    }
    text
}

/// `text` in lines of at most `columns`, broken at spaces where there are some.
#[must_use]
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut line = head(rest, columns);
        if line.is_empty() {
            // One character wider than the whole line: it goes alone.
            let end = rest.chars().next().map_or(rest.len(), char::len_utf8);
            line = rest.get(..end).unwrap_or(rest);
        } else if line.len() < rest.len()
            && !rest.get(line.len()..).unwrap_or_default().starts_with(' ')
            && let Some(space) = line.rfind(' ').filter(|at| *at > 0)
        {
            line = line.get(..space).unwrap_or(line);
        }
        lines.push(line.trim_end().to_owned());
        rest = rest.get(line.len()..).unwrap_or_default();
        rest = rest.strip_prefix(' ').unwrap_or(rest);
    }
    if lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_survives() {
        let hostile = "a\u{1b}[2Jb\u{7}\u{202e}c\u{9b}31m\r\nd\u{200b}";
        assert_eq!(clean(hostile), "a·[2Jb··c·31m  d·");
    }

    #[test]
    fn towers_of_marks_are_cut() {
        let tower = format!("e{}", "\u{301}".repeat(50));
        assert_eq!(clean(&tower), "e\u{301}\u{301}");
        assert_eq!(clean("\u{301}x"), "x");
    }

    #[test]
    fn cutting_counts_columns_and_not_letters() {
        assert_eq!(fit("日本語テスト", 5), "日本…");
        assert_eq!(width(&fit("日本語テスト", 5)), 5);
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("short", 0), "");
        assert_eq!(tail("日本語", 3), "語");
    }

    #[test]
    fn wrapping_breaks_at_spaces_and_loses_no_word() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("日本語", 1), ["日", "本", "語"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
