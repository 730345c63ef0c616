//! Homes that no datagram leaves, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers")]

use anywire_world::nat::{Kind, Way, block, reach};

#[test]
fn a_pair_without_udp_meets_by_tcp_whatever_the_other_home_is() {
    for (seed, kind) in (0..).zip(Kind::ALL) {
        for (host, joiner) in [(Kind::Blocked, kind), (kind, Kind::Blocked)] {
            let reached = reach(host, joiner, seed, false).unwrap_or_else(|why| panic!("{host} x {joiner}: {why}"));
            assert_eq!(reached.way, Way::Tcp, "{host} x {joiner}");
        }
    }
}

#[test]
fn a_way_by_datagram_replaces_tcp_when_it_comes_back_and_tcp_that_when_it_goes() {
    let kinds = [Kind::Open, Kind::FullCone, Kind::PortRestricted];
    let mut failed = Vec::new();
    for seed in 0..18 {
        let kind = |n: usize| kinds[n % kinds.len()];
        let who: &[usize] = [&[0][..], &[1], &[0, 1]][seed % 3];
        failed.extend(block(kind(seed / 3), kind(seed / 2), who, seed as u64, false).err());
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
