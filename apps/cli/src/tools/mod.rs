//! What the program does beside hosting and joining.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod lan;
pub(crate) mod list;
pub(crate) mod observe;
pub(crate) mod party;
pub(crate) mod punch;
pub(crate) mod selftest;

use std::io::{self, Write};

/// One line of a tool's result on standard output; a broken one is nobody's reason to die.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}
