//! The relay: vectors, seats, strangers, amplification, rates and ends of life.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anywire_rendezvous as rendezvous;
use codec::Value;
use np1::{Role, relay_bind, relay_bound};
use proptest::prelude::*;
use rendezvous::relay::{End, Relay, RelayAt, Via};
use rendezvous::shared::{Other, Word};
use rendezvous::words::{Grant, Grants, Tag};
use rendezvous::{Limits, RelayStats};

const JOINER: &str = "203.0.113.50:41234";
const HOST: &str = "198.51.100.77:29471";
const STRANGER: &str = "192.0.2.66:9";

struct Bench {
    relay: Relay,
    now: Instant,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let at = RelayAt { ip: "192.0.2.1".parse().unwrap(), ports: (29600..=29699).collect(), shared: Some(29599) };
        Self { relay: Relay::new(at, limits, [7; 32], now), now }
    }

    fn grant(&mut self, nonce: &str) -> Grants {
        let caller: IpAddr = "203.0.113.50".parse().unwrap();
        let tag = Tag::new("d02c31189fe2f64c0a20e521").unwrap();
        self.relay.grant(self.now, caller, (tag, nonce.to_owned()), true, true).unwrap().0
    }

    fn send(&mut self, via: Via, from: &str, data: &[u8]) -> Option<(Via, End, Vec<u8>)> {
        let sent = self.relay.receive(self.now, via, udp(from), data)?;
        Some((sent.via, sent.to, sent.bytes()))
    }

    /// Binds at the shared port, cookie and all.
    fn bind(&mut self, from: &str, grant: Grant, role: Role) -> (u32, Other) {
        let ask = |cookie| Word::Ask { id: grant.id, role, cookie }.write();
        let (_, _, proof) = self.send(Via::Shared, from, &ask([0; 8])).unwrap();
        let Ok(Word::Proof { cookie, .. }) = Word::parse(&proof) else { panic!("{proof:?}") };
        let (_, _, bound) = self.send(Via::Shared, from, &ask(cookie)).unwrap();
        let Ok(Word::Bound { session, other, id }) = Word::parse(&bound) else { panic!("{bound:?}") };
        assert_eq!(id, grant.id);
        (session, other)
    }
}

fn udp(text: &str) -> End {
    End::Udp(text.parse().unwrap())
}

fn port(grant: Option<Grant>) -> Via {
    Via::Port(grant.unwrap().at.port())
}

fn vector(name: &str) -> Value {
    let path = format!("{}/../../lab/vectors/netpunch/relay/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The vectors name an id; ours follows from the knock, so it is put in the vector's place.
fn replay(name: &str) {
    let case = vector(name);
    let mut bench = Bench::new(Limits::default());
    let grant = bench.grant("0123456789ab").relay;
    let ours = codec::hex(&grant.unwrap().id);
    let theirs = case["inputs"]["id"].as_str().unwrap();
    let bytes = |value: &Value| codec::unhex(&value.as_str().unwrap().replace(theirs, &ours)).unwrap();
    let datagrams = case["inputs"]["datagrams"].as_array().unwrap();
    let sent = case["expect"]["sent"].as_array().unwrap();
    assert_eq!(datagrams.len(), sent.len());
    for (step, (datagram, want)) in datagrams.iter().zip(sent).enumerate() {
        let got = bench.send(port(grant), datagram["from"].as_str().unwrap(), &bytes(&datagram["data"]));
        let want = (!want.is_null()).then(|| (port(grant), udp(want["to"].as_str().unwrap()), bytes(&want["data"])));
        assert_eq!(got, want, "{name} step {step}");
    }
}

#[test]
fn vectors_of_the_port_for_old_peers() {
    replay("swap-both-ways");
    replay("wrong-id-or-role");
}

#[test]
fn vectors_of_bindings_and_allocations() {
    let bind = vector("bind-J");
    let id: [u8; 16] = codec::unhex(bind["inputs"]["id"].as_str().unwrap()).unwrap().try_into().unwrap();
    assert_eq!(codec::hex(&relay_bind(&id, Role::Joiner)), bind["expect"]["datagram"]);
    assert_eq!(codec::hex(&relay_bound(&id)), bind["expect"]["reply"]);
    for name in ["ok", "no-ip", "port-0", "id-15-bytes", "id-not-hex"] {
        let case = vector(&format!("allocation-{name}"));
        let accepted = Grant::read(case["inputs"].get("relay")).is_some();
        assert_eq!(Value::Bool(accepted), case["expect"]["accept"], "{name}");
    }
}

#[test]
fn two_peers_of_ours_meet_on_the_shared_port() {
    let mut bench = Bench::new(Limits::default());
    let grant = bench.grant("01234567").shared.unwrap();
    let (session, other) = bench.bind(JOINER, grant, Role::Joiner);
    assert_eq!(other, Other::Absent);
    let data = Word::Data { session, datagram: b"NP1:H" }.write();
    assert_eq!(bench.send(Via::Shared, JOINER, &data), None);
    assert_eq!(bench.bind(HOST, grant, Role::Host), (session, Other::Datagrams));
    assert_eq!(bench.send(Via::Shared, JOINER, &data), Some((Via::Shared, udp(HOST), data.clone())));
    assert_eq!(bench.send(Via::Shared, HOST, &data), Some((Via::Shared, udp(JOINER), data.clone())));
    assert_eq!(bench.send(Via::Shared, STRANGER, &data), None);
    let RelayStats { forwarded, strangers, unmet, .. } = bench.relay.stats();
    assert_eq!((forwarded, strangers, unmet), (2, 1, 1));
}

#[test]
fn an_old_host_on_a_port_meets_a_joiner_on_the_shared_port() {
    let mut bench = Bench::new(Limits::default());
    let grants = bench.grant("01234567");
    let (session, _) = bench.bind(JOINER, grants.shared.unwrap(), Role::Joiner);
    bench.send(port(grants.relay), HOST, &relay_bind(&grants.relay.unwrap().id, Role::Host)).unwrap();
    let data = Word::Data { session, datagram: b"to the host" }.write();
    assert_eq!(bench.send(Via::Shared, JOINER, &data), Some((port(grants.relay), udp(HOST), b"to the host".to_vec())));
    let back = Word::Data { session, datagram: b"back" }.write();
    assert_eq!(bench.send(port(grants.relay), HOST, b"back"), Some((Via::Shared, udp(JOINER), back)));
}

#[test]
fn a_player_without_udp_sits_at_a_stream_and_its_seat_goes_with_it() {
    let mut bench = Bench::new(Limits::default());
    let grant = bench.grant("01234567").shared.unwrap();
    let (session, _) = bench.bind(HOST, grant, Role::Host);
    let ask = Word::Ask { id: grant.id, role: Role::Joiner, cookie: [0; 8] }.write();
    let bound = bench.relay.receive(bench.now, Via::Shared, End::Stream(5), &ask).unwrap().bytes();
    assert_eq!(Word::parse(&bound), Ok(Word::Bound { id: grant.id, session, other: Other::Datagrams }));
    let (_, other) = bench.bind(HOST, grant, Role::Host);
    assert_eq!(other, Other::Stream, "the other end is told what it is up against");
    let data = Word::Data { session, datagram: b"x" }.write();
    assert_eq!(bench.send(Via::Shared, HOST, &data), Some((Via::Shared, End::Stream(5), data.clone())));
    assert_eq!(bench.relay.receive(bench.now, Via::Shared, End::Stream(6), &data), None);
    bench.relay.stream_closed(5);
    assert_eq!(bench.send(Via::Shared, HOST, &data), None);
}

#[test]
fn an_address_that_does_not_repeat_its_cookie_gets_no_seat() {
    let mut bench = Bench::new(Limits::default());
    let grant = bench.grant("01234567").shared.unwrap();
    let ask = |cookie| Word::Ask { id: grant.id, role: Role::Joiner, cookie }.write();
    let (_, _, proof) = bench.send(Via::Shared, JOINER, &ask([0; 8])).unwrap();
    let Ok(Word::Proof { cookie, .. }) = Word::parse(&proof) else { panic!("{proof:?}") };
    // Another address's cookie, and one of two minutes ago, only earn a new one.
    let (_, _, answer) = bench.send(Via::Shared, STRANGER, &ask(cookie)).unwrap();
    assert!(matches!(Word::parse(&answer), Ok(Word::Proof { .. })));
    bench.now += Duration::from_secs(60);
    let (_, _, answer) = bench.send(Via::Shared, JOINER, &ask(cookie)).unwrap();
    assert!(matches!(Word::parse(&answer), Ok(Word::Bound { .. })));
    bench.now += Duration::from_secs(60);
    bench.grant("01234567");
    let (_, _, answer) = bench.send(Via::Shared, JOINER, &ask(cookie)).unwrap();
    assert!(matches!(Word::parse(&answer), Ok(Word::Proof { .. })));
}

#[test]
fn an_unknown_id_is_not_even_answered() {
    let mut bench = Bench::new(Limits::default());
    bench.grant("01234567");
    let ask = Word::Ask { id: [9; 16], role: Role::Joiner, cookie: [0; 8] }.write();
    assert_eq!(bench.send(Via::Shared, STRANGER, &ask), None);
    assert_eq!(bench.send(Via::Port(29_650), STRANGER, &relay_bind(&[9; 16], Role::Host)), None);
}

#[test]
fn the_latest_binding_wins() {
    let mut bench = Bench::new(Limits::default());
    let grant = bench.grant("01234567").shared.unwrap();
    bench.bind(HOST, grant, Role::Host);
    let (session, _) = bench.bind(JOINER, grant, Role::Joiner);
    let moved = "203.0.113.50:50000";
    bench.bind(moved, grant, Role::Joiner);
    let data = Word::Data { session, datagram: b"x" }.write();
    assert_eq!(bench.send(Via::Shared, HOST, &data), Some((Via::Shared, udp(moved), data.clone())));
    assert_eq!(bench.send(Via::Shared, JOINER, &data), None);
}

#[test]
fn a_session_ends_after_ninety_idle_seconds_or_twelve_hours() {
    let mut bench = Bench::new(Limits::default());
    let first = bench.grant("01234567");
    bench.now += Duration::from_secs(89);
    assert_eq!(bench.grant("01234567"), first);
    bench.now += Duration::from_secs(90);
    bench.relay.handle_timeout(bench.now);
    assert!(bench.relay.is_empty() && bench.relay.poll_timeout().is_none());
    let second = bench.grant("01234567");
    assert_ne!(second.relay.map(|grant| grant.id), first.relay.map(|grant| grant.id));
    for _ in 0..12 * 60 {
        bench.now += Duration::from_secs(60);
        bench.send(port(second.relay), JOINER, &relay_bind(&second.relay.unwrap().id, Role::Joiner));
        bench.relay.handle_timeout(bench.now);
    }
    assert!(bench.relay.is_empty());
}

#[test]
fn a_session_forwards_no_more_than_its_rate() {
    let mut bench = Bench::new(Limits { relay_rate: 100_000, ..Limits::default() });
    let grant = bench.grant("01234567").shared.unwrap();
    bench.bind(HOST, grant, Role::Host);
    let (session, _) = bench.bind(JOINER, grant, Role::Joiner);
    let data = Word::Data { session, datagram: &[1; 992] }.write();
    let mut passed = 0;
    for _ in 0..10_000 {
        bench.now += Duration::from_millis(1);
        passed += usize::from(bench.send(Via::Shared, JOINER, &data).is_some());
    }
    // Ten seconds' worth, and one second's that was saved up.
    assert!((1090..=1110).contains(&passed), "{passed}");
}

#[test]
fn sessions_are_bounded_and_those_nobody_came_to_make_room() {
    let mut bench = Bench::new(Limits { sessions: 10, ..Limits::default() });
    let tag = Tag::new("d02c31189fe2f64c0a20e521").unwrap();
    let ask = |bench: &mut Bench, n: u32| {
        let caller = IpAddr::from((n << 8).to_be_bytes());
        let pair = (tag.clone(), format!("{n:08x}"));
        bench.relay.grant(bench.now, caller, pair, false, true).unwrap().0.shared.is_some()
    };
    assert_eq!((0..20).filter(|n| ask(&mut bench, *n)).count(), 10);
    bench.now += Duration::from_secs(15);
    assert!(ask(&mut bench, 99));
    assert_eq!(bench.relay.len().0, 10);
}

proptest! {
    #[test]
    fn any_datagram_is_survived_and_a_stranger_is_never_forwarded(
        data in prop::collection::vec(any::<u8>(), 0..64), magic in 0..6usize, shared: bool
    ) {
        let mut bench = Bench::new(Limits::default());
        let grants = bench.grant("01234567");
        bench.bind(HOST, grants.shared.unwrap(), Role::Host);
        bench.bind(JOINER, grants.shared.unwrap(), Role::Joiner);
        let head: [&[u8]; 6] = [b"", b"AWRB", b"AWRC", b"AWRA", b"AWRD", b"TRLB"];
        let datagram = [head[magic], &data].concat();
        let via = if shared { Via::Shared } else { port(grants.relay) };
        let stranger: SocketAddr = STRANGER.parse().unwrap();
        if let Some((_, to, bytes)) = bench.send(via, STRANGER, &datagram) {
            prop_assert_eq!(to, End::Udp(stranger));
            prop_assert!(bytes.len() <= datagram.len());
        }
    }
}
