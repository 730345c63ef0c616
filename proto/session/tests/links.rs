//! A game on a direct link between two joiners, under which the network changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests fail by panicking")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use anywire_session::{Command, Event};
use common::*;

const EVERY: Duration = Duration::from_millis(20);

/// How often each numbered frame of `from` arrived at `to`.
fn arrived(net: &Net, from: u8, to: usize) -> BTreeMap<u32, usize> {
    let mut times = BTreeMap::new();
    for event in &net.nodes[to].events {
        if let Event::Frame { data, .. } = event
            && data.first() == Some(&from)
        {
            *times.entry(u32::from_be_bytes(data[1..5].try_into().unwrap())).or_default() += 1;
        }
    }
    times
}

#[test]
fn when_a_direct_link_dies_envelopes_take_over_within_a_second_and_nothing_comes_twice() {
    for seed in 1..6 {
        let mut net = Net::hosted(seed);
        let lin = net.join(2, join_config("lin", 2, code(1)));
        let kim = net.join(3, join_config("kim", 3, code(1)));
        net.run(secs(8));
        assert!(net.nodes[lin].logged("[mesh] kim direct") && net.nodes[kim].logged("[mesh] lin direct"));
        let (dies, mends, ends) = (150, 400, 700);
        for number in 0..ends {
            if number == dies || number == mends {
                net.parted = (number == dies).then(|| (at(2), at(3)));
            }
            for (node, tag) in [(lin, 2), (kim, 3)] {
                let data = [&[tag][..], &u32::to_be_bytes(number)].concat();
                net.command(node, Command::Frame(data.into()));
            }
            net.run(EVERY);
        }
        net.run(secs(1));
        for (tag, to) in [(2, kim), (3, lin)] {
            let times = arrived(&net, tag, to);
            assert!(times.values().all(|times| *times == 1), "seed {seed}: a frame came twice");
            let lost: Vec<u32> = (0..ends).filter(|number| !times.contains_key(number)).collect();
            let window = dies - 2..dies + 50;
            assert!(lost.iter().all(|number| window.contains(number)), "seed {seed}: lost {lost:?}");
            assert!(!lost.is_empty(), "seed {seed}: the link was no direct one");
        }
        let host = arrived(&net, 2, HOST);
        assert!(host.len() == ends as usize && host.values().all(|times| *times == 1), "the host's is as before");
    }
}
