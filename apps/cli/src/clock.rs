//! The player's own time of day.

use chrono::{DateTime, Local, TimeZone};

/// Now, as `HH:MM:SS`.
#[must_use]
pub(crate) fn now_hms() -> String {
    Local::now().format("%H:%M:%S").to_string()
}

/// A Unix time (now when `None`), as `HH:MM`.
#[must_use]
pub(crate) fn hm(unix: Option<u64>) -> String {
    let given = unix.and_then(|s| i64::try_from(s).ok()).and_then(|s| Local.timestamp_opt(s, 0).single());
    let time: DateTime<Local> = given.unwrap_or_else(Local::now);
    time.format("%H:%M").to_string()
}
