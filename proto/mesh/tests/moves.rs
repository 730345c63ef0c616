//! Any inputs in any order.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anywire_mesh::{Event, Mesh, Role};
use bytes::BytesMut;
use common::{drain, envelope, frame, new, path, roster};
use proptest::prelude::*;
use seam::Path;

/// Anything a member may throw at a joiner.
#[derive(Clone, Debug)]
enum Move {
    Frame(u16),
    Envelope(u16, usize, usize),
    Junk(u16, Vec<u8>),
    Hi(u16, usize),
    Opened(usize, u16),
    Failed(usize),
    Roster(Vec<usize>, usize),
    Rekey(u16, u16),
    Host(Option<u16>),
    Heard(u16),
    Local,
    Wait(u64),
}

const NAMES: [&str; 8] = ["h", "me", "b", "c", "d", "me2", "", "z"];

fn moves() -> impl Strategy<Value = Move> {
    let port = 1..8u16;
    let name = 0..NAMES.len();
    prop_oneof![
        port.clone().prop_map(Move::Frame),
        (port.clone(), name.clone(), name.clone()).prop_map(|(p, to, from)| Move::Envelope(p, to, from)),
        (port.clone(), prop::collection::vec(any::<u8>(), 0..12)).prop_map(|(p, bytes)| Move::Junk(p, bytes)),
        (port.clone(), name.clone()).prop_map(|(p, n)| Move::Hi(p, n)),
        (name.clone(), port.clone()).prop_map(|(n, p)| Move::Opened(n, p)),
        name.clone().prop_map(Move::Failed),
        (prop::collection::vec(name.clone(), 0..8), name).prop_map(|(players, me)| Move::Roster(players, me)),
        (port.clone(), port.clone()).prop_map(|(a, b)| Move::Rekey(a, b)),
        prop::option::of(port.clone()).prop_map(Move::Host),
        port.prop_map(Move::Heard),
        Just(Move::Local),
        (0..40_000u64).prop_map(Move::Wait),
    ]
}

fn make(mesh: &mut Mesh, now: Instant, step: &Move) {
    match step {
        Move::Frame(port) => {
            let _ = mesh.handle_frame(now, path(*port), frame("x"));
        }
        Move::Envelope(port, to, from) => {
            let _ = mesh.handle_envelope(now, path(*port), envelope(NAMES[*to], NAMES[*from], b"gx"));
        }
        Move::Junk(port, bytes) => {
            let _ = mesh.handle_envelope(now, path(*port), BytesMut::from(bytes.as_slice()));
        }
        Move::Hi(port, name) => {
            let _ = mesh.handle_hi(now, path(*port), NAMES[*name]);
        }
        Move::Opened(name, port) => mesh.link_opened(now, NAMES[*name], path(*port)),
        Move::Failed(name) => mesh.dial_failed(now, NAMES[*name]),
        Move::Roster(players, me) => {
            let mut players: Vec<&str> = players.iter().map(|name| NAMES[*name]).collect();
            players.push(NAMES[*me]);
            roster(mesh, now, NAMES[*me], &players.join(" "), &["b: c d me", "c: d"]);
        }
        Move::Rekey(old, new) => mesh.rekey(now, path(*old), path(*new)),
        Move::Host(port) => mesh.host_link(now, port.map(path)),
        Move::Heard(port) => mesh.heard(now, path(*port)),
        Move::Local => mesh.local_frame(now, frame("y")),
        Move::Wait(_) => {}
    }
}

proptest! {
    /// Whatever comes: links go up and down in turn, one path for each name, no player is sent a frame twice, and time
    /// passes.
    #[test]
    fn no_order_of_inputs_breaks_the_table(steps in prop::collection::vec(moves(), 1..80)) {
        let (mut mesh, mut now) = new(Role::Joiner { mesh: true });
        let mut held: BTreeMap<String, Path> = BTreeMap::new();
        let mut dials: BTreeSet<String> = BTreeSet::new();
        for step in &steps {
            if let Move::Wait(wait) = step {
                now += Duration::from_millis(*wait);
            }
            make(&mut mesh, now, step);
            if let Move::Rekey(old, new) = step {
                held.values_mut().filter(|held| **held == path(*old)).for_each(|held| *held = path(*new));
            }
            for round in 0.. {
                prop_assert!(round < 3, "time stands still at {:?}", mesh.poll_timeout());
                let (sends, events) = drain(&mut mesh);
                for send in sends {
                    let once: BTreeSet<_> = send.to.iter().collect();
                    prop_assert_eq!(once.len(), send.to.len());
                    prop_assert!(!send.to.is_empty());
                }
                for event in events {
                    match event {
                        Event::LinkUp { name, path } => prop_assert_eq!(held.insert(name, path), None),
                        Event::LinkDown { name, path, .. } => prop_assert_eq!(held.remove(&name), Some(path)),
                        Event::Dial { name, .. } => prop_assert!(dials.insert(name)),
                        Event::CancelDial { name } => prop_assert!(dials.remove(&name) || name.is_empty()),
                        Event::Deliver { .. } | Event::Direct(_) | Event::Oversize { .. } => {}
                    }
                }
                if let Move::Opened(name, _) | Move::Failed(name) = step {
                    dials.remove(NAMES[*name]);
                }
                if mesh.poll_timeout().is_none_or(|(at, _)| at > now) {
                    break;
                }
                mesh.handle_timeout(now);
            }
        }
    }
}
