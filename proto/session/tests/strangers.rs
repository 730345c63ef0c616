//! What a host with a player in its lobby makes of input it should not get (netpunch wire, sections 4 and 24).

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anywire_session::{Command, Event, GAME, GameSide, HostConfig, JoinConfig, LOBBY, Local, Session};
use bytes::BytesMut;
use seal::{OVERHEAD, Sealer, SessionKey};
use seam::{Dice, Path, Refused};

const SECRET: [u8; 12] = [7; 12];
const REJECT: &[u8] = br#"NP1:D{"t": "reject", "reason": "wrong password"}"#;

type Batch = Vec<(Path, Vec<u8>)>;

/// A host and a joiner on a perfect link, and somebody who only sends.
struct Air {
    now: Instant,
    host: Session,
    joiner: Session,
    heard: Vec<Event>,
    /// What the joiner's player was told.
    told: Vec<Event>,
    /// What the joiner sent to the host.
    spied: Vec<Vec<u8>>,
    /// What the host sent to anybody but the joiner.
    answers: Vec<(SocketAddr, Vec<u8>)>,
}

fn at(host: [u8; 4], port: u16) -> Path {
    Path::new(LOBBY, SocketAddr::from((host, port)))
}

fn stranger(n: u32) -> Path {
    let [_, a, b, c] = n.to_be_bytes();
    at([100, a, b, c], 5000)
}

fn host_path() -> Path {
    at([192, 0, 2, 1], 4000)
}

fn joiner_path() -> Path {
    at([192, 0, 2, 2], 4001)
}

fn local(path: Path) -> Local {
    let lan = match path.remote.ip() {
        std::net::IpAddr::V4(ip) => Some(ip),
        std::net::IpAddr::V6(_) => None,
    };
    Local { port: path.remote.port(), lan, ..Local::default() }
}

fn host_config(game: GameSide) -> HostConfig {
    HostConfig { game, local: local(host_path()), ..HostConfig::new("ada", SECRET) }
}

impl Air {
    fn new() -> Self {
        let air = Self::open(None);
        assert_eq!(air.players(), ["ada", "lin"]);
        air
    }

    /// The joiner comes with `password`, though the code is not locked.
    fn open(password: Option<&str>) -> Self {
        let now = Instant::now();
        let profile = joincode::Profile {
            lan: Some(std::net::SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 4000)),
            secret: Some(SECRET),
            ..joincode::Profile::default()
        };
        let joiner = JoinConfig {
            password: password.map(seam::Secret::new),
            game: GameSide::Inside,
            local: local(joiner_path()),
            ..JoinConfig::new("lin", joincode::Code::Plain(profile))
        };
        let host = Session::host(host_config(GameSide::Inside), [1; 32], now, 1_790_000_000);
        let joiner = Session::join(joiner, [2; 32], now, 1_790_000_000);
        let mut air = Self { now, host, joiner, heard: vec![], told: vec![], spied: vec![], answers: vec![] };
        air.pass(Duration::from_secs(2));
        air.answers.clear();
        air
    }

    fn players(&self) -> Vec<String> {
        self.host.roster().players.keys().cloned().collect()
    }

    /// Drains both ends until they are quiet.
    fn settle(&mut self) {
        loop {
            let (mut down, mut up) = (Batch::new(), Batch::new());
            self.host.poll_transmit(self.now, &mut down);
            self.joiner.poll_transmit(self.now, &mut up);
            let told: Vec<Event> = std::iter::from_fn(|| self.host.poll_event()).collect();
            self.told.extend(std::iter::from_fn(|| self.joiner.poll_event()));
            if down.is_empty() && up.is_empty() && told.is_empty() {
                return;
            }
            self.heard.extend(told);
            for (_, bytes) in up.into_iter().filter(|(to, _)| *to == host_path()) {
                let _ = self.host.handle_datagram(self.now, joiner_path(), BytesMut::from(bytes.as_slice()));
                self.spied.push(bytes);
            }
            for (to, bytes) in down {
                if to == joiner_path() {
                    let _ = self.joiner.handle_datagram(self.now, host_path(), BytesMut::from(bytes.as_slice()));
                } else {
                    self.answers.push((to.remote, bytes));
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let due = [&self.host, &self.joiner].into_iter().filter_map(Session::poll_timeout).map(|(at, _)| at).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.host.handle_timeout(self.now);
            self.joiner.handle_timeout(self.now);
        }
        self.now = end;
    }

    fn say(&mut self, from: Path, bytes: &[u8]) -> Result<(), Refused> {
        let taken = self.host.handle_datagram(self.now, from, BytesMut::from(bytes));
        self.settle();
        taken
    }

    /// Whether a chat line of the joiner still reaches the host, and the roster is what it was.
    fn is_well(&mut self, line: &str) {
        self.joiner.command(self.now, Command::Chat(line.to_owned()));
        self.pass(Duration::from_secs(1));
        let heard = |event: &&Event| matches!(event, Event::Chat { text, .. } if text == line);
        assert_eq!(self.heard.iter().filter(heard).count(), 1, "{line}");
        assert_eq!(self.players(), ["ada", "lin"]);
    }
}

/// Seals as somebody who holds the code.
struct Holder(Sealer);

impl Holder {
    fn new(seed: u8) -> Self {
        Self(Sealer::new(&SessionKey::derive(&SECRET, ""), Dice::new([seed; 32])))
    }

    fn packet(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut packet = np1::packet(np1::Kind::Sealed, &vec![0; payload.len() + OVERHEAD]);
        let written = self.0.seal(&[payload], &mut packet[np1::HEADER..]);
        assert_eq!(written, payload.len() + OVERHEAD);
        packet
    }
}

#[test]
fn who_cannot_seal_is_told_so_once_in_two_seconds_and_a_member_never() {
    let mut air = Air::new();
    let junk = np1::packet(np1::Kind::Sealed, &[9; 40]);
    for _ in 0..20 {
        assert_eq!(air.say(stranger(1), &junk), Err(Refused::NotAuthentic));
        assert_eq!(air.say(joiner_path(), &junk), Err(Refused::NotAuthentic));
        air.pass(Duration::from_millis(50));
    }
    assert_eq!(air.answers, [(stranger(1).remote, REJECT.to_vec())]);
    air.pass(Duration::from_secs(2));
    air.say(stranger(1), &junk).unwrap_err();
    assert_eq!(air.answers.len(), 2);
    air.is_well("still here");
}

#[test]
fn what_is_not_for_a_sealed_lobby_is_refused_without_an_answer() {
    let mut air = Air::new();
    let join = br#"{"t": "join", "version": "0.7.1.4", "name": "eve", "mesh": true}"#;
    let inputs: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"NP1".to_vec(),
        b"NP1:".to_vec(),
        b"NP2:H12345678".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [b"TRLA".as_slice(), &[1; 16]].concat(),
        np1::packet(np1::Kind::Plain, join),
        np1::packet(np1::Kind::Plain, b"g a frame"),
        np1::packet(np1::Kind::Plain, br#"{"t": "bye"}"#),
        np1::packet(np1::Kind::KeyExchange, &[1; 260]),
        np1::packet(np1::Kind::Other(b'Z'), b"later"),
        np1::packet(np1::Kind::Ack, &[3; 8]),
        np1::packet(np1::Kind::Sealed, &[3; 23]),
    ];
    for from in [stranger(1), joiner_path()] {
        for input in &inputs {
            let _ = air.say(from, input);
        }
    }
    let rejects = air.answers.iter().filter(|(_, bytes)| bytes == REJECT).count();
    assert_eq!((air.answers.len(), rejects <= 1), (rejects, true), "{:?}", air.answers);
    air.is_well("nothing happened");
}

#[test]
fn a_stray_password_on_an_open_code_is_explained_to_the_player() {
    let air = Air::open(Some("sesame"));
    assert_eq!(air.players(), ["ada"]);
    let Some(Event::Ended(end)) = air.told.last() else { panic!("it goes on: {:?}", air.told) };
    assert!(end.to_string().ends_with("this code is not locked, so join it without a password"), "{end}");
}

#[test]
fn a_forged_reject_does_not_end_a_session_that_is_up() {
    let mut air = Air::new();
    let taken = air.joiner.handle_datagram(air.now, host_path(), BytesMut::from(REJECT));
    assert_eq!(taken, Err(Refused::NotAllowed));
    air.is_well("still here");
    assert!(!air.joiner.is_over());
}

#[test]
fn a_joiners_profile_carries_the_port_it_is_bound_to() {
    let air = Air::new();
    let profile = air.host.roster().players["lin"].profile.clone().unwrap();
    let Ok(joincode::Code::Plain(profile)) = joincode::parse(&profile) else { panic!("a plain code: {profile}") };
    assert_eq!(profile.lan.map(SocketAddr::from), Some(joiner_path().remote));
    assert_eq!(profile.secret, None);
}

#[test]
fn frames_of_the_game_come_from_its_own_port_alone() {
    let (now, bridge) = (Instant::now(), SocketAddr::from((Ipv4Addr::LOCALHOST, 7771)));
    let mut host = Session::host(host_config(GameSide::Loopback { bridge }), [1; 32], now, 0);
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, 7772));
    let from = |remote| Path::new(GAME, remote);
    assert_eq!(host.handle_datagram(now, from(other), BytesMut::from("frame")), Err(Refused::NotAllowed));
    assert_eq!(host.handle_datagram(now, from(bridge), BytesMut::from("frame")), Ok(()));
}

#[test]
fn a_replayed_frame_changes_nothing_from_wherever_it_comes() {
    let mut air = Air::new();
    air.is_well("said once");
    let sealed: Vec<Vec<u8>> = air.spied.iter().filter(|bytes| bytes.starts_with(b"NP1:E")).cloned().collect();
    assert!(sealed.len() > 5);
    for from in [joiner_path(), stranger(1)] {
        for frame in &sealed {
            assert_eq!(air.say(from, frame), Err(Refused::Replayed));
        }
    }
    assert_eq!(air.answers, [], "a copy earns no answer, and asks nobody to prove an address");
    let said = |event: &&Event| matches!(event, Event::Chat { text, .. } if text == "said once");
    assert_eq!(air.heard.iter().filter(said).count(), 1);
    air.is_well("said later");
}

#[test]
fn who_holds_the_code_but_did_not_join_changes_nothing() {
    let mut air = Air::new();
    let mut holder = Holder::new(9);
    let messages: [&[u8]; 9] = [
        br#"{"t": "ping"}"#,
        br#"{"t": "chat", "text": "psst"}"#,
        br#"{"t": "start"}"#,
        br#"{"t": "leave"}"#,
        br#"{"t": "links", "direct": ["lin"]}"#,
        b"[1, 2]",
        b"\xFF\xFE",
        b"g a frame for the host's game",
        b"r\x03ada\x03lingframe",
    ];
    for message in messages {
        let packet = holder.packet(message);
        assert!(air.say(stranger(1), &packet).is_err(), "{message:?}");
    }
    assert!(!air.heard.iter().any(|event| matches!(event, Event::Frame { .. } | Event::Start { .. })));
    assert!(air.answers.len() <= 2, "a word or two that it has to join: {:?}", air.answers);
    air.is_well("undisturbed");
}

/// One wave of every kind of nuisance, each from addresses of its own.
fn flood(air: &mut Air, holder: &mut Holder, from: u32, many: u32) -> usize {
    let join = br#"{"t": "join", "version": "0.0.0.1", "name": "old", "mesh": true, "recovery": 0}"#;
    let mut sent = 0;
    for n in from..from + many {
        let piece = np1::Fragment { id: n, index: 0, count: u32::MAX, data: &[b'x'; 1300] };
        let absurd = [b"F".as_slice(), &piece.id.to_be_bytes(), &[0; 4], &piece.count.to_be_bytes(), piece.data];
        let packet = match n % 4 {
            0 => np1::packet(np1::Kind::Hello, &n.to_be_bytes()),
            1 => np1::packet(np1::Kind::Sealed, &[1; 64]),
            2 => holder.packet(&absurd.concat()),
            _ => holder.packet(join),
        };
        sent += packet.len();
        let _ = air.say(stranger(n), &packet);
        if n % 100 == 0 {
            air.pass(Duration::from_millis(10));
        }
    }
    sent
}

#[test]
fn a_flood_of_strangers_costs_neither_memory_nor_answers_nor_the_members() {
    let mut air = Air::new();
    let mut holder = Holder::new(9);
    flood(&mut air, &mut holder, 0, 20_000);
    air.is_well("after the first wave");
    let size = |air: &Air| format!("{:?}", air.host).len();
    let (before, told) = (size(&air), air.answers.len());
    let sent = flood(&mut air, &mut holder, 20_000, 60_000);
    air.is_well("after the second");
    let after = size(&air);
    assert!(after < before + before / 20 + 4_096, "{before} grew to {after} with 60,000 more strangers");
    let answered: usize = air.answers[told..].iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(answered < sent / 2, "{answered} bytes in answer to {sent}");
    let rejects = air.answers[told..].iter().filter(|(_, bytes)| bytes == REJECT).count();
    // 1,024 slots, one answer per 2 s each, in some 7 s.
    assert!(rejects <= 1024 * 5, "{rejects} plain rejects");
}
