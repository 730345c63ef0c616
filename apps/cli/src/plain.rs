//! The lobby as lines: the facts of the panel for people without a terminal and for logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use lobby::Roster;
use seam::Route;
use session::{Event, Moved};

use crate::{text, transfer};

/// Turns events into lines, saying only what changed.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    roster: Option<Arc<Roster>>,
    routes: BTreeMap<String, Route>,
    status: String,
}

impl Plain {
    /// Lines that say what `event` changed. Log lines are not among them: the sink has them already.
    pub(crate) fn lines(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Code(code) => vec![format!("[lobby] your friends join with: anywire join {code}")],
            Event::Status { state, detail } => {
                let line = format!("[lobby] {state}: {}", text::clean(detail));
                if line == self.status {
                    return Vec::new();
                }
                self.status.clone_from(&line);
                vec![line]
            }
            Event::Roster(roster) => {
                let before = self.roster.replace(Arc::clone(roster));
                differences(before.as_deref(), roster)
            }
            Event::Chat { from, text, .. } => vec![format!("[chat] {}: {}", text::fit(from, 40), text::clean(text))],
            Event::Transfer { send, peer, moved } => {
                let way = if *send { "to" } else { "from" };
                let said = match moved {
                    Moved::Progress(progress) => Some(transfer::line(progress)),
                    moved => transfer::news(moved),
                };
                said.map(|said| format!("[xfer] {way} {}: {}", text::fit(peer, 40), text::clean(&said)))
                    .into_iter()
                    .collect()
            }
            Event::Start { save, .. } => {
                vec![format!("[lobby] the game starts {} a save", if *save { "with" } else { "without" })]
            }
            Event::Links(links) => {
                let mut lines = Vec::new();
                for (name, stats) in links.iter() {
                    if self.routes.get(name) != Some(&stats.route) {
                        let rtt = stats.rtt.map_or_else(String::new, |rtt| format!(", {} ms", rtt.as_millis()));
                        lines.push(format!("[links] {}: {}{rtt}", text::fit(name, 40), stats.route));
                    }
                }
                self.routes = links.iter().map(|(name, stats)| (name.clone(), stats.route.clone())).collect();
                lines
            }
            _ => Vec::new(),
        }
    }
}

fn differences(before: Option<&Roster>, now: &Roster) -> Vec<String> {
    let none = Roster::default();
    let before = before.unwrap_or(&none);
    let mut lines = Vec::new();
    for (name, player) in &now.players {
        let who = text::fit(name, 40);
        match before.players.get(name) {
            None => lines.push(format!("[lobby] {who} is here: letter {}, company {}", player.letter, player.company)),
            Some(old) => {
                if old.company != player.company {
                    lines.push(format!("[lobby] {who} is in company {}", player.company));
                }
                if old.stage != player.stage && !player.stage.is_empty() {
                    lines.push(format!("[lobby] {who}: {}", text::fit(&player.stage, 80)));
                }
            }
        }
    }
    for name in before.players.keys().filter(|name| !now.players.contains_key(*name)) {
        lines.push(format!("[lobby] {} is gone", text::fit(name, 40)));
    }
    if before.mode != now.mode {
        lines.push(format!("[lobby] mode: {}", now.mode));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::roster;
    use seam::LinkStats;

    #[test]
    fn a_roster_is_told_as_what_changed() {
        let mut plain = Plain::default();
        let first = plain.lines(&Event::Roster(Arc::new(roster("ada", &["ada"]))));
        assert_eq!(first, ["[lobby] ada is here: letter a, company 1"]);
        let mut two = roster("ada", &["ada", "lin"]);
        assert_eq!(plain.lines(&Event::Roster(Arc::new(two.clone()))), ["[lobby] lin is here: letter b, company 1"]);
        assert_eq!(plain.lines(&Event::Roster(Arc::new(two.clone()))), Vec::<String>::new());
        two.players.get_mut("lin").unwrap().stage = "loading\u{1b}[2J".into();
        two.players.get_mut("lin").unwrap().company = 2;
        assert_eq!(
            plain.lines(&Event::Roster(Arc::new(two))),
            ["[lobby] lin is in company 2", "[lobby] lin: loading·[2J"]
        );
        assert_eq!(plain.lines(&Event::Roster(Arc::new(roster("ada", &["ada"])))), ["[lobby] lin is gone"]);
    }

    #[test]
    fn a_link_is_told_when_its_way_changes() {
        let mut plain = Plain::default();
        let mut links = |route: Route, ms: u64| {
            let rtt = Some(std::time::Duration::from_millis(ms));
            let stats = LinkStats { rtt, route, ..LinkStats::default() };
            plain.lines(&Event::Links(Arc::new([("lin".to_owned(), stats)].into())))
        };
        assert_eq!(links(Route::ThroughHost, 40), ["[links] lin: via host, 40 ms"]);
        assert_eq!(links(Route::ThroughHost, 60), Vec::<String>::new());
        assert_eq!(links(Route::Direct, 20), ["[links] lin: direct, 20 ms"]);
    }

    #[test]
    fn a_chat_line_is_one_line() {
        let mut plain = Plain::default();
        let event = Event::Chat { from: "lin".into(), text: "a\n[lobby] ada is gone".into(), ts: Some(1) };
        assert_eq!(plain.lines(&event), ["[chat] lin: a [lobby] ada is gone"]);
    }
}
