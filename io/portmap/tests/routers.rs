//! Real questions to the routers of the lab.

#![cfg(target_os = "linux")]
// Helpers of tests: what fails here fails the test that called them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use natlab::{Lab, Program, ready};

/// A busy machine answers late.
const SOON: Duration = Duration::from_secs(15);

struct Home {
    lab: Lab,
    state: PathBuf,
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.state.parent().unwrap());
    }
}

impl Home {
    fn new(test: &str, keys: &str) -> Self {
        let lab = Lab::up(&format!("home a {keys} hosts=alice,alan\n")).unwrap();
        let folder = std::env::temp_dir().join(format!("anywire-routers-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self { lab, state: folder.join("ports") }
    }

    fn probe(&self, arguments: &str) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portmap-probe"));
        command.args(arguments.split_whitespace()).arg(format!("state={}", self.state.display()));
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        self.lab.spawn("alice", command).unwrap()
    }

    /// Lines of the router's table that are mappings.
    fn mappings(&self) -> Vec<String> {
        let table = self.lab.control("nat a").unwrap();
        table.lines().filter(|line| line.contains("forward '")).map(str::to_owned).collect()
    }

    /// Waits until a router whose NAT is the kernel's maps these ports and no others.
    fn kernel_has(&self, ports: &[&str], probe: &Program) {
        let end = Instant::now() + SOON;
        loop {
            let mut command = Command::new("nft");
            command.args(["list", "ruleset"]);
            let output = self.lab.exec("a.router", command, SOON).unwrap();
            let rules = String::from_utf8_lossy(&output.stdout).into_owned();
            let rules: Vec<&str> = rules.lines().filter(|line| line.contains("dnat ip to")).collect();
            if rules.len() == ports.len() && ports.iter().all(|port| rules.iter().any(|rule| rule.contains(port))) {
                return;
            }
            assert!(Instant::now() < end, "{ports:?} in {rules:?}\n{}", probe.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Waits for a line with this in it, wherever it stands: the order of answers is the routers'.
fn says(probe: &Program, wanted: &str) -> String {
    let end = Instant::now() + SOON;
    loop {
        let said = probe.output();
        if let Some(line) = said.lines().find(|line| line.contains(wanted)) {
            return line.to_owned();
        }
        assert!(Instant::now() < end, "it did not say '{wanted}' but {said}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ends(mut program: Program) {
    program.end_input();
    let said = program.wait_for("stopped in", SOON).unwrap();
    let time: u64 = said.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(time <= 2_200, "{said}");
    assert!(program.wait(SOON).unwrap().success());
}

#[test]
fn behind_upnp_both_ports_are_mapped_reached_renewed_and_taken_back() {
    if !ready("behind_upnp_both_ports_are_mapped_reached_renewed_and_taken_back") {
        return;
    }
    for version in ["v1", "v2"] {
        let home = Home::new(version, &format!("kind=port-restricted upnp={version}"));
        let wan = home.lab.public_ip("alice").unwrap();
        let inside = home.lab.inside("alice", || UdpSocket::bind("0.0.0.0:7777")).unwrap().unwrap();
        inside.set_read_timeout(Some(SOON)).unwrap();
        let outside = home.lab.inside("relay", || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        let start = Instant::now();
        let probe = home.probe("udp=7777 tcp=7778 lease=2");
        says(&probe, &format!("Mapped {{ protocol: Udp, by: Upnp, external: {wan}:7777"));
        let mapped = start.elapsed();
        says(&probe, "Mapped { protocol: Tcp, by: Upnp");
        assert!(mapped < Duration::from_secs(4), "{mapped:?}");
        // Twice its lease.
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(home.mappings().len(), 2);
        outside.send_to(b"knock", (wan, 7777)).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(inside.recv(&mut buffer).unwrap(), 5, "a stranger's datagram comes through");
        assert!(!probe.output().contains("Lost"), "{}", probe.output());
        ends(probe);
        assert_eq!(home.mappings(), Vec::<String>::new());
        assert!(!home.state.exists());
    }
}

#[test]
fn behind_natpmp_and_pcp_without_upnp() {
    if !ready("behind_natpmp_and_pcp_without_upnp") {
        return;
    }
    let home = Home::new("pmp", "kind=port-restricted natpmp");
    let wan = home.lab.public_ip("alice").unwrap();
    let probe = home.probe("udp=7777 tcp=7778 lease=2");
    let said = says(&probe, "Mapped { protocol: Udp");
    assert!(said.contains("by: Pcp") || said.contains("by: NatPmp"), "{said}");
    assert!(said.contains(&format!("{wan}:7777")), "{said}");
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(home.mappings().len(), 2, "{:?}", home.mappings());
    ends(probe);
    assert_eq!(home.mappings(), Vec::<String>::new());
}

#[test]
fn behind_a_real_daemon_one_table_serves_all_ways_and_is_empty_after() {
    let test = "behind_a_real_daemon_one_table_serves_all_ways_and_is_empty_after";
    if !ready(test) {
        return;
    }
    if Command::new("miniupnpd").arg("--help").output().is_err() {
        return println!("skipped: {test}: no miniupnpd");
    }
    let home = Home::new("daemon", "kind=linux upnp");
    let mut probe = home.probe("udp=7777 tcp=7778 lease=120");
    says(&probe, "Mapped { protocol: Udp");
    says(&probe, "Mapped { protocol: Tcp");
    says(&probe, "Done");
    // What answered second is settled by then.
    std::thread::sleep(Duration::from_secs(1));
    home.kernel_has(&["7777", "7778"], &probe);
    probe.say("renew").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    home.kernel_has(&["7777", "7778"], &probe);
    assert!(!probe.output().contains("Lost"), "{}", probe.output());
    ends(probe);
    // A daemon that took more than 2 s, on a busy machine, leaves it to the next start.
    let next = home.probe("");
    home.kernel_has(&[], &next);
    ends(next);
}

#[test]
fn behind_a_router_that_knows_none_each_way_says_so_and_the_end_is_quick() {
    if !ready("behind_a_router_that_knows_none_each_way_says_so_and_the_end_is_quick") {
        return;
    }
    let home = Home::new("none", "kind=port-restricted");
    let probe = home.probe("udp=7777");
    says(&probe, "Done");
    let said = probe.output();
    assert!(said.contains("Refused { protocol: Udp, by: Upnp, why: NoAnswer }"), "{said}");
    for by in ["NatPmp", "Pcp"] {
        let line = said.lines().find(|line| line.contains(&format!("Refused {{ protocol: Udp, by: {by}"))).unwrap();
        assert!(line.contains("NoAnswer") || line.contains("Unspoken"), "{line}");
    }
    assert!(!said.contains("Mapped"), "{said}");
    ends(probe);
}

#[test]
fn what_a_killed_process_left_is_taken_back_by_the_next_even_for_good() {
    if !ready("what_a_killed_process_left_is_taken_back_by_the_next_even_for_good") {
        return;
    }
    for keys in ["upnp", "upnp=permanent", "natpmp"] {
        let home = Home::new("killed", &format!("kind=port-restricted {keys}"));
        let mut first = home.probe("udp=7777");
        says(&first, "Mapped");
        first.kill();
        assert_eq!(home.mappings().len(), 1, "{keys}");
        let second = home.probe("udp=8888");
        says(&second, "Mapped { protocol: Udp");
        let end = Instant::now() + SOON;
        while home.mappings().iter().any(|line| line.contains(":7777 ")) {
            assert!(Instant::now() < end, "{keys}: {:?}\n{}", home.mappings(), second.output());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(home.mappings().iter().any(|line| line.contains(":8888 ")), "{:?}", home.mappings());
        ends(second);
        assert_eq!(home.mappings(), Vec::<String>::new(), "{keys}");
    }
}

#[test]
fn what_another_living_process_holds_is_left_alone() {
    if !ready("what_another_living_process_holds_is_left_alone") {
        return;
    }
    let home = Home::new("living", "kind=port-restricted upnp");
    let first = home.probe("udp=7777");
    says(&first, "Mapped");
    let second = home.probe("udp=8888");
    says(&second, "Mapped");
    ends(second);
    assert_eq!(home.mappings().len(), 1, "{:?}", home.mappings());
    ends(first);
    assert_eq!(home.mappings(), Vec::<String>::new());
}

#[test]
fn udp_is_mapped_where_tcp_is_refused() {
    if !ready("udp_is_mapped_where_tcp_is_refused") {
        return;
    }
    let home = Home::new("half", "kind=port-restricted upnp=udp-only");
    let probe = home.probe("udp=7777 tcp=7778");
    says(&probe, "Done");
    let said = probe.output();
    assert!(said.contains("Mapped { protocol: Udp, by: Upnp"), "{said}");
    assert!(said.contains("Refused { protocol: Tcp, by: Upnp, why: Refused { code: 606"), "{said}");
    ends(probe);
}

#[test]
fn a_port_that_another_machine_holds_is_mapped_to_another_one_outside() {
    if !ready("a_port_that_another_machine_holds_is_mapped_to_another_one_outside") {
        return;
    }
    let home = Home::new("taken", "kind=port-restricted upnp forward=udp:7777:alan:7777");
    let probe = home.probe("udp=7777");
    let said = says(&probe, "Mapped { protocol: Udp, by: Upnp");
    assert!(!said.contains(":7777,"), "{said}");
    ends(probe);
    assert_eq!(home.mappings().len(), 1, "only its owner's own forward is left: {:?}", home.mappings());
}

#[test]
fn behind_a_carrier_nothing_is_mapped_and_the_outside_address_shows_why() {
    if !ready("behind_a_carrier_nothing_is_mapped_and_the_outside_address_shows_why") {
        return;
    }
    let home = Home::new("carrier", "kind=cgnat upnp natpmp");
    let probe = home.probe("udp=7777");
    says(&probe, "Done");
    let said = probe.output();
    assert!(said.contains("Wan { by: Upnp, address: 100."), "{said}");
    assert!(said.contains("by: Upnp, why: PrivateWan(100."), "{said}");
    assert!(said.contains("by: NatPmp, why: PrivateWan(100."), "{said}");
    assert!(said.contains("by: Pcp, why: PrivateWan(100."), "{said}");
    assert!(!said.contains("Mapped"), "{said}");
    ends(probe);
    assert_eq!(home.mappings(), Vec::<String>::new());
}

#[test]
fn a_router_that_restarts_or_is_renumbered_is_noticed_at_the_renewal() {
    if !ready("a_router_that_restarts_or_is_renumbered_is_noticed_at_the_renewal") {
        return;
    }
    let home = Home::new("restart", "kind=port-restricted upnp");
    let probe = home.probe("udp=7777 lease=4");
    says(&probe, "Mapped");
    home.lab.restart("a").unwrap();
    assert_eq!(home.mappings(), Vec::<String>::new());
    let end = Instant::now() + SOON;
    while home.mappings().is_empty() {
        assert!(Instant::now() < end, "{}", probe.output());
        std::thread::sleep(Duration::from_millis(50));
    }
    let wan = home.lab.renumber("a").unwrap();
    says(&probe, &format!("external: {wan}:7777"));
    ends(probe);
    assert_eq!(home.mappings(), Vec::<String>::new());
}

#[test]
fn a_way_that_leads_nowhere_is_left_for_another_when_it_is_distrusted() {
    if !ready("a_way_that_leads_nowhere_is_left_for_another_when_it_is_distrusted") {
        return;
    }
    let home = Home::new("lie", "kind=port-restricted upnp=lie");
    let mut probe = home.probe("udp=7777");
    says(&probe, "Mapped { protocol: Udp, by: Upnp");
    assert_eq!(home.mappings(), Vec::<String>::new(), "it lied");
    probe.say("distrust udp upnp").unwrap();
    says(&probe, "Lost { protocol: Udp, by: Upnp");
    says(&probe, "by: Upnp, why: Disproved");
    ends(probe);
}
