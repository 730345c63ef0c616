//! The words of a transfer.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use anywire_parcel::{
    Done, Feedback, GaveUp, Kind, Misfit, Offer, OfferAck, OfferedFile, Pipe, SAVE_NAMES, TcpOffer, Word,
};
use proptest::prelude::*;
use seam::Refused;

fn offer(sizes: &[u64], chunk: u32) -> Offer {
    let total_bytes: u64 = sizes.iter().sum();
    let file =
        |(size, name): (&u64, &&str)| OfferedFile { name: (*name).to_owned(), size: *size, sha256: "ab".repeat(32) };
    Offer {
        sid: 305_419_896,
        total_bytes,
        chunk,
        total_chunks: u32::try_from(total_bytes.div_ceil(chunk.into())).unwrap(),
        files: sizes.iter().zip(&SAVE_NAMES).map(file).collect(),
        sha256: "cd".repeat(32),
        kind: Kind::Save,
        mods: Some(vec![("one_mod".to_owned(), 3)]),
        mods_unknown: false,
        batch: None,
        tcp: Some(TcpOffer { port: Some(29_471), token: "ef".repeat(16), addrs: Vec::new() }),
        aw_quic: None,
    }
}

#[test]
fn an_offer_is_written_as_old_peers_write_it_and_every_cut_is_refused() {
    let word = Word::Offer(Box::new(offer(&[3000, 5], 1350)));
    let text = word.write();
    let want = format!(
        "{{\"t\": \"fbegin\", \"sid\": 305419896, \"total_bytes\": 3005, \"chunk\": 1350, \"total_chunks\": 3, \"files\": \
         [{{\"name\": \"incoming_save.sav\", \"size\": 3000, \"sha256\": \"{0}\"}}, {{\"name\": \
         \"incoming_save.sav.lua\", \"size\": 5, \"sha256\": \"{0}\"}}], \"sha256\": \"{1}\", \"kind\": \"save\", \
         \"mods\": [[\"one_mod\", 3]], \"mods_unknown\": false, \"tcp\": {{\"port\": 29471, \"token\": \"{2}\"}}}}",
        "ab".repeat(32),
        "cd".repeat(32),
        "ef".repeat(16)
    );
    assert_eq!(String::from_utf8_lossy(&text), want);
    assert_eq!(Word::parse(&text), Ok(word));
    for cut in 0..text.len() {
        assert!(Word::parse(&text[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn feedback_has_the_bytes_of_the_vector() {
    let word = Feedback { sid: 305_419_896, base: 10, nack: vec![10, 12], verifying: false, progress: None };
    let want = br#"{"t": "fack", "sid": 305419896, "base": 10, "nack": [10, 12], "verifying": false}"#;
    assert_eq!(Word::Feedback(word).write(), want);
}

#[test]
fn the_end_says_final_only_when_it_is() {
    let done = |ok, last| String::from_utf8(Word::Done(Done { sid: 1, ok, last }).write()).unwrap();
    assert_eq!(done(true, false), r#"{"t": "fdone", "sid": 1, "ok": true}"#);
    assert_eq!(done(false, true), r#"{"t": "fdone", "sid": 1, "ok": false, "final": true}"#);
}

#[test]
fn an_old_peers_leaner_words_are_read() {
    let offer =
        br#"{"t": "fbegin", "sid": 1, "total_bytes": 0, "chunk": 1350, "total_chunks": 0, "files": [], "sha256": ""}"#;
    assert!(matches!(Word::parse(offer), Ok(Word::Offer(offer)) if offer.kind == Kind::Save && offer.tcp.is_none()));
    let ack = br#"{"t": "fbegin_ack", "sid": 1, "from_the_future": [1]}"#;
    assert_eq!(Word::parse(ack), Ok(Word::Ack(OfferAck { sid: 1, ..OfferAck::default() })));
    assert_eq!(Word::parse(br#"{"t": "tcp_gave_up", "sid": 9}"#), Ok(Word::GaveUp(GaveUp { sid: 9 })));
    let null = br#"{"t": "fbegin", "sid": 1, "total_bytes": 0, "chunk": 1, "total_chunks": 0, "files": [], "sha256": "", "mods": null}"#;
    assert!(Word::parse(null).is_ok());
}

#[test]
fn fields_of_another_type_refuse_the_message() {
    for text in [
        r#"{"t": "fack", "sid": -1, "base": 0}"#,
        r#"{"t": "fack", "sid": 1, "base": "0"}"#,
        r#"{"t": "fack", "sid": 1, "base": 0, "nack": [4294967296]}"#,
        r#"{"t": "fack", "sid": 1}"#,
        r#"{"t": "fdone", "ok": true}"#,
        r#"{"t": "bulk_pipe", "sid": 1, "pair": "", "ip": "", "port": 65536}"#,
    ] {
        assert_eq!(Word::parse(text.as_bytes()), Err(Refused::Malformed), "{text}");
    }
    assert_eq!(Word::parse(br#"{"t": "chat"}"#), Err(Refused::NotOurs));
}

#[test]
fn pain_72_an_offer_that_does_not_add_up_or_names_another_file_is_refused_before_anything_is_made() {
    let good = offer(&[3000, 5], 1350);
    assert_eq!(good.check(1 << 30), Ok(()));
    let refused = |change: &dyn Fn(&mut Offer)| {
        let mut offer = good.clone();
        change(&mut offer);
        offer.check(1 << 30).unwrap_err()
    };
    assert_eq!(good.check(3004), Err(Misfit::TooLarge { bytes: 3005, most: 3004 }));
    assert_eq!(refused(&|offer| offer.total_bytes += 1), Misfit::Sizes);
    assert_eq!(refused(&|offer| offer.total_chunks += 1), Misfit::Sizes);
    assert_eq!(refused(&|offer| offer.chunk = 0), Misfit::Sizes);
    assert_eq!(refused(&|offer| offer.chunk = 1 << 20), Misfit::Sizes);
    assert_eq!(refused(&|offer| offer.files[0].size = u64::MAX), Misfit::Sizes);
    assert_eq!(refused(&|offer| offer.files.clear()), Misfit::Count);
    assert_eq!(refused(&|offer| offer.sha256 = "AB".repeat(32)), Misfit::Hash);
    for name in ["../incoming_save.sav", "incoming_save.exe", "", "incoming_mod_x_1.zip", "incoming_save.sav.lua"] {
        assert_eq!(refused(&|offer| offer.files[0].name = name.to_owned()), Misfit::Name, "{name}");
    }
    let archive = |name: &str| {
        let mut offer = offer(&[5], 1350);
        (offer.kind, offer.files[0].name) = (Kind::Mods, name.to_owned());
        offer.check(1 << 30)
    };
    assert_eq!(archive("incoming_mod_*123_1.zip"), Ok(()));
    for name in ["incoming_mod_/_1.zip", "incoming_mod_\\_1.zip", "incoming_mod_.zip", "incoming_mod_a:b.zip"] {
        assert_eq!(archive(name), Err(Misfit::Name), "{name}");
    }
}

fn words() -> impl Strategy<Value = Word> {
    let feedback = (any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..128), any::<bool>());
    prop_oneof![
        feedback.prop_map(|(sid, base, nack, verifying)| {
            Word::Feedback(Feedback { sid, base, nack, verifying, progress: verifying.then_some(i64::from(base)) })
        }),
        (any::<u32>(), any::<bool>(), any::<bool>()).prop_map(|(sid, ok, last)| Word::Done(Done { sid, ok, last })),
        any::<u32>().prop_map(|sid| Word::GaveUp(GaveUp { sid })),
        (any::<u32>(), "\\PC{0,20}", any::<u16>()).prop_map(|(sid, text, port)| Word::Pipe(Pipe {
            sid,
            pair: text.clone(),
            ip: text,
            port
        })),
        (any::<u32>(), proptest::collection::vec("\\PC{0,9}", 0..4), any::<bool>(), any::<Option<u16>>()).prop_map(
            |(sid, need, ask, tcp_port)| Word::Ack(OfferAck { sid, need, ask, tcp_port, ..OfferAck::default() })
        ),
    ]
}

proptest! {
    #[test]
    fn every_word_is_read_back_and_every_cut_of_it_refused(word in words(), cut in any::<prop::sample::Index>()) {
        let text = word.write();
        prop_assert!(Word::parse(&text[..cut.index(text.len())]).is_err());
        prop_assert_eq!(Word::parse(&text), Ok(word));
    }
}
