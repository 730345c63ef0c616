//! The players as a table.

use std::time::Duration;

use lobby::{Player, Roster};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use seam::{LinkStats, Route};

use super::model::Model;
use super::theme::Theme;
use crate::text;

/// Columns of each field; 0 leaves the field out.
#[derive(Clone, Copy, Debug)]
struct Widths {
    name: usize,
    company: usize,
    stage: usize,
    rtt: usize,
    loss: usize,
    route: usize,
}

const LETTER: usize = 4;

impl Widths {
    /// What fits: the name is never left out, then come round trip, route, loss, company and stage.
    fn fit(columns: usize) -> Self {
        let (rtt, route) = match columns {
            0..22 => (0, 0),
            22..34 => (7, 0),
            _ => (7, 11),
        };
        let loss = if columns >= 44 { 6 } else { 0 };
        let company = if columns >= 52 { 8 } else { 0 };
        let stage = if columns >= 66 { (columns / 4).min(24) } else { 0 };
        let name = columns.saturating_sub(LETTER + company + stage + rtt + loss + route).min(28);
        Self { name, company, stage, rtt, loss, route }
    }

    fn row(self, letter: &str, texts: [&str; 6]) -> String {
        let widths = [self.name, self.company, self.stage, self.rtt, self.loss, self.route];
        let mut out = pad(letter, LETTER);
        for (text, width) in texts.into_iter().zip(widths) {
            out.push_str(&pad(text, width));
        }
        out
    }
}

/// `text` on exactly `columns`, a space between it and the next field.
fn pad(text: &str, columns: usize) -> String {
    if columns == 0 {
        return String::new();
    }
    let mut out = text::fit(text, columns - 1);
    out.push_str(&" ".repeat(columns.saturating_sub(text::width(&out))));
    out
}

/// The table in `columns` x `rows`: a heading and as many players as fit, the selected one among them.
pub(crate) fn table(model: &Model, columns: usize, rows: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(roster) = &model.roster else {
        return vec![Line::styled(" Nobody yet.", theme.quiet())];
    };
    let widths = Widths::fit(columns);
    let players = ordered(roster);
    let mut lines = Vec::new();
    // On a small screen people come before headings.
    if rows > players.len() || rows > 5 {
        let heading = widths.row("", ["name", "company", "doing", "rtt", "loss", "route"]);
        lines.push(Line::styled(heading, theme.quiet()));
    }
    let room = rows.saturating_sub(lines.len());
    let at = players.iter().position(|(name, _)| model.selected.as_ref() == Some(*name)).unwrap_or(0);
    let hidden = players.len() > room && room > 1;
    let shown = if hidden { room - 1 } else { room };
    let first = (at + 1).saturating_sub(shown);
    for (name, player) in players.iter().skip(first).take(shown) {
        lines.push(line(model, roster, name, player, widths, theme));
    }
    if hidden {
        let others = players.len() - players.len().min(shown);
        lines.push(Line::styled(format!("    and {others} more (arrow keys)"), theme.quiet()));
    }
    lines
}

/// Players in the order of their letters, which is the order they came in.
fn ordered(roster: &Roster) -> Vec<(&String, &Player)> {
    let mut players: Vec<_> = roster.players.iter().collect();
    players.sort_by(|(a, one), (b, two)| (one.letter.len(), &one.letter, a).cmp(&(two.letter.len(), &two.letter, b)));
    players
}

fn line(model: &Model, roster: &Roster, name: &str, player: &Player, widths: Widths, theme: Theme) -> Line<'static> {
    let own = *name == roster.you;
    let stats = model.links.get(name);
    let rtt = stats.and_then(|stats| stats.rtt);
    let loss = stats.and_then(|stats| stats.loss);
    let letter = format!("{}{}", if *name == roster.host { '*' } else { ' ' }, player.letter);
    let company = player.company.to_string();
    let front = Widths { rtt: 0, loss: 0, route: 0, ..widths };
    let mut spans = vec![Span::styled(
        front.row(&letter, [name, &company, &player.stage, "", "", ""]),
        if own { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() },
    )];
    for (text, width, style) in [
        (if own { String::new() } else { rtt_text(rtt) }, widths.rtt, rtt_style(rtt, theme)),
        (if own { String::new() } else { loss_text(loss) }, widths.loss, loss_style(loss, theme)),
        (if own { Route::Local.to_string() } else { route_text(stats) }, widths.route, Style::new()),
    ] {
        if width > 0 {
            spans.push(Span::styled(pad(&text, width), style));
        }
    }
    let line = Line::from(spans);
    if model.selected.as_deref() == Some(name) { line.patch_style(theme.chosen()) } else { line }
}

fn rtt_text(rtt: Option<Duration>) -> String {
    rtt.map_or_else(
        || "-".to_owned(),
        |rtt| match rtt.as_millis() {
            0 => "<1 ms".to_owned(),
            ms @ 1..10_000 => format!("{ms} ms"),
            ms => format!("{} s", ms / 1000),
        },
    )
}

fn rtt_style(rtt: Option<Duration>, theme: Theme) -> Style {
    match rtt.map(|rtt| rtt.as_millis()) {
        None => theme.quiet(),
        Some(0..100) => theme.good(),
        Some(100..250) => theme.fair(),
        Some(_) => theme.bad(),
    }
}

fn loss_text(loss: Option<f32>) -> String {
    loss.map_or_else(|| "-".to_owned(), |loss| format!("{:.0}%", (loss * 100.0).clamp(0.0, 100.0)))
}

fn loss_style(loss: Option<f32>, theme: Theme) -> Style {
    match loss {
        None => theme.quiet(),
        Some(loss) if loss < 0.01 => theme.good(),
        Some(loss) if loss < 0.05 => theme.fair(),
        Some(_) => theme.bad(),
    }
}

fn route_text(stats: Option<&LinkStats>) -> String {
    stats.map_or_else(|| "-".to_owned(), |stats| stats.route.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use session::Event;
    use std::sync::Arc;

    fn plain(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    fn model(names: &[&str]) -> Model {
        let mut model = Model::new(true, "1".into());
        model.apply(&Event::Roster(Arc::new(testing::roster("ada", names))), "");
        model
    }

    #[test]
    fn a_row_says_who_how_far_and_by_which_way() {
        let mut model = model(&["ada", "lin"]);
        let stats = LinkStats {
            rtt: Some(Duration::from_millis(42)),
            loss: Some(0.031),
            route: Route::Through("ada".into()),
            ..LinkStats::default()
        };
        model.links = Arc::new([("lin".to_owned(), stats)].into());
        let rows = plain(&table(&model, 80, 10, Theme::new(false)));
        assert_eq!(rows[0], "    name                    company doing               rtt    loss  route");
        assert_eq!(rows[1], "*a  ada                     1                                        you");
        assert_eq!(rows[2], " b  lin                     1                           42 ms  3%    via ada");
    }

    #[test]
    fn rows_keep_to_their_width_whatever_a_name_holds() {
        let hostile =
            ["ada", "\u{1b}[31mred\nline", "\u{202e}evil", "日本語日本語日本語日本語日本語", &"w".repeat(255)];
        let model = model(&hostile);
        for columns in [0, 1, 5, 21, 22, 33, 34, 43, 51, 66, 80, 120, 200] {
            for line in plain(&table(&model, columns, 20, Theme::new(true))) {
                assert!(text::width(&line) <= columns.max(LETTER), "{columns}: {line:?}");
                assert!(!line.chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn letters_order_the_table_and_the_selected_player_is_in_sight() {
        let names: Vec<String> = (0..200).map(|n| format!("player{n:03}")).collect();
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut model = model(&refs);
        model.selected = Some("player150".into());
        let rows = plain(&table(&model, 60, 12, Theme::new(false)));
        assert_eq!(rows.len(), 12);
        assert!(rows.iter().any(|row| row.contains("player150")), "{rows:?}");
        assert_eq!(rows[11], "    and 190 more (arrow keys)");
    }
}
