//! STUN: requests as a server reads them, answers as a client does.

#![no_main]

use anywire_fuzz::Script;
use libfuzzer_sys::fuzz_target;
use stun::{ANSWER_MAX, ANSWERS_MAX, Answer, Observation, Request, Rules, looks_like};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::parse(input) {
        assert!(looks_like(input), "a request that does not look like STUN");
        assert_eq!(Request::parse(&request.encode()), Ok(request));
        let answer = Answer::of(&request, anywire_fuzz::remote(input.len() % 4));
        assert_eq!(Answer::parse(&answer.encode()), Ok(answer));
    }
    if let Ok(answer) = Answer::parse(input) {
        let written = answer.encode();
        assert!(written.len() <= ANSWER_MAX);
        assert!(looks_like(&written), "an answer that does not look like STUN");
        assert_eq!(Answer::parse(&written), Ok(answer));
        assert_eq!(Answer::to_request(input, answer.id, Rules::Classic).ok(), answer.mapped);
        assert!(answer.mapped.is_none() || answer.address(Rules::Modern).is_some());
    }
    if looks_like(input) {
        assert!(np1::Packet::parse(input).is_err(), "STUN and NP1 at once");
    }
    observed(&mut Script::new(input));
});

/// A list of answers, as several servers give them.
fn observed(script: &mut Script<'_>) {
    let mut addresses = Vec::new();
    while let Some(kind) = script.next_move() {
        let ip: std::net::IpAddr = match kind % 4 {
            0 => script.u32().to_be_bytes().into(),
            1 => [192, 0, 2, script.byte()].into(),
            2 => [100, 64 | script.byte() & 63, 1, 1].into(),
            _ => std::net::Ipv6Addr::from(u128::from(script.u32()) | 0xFFFF_0000_0000).into(),
        };
        addresses.push(std::net::SocketAddr::new(ip, script.u16()));
    }
    let seen = Observation::of(addresses.iter().copied());
    assert!(seen.public.len() <= ANSWERS_MAX.min(addresses.len()));
    assert!(seen.public.iter().all(|address| address.port() != 0 && !address.ip().is_multicast()));
    assert!(seen.public.len() > 1 || !seen.symmetric, "symmetric by one answer");
    assert!(!seen.cgnat || seen.public.first().is_some_and(|address| address.ip().octets()[0] == 100));
}
