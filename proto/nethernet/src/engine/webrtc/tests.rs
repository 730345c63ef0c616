use super::*;

fn engine(offerer: bool, now: Instant) -> WebRtc {
    let settings = Settings::new(Certificate::generate().unwrap(), 1 << 20).unwrap();
    let name = if offerer { "offerer" } else { "answerer" };
    WebRtc::new(settings, name.to_owned(), "a password of enough length".to_owned(), 7, offerer, now)
}

fn address(offerer: bool) -> SocketAddr {
    ([192, 0, 2, if offerer { 1 } else { 2 }], 5000).into()
}

/// An engine that knows an address of the other side and its description.
fn started(offerer: bool, now: Instant) -> WebRtc {
    let mut engine = engine(offerer, now);
    engine.add_local(now, address(offerer), false).unwrap();
    let other = Candidate {
        foundation: "1".to_owned(),
        priority: 2_122_317_823,
        addr: address(!offerer),
        kind: CandidateKind::Host,
        related: None,
        ufrag: None,
        network_id: 1,
        network_cost: 0,
    };
    engine.add_remote(now, &other);
    let remote = Remote {
        ufrag: if offerer { "answerer" } else { "offerer" }.to_owned(),
        pwd: "a password of enough length".to_owned(),
        fingerprints: vec![Fingerprint([0; 32])],
        role: if offerer { DtlsRole::Server } else { DtlsRole::Client },
        message_limit: 262_144,
        ice_lite: false,
    };
    engine.start(now, remote).unwrap();
    engine
}

fn sent(engine: &mut WebRtc, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    engine.poll_transmit(now, &mut |_, _, bytes| {
        all.push(bytes.to_vec());
        true
    });
    all
}

fn checks(all: &[Vec<u8>]) -> usize {
    all.iter().filter(|bytes| is_check(bytes)).count()
}

/// Lets time pass until `end`.
fn run(engine: &mut WebRtc, mut now: Instant, end: Instant) -> Vec<Vec<u8>> {
    let mut all = sent(engine, now);
    while let Some((at, _)) = engine.poll_timeout().filter(|(at, _)| *at <= end) {
        now = now.max(at);
        engine.timeout(now);
        all.extend(sent(engine, now));
    }
    all
}

#[test]
fn an_answerer_checks_as_soon_as_the_offerer_does() {
    let now = Instant::now();
    let (mut offerer, mut answerer) = (started(true, now), started(false, now));
    let later = now + HOLD / 2;
    assert_eq!(checks(&run(&mut answerer, now, later)), 0);
    let first = run(&mut offerer, now, later).into_iter().find(|bytes| is_check(bytes)).unwrap();
    assert!(answerer.input(later, address(true), address(false), &first));
    let all = sent(&mut answerer, later);
    assert!(checks(&all) > 0 && all.len() > checks(&all), "a check and an answer: {all:?}");
}

#[test]
fn an_answerer_checks_after_a_while_where_the_offerer_cannot_reach_it() {
    let now = Instant::now();
    let mut answerer = started(false, now);
    assert_eq!(checks(&run(&mut answerer, now, now + HOLD - Duration::from_millis(1))), 0);
    assert!(checks(&run(&mut answerer, now + HOLD, now + HOLD)) > 0);
}
