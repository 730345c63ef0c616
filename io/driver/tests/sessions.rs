//! A host and joiners in one process, over real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anywire_driver::{self as driver, Handle, Inline, OpenError, Setup};
use bytes::Bytes;
use joincode::Code;
use lobby::{End, State};
use seam::Secret;
use session::{Command, Event, GameSide, HostConfig, JoinConfig};

const PATIENCE: Duration = Duration::from_secs(30);

fn host_config(game: GameSide) -> HostConfig {
    HostConfig { lobby_name: "Tuesday".to_owned(), game, ..HostConfig::new("ada", [9; 12]) }
}

fn join_config(name: &str, code: &str, game: GameSide) -> JoinConfig {
    JoinConfig { game, ..JoinConfig::new(name, joincode::parse(code).unwrap()) }
}

/// On loopback alone, with any free ports.
fn here(mut setup: Setup) -> Setup {
    setup.bind = "127.0.0.1:0".parse().unwrap();
    setup.relay_port = Some(0);
    setup
}

/// The first event that `wanted` takes, within the patience.
fn wait<T>(handle: &Handle, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while let Some(event) = handle.event_timeout(until.saturating_duration_since(Instant::now())) {
        if let Some(found) = wanted(&event) {
            return found;
        }
        seen.push(event);
    }
    panic!("it did not come; what came: {seen:#?}");
}

fn code(handle: &Handle) -> String {
    wait(handle, |event| if let Event::Code(code) = event { Some(code.clone()) } else { None })
}

fn connected(handle: &Handle) {
    wait(handle, |event| matches!(event, Event::Status { state: State::Connected, .. }).then_some(()));
}

fn players(handle: &Handle, count: usize) {
    wait(handle, |event| matches!(event, Event::Roster(roster) if roster.players.len() == count).then_some(()));
}

fn said(handle: &Handle, who: &str, what: &str) {
    wait(handle, |event| matches!(event, Event::Chat { from, text, .. } if from == who && text == what).then_some(()));
}

fn frame(handle: &Handle) -> (Option<String>, Bytes) {
    wait(
        handle,
        |event| if let Event::Frame { from, data } = event { Some((from.clone(), data.clone())) } else { None },
    )
}

#[test]
fn a_host_and_a_joiner_exchange_chat_and_frames_and_part_politely() {
    let host = driver::spawn(here(Setup::host(host_config(GameSide::Inside)))).unwrap();
    let code = code(&host);
    let Ok(Code::Plain(profile)) = joincode::parse(&code) else { panic!("a plain code") };
    assert_eq!(profile.lan.map(SocketAddr::from), Some(SocketAddr::from(([127, 0, 0, 1], host.facts().local.port))));
    let join = driver::spawn(here(Setup::join(join_config("lin", &code, GameSide::Inside)))).unwrap();
    connected(&join);
    players(&join, 2);
    players(&host, 2);

    join.command(Command::Chat("hello".to_owned())).unwrap();
    said(&host, "lin", "hello");
    host.command(Command::Chat("welcome".to_owned())).unwrap();
    said(&join, "ada", "welcome");

    let large = Bytes::from(vec![7; 1400]);
    for data in [Bytes::from_static(b"x"), large] {
        join.command(Command::Frame(data.clone())).unwrap();
        assert_eq!(frame(&host).1, data);
        host.command(Command::Frame(data.clone())).unwrap();
        assert_eq!(frame(&join).1, data);
    }

    join.command(Command::Quit).unwrap();
    players(&host, 1);
    assert_eq!(join.join(), End::Quit);
    host.command(Command::Quit).unwrap();
    assert_eq!(host.join(), End::Quit);
}

#[test]
fn a_locked_code_is_opened_with_the_password() {
    let mut config = host_config(GameSide::None);
    config.password = Some(Secret::new("hunter2"));
    let host = driver::spawn(here(Setup::host(config))).unwrap();
    let code = code(&host);
    assert!(matches!(joincode::parse(&code), Ok(Code::Locked(_))));
    let mut config = join_config("lin", &code, GameSide::None);
    config.password = Some(Secret::new("hunter2"));
    let join = driver::spawn(here(Setup::join(config))).unwrap();
    connected(&join);
    host.command(Command::Quit).unwrap();
    assert_eq!(
        wait(&join, |event| if let Event::Ended(end) = event { Some(end.clone()) } else { None }),
        End::HostClosed
    );
}

/// A game behind its lobby: a bridge socket, and the port it sends to.
struct Game {
    bridge: UdpSocket,
    relay: SocketAddr,
}

fn bridge() -> (UdpSocket, GameSide) {
    let bridge = UdpSocket::bind("127.0.0.1:0").unwrap();
    bridge.set_read_timeout(Some(PATIENCE)).unwrap();
    let side = GameSide::Loopback { bridge: bridge.local_addr().unwrap() };
    (bridge, side)
}

impl Game {
    fn new(bridge: UdpSocket, handle: &Handle) -> Self {
        Self { bridge, relay: SocketAddr::from(([127, 0, 0, 1], handle.facts().relay_port.unwrap())) }
    }

    fn send(&self, data: &[u8]) {
        self.bridge.send_to(data, self.relay).unwrap();
    }

    fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 2048];
        let (len, from) = self.bridge.recv_from(&mut buffer).unwrap();
        assert_eq!(from, self.relay, "frames come from the relay port");
        buffer.truncate(len);
        buffer
    }
}

#[test]
fn frames_of_three_games_reach_the_other_two_once_each() {
    let (bridge_a, side_a) = bridge();
    let host = driver::spawn(here(Setup::host(host_config(side_a)))).unwrap();
    let a = Game::new(bridge_a, &host);
    let code = code(&host);
    let (bridge_b, side_b) = bridge();
    let join_b = driver::spawn(here(Setup::join(join_config("lin", &code, side_b)))).unwrap();
    let b = Game::new(bridge_b, &join_b);
    let (bridge_c, side_c) = bridge();
    let join_c = driver::spawn(here(Setup::join(join_config("mo", &code, side_c)))).unwrap();
    let c = Game::new(bridge_c, &join_c);
    for handle in [&host, &join_b, &join_c] {
        players(handle, 3);
    }

    // A program that is not the bridge is not heard.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"not a game", a.relay).unwrap();

    let games = [a, b, c];
    for round in 0..20_u8 {
        for (number, game) in games.iter().enumerate() {
            game.send(&[round, u8::try_from(number).unwrap(), 0xAB]);
        }
        for (number, game) in games.iter().enumerate() {
            let mut got = [game.receive(), game.receive()];
            got.sort();
            let mut expected: Vec<Vec<u8>> =
                (0..3).filter(|n| usize::from(*n) != number).map(|n| vec![round, n, 0xAB]).collect();
            expected.sort();
            assert_eq!(got.as_slice(), expected.as_slice(), "round {round}, game {number}");
        }
    }
    for game in &games {
        game.bridge.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(game.bridge.recv_from(&mut [0; 16]).is_err(), "no second copies, and nothing of the stranger's");
    }
}

#[test]
fn an_inline_session_works_without_a_thread() {
    let mut host = Inline::open(here(Setup::host(host_config(GameSide::Inside)))).unwrap();
    let until = Instant::now() + PATIENCE;
    let mut handle = None;
    let mut heard = false;
    while Instant::now() < until && !heard {
        match host.poll() {
            Some(Event::Code(code)) => {
                handle = Some(driver::spawn(here(Setup::join(join_config("lin", &code, GameSide::Inside)))).unwrap());
            }
            Some(Event::Roster(roster)) if roster.players.len() == 2 => {
                host.command(Command::Chat("from the loop".to_owned()));
                heard = true;
            }
            Some(_) => {}
            None => host.wait(Duration::from_millis(50)),
        }
    }
    let join = handle.unwrap();
    assert!(heard, "nobody joined");
    // The host stands still unless it is polled, so it is polled while the joiner is waited for.
    let mut got = false;
    while Instant::now() < until && !got {
        let _host_event = host.poll();
        got = matches!(join.event_timeout(Duration::from_millis(5)), Some(Event::Chat { from, .. }) if from == "ada");
    }
    assert!(got);
    host.command(Command::Quit);
    while Instant::now() < until && !host.is_over() {
        if host.poll().is_none() {
            host.wait(Duration::from_millis(50));
        }
    }
    assert!(host.is_over());
    assert_eq!(
        wait(&join, |event| if let Event::Ended(end) = event { Some(end.clone()) } else { None }),
        End::HostClosed
    );
}

#[test]
fn ports_in_use_are_said_to_be() {
    let first = driver::spawn(here(Setup::host(host_config(GameSide::None)))).unwrap();
    let port = first.facts().local.port;
    let mut setup = here(Setup::host(host_config(GameSide::None)));
    setup.bind = SocketAddr::from(([127, 0, 0, 1], port));
    let error = driver::spawn(setup).err().unwrap();
    assert!(matches!(error, OpenError::PortInUse(taken) if taken == port));
    assert!(error.to_string().contains(&port.to_string()));

    let (taken, side) = bridge();
    let mut setup = here(Setup::host(host_config(side)));
    setup.relay_port = Some(taken.local_addr().unwrap().port());
    assert!(matches!(driver::spawn(setup), Err(OpenError::RelayPortInUse(_))));
}

#[test]
fn every_joiner_on_a_machine_gets_a_relay_port_of_its_own() {
    let host = driver::spawn(here(Setup::host(host_config(GameSide::None)))).unwrap();
    let code = code(&host);
    let (_bridge, side) = bridge();
    let open = || {
        let mut setup = here(Setup::join(join_config("lin", &code, side)));
        setup.relay_port = None;
        driver::spawn(setup).unwrap()
    };
    let (one, two) = (open(), open());
    let ports = [one.facts().relay_port.unwrap(), two.facts().relay_port.unwrap()];
    assert!(ports.iter().all(|port| driver::JOIN_RELAY_PORTS.contains(port)) && ports[0] < ports[1], "{ports:?}");
}
