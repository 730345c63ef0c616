//! Maps ports and says what happens, until its input ends: for tests behind routers, and to see what a router does.
//!
//! `portmap-probe [udp=PORT] [tcp=PORT] [lease=SECONDS] [state=FILE]`; lines of input: `renew`,
//! `distrust udp|tcp upnp|nat-pmp|pcp`.

#![allow(clippy::print_stdout)]

use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anywire_portmap::{Mapper, Method, Protocol, Wanted};

fn main() -> ExitCode {
    let mut wanted = Wanted::default();
    for argument in std::env::args().skip(1) {
        if understand(&mut wanted, &argument).is_none() {
            println!("cannot understand '{argument}'");
            return ExitCode::from(2);
        }
    }
    println!("way {:?}", anywire_portmap::way());
    let start = Instant::now();
    let mapper = Mapper::start_with(wanted, move |event| println!("{:.3} {event:?}", start.elapsed().as_secs_f32()));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words {
            ["renew"] => mapper.renew(),
            ["distrust", protocol, by] => {
                let protocol = if protocol == "udp" { Protocol::Udp } else { Protocol::Tcp };
                let by = match by {
                    "upnp" => Method::Upnp,
                    "pcp" => Method::Pcp,
                    _ => Method::NatPmp,
                };
                mapper.distrust(protocol, by);
            }
            _ => println!("cannot understand '{line}'"),
        }
    }
    let stopping = Instant::now();
    mapper.stop();
    println!("stopped in {} ms", stopping.elapsed().as_millis());
    ExitCode::SUCCESS
}

fn understand(wanted: &mut Wanted, argument: &str) -> Option<()> {
    let (key, value) = argument.split_once('=')?;
    match key {
        "udp" => wanted.udp = Some(value.parse().ok()?),
        "tcp" => wanted.tcp = Some(value.parse().ok()?),
        "lease" => wanted.lease = Duration::from_secs(value.parse().ok()?),
        "state" => wanted.state_file = Some(value.into()),
        _ => return None,
    }
    Some(())
}
