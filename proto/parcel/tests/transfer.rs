//! Files from one sender to one and to many, over links that lose and streams that break.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use anywire_parcel::{Failure, Fate, Fault, ReceiveEvent, SendEvent};
use common::{World, bytes, ms};
use netem::{LinkConfig, Loss};

const MINUTE: Duration = Duration::from_secs(60);

fn far(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 10 + n], 4000))
}

fn wire(loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Random(loss), delay: ms(20), jitter: ms(5), ..LinkConfig::default() }
}

fn save(len: usize) -> Vec<Vec<u8>> {
    vec![bytes(len, 1), bytes(700, 2), bytes(33_000, 3)]
}

fn fates(world: &World) -> Vec<Fate> {
    let fate = |event: &SendEvent| if let SendEvent::Fate { fate, .. } = event { Some(fate.clone()) } else { None };
    world.events.iter().filter_map(fate).collect()
}

#[test]
fn a_save_and_its_sidecars_arrive_by_chunks_at_any_loss_up_to_30_percent() {
    for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.15), (4, 0.3)] {
        let mut world = World::new(save(2_000_000), &[far(0)], wire(loss), seed, false);
        assert!(world.finish(MINUTE * 5), "loss {loss}");
        assert!(world.has_all(0), "loss {loss}");
        assert_eq!(fates(&world), [Fate::Done]);
        assert!(world.ends[0].events.contains(&ReceiveEvent::Ready));
    }
}

#[test]
fn many_receivers_of_unlike_wires_all_get_it() {
    for seed in 0..5 {
        let targets: Vec<SocketAddr> = (0..8).map(far).collect();
        let mut world = World::new(save(300_000), &targets, wire(f64::from(seed) * 0.06), seed, false);
        assert!(world.finish(MINUTE * 5), "seed {seed}");
        let missed: Vec<usize> = (0..8).filter(|n| !world.has_all(*n)).collect();
        assert_eq!(missed, Vec::<usize>::new(), "seed {seed}: {:?}", fates(&world));
    }
}

#[test]
fn an_empty_file_and_an_empty_stream_arrive() {
    for files in [vec![vec![]], vec![bytes(1350, 1), vec![], bytes(1, 2)]] {
        let mut world = World::new(files, &[far(0)], wire(0.1), 1, false);
        assert!(world.finish(MINUTE));
        assert!(world.has_all(0));
    }
}

#[test]
fn a_stream_carries_it_where_one_comes_about() {
    let mut world = World::new(save(20_000_000), &[far(0), far(1)], wire(0.05), 1, true);
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0) && world.has_all(1));
    assert_eq!(fates(&world).iter().filter(|fate| **fate == Fate::Streaming).count(), 2);
    // Chunks went only until the streams stood.
    assert!(world.ends[0].chunks < 8_000, "{}", world.ends[0].chunks);
}

#[test]
fn a_broken_stream_hands_the_rest_to_chunks() {
    let mut world = World::new(save(5_000_000), &[far(0)], wire(0.02), 1, true);
    world.breaks_at = Some(2_000_000);
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0));
    assert_eq!(fates(&world), [Fate::Streaming, Fate::StreamBroke, Fate::Done]);
}

#[test]
fn a_stream_that_cannot_be_opened_is_given_up_after_three_tries_and_chunks_carry_it() {
    let mut world = World::new(save(30_000_000), &[far(0)], wire(0.0), 1, true);
    world.tcp = false;
    assert!(world.run(MINUTE, |world| {
        world.events.iter().any(|e| matches!(e, SendEvent::Progress { progress, .. } if progress.gave_up_tcp))
            || world.sender.is_over()
    }));
    assert!(world.finish(MINUTE * 5));
    assert!(world.has_all(0));
    assert_eq!(fates(&world), [Fate::Done]);
}

#[test]
fn a_receiver_that_says_nothing_fails_alone_after_thirty_seconds() {
    let mut world = World::new(save(100_000), &[far(0), far(1)], wire(0.0), 1, false);
    world.ends[1].deaf = true;
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0));
    let Some(SendEvent::Resolved(outcome)) = world.events.last() else { panic!("{:?}", world.events) };
    assert_eq!(outcome.done, [world.ends[0].path]);
    assert_eq!(outcome.failed, [("player 1".to_owned(), Failure::Stalled)]);
    let took = world.now - world.start;
    assert!((ms(30_000)..ms(31_000)).contains(&took), "{took:?}");
}

#[test]
fn a_receiver_that_leaves_is_dropped_and_the_others_are_served() {
    let mut world = World::new(save(3_000_000), &[far(0), far(1)], wire(0.01), 1, false);
    world.run(ms(200), |_| false);
    let gone = world.ends[1].path;
    world.sender.remove(gone);
    assert!(world.finish(MINUTE));
    let Some(SendEvent::Resolved(outcome)) = world.events.last() else { panic!("{:?}", world.events) };
    assert_eq!((outcome.done.len(), outcome.failed.len(), outcome.dropped), (1, 0, 1));
}

#[test]
fn a_full_disk_is_said_and_the_old_save_stands() {
    let mut world = World::new(save(3_000_000), &[far(0)], wire(0.0), 1, false);
    world.ends[0].disk.room = Some(1_000_000);
    world.ends[0].disk.named.insert("incoming_save.sav".to_owned(), b"the old world".to_vec());
    assert!(world.finish(MINUTE));
    assert_eq!(fates(&world), [Fate::Failed(Failure::GaveUp)]);
    assert!(world.ends[0].events.contains(&ReceiveEvent::Failed(Failure::Writing(Fault::Full))));
    assert_eq!(world.ends[0].disk.named["incoming_save.sav"], b"the old world");
    assert!(world.ends[0].disk.partial.is_empty());
}

#[test]
fn a_file_that_changes_while_it_is_read_fails_the_transfer_here() {
    let mut world = World::new(save(60_000_000), &[far(0)], wire(0.0), 1, false);
    world.run(ms(300), |_| false);
    world.disk.changed = true;
    assert!(world.finish(MINUTE));
    assert_eq!(fates(&world), [Fate::Failed(Failure::Reading(Fault::Changed))]);
}

#[test]
fn pain_70_what_does_not_verify_is_sent_again_from_the_start() {
    let mut world = World::new(save(500_000), &[far(0)], wire(0.05), 1, false);
    world.ends[0].disk.rot = 2;
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0));
    assert_eq!(world.ends[0].events.iter().filter(|event| **event == ReceiveEvent::Again).count(), 2);
}

#[test]
fn nothing_unverified_ever_bears_its_name_and_a_third_retry_is_the_last() {
    let mut world = World::new(save(200_000), &[far(0)], wire(0.0), 1, false);
    world.ends[0].corrupt = true;
    assert!(world.finish(MINUTE));
    assert_eq!(fates(&world), [Fate::Failed(Failure::GaveUp)]);
    assert!(world.ends[0].disk.named.is_empty());
    assert!(world.ends[0].events.contains(&ReceiveEvent::Failed(Failure::Hash)));
}

#[test]
fn a_killed_sender_that_comes_back_with_the_same_files_goes_on_where_it_was() {
    let mut world = World::new(save(20_000_000), &[far(0)], wire(0.01), 1, true);
    world.run(MINUTE, |world| world.ends[0].receiver.as_ref().is_some_and(|r| r.progress().percent() >= 60));
    world.killed = true;
    assert!(world.run(MINUTE * 2, |world| world.ends[0].receiver.as_ref().is_some_and(|r| r.is_over())));
    assert!(world.ends[0].events.contains(&ReceiveEvent::Failed(Failure::SenderGone)));
    assert!(world.ends[0].disk.named.is_empty());
    world.restart_sender();
    world.tcp = false;
    world.ends[0].chunks = 0;
    assert!(world.finish(MINUTE * 5));
    assert!(world.has_all(0));
    // Two fifths are left of 15,000 chunks.
    assert!(world.ends[0].chunks < 7_500, "{}", world.ends[0].chunks);
}

#[test]
fn a_path_that_is_dead_for_a_while_costs_that_while() {
    let mut world = World::new(save(8_000_000), &[far(0)], wire(0.02), 1, false);
    world.run(ms(300), |_| false);
    world.ends[0].deaf = true;
    world.run(ms(10_000), |_| false);
    world.ends[0].deaf = false;
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0));
}

#[test]
fn between_our_own_ends_it_goes_by_quic_and_old_receivers_of_the_same_offer_get_chunks() {
    for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.3)] {
        let mut world = World::new(save(3_000_000), &[far(0), far(1), far(2)], wire(loss), seed, true);
        world.tcp = false;
        world.speaks_quic(0);
        world.speaks_quic(2);
        assert!(world.finish(MINUTE * 5), "loss {loss}");
        assert!((0..3).all(|n| world.has_all(n)), "loss {loss}: {:?}", fates(&world));
        assert_eq!([0, 2].map(|n| world.ends[n].chunks), [0, 0]);
        assert!(world.ends[1].chunks > 2_000);
    }
}

#[test]
fn one_end_that_does_not_speak_quic_is_enough_for_the_old_form() {
    let mut world = World::new(save(300_000), &[far(0)], wire(0.0), 1, false);
    world.ends[0].quic = true;
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0) && world.ends[0].chunks > 0);
    let mut world = World::new(save(300_000), &[far(0)], wire(0.0), 1, false);
    world.speaks_quic(0);
    world.ends[0].quic = false;
    assert!(world.finish(MINUTE));
    assert!(world.has_all(0) && world.ends[0].chunks > 0);
}

#[test]
fn a_killed_sender_that_comes_back_sends_by_quic_only_what_is_missing() {
    let slow = LinkConfig { rate: Some(50_000_000), ..wire(0.01) };
    let mut world = World::new(save(20_000_000), &[far(0)], slow, 1, false);
    world.speaks_quic(0);
    world.run(MINUTE, |world| world.ends[0].receiver.as_ref().is_some_and(|r| r.progress().percent() >= 40));
    world.killed = true;
    assert!(world.run(MINUTE * 3, |world| world.ends[0].receiver.as_ref().is_some_and(|r| r.is_over())));
    assert!(world.ends[0].disk.named.is_empty());
    world.restart_sender();
    world.speaks_quic(0);
    world.ends[0].disk.written = 0;
    assert!(world.finish(MINUTE * 5));
    assert!(world.has_all(0));
    assert!(world.ends[0].disk.written <= 12_500_000, "{}", world.ends[0].disk.written);
}

#[test]
fn a_full_disk_under_quic_is_said_as_well() {
    let mut world = World::new(save(3_000_000), &[far(0)], wire(0.0), 1, false);
    world.speaks_quic(0);
    world.ends[0].disk.room = Some(1_000_000);
    assert!(world.finish(MINUTE));
    assert_eq!(fates(&world).last(), Some(&Fate::Failed(Failure::GaveUp)));
    assert!(world.ends[0].events.contains(&ReceiveEvent::Failed(Failure::Writing(Fault::Full))));
    assert!(world.ends[0].disk.named.is_empty());
}
