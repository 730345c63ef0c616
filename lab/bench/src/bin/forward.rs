//! Two lobby processes between two games.
//!
//! `cargo run --release -p anywire-bench --bin forward`

fn main() {
    anywire_bench::child::dispatch();
    println!("{}", anywire_bench::forward::report());
}
