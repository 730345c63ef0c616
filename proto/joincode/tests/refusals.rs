//! One sentence for each way a code can be wrong, and bytes nobody would send.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers stand outside of test functions")]

use anywire_joincode::{Code, CodeError, LockKey, NatFlags, Profile, TEXT_MAX, parse, read};
use proptest::prelude::*;

const GOOD: &str = "TFVLCO4AYCUACFDTD7DDGZCNOMPQAAICAMCAKBQHBAEQUCY";

fn says(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

fn full() -> Profile {
    Profile {
        timestamp: 1_790_000_000,
        flags: NatFlags { open: true, symmetric: false, cgnat: false },
        lan: Some("192.168.1.20:29471".parse().unwrap()),
        public: Some("198.51.100.77:29471".parse().unwrap()),
        v6: Some("[2001:db8::1]:29471".parse().unwrap()),
        vpn: [Some("25.37.84.221:29471".parse().unwrap()), Some("100.92.122.123:29471".parse().unwrap())],
        secret: Some([7; 12]),
        steam: Some(76_561_198_012_345_678),
    }
}

#[test]
fn an_empty_code_is_called_empty() {
    assert_eq!(says(" \n"), "the code is empty");
    assert_eq!(says("\"\""), "the code is empty");
    assert_eq!(parse(""), Err(CodeError::Empty));
}

#[test]
fn an_illegal_character_is_named_with_its_place_in_what_was_pasted() {
    let text = "code: \"TFVL CO4A\n YC1A\"";
    assert_eq!(
        says(text),
        "character 21 of the code is '1', but codes hold only the letters A to Z and the digits 2 to 7"
    );
    assert_eq!(text.chars().nth(20), Some('1'));
    assert_eq!(parse("ABC\u{FF21}"), Err(CodeError::IllegalCharacter { position: 4, character: '\u{FF21}' }));
}

#[test]
fn a_strict_reader_repairs_nothing_inside() {
    assert_eq!(parse("ABVL CO4A"), Err(CodeError::IllegalCharacter { position: 5, character: ' ' }));
    assert_eq!(parse("\"ABVLCO4A\""), Err(CodeError::IllegalCharacter { position: 1, character: '"' }));
}

#[test]
fn an_impossible_length_is_told() {
    let one_more = format!("{GOOD}AA");
    assert_eq!(says(&one_more), "the code has 49 characters, which no code has: at least one is missing or too many");
}

#[test]
fn a_code_cut_short_says_in_which_field() {
    assert_eq!(says("ABVL"), "the code is cut short in its time");
    assert_eq!(says(&GOOD[..20]), "the code is cut short in its public address");
    assert_eq!(says(&GOOD[..40]), "the code is cut short in its secret");
    assert_eq!(says("75VLCO4AZ7UF555GYOAJZPN4QLB75Y2C"), "the code is cut short in its lock");
}

#[test]
fn a_shortened_ipv6_address_without_its_public_one_is_told() {
    let bytes = [&[0x60, 0, 0, 0, 9][..], &[1; 12]].concat();
    let error = Code::from_bytes(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "the code shortens its IPv6 address by a public IPv4 address that it does not hold");
}

#[test]
fn a_shortening_flag_without_an_ipv6_address_is_ignored() {
    let code = Code::from_bytes(&[0x40, 0, 0, 0, 9]);
    assert_eq!(code, Ok(Code::Plain(Profile { timestamp: 9, ..Profile::default() })));
}

#[test]
fn a_number_that_is_no_players_steam_id_is_told() {
    let want = "this is not the Steam ID of a player: that has 17 digits and begins with 76561";
    assert_eq!(says("7656119801234567"), want);
    assert_eq!(says("https://steamcommunity.com/profiles/gaben"), want);
    assert_eq!(says("https://steamcommunity.com/profiles/"), want);
    assert_eq!(read("steamcommunity.com/profiles//76561198012345678").unwrap_err().to_string(), want);
    assert_eq!(says("76561197960265728999999999999999999999"), want);
}

#[test]
fn a_text_nobodys_code_is_as_long_as_is_not_looked_at() {
    let long = "A".repeat(TEXT_MAX + 1);
    assert_eq!(says(&long), "the text is longer than 4096 characters, which no code is");
    assert_eq!(parse(&long), Err(CodeError::TooLong { most: TEXT_MAX }));
    assert!(parse(&"A".repeat(TEXT_MAX)).is_ok(), "an unknown tail of any legal length is passed over");
}

#[test]
fn locked_codes_ask_for_the_password_and_refuse_a_wrong_one() {
    let key = LockKey::from_bytes([1; 32]);
    let Ok(Code::Locked(locked)) = parse(&full().lock(&key)) else { unreachable!("a locked code reads as locked") };
    assert_eq!(locked.timestamp(), full().timestamp);
    assert_eq!(locked.open_with("").unwrap_err().to_string(), "the code is locked: it needs the host's password");
    assert_eq!(
        locked.open(&LockKey::from_bytes([2; 32])).unwrap_err().to_string(),
        "the password does not open the code: the password is wrong, or a character of the code is"
    );
    assert_eq!(locked.open(&key), Ok(full()));
}

#[test]
fn every_changed_byte_of_a_locked_code_is_noticed() {
    let key = LockKey::from_bytes([1; 32]);
    let code = full().lock(&key);
    for at in 7..code.len() {
        let mut text = code.clone().into_bytes();
        text[at] = if text[at] == b'A' { b'Q' } else { b'A' };
        match parse(std::str::from_utf8(&text).unwrap()) {
            Ok(Code::Locked(locked)) => assert_eq!(locked.open(&key), Err(CodeError::WrongPassword), "character {at}"),
            other => assert!(at < 8, "character {at}: {other:?}"),
        }
    }
}

#[test]
fn a_plain_code_never_begins_like_a_locked_one() {
    // pain 27
    let mut profile = full();
    profile.flags = NatFlags { open: true, symmetric: true, cgnat: true };
    profile.v6 = Some("[2002:c633:644d:1::1000]:29471".parse().unwrap());
    let bytes = profile.to_bytes();
    assert_eq!(bytes[0], 0xBF);
    assert_eq!(parse(&profile.encode()), Ok(Code::Plain(profile.clone())));
    let key = LockKey::from_bytes([1; 32]);
    let Ok(Code::Locked(locked)) = parse(&profile.lock(&key)) else { unreachable!("a locked code reads as locked") };
    assert_eq!(locked.open(&key), Ok(profile));
}

#[test]
fn every_truncation_is_refused_or_loses_only_the_tail() {
    let bytes = full().to_bytes();
    let fields = 5 + 6 + 6 + 18 + 12;
    for cut in 0..bytes.len() {
        match Code::from_bytes(&bytes[..cut]) {
            Ok(Code::Plain(profile)) => {
                assert!(cut >= fields, "cut at {cut}");
                assert_eq!((profile.lan, profile.secret), (full().lan, full().secret));
            }
            other => {
                assert!(cut < fields, "cut at {cut}");
                assert!(matches!(other, Err(CodeError::CutShort { .. })), "cut at {cut}: {other:?}");
            }
        }
    }
}

#[test]
fn every_truncation_of_every_code_vector_is_refused_or_keeps_its_time() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/vectors/netpunch/code");
    let mut codes = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let v: serde_json::Value = serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let Some(code) = v["expect"]["code"].as_str().or(v["inputs"]["code"].as_str()) else { continue };
        codes += 1;
        let made = parse(code).ok().and_then(|c| c.timestamp());
        for cut in 0..code.len() {
            if let (Ok(part), Some(made)) = (parse(&code[..cut]), made) {
                assert_eq!(part.timestamp(), Some(made), "{code} cut at {cut}");
            }
        }
    }
    assert_eq!(codes, 45);
}

#[test]
fn neither_addresses_nor_secrets_are_printed() {
    let shown = format!("{:?}", Code::Plain(full()));
    for hidden in ["192.168.1.20", "198.51.100.77", "25.37.84.221", "::1]", "7, 7", "76561198012345678"] {
        assert!(!shown.contains(hidden), "{hidden} in {shown}");
    }
    assert!(shown.contains("198.51.100.x:29471"));
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let v4 = || proptest::option::of((any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port)));
    let six = proptest::option::of((any::<[u8; 16]>(), any::<u16>(), any::<bool>()));
    let secret = proptest::option::of(any::<[u8; 12]>());
    let flags = any::<[bool; 3]>();
    (any::<u32>(), flags, v4(), v4(), six, v4(), v4(), secret, proptest::option::of(1..=u64::MAX)).prop_map(
        |(timestamp, [open, symmetric, cgnat], lan, public, six, vpn, vpn2, secret, steam)| {
            let at = |a: Option<([u8; 4], u16)>| a.map(|(ip, port)| std::net::SocketAddrV4::new(ip.into(), port));
            let v6 = six.map(|(mut octets, port, derived)| {
                if let (true, Some((ip, _))) = (derived, public) {
                    octets[..2].copy_from_slice(&[0x20, 0x02]);
                    octets[2..6].copy_from_slice(&ip);
                }
                std::net::SocketAddrV6::new(octets.into(), port, 0, 0)
            });
            // A lone second VPN address comes back as the first.
            let vpn = if vpn.is_none() { [at(vpn2), None] } else { [at(vpn), at(vpn2)] };
            let flags = NatFlags { open, symmetric, cgnat };
            Profile { timestamp, flags, lan: at(lan), public: at(public), v6, vpn, secret, steam }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(profile in any_profile(), key in any::<[u8; 32]>()) {
        let code = profile.encode();
        prop_assert!(profile.to_bytes().len() <= 67);
        prop_assert_eq!(anywire_joincode::clean(&code), code.clone());
        prop_assert_eq!(parse(&code), Ok(Code::Plain(profile.clone())));
        let key = LockKey::from_bytes(key);
        let code = profile.lock(&key);
        prop_assert!(code.len() <= 135);
        match parse(&code) {
            Ok(Code::Locked(locked)) => prop_assert_eq!(locked.open(&key), Ok(profile)),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_text_is_refused_or_read_without_harm(text in "\\PC{0,60}", base in "[A-Z2-7=]{0,90}") {
        for text in [text, base] {
            let repaired = anywire_joincode::clean(&text);
            prop_assert_eq!(read(&text).ok(), parse(&repaired).ok());
            if let Err(CodeError::IllegalCharacter { position, character }) = parse(&text) {
                prop_assert_eq!(text.chars().nth(position - 1), Some(character));
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_back_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(Code::Plain(profile)) = Code::from_bytes(&bytes) {
            prop_assert_eq!(Code::from_bytes(&profile.to_bytes()), Ok(Code::Plain(profile)));
        }
    }
}
