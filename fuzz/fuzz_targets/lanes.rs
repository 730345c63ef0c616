//! Two ends of a link on a carrier that loses, repeats and reorders, and a peer that writes what it likes.

#![no_main]

use std::collections::BTreeMap;
use std::time::Instant;

use anywire_fuzz::{Machine, Script, settle};
use bytes::Bytes;
use lanes::control::{Control, Mark};
use lanes::{Config, Event, FRAME_MAX, Frame, Lanes};
use libfuzzer_sys::fuzz_target;
use seam::{Channel, Delivery};

struct LinkEnd {
    link: Lanes,
    /// Written and not delivered yet.
    air: Vec<Vec<u8>>,
    /// Number of the newest packet of each channel and delivery.
    newest: BTreeMap<(u8, Delivery), u32>,
    next: BTreeMap<(u8, Delivery), u32>,
    honest: bool,
    ended: bool,
}

impl Machine for LinkEnd {
    fn drain(&mut self, now: Instant) -> usize {
        let (mut frame, mut count) = (Vec::new(), 0);
        while self.link.poll_frame(now, &mut frame) {
            assert!(frame.len() <= FRAME_MAX && Frame::parse(&frame).is_some());
            count += 1;
            if self.air.len() < 400 {
                self.air.push(frame.clone());
            }
        }
        while let Some(event) = self.link.poll_event() {
            count += 1;
            assert!(!self.ended, "nothing follows the end");
            match event {
                Event::Packet { channel, delivery, data } if self.honest => {
                    let number = data.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                    let before = self.newest.insert((channel.0, delivery), number);
                    match delivery {
                        Delivery::Reliable => assert_eq!(number, before.map_or(0, |before| before + 1)),
                        Delivery::UnreliableOrdered => assert!(before.is_none_or(|before| before < number)),
                        Delivery::Unreliable => {}
                    }
                }
                Event::Ended(_) => self.ended = true,
                _ => {}
            }
        }
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.link.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.link.handle_timeout(now);
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(Some(control)) = Control::parse(input) {
        assert_eq!(Control::parse(&control.to_bytes()), Ok(Some(control)));
    }
    if let Some((mark, len)) = Mark::read(input) {
        let mut written = Vec::new();
        mark.write(&mut written);
        assert_eq!(written, input[..len]);
    }
    let mut now = Instant::now();
    let mut script = Script::new(input);
    let mut ends = [1, 2].map(|seed| LinkEnd {
        link: Lanes::new(Config::default(), [seed; 32], now),
        air: vec![],
        newest: BTreeMap::new(),
        next: BTreeMap::new(),
        honest: true,
        ended: false,
    });
    while let Some(kind) = script.next_move() {
        let here = usize::from(kind >> 7);
        match kind & 7 {
            0 => now += script.step(),
            1 => {
                if let Some(at) = ends[here].deadline().map(|(at, _)| at) {
                    now = now.max(at);
                }
            }
            2 | 3 => {
                let channel = script.byte() % 4;
                let delivery =
                    [Delivery::Reliable, Delivery::Unreliable, Delivery::UnreliableOrdered][script.below(3)];
                let number = ends[here].next.entry((channel, delivery)).or_default();
                let mut data = number.to_be_bytes().to_vec();
                data.resize(4 + script.below(5_000), 0);
                if ends[here].link.send(now, Channel(channel), delivery, &Bytes::from(data)).is_ok() {
                    *number += 1;
                }
            }
            4..=6 => {
                let air = &mut ends[1 - here].air;
                if !air.is_empty() {
                    let at = script.below(air.len());
                    let frame = if kind & 8 == 0 { air.remove(at) } else { air[at].clone() };
                    let taken = ends[here].link.handle_frame(now, &frame.into());
                    assert!(!ends[0].honest || taken != Err(seam::Refused::Malformed));
                }
            }
            _ => {
                // A frame of a peer that writes what it likes, under the other end's name, or a real one spoiled.
                let mut frame = script.bytes().to_vec();
                if kind & 8 != 0
                    && let Some(real) = ends[1 - here].air.first()
                {
                    frame = real.clone();
                    let (at, with) = (script.below(frame.len()), script.byte());
                    frame[at] ^= with;
                }
                ends.iter_mut().for_each(|end| end.honest = false);
                let _ = ends[here].link.handle_frame(now, &frame.into());
            }
        }
        for end in &mut ends {
            settle(end, now);
        }
        if !ends.iter().all(|end| end.honest) {
            // From here on anything may be said; nothing may break.
            ends.iter_mut().for_each(|end| end.newest.clear());
        }
    }
});
