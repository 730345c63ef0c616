//! The `natlab` program; `natlab --help` says what it does.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    natlab::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("natlab: needs Linux, whose network namespaces it is made of");
    std::process::ExitCode::from(2)
}
