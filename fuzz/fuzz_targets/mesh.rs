//! The routing of game frames, at a host, a relay and a joiner.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anywire_fuzz::words::plain_name;
use anywire_fuzz::{Machine, Script, member, settle};
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mesh::{Config, Event, Mesh, Outgoing, Role, RosterView, Seat, Send, Stats};
use seam::{Path, Slots};

const GAME: &[u8] = b"own game";

struct Part {
    mesh: Mesh,
    is_host: bool,
    /// Dials under way.
    dials: BTreeSet<String>,
    /// The path that each player's frames go.
    up: BTreeMap<String, Path>,
    /// Where the input in hand came from.
    from: Option<Path>,
    /// Who was sent a copy of the own frame in hand.
    copies: BTreeSet<String>,
    is_own: bool,
    /// The address that changes just now, from and to.
    moving: Option<(Path, Path)>,
}

impl Machine for Part {
    fn drain(&mut self, _now: Instant) -> usize {
        let mut count = 0;
        while let Some(send) = self.mesh.poll_send() {
            self.send(&send);
            count += 1;
        }
        while let Some(event) = self.mesh.poll_event() {
            self.event(event);
            count += 1;
        }
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.mesh.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        // What a timer does answers nobody.
        (self.from, self.is_own) = (None, false);
        self.mesh.handle_timeout(now);
    }
}

impl Part {
    fn send(&mut self, send: &Send) {
        let distinct: BTreeSet<&Path> = send.to.iter().collect();
        assert!(!send.to.is_empty() && distinct.len() == send.to.len(), "twice to one path");
        let is_answer = matches!(send.payload, Outgoing::Hi(_));
        assert!(is_answer || self.from.is_none_or(|from| !send.to.contains(&from)), "a frame goes back");
        match &send.payload {
            Outgoing::Game(frame) => {
                assert!(self.is_own || *frame != GAME || self.is_host);
                for path in send.to.iter().filter(|_| self.is_own) {
                    assert!(self.copies.insert(path.remote.to_string()), "two copies on one path");
                }
            }
            Outgoing::Envelope { to, from, frame } => {
                assert!(np1::Envelope::head(to, from).is_ok(), "names that fit no envelope");
                assert!(frame.len() <= np1::GAME_FRAME_MAX);
                assert!(!self.is_own || self.copies.insert(to.to_string()), "two copies for {to}");
            }
            Outgoing::Raw(payload) => assert!(np1::Envelope::parse(payload).is_ok()),
            Outgoing::Hi(name) => assert!(!name.is_empty()),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Dial { name, .. } => assert!(self.dials.insert(name), "dialled twice at once"),
            Event::CancelDial { name } => assert!(self.dials.remove(&name), "{name} is not being dialled"),
            Event::LinkUp { name, path } => {
                assert!(!self.up.values().any(|held| *held == path), "two players on {path:?}");
                assert_eq!(self.up.insert(name, path), None, "up twice");
            }
            Event::LinkDown { name, path, .. } => {
                let held = self.up.remove(&name);
                let moved = self.moving.is_some_and(|(old, new)| held == Some(old) && path == new);
                assert!(held == Some(path) || moved, "{name} down on {path:?}, but up on {held:?}");
            }
            Event::Direct(names) => {
                assert!(names.is_sorted() && names.iter().all(|name| self.up.contains_key(name)));
            }
            _ => {}
        }
        assert!(self.dials.len() <= 512 && self.up.len() <= 256);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut script = Script::new(input);
    let role = match script.below(4) {
        0 => Role::Host { relay_only: false },
        1 => Role::Host { relay_only: true },
        2 => Role::Joiner { mesh: true },
        _ => Role::Joiner { mesh: false },
    };
    let mut now = Instant::now();
    let mut part = Part {
        mesh: Mesh::new(Config { role }, [8; 32], now),
        is_host: matches!(role, Role::Host { .. }),
        dials: BTreeSet::new(),
        up: BTreeMap::new(),
        from: None,
        copies: BTreeSet::new(),
        is_own: false,
        moving: None,
    };
    let mut deadline = None;
    while let Some(kind) = script.next_move() {
        (part.from, part.is_own) = (None, false);
        match kind % 8 {
            0 => now += script.step(),
            1 => now = deadline.map_or(now, |at: Instant| at.max(now)),
            2 if part.is_host => members(&mut part, now, &mut script),
            2 => rosters(&mut part, now, &mut script),
            3 => {
                part.is_own = true;
                part.copies.clear();
                let frame = if kind & 8 == 0 { GAME } else { &[b'x'; 1_401] };
                let before = part.mesh.stats();
                part.mesh.local_frame(now, BytesMut::from(frame));
                counted(&before, &part.mesh.stats(), frame.len());
            }
            4 => {
                let from = member(script.below(6));
                part.from = Some(from);
                let _ = part.mesh.handle_frame(now, from, BytesMut::from(script.short()));
            }
            5 => envelope(&mut part, now, &mut script),
            6 => links(&mut part, now, &mut script),
            _ => {
                let (old, new) = (member(script.below(6)), member(script.below(6)));
                part.mesh.rekey(now, old, new);
                part.moving = Some((old, new)).filter(|_| !part.is_host);
                part.drain(now);
                // Whoever composes said it, and needs no event.
                if let Some((old, new)) = part.moving.take()
                    && let Some(path) = part.up.values_mut().find(|path| **path == old)
                {
                    *path = new;
                }
            }
        }
        part.drain(now);
        (part.from, part.is_own) = (None, false);
        deadline = settle(&mut part, now);
    }
});

fn counted(before: &Stats, after: &Stats, len: usize) {
    let oversize = u64::from(len > np1::GAME_FRAME_MAX);
    assert_eq!(after.oversize, before.oversize + oversize);
    assert_eq!(after.local, before.local + 1 - oversize);
}

fn members(part: &mut Part, now: Instant, script: &mut Script<'_>) {
    let (name, path) = (plain_name(script), member(script.below(6)));
    match script.below(5) {
        0 => part.mesh.member_joined(now, &name, path, script.flag()),
        1 => part.mesh.member_left(now, path),
        2 => part.mesh.rename(now, path, &name),
        3 => part.mesh.set_me(now, &name),
        _ => part.mesh.set_leader(now, script.flag().then_some(name.as_str())),
    }
}

fn rosters(part: &mut Part, now: Instant, script: &mut Script<'_>) {
    let names: Vec<String> = (0..script.below(7)).map(|_| plain_name(script)).collect();
    let me = names.first().cloned().unwrap_or_default();
    let host = names.get(script.below(8)).map(String::as_str);
    let links: Slots = (0..7).take(script.below(7)).collect();
    let bits = script.byte();
    let profile = if bits & 1 == 0 { "ABVLCO4A" } else { "ABVLCO4B" };
    let players = names.iter().zip(0..=u8::MAX).map(|(name, slot)| {
        let profile = (slot >= bits & 3).then_some(profile);
        let links = if slot >= bits >> 6 { links } else { Slots::EMPTY };
        (name.as_str(), Seat { slot, profile, links })
    });
    let view = RosterView { me: &me, host, relay: bits & 2 != 0, players: players.collect() };
    part.mesh.roster(now, &view);
}

fn envelope(part: &mut Part, now: Instant, script: &mut Script<'_>) {
    let from = member(script.below(6));
    part.from = Some(from);
    let payload = if script.flag() {
        let (to, by) = (plain_name(script), plain_name(script));
        let inner = [b"g", script.short()].concat();
        np1::Envelope { to: &to, from: &by, inner: &inner }.write().unwrap_or_default()
    } else {
        script.short().to_vec()
    };
    let _ = part.mesh.handle_envelope(now, from, BytesMut::from(payload.as_slice()));
}

fn links(part: &mut Part, now: Instant, script: &mut Script<'_>) {
    let (path, name) = (member(script.below(6)), plain_name(script));
    match script.below(5) {
        0 => part.mesh.heard(now, path),
        1 => {
            let _ = part.mesh.handle_hi(now, path, &name);
        }
        2 => {
            part.dials.remove(&name);
            part.mesh.link_opened(now, &name, path);
        }
        3 => {
            part.dials.remove(&name);
            part.mesh.dial_failed(now, &name);
        }
        _ => part.mesh.host_link(now, script.flag().then_some(path)),
    }
}
