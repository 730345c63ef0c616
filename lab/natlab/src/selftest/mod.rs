//! The proof that each kind of router behaves as it is named, and that the
//! rest of the lab does what its topology says. The expectations are written
//! here by hand, from the RFCs' words, not taken from the code under test.

// A report for people on standard output.
#![allow(clippy::print_stdout)]

mod features;
mod kinds;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::lab::{self, Lab};
use crate::nat::Dependence::{self, Address, AddressPort, Independent};
use crate::net::{self, Result};
use crate::probe::{self, PortUse, TcpIn};
use crate::spec::KINDS;

const DISCOVERY: u16 = 7551;
const ANSWER: Duration = Duration::from_millis(350);
const PUNCH: Duration = Duration::from_millis(1000);

/// What a kind must look like.
struct Expected {
    udp: bool,
    translated: bool,
    mapping: Option<Dependence>,
    filtering: Option<Dependence>,
    ports: Option<PortUse>,
    tcp_mapping: Option<Dependence>,
    tcp_in: Option<TcpIn>,
    /// Neighbours reach each other at their public addresses.
    hairpin: bool,
}

fn expected(kind: &str) -> Expected {
    use PortUse::{Preserved, Random, Sequential};
    use TcpIn::{Accepted, Dropped};
    let e = |translated, mapping, filtering, ports, tcp_in| Expected {
        udp: true,
        translated,
        mapping: Some(mapping),
        filtering: Some(filtering),
        ports,
        tcp_mapping: Some(mapping),
        tcp_in: Some(tcp_in),
        hairpin: !translated,
    };
    let none = Expected {
        udp: false,
        translated: false,
        mapping: None,
        filtering: None,
        ports: None,
        tcp_mapping: None,
        tcp_in: None,
        hairpin: false,
    };
    match kind {
        "open" => e(false, Independent, Independent, None, Accepted),
        "firewall" => e(false, Independent, AddressPort, None, Dropped),
        "full-cone" => e(true, Independent, Independent, Some(Preserved), Accepted),
        "restricted-cone" => e(true, Independent, Address, Some(Preserved), Dropped),
        "port-restricted" | "linux" => e(true, Independent, AddressPort, Some(Preserved), Dropped),
        "symmetric" | "linux-random" => e(true, AddressPort, AddressPort, Some(Random), Dropped),
        "symmetric-seq" => e(true, AddressPort, AddressPort, Some(Sequential), Dropped),
        "cgnat" => e(true, Independent, AddressPort, Some(Random), Dropped),
        "udp-blocked" => Expected { tcp_mapping: Some(Independent), tcp_in: Some(Dropped), ..none },
        _ => none,
    }
}

/// Whether two peers of these kinds can punch a UDP hole without guessing ports.
/// Whether two homes of these kinds can punch a hole by UDP when both know where the other one is: the table that the
/// self-test proves.
pub fn punchable(a: &str, b: &str) -> bool {
    let (x, y) = (expected(a), expected(b));
    if !x.udp || !y.udp {
        return false;
    }
    // A side that lets anybody in learns where the other one really is.
    if x.filtering == Some(Independent) || y.filtering == Some(Independent) {
        return true;
    }
    let moving = |e: &Expected| e.mapping != Some(Independent);
    let strict = |e: &Expected| e.filtering == Some(AddressPort);
    // A mapping that differs for each peer cannot be foretold: whoever filters
    // by port then drops what comes from it.
    !(moving(&x) && strict(&y) || moving(&y) && strict(&x))
}

struct Report {
    passed: u32,
    failed: Vec<String>,
}

impl Report {
    fn check(&mut self, what: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("  ok    {what}");
            }
            Err(e) => {
                println!("  FAIL  {what}: {e}");
                self.failed.push(format!("{what}: {e}"));
            }
        }
    }
}

fn topology(kinds: &[&str], miniupnpd: bool) -> String {
    let mut t = String::from("seed 7\n");
    for k in kinds {
        t += &format!("home {k}-1 kind={k} hosts={k}-1a,{k}-1b\nhome {k}-2 kind={k}\n");
    }
    t += "\
carrier isp-loop kind=port-restricted hairpin
carrier isp-flat kind=port-restricted
carrier isp-lan  kind=symmetric local
home loop-1 via=isp-loop upnp
home loop-2 via=isp-loop
home flat-1 via=isp-flat
home flat-2 via=isp-flat
home near-1 via=isp-lan
home near-2 via=isp-lan
home hair   kind=port-restricted hairpin hosts=hair-a,hair-b
home hair-f kind=full-cone hairpin=internal hosts=hairf-a,hairf-b
home quick  kind=port-restricted ports=random udp-timeout=1s refresh=outbound
home loud   kind=port-restricted reject
home igd    kind=port-restricted upnp natpmp hosts=igd-a,igd-b forward=udp:4000:igd-b:4001
home igd-s  kind=symmetric upnp=v2
home igd-p  kind=port-restricted upnp=permanent
home igd-r  kind=port-restricted upnp=refuse
home igd-l  kind=port-restricted upnp=lie
home slow   kind=port-restricted delay=30ms jitter=5ms
home lossy  kind=full-cone up-loss=20%
home narrow kind=port-restricted rate=8mbit queue=60ms
home twin-1 kind=port-restricted lan=192.168.77.0/24
home twin-2 kind=port-restricted lan=192.168.77.0/24
home radio  kind=port-restricted hosts=radio-a,radio-b
host radio-b delay=20ms
home six-1  kind=port-restricted ipv6=firewall
home six-2  kind=symmetric ipv6=firewall
home six-o  kind=udp-blocked ipv6=open
home pppoe  kind=port-restricted mtu=1492
vlan hamachi net=25.0.0.0/8 hosts=loop-1,hair-a,twin-1
vlan tail net=100.100.0.0/16 broadcast=no mtu=1280 hosts=flat-1,twin-2
";
    if miniupnpd {
        t += "home mini kind=linux upnp\n";
    }
    t
}

/// Runs everything and prints a report; true when all is as it should be. With `kernel` the kernel's own NAT is proved
/// too, where this machine has it.
pub fn run(kernel: bool) -> Result<bool> {
    let lacks = if kernel { lab::lacks_kernel_nat() } else { None };
    if let Some(why) = &lacks {
        net::skipped("the kinds linux and linux-random", why);
    }
    let kernel = kernel && lacks.is_none();
    let name = format!("selftest-{}", std::process::id());
    let names: Vec<&str> = KINDS.iter().map(|(k, _)| *k).filter(|k| kernel || !k.starts_with("linux")).collect();
    let miniupnpd = kernel && Path::new("/usr/sbin/miniupnpd").exists();
    if kernel && !miniupnpd {
        net::skipped("a UPnP daemon on a kernel router", "miniupnpd is not installed");
    }
    let begin = Instant::now();
    let lab = Lab::start(&name, &topology(&names, miniupnpd))?;
    let up = begin.elapsed();
    println!("lab of {} namespaces up in {} ms\n", lab.topology.nodes().len(), up.as_millis());
    let mut r = Report { passed: 0, failed: Vec::new() };
    kinds::behaviours(&lab, &names, &mut r);
    kinds::matrix(&lab, &names, &mut r);
    features::check(&lab, kernel, miniupnpd, &mut r);
    let rate = probe::throughput(&lab, "port-restricted-1a", Duration::from_millis(500));
    let trip = probe::quality(&lab, "port-restricted-1a", 200, Duration::from_millis(1));
    if let (Ok(rate), Ok(trip)) = (rate, trip) {
        let middle = trip.round_trips.get(trip.round_trips.len() / 2);
        println!(
            "\nwithout impairments: one TCP stream {:.0} Mbit/s, round trip {} us",
            rate / 1e6,
            middle.map_or(0, Duration::as_micros)
        );
    }
    let end = Instant::now();
    drop(lab);
    println!("lab down in {} ms, all in {:.1} s", end.elapsed().as_millis(), begin.elapsed().as_secs_f64());
    let left = net::namespaces_of(&name);
    r.check("nothing is left behind", if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) });
    for f in &r.failed {
        println!("failed: {f}");
    }
    println!("\n{} passed, {} failed", r.passed, r.failed.len());
    Ok(r.failed.is_empty())
}

fn must(condition: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if condition { Ok(()) } else { Err(otherwise()) }
}

fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Result<()> {
    must(got == want, || format!("got {got:?}, expected {want:?}"))
}
