//! NetherNet discovery: packets, envelopes, and the machine under a script of datagrams.

#![no_main]

use std::time::Instant;

use anywire_fuzz::{Batch, Machine, Script, member, settle};
use libfuzzer_sys::fuzz_target;
use nethernet::discovery::{Ask, Config, Discovery, Event, Interface, SHARED_V4};
use nethernet::envelope::{APP_ID, Key};
use nethernet::packet::{APPLICATION_MAX, Packet, application_data, response_text};
use seam::Path;

struct Node {
    discovery: Discovery,
    asks: Vec<Ask>,
    room: usize,
}

impl Machine for Node {
    fn drain(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(event) = self.discovery.poll_event() {
            if let Event::Asked { ask, .. } = event {
                self.asks.push(ask);
            }
            count += 1;
        }
        while let Some(signal) = self.discovery.poll_signal() {
            assert!(nethernet::Signal::parse(&signal.text).is_ok(), "noise passed on as a signal");
            count += 1;
        }
        loop {
            let mut batch = Batch::new(self.room);
            let through = self.discovery.poll_transmit(now, &mut batch);
            count += batch.sent.len();
            for (_, bytes) in &batch.sent {
                let mut bytes = bytes.clone();
                let plaintext = Key::from_app_id(APP_ID).open(&mut bytes);
                assert!(plaintext.is_ok_and(|text| Packet::parse(text).is_ok()), "sent what nobody can read");
            }
            if through {
                return count;
            }
        }
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.discovery.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.discovery.handle_timeout(now);
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(packet) = Packet::parse(input) {
        if let Ok(written) = packet.encode() {
            assert_eq!(Packet::parse(&written), Ok(packet));
        }
        if let Packet::Response { data, .. } = packet {
            let meant = application_data(data);
            assert!(meant.len() > APPLICATION_MAX || response_text(&meant).is_ok());
        }
    }
    assert!(Key::from_app_id(APP_ID).open(&mut input.to_vec()).is_err() || input.len() >= 48);
    story(&mut Script::new(input));
});

/// Moves of strangers, of the application and of the clock.
fn story(script: &mut Script<'_>) {
    let key = Key::from_app_id(APP_ID);
    let mut now = Instant::now();
    let mut config = Config::default();
    config.probe = script.flag();
    config.trace = script.flag();
    let mut node =
        Node { discovery: Discovery::new(config, [7; 32], now), asks: Vec::new(), room: script.below(4) + 1 };
    node.discovery.set_interfaces(now, [Interface::V4([10, 0, 0, 255].into()), Interface::V6(2)]);
    for id in 1..=2 {
        assert!(node.discovery.open(now, id).is_ok());
    }
    while let Some(letter) = script.next_move() {
        let (from, id) = (member(script.below(6)), u64::from(script.byte() % 4));
        match letter % 8 {
            0 => {
                let raw = script.bytes();
                let _refused = node.discovery.handle_datagram(now, from, raw.into());
            }
            1 => {
                let sealed = key.seal(script.bytes());
                let path = Path::new(SHARED_V4, from.remote);
                let _refused = node.discovery.handle_datagram(now, path, sealed[..].into());
            }
            2 | 3 => {
                let (sender, data) = (u64::from(script.byte() % 8), script.short());
                let packet = match letter % 3 {
                    0 => Packet::Request { sender },
                    1 => Packet::Response { sender, data },
                    _ => Packet::Message { sender, recipient: id, data },
                };
                if let Ok(packet) = packet.encode() {
                    let _refused = node.discovery.handle_datagram(now, from, key.seal(&packet)[..].into());
                }
            }
            4 => drop(node.discovery.advertise(now, id, script.flag())),
            5 => drop(node.discovery.discover(now, id, script.flag())),
            6 => drop(node.discovery.signal(now, id, u64::from(script.byte() % 8), &script.text())),
            _ => {
                if let Some(ask) = node.asks.pop() {
                    let _ = node.discovery.answer(now, ask, script.short());
                }
            }
        }
        settle(&mut node, now);
        now += script.step();
        settle(&mut node, now);
    }
}
