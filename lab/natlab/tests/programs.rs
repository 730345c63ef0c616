//! What an end-to-end test does with a lab: programs on its machines, and a network that changes under them.

#![cfg(target_os = "linux")]
// Helpers of tests: what fails here fails the test that called them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use natlab::{Lab, probe, ready};

const SOON: Duration = Duration::from_secs(5);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn two_homes() -> Lab {
    Lab::up(
        "home a kind=port-restricted hosts=alice,alan\nhome b kind=symmetric hosts=bob\nhome o kind=open hosts=olga",
    )
    .unwrap()
}

fn seen(lab: &Lab, socket: &UdpSocket) -> SocketAddr {
    probe::mapped(socket, lab.stun_servers()[0][0], SOON).unwrap()
}

#[test]
fn a_program_is_spoken_to_and_waited_for() {
    if !ready("a_program_is_spoken_to_and_waited_for") {
        return;
    }
    let lab = two_homes();
    let mut cat = lab.spawn("alice", shell("echo up >&2; exec cat")).unwrap();
    assert_eq!(cat.wait_for("up", SOON).unwrap(), "up");
    cat.say("one 1").unwrap();
    cat.say("one 2").unwrap();
    assert_eq!(cat.wait_for("one", SOON).unwrap(), "one 1");
    assert_eq!(cat.wait_for("one", SOON).unwrap(), "one 2", "a line is found once");
    let late = cat.wait_for("one", Duration::from_millis(50)).unwrap_err();
    assert!(late.contains("did not say 'one'") && late.contains("one 2"), "{late}");
    cat.end_input();
    assert!(cat.wait(SOON).unwrap().success());
    let ended = cat.wait_for("more", SOON).unwrap_err();
    assert!(ended.contains("ended (exit status: 0) without 'more'"), "{ended}");
    assert_eq!((cat.output().as_str(), cat.errors().as_str()), ("one 1\none 2\n", "up\n"));
}

#[test]
fn programs_end_as_asked_and_with_their_value() {
    if !ready("programs_end_as_asked_and_with_their_value") {
        return;
    }
    let lab = two_homes();
    let script = "trap 'echo caught; exit 3' INT TERM; echo up; while true; do sleep 0.02; done";
    let mut polite = lab.spawn("bob", shell(script)).unwrap();
    polite.wait_for("up", SOON).unwrap();
    polite.interrupt();
    assert_eq!(polite.wait(SOON).unwrap().code(), Some(3));
    let mut polite = lab.spawn("bob", shell(script)).unwrap();
    polite.wait_for("up", SOON).unwrap();
    assert_eq!(polite.terminate(SOON).unwrap().code(), Some(3));
    let dropped = lab.spawn("bob", shell("exec sleep 600")).unwrap();
    let process = format!("/proc/{}", dropped.id());
    drop(dropped);
    assert!(!std::path::Path::new(&process).exists(), "it ends with its value");
}

#[test]
fn a_command_runs_to_its_end_or_to_its_limit() {
    if !ready("a_command_runs_to_its_end_or_to_its_limit") {
        return;
    }
    let lab = two_homes();
    let output = lab.exec("master", shell("echo $NATLAB_NODE; echo no >&2; exit 4"), SOON).unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"master\n"[..], &b"no\n"[..]));
    let begun = Instant::now();
    let late = lab.exec("master", shell("exec sleep 600"), Duration::from_millis(100)).unwrap_err();
    assert!(late.contains("did not end") && begun.elapsed() < SOON, "{late}");
    let nowhere = lab.exec("alicia", shell("true"), SOON).unwrap_err();
    assert!(nowhere.contains("did you mean 'alice'"), "{nowhere}");
    assert!(lab.exec("alice", Command::new("no-such-program"), SOON).unwrap_err().contains("cannot run"));
}

#[test]
fn rebinding_changes_the_port_and_keeps_the_address() {
    if !ready("rebinding_changes_the_port_and_keeps_the_address") {
        return;
    }
    let lab = two_homes();
    let socket = probe::udp_socket(&lab, "alice", 4242).unwrap();
    let first = seen(&lab, &socket);
    assert_eq!(first.port(), 4242);
    lab.restart("a").unwrap();
    assert_eq!(seen(&lab, &socket), first, "a router that keeps ports keeps them after a restart");
    lab.rebind("a").unwrap();
    let second = seen(&lab, &socket);
    assert_eq!(second.ip(), first.ip());
    assert_ne!(second.port(), first.port());
}

#[test]
fn a_new_public_address_is_the_one_that_is_seen() {
    if !ready("a_new_public_address_is_the_one_that_is_seen") {
        return;
    }
    let lab = two_homes();
    let socket = probe::udp_socket(&lab, "bob", 0).unwrap();
    let first = seen(&lab, &socket);
    assert_eq!(Ok(first.ip()), lab.public_ip("bob"));
    let address = IpAddr::V4(lab.renumber("b").unwrap());
    assert_ne!(address, first.ip());
    assert_eq!(seen(&lab, &socket).ip(), address);
    assert_eq!(Ok(address), lab.public_ip("bob"));
}

#[test]
fn a_host_roams_with_its_open_socket() {
    if !ready("a_host_roams_with_its_open_socket") {
        return;
    }
    let lab = two_homes();
    let socket = probe::udp_socket(&lab, "alice", 5151).unwrap();
    let home = seen(&lab, &socket);
    let inside = lab.roam("alice", "b").unwrap();
    assert_eq!(inside, Ipv4Addr::new(192, 168, 2, 254));
    assert_eq!(lab.ip("alice"), Ok(inside));
    let away = seen(&lab, &socket);
    assert_eq!(Ok(away.ip()), lab.public_ip("alice"));
    assert_eq!(Ok(away.ip()), lab.public_ip("bob"), "behind bob's router now");
    // Its new neighbour reaches it, and a program started now is there too.
    let bob = probe::udp_socket(&lab, "bob", 0).unwrap();
    bob.send_to(b"hi", (inside, 5151)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 8]).unwrap().1.ip(), lab.ip("bob").unwrap());
    let output = lab.exec("alice", shell("ip -br addr show dev eth0"), SOON).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("192.168.2.254/24"));
    // To public addresses, to another address of the same home, and back.
    let public = lab.roam("alice", "o").unwrap();
    assert_eq!(seen(&lab, &socket), SocketAddr::from((public, 5151)));
    assert_ne!(lab.roam("alice", "o").unwrap(), public);
    lab.roam("alice", "a").unwrap();
    assert_eq!(seen(&lab, &socket).ip(), home.ip());
    assert_eq!(lab.public_ip("alice"), lab.public_ip("alan"));
    assert!(lab.roam("alice", "x").unwrap_err().contains("unknown home"));
    assert!(lab.roam("master", "a").is_err(), "a server stays where it is");
}

#[test]
fn links_change_and_traffic_is_counted() {
    if !ready("links_change_and_traffic_is_counted") {
        return;
    }
    let lab = two_homes();
    let socket = probe::udp_socket(&lab, "alice", 0).unwrap();
    let master = SocketAddr::from((lab.ip("master").unwrap(), 9000));
    let server = lab.inside("master", || UdpSocket::bind("0.0.0.0:9000")).unwrap().unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    let round = |n: usize| {
        for _ in 0..n {
            socket.send_to(&[0; 100], master).unwrap();
        }
    };
    let before = lab.traffic("a").unwrap();
    round(10);
    for _ in 0..10 {
        server.recv_from(&mut [0; 128]).unwrap();
    }
    let after = lab.traffic("a").unwrap();
    assert_eq!(after.up_packets - before.up_packets, 10);
    assert_eq!(after.up_bytes - before.up_bytes, 1280, "IP and UDP headers count");
    lab.set("a", "link=down").unwrap();
    round(5);
    let end = Instant::now() + SOON;
    while lab.traffic("a").unwrap().up_lost < 5 {
        assert!(Instant::now() < end, "{:?}", lab.traffic("a"));
    }
    lab.set("a", "link=up delay=30ms").unwrap();
    let sent = Instant::now();
    round(1);
    server.recv_from(&mut [0; 128]).unwrap();
    assert!(sent.elapsed() >= Duration::from_millis(30));
    assert!(lab.set("a", "dealy=3ms").is_err());
    assert!(lab.traffic("nobody").is_err());
}
