//! Saves between drivers on loopback, in every form: streams and chunks as old programs know them, and QUIC.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anywire_driver::{Handle, Role, Setup, spawn};
use session::{Command, Event, HostConfig, JoinConfig, Moved, Progress, Transport};

const PATIENCE: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-files-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn open(role: Role, files: PathBuf) -> Handle {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    spawn(Setup { role, bind, relay_port: None, vpn: None, portmap: None, files: Some(files), seed: None }).unwrap()
}

/// Reads events until one is it.
fn until(handle: &Handle, seen: &mut Vec<Event>, what: &str, is: impl Fn(&Event) -> bool) -> Event {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(event) = handle.event_timeout(Duration::from_millis(100)) {
            seen.push(event.clone());
            if is(&event) {
                return event;
            }
        }
    }
    panic!("no {what}: {seen:#?}");
}

struct Party {
    host: Handle,
    joiner: Handle,
    seen: [Vec<Event>; 2],
    folders: [PathBuf; 2],
}

fn party(name: &str, extensions: bool) -> Party {
    let folders = [folder(&format!("{name}-host")), folder(&format!("{name}-join"))];
    let config = HostConfig { extensions, ..HostConfig::new("ada", [9; 12]) };
    let host = open(Role::Host(config), folders[0].clone());
    let mut seen = [Vec::new(), Vec::new()];
    let Event::Code(code) = until(&host, &mut seen[0], "code", |event| matches!(event, Event::Code(_))) else {
        unreachable!()
    };
    let code = joincode::read(&code).unwrap();
    let config = JoinConfig { extensions, ..JoinConfig::new("lin", code) };
    let joiner = open(Role::Join(config), folders[1].clone());
    let both = |event: &Event| matches!(event, Event::Roster(roster) if roster.players.len() == 2);
    until(&host, &mut seen[0], "two players", both);
    until(&joiner, &mut seen[1], "two players", both);
    Party { host, joiner, seen, folders }
}

impl Party {
    /// Sends files of these sizes, and what the joiner's folder holds then is what was sent.
    fn send(&mut self, sizes: &[usize]) {
        let names = parcel::SAVE_NAMES;
        let mut files = Vec::new();
        for (index, (size, name)) in sizes.iter().zip(names).enumerate() {
            let path = self.folders[0].join(format!("world-{index}"));
            let bytes: Vec<u8> =
                (0..*size).map(|at| u8::try_from((at * 31 + at / 251 + index) % 256).unwrap()).collect();
            fs::write(&path, bytes).unwrap();
            files.push((path, name.to_owned()));
        }
        self.host.command(Command::StartWith { files: files.clone(), switch: false }).unwrap();
        let start = |event: &Event| matches!(event, Event::Start { save: true, switch: false });
        until(&self.joiner, &mut self.seen[1], "start", start);
        until(&self.host, &mut self.seen[0], "start", start);
        for (path, name) in files {
            assert!(fs::read(path).unwrap() == fs::read(self.folders[1].join(&name)).unwrap(), "{name}");
        }
    }

    fn streamed(&self) -> bool {
        self.seen[0].iter().any(|event| matches!(event, Event::Transfer { moved: Moved::Streaming, .. }))
    }
}

#[test]
fn an_old_joiner_fetches_a_save_over_tcp() {
    let mut party = party("tcp", false);
    party.send(&[3_000_000, 60, 1_000]);
    assert!(party.streamed(), "{:#?}", party.seen[0]);
    let ready = party.seen[1].iter().find_map(|event| match event {
        Event::SaveReady { files } => Some(files.clone()),
        _ => None,
    });
    assert_eq!(ready.unwrap(), parcel::SAVE_NAMES);
}

#[test]
fn without_a_port_for_streams_chunks_carry_it() {
    // Somebody else has the TCP port: the lobby is told so and goes on.
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let folders = [folder("udp-host"), folder("udp-join")];
    let config = HostConfig { extensions: false, ..HostConfig::new("ada", [9; 12]) };
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let files = Some(folders[0].clone());
    let setup = Setup { role: Role::Host(config), bind, relay_port: None, vpn: None, portmap: None, files, seed: None };
    let host = spawn(setup).unwrap();
    let mut seen = [Vec::new(), Vec::new()];
    let Event::Code(code) = until(&host, &mut seen[0], "code", |event| matches!(event, Event::Code(_))) else {
        unreachable!()
    };
    assert!(seen[0].iter().any(|event| matches!(event, Event::Log(line) if line.contains("files go by UDP alone"))));
    let code = joincode::read(&code).unwrap();
    let config = JoinConfig { extensions: false, ..JoinConfig::new("lin", code) };
    let joiner = open(Role::Join(config), folders[1].clone());
    let both = |event: &Event| matches!(event, Event::Roster(roster) if roster.players.len() == 2);
    until(&host, &mut seen[0], "two players", both);
    let mut party = Party { host, joiner, seen, folders };
    party.send(&[3_000_000, 0, 1_000]);
    assert!(!party.streamed());
}

#[test]
fn between_our_own_ends_it_goes_by_quic() {
    let mut party = party("quic", true);
    party.send(&[3_000_000, 60, 0]);
    let tells = |event: &Event| match event {
        Event::Transfer { moved: Moved::Progress(Progress { transport, .. }), .. } => *transport == Transport::Quic,
        Event::Transfer { send: true, moved: Moved::Streaming, .. } => true,
        _ => false,
    };
    assert!(party.seen[0].iter().any(tells), "{:#?}", party.seen[0]);
    // Once more, over what is there already.
    let again = |event: &Event| matches!(event, Event::Transfer { send: false, moved: Moved::Done, .. });
    assert_eq!(party.seen[1].iter().filter(|event| again(event)).count(), 1);
}

#[test]
fn a_joiner_without_a_folder_refuses_and_nobody_starts() {
    let dir = folder("refuse-host");
    let host = open(Role::Host(HostConfig::new("ada", [9; 12])), dir.clone());
    let mut seen = Vec::new();
    let Event::Code(code) = until(&host, &mut seen, "code", |event| matches!(event, Event::Code(_))) else {
        unreachable!()
    };
    let role = Role::Join(JoinConfig::new("lin", joincode::read(&code).unwrap()));
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let joiner =
        spawn(Setup { role, bind, relay_port: None, vpn: None, portmap: None, files: None, seed: None }).unwrap();
    until(&host, &mut seen, "two players", |event| matches!(event, Event::Roster(roster) if roster.players.len() == 2));
    fs::write(dir.join("world"), "a world").unwrap();
    let files = vec![(dir.join("world"), parcel::SAVE_NAMES[0].to_owned())];
    host.command(Command::StartWith { files, switch: false }).unwrap();
    let why = "nobody starts: the save did not reach lin (the receiver gave up)";
    until(&host, &mut seen, "status", |event| matches!(event, Event::Status { detail, .. } if detail == why));
    assert!(!seen.iter().any(|event| matches!(event, Event::Start { .. })));
    drop(joiner);
}
