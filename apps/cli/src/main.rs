//! The anywire program.
fn main() {}
