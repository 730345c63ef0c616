//! A master under load: announcing hosts, list reads, knocks and relayed datagrams at given rates, all at once.
//!
//! Requests are sent on a plan that does not wait for answers that are late, and times count from the plan: a master
//! that stalls is not spared the requests it kept from being sent. The master is a process of its own.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use master::{Background, Port, PortRange, Settings};
use np1::Role;
use rendezvous::shared::{DATA_HEADER, Word, data_header};
use rendezvous::words::Grants;

use crate::child::{Child, answer, orders};
use crate::{Table, machine, median};

const DATAGRAM: usize = 200;
const PAIRS: usize = 50;
/// Connections that share the requests of one kind.
const CONNECTIONS: u32 = 8;
const TAG: &str = "d02c31189fe2f64c0a20e521";

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Load {
    seconds: u32,
    hosts: u32,
    lists: u32,
    knocks: u32,
    datagrams: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self { seconds: 30, hosts: 5000, lists: 200, knocks: 500, datagrams: 40_000 }
    }
}

impl Load {
    /// Takes an argument such as `hosts=100`; whether it is one.
    pub fn set(&mut self, arg: &str) -> bool {
        let Some((name, Ok(value))) = arg.split_once('=').map(|(name, value)| (name, value.parse())) else {
            return false;
        };
        let field = match name {
            "seconds" => &mut self.seconds,
            "hosts" => &mut self.hosts,
            "lists" => &mut self.lists,
            "knocks" => &mut self.knocks,
            "datagrams" => &mut self.datagrams,
            _ => return false,
        };
        *field = value;
        true
    }
}

/// The child: a master that tells its address, and on order its memory and processor time.
pub(crate) fn master(args: &[String]) {
    let mut settings = Settings::quiet();
    settings.port = 0;
    settings.relay_ip = "127.0.0.1".parse().ok();
    settings.relay_bind = settings.bind;
    settings.relay_ports = PortRange { first: 0, last: 0 };
    settings.shared_port = Port::At(0);
    settings.stun_port = Port::Off;
    if args.first().is_some_and(|word| word == "wide") {
        (settings.rows, settings.tags) = (20_000, 100_000);
        (settings.knocks, settings.network_knocks) = (0, 0);
        settings.network_sessions = 4096;
    }
    let running = Background::start(settings).expect("a master");
    answer(&running.running().http);
    for order in orders() {
        match order.as_str() {
            "memory" => answer(&crate::peak_memory()),
            _ => answer(&crate::cpu_seconds()),
        }
    }
}

/// Everything, as Markdown.
#[must_use]
pub fn report(load: &Load) -> String {
    let mut out = format!("{}; {} s under load.\n\n", machine(), load.seconds);
    let _written = writeln!(out, "{}", under_load(load));
    let _written = writeln!(out, "With the default bounds: {}\n", refusals());
    let _written = writeln!(out, "{}", beside_nginx());
    out
}

fn under_load(load: &Load) -> String {
    let mut child = Child::start("master", &[&"wide"]);
    let at: SocketAddr = child.value();
    let start = Instant::now() + Duration::from_millis(500);
    let time = Duration::from_secs(load.seconds.into());
    let announce = |n: u32| {
        let host = n % load.hosts.max(1);
        let body = format!(
            r#"{{"id": "host-{host}", "name": "Game of host {host}", "code": "{}", "players": {}, "max": 8, "type": "host", "version": "0.7.1.4", "locked": false}}"#,
            "DJVLCO4AYCUAOCIAADFQA4JSUEJACEAAAEBF4TAB",
            host % 8
        );
        post("/announce", &body)
    };
    let knock = |n: u32| {
        // Lobbies that knock come and go: the master holds those of the last minute.
        post("/knock", &format!(r#"{{"s": "{:024x}", "blob": "{}"}}"#, n / 4, "QUJD".repeat(24)))
    };
    let list = |_| "GET /list HTTP/1.1\r\nhost: bench\r\n\r\n".to_owned();
    let cpu: f64 = child.ask("cpu");
    let (announced, listed, knocked, relayed) = thread::scope(|scope| {
        let announced = scope.spawn(move || requests(at, start, time, load.hosts / 10, &announce));
        let listed = scope.spawn(move || requests(at, start, time, load.lists, &list));
        let knocked = scope.spawn(move || requests(at, start, time, load.knocks, &knock));
        let relayed = scope.spawn(move || datagrams(at, start, time, load.datagrams));
        (joined(announced), joined(listed), joined(knocked), joined(relayed))
    });
    let cpu = child.ask::<f64>("cpu") - cpu;
    let memory: u64 = child.ask("memory");
    let mut table = Table::new(&["what", ">a second", ">sent", ">answered 200", ">other", ">p50 ms", ">p99 ms"]);
    for (what, rate, mut tally) in [
        ("announces", load.hosts / 10, announced),
        ("list reads", load.lists, listed),
        ("knocks", load.knocks, knocked),
        ("relayed datagrams", load.datagrams, relayed),
    ] {
        let (p50, p99) = (tally.percentile(50), tally.percentile(99));
        table.row(&[&what, &rate, &tally.sent, &tally.taken, &tally.other, &format!("{p50:.2}"), &format!("{p99:.2}")]);
    }
    let share = cpu / f64::from(load.seconds.max(1));
    format!("{table}\nThe master held {} MiB at most and used {share:.2} processors.\n", memory >> 20)
}

#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    taken: u64,
    other: u64,
    /// Milliseconds.
    times: Vec<f64>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.taken += other.taken;
        self.other += other.other;
        self.times.extend(other.times);
    }

    fn percentile(&mut self, percent: usize) -> f64 {
        self.times.sort_by(f64::total_cmp);
        let at = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).copied().unwrap_or_default()
    }
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().expect("a part of the load")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn millis(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e3
}

/// Requests at `rate` a second over several connections.
fn requests(
    at: SocketAddr,
    start: Instant,
    time: Duration,
    rate: u32,
    request: &(impl Fn(u32) -> String + Sync),
) -> Tally {
    let mut all = Tally::default();
    if rate == 0 {
        return all;
    }
    let every = Duration::from_secs(1) / rate;
    thread::scope(|scope| {
        let connection = |first: u32| {
            let mut tally = Tally::default();
            let mut http = Http::connect(at);
            for n in (first..).step_by(CONNECTIONS as usize) {
                let due = start + every * n;
                if due >= start + time {
                    break;
                }
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let status = http.ask(&request(n));
                tally.times.push(millis(due));
                tally.sent += 1;
                *(if status == 200 { &mut tally.taken } else { &mut tally.other }) += 1;
            }
            tally
        };
        let parts: Vec<_> = (0..CONNECTIONS).map(|first| scope.spawn(move || connection(first))).collect();
        parts.into_iter().for_each(|part| all.add(joined(part)));
    });
    all
}

/// A connection that is used again and again.
struct Http {
    stream: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
}

impl Http {
    fn connect(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).expect("a connection");
        stream.set_nodelay(true).expect("a setting");
        Self { stream: BufReader::with_capacity(64 << 10, stream), line: String::new(), body: Vec::new() }
    }

    /// The status; the body is left in `self.body`.
    fn ask(&mut self, request: &str) -> u16 {
        self.stream.get_mut().write_all(request.as_bytes()).expect("a master that listens");
        let (mut status, mut length) = (0, 0);
        loop {
            self.line.clear();
            assert!(self.stream.read_line(&mut self.line).expect("an answer") > 0, "the connection was closed");
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            if status == 0 {
                status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).expect("a body");
        status
    }
}

/// One pair at the shared port, bound.
struct Pair {
    joiner: UdpSocket,
    host: UdpSocket,
    session: u32,
}

fn pair(http: &mut Http, number: usize) -> Pair {
    let body = format!(r#"{{"s": "{TAG}", "blob": "QUJD", "j": "{number:08x}", "aw": ["shared"]}}"#);
    assert_eq!(http.ask(&post("/knock", &body)), 200, "a knock for the relay");
    let map = codec::object(&http.body).expect("an object");
    let grant = Grants::read(&map).shared.expect("a session on the shared port");
    let bind = |role| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(grant.at).expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a setting");
        let (mut cookie, mut buffer) = ([0; 8], [0; 64]);
        loop {
            socket.send(&Word::Ask { id: grant.id, role, cookie }.write()).expect("a datagram");
            let len = socket.recv(&mut buffer).expect("an answer of the relay");
            match Word::parse(buffer.get(..len).unwrap_or_default()) {
                Ok(Word::Proof { cookie: fresh, .. }) => cookie = fresh,
                Ok(Word::Bound { session, .. }) => return (socket, session),
                word => panic!("{word:?}"),
            }
        }
    };
    let ((joiner, session), (host, _)) = (bind(Role::Joiner), bind(Role::Host));
    host.set_nonblocking(true).expect("a setting");
    Pair { joiner, host, session }
}

/// Datagrams at `rate` a second from joiners to hosts.
fn datagrams(at: SocketAddr, start: Instant, time: Duration, rate: u32) -> Tally {
    let mut tally = Tally::default();
    if rate == 0 {
        return tally;
    }
    let mut http = Http::connect(at);
    let pairs: Vec<Pair> = (0..PAIRS).map(|number| pair(&mut http, number)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (pairs, done) = (&pairs, &done);
        let receiver = scope.spawn(move || {
            let (mut times, mut buffer) = (Vec::new(), [0; 2048]);
            while !done.load(Ordering::Relaxed) {
                for pair in pairs {
                    while let Ok(len) = pair.host.recv(&mut buffer) {
                        let sent = buffer.get(DATA_HEADER..len).and_then(|body| body.first_chunk::<8>());
                        let sent = start + Duration::from_nanos(u64::from_be_bytes(*sent.expect("a time")));
                        times.push(millis(sent));
                    }
                }
                thread::sleep(Duration::from_micros(200));
            }
            times
        });
        let mut datagram = [0; DATA_HEADER + DATAGRAM];
        thread::sleep(start.saturating_duration_since(Instant::now()));
        while start.elapsed() < time {
            let due = u64::from(rate) * u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX) / 1_000_000;
            while tally.sent < due {
                let index = usize::try_from(tally.sent).unwrap_or(0) % PAIRS;
                let Some(pair) = pairs.get(index) else { break };
                let (head, body) = datagram.split_at_mut(DATA_HEADER);
                head.copy_from_slice(&data_header(pair.session));
                let now = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                body.iter_mut().zip(now.to_be_bytes()).for_each(|(to, from)| *to = from);
                pair.joiner.send(&datagram).expect("a datagram");
                tally.sent += 1;
            }
            thread::sleep(Duration::from_micros(500));
        }
        thread::sleep(Duration::from_millis(300));
        done.store(true, Ordering::Relaxed);
        tally.times = joined(receiver);
    });
    tally.taken = u64::try_from(tally.times.len()).unwrap_or(0);
    tally.other = tally.sent.saturating_sub(tally.taken);
    tally
}

/// What a master with the default bounds refuses.
fn refusals() -> String {
    let mut child = Child::start("master", &[&"default"]);
    let mut http = Http::connect(child.value());
    let mut count = |requests: &mut dyn Iterator<Item = String>| {
        let mut counts = std::collections::BTreeMap::<u16, u32>::new();
        requests.for_each(|request| *counts.entry(http.ask(&request)).or_default() += 1);
        counts.iter().map(|(status, n)| format!("{n} x {status}")).collect::<Vec<_>>().join(", ")
    };
    let row = |n| post("/announce", &format!(r#"{{"id": "{n}", "code": "A"}}"#));
    let knock = |n| post("/knock", &format!(r#"{{"s": "{n:024x}", "blob": "QUJD"}}"#));
    let rows = count(&mut (0..600).map(row));
    let knocks = count(&mut (0..100).map(knock));
    format!("600 rows of one address were answered {rows}; 100 knocks of one address in a moment {knocks}.")
}

/// List reads of 500 rows over eight connections that never wait, beside nginx with the same bytes in a file.
fn beside_nginx() -> String {
    let mut child = Child::start("master", &[&"default"]);
    let ours: SocketAddr = child.value();
    let mut http = Http::connect(ours);
    for n in 0..500 {
        let name = format!("Game of host {n}");
        let body = format!(r#"{{"id": "{n}", "name": "{name}", "code": "DJVLCO4AYCUAOCIAADFQA4JSUEJACEAAAEBF4TAB"}}"#);
        assert_eq!(http.ask(&post("/announce", &body)), 200, "an announce");
    }
    assert_eq!(http.ask("GET /list HTTP/1.1\r\nhost: bench\r\n\r\n"), 200, "a list");
    let Some(nginx) = Nginx::start(&http.body) else {
        return "nginx is not installed, so there is nothing to compare list reads with.".to_owned();
    };
    let size = http.body.len();
    let runs: Vec<(f64, f64)> = (0..5).map(|_| (reads(ours), reads(nginx.at))).collect();
    let mut table = Table::new(&["list reads a second", ">median", ">x nginx"]);
    let mid = |pick: fn(&(f64, f64)) -> f64| median(&runs.iter().map(pick).collect::<Vec<_>>());
    table.row(&[&"the master", &format!("{:.0}", mid(|run| run.0)), &format!("{:.2}", mid(|run| run.0 / run.1))]);
    table.row(&[&"nginx", &format!("{:.0}", mid(|run| run.1)), &"1.00"]);
    format!("A list of 500 rows, {size} bytes, over {CONNECTIONS} connections that ask again at once.\n\n{table}")
}

/// List reads in one second. Rows that expire meanwhile would make the list shorter, so runs are short.
fn reads(at: SocketAddr) -> f64 {
    let start = Instant::now();
    let time = Duration::from_secs(1);
    let count = thread::scope(|scope| {
        let connection = || {
            let mut http = Http::connect(at);
            let mut count = 0;
            while start.elapsed() < time {
                assert_eq!(http.ask("GET /list HTTP/1.1\r\nhost: bench\r\n\r\n"), 200, "a list");
                count += 1;
            }
            count
        };
        let parts: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(connection)).collect();
        parts.into_iter().map(joined).sum::<u32>()
    });
    f64::from(count) / start.elapsed().as_secs_f64()
}

struct Nginx {
    process: std::process::Child,
    dir: std::path::PathBuf,
    at: SocketAddr,
}

impl Nginx {
    fn start(list: &[u8]) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("anywire-bench-nginx-{}", std::process::id()));
        std::fs::create_dir_all(&dir).ok()?;
        std::fs::write(dir.join("list"), list).ok()?;
        let at = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).ok()?;
        let root = dir.display();
        let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {root}/{kind};\n"))
            .concat();
        let config = format!(
            "daemon off; worker_processes auto; pid {root}/pid; error_log {root}/error.log;\nevents {{}}\nhttp {{\n{temp}access_log off; \
             sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=8;\n\
             server {{ listen {at}; root {root}; default_type application/json; }}\n}}\n"
        );
        let file = dir.join("nginx.conf");
        std::fs::write(&file, config).ok()?;
        let process = Command::new("nginx").arg("-c").arg(&file).stderr(Stdio::null()).spawn().ok()?;
        let nginx = Self { process, dir, at };
        let until = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(at).is_err() {
            if Instant::now() > until {
                return None;
            }
            thread::sleep(Duration::from_millis(20));
        }
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end when it is told; killed, it would leave them behind.
        let file = self.dir.join("nginx.conf");
        let _told = Command::new("nginx").arg("-c").arg(&file).args(["-s", "stop"]).stderr(Stdio::null()).status();
        let _gone = self.process.wait();
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}
