//! Sealing and opening a frame: ours, the same format straight from the hash crates, and two ciphers made for speed.
//!
//! `cargo run --release -p anywire-bench --bin seal`

fn main() {
    anywire_bench::child::dispatch();
    println!("{}", anywire_bench::sealing::report());
}
