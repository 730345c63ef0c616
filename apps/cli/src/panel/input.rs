//! Keys. With nothing being typed, letters are commands, as the hints at the bottom say; Enter begins a chat line.

use std::time::Instant;

use crossterm::event::{Event as TermEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use session::Command;

use super::model::{Ask, Model, Overlay, Prompt, TYPED, View};

/// What a key asks of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Something for the session.
    Session(Command),
    /// Put this text on the clipboard.
    Copy(String),
    /// Leave.
    Quit,
}

/// Takes one thing a terminal reports.
pub(crate) fn take(model: &mut Model, event: &TermEvent, now: Instant) -> Option<Action> {
    match event {
        TermEvent::Key(key) if key.kind != KeyEventKind::Release => press(model, *key, now),
        TermEvent::Paste(text) => {
            paste(model, text);
            None
        }
        _ => None,
    }
}

fn paste(model: &mut Model, text: &str) {
    model.overlay = Overlay::None;
    let (_, typed) = model.prompt.get_or_insert((Prompt::Chat, String::new()));
    for c in text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).filter(|c| !c.is_control()) {
        if typed.chars().count() >= TYPED {
            break;
        }
        typed.push(c);
    }
}

fn press(model: &mut Model, key: KeyEvent, now: Instant) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && matches!(key.code, KeyCode::Char('c' | 'C')) {
        return Some(Action::Quit);
    }
    if model.prompt.is_some() {
        return typing(model, key, control, now);
    }
    match model.overlay.clone() {
        Overlay::Ask(ask) => answer(model, key, ask),
        Overlay::Help | Overlay::Qr => {
            // Any key closes, and the key that opened it does nothing else.
            model.overlay = Overlay::None;
            None
        }
        Overlay::None => command(model, key, control, now),
    }
}

fn answer(model: &mut Model, key: KeyEvent, ask: Ask) -> Option<Action> {
    match key.code {
        KeyCode::Char('y' | 'Y') => {
            model.overlay = Overlay::None;
            Some(match ask {
                Ask::Quit => Action::Quit,
                Ask::Start => Action::Session(Command::Start { save: false, switch: false }),
                Ask::Kick(player) => Action::Session(Command::Kick { player, text: "removed by the host".into() }),
            })
        }
        KeyCode::Char('n' | 'N') | KeyCode::Esc => {
            model.overlay = Overlay::None;
            None
        }
        _ => None,
    }
}

fn typing(model: &mut Model, key: KeyEvent, control: bool, now: Instant) -> Option<Action> {
    let (prompt, typed) = model.prompt.as_mut()?;
    match key.code {
        KeyCode::Esc => {
            model.prompt = None;
            None
        }
        KeyCode::Backspace => {
            typed.pop();
            None
        }
        KeyCode::Char('u' | 'U') if control => {
            typed.clear();
            None
        }
        KeyCode::Char('w' | 'W') if control => {
            let keep = typed.trim_end().rfind(' ').map_or(0, |at| at + 1);
            typed.truncate(keep);
            None
        }
        KeyCode::Char(c) if !control && !c.is_control() => {
            if typed.chars().count() < TYPED {
                typed.push(c);
            }
            None
        }
        KeyCode::Tab if *prompt == Prompt::Chat && typed.is_empty() => {
            model.prompt = None;
            model.show(model.view.step(1));
            None
        }
        KeyCode::Enter => {
            let (prompt, text) = model.prompt.take()?;
            let action = entered(model, prompt, text.trim(), now);
            if prompt == Prompt::Chat && action.is_some() {
                // A conversation goes on: the line stays open until Esc or an empty Enter.
                model.prompt = Some((Prompt::Chat, String::new()));
                model.back = 0;
            }
            action
        }
        _ => None,
    }
}

fn entered(model: &mut Model, prompt: Prompt, text: &str, now: Instant) -> Option<Action> {
    if text.is_empty() {
        return None;
    }
    let command = match prompt {
        Prompt::Chat => Command::Chat(text.to_owned()),
        Prompt::Name => Command::Name(text.to_owned()),
        Prompt::Company => match text.parse::<u32>() {
            Ok(id @ 1..=200) => Command::Company { player: model.selected.clone().filter(|_| model.leads()), id },
            Ok(_) | Err(_) => {
                model.notify("A company is a number from 1 to 200.", now);
                return None;
            }
        },
    };
    Some(Action::Session(command))
}

fn command(model: &mut Model, key: KeyEvent, control: bool, now: Instant) -> Option<Action> {
    if control {
        return None;
    }
    match key.code {
        KeyCode::Enter | KeyCode::Char('t' | 'T') => {
            if !matches!(model.view, View::Lobby | View::Chat) {
                model.show(View::Chat);
            }
            model.prompt = Some((Prompt::Chat, String::new()));
        }
        KeyCode::Tab => model.show(model.view.step(1)),
        KeyCode::BackTab => model.show(model.view.step(View::ALL.len() - 1)),
        KeyCode::Char(digit @ '1'..='4') => {
            let at = digit.to_digit(10).and_then(|n| usize::try_from(n).ok()).unwrap_or(1) - 1;
            model.show(View::ALL.get(at).copied().unwrap_or(View::Lobby));
        }
        KeyCode::Up => model.select(false),
        KeyCode::Down => model.select(true),
        KeyCode::PageUp => model.back = (model.back + 5).min(model.lines().saturating_sub(1)),
        KeyCode::PageDown => model.back = model.back.saturating_sub(5),
        KeyCode::End | KeyCode::Esc => {
            model.back = 0;
            model.selected = None;
        }
        KeyCode::Char('?' | 'h' | 'H') | KeyCode::F(1) => model.overlay = Overlay::Help,
        KeyCode::Char('q' | 'Q') => model.overlay = Overlay::Ask(Ask::Quit),
        KeyCode::Char('n' | 'N') => model.prompt = Some((Prompt::Name, String::new())),
        KeyCode::Char('k' | 'K') => model.prompt = Some((Prompt::Company, String::new())),
        KeyCode::Char('c' | 'C') => {
            if let Some(code) = model.code.clone() {
                model
                    .notify("Code sent to your terminal's clipboard. Nothing to paste? Select it with the mouse.", now);
                return Some(Action::Copy(code));
            }
        }
        KeyCode::Char('r' | 'R') if model.code.is_some() => model.overlay = Overlay::Qr,
        KeyCode::Char('s' | 'S') if model.leads() => model.overlay = Overlay::Ask(Ask::Start),
        KeyCode::Char('m' | 'M') if model.leads() => return Some(Action::Session(Command::Mode(model.other_mode()))),
        KeyCode::Char('x' | 'X') if model.host => match model.selected.clone() {
            Some(name) if model.roster.as_ref().is_some_and(|roster| roster.you != name) => {
                model.overlay = Overlay::Ask(Ask::Kick(name));
            }
            _ => model.notify("Choose a player with the arrow keys first.", now),
        },
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::roster;
    use lobby::Mode;
    use session::Event;
    use std::sync::Arc;

    fn model(host: bool) -> Model {
        let mut model = Model::new(host, "1".into());
        model.apply(&Event::Roster(Arc::new(roster("ada", &["ada", "lin"]))), "");
        if host {
            model.apply(&Event::Code("TFVLCO4A".into()), "");
        }
        model
    }

    fn key(model: &mut Model, code: KeyCode) -> Option<Action> {
        take(model, &TermEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)), Instant::now())
    }

    fn keys(model: &mut Model, text: &str) -> Vec<Action> {
        text.chars().filter_map(|c| key(model, if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) })).collect()
    }

    #[test]
    fn enter_types_a_chat_line_and_enter_sends_it() {
        let mut model = model(true);
        let sent = keys(&mut model, "\nquit? no\nand more\n");
        assert_eq!(sent, ["quit? no", "and more"].map(|text| Action::Session(Command::Chat(text.into()))));
        assert_eq!(keys(&mut model, "\n"), []);
        assert_eq!(model.prompt, None);
    }

    #[test]
    fn leaving_asks_first_and_control_c_does_not() {
        let mut model = model(true);
        assert_eq!(keys(&mut model, "qxn"), []);
        assert_eq!(model.overlay, Overlay::None);
        assert_eq!(keys(&mut model, "qy"), [Action::Quit]);
        let control = TermEvent::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        model.prompt = Some((Prompt::Chat, "half a li".into()));
        assert_eq!(take(&mut model, &control, Instant::now()), Some(Action::Quit));
    }

    #[test]
    fn c_copies_the_code_and_says_so() {
        let mut model = model(true);
        assert_eq!(keys(&mut model, "c"), [Action::Copy("TFVLCO4A".into())]);
        assert!(model.notice.as_ref().unwrap().0.starts_with("Code sent to your terminal's clipboard."));
    }

    #[test]
    fn a_joiner_has_no_code_to_copy_and_nothing_to_start() {
        let mut model = model(false);
        assert_eq!(keys(&mut model, "crsmx"), []);
        assert_eq!(model.overlay, Overlay::None);
    }

    #[test]
    fn starting_and_removing_are_asked_first() {
        let mut model = model(true);
        assert_eq!(keys(&mut model, "sy"), [Action::Session(Command::Start { save: false, switch: false })]);
        assert_eq!(keys(&mut model, "xy"), []);
        key(&mut model, KeyCode::Up);
        let kick = Command::Kick { player: "lin".into(), text: "removed by the host".into() };
        assert_eq!(keys(&mut model, "xy"), [Action::Session(kick)]);
        key(&mut model, KeyCode::Down);
        assert_eq!(keys(&mut model, "xy"), [], "nobody removes themselves");
    }

    #[test]
    fn name_company_and_mode_are_one_key_away() {
        let mut model = model(true);
        assert_eq!(keys(&mut model, "nbob\n"), [Action::Session(Command::Name("bob".into()))]);
        assert_eq!(keys(&mut model, "k12\n"), [Action::Session(Command::Company { player: None, id: 12 })]);
        assert_eq!(keys(&mut model, "k201\n"), []);
        assert!(model.notice.is_some());
        assert_eq!(keys(&mut model, "m"), [Action::Session(Command::Mode(Mode::Companies))]);
    }

    #[test]
    fn pasted_text_is_one_chat_line_however_long() {
        let mut model = model(true);
        take(&mut model, &TermEvent::Paste("one\ntwo\u{1b}[2J".into()), Instant::now());
        assert_eq!(model.prompt, Some((Prompt::Chat, "one two[2J".into())));
        take(&mut model, &TermEvent::Paste("x".repeat(9_000)), Instant::now());
        assert_eq!(model.prompt.as_ref().unwrap().1.chars().count(), TYPED);
    }

    #[test]
    fn editing_keys_edit() {
        let mut model = model(true);
        keys(&mut model, "\none two three");
        let control = |c| TermEvent::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        take(&mut model, &control('w'), Instant::now());
        key(&mut model, KeyCode::Backspace);
        assert_eq!(model.prompt.as_ref().unwrap().1, "one two");
        take(&mut model, &control('u'), Instant::now());
        key(&mut model, KeyCode::Backspace);
        assert_eq!(model.prompt.as_ref().unwrap().1, "");
        key(&mut model, KeyCode::Esc);
        assert_eq!(model.prompt, None);
    }

    #[test]
    fn tab_goes_round_the_pages() {
        let mut model = model(true);
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(model.view);
            key(&mut model, KeyCode::Tab);
        }
        assert_eq!(seen, [View::Lobby, View::Players, View::Chat, View::Log, View::Lobby]);
        key(&mut model, KeyCode::BackTab);
        assert_eq!(model.view, View::Lobby);
        keys(&mut model, "4");
        assert_eq!(model.view, View::Log);
    }
}
