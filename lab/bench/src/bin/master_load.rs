//! The master under load on loopback, its refusals with the default bounds, and its list beside nginx.
//!
//! `cargo run --release -p anywire-bench --bin master_load [seconds=30] [hosts=5000] [lists=200] [knocks=500] [datagrams=40000]`

use anywire_bench::master_load::{Load, report};

fn main() {
    anywire_bench::child::dispatch();
    let mut load = Load::default();
    for arg in std::env::args().skip(1) {
        if !load.set(&arg) {
            eprintln!("'{arg}' is not understood; see the head of this program");
            std::process::exit(2);
        }
    }
    println!("{}", report(&load));
}
