//! The behaviours. Each is one true sentence about every wire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anywire::{
    Channel, CloseReason, Delivery, Drive, Event, HostOptions, JoinOptions, PeerId, PeerState, SendError, Target,
};
use netem::{LinkConfig, Loss};

use super::{Gap, Stage, Table};

const MS: Duration = Duration::from_millis(1);
const RELIABLE: Delivery = Delivery::Reliable;

fn clean() -> LinkConfig {
    LinkConfig::default()
}

/// A home network on a bad evening.
fn bad(loss: f64) -> LinkConfig {
    LinkConfig {
        loss: Loss::Random(loss),
        delay: 10 * MS,
        jitter: 4 * MS,
        reorder: 0.05,
        hold: 15 * MS,
        duplicate: 0.02,
        ..LinkConfig::default()
    }
}

fn open(stage: &dyn Stage, line: LinkConfig, seed: u8) -> Table {
    Table::new(stage.host(HostOptions { name: "the host".to_owned(), ..HostOptions::default() }, line, seed))
}

fn seated(stage: &dyn Stage, line: LinkConfig, seed: u8, joiners: usize) -> Table {
    let mut table = open(stage, line, seed);
    table.seat(stage, joiners);
    table
}

/// Sends, waiting for room.
fn send(table: &mut Table, who: usize, target: Target, channel: u8, delivery: Delivery, data: &[u8]) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match table.players[who].peer.send(target, Channel(channel), delivery, data) {
            Ok(()) => return,
            Err(SendError::WouldBlock) => {
                table.round();
                assert!(Instant::now() < end, "no room for a minute");
                std::thread::sleep(MS);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// See the name.
pub fn a_host_is_1_and_joiners_have_ids_of_their_own(stage: &dyn Stage) {
    let mut table = open(stage, clean(), 1);
    table.until("the host is up", |table| table.players[0].peer.state() == PeerState::Connected);
    assert_eq!(table.players[0].peer.id(), PeerId::HOST);
    assert_eq!(table.players[0].seen.first(), Some(&Event::Connected(PeerId::HOST)));
    assert_eq!(table.players[0].peer.name(PeerId::HOST).as_deref(), Some("the host"));
    assert!(table.players[0].peer.peers().is_empty());
    if !stage.has(&[Gap::Alone]) {
        assert!(table.players[0].peer.invite().is_none());
        return;
    }
    table.seat(stage, 3);
    let ids: BTreeSet<PeerId> = table.ids().into_iter().collect();
    assert_eq!(ids.len(), 4);
    for (number, player) in table.players.iter().enumerate() {
        let others: Vec<PeerId> = ids.iter().copied().filter(|id| *id != player.peer.id()).collect();
        assert_eq!(player.peer.peers(), others);
        assert_eq!(player.peer.state(), PeerState::Connected);
        assert_eq!(player.seen.first(), Some(&Event::Connected(player.peer.id())), "before anything else");
        for (other, id) in table.ids().into_iter().enumerate() {
            let name = if other == 0 { "the host".to_owned() } else { format!("joiner {}", other - 1) };
            assert_eq!(player.peer.name(id), Some(name), "{number} of {other}");
        }
    }
}

/// See the name.
pub fn an_id_that_is_taken_is_drawn_again(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone, Gap::ChosenId]) {
        return;
    }
    let mut table = open(stage, clean(), 2);
    for name in ["first", "second", "third"] {
        let options = JoinOptions { name: name.to_owned(), ..JoinOptions::default() };
        table.add(stage.join(&table.address, options, Some(4711)));
        table.until("it is in", |table| {
            table.players.iter().all(|player| player.peer.peers().len() == table.players.len() - 1)
        });
    }
    let ids = table.ids();
    assert_eq!(ids[1].get(), 4711, "who comes first has it");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4);
}

/// See the name.
pub fn arrivals_and_leavings_are_told_to_everybody(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 3, 3);
    let ids = table.ids();
    table.players[2].peer.close();
    table.until("everybody knows who left", |table| {
        [0, 1, 3].iter().all(|player| table.players[*player].left(ids[2]).is_some())
    });
    assert_eq!(table.players[0].left(ids[2]), Some(&CloseReason::ByPeer));
    assert_eq!(table.players[2].closed(), Some(&CloseReason::ByUser));
    for player in [0, 1, 3] {
        assert_eq!(table.players[player].peer.peers().len(), 2);
    }
    let options = JoinOptions { name: "late".to_owned(), ..JoinOptions::default() };
    table.add(stage.join(&table.address, options, None));
    table.until("who comes late hears of all", |table| table.players[4].joined().len() == 3);
    let late = table.players[4].peer.id();
    table
        .until("and all of it", |table| [0, 1, 3].iter().all(|player| table.players[*player].joined().contains(&late)));
}

fn reliably(stage: &dyn Stage, loss: f64, seed: u8) {
    let needed: &[Gap] = if loss > 0.0 { &[Gap::Alone, Gap::BadLine] } else { &[Gap::Alone] };
    if !stage.has(needed) {
        return;
    }
    let line = if loss > 0.0 { bad(loss) } else { clean() };
    let mut table = seated(stage, line, seed, 2);
    table.forget();
    let ids = table.ids();
    let count = 200_u32;
    for number in 0..count {
        for (from, target) in [(0, Target::All), (1, Target::One(PeerId::HOST)), (2, Target::One(ids[1]))] {
            let mut data = number.to_be_bytes().to_vec();
            data.resize(4 + usize::try_from(number % 60).unwrap_or(0), 7);
            send(&mut table, from, target, 3, RELIABLE, &data);
        }
        if number % 10 == 0 {
            table.play(5 * MS);
        }
    }
    let wanted = |player: usize| if player == 1 { 2 * count } else { count };
    table.until("all of them are there", |table| {
        (0..3).all(|player| table.players[player].packet_count() >= usize::try_from(wanted(player)).unwrap_or(0))
    });
    for player in 0..3 {
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        for (from, channel, delivery, data) in table.players[player].packets() {
            assert_eq!((channel, delivery), (3, RELIABLE));
            let number = u32::from_be_bytes(*data.first_chunk().expect("four bytes"));
            let expected = next.entry(from).or_default();
            assert_eq!(number, *expected, "player {player}, from {from}");
            *expected += 1;
        }
        assert!(next.values().all(|next| *next == count), "{next:?}");
    }
}

/// See the name.
pub fn reliable_packets_arrive_on_a_clean_line(stage: &dyn Stage) {
    reliably(stage, 0.0, 4);
}

/// See the name.
pub fn reliable_packets_arrive_at_five_percent_loss(stage: &dyn Stage) {
    reliably(stage, 0.05, 5);
}

/// See the name.
pub fn reliable_packets_arrive_at_twenty_percent_loss(stage: &dyn Stage) {
    reliably(stage, 0.2, 6);
}

/// See the name.
pub fn unreliable_packets_come_once_and_ordered_ones_in_order(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let line = if stage.has(&[Gap::BadLine]) { bad(0.1) } else { clean() };
    let mut table = seated(stage, line, 7, 2);
    table.forget();
    let count = 400_u32;
    for number in 0..count {
        let delivery = if number % 2 == 0 { Delivery::Unreliable } else { Delivery::UnreliableOrdered };
        for from in 0..2 {
            send(&mut table, from, Target::All, 0, delivery, &number.to_be_bytes());
        }
        table.play(2 * MS);
    }
    table.play(Duration::from_millis(300));
    for player in 0..3 {
        for from in table.ids().iter().take(2) {
            let of = |wanted: Delivery| -> Vec<u32> {
                let packets = table.players[player].packets().into_iter();
                let packets = packets.filter(|packet| packet.0 == from.get() && packet.2 == wanted);
                packets.map(|packet| u32::from_be_bytes(*packet.3.first_chunk().expect("four bytes"))).collect()
            };
            if table.players[player].peer.id() == *from {
                continue;
            }
            let (loose, ordered) = (of(Delivery::Unreliable), of(Delivery::UnreliableOrdered));
            assert_eq!(loose.iter().collect::<BTreeSet<_>>().len(), loose.len(), "never twice");
            assert!(ordered.is_sorted_by(|a, b| a < b), "never back: {ordered:?}");
            assert!(loose.len() >= 60 && ordered.len() >= 60, "most arrive: {} and {}", loose.len(), ordered.len());
        }
    }
}

/// See the name.
pub fn channels_keep_their_own_order(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let line = if stage.has(&[Gap::BadLine]) { bad(0.1) } else { clean() };
    let mut table = seated(stage, line, 8, 1);
    table.forget();
    for number in 0..640_u32 {
        let channel = u8::try_from(number % 32).unwrap_or(0);
        send(&mut table, 0, Target::All, channel, RELIABLE, &(number / 32).to_be_bytes());
        if number % 64 == 0 {
            table.play(2 * MS);
        }
    }
    table.until("all of them are there", |table| table.players[1].packet_count() >= 640);
    let mut next: BTreeMap<u8, u32> = BTreeMap::new();
    for (_, channel, _, data) in table.players[1].packets() {
        let expected = next.entry(channel).or_default();
        assert_eq!(u32::from_be_bytes(*data.first_chunk().expect("four bytes")), *expected, "channel {channel}");
        *expected += 1;
    }
    assert!(next.len() == 32 && next.values().all(|next| *next == 20), "{next:?}");
}

/// See the name.
pub fn every_size_arrives_whole(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 9, 2);
    let ids = table.ids();
    for delivery in [RELIABLE, Delivery::Unreliable, Delivery::UnreliableOrdered] {
        let max = table.players[0].peer.max_packet_size(delivery);
        assert!(max >= 1_200, "{max}");
        for size in [0, 1, 1_199, 1_200, 1_201, 1_500, max / 2, max] {
            let data: Vec<u8> = (0..size).map(|n| u8::try_from((n * 7 + size) % 251).unwrap_or(0)).collect();
            for (from, to) in [(0, 1), (1, 0), (1, 2)] {
                table.forget();
                // An unreliable packet of many pieces may lose one even here, when a buffer is full.
                for attempt in 0..20 {
                    send(&mut table, from, Target::One(ids[to]), 5, delivery, &data);
                    if delivery == RELIABLE {
                        table.until("it is there", |table| table.players[to].packet_count() > 0);
                    } else {
                        table.play((50 + attempt * 20) * MS / 2);
                    }
                    if table.players[to].packet_count() > 0 {
                        break;
                    }
                }
                let got = table.players[to].packets();
                assert!(!got.is_empty(), "{delivery:?}, {size} bytes, {from} to {to}");
                assert!(got[0] == (ids[from].get(), 5, delivery, data.clone()), "{delivery:?}, {size} bytes");
            }
        }
        let over = vec![0; max + 1];
        let refused = table.players[0].peer.send(Target::All, Channel(0), delivery, &over);
        assert_eq!(refused, Err(SendError::TooLarge { size: max + 1, max }));
    }
}

/// See the name.
pub fn every_target_is_reached_and_nobody_else(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 10, 3);
    table.forget();
    let ids = table.ids();
    let mut expected: Vec<Vec<(u32, String)>> = vec![Vec::new(); 4];
    for from in 0..4 {
        let mut targets =
            vec![(Target::All, "all".to_owned(), usize::MAX), (Target::AllBut(ids[from]), "self".to_owned(), from)];
        for (other, id) in ids.iter().enumerate().filter(|(other, _)| *other != from) {
            targets.push((Target::AllBut(*id), format!("all but {other}"), other));
            send(&mut table, from, Target::One(*id), 1, RELIABLE, format!("for {other}").as_bytes());
            expected[other].push((ids[from].get(), format!("for {other}")));
        }
        for (target, text, but) in targets {
            send(&mut table, from, target, 1, RELIABLE, text.as_bytes());
            for (other, list) in expected.iter_mut().enumerate() {
                if other != from && other != but {
                    list.push((ids[from].get(), text.clone()));
                }
            }
        }
    }
    table.until("all of them are there", |table| {
        table.players.iter().zip(&expected).all(|(player, expected)| player.packet_count() >= expected.len())
    });
    table.play(50 * MS);
    for (player, mut expected) in table.players.iter().zip(expected) {
        let packets = player.packets().into_iter();
        let mut got: Vec<_> =
            packets.map(|packet| (packet.0, String::from_utf8_lossy(&packet.3).into_owned())).collect();
        got.sort();
        expected.sort();
        assert_eq!(got, expected, "{}", player.peer.id());
    }
}

/// See the name.
pub fn a_host_may_refuse(stage: &dyn Stage) {
    let mut table = open(stage, clean(), 11);
    table.players[0].peer.refuse_new(true);
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    table.play(50 * MS);
    table.add(stage.join(&table.address, JoinOptions { name: "unwanted".into(), ..JoinOptions::default() }, None));
    table.until("it is refused", |table| table.players[1].closed().is_some());
    let why = table.players[1].closed().cloned();
    assert!(matches!(&why, Some(CloseReason::Refused(text)) if !text.is_empty()), "{why:?}");
    assert!(table.players[1].joined().is_empty() && table.players[0].joined().is_empty(), "it never was in");
    table.players[0].peer.refuse_new(false);
    table.play(50 * MS);
    table.add(stage.join(&table.address, JoinOptions { name: "wanted".into(), ..JoinOptions::default() }, None));
    table.until("the next one is in", |table| table.players[2].peer.state() == PeerState::Connected);
}

/// See the name.
pub fn who_is_kicked_reads_why(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 12, 2);
    let ids = table.ids();
    assert_eq!(table.players[1].peer.kick(ids[2], 1, "no"), Err(SendError::HostOnly));
    let nobody = PeerId::new(0x7FFF_FFFE).expect("31 bits");
    assert_eq!(table.players[0].peer.kick(nobody, 1, "no"), Err(SendError::NoSuchPeer(nobody)));
    assert_eq!(table.players[0].peer.kick(ids[1], 42, "no griefing, please"), Ok(()));
    table.until("it is out", |table| table.players[1].closed().is_some());
    let kicked = CloseReason::Kicked(42, "no griefing, please".to_owned());
    assert_eq!(table.players[1].closed(), Some(&kicked));
    table.until("everybody knows", |table| {
        table.players[0].left(ids[1]).is_some() && table.players[2].left(ids[1]).is_some()
    });
    assert_eq!(table.players[0].left(ids[1]), Some(&kicked));
    assert_eq!(table.players[0].peer.peers(), [ids[2]]);
}

/// See the name.
pub fn who_is_banned_does_not_come_back(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = open(stage, clean(), 13);
    let options =
        |name: &str, identity| JoinOptions { name: name.into(), identity: [identity; 16], ..JoinOptions::default() };
    table.add(stage.join(&table.address, options("bad", 66), None));
    table.until("it is in", |table| table.players[0].joined().len() == 1 && table.players[1].joined().len() == 1);
    let id = table.players[1].peer.id();
    assert_eq!(table.players[0].peer.ban(id, 7, "for good"), Ok(()));
    table.until("it is out", |table| table.players[1].closed().is_some());
    assert_eq!(table.players[1].closed(), Some(&CloseReason::Kicked(7, "for good".to_owned())));
    table.add(stage.join(&table.address, options("bad again", 66), None));
    table.until("it is refused", |table| table.players[2].closed().is_some());
    assert_eq!(table.players[2].closed(), Some(&CloseReason::Refused("for good".to_owned())));
    table.add(stage.join(&table.address, options("good", 67), None));
    table.until("another one is not", |table| table.players[3].peer.state() == PeerState::Connected);
}

/// See the name.
pub fn both_ends_may_close_at_once(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        let mut table = open(stage, clean(), 14);
        table.players[0].peer.close();
        table.players[0].peer.close();
        table.until("it is over", |table| table.players[0].closed().is_some());
        assert_eq!(table.players[0].seen.len(), 2);
        return;
    }
    let mut table = seated(stage, clean(), 14, 2);
    for player in &mut table.players {
        player.peer.close();
    }
    table.until("it is over for all", |table| table.players.iter().all(|player| player.closed().is_some()));
    table.play(50 * MS);
    for player in &table.players {
        assert_eq!(player.closed(), Some(&CloseReason::ByUser));
        assert_eq!(player.peer.state(), PeerState::Closed);
        let closings = player.seen.iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert_eq!(closings, 1, "once");
        assert!(matches!(player.seen.last(), Some(Event::Closed(_))), "and last");
        assert!(player.peer.peers().is_empty());
    }
    for player in &mut table.players {
        player.peer.close();
        assert_eq!(player.peer.send(Target::All, Channel(0), RELIABLE, b"x"), Err(SendError::NotConnected));
    }
}

/// See the name.
pub fn a_host_that_dies_is_noticed(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone, Gap::Death]) {
        return;
    }
    let mut table = seated(stage, clean(), 15, 2);
    table.cut();
    table.until("both notice", |table| (1..3).all(|player| table.players[player].closed().is_some()));
    for player in 1..3 {
        assert_eq!(table.players[player].closed(), Some(&CloseReason::Silent));
    }
}

/// See the name.
pub fn a_host_that_leaves_is_noticed(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 16, 2);
    table.players[0].peer.close();
    table.until("all notice", |table| table.players.iter().all(|player| player.closed().is_some()));
    for player in 1..3 {
        assert_eq!(table.players[player].closed(), Some(&CloseReason::SessionEnded));
    }
}

/// See the name.
pub fn a_full_queue_says_so(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 17, 1);
    table.forget();
    let packet = vec![9; 100_000];
    let (mut sent, mut blocked) = (0_u64, false);
    while !blocked && sent < 10_000 {
        match table.players[0].peer.send(Target::All, Channel(2), RELIABLE, &packet) {
            Ok(()) => sent += 1,
            Err(SendError::WouldBlock) => blocked = true,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(blocked, "a gigabyte is not swallowed");
    table.until("there is room again", |table| table.players[0].seen.contains(&Event::Writable));
    send(&mut table, 0, Target::All, 2, RELIABLE, b"the last one");
    let all = usize::try_from(sent).unwrap_or(0) + 1;
    table.until("nothing was lost", |table| table.players[1].packet_count() >= all);
    assert_eq!(table.players[1].packets().last().map(|packet| packet.3.clone()), Some(b"the last one".to_vec()));
}

/// See the name.
pub fn one_poll_a_second_is_enough(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 18, 2);
    table.forget();
    for number in 0..3_u32 {
        for from in 0..3 {
            send(&mut table, from, Target::All, 0, RELIABLE, &number.to_be_bytes());
        }
        std::thread::sleep(Duration::from_secs(1));
        table.round();
    }
    table.until("all of them are there", |table| table.players.iter().all(|player| player.packet_count() >= 6));
    assert!(table.players.iter().all(|player| player.closed().is_none() && player.peer.peers().len() == 2));
}

/// See the name.
pub fn a_thousand_polls_a_second_are_fine(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 19, 2);
    table.forget();
    let mut last = [0_u32; 3];
    for number in 1..=500_u32 {
        for from in 0..3 {
            send(&mut table, from, Target::All, 0, Delivery::UnreliableOrdered, &number.to_be_bytes());
        }
        table.round();
        std::thread::sleep(MS);
    }
    table.play(300 * MS);
    for (player, last) in table.players.iter().zip(&mut last) {
        *last = player.packet_count().try_into().unwrap_or(0);
    }
    assert!(last.iter().all(|count| (500..=1_000).contains(count)), "two others, 500 each, a few lost: {last:?}");
}

/// See the name.
pub fn a_caller_may_lend_its_thread(stage: &dyn Stage) {
    let options = HostOptions { name: "inline".to_owned(), drive: Drive::Inline, ..HostOptions::default() };
    let mut table = Table::new(stage.host(options, clean(), 20));
    if !stage.has(&[Gap::Alone]) {
        table.until("it is up", |table| table.players[0].peer.state() == PeerState::Connected);
        return;
    }
    let options = JoinOptions { name: "inline too".to_owned(), drive: Drive::Inline, ..JoinOptions::default() };
    table.add(stage.join(&table.address, options, None));
    table.until("both are in", |table| table.players.iter().all(|player| player.joined().len() == 1));
    table.forget();
    for number in 0..100_u32 {
        for from in 0..2 {
            send(&mut table, from, Target::All, 0, RELIABLE, &number.to_be_bytes());
            table.players[from].peer.flush();
        }
    }
    table.until("all of them are there", |table| table.players.iter().all(|player| player.packet_count() == 100));
    table.players[1].peer.close();
    let id = table.players[1].peer.id();
    table.until("the host knows", |table| table.players[0].left(id).is_some());
    assert_eq!(table.players[0].left(id), Some(&CloseReason::ByPeer));
}

/// See the name.
pub fn thirty_two_players_hear_each_other(stage: &dyn Stage) {
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut table = seated(stage, clean(), 21, 31);
    table.forget();
    for from in 0..32 {
        send(&mut table, from, Target::All, 4, RELIABLE, &u32::try_from(from).unwrap_or(0).to_be_bytes());
    }
    table.until("all of them are there", |table| table.players.iter().all(|player| player.packet_count() >= 31));
    let ids = table.ids();
    for player in &table.players {
        let senders: BTreeSet<u32> = player.packets().iter().map(|packet| packet.0).collect();
        let others: BTreeSet<u32> = ids.iter().map(|id| id.get()).filter(|id| *id != player.peer.id().get()).collect();
        assert_eq!(senders, others);
        assert_eq!(player.packet_count(), 31);
    }
}

/// See the name.
pub fn the_link_is_measured(stage: &dyn Stage) {
    let nobody = PeerId::new(77).expect("31 bits");
    if !stage.has(&[Gap::Alone]) {
        assert_eq!(open(stage, clean(), 22).players[0].peer.link_stats(nobody), None);
        return;
    }
    let line = if stage.has(&[Gap::BadLine]) { LinkConfig { delay: 20 * MS, ..clean() } } else { clean() };
    let mut table = seated(stage, line, 22, 2);
    for number in 0..100_u32 {
        send(&mut table, 0, Target::All, 0, RELIABLE, &number.to_be_bytes());
        send(&mut table, 1, Target::All, 0, RELIABLE, &number.to_be_bytes());
        table.play(20 * MS);
    }
    table.play(Duration::from_secs(3));
    let ids = table.ids();
    let least = if stage.has(&[Gap::BadLine]) { 38 * MS } else { Duration::ZERO };
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let stats = table.players[from].peer.link_stats(ids[to]).expect("a player");
        let rtt = stats.rtt.expect("measured by now");
        assert!(rtt >= least && rtt < Duration::from_secs(1), "{from} to {to}: {stats:?}");
        assert_ne!(stats.route, anywire::Route::None, "{from} to {to}");
        if from == 0 || to == 0 {
            assert!(stats.sent > 400 && stats.received > 400, "{from} to {to}: {stats:?}");
        }
    }
    assert_eq!(table.players[0].peer.link_stats(nobody), None);
}

/// See the name.
pub fn what_cannot_be_sent_is_refused_by_type(stage: &dyn Stage) {
    let mut table = open(stage, clean(), 23);
    table.until("the host is up", |table| table.players[0].peer.state() == PeerState::Connected);
    let host = &mut table.players[0].peer;
    let nobody = PeerId::new(77).expect("31 bits");
    assert_eq!(host.send(Target::All, Channel(0), RELIABLE, b"to an empty room"), Ok(()));
    for target in [Target::One(nobody), Target::AllBut(nobody)] {
        assert_eq!(host.send(target, Channel(0), RELIABLE, b"x"), Err(SendError::NoSuchPeer(nobody)));
    }
    assert_eq!(host.kick(nobody, 0, ""), Err(SendError::NoSuchPeer(nobody)));
    if !stage.has(&[Gap::Alone]) {
        return;
    }
    let mut early = stage.join(&table.address, JoinOptions::default(), None);
    if early.state() == PeerState::Connecting {
        assert_eq!(early.send(Target::All, Channel(0), RELIABLE, b"x"), Err(SendError::NotConnected));
    }
    early.close();
}
