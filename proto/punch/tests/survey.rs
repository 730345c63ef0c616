//! How a router behaves, told by the tests of RFC 5780.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests fail their test")]

mod common;

use std::time::Duration;

use anywire_punch::{Event, Survey};
use common::{MS, World, at, path};
use netem::{Dependence, LinkConfig, Loss, NatConfig, Ports};
use stun::{Filtering, Mapping};

const TELLER: [&str; 2] = ["198.51.100.10", "198.51.100.11"];
const PLAIN: [&str; 2] = ["198.51.100.20:3478", "198.51.100.21:19302"];
const ME: &str = "192.168.0.2:29471";

/// A machine behind a router, a server of so many addresses, plain ones.
fn world(link: LinkConfig, kind: NatConfig, seed: u8, addresses: usize, plain: usize) -> (World, usize) {
    let mut world = World::new(link, seed);
    let home = world.router(kind, "203.0.113.5");
    if addresses > 0 {
        world.stun_teller(&TELLER[..addresses]);
    }
    for server in &PLAIN[..plain] {
        world.stun_server(server);
    }
    let me = world.machine(ME, Some(home));
    (world, me)
}

fn survey(world: &mut World, me: usize, servers: &[&str]) -> (Duration, Duration, Survey) {
    let servers = servers.iter().map(|server| at(server)).collect();
    world.call(me, |punch, now| punch.survey(now, servers));
    world.run(MS(5_000));
    match world.events(me) {
        [(first, Event::Observed(_)), (last, Event::Surveyed(survey))] => (*first, *last, survey.clone()),
        other => panic!("an observation and a survey are wanted: {other:?}"),
    }
}

fn delayed() -> LinkConfig {
    LinkConfig { delay: MS(30), ..LinkConfig::default() }
}

const ALL: [Dependence; 3] = [Dependence::Endpoint, Dependence::Address, Dependence::AddressAndPort];
const MAPPINGS: [Mapping; 3] =
    [Mapping::EndpointIndependent, Mapping::AddressDependent, Mapping::AddressAndPortDependent];
const FILTERINGS: [Filtering; 3] =
    [Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];

#[test]
fn a_server_with_two_addresses_tells_every_class_within_a_second() {
    for (mapping, want_mapping) in ALL.into_iter().zip(MAPPINGS) {
        for (filtering, want_filtering) in ALL.into_iter().zip(FILTERINGS) {
            for hairpin in [false, true] {
                let ports = if mapping == Dependence::Endpoint { Ports::Preserving } else { Ports::Random };
                let kind = NatConfig { mapping, filtering, ports, hairpin, ..NatConfig::OPEN };
                let (mut world, me) = world(delayed(), kind, 1, 2, 2);
                let (first, last, seen) = survey(&mut world, me, &["198.51.100.10:3478", PLAIN[0], PLAIN[1]]);
                let Survey { behaviour, observation } = seen;
                assert_eq!((behaviour.mapping, behaviour.filtering), (want_mapping, want_filtering), "{kind:?}");
                assert_eq!(
                    behaviour.hairpin,
                    Some(hairpin && (mapping == Dependence::Endpoint || filtering == Dependence::Endpoint)),
                    "{kind:?}"
                );
                assert_eq!(observation.symmetric, mapping != Dependence::Endpoint);
                assert_eq!(first, MS(60), "the address does not wait for the classes");
                assert!(last < MS(1_000), "{last:?}");
            }
        }
    }
}

#[test]
fn a_server_with_one_address_tells_whether_ports_count() {
    for (kind, mapping, filtering) in [
        (NatConfig::OPEN, Mapping::Unknown, Filtering::PortIndependent),
        (NatConfig::ADDRESS_RESTRICTED, Mapping::Unknown, Filtering::PortIndependent),
        (NatConfig::PORT_RESTRICTED, Mapping::Unknown, Filtering::AddressAndPortDependent),
        (NatConfig::SYMMETRIC, Mapping::AddressAndPortDependent, Filtering::AddressAndPortDependent),
    ] {
        let (mut world, me) = world(delayed(), kind, 1, 1, 0);
        let (_, last, seen) = survey(&mut world, me, &["198.51.100.10:3478"]);
        assert_eq!((seen.behaviour.mapping, seen.behaviour.filtering), (mapping, filtering), "{kind:?}");
        assert_eq!(seen.observation.symmetric, mapping == Mapping::AddressAndPortDependent);
        assert!(last < MS(1_000));
    }
}

#[test]
fn of_two_servers_that_tell_the_one_with_two_addresses_is_asked() {
    let mut world = World::new(delayed(), 1);
    let home = world.router(NatConfig::ADDRESS_RESTRICTED, "203.0.113.5");
    world.stun_teller(&["198.51.100.30"]);
    world.stun_teller(&TELLER);
    let me = world.machine(ME, Some(home));
    let (first, last, seen) = survey(&mut world, me, &["198.51.100.30:3478", "198.51.100.10:3478"]);
    assert_eq!(seen.behaviour.filtering, Filtering::AddressDependent);
    assert!(first == MS(60) && last < MS(1_000), "{last:?}");
}

#[test]
fn a_plain_server_beside_it_tells_that_nothing_counts() {
    let (mut world, me) = world(delayed(), NatConfig::PORT_RESTRICTED, 1, 1, 1);
    let (_, _, seen) = survey(&mut world, me, &["198.51.100.10:3478", PLAIN[0]]);
    assert_eq!(seen.behaviour.mapping, Mapping::EndpointIndependent);
}

#[test]
fn plain_servers_alone_leave_what_they_cannot_tell_unknown() {
    for (kind, mapping) in
        [(NatConfig::PORT_RESTRICTED, Mapping::EndpointIndependent), (NatConfig::SYMMETRIC, Mapping::Dependent)]
    {
        let (mut world, me) = world(delayed(), kind, 1, 0, 2);
        let (_, last, seen) = survey(&mut world, me, &PLAIN);
        assert_eq!((seen.behaviour.mapping, seen.behaviour.filtering), (mapping, Filtering::Unknown));
        assert!(last < MS(1_000), "{last:?}");
    }
}

#[test]
fn what_was_sent_to_before_proves_nothing_about_the_filter() {
    // Both addresses of the server are asked for the public address: the router lets the second one in anyway.
    let (mut world, me) = world(delayed(), NatConfig::ADDRESS_RESTRICTED, 1, 2, 0);
    let (_, _, seen) = survey(&mut world, me, &["198.51.100.10:3478", "198.51.100.11:3478"]);
    assert_eq!(seen.behaviour.filtering, Filtering::PortIndependent);
    assert_eq!(seen.behaviour.mapping, Mapping::EndpointIndependent);
}

#[test]
fn an_other_address_that_is_dead_leaves_the_filter_unknown() {
    let mut world = World::new(delayed(), 1);
    let home = world.router(NatConfig::OPEN, "203.0.113.5");
    let server = world.puppet("198.51.100.10:3478");
    let me = world.machine(ME, Some(home));
    world.call(me, |punch, now| punch.survey(now, vec![at("198.51.100.10:3478")]));
    world.run(MS(40));
    let (_, from, bytes) = world.got(server)[0].clone();
    let request = stun::Request::parse(&bytes).unwrap();
    let answer = stun::Answer::of(&request, from).with_places(None, Some(at("198.51.100.10:3479")));
    world.speak(server, &from.to_string(), &answer.encode());
    world.run(MS(3_000));
    let Some((_, Event::Surveyed(seen))) = world.events(me).last() else { panic!("no survey") };
    assert_eq!(seen.behaviour.filtering, Filtering::Unknown);
}

#[test]
fn silence_costs_under_two_seconds() {
    let (mut world, me) = world(delayed(), NatConfig::OPEN, 1, 0, 0);
    let (first, last, seen) = survey(&mut world, me, &PLAIN);
    assert_eq!((first, last, seen), (MS(1_900), MS(1_900), Survey::default()));
}

#[test]
fn a_bad_link_is_survived_and_never_shows_a_filter_that_is_more_open() {
    let mut right = 0;
    for seed in 0..60 {
        let link = LinkConfig { loss: Loss::Random(0.1), delay: MS(40), jitter: MS(20), ..LinkConfig::default() };
        let (mut world, me) = world(link, NatConfig::PORT_RESTRICTED, seed, 2, 2);
        let (_, last, seen) = survey(&mut world, me, &["198.51.100.10:3478", PLAIN[0], PLAIN[1]]);
        assert!(last < MS(3_200), "{last:?}");
        let class = seen.behaviour.filtering;
        assert!(matches!(class, Filtering::AddressAndPortDependent | Filtering::Unknown), "seed {seed}: {class:?}");
        right += u32::from(class == Filtering::AddressAndPortDependent);
    }
    assert!(right >= 50, "{right} of 60");
}

#[test]
fn a_forged_answer_from_elsewhere_does_not_count() {
    let (mut world, me) = world(delayed(), NatConfig::PORT_RESTRICTED, 1, 2, 0);
    world.call(me, |punch, now| punch.survey(now, vec![at("198.51.100.10:3478")]));
    world.run(MS(90));
    let changed: Vec<_> =
        world.wire.iter().filter(|(_, by, _, bytes)| *by == me && bytes.len() == 28).cloned().collect();
    assert!(!changed.is_empty());
    for (.., bytes) in changed {
        let request = stun::Request::parse(&bytes).unwrap();
        let forged = stun::Answer::of(&request, at("203.0.113.5:29471")).encode();
        world.call(me, |punch, now| assert!(punch.handle_stun(now, path("198.51.100.66:3479"), &forged).is_err()));
    }
    world.run(MS(3_000));
    let Some((_, Event::Surveyed(seen))) = world.events(me).last() else { panic!("no survey") };
    assert_eq!(seen.behaviour.filtering, Filtering::AddressAndPortDependent);
}

#[test]
fn a_server_on_ipv6_tells_that_address_and_no_other() {
    let mut world = World::new(delayed(), 1);
    world.stun_server("198.51.100.20:3478");
    world.stun_server("[2001:db8::7]:3478");
    let me = world.machine("[2001:db8::9]:4000", None);
    let servers = vec![at("198.51.100.20:3478"), at("[2001:db8::7]:3478")];
    world.call(me, |punch, now| punch.survey(now, servers));
    world.run(MS(3_000));
    let Some((_, Event::Surveyed(seen))) = world.events(me).last() else { panic!("no survey") };
    assert_eq!(seen.behaviour.v6, Some(at("[2001:db8::9]:4000")));
    assert!(seen.observation.public.is_empty());
}
