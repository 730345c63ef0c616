//! Shorthand for tests of one machine.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "a test may read the clock once and fail, and none needs all of this"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;

use anywire_mesh::{Config, Event, Mesh, Outgoing, Role, RosterView, Seat, Send};
use bytes::{Bytes, BytesMut};
use seam::{Path, SocketId};

pub(crate) fn new(role: Role) -> (Mesh, Instant) {
    let now = Instant::now();
    (Mesh::new(Config { role }, [7; 32], now), now)
}

pub(crate) fn path(port: u16) -> Path {
    Path::new(SocketId(0), SocketAddr::from(([203, 0, 113, 1], port)))
}

pub(crate) fn frame(text: &str) -> BytesMut {
    BytesMut::from(text)
}

pub(crate) fn envelope(to: &str, from: &str, inner: &[u8]) -> BytesMut {
    BytesMut::from(np1::Envelope { to, from, inner }.write().unwrap().as_slice())
}

pub(crate) fn game(to: &[u16], text: &str) -> Send {
    let to = to.iter().map(|port| path(*port)).collect();
    Send { to, payload: Outgoing::Game(Bytes::copy_from_slice(text.as_bytes())) }
}

pub(crate) fn delivered(from: &str, text: &str) -> Event {
    Event::Deliver { from: Some(from.to_owned()), frame: Bytes::copy_from_slice(text.as_bytes()) }
}

pub(crate) fn sends(mesh: &mut Mesh) -> Vec<Send> {
    std::iter::from_fn(|| mesh.poll_send()).collect()
}

pub(crate) fn drain(mesh: &mut Mesh) -> (Vec<Send>, Vec<Event>) {
    (sends(mesh), std::iter::from_fn(|| mesh.poll_event()).collect())
}

/// The host's port.
pub(crate) const HOST: u16 = 100;

/// A roster whose every player but host `h` and `star` has a profile, and whose links are given as `a: b c`.
pub(crate) fn roster(mesh: &mut Mesh, now: Instant, me: &str, players: &str, links: &[&str]) {
    relayed(mesh, now, me, players, links, false);
}

pub(crate) fn relayed(mesh: &mut Mesh, now: Instant, me: &str, players: &str, links: &[&str], relay: bool) {
    let lines = links.iter().filter_map(|line| line.split_once(": "));
    let links: BTreeMap<&str, Vec<&str>> = lines.map(|(name, to)| (name, to.split(' ').collect())).collect();
    let names: BTreeSet<&str> = players.split(' ').collect();
    let slots: BTreeMap<&str, u8> = names.into_iter().zip(1..).collect();
    let reached = |name| links.get(name).into_iter().flatten().filter_map(|other| slots.get(other).copied()).collect();
    let players = slots.iter().map(|(&name, &slot)| {
        let profile = (!["h", "star"].contains(&name)).then_some(name);
        (name, Seat { slot, profile, links: reached(name) })
    });
    mesh.roster(now, &RosterView { me, host: Some(if relay { "b" } else { "h" }), relay, players: players.collect() });
}
