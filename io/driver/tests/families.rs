//! The lobby socket of every interface speaks IPv4 and, where the system has it, IPv6.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use anywire_driver::{self as driver, Handle, Setup};
use joincode::{Code, Profile};
use lobby::State;
use session::{Event, HostConfig, JoinConfig, Local, Via};

const SECRET: [u8; 12] = [9; 12];

fn host() -> (Handle, u16) {
    let config = HostConfig { max_players: 8, ..HostConfig::new("ada", SECRET) };
    let mut setup = Setup::host(config);
    setup.bind.set_port(0);
    let host = driver::spawn(setup).unwrap();
    let port = host.facts().local.port;
    (host, port)
}

/// Joins by an address of this machine, and says by which kind it got there.
fn join(profile: Profile, local: Local) -> (Via, State) {
    let config = JoinConfig {
        timeout: Duration::from_secs(10),
        local,
        ..JoinConfig::new("lin", Code::Plain(Profile { secret: Some(SECRET), timestamp: u32::MAX, ..profile }))
    };
    let join = driver::spawn(Setup::join(config)).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let mut via = None;
    while let Some(event) = join.event_timeout(until.saturating_duration_since(Instant::now())) {
        match event {
            Event::Won { via: won, .. } => via = Some(won),
            Event::Status { state: state @ (State::Connected | State::Failed), .. } => return (via.unwrap(), state),
            _ => {}
        }
    }
    panic!("neither connected nor failed");
}

#[test]
fn a_host_on_every_interface_is_reached_by_ipv4() {
    let (_host, port) = host();
    let lan = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    assert_eq!(join(Profile { lan, ..Profile::default() }, Local::default()), (Via::Lan, State::Connected));
}

#[test]
fn a_host_on_every_interface_is_reached_by_ipv6_where_there_is_any() {
    let has_v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let (host, port) = host();
    if !has_v6 {
        // Then nothing must be told of an address nobody can dial.
        assert_eq!(host.facts().local.v6, None);
        return;
    }
    let v6 = Some(SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0));
    let local = Local { v6: Some(Ipv6Addr::LOCALHOST), ..Local::default() };
    assert_eq!(join(Profile { v6, ..Profile::default() }, local), (Via::V6, State::Connected));
}
