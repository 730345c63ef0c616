//! Whole sessions between two endpoints in virtual time.
#![allow(missing_docs)]

mod pair;

use nethernet::SessionError;
use nethernet::frame::Channel::{Reliable, Unreliable};
use pair::{World, delayed, ms};

#[test]
fn a_dial_opens_both_channels_on_both_sides() {
    let mut world = World::pair(delayed(1), delayed(1), 1);
    let dialled = world.dial(0, 1);
    assert!(world.until(ms(5_000), World::both_open), "{:?}", (&world.peers[0].events, &world.peers[1].events));
    assert_eq!(world.opened(0), [dialled]);
    let other = world.opened(1)[0];
    world.send(0, dialled, Reliable, b"hello");
    world.send(1, other, Unreliable, b"there");
    world.run(ms(100));
    assert_eq!(world.peers[1].got, [(other, Reliable, b"hello".to_vec().into())]);
    assert_eq!(world.peers[0].got, [(dialled, Unreliable, b"there".to_vec().into())]);
    println!("opened after {:?}", world.now - world.start);
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
