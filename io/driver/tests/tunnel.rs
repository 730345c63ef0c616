//! Two players who get no datagram to each other or to the relay, and a real master's web port.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anywire_driver::{self as driver, Handle, Setup};
use bytes::Bytes;
use joincode::{Code, Profile};
use master::{Background, Port, PortRange, Settings};
use session::{Command, Event, GameSide, HostConfig, JoinConfig, Local, Via};

const LONG: Duration = Duration::from_secs(60);
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Where nobody is (RFC 5737).
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

/// A master whose relay's UDP port cannot be reached at the address it tells.
fn master() -> Background {
    let mut settings = Settings::quiet();
    settings.port = 0;
    settings.relay_bind = LOOPBACK.into();
    settings.relay_ip = Some(NOWHERE.into());
    settings.relay_ports = PortRange { first: 0, last: 0 };
    (settings.shared_port, settings.stun_port, settings.stun_other_port) = (Port::At(0), Port::Off, Port::Off);
    Background::start(settings).unwrap()
}

/// What stands between the players and the master: connections that can be broken.
#[derive(Clone)]
struct Wire {
    at: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// Connections so far.
    count: Arc<AtomicUsize>,
}

impl Wire {
    fn to(master: SocketAddr) -> Self {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let wire = Self { at: listener.local_addr().unwrap(), open: Arc::default(), count: Arc::default() };
        let theirs = wire.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(master).unwrap());
                theirs.count.fetch_add(1, Ordering::Relaxed);
                theirs.open.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    thread::spawn(move || {
                        let _broken = io::copy(&mut from, &mut to);
                        let _gone = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        wire
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    fn url(&self) -> Option<String> {
        Some(format!("http://{}", self.at))
    }
}

/// A player and what it has been told.
struct Player {
    handle: Handle,
    told: Vec<Event>,
}

impl Player {
    fn open(mut setup: Setup) -> Self {
        setup.bind = (LOOPBACK, 0).into();
        Self { handle: driver::spawn(setup).unwrap(), told: Vec::new() }
    }

    fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let until = Instant::now() + LONG;
        while let Some(event) = self.handle.event_timeout(until.saturating_duration_since(Instant::now())) {
            self.told.push(event.clone());
            if wanted(&event) {
                return event;
            }
        }
        panic!("no {what}: {:#?}", self.told);
    }

    fn line(&mut self, wanted: &str) {
        self.until(wanted, |event| matches!(event, Event::Log(line) if line.contains(wanted)));
    }
}

/// Addresses at which nobody is told to look for this machine.
fn hidden() -> Local {
    Local { lan: Some(NOWHERE), ..Local::default() }
}

fn host(url: Option<String>) -> (Player, Code) {
    let config =
        HostConfig { rendezvous: url, local: hidden(), game: GameSide::Inside, ..HostConfig::new("ada", [9; 12]) };
    let mut host = Player::open(Setup::host(config));
    let Event::Code(code) = host.until("code", |event| matches!(event, Event::Code(_))) else { panic!() };
    let Ok(Code::Plain(profile)) = joincode::parse(&code) else { panic!("{code}") };
    (host, Code::Plain(Profile { lan: None, public: None, v6: None, ..profile }))
}

fn join(code: Code, url: Option<String>) -> Player {
    let config =
        JoinConfig { rendezvous: url, local: hidden(), game: GameSide::Inside, ..JoinConfig::new("lin", code) };
    Player::open(Setup::join(config))
}

/// Frames go until one arrives; a path that has just broken loses some.
fn assert_frames(from: &Player, to: &mut Player, text: &'static [u8]) {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        from.handle.command(Command::Frame(Bytes::from_static(text))).unwrap();
        while let Some(event) = to.handle.event_timeout(Duration::from_millis(50)) {
            if matches!(&event, Event::Frame { data, .. } if data == text) {
                return;
            }
        }
    }
    panic!("no frame arrived");
}

#[test]
fn players_without_udp_meet_at_the_masters_web_port_and_meet_again_when_it_breaks() {
    let master = master();
    let wire = Wire::to(master.running().http);
    let (mut host, code) = host(wire.url());
    let mut join = join(code, wire.url());
    join.until("way by TCP", |event| matches!(event, Event::Won { via: Via::Tcp, .. }));
    let together = |event: &Event| matches!(event, Event::Roster(roster) if roster.players.len() == 2);
    join.until("lobby of two", together);
    host.until("lobby of two", together);
    assert_frames(&join, &mut host, b"up");
    assert_frames(&host, &mut join, b"down");
    let routes = join.until("route", |event| {
        matches!(event, Event::Links(links) if links.get("ada").is_some_and(|stats| stats.route == seam::Route::Tcp))
    });
    drop(routes);

    let before = wire.count.load(Ordering::Relaxed);
    wire.cut();
    join.line("[tunnel] it is gone");
    assert_frames(&join, &mut host, b"up again");
    assert_frames(&host, &mut join, b"down again");
    assert!(wire.count.load(Ordering::Relaxed) > before, "over other connections");

    // What is said last arrives although everything ends behind it.
    join.handle.command(Command::Quit).unwrap();
    assert_eq!(join.handle.join(), lobby::End::Quit);
    host.until("lobby of one", |event| matches!(event, Event::Roster(roster) if roster.players.len() == 1));
    master.stop();
}

#[test]
fn a_master_that_gives_no_tcp_is_told_of_and_asked_again_and_nothing_else_ends() {
    let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // It grants a relay and knows no upgrade, as a master behind an old proxy.
    thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&count));
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                let mut text = String::new();
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    text.push_str(&String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()));
                    let (status, body) = if text.contains("GET /relay") {
                        count.fetch_add(1, Ordering::Relaxed);
                        ("404 Not Found", String::new())
                    } else if text.contains("\"blob\"") {
                        let grant = format!(r#"{{"ip": "{NOWHERE}", "port": 9, "id": "{}"}}"#, "ab".repeat(16));
                        ("200 OK", format!(r#"{{"ok": true, "shared": {grant}}}"#))
                    } else {
                        continue;
                    };
                    text.clear();
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all((head + &body).as_bytes()).unwrap();
                }
            });
        }
    });
    let profile = Profile { secret: Some([9; 12]), timestamp: u32::MAX, ..Profile::default() };
    let mut join = join(Code::Plain(profile), Some(format!("http://{at}")));
    join.line("[tunnel] the master gives no TCP: the master answered 404");
    let until = Instant::now() + LONG;
    while asked.load(Ordering::Relaxed) < 3 {
        assert!(Instant::now() < until, "it is asked again");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!join.handle.is_over());
    join.handle.command(Command::Quit).unwrap();
    assert_eq!(join.handle.join(), lobby::End::Quit);
}
