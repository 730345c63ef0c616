//! The master's words: what is written is read back, and whatever else comes is refused without harm.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::net::SocketAddr;

use anywire_rendezvous as rendezvous;
use proptest::prelude::*;
use rendezvous::words::{
    Announce, Game, GameType, Grant, Grants, Knock, Note, Notes, ProbeAsk, ProbeProtocol, Row, Tag, read_error,
    read_leave, read_list, write_error, write_knocked, write_leave, write_list, write_notes,
};

fn game() -> impl Strategy<Value = Game> {
    let kinds = prop::sample::select(vec![GameType::Relay, GameType::Dedicated, GameType::Host]);
    let texts = ("[a-z\u{e4}\u{1F682}]{1,40}", "[A-Z2-7]{1,400}", "[0-9.]{0,20}");
    (texts, 0..=10_000u32, 0..=10_000u32, kinds, any::<bool>()).prop_map(
        |((name, code, version), players, max, kind, locked)| Game { name, code, players, max, kind, version, locked },
    )
}

fn grants() -> impl Strategy<Value = Grants> {
    let grant = (any::<std::net::IpAddr>(), 1..=u16::MAX, any::<[u8; 16]>())
        .prop_map(|(ip, port, id)| Grant { at: SocketAddr::new(ip, port), id });
    (prop::option::of(grant.clone()), prop::option::of(grant)).prop_map(|(relay, shared)| Grants { relay, shared })
}

/// The times a master gives: whole microseconds.
#[allow(clippy::cast_precision_loss, reason = "below 2^53")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn tag() -> impl Strategy<Value = Tag> {
    "[0-9a-f]{24}".prop_map(|text| Tag::new(&text).unwrap())
}

/// Every reader, on the same bytes.
fn read_all(bytes: &[u8]) -> usize {
    [
        Announce::read(bytes).is_ok(),
        Knock::read(bytes, true).is_ok(),
        Knock::read(bytes, false).is_ok(),
        ProbeAsk::read(bytes).is_ok(),
        read_leave(bytes).is_ok(),
        read_list(bytes).is_ok(),
        Notes::read(bytes).is_ok(),
    ]
    .into_iter()
    .filter(|taken| *taken)
    .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_announce_is_read_back_and_every_cut_of_it_is_refused(id in "[a-z]{1,64}", game in game()) {
        let announce = Announce { id: id.clone(), game };
        let bytes = announce.write();
        prop_assert_eq!(Announce::read(&bytes), Ok(announce));
        prop_assert!((0..bytes.len()).all(|cut| read_all(bytes.get(..cut).unwrap()) == 0));
        prop_assert_eq!(read_leave(&write_leave(&id)), Ok(id));
    }

    #[test]
    fn a_list_is_read_back(rows in prop::collection::vec((game(), 0..1000u64), 0..20)) {
        let rows: Vec<Row> = rows.into_iter().map(|(game, age)| Row { game, age }).collect();
        prop_assert_eq!(read_list(&write_list(&rows, 1, 30)), Ok(rows));
    }

    #[test]
    fn a_knock_is_read_back_with_and_without_a_relay(
        tag in tag(), blob in prop::collection::vec(any::<u8>(), 1..700), relay: bool, shared: bool,
        nonce in "[0-9a-f]{8,16}"
    ) {
        let nonce = (relay || shared).then_some(nonce);
        let blob = data_encoding::BASE64.encode(&blob);
        let knock = Knock { tag, blob, relay, nonce, shared };
        let bytes = knock.write();
        prop_assert_eq!(Knock::read(&bytes, true), Ok(knock.clone()));
        let bare = Knock { relay: false, shared: false, nonce: None, ..knock };
        prop_assert_eq!(Knock::read(&bytes, false), Ok(bare));
        prop_assert!((0..bytes.len()).all(|cut| read_all(bytes.get(..cut).unwrap()) == 0));
    }

    #[test]
    fn notes_are_read_back(
        notes in prop::collection::vec((0..4_000_000_000_000_000u64, 1..16usize, grants()), 0..16), held: bool
    ) {
        let notes = notes.into_iter().map(|(t, n, grants)| Note { t: seconds(t), blob: "QUJD".repeat(n), grants });
        let notes: Vec<Note> = notes.collect();
        prop_assert_eq!(Notes::read(&write_notes(&notes, 1.5, held)), Ok(Notes { notes, held }));
    }

    #[test]
    fn what_a_master_grants_is_read_back(grants in grants()) {
        let map = codec::object(&write_knocked(60, &grants)).unwrap();
        prop_assert_eq!(Grants::read(&map), grants);
    }

    #[test]
    fn a_probe_is_read_back(tcp: bool, port in 1024..=u16::MAX, token in prop::collection::vec(any::<u8>(), 8..=32)) {
        let protocol = if tcp { ProbeProtocol::Tcp } else { ProbeProtocol::Udp };
        let ask = ProbeAsk { protocol, port, token };
        prop_assert_eq!(ProbeAsk::read(&ask.write()), Ok(ask));
    }

    #[test]
    fn any_bytes_and_any_fields_are_survived(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        keys in prop::collection::vec((0..12usize, 0..9usize), 0..12)
    ) {
        read_all(&noise);
        prop_assert!(read_error(&noise).len() <= 400);
        let names = ["id", "code", "s", "blob", "relay", "j", "aw", "servers", "knocks", "port", "token", "players"];
        let values = [
            "null", "-1e400", "[[[]]]", "{\"ip\": {}}", "\"\\ud800\"", "1e308", "[{\"t\": 1e999}]", "\"ffffffff\"", "true",
        ];
        let fields = keys.iter().map(|(key, value)| {
            format!("{:?}: {}", names.get(*key).unwrap(), values.get(*value).unwrap())
        });
        read_all(format!("{{{}}}", fields.collect::<Vec<_>>().join(", ")).as_bytes());
    }
}

#[test]
fn the_words_of_a_refusal_are_read_back() {
    assert_eq!(read_error(&write_error("relay full")), "relay full");
    assert_eq!([read_error(b"{}"), read_error(b"nothing")], ["", ""]);
}
