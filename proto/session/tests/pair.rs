//! Two and three whole sessions with each other.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests fail by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anywire_session::{Command, Event};
use common::*;
use joincode::{Code, Profile};
use lobby::{End, State};
use seam::{Path, Refused, Secret};

fn host_code(net: &Net) -> String {
    let code = |event: &Event| if let Event::Code(code) = event { Some(code.clone()) } else { None };
    net.nodes[HOST].events.iter().find_map(code).unwrap()
}

/// What the host sent to an address.
fn sent_to(net: &Net, to: SocketAddr) -> impl Iterator<Item = &[u8]> {
    net.sent.iter().filter(move |sent| sent.from == net.nodes[HOST].at && sent.to == to).map(|sent| &*sent.bytes)
}

#[test]
fn three_players_talk_and_play_over_a_bad_line() {
    let mut net = Net::hosted(1);
    net.loss = 0.05;
    let lin = net.join(2, join_config("lin", 2, code(1)));
    let kim = net.join(3, join_config("kim", 3, code(1)));
    net.run(secs(10));
    net.assert_together(&["ada", "kim", "lin"]);
    net.loss = 0.0;
    net.run(secs(5));
    net.assert_talk(HOST, lin, "hello");
    net.assert_talk(HOST, kim, "hey");
    net.assert_talk(kim, lin, "between us");
}

#[test]
fn a_locked_code_and_its_password_open_the_lobby() {
    let mut net = Net::new(2);
    let password = Some(Secret::new("sesame"));
    net.host(1, anywire_session::HostConfig { password: password.clone(), ..host_config(1) });
    net.settle();
    let code = joincode::parse(&host_code(&net)).unwrap();
    assert!(matches!(code, Code::Locked(_)));
    let lin = net.join(2, anywire_session::JoinConfig { password, ..join_config("lin", 2, code) });
    net.run(secs(2));
    net.assert_together(&["ada", "lin"]);
    net.assert_talk(HOST, lin, "inside");
}

#[test]
fn a_wrong_password_is_named_before_anybody_is_dialled() {
    let mut net = Net::new(3);
    net.host(1, anywire_session::HostConfig { password: Some(Secret::new("sesame")), ..host_config(1) });
    net.settle();
    let code = joincode::parse(&host_code(&net)).unwrap();
    let password = Some(Secret::new("Sesame"));
    let lin = net.join(2, anywire_session::JoinConfig { password, ..join_config("lin", 2, code.clone()) });
    let kim = net.join(3, join_config("kim", 3, code));
    net.settle();
    let end = |node: usize| net.nodes[node].end().unwrap().to_string();
    assert!(end(lin).contains("the password does not open the code"), "{}", end(lin));
    assert!(end(kim).contains("it needs the host's password"), "{}", end(kim));
    assert_eq!(net.nodes[lin].states().last(), Some(&State::Failed));
    assert!(net.sent.is_empty());
}

#[test]
fn a_steam_code_ends_with_what_to_ask_for() {
    let mut net = Net::new(4);
    let lin = net.join(2, join_config("lin", 2, Code::Steam(76_561_197_960_265_729)));
    net.settle();
    let end = net.nodes[lin].end().unwrap().to_string();
    assert!(end.ends_with("this build carries no Steam; ask the host for its classic code"), "{end}");
    assert_eq!(net.nodes[lin].session.poll_timeout(), None);
}

/// An old host without a secret: everything travels in the clear.
struct PlainHost {
    lobby: lobby::Host,
    frames: Vec<Vec<u8>>,
}

impl PlainHost {
    fn take(&mut self, net: &Net, from: Path, bytes: &[u8]) -> Option<Vec<u8>> {
        let packet = np1::Packet::parse(bytes).unwrap();
        match (packet.kind, packet.payload.first()) {
            (np1::Kind::Hello, _) => return Some(np1::packet(np1::Kind::Ack, packet.payload)),
            (np1::Kind::Plain, Some(b'{')) => {
                let _ = self.lobby.handle_message(net.now, from, packet.payload);
            }
            (np1::Kind::Plain, Some(b'g')) => self.frames.push(packet.payload[1..].to_vec()),
            (np1::Kind::Ack | np1::Kind::Connected | np1::Kind::Keepalive, _) => {}
            other => panic!("not in the clear: {other:?}"),
        }
        None
    }

    /// Lets time pass in steps of 10 ms, with everything `net` sends to address 1 coming here.
    fn run(&mut self, net: &mut Net, time: Duration) {
        let end = net.now + time;
        while net.now < end {
            net.run(Duration::from_millis(10));
            self.lobby.handle_timeout(net.now);
            for sent in std::mem::take(&mut net.sent) {
                let from = anywire_session::Session::path_to(sent.from);
                if let Some(answer) = self.take(net, from, &sent.bytes) {
                    net.inject(0, at(1), &answer).unwrap();
                }
            }
            while let Some((_, json)) = self.lobby.poll_message() {
                let _ = net.inject(0, at(1), &np1::packet(np1::Kind::Plain, &json));
            }
        }
    }
}

#[test]
fn a_code_without_a_secret_plays_in_the_clear() {
    let mut net = Net::new(5);
    let profile = Profile { timestamp: stamp(), lan: Some(v4(1)), ..Profile::default() };
    let lin = net.join(2, join_config("lin", 2, Code::Plain(profile)));
    let config = lobby::HostConfig {
        version: anywire_session::RELEASE.to_owned(),
        name: "ada".to_owned(),
        extensions: false,
        ..lobby::HostConfig::default()
    };
    let mut host = PlainHost { lobby: lobby::Host::new(Arc::new(config), [9; 32], net.now, WALL), frames: vec![] };
    host.run(&mut net, secs(3));
    net.assert_together(&["ada", "lin"]);
    net.chat(lin, "hello");
    net.frame(lin, b"mine");
    let now = net.now;
    host.lobby.chat(now, "welcome");
    net.inject(lin, at(1), &np1::packet(np1::Kind::Plain, b"gyours")).unwrap();
    host.run(&mut net, secs(1));
    let said = std::iter::from_fn(|| host.lobby.poll_event())
        .filter(|event| matches!(event, lobby::Event::Chat { from, text, .. } if from == "lin" && text == "hello"))
        .count();
    assert_eq!((said, host.frames.as_slice()), (1, [b"mine".to_vec()].as_slice()));
    assert_eq!((net.nodes[lin].heard("welcome"), net.nodes[lin].frames(b"yours")), (1, 1));
}

const SMUGGLED: [&[u8]; 6] = [
    br#"NP1:D{"t": "reject", "reason": "no", "t": "start", "save": false}"#,
    br#"NP1:D{"t": "reject", "t": "roster", "players": ["eve"], "host": "eve", "you": "eve"}"#,
    br#"NP1:D{"t": "roster", "players": ["eve"], "host": "eve", "you": "eve"}"#,
    br#"NP1:D{"t": "welcome", "version": "0.7.1.4", "name": "lin"}"#,
    br#"NP1:D{"t": "bye"}"#,
    b"NP1:Dgframe",
];

#[test]
fn pain_24_nothing_is_smuggled_in_the_clear_into_a_session_that_is_up() {
    let mut net = Net::pair(6);
    let before = net.nodes[1].session.roster();
    for packet in SMUGGLED {
        assert_eq!(net.inject(1, at(1), packet), Err(Refused::NotAllowed), "{}", String::from_utf8_lossy(packet));
    }
    net.run(secs(1));
    let has = |wanted: fn(&Event) -> bool| net.nodes[1].events.iter().any(wanted);
    assert!(!has(|event| matches!(event, Event::Start { .. } | Event::Ended(_) | Event::Frame { .. })));
    assert_eq!(net.nodes[1].session.roster(), before);
    net.assert_talk(HOST, 1, "as before");
}

#[test]
fn pain_24_nothing_is_smuggled_in_the_clear_before_the_host_has_spoken() {
    let mut net = Net::hosted(7);
    net.no_seals = true;
    let lin = net.join(2, join_config("lin", 2, code(1)));
    net.run(secs(1));
    assert!(net.nodes[lin].session.host_path().is_some());
    for packet in SMUGGLED {
        assert_eq!(net.inject(lin, at(1), packet), Err(Refused::NotAllowed), "{}", String::from_utf8_lossy(packet));
    }
    net.no_seals = false;
    net.run(secs(4));
    net.assert_together(&["ada", "lin"]);
    assert!(!net.nodes[lin].events.iter().any(|event| matches!(event, Event::Start { .. } | Event::Ended(_))));
}

#[test]
fn a_player_whose_address_changes_keeps_seat_name_and_letter() {
    let mut net = Net::pair(8);
    net.join(3, join_config("kim", 3, code(1)));
    net.run(secs(2));
    let letter = net.nodes[HOST].letter("lin");
    net.move_to(1, 22);
    net.run(secs(5));
    assert!(net.nodes[HOST].logged("moved to 198.51.100.22:4000"));
    net.assert_together(&["ada", "kim", "lin"]);
    assert_eq!((net.nodes[HOST].letter("lin"), net.nodes[1].letter("lin")), (letter.clone(), letter));
    assert_eq!(net.nodes[1].session.roster().you, "lin");
    assert!(!net.nodes[1].states().contains(&State::Failed));
    net.sent.clear();
    net.assert_talk(HOST, 1, "from elsewhere");
    assert_eq!(sent_to(&net, at(2)).count(), 0, "the old address is left alone");
}

#[test]
fn a_copy_from_an_address_that_answers_moves_nobody() {
    let mut net = Net::pair(9);
    let sealed: Vec<Vec<u8>> = net
        .sent
        .iter()
        .filter(|sent| sent.from == at(2) && sent.bytes.starts_with(b"NP1:E"))
        .map(|sent| sent.bytes.clone())
        .collect();
    assert!(sealed.len() > 2);
    net.echoes.insert(at(66));
    for bytes in &sealed {
        assert_eq!(net.inject(HOST, at(66), bytes), Err(Refused::Replayed));
    }
    net.run(secs(5));
    assert!(!net.nodes[HOST].logged("moved to"));
    assert_eq!(sent_to(&net, at(66)).count(), 0);
    net.assert_talk(HOST, 1, "still here");
}

#[test]
fn an_address_that_cannot_receive_never_gets_the_seat() {
    let mut net = Net::pair(10);
    net.nodes[1].seen_as = at(66);
    net.sent.clear();
    for n in 0..10 {
        net.chat(1, &format!("line {n}"));
        net.run(secs(1));
        assert_eq!(net.nodes[HOST].heard(&format!("line {n}")), 1, "what it says still counts for its seat");
    }
    assert!(!net.nodes[HOST].logged("moved to"));
    net.assert_together(&["ada", "lin"]);
    let to_victim: Vec<&[u8]> = sent_to(&net, at(66)).collect();
    assert!(to_victim.iter().any(|bytes| bytes.starts_with(b"NP1:H")), "it is asked");
    assert!(to_victim.iter().all(|bytes| bytes.starts_with(b"NP1:H") || bytes.starts_with(b"NP1:A")));
    net.nodes[1].seen_as = at(2);
    net.run(secs(2));
    net.assert_together(&["ada", "lin"]);
    net.assert_talk(HOST, 1, "back");
}

#[test]
fn a_lost_host_that_comes_back_elsewhere_has_its_players_again() {
    let mut net = Net::hosted(11);
    let profile = Profile {
        timestamp: stamp(),
        lan: Some(v4(1)),
        vpn: [Some(v4(11)), None],
        secret: Some(SECRET),
        ..Profile::default()
    };
    for (n, name) in [(2, "lin"), (3, "kim")] {
        net.join(n, join_config(name, n, Code::Plain(profile.clone())));
        net.run(secs(2));
    }
    net.assert_together(&["ada", "kim", "lin"]);
    let letters = ["kim", "lin"].map(|name| net.nodes[HOST].letter(name));
    net.cut.insert(at(1));
    net.run(secs(45));
    for node in [1, 2] {
        assert_eq!(net.nodes[node].states().last(), Some(&State::Connecting));
    }
    assert_eq!(net.nodes[HOST].session.roster().players.len(), 1);
    net.move_to(HOST, 11);
    net.run(secs(15));
    net.assert_together(&["ada", "kim", "lin"]);
    assert_eq!(["kim", "lin"].map(|name| net.nodes[HOST].letter(name)), letters);
    for (node, name) in [(1, "lin"), (2, "kim")] {
        assert_eq!(net.nodes[node].states().last(), Some(&State::Connected));
        assert_eq!(net.nodes[node].session.roster().you, name);
        assert_eq!(net.nodes[node].session.host_path(), Some(at(11)));
    }
    net.assert_talk(HOST, 1, "again");
    net.assert_talk(HOST, 2, "and again");
}

#[test]
fn a_host_that_never_comes_back_is_given_up_after_two_and_a_half_minutes() {
    let mut net = Net::pair(12);
    net.cut.insert(at(1));
    net.run(secs(34));
    assert_eq!(net.nodes[1].states().last(), Some(&State::Connecting));
    net.run(secs(112));
    assert_eq!(net.nodes[1].end(), None);
    net.run(secs(6));
    assert_eq!(net.nodes[1].end(), Some(&End::HostGone));
    assert!(matches!(net.nodes[1].events.last(), Some(Event::Ended(_))));
    assert_eq!(net.nodes[1].session.poll_timeout(), None);
}

#[test]
fn a_stranger_at_the_hosts_private_address_does_not_end_the_join() {
    let mut net = Net::hosted(13);
    net.echoes.insert(at(77));
    let profile = Profile {
        timestamp: stamp(),
        lan: Some(v4(77)),
        public: Some(v4(1)),
        secret: Some(SECRET),
        ..Profile::default()
    };
    let lin = net.join(2, join_config("lin", 2, Code::Plain(profile)));
    net.run(secs(1));
    assert_eq!(net.nodes[lin].session.host_path(), Some(at(77)), "it answers first");
    net.run(secs(6));
    net.assert_together(&["ada", "lin"]);
    assert_eq!(net.nodes[lin].session.host_path(), Some(at(1)));
    net.assert_talk(HOST, lin, "found");
}

#[test]
fn who_is_removed_reads_why_and_stays_out() {
    let mut net = Net::pair(14);
    net.command(HOST, Command::Kick { player: "lin".to_owned(), text: "come back on Tuesday".to_owned() });
    net.run(secs(5));
    assert_eq!(net.nodes[1].end(), Some(&End::Rejected("come back on Tuesday".to_owned())));
    assert_eq!(net.nodes[HOST].session.roster().players.len(), 1);
}

#[test]
fn leaving_while_dialling_ends_at_once() {
    let mut net = Net::new(15);
    let lin = net.join(2, join_config("lin", 2, code(1)));
    net.run(secs(1));
    net.command(lin, Command::Quit);
    assert_eq!(net.nodes[lin].end(), Some(&End::Quit));
    assert!(matches!(net.nodes[lin].events.last(), Some(Event::Ended(_))));
    let sent = net.sent.len();
    net.run(secs(30));
    assert_eq!((net.sent.len(), net.nodes[lin].session.poll_timeout()), (sent, None));
}

#[test]
fn a_host_that_quits_and_a_player_that_leaves_are_told_of() {
    let mut net = Net::pair(16);
    let kim = net.join(3, join_config("kim", 3, code(1)));
    net.run(secs(2));
    net.command(kim, Command::Quit);
    net.run(secs(1));
    assert_eq!(net.nodes[kim].end(), Some(&End::Quit));
    let names: Vec<String> = net.nodes[1].session.roster().players.keys().cloned().collect();
    assert_eq!(names, ["ada", "lin"]);
    net.command(HOST, Command::Quit);
    net.run(secs(1));
    assert_eq!((net.nodes[HOST].end(), net.nodes[1].end()), (Some(&End::Quit), Some(&End::HostClosed)));
    assert!(net.nodes.iter().all(|node| node.session.poll_timeout().is_none()));
}

/// That nothing is due once all is drained is asserted in every step of every test here; this bounds how often
/// something becomes due.
#[test]
fn an_idle_pair_sleeps_most_of_the_time() {
    let mut net = Net::pair(17);
    net.run(secs(10));
    (net.wakes, net.sent) = (0, Vec::new());
    net.run(secs(60));
    assert!((60..2_400).contains(&net.wakes), "{} wakes in a minute of two processes", net.wakes);
    assert!(net.sent.len() < 1_200, "{} datagrams in a minute", net.sent.len());
}
