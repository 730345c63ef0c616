//! Steam IDs as codes (netpunch wire, section 2.5).

/// The ID of account number 0. Players' accounts are the 2^32 - 1 numbers after it.
pub const STEAM_ID_BASE: u64 = 76_561_197_960_265_728;

/// Start of a profile address, without its scheme.
pub(crate) const PROFILES: &str = "steamcommunity.com/profiles/";

/// The Steam ID that a trimmed text is: bare or as a profile address, with `/` after it and spaces anywhere.
pub(crate) fn id(text: &[(usize, char)]) -> Option<u64> {
    let (number, _) = number(text);
    let mut value = 0_u64;
    let mut digits = 0_u32;
    for (_, c) in number.iter().filter(|(_, c)| *c != ' ') {
        value = value.checked_mul(10)?.checked_add(u64::from(c.to_digit(10)?))?;
        digits += 1;
    }
    let account = value.checked_sub(STEAM_ID_BASE)?;
    (digits == 17 && account > 0 && account < 1 << 32).then_some(value)
}

/// Whether a text that is no Steam ID was meant to be one: a profile address, or nothing but digits.
pub(crate) fn is_meant(text: &[(usize, char)]) -> bool {
    let (number, has_prefix) = number(text);
    has_prefix || number.iter().all(|(_, c)| c.is_ascii_digit() || *c == ' ')
}

/// What is left after the profile prefix, and whether there was one.
fn number(text: &[(usize, char)]) -> (&[(usize, char)], bool) {
    let bare = strip(text, "https://").or_else(|| strip(text, "http://")).unwrap_or(text);
    let (number, has_prefix) = strip(bare, PROFILES).map_or((text, false), |number| (number, true));
    let end = number.iter().rposition(|(_, c)| *c != '/').map_or(0, |last| last + 1);
    (number.get(..end).unwrap_or_default(), has_prefix)
}

/// What follows `prefix`, compared without regard to the case of ASCII letters.
pub(crate) fn strip<'a>(text: &'a [(usize, char)], prefix: &str) -> Option<&'a [(usize, char)]> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.iter().zip(prefix.chars()).all(|((_, a), b)| a.eq_ignore_ascii_case(&b)).then_some(tail)
}
