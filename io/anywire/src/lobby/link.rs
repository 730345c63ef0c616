//! Lanes to every player of a lobby as links.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Inline, Setup};
use lanes::{CONTROL, End, Lanes};
use lobby::Roster;
use seam::{Channel, CloseReason, Delivery, Dice, LinkStats, OpenError, SendError};
use session::Command;

use crate::links::{Lane, LinkEvent, LinkId, Links, Waker, Who};

/// How long a link that is hung up may take to say what is queued.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Events of the session taken in one turn.
const TURN_MAX: usize = 8_192;
/// Links at once: a lobby's players, and those who came back under the same name.
const LINKS_MAX: usize = 400;

pub(super) struct LobbyLinks {
    session: Inline,
    is_host: bool,
    dice: Dice,
    roster: Arc<Roster>,
    routes: Arc<BTreeMap<String, LinkStats>>,
    conns: BTreeMap<LinkId, Conn>,
    by_name: BTreeMap<Arc<str>, LinkId>,
    next: LinkId,
    events: VecDeque<LinkEvent>,
    frame: Vec<u8>,
    /// Commands wait for a turn of the session.
    queued: bool,
    /// When to leave although not everything is said.
    leave_by: Option<Instant>,
    quit: bool,
}

struct Conn {
    name: Arc<str>,
    lanes: Lanes,
    who: Who,
    /// To be ended by then, the player reading this.
    ending: Option<(Instant, String)>,
}

impl LobbyLinks {
    pub(super) fn open(setup: Setup, is_host: bool) -> Result<Self, OpenError> {
        let seed = driver::entropy().map_err(|error| OpenError::Socket(error.to_string()))?;
        let session = Inline::open(setup).map_err(|error| OpenError::Socket(error.to_string()))?;
        Ok(Self {
            session,
            is_host,
            dice: Dice::new(seed),
            roster: Arc::default(),
            routes: Arc::default(),
            conns: BTreeMap::new(),
            by_name: BTreeMap::new(),
            next: 0,
            events: VecDeque::new(),
            frame: Vec::new(),
            queued: false,
            leave_by: None,
            quit: false,
        })
    }

    fn happened(&mut self, now: Instant, event: session::Event) {
        match event {
            session::Event::Code(code) => self.events.push_back(LinkEvent::Invite(code)),
            session::Event::Roster(roster) => self.met(now, roster),
            session::Event::Links(links) => self.routes = links,
            session::Event::Frame { from: Some(from), data } => self.frame(now, &from, &data),
            session::Event::Ended(end) => {
                let why = match end {
                    lobby::End::Quit => CloseReason::ByUser,
                    lobby::End::HostClosed => CloseReason::SessionEnded,
                    lobby::End::HostGone => CloseReason::Silent,
                    refused => CloseReason::Refused(refused.to_string()),
                };
                self.events.push_back(LinkEvent::Over(why));
            }
            _ => {}
        }
    }

    fn met(&mut self, now: Instant, roster: Arc<Roster>) {
        if roster.you != self.roster.you {
            self.events.push_back(LinkEvent::Me(roster.you.clone()));
        }
        self.roster = roster;
        let gone: Vec<Arc<str>> =
            self.by_name.keys().filter(|name| !self.roster.players.contains_key(&***name)).cloned().collect();
        for name in gone {
            // A joiner's link to a fellow may be older than the roster that names it.
            let keep = |conn: &Conn| matches!(conn.who, Who::Fellow(_)) && !conn.lanes.is_up();
            let link = self.by_name.get(&name).copied();
            if let Some(link) = link.filter(|link| !self.conns.get(link).is_some_and(keep)) {
                self.by_name.remove(&name);
                self.conns.remove(&link);
                self.events.push_back(LinkEvent::Down(link, CloseReason::ByPeer));
            }
        }
        let roster = Arc::clone(&self.roster);
        if self.is_host {
            for name in roster.players.keys().filter(|name| **name != roster.you) {
                self.link(now, name, Who::Joiner(None));
            }
        } else if !roster.host.is_empty() && roster.host != roster.you {
            self.link(now, &roster.host, Who::Host);
        }
    }

    /// The link to this player, made if there is none.
    fn link(&mut self, now: Instant, name: &str, who: Who) -> Option<LinkId> {
        if let Some(link) = self.by_name.get(name) {
            return Some(*link);
        }
        if self.conns.len() >= LINKS_MAX {
            return None;
        }
        let link = self.next;
        self.next += 1;
        let name: Arc<str> = name.into();
        let lanes = Lanes::new(lanes::Config::default(), self.dice.bytes(), now);
        if let Who::Fellow(fellow) = &who {
            // Packets wait on it until the other end answers, so it counts as standing.
            let who = Who::Fellow(fellow.clone());
            self.events.push_back(LinkEvent::Up { link, who, speaks: true, name: None, address: None });
        }
        self.conns.insert(link, Conn { name: Arc::clone(&name), lanes, who, ending: None });
        self.by_name.insert(name, link);
        Some(link)
    }

    fn frame(&mut self, now: Instant, from: &str, data: &Bytes) {
        let known = self.by_name.get(from).copied();
        let link = known.or_else(|| {
            if self.is_host || !self.roster.players.contains_key(from) {
                return None;
            }
            self.link(now, from, Who::Fellow(from.to_owned()))
        });
        let Some(link) = link else { return };
        if let Some(conn) = self.conns.get_mut(&link) {
            // What is no frame of ours comes from a game that speaks something else.
            let _other_games = conn.lanes.handle_frame(now, data);
            self.hear(now, link);
            // An end that began anew is met by a new one, at once.
            if !self.conns.contains_key(&link) {
                self.met_again(now, from, data);
            }
        }
    }

    fn met_again(&mut self, now: Instant, from: &str, data: &Bytes) {
        let who = match (self.is_host, self.roster.host == from) {
            (true, _) => Who::Joiner(None),
            (false, true) => Who::Host,
            (false, false) => Who::Fellow(from.to_owned()),
        };
        if let Some(conn) = self.link(now, from, who).and_then(|link| self.conns.get_mut(&link)) {
            let _refused_at_worst = conn.lanes.handle_frame(now, data);
        }
    }

    /// Takes what lanes have to say.
    fn hear(&mut self, _now: Instant, link: LinkId) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        while let Some(event) = conn.lanes.poll_event() {
            match event {
                lanes::Event::Up if matches!(conn.who, Who::Fellow(_)) => {}
                lanes::Event::Up => {
                    let name = self.is_host.then(|| conn.name.to_string());
                    let who = conn.who.clone();
                    self.events.push_back(LinkEvent::Up { link, who, speaks: true, name, address: None });
                }
                lanes::Event::Packet { channel, delivery, data } => {
                    let lane = if channel.0 == CONTROL { Lane::Control } else { Lane::Game(channel) };
                    self.events.push_back(LinkEvent::Packet { link, lane, delivery, data });
                }
                lanes::Event::Writable => self.events.push_back(LinkEvent::Writable),
                lanes::Event::Ended(end) => {
                    let why = match end {
                        End::Silent => CloseReason::Silent,
                        End::Restarted | End::Broken => CloseReason::ByPeer,
                    };
                    self.events.push_back(LinkEvent::Down(link, why));
                    if let Some(conn) = self.conns.remove(&link) {
                        self.by_name.remove(&conn.name);
                    }
                    return;
                }
            }
        }
    }

    fn pump(&mut self, now: Instant) {
        let mut done = Vec::new();
        for (link, conn) in &mut self.conns {
            while conn.lanes.poll_frame(now, &mut self.frame) {
                let data = Bytes::copy_from_slice(&self.frame);
                self.session.queue(Command::FrameTo { to: Arc::clone(&conn.name), data });
                self.queued = true;
            }
            if conn.ending.as_ref().is_some_and(|(by, _)| now >= *by || conn.lanes.is_idle()) {
                done.push(*link);
            }
        }
        for link in done {
            let Some(conn) = self.conns.remove(&link) else { continue };
            self.by_name.remove(&conn.name);
            if let Some((_, text)) = conn.ending.filter(|_| self.is_host) {
                self.session.queue(Command::Kick { player: conn.name.to_string(), text });
                self.queued = true;
            }
        }
        let said = || self.conns.values().all(|conn| conn.lanes.is_idle() || !conn.lanes.is_up());
        if !self.quit && self.leave_by.is_some_and(|by| now >= by || said()) {
            self.quit = true;
            self.session.queue(Command::Quit);
            self.queued = true;
        }
        if std::mem::take(&mut self.queued) {
            self.session.work();
        }
    }
}

fn channel(lane: Lane) -> Channel {
    match lane {
        Lane::Control => Channel(CONTROL),
        Lane::Game(channel) => channel,
    }
}

impl Links for LobbyLinks {
    fn turn(&mut self, now: Instant) {
        for _ in 0..TURN_MAX {
            match self.session.poll() {
                Some(event) => self.happened(now, event),
                None => break,
            }
        }
        let due = |conn: &Conn| conn.lanes.poll_timeout().is_some_and(|(at, _)| at <= now);
        let due: Vec<LinkId> = self.conns.iter().filter(|(_, conn)| due(conn)).map(|(link, _)| *link).collect();
        for link in due {
            if let Some(conn) = self.conns.get_mut(&link) {
                conn.lanes.handle_timeout(now);
            }
            self.hear(now, link);
        }
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    fn flush(&mut self, now: Instant) {
        self.pump(now);
    }

    fn carries(&self, _: LinkId, lane: Lane, _: Delivery) -> bool {
        lane == Lane::Control || channel(lane).0 != CONTROL
    }

    fn has_room(&mut self, link: LinkId, len: usize) -> bool {
        let Some(conn) = self.conns.get_mut(&link) else { return true };
        let room = conn.lanes.has_room(len);
        if !room {
            conn.lanes.want_writable();
        }
        room
    }

    fn send(
        &mut self,
        now: Instant,
        link: LinkId,
        lane: Lane,
        delivery: Delivery,
        data: &Bytes,
        relay: bool,
    ) -> Result<(), SendError> {
        let conn = self.conns.get_mut(&link).ok_or(SendError::NotConnected)?;
        match relay {
            true => conn.lanes.relay(now, channel(lane), delivery, data),
            false => conn.lanes.send(now, channel(lane), delivery, data),
        }
    }

    fn link_to(&mut self, now: Instant, name: &str) -> Option<LinkId> {
        self.link(now, name, Who::Fellow(name.to_owned()))
    }

    fn hang_up(&mut self, now: Instant, link: LinkId, code: u32, text: &str) {
        if let Some(conn) = self.conns.get_mut(&link) {
            let text = if text.is_empty() { format!("removed by the host (code {code})") } else { text.to_owned() };
            conn.ending = Some((now + LAST_WORDS, text));
        }
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        let Some(conn) = self.conns.get(&link) else { return LinkStats::default() };
        let route = self.routes.get(&*conn.name).map(|below| below.route.clone()).unwrap_or_default();
        LinkStats { route, ..conn.lanes.stats() }
    }

    fn leave(&mut self, now: Instant) {
        self.leave_by.get_or_insert(now + LAST_WORDS);
    }

    fn is_gone(&self) -> bool {
        self.quit && self.session.is_over()
    }

    fn timeout(&self, now: Instant) -> Option<Instant> {
        if !self.events.is_empty() {
            return Some(now);
        }
        let lanes = self.conns.values().filter_map(|conn| conn.lanes.poll_timeout()).map(|(at, _)| at);
        let leave = self.leave_by.filter(|_| !self.quit);
        let endings = self.conns.values().filter_map(|conn| conn.ending.as_ref()).map(|(by, _)| *by);
        lanes.chain(leave).chain(endings).min()
    }

    fn wait(&mut self, until: Instant) {
        self.session.wait(until.saturating_duration_since(Instant::now()));
    }

    fn waker(&self) -> Waker {
        let wake = self.session.wake();
        Arc::new(move || wake.wake())
    }
}
