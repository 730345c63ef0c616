//! Two bridges and a stranger on one carrier that loses, repeats and reorders.

#![no_main]

use std::collections::BTreeMap;
use std::time::Instant;

use anywire_fuzz::{Batch, Machine, Script, settle};
use bridge::{Body, Bridge, Config, DATAGRAM_MAX, Datagram, Event, Header, PENDING_MAX, SENDERS_MAX};
use libfuzzer_sys::fuzz_target;
use seam::{Path, SocketId};

const WORLD: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

struct End {
    bridge: Bridge,
    peer: Path,
    /// Written and not delivered yet.
    air: Vec<Vec<u8>>,
    room: usize,
    texts: u32,
    /// Number of the newest text that came from each honest sender.
    newest: BTreeMap<u32, u32>,
    honest: Vec<u32>,
}

impl Machine for End {
    fn drain(&mut self, now: Instant) -> usize {
        let mut batch = Batch::new(self.room);
        let mut count = 0;
        while self.bridge.poll_transmit(now, &mut batch) {}
        for (path, datagram) in batch.sent {
            assert!(path == self.peer && datagram.len() <= DATAGRAM_MAX);
            let read = Datagram::parse(&datagram).expect("what is sent is read");
            assert_eq!(read.header.session, self.bridge.session());
            count += 1;
            if self.air.len() < 400 {
                self.air.push(datagram);
            }
        }
        while let Some(event) = self.bridge.poll_event() {
            count += 1;
            let Event::Text { session, text } = event else { continue };
            if self.honest.contains(&session) {
                let number = text.split(':').next().and_then(|n| n.parse().ok()).expect("whole texts only");
                let before = self.newest.insert(session, number);
                assert!(before.is_none_or(|before| before < number), "{before:?} and then {number}");
            }
        }
        assert!(self.bridge.pending() <= PENDING_MAX && self.bridge.senders().len() <= SENDERS_MAX);
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.bridge.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.bridge.handle_timeout(now);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut now = Instant::now();
    let mut script = Script::new(input);
    let peer = Path::new(SocketId(1), ([127, 0, 0, 1], 7_773).into());
    let mut ends = [1, 2].map(|seed| {
        let bridge = Bridge::new(Config { world: WORLD, peer }, [seed; 32], now);
        End { bridge, peer, air: vec![], room: 64, texts: 0, newest: BTreeMap::new(), honest: vec![] }
    });
    let honest: Vec<u32> = ends.iter().map(|end| end.bridge.session()).collect();
    ends.iter_mut().for_each(|end| end.honest.clone_from(&honest));
    while let Some(kind) = script.next_move() {
        let here = usize::from(kind >> 7);
        match kind & 7 {
            0 => now += script.step(),
            1 => {
                if let Some(at) = ends[here].deadline().map(|(at, _)| at) {
                    now = now.max(at);
                }
            }
            2 => {
                let end = &mut ends[here];
                let text = format!("{}:{}", end.texts, script.text().repeat(1 + script.below(40)));
                end.texts += 1;
                assert_eq!(end.bridge.send_event(now, &text).is_err(), text.contains('\0'));
            }
            3 | 4 => {
                let air = &mut ends[1 - here].air;
                if !air.is_empty() {
                    let at = script.below(air.len());
                    let datagram = if kind & 8 == 0 { air.remove(at) } else { air[at].clone() };
                    let taken = ends[here].bridge.handle_datagram(now, peer, &datagram);
                    assert_ne!(taken, Err(seam::Refused::Malformed));
                }
            }
            5 => forge(&mut ends[here], now, &mut script, &honest),
            6 => raw(&mut ends[here], now, script.bytes(), &honest),
            _ => ends[here].room = 1 + script.below(64),
        }
        for end in &mut ends {
            if end.room > 8 {
                settle(end, now);
            } else {
                end.drain(now);
            }
        }
    }
});

/// A well-formed datagram of somebody else.
fn forge(end: &mut End, now: Instant, script: &mut Script<'_>, honest: &[u32]) {
    let session = u32::from(script.byte() % 200) + 1;
    let ack_session = if script.flag() { honest[script.below(2)] } else { script.u32() };
    let (seq, ack, ack_bits) = (script.u32(), script.u32(), script.u32());
    let ack = (ack != u32::MAX).then_some(ack);
    let header = Header { world: WORLD, session, ack_session, seq, ack, ack_bits };
    let text = script.short();
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let body = if script.flag() {
        Body::Event { index: u16::from(script.byte() % 4), count: script.u16(), text }
    } else {
        Body::Keepalive
    };
    let datagram = Datagram { header, body };
    let mut out = vec![0; datagram.size()];
    assert_eq!(datagram.write(&mut out), out.len());
    if let Ok(read) = Datagram::parse(&out) {
        assert_eq!(read, datagram);
    }
    let _ = end.bridge.handle_datagram(now, end.peer, &out);
}

/// Anything, unless it happens to speak for one of the two.
fn raw(end: &mut End, now: Instant, bytes: &[u8], honest: &[u32]) {
    if let Ok(read) = Datagram::parse(bytes) {
        assert!(read.size() <= bytes.len());
        if honest.contains(&read.header.session) {
            return;
        }
    }
    let _ = end.bridge.handle_datagram(now, end.peer, bytes);
}
