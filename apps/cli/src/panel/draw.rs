//! One frame of the panel. Pure: a model and a size become cells.

use lobby::{Mode, State};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::model::{Ask, Model, Overlay, Prompt, View};
use super::theme::Theme;
use super::{qr, roster};
use crate::text;

/// From this width on, players and chat stand side by side.
const WIDE: u16 = 110;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let [head, status, body, input, hints] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, head, model, theme);
    state(frame, status, model, theme);
    match model.view {
        View::Lobby => lobby(frame, body, model, theme),
        View::Players => players(frame, body, model, theme),
        View::Chat => chat(frame, body, model, theme),
        View::Log => log(frame, body, model, theme),
    }
    entry(frame, input, model, theme);
    frame.render_widget(Paragraph::new(hint_line(model, columns(hints), theme)), hints);
    match &model.overlay {
        Overlay::None => {}
        Overlay::Help => help(frame, model, theme),
        Overlay::Qr => picture(frame, model, theme),
        Overlay::Ask(ask) => question(frame, ask, theme),
    }
}

fn columns(area: Rect) -> usize {
    usize::from(area.width)
}

fn rows(area: Rect) -> usize {
    usize::from(area.height)
}

fn header(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let mut spans = vec![Span::styled(" anywire ", theme.strong())];
    for (n, view) in View::ALL.into_iter().enumerate() {
        let unread =
            if view == View::Chat && model.unread > 0 { format!(" ({})", model.unread) } else { String::new() };
        let title = if area.width < 48 {
            format!(" {}{unread} ", view.title())
        } else {
            format!(" {} {}{unread} ", n + 1, view.title())
        };
        spans.push(Span::styled(title, if view == model.view { theme.chosen() } else { theme.quiet() }));
    }
    let role = if model.host { "host" } else { "joined" };
    let right = format!("{role}, release {} ", model.release);
    let left = Line::from(spans);
    let fits = left.width() + text::width(&right) < columns(area);
    frame.render_widget(Paragraph::new(left), area);
    if fits {
        frame.render_widget(Paragraph::new(Line::styled(right, theme.quiet())).right_aligned(), area);
    }
}

fn state(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let (word, style) = match model.state {
        State::Waiting => ("waiting", theme.fair()),
        State::Connecting => ("connecting", theme.fair()),
        State::Connected => ("connected", theme.good()),
        State::Failed => ("failed", theme.bad()),
        State::Disconnected => ("disconnected", theme.bad()),
    };
    let started = if model.started { " (game started)" } else { "" };
    let front = format!(" \u{25cf} {word}{started}");
    let saves: Vec<&str> = model.transfers.values().map(String::as_str).collect();
    let detail = match (saves.as_slice(), model.detail.as_str()) {
        ([], "") => String::new(),
        ([], detail) => format!(": {detail}"),
        (saves, _) => format!(": save {}", saves.join("; ")),
    };
    let room = columns(area).saturating_sub(text::width(&front));
    let line = Line::from(vec![Span::styled(front, style), Span::raw(text::fit(&detail, room))]);
    frame.render_widget(Paragraph::new(line), area);
}

/// A section's name on a rule.
fn rule(frame: &mut Frame<'_>, area: Rect, title: &str, theme: Theme) {
    let title = text::fit(&format!("\u{2500} {title} "), columns(area));
    let rest = "\u{2500}".repeat(columns(area).saturating_sub(text::width(&title)));
    frame.render_widget(Paragraph::new(Line::styled(format!("{title}{rest}"), theme.quiet())), area);
}

/// Splits a section into its rule and its body.
fn section(area: Rect) -> [Rect; 2] {
    Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area)
}

fn lobby(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let lines = model.code.as_deref().map(|code| code_lines(code, columns(area))).unwrap_or_default();
    let code_rows = match u16::try_from(lines.len()) {
        Ok(n) if n > 0 && area.height > n + 5 => n + 1,
        _ => 0,
    };
    let [code, rest] = Layout::vertical([Constraint::Length(code_rows), Constraint::Min(0)]).areas(area);
    if code_rows > 0 {
        let [top, body] = section(code);
        rule(frame, top, "Code for your friends: c copies it, r shows it as a picture", theme);
        let lines: Vec<Line<'_>> = lines.into_iter().map(|line| Line::styled(line, theme.strong())).collect();
        frame.render_widget(Paragraph::new(lines), body);
    }
    if area.width >= WIDE {
        let [left, right] = Layout::horizontal([Constraint::Percentage(60), Constraint::Min(0)]).areas(rest);
        players(frame, left, model, theme);
        chat(frame, right, model, theme);
        return;
    }
    // Players get what they need, up to half of the page; on a small one the chat keeps a single line.
    let wanted = model.roster.as_ref().map_or(1, |roster| roster.players.len() + 1).saturating_add(1);
    let most = if rest.height < 12 { rest.height.saturating_sub(2) } else { rest.height.div_ceil(2) };
    let top = u16::try_from(wanted).unwrap_or(u16::MAX).min(most);
    let [upper, lower] = Layout::vertical([Constraint::Length(top), Constraint::Min(0)]).areas(rest);
    players(frame, upper, model, theme);
    chat(frame, lower, model, theme);
}

/// The code in as few lines as fit. It is not grouped: the original's programs refuse spaces in a pasted code.
fn code_lines(code: &str, columns: usize) -> Vec<String> {
    text::wrap(code, columns.saturating_sub(2).max(1)).into_iter().map(|line| format!(" {line}")).collect()
}

fn players(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let [top, body] = section(area);
    let title = match &model.roster {
        None => "Players".to_owned(),
        Some(roster) => {
            let mode = if roster.mode == Mode::Companies { "companies" } else { "co-op" };
            let relay = if roster.relay { ", relay" } else { "" };
            let name = if roster.lobby.is_empty() { String::new() } else { format!(" in {}", roster.lobby) };
            format!("Players ({}){name}, {mode}{relay}", roster.players.len())
        }
    };
    rule(frame, top, &title, theme);
    frame.render_widget(Paragraph::new(roster::table(model, columns(body), rows(body), theme)), body);
}

fn chat(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let [top, body] = section(area);
    let title = if model.back > 0 { "Chat (PgDn for newer lines)" } else { "Chat" };
    rule(frame, top, title, theme);
    if model.chat.is_empty() {
        let line = Line::styled(" Nothing said yet. Enter begins a line.", theme.quiet());
        frame.render_widget(Paragraph::new(line), body);
        return;
    }
    let mut lines: Vec<Line<'_>> = Vec::new();
    // From the newest line upwards, until the page is full.
    for said in model.chat.iter().rev().skip(model.back) {
        if lines.len() >= rows(body) {
            break;
        }
        let front = if said.from.is_empty() { String::new() } else { format!("{}: ", said.from) };
        let all = format!(" {} {front}{}", said.clock, said.text);
        let style = if said.from.is_empty() { theme.fair() } else { Style::new() };
        for (n, part) in text::wrap(&all, columns(body)).into_iter().enumerate().collect::<Vec<_>>().into_iter().rev() {
            let head = format!(" {} {front}", said.clock);
            lines.push(match part.strip_prefix(&head) {
                Some(rest) if n == 0 && !front.is_empty() => Line::from(vec![
                    Span::styled(format!(" {} ", said.clock), theme.quiet()),
                    Span::styled(front.clone(), Style::new().add_modifier(Modifier::BOLD)),
                    Span::raw(rest.to_owned()),
                ]),
                _ => Line::styled(part, style),
            });
        }
    }
    bottom(frame, body, lines);
}

fn log(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let [top, body] = section(area);
    let title = if model.back > 0 { "Log (PgDn for newer lines)" } else { "Log, addresses masked" };
    rule(frame, top, title, theme);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for line in model.log.iter().rev().skip(model.back) {
        if lines.len() >= rows(body) {
            break;
        }
        lines.extend(text::wrap(line, columns(body)).into_iter().rev().map(Line::raw));
    }
    bottom(frame, body, lines);
}

/// Lines given newest first, drawn so that the newest is the lowest of those that fit.
fn bottom(frame: &mut Frame<'_>, area: Rect, mut lines: Vec<Line<'_>>) {
    lines.truncate(rows(area));
    lines.reverse();
    frame.render_widget(Paragraph::new(lines), area);
}

fn entry(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let Some((prompt, typed)) = &model.prompt else {
        if let Some((notice, _)) = &model.notice {
            let line = Line::styled(format!(" {}", text::fit(notice, columns(area).saturating_sub(1))), theme.fair());
            frame.render_widget(Paragraph::new(line), area);
        }
        return;
    };
    let label = match prompt {
        Prompt::Chat => " say: ",
        Prompt::Name => " your new name: ",
        Prompt::Company => " company (1-200): ",
    };
    let room = columns(area).saturating_sub(text::width(label) + 1);
    let shown = text::tail(&text::clean(typed), room).to_owned();
    let at = u16::try_from(text::width(label) + text::width(&shown)).unwrap_or(0);
    let line = Line::from(vec![Span::styled(label, theme.strong()), Span::raw(shown)]);
    frame.render_widget(Paragraph::new(line), area);
    if area.height > 0 && at < area.width {
        frame.set_cursor_position(Position::new(area.x + at, area.y));
    }
}

/// The keys worth knowing now, most useful first, as many as fit.
fn hint_line(model: &Model, columns: usize, theme: Theme) -> Line<'static> {
    let all: &[(&str, &str)] = match (&model.prompt, &model.overlay) {
        (Some((Prompt::Chat, _)), _) => &[("Enter", "send"), ("Esc", "stop typing"), ("Ctrl-C", "leave")],
        (Some(_), _) => &[("Enter", "ok"), ("Esc", "never mind")],
        (None, Overlay::Ask(_)) => &[("y", "yes"), ("n", "no")],
        (None, Overlay::Help | Overlay::Qr) => &[("any key", "back")],
        (None, Overlay::None) if model.host => &[
            ("Enter", "chat"),
            ("?", "all keys"),
            ("q", "leave"),
            ("c", "copy code"),
            ("r", "QR code"),
            ("Tab", "next page"),
            ("s", "start"),
            ("m", "mode"),
        ],
        (None, Overlay::None) => &[
            ("Enter", "chat"),
            ("?", "all keys"),
            ("q", "leave"),
            ("Tab", "next page"),
            ("n", "name"),
            ("k", "company"),
        ],
    };
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    for (key, what) in all {
        used += text::width(key) + text::width(what) + 3;
        if used > columns {
            break;
        }
        spans.push(Span::styled((*key).to_owned(), theme.strong()));
        spans.push(Span::raw(format!(" {what}  ")));
    }
    Line::from(spans)
}

/// A box in the middle, as large as its content where that fits.
fn middle(frame: &mut Frame<'_>, title: &str, width: usize, height: usize) -> Rect {
    let area = frame.area();
    let width = u16::try_from(width + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(height + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {title} "));
    let inner = block.inner(place);
    frame.render_widget(block, place);
    Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner }
}

fn help(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let mut keys = vec![
        ("Enter or t", "write to everybody; Esc stops"),
        ("Tab, 1 to 4", "pages: lobby, players, chat, log"),
        ("Up, Down", "choose a player"),
        ("PgUp, PgDn", "older and newer lines; End goes to the newest"),
        ("n", "change your name"),
        ("k", "change your company"),
    ];
    if model.host {
        keys.push(("c", "copy the code for your friends"));
        keys.push(("r", "show the code as a picture for a phone"));
        keys.push(("x", "remove the chosen player"));
    }
    if model.leads() {
        keys.push(("s", "start the game for everybody"));
        keys.push(("m", "one company for all, or one for each"));
    }
    keys.push(("q or Ctrl-C", "leave"));
    let lines: Vec<Line<'_>> = keys
        .iter()
        .map(|(key, what)| Line::from(vec![Span::styled(format!("{key:<13}"), theme.strong()), Span::raw(*what)]))
        .collect();
    let width = lines.iter().map(Line::width).max().unwrap_or(0);
    let area = middle(frame, "Keys", width, lines.len());
    frame.render_widget(Paragraph::new(lines), area);
}

fn picture(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let area = frame.area();
    let code = model.code.as_deref().unwrap_or_default();
    let Some(rows) = qr::picture(code, columns(area), rows(area).saturating_sub(1)) else {
        let lines = text::wrap("This terminal is too small for the picture: make it larger, or press c to copy.", 36);
        let area = middle(frame, "QR code", 36, lines.len());
        frame.render_widget(Paragraph::new(lines.into_iter().map(Line::raw).collect::<Vec<_>>()), area);
        return;
    };
    let width = rows.first().map_or(0, |row| text::width(row));
    let height = u16::try_from(rows.len()).unwrap_or(area.height).min(area.height);
    let width = u16::try_from(width).unwrap_or(area.width).min(area.width);
    let place = Rect::new((area.width - width) / 2, (area.height - 1 - height) / 2, width, height);
    frame.render_widget(Clear, Rect { height: area.height.saturating_sub(1), ..area });
    let lines: Vec<Line<'_>> = rows.into_iter().map(|row| Line::styled(row, theme.picture())).collect();
    frame.render_widget(Paragraph::new(lines), place);
}

fn question(frame: &mut Frame<'_>, ask: &Ask, theme: Theme) {
    let text = match ask {
        Ask::Quit => "Leave the lobby?".to_owned(),
        Ask::Start => "Start the game for everybody?".to_owned(),
        Ask::Kick(name) => format!("Remove {} from the lobby?", text::fit(name, 30)),
    };
    let lines = [
        Line::raw(text),
        Line::from(vec![
            Span::styled("y", theme.strong()),
            Span::raw(" yes   "),
            Span::styled("n", theme.strong()),
            Span::raw(" no"),
        ]),
    ];
    let width = lines.iter().map(Line::width).max().unwrap_or(0);
    let area = middle(frame, "Sure?", width, lines.len());
    frame.render_widget(Paragraph::new(lines.to_vec()), area);
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
