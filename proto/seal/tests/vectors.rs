//! The vectors of groups `key`, `seal` and `sign`.
#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::path::Path;
use std::time::Instant;

use anywire_seal::{Opener, SessionKey, knock_tag};
use data_encoding::HEXLOWER_PERMISSIVE as HEX;
use serde_json::Value;

fn vectors(group: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/vectors/netpunch").join(group);
    let mut found: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .map(|path| {
            let value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            (path.file_stem().unwrap().to_string_lossy().into_owned(), value)
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!found.is_empty(), "no vectors in {}", folder.display());
    found
}

fn bytes(value: &Value) -> Vec<u8> {
    HEX.decode(value.as_str().unwrap().as_bytes()).unwrap()
}

/// The key of a vector, which names it or what it is made of.
fn key(inputs: &Value) -> SessionKey {
    match inputs.get("session_key") {
        Some(key) => SessionKey::from_bytes(bytes(key).try_into().unwrap()),
        None => derived(inputs),
    }
}

fn derived(inputs: &Value) -> SessionKey {
    SessionKey::derive(&bytes(&inputs["secret"]).try_into().unwrap(), inputs["password"].as_str().unwrap())
}

#[test]
fn keys_are_derived_as_the_vectors_say() {
    for (name, vector) in vectors("key") {
        let (inputs, expect) = (&vector["inputs"], &vector["expect"]);
        let key = derived(inputs);
        assert_eq!(key.as_bytes()[..], bytes(&expect["session_key"]), "{name}");
        assert_eq!(key.rendezvous().as_bytes()[..], bytes(&expect["rendezvous_key"]), "{name}");
        let secret = bytes(&inputs["secret"]).try_into().unwrap();
        assert_eq!(knock_tag(&secret), expect["knock_tag"].as_str().unwrap(), "{name}");
    }
}

#[test]
fn every_seal_vector_is_met() {
    let (mut opened, mut refused, mut replays) = (0, 0, 0);
    for (name, vector) in vectors("seal") {
        let (inputs, expect) = (&vector["inputs"], &vector["expect"]);
        let mut opener = Opener::new(&key(inputs));
        let now = Instant::now();
        if let Some(sealed) = expect.get("sealed") {
            let mut frame = bytes(sealed);
            let got = opener.open(now, &mut frame).unwrap();
            assert_eq!(got.salt[..], bytes(&inputs["salt"]), "{name}");
            assert_eq!(u64::from(got.counter), inputs["counter"].as_u64().unwrap(), "{name}");
            assert_eq!(got.plain[..], bytes(&inputs["plain"]), "{name}");
            let packet = bytes(&expect["packet"]);
            assert_eq!(packet, [b"NP1:E".to_vec(), bytes(sealed)].concat(), "{name}");
            opened += 1;
        } else if let Some(accepted) = expect.get("accepted") {
            // The vector of releases that kept 64 counters comes out the same with more.
            for (step, (frame, want)) in
                inputs["frames"].as_array().unwrap().iter().zip(accepted.as_array().unwrap()).enumerate()
            {
                let got = opener.open(now, &mut bytes(&frame["sealed"])).is_ok();
                assert_eq!(got, want.as_bool().unwrap(), "{name} step {step}");
            }
            replays += 1;
        } else {
            assert_eq!(expect["error"], "refused", "{name}");
            let mut frame = bytes(&inputs["sealed"]);
            let got = match inputs["as"].as_str().unwrap() {
                "E" => opener.open(now, &mut frame).map(|_| ()),
                _ => opener.verify_signed(now, &mut frame).map(|_| ()),
            };
            assert_eq!(got, Err(seam::Refused::NotAuthentic), "{name}");
            assert_eq!(frame, bytes(&inputs["sealed"]), "{name}: a refused frame is left alone");
            refused += 1;
        }
    }
    assert_eq!((opened, refused, replays), (8, 6, 5));
}

#[test]
fn signed_vectors_verify_and_never_open() {
    for (name, vector) in vectors("sign") {
        let (inputs, expect) = (&vector["inputs"], &vector["expect"]);
        let mut opener = Opener::new(&key(inputs));
        let mut frame = bytes(&expect["signed"]);
        assert_eq!(opener.open(Instant::now(), &mut frame).map(|_| ()), Err(seam::Refused::NotAuthentic), "{name}");
        let got = opener.verify_signed(Instant::now(), &mut frame).unwrap();
        assert_eq!(got.salt[..], bytes(&inputs["salt"]), "{name}");
        assert_eq!(u64::from(got.counter), inputs["counter"].as_u64().unwrap(), "{name}");
        assert_eq!(got.plain[..], bytes(&inputs["plain"]), "{name}");
        let packet = bytes(&expect["packet"]);
        assert_eq!(packet, [b"NP1:S".to_vec(), bytes(&expect["signed"])].concat(), "{name}");
    }
}
