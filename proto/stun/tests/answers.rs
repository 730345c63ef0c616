//! Answers against vectors, round trips and hostile bytes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests stand outside of test functions")]

use std::net::SocketAddr;

use anywire_stun::{ANSWER_MAX, Answer, AnswerError, Change, Request, Rules, TransactionId, looks_like};
use codec::{Short, unhex};
use proptest::prelude::*;
use serde_json::Value;

fn vector(name: &str) -> Value {
    let path = format!("{}/../../lab/vectors/netpunch/stun/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    unhex(value.as_str().unwrap()).unwrap()
}

fn id(vector: &Value) -> TransactionId {
    TransactionId(bytes(&vector["inputs"]["transaction_id"]).try_into().unwrap())
}

#[test]
fn the_request_vector_is_written() {
    let v = vector("request");
    assert_eq!(Request::classic(id(&v).0).encode().to_vec(), bytes(&v["expect"]["datagram"]));
}

#[test]
fn the_mapped_answer_vector_is_read_and_written() {
    let v = vector("response-mapped");
    let datagram = bytes(&v["inputs"]["datagram"]);
    let want: SocketAddr = "203.0.113.50:41234".parse().unwrap();
    assert_eq!(v["expect"]["ip"], want.ip().to_string());
    assert_eq!(v["expect"]["port"], want.port());
    assert_eq!(Answer::to_request(&datagram, id(&v), Rules::Classic), Ok(want));
    assert_eq!(Answer::of(&Request { id: id(&v), change: Change::NONE }, want).encode(), datagram);
}

#[test]
fn an_xor_only_answer_has_no_address_under_the_classic_rules() {
    let v = vector("response-xor-only");
    let datagram = bytes(&v["inputs"]["datagram"]);
    assert_eq!(v["expect"]["error"], "no-address");
    assert_eq!(Answer::to_request(&datagram, id(&v), Rules::Classic), Err(AnswerError::NoAddress));
    let modern = Answer::to_request(&datagram, id(&v), Rules::Modern);
    assert_eq!(modern, Ok("203.0.113.50:41234".parse().unwrap()));
}

#[test]
fn an_ipv4_answer_of_rfc_5769_is_read() {
    // Section 2.2, without its software, integrity and fingerprint attributes.
    let datagram = unhex("0101000c2112a442b7e7a701bc34d686fa87dfae002000080001a147e112a643").unwrap();
    let answer = Answer::parse(&datagram).unwrap();
    assert_eq!(answer.xor_mapped, Some("192.0.2.1:32853".parse().unwrap()));
    assert_eq!(answer.address(Rules::Classic), None);
}

#[test]
fn an_ipv6_answer_of_rfc_5769_is_read() {
    // Section 2.3, reduced in the same way.
    let datagram =
        unhex("010100182112a442b7e7a701bc34d686fa87dfae002000140002a1470113a9faa5d3f179bc25f4b5bed2b9d9").unwrap();
    let want: SocketAddr = "[2001:db8:1234:5678:11:2233:4455:6677]:32853".parse().unwrap();
    assert_eq!(Answer::parse(&datagram).unwrap().xor_mapped, Some(want));
}

#[test]
fn a_cookie_request_is_answered_with_both_attributes_and_a_classic_one_with_the_plain_one() {
    let seen: SocketAddr = "203.0.113.9:700".parse().unwrap();
    let cookie = Answer::parse(&Answer::of(&Request::with_cookie([3; 12]), seen).encode()).unwrap();
    assert_eq!((cookie.mapped, cookie.xor_mapped), (Some(seen), Some(seen)));
    let classic = Answer::parse(&Answer::of(&Request::classic([3; 16]), seen).encode()).unwrap();
    assert_eq!((classic.mapped, classic.xor_mapped), (Some(seen), None));
}

#[test]
fn an_ipv4_asker_on_a_dual_stack_socket_is_told_its_ipv4_address() {
    let seen = Answer::of(&Request::classic([3; 16]), "[::ffff:203.0.113.9]:700".parse().unwrap());
    assert_eq!(seen.mapped, Some("203.0.113.9:700".parse().unwrap()));
}

#[test]
fn a_server_says_where_it_is_to_who_speaks_the_newer_form() {
    let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
    let seen = "203.0.113.9:700".parse().unwrap();
    let (origin, other) = (at("198.51.100.1:3478"), at("198.51.100.2:3479"));
    let told = Answer::of(&Request::with_cookie([3; 12]), seen).with_places(origin, other);
    let bytes = told.encode();
    assert_eq!(bytes.len(), 68);
    assert_eq!(bytes[44..56], [0x80, 0x2B, 0, 8, 0, 1, 0x0D, 0x96, 198, 51, 100, 1]);
    assert_eq!(bytes[56..], [0x80, 0x2C, 0, 8, 0, 1, 0x0D, 0x97, 198, 51, 100, 2]);
    assert_eq!(Answer::parse(&bytes), Ok(told));
    for cut in 0..bytes.len() {
        assert!(Answer::parse(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let classic = Answer::of(&Request::classic([3; 16]), seen);
    assert_eq!(classic.with_places(origin, other), classic);
}

#[test]
fn a_server_that_cannot_answer_from_elsewhere_says_420() {
    let request = Request::with_cookie([3; 12]).from_elsewhere(Change::BOTH);
    let refusal = Answer::refusal(&request);
    assert!(looks_like(&refusal) && refusal.len() == 36);
    assert_eq!(Answer::parse(&refusal), Err(AnswerError::Refused { code: 420 }));
    assert_eq!(refusal[4..20], request.id.0);
}

#[test]
fn an_answer_to_another_question_is_told_apart() {
    let datagram = Answer::of(&Request::classic([1; 16]), "203.0.113.9:7".parse().unwrap()).encode();
    let other = Request::classic([2; 16]).id;
    assert_eq!(Answer::to_request(&datagram, other, Rules::Modern), Err(AnswerError::OtherTransaction));
}

#[test]
fn an_error_answer_names_its_code() {
    let mut datagram = Request::with_cookie([1; 12]).encode().to_vec();
    datagram[..4].copy_from_slice(&[1, 0x11, 0, 8]);
    datagram.extend_from_slice(&[0, 9, 0, 4, 0, 0, 4, 20]);
    assert_eq!(Answer::parse(&datagram), Err(AnswerError::Refused { code: 420 }));
}

#[test]
fn unknown_attributes_families_and_missing_last_padding_are_passed_over() {
    let mut datagram = Request::classic([1; 16]).encode().to_vec();
    datagram[0] = 1;
    datagram[1] = 1;
    datagram.extend_from_slice(&[0x80, 0x22, 0, 3, b'a', b'b', b'c', 0]); // padded to four
    datagram.extend_from_slice(&[0, 1, 0, 8, 0, 9, 0, 1, 1, 1, 1, 1]); // an unknown family
    datagram.extend_from_slice(&[0, 1, 0, 8, 0, 1, 0x1F, 0x90, 203, 0, 113, 7]);
    datagram.extend_from_slice(&[0x80, 0x22, 0, 1, b'x']);
    datagram[3] = u8::try_from(datagram.len() - 20).unwrap();
    assert_eq!(Answer::parse(&datagram).unwrap().mapped, Some("203.0.113.7:8080".parse().unwrap()));
}

#[test]
fn of_a_repeated_attribute_the_first_counts() {
    let mut datagram = Answer::of(&Request::classic([1; 16]), "203.0.113.9:7".parse().unwrap()).encode();
    datagram.extend_from_slice(&[0, 1, 0, 8, 0, 1, 0, 9, 198, 51, 100, 1]);
    datagram[3] = 24;
    assert_eq!(Answer::parse(&datagram).unwrap().mapped, Some("203.0.113.9:7".parse().unwrap()));
}

#[test]
fn every_truncation_is_refused() {
    for request in [Request::classic([1; 16]), Request::with_cookie([1; 12])] {
        for seen in ["203.0.113.9:7", "[2001:db8::5]:7"] {
            let datagram = Answer::of(&request, seen.parse().unwrap()).encode();
            assert!(looks_like(&datagram));
            for cut in 0..datagram.len() {
                assert!(matches!(Answer::parse(&datagram[..cut]), Err(AnswerError::Short(_))), "{seen} cut at {cut}");
            }
        }
    }
}

#[test]
fn a_hostile_attribute_length_is_refused() {
    let mut datagram = Answer::of(&Request::classic([1; 16]), "203.0.113.9:7".parse().unwrap()).encode();
    for len in [9_u16, 0x7FFF, 0xFFFF] {
        datagram[22..24].copy_from_slice(&len.to_be_bytes());
        assert!(matches!(Answer::parse(&datagram), Err(AnswerError::Short(Short { what: "attribute", .. }))), "{len}");
    }
    datagram[22..24].copy_from_slice(&4_u16.to_be_bytes());
    assert!(matches!(Answer::parse(&datagram), Err(AnswerError::Short(Short { what: "IPv4 address", .. }))));
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
        (any::<[u16; 8]>(), any::<u16>())
            .prop_map(SocketAddr::from)
            .prop_filter("not IPv4 in disguise", |a| a.ip().to_canonical() == a.ip()),
    ]
}

proptest! {
    #[test]
    fn what_a_server_writes_is_read_back(seed in any::<[u8; 16]>(), cookie in any::<bool>(), seen in any_address()) {
        let random = *seed.first_chunk::<12>().unwrap();
        let request = if cookie { Request::with_cookie(random) } else { Request::classic(seed) };
        let places = seed[0] & 1 == 0;
        let answer = Answer::of(&request, seen).with_places(places.then_some(seen), Some(seen));
        let datagram = answer.encode();
        prop_assert!(datagram.len() <= ANSWER_MAX && looks_like(&datagram));
        prop_assert_eq!(Answer::parse(&datagram), Ok(answer));
        prop_assert_eq!(Answer::to_request(&datagram, request.id, Rules::Modern), Ok(seen));
        prop_assert_eq!(Answer::to_request(&datagram, request.id, Rules::Classic), Ok(seen));
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_harm(mut junk in proptest::collection::vec(any::<u8>(), 0..80), steer in any::<bool>()) {
        if steer && junk.len() >= 20 {
            let len = u16::try_from(junk.len() - 20).unwrap();
            junk[..2].copy_from_slice(&[1, 1]);
            junk[2..4].copy_from_slice(&len.to_be_bytes());
        }
        if let Ok(answer) = Answer::parse(&junk) {
            let again = Answer::parse(&answer.encode());
            prop_assert_eq!(again, Ok(answer));
        }
        let _ = Request::parse(&junk);
    }
}
