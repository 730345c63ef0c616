//! The bytes of frames, control messages and marks: vectors, round trips, every truncation, hostile lengths.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]
#![allow(clippy::disallowed_methods, reason = "virtual time begins at a real instant")]

use std::path::Path;
use std::time::Instant;

use anywire_lanes::control::{Control, Mark, NAME_MAX, Player, TEXT_MAX, Why};
use anywire_lanes::{Ack, Config, Frame, HEADER, Header, Lanes, Message, Part};
use bytes::Bytes;
use proptest::prelude::*;
use seam::{Delivery, PeerId, Refused};
use serde_json::{Value, json};

fn vectors(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/vectors/lanes").join(file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn list<'a>(all: &'a Value, key: &str) -> impl Iterator<Item = (String, Vec<u8>, &'a Value)> {
    let items = all[key].as_array().unwrap();
    assert!(!items.is_empty());
    items.iter().map(|item| {
        let bytes = codec::unhex(item["bytes"].as_str().unwrap()).unwrap();
        (item["name"].as_str().unwrap().to_owned(), bytes, item)
    })
}

fn frame_json(frame: &mut Frame<'_>) -> Value {
    let header = frame.header;
    let mut messages = Vec::new();
    while let Some(message) = frame.message() {
        let message = message.unwrap();
        let delivery = match message.delivery {
            Delivery::Reliable => "reliable",
            Delivery::Unreliable => "unreliable",
            Delivery::UnreliableOrdered => "ordered",
        };
        let part = message.part.map(|part| [part.index, part.count]);
        messages.push(json!({"delivery": delivery, "channel": message.channel, "sequence": message.sequence,
            "more": message.more, "part": part, "data": codec::hex(message.data)}));
    }
    let ack =
        header.ack.map(|ack| json!({"number": ack.number, "gaps": format!("{:016x}", ack.gaps), "delay": ack.delay}));
    json!({"elicits": header.elicits, "from": header.from, "to": header.to, "number": header.number, "ack": ack,
        "messages": messages})
}

#[test]
fn the_vectors_of_frames_are_read_and_written_byte_for_byte() {
    let all = vectors("frames.json");
    for (name, bytes, wanted) in list(&all, "read") {
        let mut frame = Frame::parse(&bytes).unwrap();
        let got = frame_json(&mut frame.clone());
        for (key, value) in got.as_object().unwrap() {
            assert_eq!(value, &wanted[key], "{name}: {key}");
        }
        let mut written = frame.header.to_bytes().to_vec();
        while let Some(message) = frame.message() {
            message.unwrap().write(&mut written);
        }
        assert_eq!(written, bytes, "{name}");
    }
    for (name, bytes, _) in list(&all, "refused") {
        assert!(Frame::parse(&bytes).is_none(), "{name}");
    }
    for (name, bytes, _) in list(&all, "refused_messages") {
        let mut frame = Frame::parse(&bytes).unwrap();
        assert!(matches!(frame.message(), Some(Err(_))), "{name}");
        assert!(frame.message().is_none(), "{name}: nothing is read after it");
    }
}

#[test]
fn the_example_on_the_page_is_the_vector() {
    let page = include_str!("../../../docs/wire/lanes.md");
    let block = page.split("```lanes-frame").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let hex: String = block.split_whitespace().collect();
    let all = vectors("frames.json");
    let (_, bytes, _) = list(&all, "read").find(|(name, ..)| name == "three deliveries in one frame").unwrap();
    assert_eq!(codec::unhex(&hex).unwrap(), bytes);
}

fn control_json(control: &Control) -> Value {
    let player = |player: &Player| json!({"id": player.id.get(), "speaks": player.speaks, "linked": player.linked, "name": player.name});
    match control {
        Control::Hello { version, wanted, identity, name } => json!({"hello": {"version": version,
            "wanted": wanted.map(PeerId::get), "identity": codec::hex(identity), "name": name}}),
        Control::Welcome { you, players } => {
            json!({"welcome": {"you": you.get(), "players": players.iter().map(player).collect::<Vec<_>>()}})
        }
        Control::Refused(why, text) => json!({"refused": [format!("{why:?}").to_lowercase(), text]}),
        Control::Joined(joined) => json!({"joined": player(joined)}),
        Control::Left(id) => json!({"left": id.get()}),
        Control::Kicked(code, text) => json!({"kicked": [code, text]}),
        Control::Bye => json!({"bye": true}),
        Control::Trips(trips) => {
            json!({"trips": trips.iter().map(|(id, trip)| json!([id.get(), trip])).collect::<Vec<_>>()})
        }
    }
}

#[test]
fn the_vectors_of_control_messages_are_read_and_written_byte_for_byte() {
    let all = vectors("control.json");
    for (name, bytes, wanted) in list(&all, "read") {
        let control = Control::parse(&bytes).unwrap().unwrap();
        assert_eq!(control_json(&control), wanted["message"], "{name}");
        assert_eq!(control.to_bytes(), bytes, "{name}");
        let mut longer = bytes.clone();
        longer.extend([9; 5]);
        assert_eq!(Control::parse(&longer).unwrap(), Some(control), "{name}: what follows is for later versions");
        for end in 0..bytes.len() {
            assert!(Control::parse(&bytes[..end]).is_err(), "{name}, cut at {end}");
        }
    }
    for (name, bytes, _) in list(&all, "later") {
        assert_eq!(Control::parse(&bytes), Ok(None), "{name}");
    }
    for (name, bytes, _) in list(&all, "refused") {
        assert!(Control::parse(&bytes).is_err(), "{name}");
    }
}

#[test]
fn the_vectors_of_marks_are_read_and_written_byte_for_byte() {
    let all = vectors("marks.json");
    for (name, bytes, wanted) in list(&all, "read") {
        let (mark, len) = Mark::read(&[&bytes[..], b"rest"].concat()).unwrap();
        let got = match mark {
            Mark::Direct => json!(["direct"]),
            Mark::To(id) => json!(["to", id.get()]),
            Mark::ToAll => json!(["all"]),
            Mark::ToAllBut(id) => json!(["but", id.get()]),
            Mark::From(id) => json!(["from", id.get()]),
        };
        assert_eq!((got, len), (wanted["mark"].clone(), bytes.len()), "{name}");
        let mut written = Vec::new();
        mark.write(&mut written);
        assert_eq!(written, bytes, "{name}");
    }
    for bytes in all["refused"].as_array().unwrap() {
        assert_eq!(Mark::read(&codec::unhex(bytes.as_str().unwrap()).unwrap()), None, "{bytes}");
    }
}

#[test]
fn names_and_texts_are_cut_at_a_character() {
    let name = "é".repeat(NAME_MAX);
    let bytes = Control::Joined(Player { id: PeerId::HOST, speaks: true, linked: false, name }).to_bytes();
    let Ok(Some(Control::Joined(player))) = Control::parse(&bytes) else { panic!() };
    assert_eq!(player.name, "é".repeat(NAME_MAX / 2));
    let text = format!("a{}", "é".repeat(TEXT_MAX));
    let Ok(Some(Control::Kicked(_, said))) = Control::parse(&Control::Kicked(1, text.clone()).to_bytes()) else {
        panic!()
    };
    assert!(said.len() == TEXT_MAX - 1 && text.starts_with(&said));
}

#[test]
fn a_peer_that_breaks_the_rules_ends_the_link_and_nothing_else() {
    let now = Instant::now();
    let mut end = Lanes::new(Config::default(), [1; 32], now);
    let mut hello = Vec::new();
    assert!(end.poll_frame(now, &mut hello));
    let epoch = Frame::parse(&hello).unwrap().header.from;
    let frame = |number: u16, message: Message<'_>| {
        let mut out = Header { elicits: true, from: 7, to: epoch, number, ack: None }.to_bytes().to_vec();
        message.write(&mut out);
        Bytes::from(out)
    };
    let piece = |count| Message {
        delivery: Delivery::Unreliable,
        channel: 0,
        sequence: 0,
        more: false,
        part: Some(Part { index: 0, count }),
        data: b"x",
    };
    assert_eq!(end.handle_frame(now, &frame(0, piece(14))), Ok(()));
    // An acknowledgement of frames that were never sent changes nothing.
    let ack = Some(Ack { number: 40_000, gaps: u64::MAX, delay: u16::MAX });
    let wild = Header { elicits: false, from: 7, to: epoch, number: 1, ack }.to_bytes();
    assert_eq!(end.handle_frame(now, &Bytes::copy_from_slice(&wild)), Ok(()));
    assert_eq!(end.handle_frame(now, &frame(2, piece(u16::MAX))), Err(Refused::Malformed));
    assert_eq!(end.handle_frame(now, &frame(3, piece(2))), Err(Refused::Unexpected));
}

fn player() -> impl Strategy<Value = Player> {
    (1..=0x7FFF_FFFF_u32, any::<bool>(), any::<bool>(), "[a-zé ]{0,30}").prop_map(|(id, speaks, linked, name)| Player {
        id: PeerId::new(id).unwrap(),
        speaks,
        linked,
        name,
    })
}

fn control() -> impl Strategy<Value = Control> {
    let id = || (1..=0x7FFF_FFFF_u32).prop_map(|id| PeerId::new(id).unwrap());
    let why = prop_oneof![Just(Why::Taken), Just(Why::Closed), Just(Why::Banned), Just(Why::Full), Just(Why::Other)];
    prop_oneof![
        (any::<u8>(), proptest::option::of(id()), any::<[u8; 16]>(), "[a-zé]{0,30}")
            .prop_map(|(version, wanted, identity, name)| Control::Hello { version, wanted, identity, name }),
        (id(), proptest::collection::vec(player(), 0..20)).prop_map(|(you, players)| Control::Welcome { you, players }),
        (why, "[a-zé]{0,200}").prop_map(|(why, text)| Control::Refused(why, text)),
        player().prop_map(Control::Joined),
        id().prop_map(Control::Left),
        (any::<u32>(), "[a-zé]{0,200}").prop_map(|(code, text)| Control::Kicked(code, text)),
        Just(Control::Bye),
        proptest::collection::vec((id(), any::<u16>()), 0..20).prop_map(Control::Trips),
    ]
}

proptest! {
    #[test]
    fn control_messages_come_back_as_they_were(control in control()) {
        prop_assert_eq!(Control::parse(&control.to_bytes()), Ok(Some(control)));
    }

    #[test]
    fn frames_come_back_as_they_were(
        from in 1..=u16::MAX, to: u16, number: u16, elicits: bool, ack: Option<(u16, u64, u16)>,
        channel: u8, sequence: u16, class in 0..3_u8, flag: bool, data in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let delivery = [Delivery::Reliable, Delivery::Unreliable, Delivery::UnreliableOrdered][usize::from(class)];
        let ack = ack.map(|(number, gaps, delay)| Ack { number, gaps, delay });
        let header = Header { elicits, from, to, number, ack };
        let part = (class > 0 && flag).then_some(Part { index: 1, count: 5 });
        let message = Message { delivery, channel, sequence, more: class == 0 && flag, part, data: &data };
        let mut bytes = header.to_bytes().to_vec();
        message.write(&mut bytes);
        let mut frame = Frame::parse(&bytes).unwrap();
        prop_assert_eq!(frame.header, header);
        prop_assert_eq!(frame.message(), Some(Ok(message)));
        prop_assert!(frame.message().is_none());
        for end in 0..bytes.len() {
            let cut = Frame::parse(&bytes[..end]);
            prop_assert_eq!(cut.is_none(), end < HEADER);
            if let Some(mut cut) = cut.filter(|_| end > HEADER) {
                prop_assert!(matches!(cut.message(), Some(Err(_))));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Control::parse(&bytes);
        let _ = Mark::read(&bytes);
        let now = Instant::now();
        let mut end = Lanes::new(Config::default(), [1; 32], now);
        let _ = end.handle_frame(now, &Bytes::from(bytes));
        prop_assert!(end.poll_timeout().is_some());
    }
}
