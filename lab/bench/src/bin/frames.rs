//! Frames per second between two sealed sessions.
//!
//! `cargo run --release -p anywire-bench --bin frames`

fn main() {
    anywire_bench::child::dispatch();
    println!("{}", anywire_bench::frames::report());
}
