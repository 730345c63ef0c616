//! A master, a host and a joiner as processes behind routers: which way they find, and what the list shows.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use natlab::{Lab, Program, ready};

const SOON: Duration = Duration::from_secs(30);

/// A folder for one test's processes, removed with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("anywire-reach-{}-{name}", std::process::id()));
        let _none = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

fn anywire(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anywire"));
    command.args(words).env_remove("ANYWIRE_MASTER");
    command
}

/// A master at work, and its address.
fn master(lab: &Lab) -> (Program, String) {
    let ip = lab.ip("master").unwrap().to_string();
    let mut master = lab.spawn("master", anywire(&["master", "--bind", "0.0.0.0", "--relay-ip", &ip])).unwrap();
    master.wait_for("the master listens", SOON).unwrap();
    (master, format!("http://{ip}:8471"))
}

/// `host` or `join` on a machine of the lab, with the lab's STUN servers.
fn player(lab: &Lab, dir: &Dir, node: &str, words: &[&str]) -> Program {
    let stun: Vec<String> = lab.stun_servers().into_iter().map(|[at, _]| at.to_string()).collect();
    let mut command = anywire(words);
    command.args(["--ui", "plain", "--game-relay-port", "0", "--name", node, "--io-dir"]).arg(dir.0.join(node));
    command.env("TPF2MP_STUN", stun.join(","));
    lab.spawn(node, command).unwrap()
}

fn host(lab: &Lab, dir: &Dir, words: &[&str]) -> (Program, String) {
    let mut host = player(lab, dir, "ada", &[&["host"], words].concat());
    let code = host.wait_for("CODE=", SOON).unwrap().trim_start_matches("CODE=").to_owned();
    (host, code)
}

/// Joins, and waits until the joiner says that the way it found is one of these. A relay may well be first where a
/// direct path is found.
fn join_by(lab: &Lab, dir: &Dir, code: &str, master: &str, ways: &[&str]) {
    let mut join = player(lab, dir, "lin", &["join", code, "--rendezvous", master]);
    loop {
        let won = join.wait_for("[race] WON", SOON).unwrap();
        if ways.iter().any(|way| won.contains(&format!(" via {way} after "))) {
            break;
        }
    }
    let until = Instant::now() + SOON;
    let state = dir.0.join("lin/lobby_state.json");
    while !std::fs::read_to_string(&state).is_ok_and(|text| text.contains(r#""players": ["ada", "lin"]"#)) {
        assert!(Instant::now() < until, "not in the lobby: {}", join.errors());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(join.terminate(SOON).unwrap().success());
}

#[test]
fn two_port_restricted_homes_meet_directly_because_the_joiner_knocked() {
    let test = "two_port_restricted_homes_meet_directly_because_the_joiner_knocked";
    if !ready(test) {
        return;
    }
    let dir = Dir::new("direct");
    let lab =
        Lab::up("home a kind=port-restricted hosts=ada delay=5ms\nhome b kind=port-restricted hosts=lin delay=5ms")
            .unwrap();
    let (_master, url) = master(&lab);
    let (mut host, code) = host(&lab, &dir, &["--rendezvous", &url]);
    join_by(&lab, &dir, &code, &url, &["public address", "address the host was seen at"]);
    host.wait_for("[rendezvous] a joiner knocked", SOON).unwrap();
    // Without a master nobody opens the host's router, so the knock is what made it so.
    let mut alone = player(&lab, &dir, "lin", &["join", &code, "--rendezvous", "off", "--timeout", "3"]);
    assert_eq!(alone.wait(SOON).unwrap().code(), Some(1), "{}", alone.errors());
    assert!(host.terminate(SOON).unwrap().success());
}

#[test]
fn a_symmetric_home_and_a_carriers_customer_meet_at_the_masters_relay() {
    if !ready("a_symmetric_home_and_a_carriers_customer_meet_at_the_masters_relay") {
        return;
    }
    let dir = Dir::new("relay");
    let lab = Lab::up("home a kind=symmetric hosts=ada delay=5ms\nhome b kind=cgnat hosts=lin delay=5ms").unwrap();
    let (_master, url) = master(&lab);
    let (_host, code) = host(&lab, &dir, &["--publish", &url]);
    join_by(&lab, &dir, &code, &url, &["relay"]);
}

/// A certificate for the master's name and its key; `None` where they cannot be made.
fn certificate(dir: &Dir) -> Option<[PathBuf; 2]> {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| dir.0.join(name));
    let mut openssl = Command::new("openssl");
    openssl
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=master.lab", "-addext", "subjectAltName=DNS:master.lab"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert);
    openssl.output().is_ok_and(|output| output.status.success()).then_some([cert, key])
}

#[test]
fn two_homes_that_let_out_nothing_but_web_pages_meet_through_the_masters_https_port() {
    let test = "two_homes_that_let_out_nothing_but_web_pages_meet_through_the_masters_https_port";
    if !ready(test) {
        return;
    }
    let dir = Dir::new("https");
    let Some([cert, key]) = certificate(&dir) else {
        println!("SKIPPED {test}: openssl is not installed, so there is no certificate to serve");
        return;
    };
    let lab = Lab::up("home a kind=web-only hosts=ada delay=5ms\nhome b kind=web-only hosts=lin delay=5ms").unwrap();
    let ip = lab.ip("master").unwrap().to_string();
    let mut command = anywire(&["master", "--bind", "0.0.0.0", "--port", "443", "--relay-ip", &ip]);
    command.arg("--tls-cert").arg(&cert).arg("--tls-key").arg(&key);
    let mut master = lab.spawn("master", command).unwrap();
    master.wait_for("the master listens", SOON).unwrap();
    let secure = |node: &str, words: &[&str]| {
        let mut command = anywire(words);
        command.args(["--ui", "plain", "--game-relay-port", "0", "--name", node, "--io-dir"]).arg(dir.0.join(node));
        command.args(["--rendezvous", "https://master.lab"]).env("SSL_CERT_FILE", &cert);
        command.env("TPF2MP_STUN", lab.stun_servers().map(|[at, _]| at.to_string()).join(","));
        for proxy in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        lab.spawn(node, command).unwrap()
    };
    let mut host = secure("ada", &["host"]);
    let code = host.wait_for("CODE=", SOON).unwrap().trim_start_matches("CODE=").to_owned();
    let mut join = secure("lin", &["join", &code]);
    join.wait_for("via TCP through the master", SOON).unwrap();
    host.wait_for("lin", SOON).unwrap();
    assert!(join.terminate(SOON).unwrap().success());
    assert!(host.terminate(SOON).unwrap().success());
}

#[test]
fn a_public_lobby_is_in_the_list_until_its_host_is_told_to_stop() {
    if !ready("a_public_lobby_is_in_the_list_until_its_host_is_told_to_stop") {
        return;
    }
    let dir = Dir::new("list");
    let lab = Lab::up("home a kind=port-restricted hosts=ada\nhome b kind=symmetric hosts=lin").unwrap();
    let (mut master, url) = master(&lab);
    let list = |words: &[&str]| {
        let output = lab.exec("lin", anywire(words), SOON).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(list(&["list", &url]), "no games are listed\n");
    let (mut host, code) = host(&lab, &dir, &["--publish", &url, "--public", "--lobby-name", "Tuesday"]);
    host.wait_for("is in the public list", SOON).unwrap();
    let shown = list(&["list", &url]);
    assert!(shown.contains("Tuesday") && shown.contains(&format!("anywire join {code}\n")), "{shown}");
    let json = list(&["list", &url, "--json"]);
    assert!(json.contains(&format!(r#""code":"{code}""#)) && json.lines().count() == 1, "{json}");
    assert!(list(&["public-list", &url]).starts_with(r#"{"servers":[{"name":"Tuesday""#));

    // The game takes the row out and puts it back.
    let ask = |line: &str| {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).open(dir.0.join("ada/lobby_in.jsonl")).unwrap();
        writeln!(file, "{line}").unwrap();
    };
    ask(r#"{"cmd": "publish", "on": false}"#);
    host.wait_for("taken out of the public list", SOON).unwrap();
    let until = Instant::now() + SOON;
    while list(&["list", &url]) != "no games are listed\n" {
        assert!(Instant::now() < until);
    }
    ask(r#"{"cmd": "publish", "on": true}"#);
    host.wait_for("is in the public list", SOON).unwrap();
    assert!(list(&["list", &url]).contains("Tuesday"));
    assert!(host.terminate(SOON).unwrap().success());
    assert_eq!(list(&["list", &url]), "no games are listed\n", "it left before it ended");
    assert!(master.terminate(SOON).unwrap().success());
    let gone = lab.exec("lin", anywire(&["list", &url]), SOON).unwrap();
    assert_eq!(gone.status.code(), Some(1));
}
