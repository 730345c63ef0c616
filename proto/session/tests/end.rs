//! How a session ends.

#![cfg(test)]

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use anywire_session::{Event, JoinConfig, Session};
use joincode::{Code, Profile};
use seam::Path;

#[test]
fn nothing_follows_the_end_when_the_dial_and_its_deadline_run_out_together() {
    let start = Instant::now();
    let host = SocketAddrV4::new([192, 0, 2, 1].into(), 4000);
    let profile = Profile { lan: Some(host), secret: Some([1; 12]), ..Profile::default() };
    let config = JoinConfig { ..JoinConfig::new("Al", Code::Plain(profile)) };
    let mut session = Session::join(config, [1; 32], start, 0);
    let mut events = Vec::new();
    for seconds in [0, 31, 32, 33] {
        let now = start + Duration::from_secs(seconds);
        session.handle_timeout(now);
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        session.poll_transmit(now, &mut out);
        events.extend(std::iter::from_fn(|| session.poll_event()));
    }
    let ends = events.iter().filter(|event| matches!(event, Event::Ended(_))).count();
    assert_eq!((ends, matches!(events.last(), Some(Event::Ended(_)))), (1, true), "{events:?}");
    assert_eq!(session.poll_timeout(), None);
}
