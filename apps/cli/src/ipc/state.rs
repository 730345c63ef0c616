//! `lobby_state.json`, the lobby in one object (netpunch wire, section 19.3), and `lobby_panel.txt`, the same facts as
//! plain text for a game that only shows them.

use std::fmt::Write;
use std::sync::Arc;

use lobby::{Roster, State};
use serde_json::{Map, Value};

use crate::text;

/// What both files show.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Names this run: twelve hexadecimal digits.
    pub(crate) session: String,
    /// Where the session stands.
    pub(crate) state: State,
    /// One sentence about it.
    pub(crate) detail: String,
    /// A host's code.
    pub(crate) code: Option<String>,
    /// The lobby, once known.
    pub(crate) roster: Option<Arc<Roster>>,
    /// Whether the game started.
    pub(crate) started: bool,
}

impl Snapshot {
    /// The bytes of `lobby_state.json`.
    #[must_use]
    pub(crate) fn json(&self) -> Vec<u8> {
        let none = Roster::default();
        let roster = self.roster.as_deref().unwrap_or(&none);
        let mut value: Map<String, Value> = Map::new();
        value.insert("session".into(), self.session.clone().into());
        value.insert("state".into(), self.state.as_str().into());
        value.insert("you".into(), roster.you.clone().into());
        value.insert("started".into(), self.started.into());
        value.insert("host".into(), roster.host.clone().into());
        value.insert("players".into(), roster.players.keys().cloned().collect::<Vec<_>>().into());
        value.insert("lobby".into(), roster.lobby.clone().into());
        let companies: Map<String, Value> =
            roster.players.iter().map(|(name, player)| (name.clone(), player.company.into())).collect();
        value.insert("companies".into(), companies.into());
        value.insert("mode".into(), roster.mode.as_str().into());
        if let Some(code) = &self.code {
            value.insert("code".into(), code.clone().into());
        }
        if self.state == State::Failed {
            value.insert("detail".into(), self.detail.clone().into());
        }
        let mut bytes = codec::to_json(&value);
        bytes.push(b'\n');
        bytes
    }

    /// The text of `lobby_panel.txt`.
    #[must_use]
    pub(crate) fn page(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}: {}", self.state.as_str(), text::clean(&self.detail));
        if let Some(code) = &self.code {
            let _ = writeln!(out, "code: {code}");
        }
        let Some(roster) = &self.roster else { return out };
        if !roster.lobby.is_empty() {
            let _ = writeln!(out, "lobby: {}", text::clean(&roster.lobby));
        }
        let started = if self.started { ", started" } else { "" };
        let _ = writeln!(out, "{} players, {}{started}", roster.players.len(), roster.mode.as_str());
        for (name, player) in &roster.players {
            let mark = if *name == roster.host { "*" } else { " " };
            let stage = text::fit(&player.stage, 40);
            let _ = writeln!(out, "{mark} {:<3} {} [{}] {stage}", player.letter, text::fit(name, 24), player.company);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::roster;

    fn snapshot() -> Snapshot {
        Snapshot {
            session: "5fa0c31be777".into(),
            state: State::Connected,
            detail: "in the lobby of ada".into(),
            code: None,
            roster: Some(Arc::new(roster("lin", &["ada", "lin"]))),
            started: false,
        }
    }

    #[test]
    fn the_object_is_the_one_of_the_specification() {
        let want = concat!(
            r#"{"session": "5fa0c31be777", "state": "connected", "you": "lin", "started": false, "host": "ada", "#,
            r#""players": ["ada", "lin"], "lobby": "Tuesday", "companies": {"ada": 1, "lin": 1}, "mode": "coop"}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(snapshot().json()).unwrap(), want);
    }

    #[test]
    fn a_host_has_its_code_and_a_failure_its_reason() {
        let failed = Snapshot { state: State::Failed, code: Some("ABCD".into()), roster: None, ..snapshot() };
        let text = String::from_utf8(failed.json()).unwrap();
        assert!(text.contains(r#""code": "ABCD", "detail": "in the lobby of ada"}"#), "{text}");
    }

    #[test]
    fn the_page_shows_who_is_there_in_plain_text() {
        let mut snapshot = snapshot();
        let mut roster = roster("lin", &["ada", "lin\u{1b}[31m"]);
        roster.players.get_mut("ada").unwrap().stage = "loading".into();
        snapshot.roster = Some(Arc::new(roster));
        let page = snapshot.page();
        assert!(page.contains("* a   ada [1] loading\n"), "{page}");
        assert!(page.contains("2 players, coop\n") && !page.contains('\u{1b}'), "{page}");
    }
}
