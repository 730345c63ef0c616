//! The handshake of the reference vectors, through the machine.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail their test")]

mod common;

use std::time::Instant;

use anywire_punch::{Config, Punch};
use codec::unhex;
use common::path;
use np1::{Kind, Packet};
use seam::Path;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/vectors/netpunch/np1/");

fn vector(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(format!("{DIR}{name}.json")).unwrap()).unwrap()
}

fn bytes(value: &serde_json::Value) -> Vec<u8> {
    unhex(value.as_str().unwrap()).unwrap()
}

/// What a machine that dials nobody sends in return.
fn answers(datagram: &[u8]) -> Vec<Vec<u8>> {
    let now = Instant::now();
    let mut punch = Punch::new(Config::default(), [1; 32], now);
    let _ = punch.handle_packet(now, path("198.51.100.2:5000"), Packet::parse(datagram).unwrap());
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    punch.poll_transmit(now, &mut out);
    assert_eq!(punch.poll_event(), None);
    out.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn a_hello_is_answered_byte_for_byte() {
    let handshake = vector("handshake");
    assert_eq!(answers(&bytes(&handshake["inputs"]["received"])), [bytes(&handshake["expect"]["reply"])]);
}

#[test]
fn an_empty_hello_is_answered_with_an_empty_ack() {
    let empty = vector("empty-payload-is-valid");
    assert_eq!(answers(&bytes(&empty["inputs"]["packet"])), [np1::packet(Kind::Ack, b"")]);
}

#[test]
fn connected_keepalive_and_foreign_acks_are_not_answered() {
    for name in ["connected", "keepalive", "ack"] {
        assert_eq!(answers(&bytes(&vector(name)["expect"]["packet"])), Vec::<Vec<u8>>::new(), "{name}");
    }
}

#[test]
fn the_echoed_token_connects_with_the_packet_of_the_handshake() {
    let handshake = vector("handshake");
    let (mut now, host) = (Instant::now(), path("198.51.100.1:29471"));
    let mut punch = Punch::new(Config::default(), [1; 32], now);
    punch.dial(now, anywire_punch::DialId(1), vec![host.remote], common::MS(8_000));
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    punch.poll_transmit(now, &mut out);
    let hello = out.remove(0).1;
    // The vector's packets with the token this machine drew.
    let own = |packet: &serde_json::Value| {
        let token = bytes(&handshake["inputs"]["joiner_token"]);
        let packet = bytes(packet);
        assert_eq!(packet[np1::HEADER..], token);
        [&packet[..np1::HEADER], &hello[np1::HEADER..]].concat()
    };
    assert_eq!(hello, own(&handshake["inputs"]["received"]));
    now += common::MS(10);
    let ack = own(&handshake["expect"]["reply"]);
    punch.handle_packet(now, host, Packet::parse(&ack).unwrap()).unwrap();
    punch.poll_transmit(now, &mut out);
    assert_eq!(out, [(host, own(&handshake["expect"]["then_joiner_sends"]))]);
}
