//! STUN: requests as a server reads them, answers as a client does.

#![no_main]

use anywire_fuzz::Script;
use libfuzzer_sys::fuzz_target;
use stun::{
    ANSWER_MAX, ANSWERS_MAX, Answer, Behaviour, Changed, Filtering, Mapping, Observation, REQUEST_MAX, Request, Rules,
    looks_like,
};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::parse(input) {
        assert!(looks_like(input), "a request that does not look like STUN");
        let written = request.encode();
        assert!(written.len() <= REQUEST_MAX);
        assert_eq!(Request::parse(&written), Ok(request));
        let [seen, origin, other] = [0, 1, 2].map(|n| anywire_fuzz::remote((input.len() + n) % 4));
        let answer = Answer::of(&request, seen).with_places(Some(origin), Some(other));
        assert_eq!(Answer::parse(&answer.encode()), Ok(answer));
        assert!(matches!(Answer::parse(&Answer::refusal(&request)), Err(stun::AnswerError::Refused { code: 420 })));
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
    let pairs: Vec<_> = addresses.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let mapping = Mapping::of(&pairs);
    assert!(pairs.len() > 1 || mapping == Mapping::Unknown, "a class by one answer");
    let changed = Changed { asked_ip: addresses.len() % 2 == 0, ip: addresses.len() % 3 == 0, ..Changed::default() };
    assert_eq!(Filtering::of(changed), Filtering::Unknown, "a class without a living other address");
    assert!(!Behaviour { mapping, ..Behaviour::default() }.to_string().is_empty());
    let seen = Observation::of(addresses.iter().copied());
    assert!(seen.public.len() <= ANSWERS_MAX.min(addresses.len()));
    assert!(seen.public.iter().all(|address| address.port() != 0 && !address.ip().is_multicast()));
    assert!(seen.public.len() > 1 || !seen.symmetric, "symmetric by one answer");
    assert!(!seen.cgnat || seen.public.first().is_some_and(|address| address.ip().octets()[0] == 100));
}
