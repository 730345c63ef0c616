//! Frames of the panel on a screen of cells.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use seam::{LinkStats, Route};
use session::Event;

use super::*;
use crate::testing::roster;

const CODE: &str = "TFVLCO4AYCUACFDTD7DDGZCNOMPQAAICAMCAKBQHBAEQUCYTFVLCO4AYCUACFDTD7DDGZCNOMPQAAICAMCAKBQ";

/// Every size a test draws: ordinary, small, wide, absurd.
const SIZES: [(u16, u16); 10] =
    [(80, 24), (40, 10), (120, 40), (300, 100), (20, 5), (10, 3), (3, 2), (1, 1), (0, 0), (200, 2)];

fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, Theme::new(true))).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn host() -> Model {
    let mut model = Model::new(true, "0.7.1.4".into());
    let mut players = roster("ada", &["ada", "lin", "mia"]);
    players.players.get_mut("mia").unwrap().stage = "loading the map".into();
    model.apply(&Event::Code(CODE.into()), "");
    model.apply(&Event::Status { state: State::Waiting, detail: "waiting for players".into() }, "");
    model.apply(&Event::Roster(Arc::new(players)), "");
    let stats =
        |ms, route| LinkStats { rtt: Some(Duration::from_millis(ms)), loss: Some(0.0), route, ..LinkStats::default() };
    let links = [("lin".to_owned(), stats(42, Route::Direct)), ("mia".to_owned(), stats(180, Route::ThroughHost))];
    model.apply(&Event::Links(Arc::new(links.into())), "");
    model.apply(&Event::Chat { from: "lin".into(), text: "ready?".into(), ts: Some(1) }, "12:01");
    model
}

/// Two hundred players whose names are out to break a screen, and one who talks the same way.
fn hostile() -> Model {
    let mut model = Model::new(true, "0.7.1.4\u{1b}[2J".into());
    let names: Vec<String> = (0..200)
        .map(|n| match n % 5 {
            0 => format!("\u{1b}[31m{n}\u{7}\r\n"),
            1 => format!("{n}{}", "\u{65e5}\u{672c}".repeat(60)),
            2 => format!("\u{202e}{n}\u{200b}\u{feff}"),
            3 => format!("{n}e{}", "\u{301}".repeat(90)),
            _ => format!("{n}{}", "w".repeat(250)),
        })
        .collect();
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut players = roster(&names[0], &refs);
    players.lobby = "\u{9b}2J".repeat(40);
    for player in players.players.values_mut() {
        player.stage = "\u{1f682}\n".repeat(90);
    }
    model.apply(&Event::Code(CODE.into()), "");
    model.apply(&Event::Status { state: State::Connected, detail: "x\u{1b}]52;c;AAAA\u{7}".repeat(50) }, "");
    model.apply(&Event::Roster(Arc::new(players)), "");
    for name in &names {
        let text = format!("{}\u{1b}[H", "long ".repeat(80));
        model.apply(&Event::Chat { from: name.clone(), text, ts: Some(1) }, "12:00");
        model.logged([format!("[net] {name}")]);
    }
    model
}

fn assert_shows(rows: &[String], what: &str) {
    assert!(rows.iter().any(|row| row.contains(what)), "{what:?} is not on\n{}", rows.join("\n"));
}

#[test]
fn an_ordinary_terminal_shows_code_players_chat_and_keys() {
    let rows = screen(&host(), 80, 24);
    for what in [
        "1 Lobby",
        "4 Log",
        "host, release 0.7.1.4",
        "waiting for players",
        &CODE[..70],
        "Players (3) in Tuesday, co-op",
        "42 ms",
        "direct",
        "180 ms",
        "via host",
        "loading the map",
        "12:01 lin: ready?",
        "Enter chat",
        "c copy code",
        "? all keys",
        "q leave",
    ] {
        assert_shows(&rows, what);
    }
}

#[test]
fn a_small_terminal_still_shows_who_is_there_and_the_keys() {
    let rows = screen(&host(), 40, 10);
    for what in ["Players (3)", "lin", "42 ms", "direct", "Enter chat", "q leave"] {
        assert_shows(&rows, what);
    }
}

#[test]
fn a_wide_terminal_puts_players_and_chat_side_by_side() {
    let rows = screen(&host(), 120, 40);
    assert!(rows.iter().any(|row| row.contains("Players (3)") && row.contains("Chat")), "{rows:?}");
    assert_shows(&rows, CODE);
}

#[test]
fn a_code_longer_than_a_line_is_whole() {
    let joined: String = screen(&host(), 40, 24).concat().chars().filter(|c| !c.is_whitespace()).collect();
    assert!(joined.contains(CODE), "{joined}");
}

#[test]
fn no_size_page_or_overlay_breaks_the_panel_or_lets_a_control_character_through() {
    let mut model = hostile();
    let overlays = [Overlay::None, Overlay::Help, Overlay::Qr, Overlay::Ask(Ask::Kick("w\u{1b}[2J".repeat(99)))];
    for view in View::ALL {
        model.show(view);
        for overlay in &overlays {
            model.overlay = overlay.clone();
            for prompt in
                [None, Some((Prompt::Chat, "\u{65e5}\u{1b}".repeat(300))), Some((Prompt::Company, String::new()))]
            {
                model.prompt = prompt;
                for (width, height) in SIZES {
                    for row in screen(&model, width, height) {
                        let bad = row.chars().find(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(c));
                        assert_eq!(bad, None, "{view:?} {overlay:?} {width}x{height}: {row:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn scrolled_back_beyond_the_oldest_line_the_page_is_empty_and_whole() {
    let mut model = host();
    model.show(View::Chat);
    model.back = 10_000;
    assert_shows(&screen(&model, 80, 24), "PgDn for newer lines");
}

#[test]
fn two_hundred_players_fit_by_leaving_some_out_and_saying_so() {
    let mut model = hostile();
    model.show(View::Players);
    assert_shows(&screen(&model, 80, 24), "and 183 more (arrow keys)");
}

#[test]
fn the_picture_is_drawn_where_it_fits_and_explained_where_not() {
    let mut model = host();
    model.overlay = Overlay::Qr;
    assert_shows(&screen(&model, 80, 24), "\u{2588}\u{2588}\u{2588}\u{2588}\u{2588}");
    assert_shows(&screen(&model, 40, 10), "This terminal is too small");
}

#[test]
fn help_names_every_key_of_the_role() {
    let (mut host, mut joiner) = (host(), Model::new(false, "1".into()));
    host.overlay = Overlay::Help;
    joiner.overlay = Overlay::Help;
    assert_shows(&screen(&host, 80, 24), "copy the code for your friends");
    let rows = screen(&joiner, 80, 24);
    assert_shows(&rows, "change your name");
    assert!(!rows.iter().any(|row| row.contains("copy the code")));
}

#[test]
fn typing_shows_the_end_of_a_long_line_and_a_notice_goes_below_it() {
    let mut model = host();
    model.prompt = Some((Prompt::Chat, format!("{}end", "word ".repeat(60))));
    assert_shows(&screen(&model, 80, 24), "word word end");
    model.prompt = None;
    model.notify("Code sent", Instant::now());
    assert_shows(&screen(&model, 80, 24), "Code sent");
}

#[test]
fn without_colours_nothing_is_coloured() {
    let model = host();
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &model, Theme::new(false))).unwrap();
    let reset = ratatui::style::Color::Reset;
    assert!(terminal.backend().buffer().content().iter().all(|cell| cell.fg == reset && cell.bg == reset));
}
