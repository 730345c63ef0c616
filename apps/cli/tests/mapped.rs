//! Hosts whose router maps their port, or says that it does, as processes: what the code says, who gets in, what is left
//! behind; and what the doctor says behind each kind of router.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use joincode::{Code, Profile};
use natlab::{Lab, Program, ready};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

/// A folder for one test's processes, removed with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("anywire-mapped-{}-{name}", std::process::id()));
        let _none = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn anywire(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
        command.args(words).env_remove("ANYWIRE_MASTER").env("XDG_DATA_HOME", self.0.join("data"));
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// A master on the port that every network lets out, and its address.
fn master(lab: &Lab, dir: &Dir) -> (Program, String) {
    let ip = lab.ip("master").unwrap().to_string();
    let words = ["master", "--bind", "0.0.0.0", "--port", "80", "--relay-ip", &ip];
    let mut master = lab.spawn("master", dir.anywire(&words)).unwrap();
    master.wait_for("the master listens", SOON).unwrap();
    (master, format!("http://{ip}"))
}

fn player(lab: &Lab, dir: &Dir, node: &str, words: &[&str]) -> Program {
    let [[stun, _], _] = lab.stun_servers();
    let mut command = dir.anywire(words);
    command.args(["--ui", "plain", "--game-relay-port", "0", "--name", node, "--io-dir"]).arg(dir.0.join(node));
    command.env("TPF2MP_STUN", stun.to_string()).env("TPF2MP_LOG_IPS", "1");
    lab.spawn(node, command).unwrap()
}

fn host(lab: &Lab, dir: &Dir, words: &[&str]) -> (Program, String, Profile) {
    let mut host = player(lab, dir, "ada", &[&["host"], words].concat());
    let code = host.wait_for("CODE=", SOON).unwrap().trim_start_matches("CODE=").to_owned();
    let Ok(Code::Plain(profile)) = joincode::parse(&code) else { panic!("{code}") };
    (host, code, profile)
}

/// Lines of the router's table that are mappings.
fn mappings(lab: &Lab) -> usize {
    lab.control("nat a").unwrap().lines().filter(|line| line.contains("forward '")).count()
}

/// Waits for a line with this in it, which may have come already.
fn says(program: &Program, wanted: &str) {
    let end = Instant::now() + SOON;
    while !program.errors().contains(wanted) {
        assert!(Instant::now() < end, "it did not say '{wanted}' but {}", program.errors());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_port_that_the_router_maps_is_proved_dialled_and_given_back() {
    let test = "a_port_that_the_router_maps_is_proved_dialled_and_given_back";
    if !ready(test) {
        return;
    }
    for (keys, names) in [("upnp=v1", ["UPnP"].as_slice()), ("upnp=v2", &["UPnP"]), ("natpmp", &["NAT-PMP", "PCP"])] {
        let dir = Dir::new(keys);
        let lab = Lab::up(&format!(
            "home a kind=symmetric {keys} hosts=ada delay=5ms\nhome b kind=symmetric hosts=lin delay=5ms"
        ))
        .unwrap();
        let (_master, url) = master(&lab, &dir);
        let (mut host, code, profile) = host(&lab, &dir, &["--rendezvous", &url]);
        let wan = lab.public_ip("ada").unwrap();
        assert!(profile.flags.open && profile.flags.symmetric, "{keys}: {}", host.errors());
        assert_eq!(profile.public.unwrap().to_string(), format!("{wan}:29471"), "{keys}");
        let line = format!("seen from outside at {wan}:29471");
        says(&host, &line);
        assert!(names.iter().any(|name| host.errors().contains(&format!("mapped by {name} and {line}"))));
        assert_eq!(mappings(&lab), 1);

        // Nobody has to knock: whoever has the code dials.
        let mut join = player(&lab, &dir, "lin", &["join", &code, "--rendezvous", "off"]);
        join.wait_for("via public address after", SOON).unwrap();
        assert!(join.terminate(SOON).unwrap().success());
        assert!(host.terminate(SOON).unwrap().success());
        assert_eq!(mappings(&lab), 0, "{keys}: given back on SIGTERM");
    }
}

#[test]
fn pain_51_what_a_killed_host_left_is_given_back_by_the_next() {
    if !ready("pain_51_what_a_killed_host_left_is_given_back_by_the_next") {
        return;
    }
    let dir = Dir::new("killed");
    let lab = Lab::up("home a kind=port-restricted upnp hosts=ada").unwrap();
    let (_master, url) = master(&lab, &dir);
    let (mut first, ..) = host(&lab, &dir, &["--rendezvous", &url]);
    says(&first, "seen from outside");
    first.kill();
    assert_eq!(mappings(&lab), 1);
    let (mut second, ..) = host(&lab, &dir, &["--rendezvous", &url, "--local-port", "29500"]);
    says(&second, "seen from outside");
    let end = Instant::now() + SOON;
    while mappings(&lab) != 1 {
        assert!(Instant::now() < end, "{}", lab.control("nat a").unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(second.terminate(SOON).unwrap().success());
    assert_eq!(mappings(&lab), 0);
}

#[test]
fn pain_1_a_router_that_lies_about_its_mapping_is_not_believed() {
    if !ready("pain_1_a_router_that_lies_about_its_mapping_is_not_believed") {
        return;
    }
    let dir = Dir::new("lie");
    let lab = Lab::up("home a kind=port-restricted upnp=lie hosts=ada delay=5ms").unwrap();
    let (_master, url) = master(&lab, &dir);
    let (mut host, _, profile) = host(&lab, &dir, &["--rendezvous", &url]);
    assert!(!profile.flags.open);
    says(&host, "the router mapped it by UPnP, but nothing came through from outside");
    assert!(host.terminate(SOON).unwrap().success());
}

#[test]
fn a_router_is_left_alone_where_the_player_says_so() {
    if !ready("a_router_is_left_alone_where_the_player_says_so") {
        return;
    }
    let dir = Dir::new("off");
    let lab = Lab::up("home a kind=port-restricted upnp hosts=ada").unwrap();
    let (mut host, _, profile) = host(&lab, &dir, &["--portmap", "off"]);
    assert!(!profile.flags.open && !host.errors().contains("UDP port:"));
    assert_eq!(mappings(&lab), 0);
    assert!(host.terminate(SOON).unwrap().success());
}

/// What the doctor finds on a machine.
fn doctor(lab: &Lab, dir: &Dir, node: &str, words: &[&str]) -> Program {
    let [[stun, _], _] = lab.stun_servers();
    let mut command = dir.anywire(&[&["doctor", "--json", "--show-addresses"], words].concat());
    command.env("TPF2MP_STUN", stun.to_string());
    lab.spawn(node, command).unwrap()
}

fn found(mut doctor: Program) -> Value {
    assert!(doctor.wait(SOON).unwrap().success(), "{}", doctor.errors());
    serde_json::from_str(doctor.output().trim()).unwrap_or_else(|_| panic!("{} {}", doctor.output(), doctor.errors()))
}

/// A home, the name of its router's kind, its mapping and filtering, and the way to a port-restricted host.
const KINDS: [(&str, &str, &str, &str, &str); 10] = [
    ("open", "open", "endpoint-independent", "endpoint-independent", "knock"),
    ("firewall", "firewall", "endpoint-independent", "address-and-port-dependent", "knock"),
    ("full-cone", "full-cone", "endpoint-independent", "endpoint-independent", "knock"),
    ("restricted-cone", "restricted-cone", "endpoint-independent", "address-dependent", "knock"),
    ("port-restricted", "port-restricted", "endpoint-independent", "address-and-port-dependent", "knock"),
    ("symmetric", "symmetric", "address-and-port-dependent", "address-and-port-dependent", "guess"),
    ("symmetric-seq", "symmetric", "address-and-port-dependent", "address-and-port-dependent", "guess"),
    ("cgnat", "port-restricted", "endpoint-independent", "address-and-port-dependent", "knock"),
    ("udp-blocked", "unknown", "unknown", "unknown", "tcp"),
    ("web-only", "unknown", "unknown", "unknown", "tcp"),
];

#[test]
fn the_doctor_names_the_kind_of_every_router_and_the_way_to_a_host() {
    if !ready("the_doctor_names_the_kind_of_every_router_and_the_way_to_a_host") {
        return;
    }
    let dir = Dir::new("doctor");
    let mut text = "home a kind=port-restricted hosts=ada delay=5ms\n".to_owned();
    for (n, (kind, ..)) in KINDS.iter().enumerate() {
        text += &format!("home k{n} kind={kind} hosts=m{n} delay=5ms\n");
    }
    let lab = Lab::up(&text).unwrap();
    let (_master, url) = master(&lab, &dir);
    let (_host, code, _) = host(&lab, &dir, &["--rendezvous", &url]);
    let doctors: Vec<Program> =
        (0..KINDS.len()).map(|n| doctor(&lab, &dir, &format!("m{n}"), &[&code, "--rendezvous", &url])).collect();
    for ((kind, name, mapping, filtering, route), doctor) in KINDS.iter().zip(doctors) {
        let value = found(doctor);
        let router = &value["router"];
        let told = [&router["kind"], &router["mapping"], &router["filtering"], &value["verdict"]["route"]];
        assert_eq!(told.map(|told| told.as_str().unwrap()), [*name, mapping, filtering, route], "{kind}: {value}");
        assert_eq!(value["udp"], !matches!(*kind, "udp-blocked" | "web-only"), "{kind}");
        assert_eq!(
            (&value["master"]["web"], &value["master"]["tcp"]),
            (&Value::Bool(true), &Value::Bool(true)),
            "{kind}"
        );
        assert_eq!(value["mtu"], 1500, "{kind}: {value}");
    }
}

#[test]
fn the_doctor_says_what_the_router_says_of_ports_and_takes_its_own_back() {
    if !ready("the_doctor_says_what_the_router_says_of_ports_and_takes_its_own_back") {
        return;
    }
    let dir = Dir::new("ports");
    for (keys, state) in [("upnp", "open"), ("upnp=refuse", "closed"), ("upnp=lie", "closed")] {
        let lab = Lab::up(&format!("home a kind=port-restricted {keys} hosts=ada")).unwrap();
        let (_master, url) = master(&lab, &dir);
        let value = found(doctor(&lab, &dir, "ada", &["--rendezvous", &url]));
        assert_eq!(value["port"]["state"], state, "{keys}: {value}");
        if state == "closed" {
            assert!(value["port"]["refused"]["UPnP"].is_string(), "{keys}: {value}");
        }
        assert_eq!(mappings(&lab), 0, "{keys}");
    }
    let lab = Lab::up("home a kind=port-restricted upnp hosts=ada").unwrap();
    let value = found(doctor(&lab, &dir, "ada", &[]));
    assert_eq!(value["port"]["state"], "unproved", "nobody is there to look: {value}");
    let value = found(doctor(&lab, &dir, "ada", &["--portmap", "off"]));
    assert_eq!(value["port"]["state"], "off");
}
