//! A host and joiners of ours.

mod common;

use anywire_lobby::{End, Event, HostConfig, JoinConfig, Mode, State};
use common::*;
use seam::Refused;

fn chats(events: &[Event]) -> Vec<(String, String)> {
    let chat = |event: &Event| match event {
        Event::Chat { from, text, .. } => Some((from.clone(), text.clone())),
        _ => None,
    };
    events.iter().filter_map(chat).collect()
}

fn starts(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Start { save: false, switch: false })).count()
}

fn ended(events: &[Event]) -> Option<End> {
    events.iter().find_map(|event| match event {
        Event::Ended(end) => Some(end.clone()),
        _ => None,
    })
}

#[test]
fn two_joiners_and_the_host_see_the_same_lobby() {
    let mut world = World::new(1, PERFECT, host_config());
    world.join(1, JoinConfig { profile: Some("AEBAGBA".into()), ..join_config("bob") });
    world.join(2, join_config("bob"));
    world.run(secs(1));
    world.assert_agreement();
    let roster = world.roster(2);
    assert_eq!(roster.players.keys().map(String::as_str).collect::<Vec<_>>(), ["ada", "bob", "bob#2"]);
    assert_eq!((roster.you.as_str(), roster.host.as_str(), roster.lobby.as_str()), ("bob#2", "ada", "Tuesday"));
    assert_eq!(roster.players["ada"].letter, "a");
    assert_eq!(roster.players["bob"].profile.as_deref(), Some("AEBAGBA"));
    let mut letters = [roster.players["bob"].letter.as_str(), roster.players["bob#2"].letter.as_str()];
    letters.sort_unstable();
    assert_eq!(letters, ["b", "c"]);
    assert_eq!((roster.stored_age, roster.stored_max, roster.relay), (-1, -1, false));
    let told = world.events_of(1).iter().filter(|event| matches!(event, Event::TransportLobby(_))).count();
    assert_eq!(told, 1);
}

#[test]
fn pain_33_a_lobby_forms_over_a_rough_link() {
    for seed in 0..20 {
        let mut world = World::new(seed, ROUGH, host_config());
        for port in 1..=8 {
            world.join(port, join_config("player"));
        }
        world.run(secs(20));
        world.link = PERFECT;
        world.run(secs(10));
        world.assert_agreement();
        assert_eq!(world.host.roster().players.len(), 9);
    }
}

#[test]
fn pain_37_a_renamed_player_keeps_its_letter_and_seat() {
    let mut world = World::new(3, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.join(2, join_config("eve"));
    world.run(secs(1));
    let letter = world.roster(1).players["bob"].letter.clone();
    let now = world.now;
    world.joiner(1).rename(now, "eve");
    world.run(secs(1));
    world.assert_agreement();
    assert_eq!(world.roster(1).you, "eve#2");
    assert_eq!(world.roster(2).players["eve#2"].letter, letter);
    assert!(world.host_events.iter().any(|event| matches!(
        event,
        Event::MemberRenamed { old, new, .. } if old == "bob" && new == "eve#2"
    )));
    let now = world.now;
    world.host.rename(now, "eve");
    world.run(secs(1));
    world.assert_agreement();
    assert_eq!((world.host.roster().you.as_str(), world.roster(1).host.as_str()), ("eve#3", "eve#3"));
    assert_eq!(world.roster(1).players["eve#3"].letter, "a");
}

#[test]
fn pain_36_a_newcomer_that_sorts_first_moves_nobodys_letter() {
    let mut world = World::new(4, PERFECT, host_config());
    world.join(1, join_config("zoe"));
    world.run(secs(1));
    world.join(2, join_config("abe"));
    world.run(secs(1));
    let letter = |name: &str, world: &World| world.host.roster().players[name].letter.clone();
    assert_eq!([letter("ada", &world), letter("zoe", &world), letter("abe", &world)], ["a", "b", "c"]);
}

#[test]
fn a_letter_is_kept_for_a_name_for_the_lobbys_life() {
    let mut world = World::new(4, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.joiner(1).leave(now);
    world.run(secs(1));
    assert_eq!(ended(world.events_of(1)), Some(End::Quit));
    world.join(2, join_config("eve"));
    world.run(secs(1));
    world.join(3, join_config("bob"));
    world.run(secs(1));
    assert_eq!(world.host.roster().players["eve"].letter, "c");
    assert_eq!(world.host.roster().players["bob"].letter, "b");
}

#[test]
fn chat_reaches_everybody_once_through_loss() {
    let link = Link { loss: 0.2, duplicate: 0.3, jitter: ms(100) };
    let mut world = World::new(5, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.join(2, join_config("eve"));
    world.run(secs(1));
    world.link = link;
    let now = world.now;
    for n in 0..8 {
        world.host.chat(now, &format!("line {n}"));
    }
    world.run(secs(5));
    let want: Vec<_> = (0..8).map(|n| ("ada".to_owned(), format!("line {n}"))).collect();
    assert_eq!(chats(&world.host_events), want);
    for port in [1, 2] {
        let mut heard = chats(world.events_of(port));
        heard.sort();
        heard.dedup();
        assert_eq!(heard.len(), chats(world.events_of(port)).len(), "nothing twice");
        assert!(heard.len() >= 7, "three copies at 20 % loss: {}", heard.len());
    }
}

#[test]
fn a_joiners_chat_comes_back_to_it_with_a_time() {
    let mut world = World::new(5, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(3));
    let now = world.now;
    world.joiner(1).chat(now, "hello\u{1b}[2J");
    world.joiner(1).chat(now, "  ");
    world.run(secs(1));
    let chat = world.events_of(1).iter().find(|event| matches!(event, Event::Chat { .. }));
    assert_eq!(chat, Some(&Event::Chat { from: "bob".into(), text: "hello [2J".into(), ts: Some(WALL + 3) }));
    assert_eq!(chats(&world.host_events).len(), 1);
}

#[test]
fn pain_41_start_reaches_everybody_once_and_a_late_joiner_waits_to_be_started() {
    let mut world = World::new(6, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.host.start(now, true);
    world.run(secs(1));
    assert_eq!((starts(world.events_of(1)), starts(&world.host_events)), (0, 0), "a save is not sent, nothing latches");
    let now = world.now;
    world.host.start(now, false);
    world.run(secs(5));
    assert_eq!((starts(world.events_of(1)), starts(&world.host_events)), (1, 1));
    assert!(world.roster(1).started);
    world.join(2, join_config("late"));
    world.run(secs(5));
    assert_eq!(starts(world.events_of(2)), 0);
    assert!(!world.roster(2).started);
    let told = |event: &Event| matches!(event, Event::Status { detail, .. } if detail.contains("has to start you"));
    assert!(world.events_of(2).iter().any(told));
    let now = world.now;
    world.host.start(now, false);
    world.run(secs(5));
    assert_eq!((starts(world.events_of(1)), starts(world.events_of(2)), starts(&world.host_events)), (1, 1, 1));
}

#[test]
fn a_lost_start_is_healed_by_the_roster() {
    let mut world = World::new(7, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    world.cut.push(1);
    let now = world.now;
    world.host.start(now, false);
    world.run(ms(900));
    world.cut.clear();
    world.run(secs(3));
    assert_eq!(starts(world.events_of(1)), 1);
}

#[test]
fn companies_are_the_lowest_free_in_join_order_and_one_in_coop() {
    let mut world = World::new(8, PERFECT, HostConfig { companies: true, ..host_config() });
    world.join(1, join_config("bob"));
    world.run(secs(1));
    world.join(2, join_config("eve"));
    world.run(secs(1));
    let companies = |world: &World| {
        let roster = world.host.roster();
        ["ada", "bob", "eve"].map(|name| roster.players[name].company)
    };
    assert_eq!(companies(&world), [1, 2, 3]);
    let now = world.now;
    world.joiner(1).company(now, None, 3);
    world.joiner(2).company(now, Some("bob"), 9);
    world.run(secs(1));
    assert_eq!(companies(&world), [1, 3, 3], "one's own only");
    let now = world.now;
    assert_eq!(world.host.company(now, None, 201), Err(Refused::Malformed));
    assert_eq!(world.host.company(now, None, 0), Err(Refused::Malformed));
    assert_eq!(world.host.company(now, Some("nobody"), 2), Err(Refused::NotAllowed));
    assert_eq!(world.host.company(now, Some("eve"), 7), Ok(()));
    world.host.mode(now, Mode::Coop);
    world.run(secs(1));
    assert_eq!(companies(&world), [1, 1, 1]);
    assert_eq!(world.host.company(now, None, 2), Err(Refused::NotAllowed));
    let now = world.now;
    world.host.mode(now, Mode::Companies);
    world.run(secs(1));
    assert_eq!(companies(&world), [1, 2, 3]);
    world.assert_agreement();
}

#[test]
fn a_stage_arrives_even_when_its_first_datagram_is_lost() {
    let mut world = World::new(9, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    world.cut.push(1);
    let now = world.now;
    world.joiner(1).stage(now, &"x".repeat(200));
    world.run(ms(500));
    world.cut.clear();
    world.run(secs(3));
    assert_eq!(world.host.roster().players["bob"].stage, "x".repeat(80));
    world.assert_agreement();
}

#[test]
fn logs_arrive_as_lines_of_their_member_and_are_limited() {
    let mut world = World::new(10, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.joiner(1).log(now, (0..100).map(|n| format!("{n}\u{7}")).collect());
    world.run(secs(2));
    let lines: Vec<_> = world
        .host_events
        .iter()
        .filter_map(|event| match event {
            Event::PeerLog { name, line } => Some((name.as_str(), line.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!((lines.len(), lines[0], lines[99]), (100, ("bob", "0 "), ("bob", "99 ")));
}

#[test]
fn pain_50_a_goodbye_of_the_host_survives_loss() {
    let mut world = World::new(11, PERFECT, host_config());
    (1..=6).for_each(|port| world.join(port, join_config("p")));
    world.run(secs(1));
    world.link = Link { loss: 0.3, ..PERFECT };
    let now = world.now;
    world.host.close(now);
    world.run(secs(2));
    assert_eq!(ended(&world.host_events), Some(End::Quit));
    assert_eq!(world.host.poll_timeout(), None);
    let closed = (1..=6).filter(|port| ended(world.events_of(*port)) == Some(End::HostClosed)).count();
    assert!(closed >= 5, "{closed}");
}

#[test]
fn pain_50_a_joiner_that_leaves_is_gone_at_once() {
    let mut world = World::new(12, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.joiner(1).leave(now);
    world.run(ms(300));
    assert_eq!(ended(world.events_of(1)), Some(End::Quit));
    assert!(!world.host.roster().players.contains_key("bob"));
    let left = world.host_events.iter().filter(|event| matches!(event, Event::MemberLeft { .. })).count();
    assert_eq!(left, 1, "of three copies the second finds nobody");
}

#[test]
fn a_silent_member_is_dropped_after_ten_seconds() {
    let mut world = World::new(13, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    world.cut.push(1);
    world.run(secs(8));
    assert!(world.host.is_member(path(1)));
    world.run(secs(4));
    assert!(!world.host.is_member(path(1)));
    let silent = |event: &Event| matches!(event, Event::MemberLeft { reason, .. } if reason == "silent");
    assert!(world.host_events.iter().any(silent));
}

#[test]
fn pain_44_a_host_that_stood_still_drops_nobody_for_it() {
    let mut world = World::new(14, PERFECT, host_config());
    (1..=5).for_each(|port| world.join(port, join_config("p")));
    world.run(secs(5));
    world.stall_host(secs(19));
    world.run(secs(5));
    assert_eq!(world.host.roster().players.len(), 6);
    world.assert_agreement();
    assert!((1..=5).all(|port| ended(world.events_of(port)).is_none()));
}

#[test]
fn a_kicked_player_reads_why_and_is_not_let_in_again_from_there() {
    let mut world = World::new(15, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    assert!(!world.host.kick(now, "nobody", "x"));
    assert!(world.host.kick(now, "bob", "mind your words"));
    world.run(secs(1));
    assert_eq!(ended(world.events_of(1)), Some(End::Rejected("mind your words".into())));
    world.join(1, join_config("bob"));
    world.run(secs(1));
    assert!(!world.host.is_member(path(1)));
    world.run(secs(61));
    world.join(1, join_config("bob"));
    world.run(secs(1));
    assert!(world.host.is_member(path(1)));
}

#[test]
fn pain_39_another_version_is_told_both() {
    let mut world = World::new(16, PERFECT, host_config());
    world.join(1, JoinConfig { version: " 0.7.1.4".into(), ..join_config("bob") });
    world.run(secs(1));
    let Some(End::Rejected(reason)) = ended(world.events_of(1)) else { panic!("not rejected") };
    assert!(reason.contains("0.7.1.4") && reason.contains(" 0.7.1.4"), "{reason}");
    assert!(!world.host.is_member(path(1)));
}

#[test]
fn a_full_lobby_says_so() {
    let mut world = World::new(17, PERFECT, HostConfig { max_players: 3, ..host_config() });
    (1..=3).for_each(|port| {
        world.join(port, join_config("p"));
        world.run(ms(200));
    });
    assert_eq!(ended(world.events_of(3)), Some(End::Rejected("lobby full".into())));
    assert_eq!(world.host.roster().players.len(), 3);
}

#[test]
fn a_host_that_never_says_its_version_is_given_up_after_fifteen_seconds() {
    let mut world = World::new(18, PERFECT, host_config());
    world.cut.push(1);
    world.join(1, join_config("bob"));
    world.run(ms(14_900));
    assert_eq!(ended(world.events_of(1)), None);
    world.run(ms(200));
    assert_eq!(ended(world.events_of(1)), Some(End::Unconfirmed));
    assert_eq!(world.joiner(1).poll_timeout(), None);
}

#[test]
fn pain_26_a_plain_reject_counts_only_before_the_first_authentic_frame() {
    let mut world = World::new(19, PERFECT, host_config());
    world.join(1, join_config("bob"));
    let now = world.now;
    assert_eq!(world.joiner(1).handle_plain_reject(now, path(9), "wrong password"), Err(Refused::NotAllowed));
    world.run(secs(1));
    let now = world.now;
    assert_eq!(world.joiner(1).handle_plain_reject(now, path(HOST), "wrong password"), Err(Refused::NotAllowed));
    assert_eq!(ended(world.events_of(1)), None);
}

#[test]
fn pain_25_a_stray_password_on_an_open_code_is_explained() {
    let mut world = World::new(20, PERFECT, host_config());
    world.cut.push(1);
    world.join(1, JoinConfig { stray_password: true, ..join_config("bob") });
    let now = world.now;
    assert_eq!(world.joiner(1).handle_plain_reject(now, path(HOST), "wrong password"), Ok(()));
    world.pump();
    let text = ended(world.events_of(1)).unwrap().to_string();
    assert_eq!(text, "the host refused: wrong password; this code is not locked, so join it without a password");
}

#[test]
fn a_relays_oldest_joiner_leads_and_the_next_follows() {
    let config = HostConfig { relay_only: true, companies: true, ..host_config() };
    let mut world = World::new(21, PERFECT, config);
    world.join(1, join_config("zoe"));
    world.run(secs(1));
    world.join(2, join_config("abe"));
    world.run(secs(1));
    world.assert_agreement();
    let roster = world.roster(2);
    assert_eq!((roster.host.as_str(), roster.relay, roster.stored_max), ("zoe", true, 180));
    assert_eq!(roster.players.keys().collect::<Vec<_>>(), ["abe", "zoe"]);
    let now = world.now;
    world.joiner(2).start(now);
    world.joiner(2).mode(now, Mode::Coop);
    world.joiner(1).company(now, Some("abe"), 9);
    world.run(secs(1));
    assert_eq!(starts(world.events_of(1)), 0, "only the leader starts");
    assert_eq!((world.roster(1).mode, world.roster(1).players["abe"].company), (Mode::Companies, 9));
    let now = world.now;
    world.joiner(1).leave(now);
    world.run(secs(1));
    assert_eq!(world.roster(2).host, "abe");
    let now = world.now;
    world.joiner(2).start(now);
    world.run(secs(1));
    assert_eq!(starts(world.events_of(2)), 1);
    assert_eq!(starts(&world.host_events), 0, "a relay has no game");
    let now = world.now;
    world.joiner(2).leave(now);
    world.run(secs(1));
    assert!(!world.host.roster().started, "the last to leave closes the session");
}

#[test]
fn pain_35_an_ordinary_hosts_oldest_joiner_does_not_lead() {
    let mut world = World::new(22, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let now = world.now;
    world.joiner(1).start(now);
    world.joiner(1).mode(now, Mode::Companies);
    world.run(secs(1));
    assert_eq!((world.roster(1).host.as_str(), world.roster(1).mode), ("ada", Mode::Coop));
    assert_eq!(starts(&world.host_events), 0);
}

#[test]
fn statuses_follow_the_session() {
    let mut world = World::new(23, PERFECT, host_config());
    world.join(1, join_config("bob"));
    world.run(secs(1));
    let states: Vec<State> = world
        .events_of(1)
        .iter()
        .filter_map(|event| match event {
            Event::Status { state, .. } => Some(*state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [State::Connecting, State::Connecting, State::Connected]);
}
