//! Backup links under greetings and frames that are whole, torn, copied and hostile.

#![no_main]

use std::collections::BTreeSet;
use std::time::Instant;

use anywire_fuzz::{Machine, Script, member, remote, settle};
use libfuzzer_sys::fuzz_target;
use link::{ARRIVALS_MAX, Config, Event, FRAME_MAX, Links, STREAMS_MAX, Via, frame, hello};
use seal::{Opener, Sealer, SessionKey};
use seam::{ACCEPTED, Dice, Path, StreamAsk, StreamEnd, StreamId};

struct Side {
    links: Links,
    open: BTreeSet<StreamId>,
    dialled: Vec<StreamId>,
    packets: usize,
    up: BTreeSet<Path>,
}

impl Machine for Side {
    fn drain(&mut self, now: Instant) -> usize {
        let mut drained = 0;
        while let Some(ask) = self.links.poll_stream(now) {
            drained += 1;
            match ask {
                StreamAsk::Dial { stream, .. } => self.dialled.push(stream),
                StreamAsk::Write { stream, bytes } => {
                    assert!(self.open.contains(&stream), "writes to a stream that is not open");
                    assert!(bytes.len() <= FRAME_MAX + 2);
                }
                StreamAsk::Close { stream } => {
                    self.open.remove(&stream);
                }
                other => panic!("asks for {other:?}"),
            }
        }
        while let Some((_, packet)) = self.links.poll_packet() {
            drained += 1;
            self.packets += 1;
            assert!(!packet.is_empty() && packet.len() <= FRAME_MAX);
        }
        while let Some(event) = self.links.poll_event() {
            drained += 1;
            match event {
                Event::Up { path, .. } => assert!(self.up.insert(path), "up twice"),
                Event::Down { path } => assert!(self.up.remove(&path), "down, and was not up"),
                Event::Log(line) => assert!(line.len() < 400 && !line.contains('\n')),
                _ => {}
            }
        }
        drained
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.links.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.links.handle_timeout(now);
    }
}

fuzz_target!(|input: &[u8]| {
    let key = SessionKey::from_bytes([3; 32]);
    let mut now = Instant::now();
    let mut script = Script::new(input);
    let (mut own, mut theirs) = (Sealer::new(&key, Dice::new([1; 32])), Sealer::new(&key, Dice::new([2; 32])));
    let mut opener = Opener::new(&key);
    let config = Config { name: "ada".to_owned(), port: Some(29_471) };
    let links = Links::new(config, 0, now);
    let mut side = Side { links, open: BTreeSet::new(), dialled: Vec::new(), packets: 0, up: BTreeSet::new() };
    let mut accepted = 0;
    let mut lines: Vec<Vec<u8>> = Vec::new();
    while let Some(kind) = script.next_move() {
        let path = member(script.below(5));
        let stream = pick(&side, &mut script);
        match kind % 14 {
            0 => now += script.step(),
            1 => {
                let names = [script.text(), script.text()];
                let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
                side.links.set_peer(now, path, &names);
            }
            2 => {
                side.links.remove_peer(path);
                side.up.remove(&path);
            }
            3 => {
                let id = StreamId(ACCEPTED + accepted);
                accepted += 1;
                side.open.insert(id);
                side.links.handle_accepted(now, id, remote(script.below(5)));
                assert!(side.open.len() <= STREAMS_MAX + 1);
            }
            4 => {
                let line = match script.byte() % 3 {
                    0 => lines.get(script.below(lines.len())).cloned().unwrap_or_default(),
                    _ => hello(&script.text(), &mut theirs),
                };
                let cut = line.len().min(usize::from(script.byte()) * 2 + 1);
                lines.push(line.clone());
                for part in [&line[..cut], &line[cut..]] {
                    side.links.handle_bytes(now, stream, part, &mut opener);
                }
            }
            5 | 6 => side.links.handle_bytes(now, stream, script.bytes(), &mut opener),
            7 => {
                let bytes = frame(script.bytes()).unwrap_or_default();
                side.links.handle_bytes(now, stream, &bytes, &mut opener);
            }
            8 => {
                if let Some(id) = side.dialled.pop() {
                    if script.flag() {
                        side.open.insert(id);
                        side.links.handle_connected(now, id, &mut own);
                    } else {
                        side.links.handle_closed(now, id, StreamEnd::Refused);
                    }
                }
            }
            9 => {
                side.open.remove(&stream);
                side.links.handle_closed(now, stream, StreamEnd::Broken);
            }
            10 => side.links.handle_full(stream, script.flag()),
            11 => side.links.send(path, script.bytes()),
            12 => {
                let via = if script.flag() { Via::Udp } else { Via::Tcp };
                side.links.heard(now, path, [script.byte(); 4], u32::from(script.byte()), via);
            }
            _ => {
                let new = member(5 + script.below(3));
                if !side.up.contains(&new) && !side.links.is_up(new) {
                    side.links.remove_peer(new);
                    side.links.rekey(path, new);
                    if side.up.remove(&path) {
                        side.up.insert(new);
                    }
                }
            }
        }
        let before = side.packets;
        settle(&mut side, now);
        assert!(side.packets - before <= ARRIVALS_MAX);
        assert!(side.up.iter().all(|path| side.links.is_up(*path)), "said to be up and is not");
    }
});

fn pick(side: &Side, script: &mut Script<'_>) -> StreamId {
    let n = script.below(side.open.len());
    side.open.iter().nth(n).copied().unwrap_or(StreamId(0))
}
