//! Descriptions as the programs in the field write them.

use proptest::prelude::*;

use super::*;
use crate::{Body, Signal};

fn sample() -> Description {
    Description {
        origin: 4_679_771_797_385_181_675,
        mid: "0".into(),
        ufrag: "uBHe".into(),
        pwd: "BoCSerTLXsojWSWFoBEdLf".into(),
        ice_lite: false,
        fingerprints: vec![Fingerprint([0xAB; 32])],
        setup: Setup::ActPass,
        max_message_size: Some(MESSAGE_MAX),
        candidates: Vec::new(),
        end_of_candidates: false,
        identity: None,
    }
}

fn captured() -> Vec<(String, String)> {
    let text = include_str!("../../../../../lab/vectors/nethernet/captured_signaling.json");
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut out = Vec::new();
    for capture in json["captures"].as_array().unwrap() {
        let name = format!("{} {}", capture["implementation"], capture["role"]);
        for message in capture["messages"].as_array().unwrap() {
            out.push((name.clone(), message.as_str().unwrap().to_owned()));
        }
    }
    out
}

#[test]
fn every_captured_description_and_candidate_is_read() {
    let (mut descriptions, mut candidates) = (0, 0);
    for (name, text) in captured() {
        match Signal::parse(&text).unwrap().body {
            Body::ConnectRequest(sdp) => {
                let description = parse(sdp).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(description.setup, Setup::ActPass, "{name}");
                descriptions += 1;
            }
            Body::ConnectResponse(sdp) => {
                let description = parse(sdp).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(description.setup, Setup::Active, "{name}");
                assert_eq!(description.fingerprints.len(), 1, "{name}");
                descriptions += 1;
            }
            Body::CandidateAdd(text) => {
                candidate::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
                candidates += 1;
            }
            Body::ConnectError(_) => {}
        }
    }
    assert!(descriptions >= 7 && candidates >= 7, "{descriptions} {candidates}");
}

#[test]
fn descriptions_of_bare_engines_are_read_and_hidden_addresses_passed_over() {
    let page = parse(include_str!("../../../../../fuzz/corpus/nn_sdp/chromium_listener")).unwrap();
    // Its only candidate is a name of multicast DNS: its checks tell where it is.
    assert_eq!((page.setup, page.candidates.len(), page.max_message_size), (Setup::Active, 0, Some(MESSAGE_MAX)));
    let library = parse(include_str!("../../../../../fuzz/corpus/nn_sdp/libdatachannel_dialer")).unwrap();
    assert_eq!((library.setup, library.fingerprints.len()), (Setup::ActPass, 1));
    assert_eq!(library.candidates.iter().map(|c| c.addr).collect::<Vec<_>>(), ["192.168.9.2:45467".parse().unwrap()]);
    assert!(library.end_of_candidates);
}

#[test]
fn pain_3_what_is_announced_is_told_as_it_is() {
    let with = |line: &str| {
        let text = sample().to_string().replace("a=max-message-size:262144\r\n", line);
        parse(&text).map(|d| d.max_message_size)
    };
    assert_eq!(with("a=max-message-size:65536\r\n"), Ok(Some(65_536)));
    assert_eq!(with("a=max-message-size:18446744073709551615\r\n"), Ok(Some(u64::MAX)));
    assert_eq!(with("a=max-message-size:0\r\n"), Ok(Some(0)));
    assert_eq!(with(""), Ok(None));
    assert_eq!(with("a=max-message-size:x\r\n"), Err(SdpError::Bad("max-message-size")));
}

#[test]
fn pain_4_a_fingerprint_may_stand_at_either_level_in_either_case() {
    let line = format!("a=fingerprint:sha-256 {}\r\n", Fingerprint([0xAB; 32]));
    let without = sample().to_string().replace(&line, "");
    let session = without.replace("t=0 0\r\n", &format!("t=0 0\r\n{}", line.to_lowercase()));
    assert_eq!(parse(&session).unwrap().fingerprints, sample().fingerprints);
    assert_eq!(parse(&without), Err(SdpError::Missing("fingerprint")));
    let other = without.replace("t=0 0\r\n", "t=0 0\r\na=fingerprint:sha-512 AA:BB\r\n");
    assert_eq!(parse(&other), Err(SdpError::Missing("sha-256 fingerprint")));
}

#[test]
fn one_data_section_and_no_other() {
    let text = sample().to_string();
    let two = format!("{text}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n");
    assert_eq!(parse(&two), Err(SdpError::Sections(2)));
    assert_eq!(parse("v=0\r\n"), Err(SdpError::Sections(0)));
    let audio = text.replace("m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "m=audio 9 UDP/TLS/RTP/SAVPF 111");
    assert_eq!(parse(&audio), Err(SdpError::NotData));
    let old = text.replace("UDP/DTLS/SCTP webrtc-datachannel", "DTLS/SCTP 5000");
    assert_eq!(parse(&old).map(|d| d.mid), Ok("0".into()));
}

#[test]
fn what_must_be_there() {
    for (line, name) in [("a=ice-ufrag", "ice-ufrag"), ("a=ice-pwd", "ice-pwd"), ("a=setup", "setup")] {
        let text: String = sample().to_string().split_inclusive("\r\n").filter(|l| !l.starts_with(line)).collect();
        assert_eq!(parse(&text), Err(SdpError::Missing(name)));
    }
    let short = sample().to_string().replace("BoCSerTLXsojWSWFoBEdLf", "short");
    assert_eq!(parse(&short), Err(SdpError::Bad("ice-pwd")));
    assert_eq!(parse(&"a".repeat(SDP_MAX + 1)), Err(SdpError::TooLong(SDP_MAX + 1)));
}

#[test]
fn inline_candidates_are_kept_and_broken_ones_skipped() {
    let mut text = sample().to_string();
    text.push_str("a=candidate:1 1 udp 2130706431 10.77.0.2 44289 typ host\r\n");
    text.push_str("a=candidate:nonsense\r\na=end-of-candidates\r\n");
    let read = parse(&text).unwrap();
    assert_eq!((read.candidates.len(), read.end_of_candidates), (1, true));
    for n in 0..200 {
        text.push_str(&format!("a=candidate:1 1 udp 2130706431 10.77.0.2 {} typ host\r\n", 1000 + n));
    }
    assert_eq!(parse(&text).unwrap().candidates.len(), CANDIDATES_MAX);
}

#[test]
fn line_ends_of_any_kind_are_read() {
    let text = sample().to_string();
    assert_eq!(parse(&text.replace("\r\n", "\n")), parse(&text));
    assert_eq!(parse(&format!("{text}\0")), parse(&text));
}

#[test]
fn it_fits_a_lan_message_with_a_full_length_connection_id() {
    // Section 7.3: 1,140 bytes of signalling; section 5.2: "CONNECTRESPONSE " and twenty digits.
    let text = Description { origin: u64::MAX, pwd: "p".repeat(32), ufrag: "u".repeat(16), ..sample() }.to_string();
    assert!(text.len() + "CONNECTRESPONSE ".len() + 21 <= 1140, "{}", text.len());
}

proptest! {
    #[test]
    fn nothing_is_too_strange(text in "(a=|m=|o=|[a-z0-9 :=/.-]|\r\n){0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn what_is_written_is_read(origin: u64, print: [u8; 32], setup in 0usize..3, size: Option<u64>, end: bool, lines in 0u16..10) {
        let setup = [Setup::ActPass, Setup::Active, Setup::Passive][setup];
        let candidates = (0..lines).map(|n| match candidate::parse(&format!("candidate:1 1 udp 5 10.0.0.1 {} typ host", 2000 + n)) {
            Ok(Parsed::Candidate(c)) => c,
            other => panic!("{other:?}"),
        }).collect();
        let made = Description {
            origin, fingerprints: vec![Fingerprint(print)], setup, max_message_size: size, end_of_candidates: end, candidates,
            identity: Some("e30=".into()), ..sample()
        };
        prop_assert_eq!(parse(&made.to_string()), Ok(made));
    }

    #[test]
    fn every_truncation_is_an_error_or_the_same_session(cut in 0usize..600) {
        let text = sample().to_string();
        let cut = cut.min(text.len());
        if let Ok(read) = parse(&text[..cut]) {
            prop_assert_eq!(&read.pwd, &sample().pwd);
        }
    }
}
