//! Answers in, actions out.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use seam::Dice;

use crate::gateway::Way;
use crate::memory::Entry;
use crate::plan::{Action, Answer, At, Failure, Granted, Plan, Router};
use crate::words::Method::{NatPmp, Pcp, Upnp};
use crate::words::Protocol::{Tcp, Udp};
use crate::words::{Event, Method, Protocol, Why};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
const WAN: Ipv4Addr = Ipv4Addr::new(44, 128, 1, 1);
const WAY: Way = Way { gateway: GATEWAY, local: LOCAL };
const PORT: u16 = 7777;
const LEASE: u32 = 3600;

struct Test {
    plan: Plan,
    at: At,
}

impl Test {
    fn with(protocols: &[Protocol], remembers: bool, left: Vec<Entry>) -> Self {
        let wanted: BTreeMap<Protocol, u16> = protocols.iter().map(|protocol| (*protocol, PORT)).collect();
        let plan = Plan::new(wanted, LEASE, remembers, left, Dice::new([7; 32]));
        Self { plan, at: At { now: Instant::now(), wall: 1_790_000_000 } }
    }

    fn started(protocols: &[Protocol]) -> Self {
        let mut test = Self::with(protocols, true, Vec::new());
        test.plan.start(test.at, Some(WAY));
        test
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.plan.poll_action()).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.plan.poll_event()).collect()
    }

    /// What happened but for outside addresses that were told on the way.
    fn news(&mut self) -> Vec<Event> {
        self.events().into_iter().filter(|event| !matches!(event, Event::Wan { .. })).collect()
    }

    fn answer(&mut self, answer: Answer) {
        self.plan.answered(self.at, answer);
    }

    fn found(&mut self) {
        self.answer(Answer::Searched(Ok(Router { gateway: GATEWAY, client: LOCAL, wan: Ok(WAN) })));
    }

    /// Answers a question of these actions.
    fn reply(&mut self, actions: &[Action], protocol: Protocol, method: Method, result: Result<Granted, Failure>) {
        let (id, entry, _) = asked(actions, protocol, method).expect("it was asked");
        self.answer(Answer::Asked { id, entry, result });
    }

    fn pass(&mut self, seconds: u64) {
        self.at.now += Duration::from_secs(seconds);
        self.at.wall += seconds;
        self.plan.handle_timeout(self.at);
    }
}

fn asked(actions: &[Action], protocol: Protocol, method: Method) -> Option<(u64, Entry, u32)> {
    actions.iter().rev().find_map(|action| match action {
        Action::Ask { id, entry, lease } if (entry.protocol, entry.method) == (protocol, method) => {
            Some((*id, *entry, *lease))
        }
        _ => None,
    })
}

fn removed(actions: &[Action]) -> Vec<(Protocol, Method, u16)> {
    let removal = |action: &Action| match action {
        Action::Remove { entry, .. } => Some((entry.protocol, entry.method, entry.external)),
        Action::Search | Action::Ask { .. } => None,
    };
    actions.iter().filter_map(removal).collect()
}

fn gone(test: &mut Test, actions: &[Action], gone: bool) {
    for action in actions {
        if let Action::Remove { id, .. } = action {
            test.answer(Answer::Removed { id: *id, gone });
        }
    }
}

fn granted(port: u16) -> Result<Granted, Failure> {
    Ok(Granted { external: SocketAddrV4::new(WAN, port), lease: LEASE })
}

fn no() -> Result<Granted, Failure> {
    Err(Failure::Told(Why::NoAnswer))
}

fn mapped(protocol: Protocol, by: Method, port: u16) -> Event {
    let lease = Some(Duration::from_secs(LEASE.into()));
    Event::Mapped { protocol, by, external: SocketAddrV4::new(WAN, port), lease }
}

fn refused(protocol: Protocol, by: Method, why: Why) -> Event {
    Event::Refused { protocol, by, why }
}

fn lost(protocol: Protocol, by: Method, port: u16) -> Event {
    Event::Lost { protocol, by, external: SocketAddrV4::new(WAN, port) }
}

fn left(method: Method, external: u16) -> Entry {
    Entry {
        method,
        protocol: Udp,
        gateway: GATEWAY,
        client: LOCAL,
        internal: PORT,
        external,
        nonce: [9; 3],
        until: 1_790_000_100,
    }
}

/// A plan whose UDP port is mapped by UPnP, and by nothing else.
fn held_by_upnp() -> Test {
    let mut test = Test::started(&[Udp]);
    let first = test.actions();
    test.reply(&first, Udp, Pcp, no());
    test.reply(&first, Udp, NatPmp, no());
    test.found();
    let actions = test.actions();
    test.reply(&actions, Udp, Upnp, granted(PORT));
    assert!(test.events().contains(&mapped(Udp, Upnp, PORT)));
    test
}

#[test]
fn all_ways_are_asked_at_once_and_written_down_first() {
    let mut test = Test::started(&[Udp, Tcp]);
    let written = test.plan.entries();
    assert_eq!(written.len(), 4);
    let actions = test.actions();
    assert_eq!(actions.iter().filter(|action| **action == Action::Search).count(), 1);
    for protocol in [Udp, Tcp] {
        for method in [Pcp, NatPmp] {
            let (_, entry, lease) = asked(&actions, protocol, method).unwrap();
            assert_eq!((entry.external, entry.internal, lease), (PORT, PORT, LEASE));
            assert!(written.contains(&entry), "{entry:?}");
            assert_eq!(entry.nonce == [0; 3], method == NatPmp);
        }
        assert_eq!(asked(&actions, protocol, Upnp), None, "nobody is found yet");
    }
    test.found();
    let actions = test.actions();
    for protocol in [Udp, Tcp] {
        let (_, entry, _) = asked(&actions, protocol, Upnp).unwrap();
        assert!(test.plan.entries().contains(&entry));
    }
    assert_eq!(test.events(), [Event::Wan { by: Upnp, address: WAN }]);
}

#[test]
fn the_first_good_answer_counts_and_protocols_are_independent() {
    let not = Why::Refused { code: 606, text: "no".into() };
    let said_no = || Err(Failure::Told(Why::Refused { code: 606, text: "no".into() }));
    // Who answers the UDP question well, who the TCP one; nobody else does.
    let table = [(Some(Pcp), None), (Some(NatPmp), Some(Pcp)), (Some(Upnp), None), (None, Some(Upnp)), (None, None)];
    for (udp, tcp) in table {
        let mut test = Test::started(&[Udp, Tcp]);
        let mut actions = test.actions();
        test.found();
        actions.extend(test.actions());
        for (protocol, good) in [(Udp, udp), (Tcp, tcp)] {
            for method in [Pcp, NatPmp, Upnp] {
                let answer = if good == Some(method) { granted(PORT) } else { said_no() };
                test.reply(&actions, protocol, method, answer);
            }
        }
        let news = test.news();
        for (protocol, good) in [(Udp, udp), (Tcp, tcp)] {
            for method in [Pcp, NatPmp, Upnp] {
                let expected = if good == Some(method) {
                    mapped(protocol, method, PORT)
                } else {
                    refused(protocol, method, not.clone())
                };
                assert!(news.contains(&expected), "{udp:?} {tcp:?}: {expected:?} in {news:?}");
            }
        }
        assert_eq!(news.len(), 7, "{news:?}");
        assert!(news.contains(&Event::Done));
        assert_eq!(test.plan.entries().len(), usize::from(udp.is_some()) + usize::from(tcp.is_some()));
    }
}

#[test]
fn upnp_is_not_asked_for_what_is_mapped_when_it_is_found() {
    let mut test = Test::started(&[Udp, Tcp]);
    let actions = test.actions();
    test.reply(&actions, Udp, Pcp, granted(PORT));
    test.found();
    let actions = test.actions();
    assert_eq!(asked(&actions, Udp, Upnp), None);
    assert!(asked(&actions, Tcp, Upnp).is_some());
}

#[test]
fn a_second_answer_with_the_same_port_is_the_same_mapping_until_the_end() {
    let mut test = Test::started(&[Udp]);
    let actions = test.actions();
    test.reply(&actions, Udp, NatPmp, granted(PORT));
    test.reply(&actions, Udp, Pcp, granted(PORT));
    assert_eq!(test.news(), [mapped(Udp, NatPmp, PORT), Event::Done]);
    assert_eq!(removed(&test.actions()), []);
    assert_eq!(test.plan.entries().len(), 2);
    test.pass(600);
    let actions = test.actions();
    assert!(asked(&actions, Udp, NatPmp).is_some() && asked(&actions, Udp, Pcp).is_none());
    test.reply(&actions, Udp, NatPmp, granted(PORT));
    test.plan.stop(test.at);
    assert_eq!(removed(&test.actions()), [(Udp, NatPmp, PORT), (Udp, Pcp, PORT)]);
}

#[test]
fn a_question_that_another_way_made_needless_leaves_nothing_behind() {
    let mut test = Test::started(&[Udp]);
    let actions = test.actions();
    test.reply(&actions, Udp, Pcp, granted(PORT));
    test.reply(&actions, Udp, NatPmp, Err(Failure::Unneeded));
    assert_eq!(test.news(), [mapped(Udp, Pcp, PORT), Event::Done]);
    assert_eq!(test.plan.entries().len(), 1);
    assert_eq!(test.plan.ways(), BTreeMap::from([(Udp, Pcp)]));
}

#[test]
fn a_second_answer_with_another_port_is_taken_back_and_the_chosen_one_renewed_after() {
    let mut test = Test::started(&[Udp]);
    let actions = test.actions();
    test.reply(&actions, Udp, Pcp, granted(PORT));
    test.reply(&actions, Udp, NatPmp, granted(9999));
    let actions = test.actions();
    assert_eq!(removed(&actions), [(Udp, NatPmp, 9999)]);
    assert_eq!(asked(&actions, Udp, Pcp), None, "not before");
    gone(&mut test, &actions, true);
    assert!(asked(&test.actions(), Udp, Pcp).is_some());
    assert_eq!(test.news(), [mapped(Udp, Pcp, PORT), Event::Done]);
}

#[test]
fn a_private_outside_address_is_told_and_nothing_is_mapped() {
    let private = Ipv4Addr::new(100, 64, 0, 9);
    let mut test = Test::started(&[Udp]);
    let actions = test.actions();
    test.answer(Answer::Searched(Ok(Router { gateway: GATEWAY, client: LOCAL, wan: Ok(private) })));
    test.reply(&actions, Udp, NatPmp, Err(Failure::Told(Why::PrivateWan(private))));
    let behind = Ok(Granted { external: SocketAddrV4::new(private, PORT), lease: LEASE });
    test.reply(&actions, Udp, Pcp, behind);
    assert_eq!(removed(&test.actions()), [(Udp, Pcp, PORT)], "PCP tells where it leads only when it is made");
    let events = test.events();
    for by in [Upnp, NatPmp, Pcp] {
        assert!(events.contains(&Event::Wan { by, address: private }), "{by}");
        assert!(events.contains(&refused(Udp, by, Why::PrivateWan(private))), "{by}");
    }
    assert_eq!(events.len(), 7, "{events:?}");
}

#[test]
fn a_port_of_another_machine_is_passed_over_three_times() {
    let mut test = Test::started(&[Udp]);
    let first = test.actions();
    test.reply(&first, Udp, Pcp, no());
    test.reply(&first, Udp, NatPmp, no());
    test.found();
    let mut ports = Vec::new();
    for _ in 0..4 {
        let actions = test.actions();
        let (_, entry, _) = asked(&actions, Udp, Upnp).unwrap();
        assert!(test.plan.entries().contains(&entry), "written down before it is asked");
        ports.push(entry.external);
        test.reply(&actions, Udp, Upnp, Err(Failure::PortTaken));
    }
    assert_eq!(ports[0], PORT);
    assert!(ports[1..].iter().all(|port| *port >= 20_000), "{ports:?}");
    assert_eq!(test.actions(), []);
    assert!(test.events().contains(&refused(Udp, Upnp, Why::PortTaken(PORT))));
}

#[test]
fn a_router_without_leases_maps_for_good_only_where_that_is_remembered() {
    for remembers in [true, false] {
        let mut test = Test::with(&[Udp], remembers, Vec::new());
        test.plan.start(test.at, None);
        test.found();
        let actions = test.actions();
        test.reply(&actions, Udp, Upnp, Err(Failure::PermanentOnly));
        let actions = test.actions();
        let again = asked(&actions, Udp, Upnp);
        if !remembers {
            assert_eq!(again, None);
            assert!(test.events().contains(&refused(Udp, Upnp, Why::PermanentOnly)));
            continue;
        }
        let (_, entry, lease) = again.unwrap();
        assert_eq!((lease, entry.until), (0, 0));
        assert_eq!(test.plan.entries(), [entry]);
        test.reply(&actions, Udp, Upnp, Ok(Granted { external: SocketAddrV4::new(WAN, PORT), lease: 0 }));
        let external = SocketAddrV4::new(WAN, PORT);
        assert!(test.events().contains(&Event::Mapped { protocol: Udp, by: Upnp, external, lease: None }));
        test.pass(600);
        assert_eq!(asked(&test.actions(), Udp, Upnp).map(|(_, _, lease)| lease), Some(0), "looked after all the same");
    }
}

#[test]
fn renewal_comes_at_half_the_lease_or_after_ten_minutes() {
    for (lease, after) in [(60, 30), (3600, 600), (1, 1)] {
        let mut test = Test::started(&[Udp]);
        let actions = test.actions();
        test.reply(&actions, Udp, Pcp, Ok(Granted { external: SocketAddrV4::new(WAN, PORT), lease }));
        assert_eq!(test.plan.poll_timeout(), Some(test.at.now + Duration::from_secs(after)), "{lease}");
    }
}

#[test]
fn another_outside_address_at_renewal_is_told() {
    let mut test = held_by_upnp();
    test.pass(600);
    let actions = test.actions();
    let other = SocketAddrV4::new(Ipv4Addr::new(44, 128, 9, 9), PORT);
    test.reply(&actions, Udp, Upnp, Ok(Granted { external: other, lease: LEASE }));
    let lease = Some(Duration::from_secs(3600));
    assert_eq!(test.news(), [Event::Mapped { protocol: Udp, by: Upnp, external: other, lease }]);
}

#[test]
fn a_refused_renewal_is_a_loss_and_all_ways_are_asked_when_it_is_taken_back() {
    let mut test = held_by_upnp();
    test.pass(600);
    let actions = test.actions();
    test.reply(&actions, Udp, Upnp, Err(Failure::PortTaken));
    assert_eq!(test.news(), [lost(Udp, Upnp, PORT)]);
    let actions = test.actions();
    assert_eq!(removed(&actions), [(Udp, Upnp, PORT)]);
    assert_eq!(asked(&actions, Udp, Pcp), None, "a removal must not meet a new mapping");
    gone(&mut test, &actions, true);
    let actions = test.actions();
    assert!(asked(&actions, Udp, Pcp).is_some() && asked(&actions, Udp, NatPmp).is_some());
    test.found();
    assert!(asked(&test.actions(), Udp, Upnp).is_some());
}

#[test]
fn a_silent_router_loses_the_mapping_only_when_its_lease_has_ended() {
    let mut test = held_by_upnp();
    let start = test.at.now;
    let mut asks = 0;
    let news = loop {
        let next = test.plan.poll_timeout().unwrap();
        test.at.now = next;
        test.plan.handle_timeout(test.at);
        let actions = test.actions();
        test.reply(&actions, Udp, Upnp, no());
        asks += 1;
        let news = test.news();
        if !news.is_empty() {
            break news;
        }
    };
    assert_eq!(news, [lost(Udp, Upnp, PORT)]);
    assert!((3600..3620).contains(&test.at.now.duration_since(start).as_secs()), "after {asks} questions");
    assert!((5..40).contains(&asks), "{asks}");
}

#[test]
fn what_was_refused_is_tried_again_without_saying_so_again() {
    let mut test = Test::started(&[Udp]);
    let actions = test.actions();
    test.reply(&actions, Udp, Pcp, no());
    test.reply(&actions, Udp, NatPmp, no());
    test.answer(Answer::Searched(Err(Why::NoAnswer)));
    assert_eq!(test.news().len(), 4, "three refusals and the end of the round");
    assert_eq!(test.plan.poll_timeout(), Some(test.at.now + Duration::from_secs(30)));
    test.pass(30);
    let actions = test.actions();
    test.reply(&actions, Udp, Pcp, no());
    test.answer(Answer::Searched(Err(Why::NoAnswer)));
    test.reply(&actions, Udp, NatPmp, no());
    assert_eq!(test.news(), []);
    assert_eq!(test.plan.poll_timeout(), Some(test.at.now + Duration::from_secs(600)));
    test.pass(600);
    let actions = test.actions();
    test.reply(&actions, Udp, NatPmp, granted(PORT));
    assert_eq!(test.news(), [mapped(Udp, NatPmp, PORT)]);
}

#[test]
fn without_a_way_out_everything_is_refused_at_once_but_upnp_is_looked_for() {
    let mut test = Test::with(&[Udp], true, Vec::new());
    test.plan.start(test.at, None);
    assert_eq!(test.news(), [refused(Udp, Pcp, Why::NoGateway), refused(Udp, NatPmp, Why::NoGateway)]);
    assert_eq!(test.actions(), [Action::Search]);
    assert_eq!(test.plan.entries(), []);
}

#[test]
fn another_network_loses_what_was_mapped_and_starts_over() {
    let mut test = held_by_upnp();
    let other = Way { gateway: Ipv4Addr::new(10, 0, 0, 1), local: Ipv4Addr::new(10, 0, 0, 7) };
    test.plan.set_way(test.at, Some(WAY));
    assert_eq!(test.events(), [], "the same one is none");
    test.plan.set_way(test.at, Some(other));
    assert_eq!(test.news(), [lost(Udp, Upnp, PORT)]);
    let actions = test.actions();
    assert_eq!(asked(&actions, Udp, Pcp).map(|(_, entry, _)| entry.gateway), Some(other.gateway));
    assert_eq!(removed(&actions), [], "the other router is out of reach");
    assert_eq!(test.plan.entries().first().map(|entry| entry.gateway), Some(GATEWAY), "but not forgotten");
}

#[test]
fn what_a_dead_process_left_is_taken_back_or_taken_over() {
    let elsewhere = Entry { gateway: Ipv4Addr::new(10, 0, 0, 1), ..left(Upnp, 1) };
    let lapsed = Entry { until: 1_789_999_999, ..left(Upnp, 2) };
    let other_port = Entry { internal: 8888, ..left(Upnp, 8888) };
    let other_pmp = Entry { internal: 8889, ..left(NatPmp, 8889) };
    let ours = left(Upnp, PORT);
    let pcp = left(Pcp, 9999);
    let mut test = Test::with(&[Udp], true, vec![elsewhere, lapsed, other_port, other_pmp, ours, pcp]);
    test.plan.start(test.at, Some(WAY));
    let actions = test.actions();
    assert_eq!(removed(&actions), [(Udp, NatPmp, 8889)]);
    let (_, entry, _) = asked(&actions, Udp, Pcp).unwrap();
    assert_eq!((entry.nonce, entry.external), ([9; 3], 9999), "its server knows it by the nonce");
    test.found();
    let more = test.actions();
    assert_eq!(removed(&more), [(Udp, Upnp, 8888)]);
    let verified = |action: &Action| matches!(action, Action::Remove { verify: true, .. });
    assert!(more.iter().any(verified), "it may be another machine's by now");
    assert!(asked(&more, Udp, Upnp).is_some());
    gone(&mut test, &actions, true);
    gone(&mut test, &more, false);
    let kept = test.plan.entries();
    assert!(kept.contains(&elsewhere) && kept.contains(&other_port), "what nobody answered for is kept: {kept:?}");
    assert!(!kept.contains(&lapsed) && !kept.contains(&other_pmp));
    assert_eq!(kept.len(), 5, "{kept:?}");
}

#[test]
fn at_the_end_everything_is_taken_back_whatever_state_it_is_in() {
    let mut test = Test::started(&[Udp, Tcp]);
    let actions = test.actions();
    test.reply(&actions, Udp, Pcp, granted(PORT));
    test.reply(&actions, Tcp, NatPmp, Err(Failure::Told(Why::Unspoken)));
    test.plan.stop(test.at);
    let removals = test.actions();
    assert_eq!(removed(&removals), [(Udp, Pcp, PORT)]);
    assert!(!test.plan.finished());
    // Questions that were on their way: granted, or cut short, which may be granted all the same.
    test.reply(&actions, Udp, NatPmp, granted(PORT));
    test.reply(&actions, Tcp, Pcp, no());
    let more = test.actions();
    assert_eq!(removed(&more), [(Udp, NatPmp, PORT), (Tcp, Pcp, PORT)]);
    test.found();
    assert_eq!(test.actions(), [], "nothing is asked any more");
    gone(&mut test, &removals, true);
    gone(&mut test, &more, true);
    assert!(test.plan.finished());
    assert_eq!(test.plan.entries(), []);
    assert_eq!(test.plan.poll_timeout(), None);
}

#[test]
fn what_nobody_took_back_is_remembered() {
    let mut test = held_by_upnp();
    test.plan.stop(test.at);
    let removals = test.actions();
    gone(&mut test, &removals, false);
    assert!(test.plan.finished());
    assert_eq!(test.plan.entries().len(), 1);
}

#[test]
fn a_distrusted_way_is_not_gone_again() {
    let mut test = held_by_upnp();
    test.plan.distrust(test.at, Udp, Upnp);
    assert_eq!(test.news(), [lost(Udp, Upnp, PORT), refused(Udp, Upnp, Why::Disproved)]);
    let actions = test.actions();
    gone(&mut test, &actions, true);
    let actions = test.actions();
    assert!(asked(&actions, Udp, Pcp).is_some());
    test.found();
    assert_eq!(asked(&test.actions(), Udp, Upnp), None);
    test.reply(&actions, Udp, Pcp, no());
    test.reply(&actions, Udp, NatPmp, no());
    assert_eq!(test.news(), []);
}

#[test]
fn a_grant_that_nobody_waits_for_is_taken_back() {
    let mut test = Test::started(&[Udp]);
    let actions = test.actions();
    test.plan.set_way(test.at, None);
    test.actions();
    test.reply(&actions, Udp, NatPmp, granted(9999));
    assert_eq!(removed(&test.actions()), [(Udp, NatPmp, 9999)]);
}
