//! The terminal: draws sixteen times a second, reads keys in between.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue, style};

use crate::STEP;
use crate::game::{Game, HEIGHT, Spot, WIDTH};

/// Puts the terminal back as it was, whatever ends the game.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _terminal_gone = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _terminal_gone = terminal::disable_raw_mode();
    }
}

/// Plays until the player leaves or the session is over.
pub(crate) fn play(game: &mut Game) -> io::Result<()> {
    terminal::enable_raw_mode()?;
    let _restore = Restore;
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
    let (mut typing, mut leaving) = (None::<String>, None::<Instant>);
    loop {
        let next = Instant::now() + STEP;
        game.tick();
        draw(game, typing.as_deref())?;
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if event::poll(left)? && key(game, &event::read()?, &mut typing) {
                game.leave();
                leaving = Some(Instant::now() + Duration::from_millis(300));
            }
        }
        if leaving.is_some_and(|by| Instant::now() >= by) {
            return Ok(());
        }
    }
}

/// True when the player wants to leave.
fn key(game: &mut Game, event: &Event, typing: &mut Option<String>) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind == KeyEventKind::Release {
        return false;
    }
    match (key.code, typing.as_mut()) {
        (KeyCode::Esc, None) => return true,
        (KeyCode::Esc, Some(_)) => *typing = None,
        (KeyCode::Enter, None) => *typing = Some(String::new()),
        (KeyCode::Enter, Some(text)) => {
            if !text.is_empty() {
                game.say(text);
            }
            *typing = None;
        }
        (KeyCode::Backspace, Some(text)) => drop(text.pop()),
        (KeyCode::Char(c), Some(text)) if text.len() < 100 => text.push(c),
        (KeyCode::Left, None) => game.step(-1, 0),
        (KeyCode::Right, None) => game.step(1, 0),
        (KeyCode::Up, None) => game.step(0, -1),
        (KeyCode::Down, None) => game.step(0, 1),
        _ => {}
    }
    false
}

fn draw(game: &Game, typing: Option<&str>) -> io::Result<()> {
    let mut rows = vec![vec![' '; usize::from(WIDTH)]; usize::from(HEIGHT)];
    let mut put = |spot: Spot, mark: char| {
        if let Some(cell) = rows.get_mut(usize::from(spot.y)).and_then(|row| row.get_mut(usize::from(spot.x))) {
            *cell = mark;
        }
    };
    game.enemies.iter().for_each(|spot| put(*spot, '*'));
    for (id, spot) in &game.players {
        put(*spot, game.name(*id).chars().next().unwrap_or('o'));
    }
    put(game.me, '@');
    let wall = format!("+{}+", "-".repeat(usize::from(WIDTH)));
    let mut lines = vec![match (&game.over, game.is_connected(), game.invite()) {
        (Some(why), ..) => format!("over: {why:?}; Esc leaves"),
        (None, false, _) => "connecting ..".to_owned(),
        (None, true, Some(invite)) => format!("join with: {invite}"),
        (None, true, None) => format!("you are player {}", game.id()),
    }];
    lines.push(wall.clone());
    lines.extend(rows.iter().map(|row| format!("|{}|", row.iter().collect::<String>())));
    lines.push(wall);
    lines.push(format!("caught together: {}   arrows move, Enter talks, Esc leaves", game.score));
    lines.extend(game.links());
    lines.extend(game.chat.iter().cloned());
    lines.push(typing.map(|text| format!("> {text}_")).unwrap_or_default());
    let mut out = io::stdout();
    for (row, line) in lines.iter().enumerate() {
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        queue!(out, cursor::MoveTo(0, row), style::Print(line), Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    out.flush()
}
