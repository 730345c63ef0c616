//! The published vectors of protocol 5, and what a bridge makes of them.

#![cfg(test)]

use std::net::SocketAddr;
use std::time::Instant;

use anywire_bridge::{Body, Bridge, Config, Datagram, EVENT_MIN, Event, Header};
use codec::{hex, unhex};
use seam::{Path, Refused, SocketId};
use serde_json::Value;

const WORLD: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

fn vector(name: &str) -> (Value, Value) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/vectors/netpunch/bridge/");
    let bytes = std::fs::read(format!("{folder}{name}.json")).unwrap();
    let mut v: Value = serde_json::from_slice(&bytes).unwrap();
    (v["inputs"].take(), v["expect"].take())
}

fn bytes(v: &Value) -> Vec<u8> {
    unhex(v.as_str().unwrap()).unwrap()
}

fn number(v: &Value) -> u32 {
    u32::try_from(v.as_u64().unwrap()).unwrap()
}

fn path(port: u16) -> Path {
    Path::new(SocketId(1), SocketAddr::from(([127, 0, 0, 1], port)))
}

fn bridge(now: Instant) -> Bridge {
    Bridge::new(Config { world: WORLD, peer: path(7773) }, [3; 32], now)
}

fn written(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut out = vec![0; datagram.size()];
    assert_eq!(datagram.write(&mut out), out.len());
    out
}

#[test]
fn the_keepalive_is_the_published_one() {
    let (inputs, expect) = vector("keepalive");
    let header = Header {
        world: inputs["world"].as_str().unwrap().as_bytes().try_into().unwrap(),
        session: number(&inputs["session"]),
        ack_session: number(&inputs["ack_session"]),
        seq: number(&inputs["seq"]),
        ack: None,
        ack_bits: number(&inputs["ack_bits"]),
    };
    let datagram = Datagram { header, body: Body::Keepalive };
    let published = bytes(&expect["datagram"]);
    assert_eq!(hex(&written(&datagram)), hex(&published));
    assert_eq!(Datagram::parse(&published), Ok(datagram));
}

#[test]
fn the_event_is_the_published_one() {
    let (inputs, expect) = vector("event-empty-text");
    let header = Header { world: WORLD, session: 1, ack_session: 0, seq: 0, ack: None, ack_bits: 0 };
    let text = inputs["text"].as_str().unwrap().as_bytes();
    let datagram = Datagram { header, body: Body::Event { index: 0, count: 1, text } };
    let published = bytes(&expect["datagram"]);
    assert_eq!(hex(&written(&datagram)), hex(&published));
    assert_eq!(Datagram::parse(&published), Ok(datagram));
    assert_eq!(published.len(), EVENT_MIN);
}

#[test]
fn refused_datagrams_are_refused_and_leave_no_trace() {
    for (name, why) in [("refused-event-without-nul", Refused::Malformed), ("refused-fpt4", Refused::NotOurs)] {
        let (inputs, _) = vector(name);
        let now = Instant::now();
        let mut bridge = bridge(now);
        assert_eq!(bridge.handle_datagram(now, path(7773), &bytes(&inputs["datagram"])), Err(why), "{name}");
        assert_eq!((bridge.poll_event(), bridge.senders()), (None, vec![]), "{name}");
    }
}

#[test]
fn the_first_thing_sent_is_the_published_keepalive_of_another_session() {
    let now = Instant::now();
    let mut bridge = bridge(now);
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    assert!(bridge.poll_transmit(now, &mut out));
    let (_, expect) = vector("keepalive");
    let mut published = bytes(&expect["datagram"]);
    published[36..40].copy_from_slice(&bridge.session().to_le_bytes());
    assert_eq!(out, [(path(7773), published)]);
}

#[test]
fn what_is_not_for_this_bridge_is_refused() {
    let now = Instant::now();
    let mut bridge = bridge(now);
    let own = bridge.session();
    let from_session = |session| Header { world: WORLD, session, ack_session: 0, seq: 0, ack: None, ack_bits: 0 };
    let keepalive = |header| written(&Datagram { header, body: Body::Keepalive });
    let other_world = Header { world: [b'0'; 32], ..from_session(5) };
    for (header, from, why) in [
        (from_session(5), 7774, Refused::NotAllowed),
        (from_session(0), 7773, Refused::NotOurs),
        (from_session(own), 7773, Refused::NotOurs),
        (other_world, 7773, Refused::NotOurs),
    ] {
        assert_eq!(bridge.handle_datagram(now, path(from), &keepalive(header)), Err(why));
    }
    assert_eq!(bridge.poll_event(), None);
    assert_eq!(bridge.handle_datagram(now, path(7773), &keepalive(from_session(5))), Ok(()));
    assert_eq!(bridge.poll_event(), Some(Event::SenderJoined { session: 5 }));
}
