//! Laws and the test commands.
fn main() {}
