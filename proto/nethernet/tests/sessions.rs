//! Whole sessions between two endpoints in virtual time.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may fail, and a virtual time begins somewhere"
)]

mod pair;

use netem::{LinkConfig, Loss};
use nethernet::engine::Certificate;
use nethernet::frame::Channel::{Reliable, Unreliable};
use nethernet::frame::{FrameError, PACKET_MAX};
use nethernet::session::{Admit, Config, ConnectError, Endpoint, Event, SendError, Use};
use nethernet::{NetworkId, SessionError};
use pair::{World, delayed, ms};

#[test]
fn a_dial_opens_both_channels_on_both_sides() {
    let mut world = World::pair(delayed(1), delayed(1), 1);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open), "{:?}", (&world.peers[0].events, &world.peers[1].events));
    assert_eq!(world.opened(0), [dialled]);
    assert!(world.peers.iter().all(|p| !p.events.iter().any(|e| matches!(e, Event::Readable(_)))), "nothing was sent");
    let other = world.opened(1)[0];
    world.send(0, dialled, Reliable, b"hello");
    world.send(1, other, Unreliable, b"there");
    world.run(ms(100));
    assert_eq!(world.peers[1].got, [(other, Reliable, b"hello".to_vec().into())]);
    assert_eq!(world.peers[0].got, [(dialled, Unreliable, b"there".to_vec().into())]);
}

#[test]
fn packets_of_all_sizes_arrive_whole() {
    let mut world = World::pair(delayed(1), delayed(1), 2);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    let sizes = [1, 1_000, 262_143, 262_144, 1_000_000];
    for (n, size) in sizes.into_iter().enumerate() {
        world.send(0, dialled, Reliable, &vec![n as u8; size]);
    }
    assert!(world.until(ms(60_000), |w| w.peers[1].got.len() == sizes.len()));
    let got: Vec<_> = world.peers[1].got.iter().map(|(_, _, p)| p.len()).collect();
    assert_eq!(got, sizes);
    assert!(world.peers[1].got.iter().enumerate().all(|(n, (_, _, p))| p.iter().all(|b| *b == n as u8)));
}

#[test]
fn nobody_answers() {
    let mut world = World::pair(delayed(1), delayed(1), 3);
    world.peers[1].deaf = true;
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(20_000), |w| !w.closed(0).is_empty()));
    assert_eq!(world.closed(0), [(dialled, SessionError::NegotiationTimeoutWaitingForResponse)]);
    assert_eq!(world.now - world.start, ms(10_000));
    assert!(world.peers[0].endpoint.is_empty());
}

#[test]
fn connect_takes_a_handful_of_round_trips_and_no_timer() {
    // Offer and answer, checks, DTLS, SCTP and channels: over links of 1 ms one way, nothing may wait for a timer.
    for seed in 10..20 {
        let mut world = World::pair(delayed(1), delayed(1), seed);
        world.dial(0, 1);
        assert!(world.until(ms(5_000), World::both_open));
        assert!(world.now - world.start <= ms(20), "{:?}", world.now - world.start);
    }
}

#[test]
fn lossy_links_and_signals_still_connect() {
    let wire = LinkConfig {
        delay: ms(20),
        jitter: ms(5),
        loss: Loss::Random(0.05),
        duplicate: 0.02,
        reorder: 0.02,
        ..LinkConfig::default()
    };
    let signalling = LinkConfig {
        delay: ms(20),
        jitter: ms(60),
        loss: Loss::Random(0.2),
        duplicate: 0.2,
        reorder: 0.2,
        ..LinkConfig::default()
    };
    let mut opened = 0;
    for seed in 0..30 {
        let mut world = World::pair(wire, signalling, seed);
        let dialled = world.dial(0, 1);
        if world.until(ms(12_000), |w| w.both_open() || !w.closed(0).is_empty()) && world.closed(0).is_empty() {
            opened += 1;
            world.send(0, dialled, Reliable, &vec![seed; 300_000]);
            assert!(world.until(ms(60_000), |w| !w.peers[1].got.is_empty()), "seed {seed}");
            assert_eq!(world.peers[1].got[0].2.len(), 300_000, "seed {seed}");
        }
    }
    // An offer is said three times; it or its answer is lost every time in 5 of 100 dials.
    assert!(opened >= 26, "{opened} of 30");
}

fn signals(world: &mut World, n: usize) -> Vec<String> {
    std::iter::from_fn(|| world.peers[n].endpoint.poll_signal().map(|(_, text)| text)).collect()
}

#[test]
fn a_repeated_offer_gets_the_same_answer_and_another_duplicate_is_refused() {
    let mut world = World::pair(delayed(1), delayed(1), 4);
    world.dial(0, 1);
    world.drain();
    let offer = world.peers[0].said[0].clone();
    assert!(offer.starts_with("CONNECTREQUEST "));
    world.signals.clear();
    let (from, to, now) = (world.peers[0].id.clone(), world.peers[1].id.clone(), world.now);
    world.peers[1].endpoint.handle_signal(now, &from, &offer);
    let first = signals(&mut world, 1);
    world.peers[1].endpoint.handle_signal(now, &from, &offer);
    let again = signals(&mut world, 1);
    assert!(first[0].starts_with("CONNECTRESPONSE "), "{first:?}");
    assert_eq!(first, again);
    let other = offer.replace("a=setup:actpass", "a=setup:active");
    world.peers[1].endpoint.handle_signal(now, &from, &other);
    let refused = signals(&mut world, 1);
    assert!(
        refused.len() == 1 && refused[0].starts_with("CONNECTERROR ") && refused[0].ends_with(" 16"),
        "{refused:?}"
    );
    assert_eq!(world.peers[1].endpoint.len(), 1);
    // The first answer was lost: the repetition opens the session.
    for text in again {
        world.peers[0].endpoint.handle_signal(now, &to, &text);
    }
    assert!(world.until(ms(5_000), World::both_open));
    let now = world.now;
    world.peers[1].endpoint.handle_signal(now, &from, &offer);
    let refused = signals(&mut world, 1);
    assert!(refused[0].ends_with(" 16"), "{refused:?}");
    world.peers[0].endpoint.handle_signal(now, &to, &refused[0]);
    world.run(ms(100));
    assert!(world.closed(0).is_empty() && world.closed(1).is_empty());
}

#[test]
fn candidates_before_the_offer_and_before_the_answer_are_kept() {
    // No checks from the listener's side reach the dialer unless the early candidate was kept: the dialer's own checks go
    // to the listener, whose candidates are told before its answer.
    let mut world = World::pair(delayed(1), delayed(1), 5);
    world.dial(0, 1);
    world.drain();
    let said = world.peers[0].said.clone();
    world.signals.clear();
    let (from, now) = (world.peers[0].id.clone(), world.now);
    let listener = &mut world.peers[1].endpoint;
    for text in said.iter().rev() {
        listener.handle_signal(now, &from, text);
    }
    let answers: Vec<_> = std::iter::from_fn(|| listener.poll_signal()).collect();
    let back = world.peers[1].id.clone();
    for (_, text) in answers.iter().rev() {
        world.peers[0].endpoint.handle_signal(now, &back, text);
    }
    assert!(world.until(ms(5_000), World::both_open));
}

#[test]
fn without_trickle_all_candidates_are_inline_and_one_is_told() {
    let mut world = World::new(delayed(1), delayed(1), 6);
    world.add(|c| c.trickle = false);
    world.add(|_| {});
    world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    assert!(world.peers[0].said[0].contains("a=candidate:") && world.peers[0].said[0].contains("a=end-of-candidates"));
    assert_eq!(world.peers[0].said.iter().filter(|t| t.starts_with("CANDIDATEADD ")).count(), 1);
    assert!(!world.peers[1].said[0].contains("a=candidate:"));
}

#[test]
fn pain_12_a_refusal_reaches_the_application_by_its_number() {
    let mut world = World::new(delayed(1), delayed(1), 7);
    world.add(|_| {});
    world.add(|c| c.admit = Admit::Ask);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(1_000), |w| !w.peers[1].events.is_empty()));
    let Event::Requested { session, peer, identity } = world.peers[1].events[0].clone() else { panic!() };
    assert_eq!((peer, identity), (world.peers[0].id.clone(), None));
    let now = world.now;
    world.peers[1].endpoint.refuse(now, session, SessionError::IdentityVerificationFailed);
    assert!(world.until(ms(1_000), |w| !w.closed(0).is_empty()));
    assert_eq!(world.closed(0), [(dialled, SessionError::IdentityVerificationFailed)]);
    world.run(ms(10));
    assert!(world.peers.iter().all(|p| p.endpoint.is_empty()));
}

#[test]
fn an_asked_session_opens_when_it_is_accepted() {
    let mut world = World::new(delayed(1), delayed(1), 8);
    world.add(|c| c.identity = Some("e30=".into()));
    world.add(|c| c.admit = Admit::Ask);
    world.dial(0, 1);
    assert!(world.until(ms(1_000), |w| !w.peers[1].events.is_empty()));
    let Event::Requested { session, identity, .. } = world.peers[1].events[0].clone() else { panic!() };
    assert_eq!(identity.as_deref(), Some("e30="));
    let now = world.now;
    world.peers[1].endpoint.accept(now, session);
    assert!(world.until(ms(5_000), World::both_open));
}

#[test]
fn error_19_ends_only_what_was_dialled() {
    for (dialler, code, ends) in [(false, 19, false), (true, 19, true), (false, 24, true)] {
        let mut world = World::pair(delayed(1), delayed(1), 9);
        world.dial(0, 1);
        assert!(world.until(ms(5_000), World::both_open));
        let said = world.peers[0].said[0].clone();
        let connection = said.split(' ').nth(1).unwrap();
        let (at, from) = if dialler { (0, 1) } else { (1, 0) };
        let (from, now) = (world.peers[from].id.clone(), world.now);
        world.peers[at].endpoint.handle_signal(now, &from, &format!("CONNECTERROR {connection} {code}"));
        world.run(ms(10));
        assert_eq!(!world.closed(at).is_empty(), ends, "{dialler} {code}");
    }
}

#[test]
fn a_listener_without_admission_or_with_a_bad_offer_says_why() {
    let mut world = World::new(delayed(1), delayed(1), 21);
    world.add(|_| {});
    world.add(|c| c.admit = Admit::None);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(1_000), |w| !w.closed(0).is_empty()));
    assert_eq!(world.closed(0), [(dialled, SessionError::IncomingConnectionIgnored)]);
    let now = world.now;
    let open = &mut world.peers[0].endpoint;
    open.handle_signal(now, &NetworkId::P2p(7), "CONNECTREQUEST 5 v=0");
    assert_eq!(open.poll_signal(), Some((NetworkId::P2p(7), "CONNECTERROR 5 13".into())));
}

#[test]
fn no_path_ends_with_ice_for_the_dialler_and_15_for_the_listener() {
    let mut world = World::pair(LinkConfig { loss: Loss::Random(1.0), ..LinkConfig::default() }, delayed(1), 22);
    world.dial(0, 1);
    assert!(world.until(ms(30_000), |w| !w.closed(0).is_empty() && !w.closed(1).is_empty()));
    // Whoever is first tells the other, which then ends with the same error.
    assert!([SessionError::Ice, SessionError::NegotiationTimeoutWaitingForAccept].contains(&world.closed(0)[0].1));
    assert!(world.peers.iter().all(|p| p.endpoint.is_empty()));
}

#[test]
fn pain_15_a_close_delivers_what_was_sent_and_the_other_side_learns_at_once() {
    let mut world = World::pair(delayed(20), delayed(1), 23);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    world.send(0, dialled, Reliable, &vec![7; 400_000]);
    let now = world.now;
    world.peers[0].endpoint.close(now, dialled);
    assert_eq!(
        world.peers[0].endpoint.send(now, dialled, Reliable, bytes::Bytes::from_static(b"x")),
        Err(SendError::NotOpen)
    );
    assert!(world.until(ms(5_000), |w| !w.closed(0).is_empty() && !w.closed(1).is_empty()));
    assert!(world.now - now < ms(2_000), "{:?}", world.now - now);
    assert_eq!(world.peers[1].got.len(), 1);
    assert_eq!(world.peers[1].got[0].2.len(), 400_000);
    assert_eq!((world.closed(0)[0].1, world.closed(1)[0].1), (SessionError::None, SessionError::None));
    world.run(ms(10));
    assert!(world.peers.iter().all(|p| p.endpoint.is_empty()));
}

#[test]
fn what_was_received_can_be_read_after_the_other_side_left() {
    let mut world = World::pair(delayed(1), delayed(1), 24);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    world.peers[1].reads = false;
    for n in 0..10 {
        world.send(0, dialled, Reliable, &vec![n; 30_000]);
    }
    let now = world.now;
    world.peers[0].endpoint.close(now, dialled);
    assert!(world.until(ms(5_000), |w| !w.closed(0).is_empty()));
    world.run(ms(100));
    assert!(world.closed(1).is_empty(), "told before it was read");
    let (id, now) = (world.opened(1)[0], world.now);
    let mut read = Vec::new();
    while let Some((_, packet)) = world.peers[1].endpoint.recv(now, id) {
        read.push(packet[0]);
    }
    assert_eq!(read, (0..10).collect::<Vec<_>>());
    world.run(ms(1));
    assert_eq!(world.closed(1), [(id, SessionError::None)]);
}

#[test]
fn reading_in_pieces_leaves_the_rest_at_the_head() {
    let mut world = World::pair(delayed(1), delayed(1), 25);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    world.peers[1].reads = false;
    world.send(0, dialled, Reliable, b"0123456789");
    world.send(0, dialled, Reliable, b"ab");
    world.run(ms(50));
    let (id, now) = (world.opened(1)[0], world.now);
    let endpoint = &mut world.peers[1].endpoint;
    let mut small = [0; 4];
    assert_eq!(endpoint.peek(now, id), Some(10));
    assert_eq!((endpoint.read(now, id, &mut small), &small), (Some(4), b"0123"));
    assert_eq!(endpoint.peek(now, id), Some(6));
    let mut large = [0; 16];
    assert_eq!(endpoint.read(now, id, &mut large), Some(6));
    assert_eq!(&large[..6], b"456789");
    assert_eq!(endpoint.read(now, id, &mut large), Some(2));
    assert_eq!((endpoint.peek(now, id), endpoint.read(now, id, &mut large)), (None, None));
}

#[test]
fn pain_28_what_a_peer_does_not_take_is_refused_and_a_full_queue_says_so() {
    let mut world = World::pair(delayed(20), delayed(1), 26);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    let now = world.now;
    let endpoint = &mut world.peers[0].endpoint;
    let send = |e: &mut nethernet::session::Endpoint, channel, size: usize| {
        e.send(now, dialled, channel, vec![0; size].into())
    };
    assert!(matches!(send(endpoint, Reliable, PACKET_MAX + 1), Err(SendError::Frame(FrameError::TooLarge { .. }))));
    assert!(matches!(
        send(endpoint, Unreliable, 262_144),
        Err(SendError::Frame(FrameError::UnreliableTooLarge { .. }))
    ));
    assert_eq!(send(endpoint, Reliable, 0), Err(SendError::Frame(FrameError::Empty)));
    let mut sent = 0;
    while send(endpoint, Reliable, 200_000).is_ok() {
        sent += 1;
        assert!(sent < 100);
    }
    assert_eq!(sent, 20, "4 MiB of 200,000");
    assert_eq!(send(endpoint, Reliable, 200_000), Err(SendError::WouldBlock));
    assert!(world.until(ms(60_000), |w| w.peers[0].events.contains(&Event::Writable(dialled))));
    let now = world.now;
    assert!(world.peers[0].endpoint.send(now, dialled, Reliable, vec![0; 200_000].into()).is_ok());
    assert!(world.until(ms(60_000), |w| w.peers[1].got.len() == 21));
}

#[test]
fn pain_7_an_outage_is_told_and_healed() {
    let mut world = World::pair(delayed(10), delayed(1), 27);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    for link in world.links.values_mut() {
        link.set_config(LinkConfig { loss: Loss::Random(1.0), ..LinkConfig::default() });
    }
    assert!(world.until(ms(28_000), |w| w.peers[0].events.contains(&Event::Interrupted(dialled))));
    assert!(world.closed(0).is_empty() && world.closed(1).is_empty());
    for link in world.links.values_mut() {
        link.set_config(delayed(10));
    }
    assert!(world.until(ms(10_000), |w| w.peers[0].events.contains(&Event::Resumed(dialled))));
    world.send(0, dialled, Reliable, b"back");
    assert!(world.until(ms(30_000), |w| !w.peers[1].got.is_empty()));
    assert!(world.closed(0).is_empty() && world.closed(1).is_empty());
}

#[test]
fn silence_ends_a_session_with_9() {
    let mut world = World::pair(delayed(10), delayed(1), 28);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    world.peers[1].deaf = true;
    let since = world.now;
    assert!(world.until(ms(60_000), |w| !w.closed(0).is_empty()));
    assert_eq!(world.closed(0), [(dialled, SessionError::InactivityTimeout)]);
    assert!((ms(25_000)..=ms(31_000)).contains(&(world.now - since)), "{:?}", world.now - since);
}

#[test]
fn an_idle_session_stays() {
    let mut world = World::pair(delayed(10), delayed(1), 29);
    world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    world.run(ms(300_000));
    assert!(world.closed(0).is_empty() && world.closed(1).is_empty());
}

#[test]
fn a_new_dial_of_a_peer_that_was_restarted_replaces_its_dead_session() {
    let mut world = World::pair(delayed(1), delayed(1), 30);
    world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open));
    let old = world.opened(1)[0];
    let again = Endpoint::new(
        Config::new(vec![pair::socket(0, "10.0.0.1:4000", Use::Both)]),
        Certificate::generate().unwrap(),
        [99; 32],
        world.now,
    );
    world.peers[0].endpoint = again.unwrap();
    world.peers[0].events.clear();
    world.run(ms(500));
    let new = world.dial(0, 1);
    assert!(world.until(ms(9_000), |w| w.opened(0) == [new] && w.opened(1).len() == 2));
    assert!(world.until(ms(15_000), |w| !w.closed(1).is_empty()));
    assert_eq!(world.closed(1), [(old, SessionError::InactivityTimeout)]);
    world.send(0, new, Reliable, b"again");
    world.run(ms(100));
    assert_eq!(world.peers[1].got.len(), 1);
}

#[test]
fn both_dial_at_once_over_one_port_each_and_one_session_lives() {
    for seed in 40..50 {
        let mut world = World::pair(delayed(5), delayed(5), seed);
        world.dial(0, 1);
        world.dial(1, 0);
        assert!(world.until(ms(9_000), World::both_open), "seed {seed}");
        world.run(ms(2_000));
        let live =
            |n: usize| world.opened(n).len() - world.closed(n).iter().filter(|(_, e)| *e == SessionError::None).count();
        assert_eq!((live(0), live(1)), (1, 1), "seed {seed}");
        assert_eq!((world.peers[0].endpoint.len(), world.peers[1].endpoint.len()), (1, 1), "seed {seed}");
    }
}

#[test]
fn both_dial_at_once_over_a_port_for_each_and_both_sessions_live() {
    let mut world = World::new(delayed(5), delayed(5), 50);
    for n in 1..3 {
        world.add(|c| {
            c.sockets = vec![
                pair::socket(0, &format!("10.0.0.{n}:4000"), Use::Listen),
                pair::socket(1, &format!("10.0.0.{n}:4001"), Use::Dial),
            ];
        });
    }
    world.dial(0, 1);
    world.dial(1, 0);
    assert!(world.until(ms(9_000), |w| w.opened(0).len() == 2 && w.opened(1).len() == 2));
    let id = world.peers[1].id.clone();
    let now = world.now;
    assert_eq!(world.peers[0].endpoint.connect(now, id), Err(ConnectError::SocketBusy));
}

#[test]
fn twenty_peers_talk_with_one_port() {
    let mut world = World::new(delayed(5), delayed(5), 60);
    let host = world.add(|_| {});
    for _ in 0..20 {
        let joiner = world.add(|_| {});
        world.dial(joiner, host);
    }
    assert!(world.until(ms(9_000), |w| w.opened(host).len() == 20 && (1..=20).all(|n| !w.opened(n).is_empty())));
    for joiner in 1..=20 {
        let id = world.opened(joiner)[0];
        world.send(joiner, id, Reliable, &[joiner as u8; 2_000]);
    }
    assert!(world.until(ms(9_000), |w| w.peers[host].got.len() == 20));
    for (_, _, packet) in &world.peers[host].got {
        assert!(packet.iter().all(|b| *b == packet[0]));
    }
}

#[test]
fn a_hundred_dials_in_a_row_over_the_same_two_ports_all_open() {
    // The listener reads nothing: what its ended sessions keep for reading is in nobody's way.
    let mut world = World::pair(delayed(0), delayed(0), 80);
    world.peers[1].reads = false;
    for n in 0..100 {
        let dialled = world.dial(0, 1);
        assert!(world.until(ms(5_000), |w| w.opened(0).len() == 1), "dial {n}: {:?}", world.peers[0].events);
        world.send(0, dialled, Reliable, b"unread");
        let now = world.now;
        world.peers[0].endpoint.close(now, dialled);
        assert!(world.until(ms(5_000), |w| w.peers[0].endpoint.is_empty()), "dial {n}");
        world.peers[0].events.clear();
    }
    world.run(ms(31_000));
    assert!(world.peers[1].endpoint.is_empty());
}
