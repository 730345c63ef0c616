//! A sender and a receiver under words, chunks, greetings and answers of a disk that come in any order.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anywire_fuzz::{Batch, Machine, Script, member, remote, settle};
use libfuzzer_sys::fuzz_target;
use np1::Chunk;
use parcel::{
    Answer, Ask, Fault, Hello, Intake, Kind, Measured, Offer, ReceiveEvent, Receiver, Role, SAVE_NAMES, SendEvent,
    Sender, Shipment, Word,
};
use seam::{ACCEPTED, StreamEnd, StreamId};

const TOKEN: &str = "00112233445566778899aabbccddeeff";
const SID: u32 = 7;

struct Out {
    sender: Sender,
    asks: Vec<Ask>,
    room: usize,
    resolved: bool,
}

impl Machine for Out {
    fn drain(&mut self, now: Instant) -> usize {
        let mut drained = 0;
        while let Some(ask) = self.sender.poll_ask() {
            drained += 1;
            self.asks.push(ask);
        }
        while let Some((_, json)) = self.sender.poll_message() {
            drained += 1;
            assert!(Word::parse(&json).is_ok(), "says what it cannot read");
        }
        while self.sender.poll_stream().is_some() {
            drained += 1;
        }
        while let Some(event) = self.sender.poll_event() {
            drained += 1;
            if let SendEvent::Resolved(outcome) = event {
                assert!(!self.resolved, "resolved twice");
                self.resolved = true;
                assert!(outcome.done.len() + outcome.failed.len() + outcome.dropped <= 2);
            }
        }
        let mut batch = Batch::new(self.room);
        drained += usize::from(self.sender.poll_transmit(now, &mut batch));
        for (_, packet) in &batch.sent {
            let offer = self.sender.offer();
            let chunk = Chunk::parse(packet.get(np1::HEADER..).unwrap_or_default());
            let (Some(offer), Ok(chunk)) = (offer, chunk) else { panic!("sends what is no chunk") };
            assert_eq!(chunk.data.len(), offer.chunk_len(chunk.index));
        }
        drained
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.sender.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.sender.handle_timeout(now);
    }
}

struct In {
    receiver: Receiver,
    asks: Vec<Ask>,
    ended: usize,
}

impl Machine for In {
    fn drain(&mut self, _now: Instant) -> usize {
        let mut drained = 0;
        while let Some(ask) = self.receiver.poll_ask() {
            drained += 1;
            if let Ask::Write { at, data } = &ask {
                let end = at + u64::try_from(data.len()).unwrap_or(u64::MAX);
                assert!(end <= self.receiver.offer().total_bytes, "writes past the end");
            }
            self.asks.push(ask);
        }
        while let Some((_, json)) = self.receiver.poll_message() {
            drained += 1;
            assert!(Word::parse(&json).is_ok(), "says what it cannot read");
        }
        while self.receiver.poll_stream().is_some() {
            drained += 1;
        }
        while let Some(event) = self.receiver.poll_event() {
            drained += 1;
            self.ended += usize::from(matches!(event, ReceiveEvent::Ready | ReceiveEvent::Failed(_)));
            assert!(self.ended <= 1, "ends twice");
        }
        drained
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.receiver.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.receiver.handle_timeout(now);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut now = Instant::now();
    let mut script = Script::new(input);
    let Some(mut to) = receiver(now, &mut script) else { return };
    let mut from = sender(now, &mut script);
    while let Some(kind) = script.next_move() {
        match kind % 12 {
            0 => now += script.step(),
            1 | 2 => {
                if let Ok(word) = Word::parse(script.bytes()) {
                    from.sender.handle_word(now, member(script.below(3)), &word);
                    to.receiver.handle_word(now, &word);
                }
            }
            3 => {
                let base = u32::from(script.u16());
                let word = parcel::Feedback {
                    sid: SID,
                    base,
                    nack: script.short().iter().map(|n| base + u32::from(*n)).collect(),
                    verifying: script.flag(),
                    progress: script.flag().then(|| i64::from(script.byte())),
                };
                from.sender.handle_word(now, member(script.below(2)), &Word::Feedback(word));
            }
            4 | 5 => {
                let index = u32::from(script.byte());
                let exact = vec![script.byte(); to.receiver.offer().chunk_len(index)];
                let data = if script.flag() { script.bytes() } else { &exact };
                let _ = to.receiver.handle_chunk(now, &Chunk { sid: SID, index, data });
            }
            6 | 7 => {
                let which = script.byte() % 2 == 0;
                let (asks, n) = if which { (&mut from.asks, 0) } else { (&mut to.asks, 1) };
                if asks.is_empty() {
                    continue;
                }
                let ask = asks.remove(script.below(asks.len()));
                let answer = answer(&ask, &to.receiver, &mut script);
                match (answer, n) {
                    (Some(answer), 0) => from.sender.handle_answer(now, answer),
                    (Some(answer), _) => to.receiver.handle_answer(now, answer),
                    (None, _) => {}
                }
            }
            8 => {
                let hello = match Hello::parse(script.bytes()) {
                    Ok(hello) => hello,
                    Err(_) => Hello { role: Role::Receive, sid: SID, token: TOKEN.to_owned(), name: script.text() },
                };
                from.sender.handle_hello(StreamId(ACCEPTED + u64::from(script.byte())), &hello, remote(script.below(3)));
            }
            9 => {
                let stream = StreamId(u64::from(script.byte() % 4));
                match script.byte() % 3 {
                    0 => (from.sender.handle_connected(stream), to.receiver.handle_connected(now, stream)),
                    1 => (from.sender.handle_closed(now, stream), to.receiver.handle_closed(now, stream, StreamEnd::Broken)),
                    _ => {
                        let bytes = match script.byte() % 3 {
                            0 => parcel::ANSWER.to_vec(),
                            1 => parcel::PAIRED.to_vec(),
                            _ => script.bytes().to_vec(),
                        };
                        (from.sender.handle_bytes(stream, &bytes), to.receiver.handle_bytes(now, stream, &bytes))
                    }
                };
            }
            10 => {
                let stream = StreamId(u64::from(script.byte() % 4) + if script.flag() { ACCEPTED } else { 0 });
                let upto = u64::from(script.u16());
                let why = if script.flag() { StreamEnd::Closed } else { StreamEnd::Broken };
                let over = script.flag();
                let answer =
                    if over { Answer::StreamOver { stream, upto, why } } else { Answer::Arrived { stream, upto } };
                from.sender.handle_answer(now, answer.clone());
                to.receiver.handle_answer(now, answer);
            }
            _ => match script.byte() {
                0..100 => from.sender.remove(member(script.below(3))),
                100..110 => to.receiver.sender_gone(now),
                110..150 => from.sender.rekey(member(0), member(9)),
                _ => from.room = script.below(40),
            },
        }
        settle(&mut to, now);
        if from.room > 0 {
            settle(&mut from, now);
        }
        assert!(from.asks.len() < 200 && to.asks.len() < 4000);
    }
});

fn receiver(now: Instant, script: &mut Script<'_>) -> Option<In> {
    let offer = match Word::parse(script.bytes()) {
        Ok(Word::Offer(offer)) => *offer,
        _ => {
            let total_bytes = u64::from(script.u16());
            let chunk = 1 + u32::from(script.byte());
            let hash = "00".repeat(32);
            Offer {
                sid: SID,
                total_bytes,
                chunk,
                total_chunks: u32::try_from(total_bytes.div_ceil(u64::from(chunk))).ok()?,
                files: vec![parcel::OfferedFile { name: SAVE_NAMES[0].to_owned(), size: total_bytes, sha256: hash.clone() }],
                sha256: hash,
                kind: Kind::Save,
                mods: None,
                mods_unknown: true,
                batch: None,
                tcp: Some(parcel::TcpOffer { port: Some(1), token: TOKEN.to_owned(), addrs: Vec::new() }),
                aw_quic: None,
            }
        }
    };
    let intake = Intake { name: "lin".to_owned(), most_bytes: 1 << 20, tcp: Some(remote(1)), quic: None, first_stream: 0 };
    let receiver = Receiver::new(offer, member(0), intake, now).ok()?;
    Some(In { receiver, asks: Vec::new(), ended: 0 })
}

fn sender(now: Instant, script: &mut Script<'_>) -> Out {
    let shipment = Shipment {
        sid: SID,
        kind: Kind::Save,
        files: vec![("x".into(), SAVE_NAMES[0].to_owned())],
        mods: Some(Vec::new()),
        tcp: script.flag().then(|| (TOKEN.to_owned(), Some(1))),
        pipe: script.flag().then(|| (remote(4), [1; 32])),
        quic: None,
        first_stream: 0,
    };
    let sender = Sender::new(shipment, &[(member(0), "lin"), (member(1), "bob")], now);
    Out { sender, asks: Vec::new(), room: 64, resolved: false }
}

fn answer(ask: &Ask, receiver: &Receiver, script: &mut Script<'_>) -> Option<Answer> {
    if script.byte() == 255 {
        return Some(Answer::Failed(Fault::Full));
    }
    let files: BTreeMap<u8, [u8; 32]> = BTreeMap::from([(0, [script.byte() % 2; 32])]);
    Some(match ask {
        Ask::Measure { .. } => {
            // Now and then what a disk may hold and a test does not.
            let size = if script.byte() == 7 { u64::from(script.u32()) << 12 } else { u64::from(script.u16()) * 8 };
            Answer::Measured { files: vec![Measured { size, sha256: [1; 32] }], sha256: [1; 32], list: Arc::default() }
        }
        Ask::Read { at, len } => Answer::Data { at: *at, data: vec![1; *len].into() },
        Ask::Create { .. } => Answer::Created { upto: u64::from(script.u16()) * u64::from(script.flag()) },
        Ask::Write { at, data } => Answer::Written { at: *at, len: data.len() },
        Ask::Hash if script.flag() => Answer::Hashing { done: u64::from(script.byte()) },
        Ask::Hash => {
            let sha256 = [script.byte() % 2; 32];
            Answer::Hashed { files: receiver.offer().files.iter().map(|_| files[&0]).collect(), sha256 }
        }
        Ask::Commit => Answer::Committed,
        _ => return None,
    })
}
