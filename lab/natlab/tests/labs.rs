//! Labs from start to end, by the command line and from a test.

#![cfg(target_os = "linux")]
// Helpers of tests: what fails here fails the test that called them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use natlab::{Handle, Lab, probe, ready};

const SOON: Duration = Duration::from_secs(5);

/// What a lab of this name has left on the machine.
fn namespaces_of(lab: &str) -> Vec<String> {
    let prefix = format!("nl.{lab}.");
    let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with(&prefix)).collect()
}

/// Several runs of these tests may share a machine.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn natlab(lab: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_natlab")).args(["--lab", lab]).args(args).output().expect("natlab runs")
}

fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

fn good(lab: &str, args: &[&str]) -> String {
    let o = natlab(lab, args);
    assert!(o.status.success(), "{args:?}: {}", text(&o));
    text(&o)
}

#[test]
fn up_twice_changed_crashed_and_down() {
    if !ready("up_twice_changed_crashed_and_down") {
        return;
    }
    let lab = &own("life");
    let parts = ["home a kind=symmetric hosts=alice", "bob=open"];
    let up = |extra: &[&str]| good(lab, &[&["up"], &parts[..], extra].concat());
    assert!(up(&[]).contains("is up\n"));
    assert!(up(&[]).contains("up already"), "the same topology stays");
    let first = Handle::attach(lab).unwrap();
    assert!(up(&["carol=full-cone"]).contains("is up\n"), "another replaces it");
    assert!(first.inside("alice", || ()).is_ok());
    assert!(good(lab, &["exec", "carol", "--", "ip", "-br", "addr"]).contains("192.168."));
    // A command left in the background, and a lab process that dies.
    let mut sleeper = Handle::attach(lab).unwrap().command("bob", "sleep").unwrap();
    let mut sleeper = sleeper.arg("600").spawn().unwrap();
    let list = good(lab, &["list"]);
    let line = list.lines().find(|l| l.starts_with(&format!("{lab} "))).unwrap();
    let pid: i32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    let end = Instant::now() + SOON;
    while !good(lab, &["list"]).contains(&format!("{lab} left behind")) {
        assert!(Instant::now() < end, "the lab's process is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!natlab(lab, &["exec", "alice", "--", "true"]).status.success());
    assert!(up(&[]).contains("is up\n"), "starts again over what is left");
    assert!(sleeper.wait().unwrap().code().is_none(), "ended with the lab");
    good(lab, &["down"]);
    good(lab, &["down"]);
    assert!(namespaces_of(lab).is_empty());
    assert!(natlab(lab, &["status"]).status.code() == Some(2));
}

#[test]
fn a_command_beside_a_lab() {
    if !ready("a_command_beside_a_lab") {
        return;
    }
    let lab = &own("with");
    let script = r#"test "${NATLAB%-*}" = with && "$0" exec alice -- sh -c 'grep -q stun2.lab /etc/hosts && echo $NATLAB_NODE $NATLAB_STUN' && exit 7"#;
    let exe = env!("CARGO_BIN_EXE_natlab");
    let o = natlab(lab, &["with", "alice=symmetric", "--", "sh", "-c", script, exe]);
    assert_eq!(o.status.code(), Some(7), "{}", text(&o));
    assert!(text(&o).contains("alice 44.128.0.2:3478"));
    assert!(namespaces_of(lab).is_empty());
}

#[test]
fn mistakes_end_with_a_message() {
    if !ready("mistakes_end_with_a_message") {
        return;
    }
    for (args, part) in [
        (&["up", "alice=symetric"][..], "did you mean 'symmetric'"),
        (&["exec", "alice", "--", "true"], "is not up"),
        (&["frobnicate"], "unknown command"),
        (&["up", "-f", "nowhere.lab"], "cannot read nowhere.lab"),
    ] {
        let o = natlab("test-wrong", args);
        assert_eq!(o.status.code(), Some(2));
        assert!(text(&o).contains(part), "{}", text(&o));
    }
}

#[test]
fn sockets_of_two_machines_in_one_process() {
    if !ready("sockets_of_two_machines_in_one_process") {
        return;
    }
    let names = [own("lib"), own("lib-2")];
    let lab = Lab::start(
        &names[0],
        "home a kind=port-restricted hosts=alice delay=15ms\nhome b kind=restricted-cone hosts=bob",
    )
    .unwrap();
    assert!(Lab::start(&names[0], "home a").is_err(), "one lab of a name at a time");
    let other = Lab::start(&names[1], "home a kind=open").unwrap();
    assert!(probe::punch(&lab, "alice", "bob", Duration::from_secs(2)).unwrap());
    let server = lab.inside("master", || UdpSocket::bind("0.0.0.0:4000")).unwrap().unwrap();
    let alice = lab.inside("alice", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    alice.send_to(b"hello", SocketAddr::from((lab.ip("master").unwrap(), 4000))).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
    assert_eq!(Ok(from.ip()), lab.public_ip("alice"));
    let mut command = Command::new("ip");
    command.args(["-br", "link"]);
    let output = lab.exec("bob", command, SOON).unwrap();
    let out = text(&output);
    assert!(output.status.success() && out.contains("eth0") && !out.contains("wan0"), "{out}");
    drop((lab, other));
    assert!(namespaces_of(&names[0]).is_empty());
    assert!(namespaces_of(&names[1]).is_empty());
}

#[test]
fn the_same_seed_gives_the_same_ports() {
    if !ready("the_same_seed_gives_the_same_ports") {
        return;
    }
    let ports = |seed: u32| {
        let lab = Lab::up(&format!("seed {seed}\nhome a kind=symmetric")).unwrap();
        let s = probe::udp_socket(&lab, "a", 5000).unwrap();
        let ask = |to| probe::mapped(&s, to, Duration::from_secs(5)).unwrap().port();
        lab.stun_servers().iter().flatten().map(|to| ask(*to)).collect::<Vec<_>>()
    };
    let first = ports(3);
    assert_eq!(first, ports(3));
    assert_ne!(first, ports(4));
}
