//! What the panel shows, and how events and the clock change it. Pure: no terminal, no session.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lobby::{Mode, Roster, State};
use seam::LinkStats;
use session::{Event, Moved};

use crate::{text, transfer};

/// Chat lines kept.
const CHAT: usize = 500;

/// Log lines kept.
const LOG: usize = 2_000;

/// Most characters of a prompt.
pub(crate) const TYPED: usize = 500;

/// How long a notice stays.
const NOTICE: Duration = Duration::from_secs(6);

/// The name notes of this program carry in the chat.
const OURSELVES: &str = "MULTIPLAYER";

/// One page of the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Code, players and chat together.
    Lobby,
    /// Players on the whole page.
    Players,
    /// Chat on the whole page.
    Chat,
    /// The log.
    Log,
}

impl View {
    /// All pages, in the order Tab goes.
    pub(crate) const ALL: [Self; 4] = [Self::Lobby, Self::Players, Self::Chat, Self::Log];

    /// Its name on the tab.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Lobby => "Lobby",
            Self::Players => "Players",
            Self::Chat => "Chat",
            Self::Log => "Log",
        }
    }

    /// The page `by` tabs further on.
    pub(crate) fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL.get((at + by) % Self::ALL.len()).copied().unwrap_or(Self::Lobby)
    }
}

/// What lies over the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// Nothing.
    None,
    /// The keys.
    Help,
    /// The code as a picture.
    Qr,
    /// A question with yes and no.
    Ask(Ask),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Leave the lobby?
    Quit,
    /// Start the game for everybody?
    Start,
    /// Remove this player?
    Kick(String),
}

/// What is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// A chat line.
    Chat,
    /// Another name.
    Name,
    /// A company number.
    Company,
}

/// A line of the chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Local time, `HH:MM`.
    pub(crate) clock: String,
    /// Who; empty for notes of this program.
    pub(crate) from: String,
    /// What, cleaned.
    pub(crate) text: String,
}

/// Everything the panel shows.
#[derive(Debug)]
pub(crate) struct Model {
    /// Whether this is the host's panel.
    pub(crate) host: bool,
    /// The release admission compares.
    pub(crate) release: String,
    /// A host's code.
    pub(crate) code: Option<String>,
    /// Where the session stands.
    pub(crate) state: State,
    /// One sentence about it.
    pub(crate) detail: String,
    /// The lobby, once known.
    pub(crate) roster: Option<Arc<Roster>>,
    /// Saves on their way, a line each by player.
    pub(crate) transfers: BTreeMap<String, String>,
    /// What is known of the links.
    pub(crate) links: Arc<BTreeMap<String, LinkStats>>,
    /// The chat, oldest first.
    pub(crate) chat: VecDeque<Said>,
    /// The log, oldest first.
    pub(crate) log: VecDeque<String>,
    /// The page.
    pub(crate) view: View,
    /// What lies over it.
    pub(crate) overlay: Overlay,
    /// What is being typed, and its text.
    pub(crate) prompt: Option<(Prompt, String)>,
    /// A short message and when it goes.
    pub(crate) notice: Option<(String, Instant)>,
    /// The selected player.
    pub(crate) selected: Option<String>,
    /// Lines the chat or log is scrolled back.
    pub(crate) back: usize,
    /// Chat lines that arrived while no page with a chat was shown.
    pub(crate) unread: usize,
    /// Whether the game started.
    pub(crate) started: bool,
}

impl Model {
    /// A panel before anything happened.
    pub(crate) fn new(host: bool, release: String) -> Self {
        Self {
            host,
            release,
            code: None,
            state: if host { State::Waiting } else { State::Connecting },
            detail: String::new(),
            roster: None,
            transfers: BTreeMap::new(),
            links: Arc::default(),
            chat: VecDeque::new(),
            log: VecDeque::new(),
            view: View::Lobby,
            overlay: Overlay::None,
            prompt: None,
            notice: None,
            selected: None,
            back: 0,
            unread: 0,
            started: false,
        }
    }

    /// A save is on its way, or was.
    fn moved(&mut self, send: bool, peer: &str, moved: &Moved, clock: &str) {
        match moved {
            Moved::Progress(progress) => {
                let way = if send { "to" } else { "from" };
                let line = format!("{way} {}: {}", text::fit(peer, 40), transfer::line(progress));
                self.transfers.insert(peer.to_owned(), line);
            }
            Moved::Done | Moved::Failed(_) | Moved::Dropped => {
                self.transfers.remove(peer);
                let said = transfer::news(moved).unwrap_or_default();
                self.say("", &format!("The save {} {peer}: {said}.", if send { "for" } else { "from" }), clock);
            }
            _ => {}
        }
    }

    /// Takes one event. `clock` is the local time of a chat line.
    pub(crate) fn apply(&mut self, event: &Event, clock: &str) {
        match event {
            Event::Code(code) => self.code = Some(code.clone()),
            Event::Status { state, detail } => {
                self.state = *state;
                self.detail = text::clean(detail);
            }
            Event::Roster(roster) => {
                self.selected = self.selected.take().filter(|name| roster.players.contains_key(name));
                if matches!(&self.overlay, Overlay::Ask(Ask::Kick(name)) if !roster.players.contains_key(name)) {
                    self.overlay = Overlay::None;
                }
                self.roster = Some(Arc::clone(roster));
            }
            Event::Chat { from, text, ts } => {
                let ours = ts.is_none() && from == OURSELVES;
                self.say(if ours { "" } else { from }, text, clock);
            }
            Event::Start { .. } => {
                self.started = true;
                self.say("", "The game starts.", clock);
            }
            Event::Transfer { send, peer, moved } => self.moved(*send, peer, moved, clock),
            Event::Links(links) => self.links = Arc::clone(links),
            _ => {}
        }
    }

    /// Adds a chat line; an empty `from` is this program.
    pub(crate) fn say(&mut self, from: &str, text: &str, clock: &str) {
        push(
            &mut self.chat,
            CHAT,
            Said { clock: clock.to_owned(), from: text::fit(from, 24), text: text::clean(text) },
        );
        if matches!(self.view, View::Lobby | View::Chat) {
            // Whoever scrolled back keeps reading the same lines.
            if self.back > 0 {
                self.back += 1;
            }
        } else {
            self.unread += 1;
        }
    }

    /// Adds log lines.
    pub(crate) fn logged(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            push(&mut self.log, LOG, text::clean(&line));
        }
    }

    /// Shows a short message for a few seconds.
    pub(crate) fn notify(&mut self, text: impl Into<String>, now: Instant) {
        self.notice = Some((text.into(), now + NOTICE));
    }

    /// Lets a notice go when its time has come.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.notice.as_ref().is_some_and(|(_, until)| now >= *until) {
            self.notice = None;
        }
    }

    /// Shows another page.
    pub(crate) fn show(&mut self, view: View) {
        self.view = view;
        self.back = 0;
        if matches!(view, View::Lobby | View::Chat) {
            self.unread = 0;
        }
    }

    /// Lines of what PageUp and PageDown move.
    pub(crate) fn lines(&self) -> usize {
        if self.view == View::Log { self.log.len() } else { self.chat.len() }
    }

    /// Whether the player here may change the lobby: the host, or the leader of a relay.
    pub(crate) fn leads(&self) -> bool {
        self.host || self.roster.as_ref().is_some_and(|roster| roster.relay && roster.you == roster.host)
    }

    /// The mode the lobby is not in.
    pub(crate) fn other_mode(&self) -> Mode {
        match self.roster.as_ref().map(|roster| roster.mode) {
            Some(Mode::Companies) => Mode::Coop,
            _ => Mode::Companies,
        }
    }

    /// Moves the selection by one player, down or up; it starts at an end and goes round.
    pub(crate) fn select(&mut self, down: bool) {
        let Some(roster) = &self.roster else { return };
        let names: Vec<&String> = roster.players.keys().collect();
        let at = self.selected.as_ref().and_then(|name| names.iter().position(|known| *known == name));
        let next = match (at, down) {
            (Some(at), true) => (at + 1) % names.len().max(1),
            (Some(0) | None, false) => names.len().saturating_sub(1),
            (Some(at), false) => at - 1,
            (None, true) => 0,
        };
        self.selected = names.get(next).map(|name| (*name).clone());
    }
}

fn push<T>(queue: &mut VecDeque<T>, bound: usize, item: T) {
    if queue.len() >= bound {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::roster;

    fn chat(from: &str, text: &str, ts: Option<u64>) -> Event {
        Event::Chat { from: from.into(), text: text.into(), ts }
    }

    #[test]
    fn chat_and_log_are_bounded() {
        let mut model = Model::new(true, "1".into());
        for n in 0..3_000 {
            model.apply(&chat("ada", &n.to_string(), Some(1)), "12:00");
            model.logged([n.to_string()]);
        }
        assert_eq!((model.chat.len(), model.log.len()), (CHAT, LOG));
        assert_eq!(model.chat.back().unwrap().text, "2999");
    }

    #[test]
    fn nobody_can_speak_as_this_program() {
        let mut model = Model::new(false, "1".into());
        model.apply(&chat("MULTIPLAYER", "real note", None), "12:00");
        model.apply(&chat("MULTIPLAYER", "forged", Some(1)), "12:00");
        let from: Vec<_> = model.chat.iter().map(|said| said.from.as_str()).collect();
        assert_eq!(from, ["", "MULTIPLAYER"]);
    }

    #[test]
    fn unread_lines_count_only_while_no_chat_is_shown() {
        let mut model = Model::new(true, "1".into());
        model.apply(&chat("lin", "seen", Some(1)), "12:00");
        model.show(View::Log);
        model.apply(&chat("lin", "unseen", Some(1)), "12:00");
        assert_eq!(model.unread, 1);
        model.show(View::Chat);
        assert_eq!(model.unread, 0);
    }

    #[test]
    fn reading_back_is_not_moved_by_new_lines() {
        let mut model = Model::new(true, "1".into());
        model.back = 3;
        model.apply(&chat("lin", "new", Some(1)), "12:00");
        assert_eq!(model.back, 4);
    }

    #[test]
    fn a_player_who_left_is_neither_selected_nor_asked_about() {
        let mut model = Model::new(true, "1".into());
        model.apply(&Event::Roster(Arc::new(roster("ada", &["ada", "lin"]))), "");
        model.select(false);
        assert_eq!(model.selected.as_deref(), Some("lin"));
        model.overlay = Overlay::Ask(Ask::Kick("lin".into()));
        model.apply(&Event::Roster(Arc::new(roster("ada", &["ada"]))), "");
        assert_eq!((model.selected.clone(), model.overlay.clone()), (None, Overlay::None));
        model.select(true);
        model.select(true);
        assert_eq!(model.selected.as_deref(), Some("ada"));
    }

    #[test]
    fn a_notice_goes_by_itself() {
        let (mut model, now) = (Model::new(true, "1".into()), Instant::now());
        model.notify("copied", now);
        model.tick(now + NOTICE - Duration::from_millis(1));
        assert!(model.notice.is_some());
        model.tick(now + NOTICE);
        assert!(model.notice.is_none());
    }

    #[test]
    fn only_the_host_or_a_relays_leader_leads() {
        let mut model = Model::new(false, "1".into());
        let mut relay = roster("ada", &["ada", "lin"]);
        model.apply(&Event::Roster(Arc::new(relay.clone())), "");
        assert!(!model.leads());
        relay.relay = true;
        model.apply(&Event::Roster(Arc::new(relay)), "");
        assert!(model.leads() && Model::new(true, "1".into()).leads());
    }
}
