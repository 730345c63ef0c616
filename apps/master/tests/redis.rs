//! Two masters that share one database, with a real server that this test starts on a private port.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anywire_master::Range;
use common::{Master, TAG, post, read, row, settings};

struct Database {
    child: Child,
    dir: PathBuf,
    url: String,
}

impl Database {
    /// A server of its own for `name`, or a line that says why there is none.
    fn start(name: &str) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("anywire-master-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for program in ["valkey-server", "redis-server"] {
            let child = Command::new(program)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .current_dir(&dir)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = child else { continue };
            let database = Self { child, dir, url: format!("redis://127.0.0.1:{port}/") };
            let start = Instant::now();
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(start.elapsed() < Duration::from_secs(20), "{program} does not start");
                std::thread::sleep(Duration::from_millis(20));
            }
            return Some(database);
        }
        eprintln!("skipped: neither valkey-server nor redis-server is installed");
        None
    }

    fn master(&self, change: impl FnOnce(&mut anywire_master::Settings)) -> Master {
        let mut settings = settings();
        settings.redis = Some(self.url.clone());
        settings.trusted_proxy = vec!["127.0.0.0/8".parse::<Range>().unwrap()];
        change(&mut settings);
        Master::new(settings)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn names(master: &Master) -> Vec<String> {
    let list = master.get("/list").json();
    list["servers"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

/// A list is a second old at most when another master took the announce.
fn eventually(want: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if want() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn what_one_master_is_told_the_other_tells() {
    let Some(database) = Database::start("share") else { return };
    let (a, b) = (database.master(|_| {}), database.master(|_| {}));
    a.post("/announce", &row("1", "one"));
    b.post("/announce", &row("2", "two"));
    assert!(eventually(|| names(&a) == ["two", "one"] && names(&b) == ["two", "one"]));
    a.post("/announce", &row("1", "one again"));
    assert!(eventually(|| names(&b) == ["one again", "two"]));
    let listed = b.get("/list").json();
    assert_eq!((&listed["servers"][0]["game"], listed["servers"][0].get("id")), (&"player hosted".into(), None));
    b.post("/leave", r#"{"id": "1"}"#);
    assert!(eventually(|| names(&a) == ["two"] && names(&b) == ["two"]));
}

#[test]
fn a_poll_held_at_one_master_hears_of_a_knock_at_the_other() {
    let Some(database) = Database::start("knock") else { return };
    let (a, b) = (database.master(|_| {}), database.master(|_| {}));
    let mut poll = a.connect();
    write!(poll, "GET /knock?s={TAG}&since=0&wait=20 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    poll.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(poll.read(&mut [0]).is_err());
    poll.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let start = Instant::now();
    let knock = format!(r#"{{"s": "{TAG}", "blob": "QQ==", "relay": 1, "j": "01234567"}}"#);
    let granted = b.post("/knock", &knock).json();
    let notes = read(&mut poll).json();
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(notes["knocks"][0]["relay"], granted["relay"]);
    let since = notes["knocks"][0]["t"].as_f64().unwrap();
    b.post("/knock", &format!(r#"{{"s": "{TAG}", "blob": "Qg=="}}"#));
    let later = a.get(&format!("/knock?s={TAG}&since={since}")).json();
    let later = later["knocks"].as_array().unwrap();
    assert_eq!((later.len(), &later[0]["blob"]), (1, &"Qg==".into()));
}

#[test]
fn bounds_hold_across_masters_and_a_full_list_is_shared_between_networks() {
    let Some(database) = Database::start("bounds") else { return };
    let few = |settings: &mut anywire_master::Settings| {
        settings.rows = 3;
        settings.tags = 2;
    };
    let (a, b) = (database.master(few), database.master(few));
    let from =
        |ip: &str, n: usize| post("/announce", &row(&n.to_string(), &n.to_string()), &format!("x-real-ip: {ip}\r\n"));
    for (n, master) in [&a, &b, &a].into_iter().enumerate() {
        assert_eq!(master.send(&from("192.0.2.1", n)).status, 200);
    }
    assert_eq!(b.send(&from("192.0.2.2", 3)).status, 503);
    assert_eq!(b.send(&from("192.0.2.2", 2)).status, 200);
    assert_eq!(b.send(&from("198.51.100.1", 4)).status, 200);
    assert!(eventually(|| names(&a) == ["4", "2", "1"]));
    let knock = |n: u8| format!(r#"{{"s": "{n:024x}", "blob": "QQ=="}}"#);
    let statuses = [(&a, 1), (&b, 2), (&a, 3), (&b, 1)].map(|(master, n)| master.post("/knock", &knock(n)).status);
    assert_eq!(statuses, [200, 200, 503, 200]);
    for n in 0..20u8 {
        a.post("/knock", &format!(r#"{{"s": "{:024x}", "blob": "QUF{}"}}"#, 1, char::from(b'A' + n)));
    }
    let notes = b.get(&format!("/knock?s={:024x}&since=0", 1)).json();
    assert_eq!(notes["knocks"].as_array().unwrap().len(), 16);
}

#[test]
fn without_its_database_a_master_says_so_and_recovers_nothing_wrongly() {
    let Some(database) = Database::start("gone") else { return };
    let master = database.master(|_| {});
    assert_eq!(master.post("/announce", &row("1", "one")).status, 200);
    drop(database);
    assert_eq!(master.post("/announce", &row("1", "one")).status, 503);
    assert_eq!(master.get("/health").status, 200);
}
