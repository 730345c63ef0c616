//! The master server as a program of its own; `anywire master` is the same.

use std::process::ExitCode;

fn main() -> ExitCode {
    anywire_master::main(std::env::args_os())
}
