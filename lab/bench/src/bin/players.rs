//! A host with 200 players: memory and processor.
//!
//! `cargo run --release -p anywire-bench --bin players`

fn main() {
    anywire_bench::child::dispatch();
    println!("{}", anywire_bench::players::report());
}
