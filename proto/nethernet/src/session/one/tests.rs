//! One session over an engine that says what the test wants.

#![allow(clippy::disallowed_methods, reason = "the first instant of a virtual time has to come from somewhere")]

use std::net::SocketAddr;
use std::time::Instant;

use super::*;
use crate::engine::EngineError;

#[derive(Debug, Default)]
struct Scripted {
    events: VecDeque<EngineEvent>,
    messages: VecDeque<(ChannelId, Bytes)>,
    sent: Vec<Bytes>,
    aborted: bool,
}

impl Engine for Scripted {
    fn credentials(&self) -> (&str, &str) {
        ("abcd", "0123456789012345678901")
    }

    fn add_local(&mut self, _: Instant, _: SocketAddr, _: bool) -> Result<(), EngineError> {
        Ok(())
    }

    fn add_remote(&mut self, _: Instant, _: &Candidate) {}

    fn start(&mut self, _: Instant, _: Remote) -> Result<(), EngineError> {
        Ok(())
    }

    fn input(&mut self, _: Instant, _: SocketAddr, _: SocketAddr, _: &[u8]) -> bool {
        false
    }

    fn timeout(&mut self, _: Instant) {}

    fn poll_transmit(&mut self, _: Instant, _: &mut impl FnMut(SocketAddr, SocketAddr, &[u8]) -> bool) -> bool {
        false
    }

    fn poll_event(&mut self) -> Option<EngineEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }

    fn open(&mut self, _: &'static str, _: Reliability) {}

    fn send(&mut self, _: Instant, _: ChannelId, message: Bytes) -> Result<(), EngineError> {
        self.sent.push(message);
        Ok(())
    }

    fn recv(&mut self, _: Instant, channel: ChannelId) -> Option<Bytes> {
        let at = self.messages.iter().position(|(c, _)| *c == channel)?;
        self.messages.remove(at).map(|(_, message)| message)
    }

    fn buffered(&self, _: ChannelId) -> usize {
        0
    }

    fn waits_for(&self) -> &'static str {
        "the script"
    }

    fn heard(&self) -> Option<Instant> {
        None
    }

    fn close(&mut self, _: Instant) {}

    fn abort(&mut self, _: Instant) {
        self.aborted = true;
    }
}

fn description(size: &str) -> String {
    format!(
        "v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=ice-ufrag:efgh\r\n\
         a=ice-pwd:0123456789012345678901\r\na=setup:active\r\na=fingerprint:sha-256 {}\r\n{size}",
        Fingerprint([1; 32])
    )
}

/// A dialled session with both channels open, its other side announcing `size`.
fn open(size: &str) -> (Session<Scripted>, Config, Told, Instant) {
    let (now, config, mut told) = (Instant::now(), Config::new(Vec::new()), Told::default());
    let birth = Birth {
        id: SessionId(1),
        peer: NetworkId::P2p(2),
        connection: ConnectionId(3),
        outgoing: true,
        engine: Scripted::default(),
        bases: Vec::new(),
        fingerprint: Fingerprint([0; 32]),
        origin: 4,
    };
    let mut session = Session::new(birth, &config, now);
    session.dial();
    session.describe(now, &config, true, &mut told);
    session.answered(now, &config, &description(size), &mut told);
    for (n, channel) in [Channel::Reliable, Channel::Unreliable].into_iter().enumerate() {
        let channel_id = ChannelId(n as u16);
        session.engine.events.push_back(EngineEvent::Opened { channel: channel_id, label: channel.label().into() });
    }
    session.drain(now, &mut told);
    assert_eq!(session.stage, Stage::Open);
    told.events.clear();
    (session, config, told, now)
}

fn arrive(session: &mut Session<Scripted>, told: &mut Told, now: Instant, channel: u16, message: &'static [u8]) {
    session.engine.messages.push_back((ChannelId(channel), Bytes::from_static(message)));
    session.engine.events.push_back(EngineEvent::Readable(ChannelId(channel)));
    session.drain(now, told);
}

#[test]
fn a_gap_in_the_countdown_ends_the_session_and_gives_nothing() {
    let (mut session, _, mut told, now) = open("");
    arrive(&mut session, &mut told, now, 0, &[2, 1, 1]);
    arrive(&mut session, &mut told, now, 0, &[0, 1, 1]);
    assert_eq!(session.recv(now, &mut told), None);
    assert!(session.engine.aborted);
    let closed = told.events.iter().any(|e| matches!(e, Event::Closed { error: SessionError::GenericFailure, .. }));
    assert!(closed, "{:?}", told.events);
}

#[test]
fn messages_without_a_byte_are_ignored_and_empty_packets_are_given() {
    let (mut session, _, mut told, now) = open("");
    arrive(&mut session, &mut told, now, 0, &[]);
    arrive(&mut session, &mut told, now, 1, &[]);
    arrive(&mut session, &mut told, now, 0, &[0]);
    assert_eq!(session.recv(now, &mut told), Some((Channel::Reliable, Bytes::new())));
    assert_eq!(session.recv(now, &mut told), None);
}

#[test]
fn fragments_are_as_large_as_the_other_side_takes() {
    let sizes = |announced: &str, packet: usize| {
        let (mut session, config, _, now) = open(announced);
        session.send(now, &config, Channel::Reliable, vec![0; packet].into()).unwrap();
        session.engine.sent.iter().map(|m| (m[0], m.len())).collect::<Vec<_>>()
    };
    assert_eq!(sizes("a=max-message-size:262144\r\n", 262_144), [(1, 262_144), (0, 2)]);
    assert_eq!(sizes("", 65_535), [(1, 65_535), (0, 2)]);
    assert_eq!(sizes("a=max-message-size:65536\r\n", 65_536), [(1, 65_536), (0, 2)]);
}

#[test]
fn an_answer_whose_messages_carry_nothing_is_refused_with_13() {
    let (now, config, mut told) = (Instant::now(), Config::new(Vec::new()), Told::default());
    let (mut session, ..) = open("");
    session.stage = Stage::Offered;
    session.answered(now, &config, &description("a=max-message-size:1\r\n"), &mut told);
    assert_eq!(told.signals.pop_front(), Some((NetworkId::P2p(2), "CONNECTERROR 3 13".into())));
    assert_eq!(session.stage, Stage::Over);
}

#[test]
fn pain_31_unreliable_packets_of_an_outage_are_dropped_and_reliable_ones_kept() {
    let (mut session, config, mut told, now) = open("");
    session.engine.events.push_back(EngineEvent::Interrupted);
    session.drain(now, &mut told);
    session.send(now, &config, Channel::Unreliable, Bytes::from_static(b"old")).unwrap();
    session.send(now, &config, Channel::Reliable, Bytes::from_static(b"kept")).unwrap();
    assert_eq!(session.engine.sent, [Bytes::from_static(b"\0kept")]);
}

#[test]
fn a_closed_channel_ends_the_session_with_32_and_an_unknown_one_does_not() {
    let (mut session, _, mut told, now) = open("");
    session.engine.events.push_back(EngineEvent::Opened { channel: ChannelId(9), label: "other".into() });
    session.engine.events.push_back(EngineEvent::ChannelClosed(ChannelId(9)));
    session.drain(now, &mut told);
    assert_eq!(session.stage, Stage::Open);
    session.engine.events.push_back(EngineEvent::ChannelClosed(ChannelId(1)));
    session.drain(now, &mut told);
    assert!(matches!(told.events.back(), Some(Event::Closed { error: SessionError::DataChannelClosed, .. })));
}

#[test]
fn a_refusal_of_a_repeated_offer_counts_only_when_no_answer_comes() {
    let (mut session, config, mut told, now) = open("");
    session.stage = Stage::Offered;
    session.say_again(&mut told);
    session.refused(SessionError::IncomingConnectionIgnored, &mut told);
    assert_eq!(session.stage, Stage::Offered);
    session.late(now, &mut told);
    let closed = told.events.back().cloned();
    assert!(matches!(closed, Some(Event::Closed { error: SessionError::IncomingConnectionIgnored, .. })), "{closed:?}");
    let _ = config;
}
