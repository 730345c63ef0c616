//! Sessions on loopback, opened as a program opens them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use driver::{Handle, Setup};
use lobby::State;
use session::{Event, GameSide, HostConfig, JoinConfig};

/// How long anything may take that takes no time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The secret in every code here.
pub(crate) const SECRET: [u8; 12] = *b"twelve bytes";

/// A host of a lobby for 200, on any free ports of loopback.
pub(crate) fn host(game: GameSide) -> Setup {
    here(Setup::host(HostConfig { lobby_name: "bench".to_owned(), game, ..HostConfig::new("host", SECRET) }))
}

/// Somebody who joins it.
pub(crate) fn join(code: &str, game: GameSide) -> Setup {
    here(Setup::join(JoinConfig {
        timeout: PATIENCE,
        game,
        ..JoinConfig::new("join", joincode::parse(code).expect("the code of our own host"))
    }))
}

fn here(mut setup: Setup) -> Setup {
    setup.bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    setup.relay_port = Some(0);
    setup
}

/// The game's side at a bridge of this address; `inside` is a game in the same process.
pub(crate) fn game(word: &str) -> GameSide {
    match word {
        "inside" => GameSide::Inside,
        bridge => GameSide::Loopback { bridge: bridge.parse().expect("an address") },
    }
}

/// A host's code.
pub(crate) fn code(handle: &Handle) -> String {
    wait(handle, |event| if let Event::Code(code) = event { Some(code.clone()) } else { None })
}

/// Waits until a joiner is let in and knows the host's roster.
pub(crate) fn connected(handle: &Handle) {
    wait(handle, |event| matches!(event, Event::Status { state: State::Connected, .. }).then_some(()));
    players(handle, 2);
}

/// Waits until a roster has that many players.
pub(crate) fn players(handle: &Handle, count: usize) {
    wait(handle, |event| matches!(event, Event::Roster(roster) if roster.players.len() == count).then_some(()));
}

fn wait<T>(handle: &Handle, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    while let Some(event) = handle.event_timeout(until.saturating_duration_since(Instant::now())) {
        if let Some(found) = wanted(&event) {
            return found;
        }
    }
    panic!("the lobby did not come up");
}

/// A UDP socket on loopback with the buffers every contestant gets.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let options = socket2::SockRef::from(&socket);
    // The same wish as the product's; what is granted is the same as well.
    let _granted = options.set_recv_buffer_size(4 << 20).and_then(|()| options.set_send_buffer_size(4 << 20));
    socket
}
