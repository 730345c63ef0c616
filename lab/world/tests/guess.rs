//! Homes whose routers stand in the way of each other, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::time::Duration;

use anywire_world::nat::{Kind, Reached, Way, reach, reach_without_guess, roam};
use session::Via;

fn played(host: Kind, joiner: Kind, seed: u64) -> Reached {
    reach(host, joiner, seed, false).unwrap_or_else(|why| panic!("{host} x {joiner} {seed}: {why}"))
}

#[test]
fn nine_in_ten_pairs_of_a_random_and_a_filtering_router_are_direct_within_4_s() {
    let (mut met, mut all) = (0, 0);
    for seed in 0..40 {
        for (host, joiner) in [(Kind::PortRestricted, Kind::Symmetric), (Kind::Symmetric, Kind::PortRestricted)] {
            let reached = played(host, joiner, seed);
            assert_eq!(reached.via.first(), Some(&Via::Relay), "the game does not wait for it");
            let in_time = reached.direct.is_some_and(|at| at <= Duration::from_secs(4));
            met += usize::from(reached.via.last() == Some(&Via::Guessed) && in_time);
            all += 1;
        }
    }
    assert!(met * 10 >= all * 9, "{met} of {all}");
}

#[test]
fn two_routers_that_count_their_ports_up_are_direct() {
    for seed in 0..12 {
        let reached = played(Kind::SymmetricSequential, Kind::SymmetricSequential, seed);
        assert_eq!(reached.way, Way::Direct, "{seed}: {reached:?}");
    }
}

#[test]
fn what_cannot_be_guessed_or_is_turned_off_stays_on_the_relay_and_opens_no_socket() {
    for seed in 0..4 {
        for (host, joiner) in [(Kind::Symmetric, Kind::Symmetric), (Kind::SymmetricSequential, Kind::Symmetric)] {
            assert_eq!(played(host, joiner, seed).via, [Via::Relay], "{host} x {joiner}");
        }
        for (host, joiner) in [
            (Kind::PortRestricted, Kind::Symmetric),
            (Kind::Symmetric, Kind::PortRestricted),
            (Kind::SymmetricSequential, Kind::SymmetricSequential),
        ] {
            let off = reach_without_guess(host, joiner, seed).unwrap_or_else(|why| panic!("{host} x {joiner}: {why}"));
            assert_eq!(off.via, [Via::Relay], "{host} x {joiner}");
        }
    }
}

#[test]
fn a_change_of_path_makes_frames_late_by_100_ms_at_most_and_costs_none() {
    let routers = [Kind::FullCone, Kind::AddressRestricted, Kind::PortRestricted];
    let mut late = Vec::new();
    for (seed, host) in (0..).zip(routers) {
        for joiner in routers {
            let roamed =
                roam(host, joiner, seed, 6, false).unwrap_or_else(|why| panic!("{host} x {joiner} {seed}: {why}"));
            late.extend(roamed.late);
        }
    }
    late.sort_unstable();
    let over = late.iter().filter(|late| **late > Duration::from_millis(100)).count();
    assert!(over * 50 <= late.len(), "{over} of {} changes: {late:?}", late.len());
}
