//! The game: an arena, players who move, a wave of enemies that the host simulates, and a line of chat.
//!
//! It is written against [`Peer`] alone. Everybody moves at once and tells where they are, unreliably and in order; the host moves the enemies and
//! tells the whole wave the same way; hits and chat are reliable. Channels keep the three apart.

use std::collections::{BTreeMap, VecDeque};

use anywire::{Channel, CloseReason, Delivery, Event, Peer, PeerId, SendError, Target};

/// Size of the arena.
pub(crate) const WIDTH: u8 = 48;
pub(crate) const HEIGHT: u8 = 16;
/// Enemies of a wave.
const WAVE: usize = 6;
/// Lines of chat that are kept.
const LINES: usize = 5;

const MOVES: Channel = Channel(1);
const ENEMIES: Channel = Channel(2);
const WORDS: Channel = Channel(3);

/// Where somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) x: u8,
    pub(crate) y: u8,
}

/// What is said reliably.
enum Word<'a> {
    Chat(&'a str),
    /// A player touched an enemy.
    Hit(u8),
    /// The host: how many were caught in all.
    Score(u32),
}

/// One player's view of the game.
pub(crate) struct Game {
    peer: Box<dyn Peer>,
    pub(crate) me: Spot,
    pub(crate) players: BTreeMap<PeerId, Spot>,
    pub(crate) enemies: Vec<Spot>,
    pub(crate) score: u32,
    pub(crate) chat: VecDeque<String>,
    /// Why it is over.
    pub(crate) over: Option<CloseReason>,
    pub(crate) heard: u64,
    ticks: u64,
    connected: bool,
    /// Said, and not taken for sending yet.
    unsaid: VecDeque<Vec<u8>>,
}

impl Game {
    pub(crate) fn new(peer: Box<dyn Peer>) -> Self {
        Self {
            peer,
            me: Spot { x: WIDTH / 2, y: HEIGHT / 2 },
            players: BTreeMap::new(),
            enemies: Vec::new(),
            score: 0,
            chat: VecDeque::new(),
            over: None,
            heard: 0,
            ticks: 0,
            connected: false,
            unsaid: VecDeque::new(),
        }
    }

    pub(crate) fn id(&self) -> PeerId {
        self.peer.id()
    }

    pub(crate) fn is_host(&self) -> bool {
        self.connected && self.peer.id() == PeerId::HOST
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn invite(&self) -> Option<String> {
        self.peer.invite()
    }

    pub(crate) fn name(&self, id: PeerId) -> String {
        self.peer.name(id).filter(|name| !name.is_empty()).unwrap_or_else(|| format!("player {id}"))
    }

    /// One step of the own player; the arena has walls.
    pub(crate) fn step(&mut self, dx: i8, dy: i8) {
        self.me.x = self.me.x.saturating_add_signed(dx).min(WIDTH - 1);
        self.me.y = self.me.y.saturating_add_signed(dy).min(HEIGHT - 1);
    }

    pub(crate) fn say(&mut self, text: &str) {
        let line = format!("{}: {text}", self.name(self.peer.id()));
        self.note(line);
        self.tell(&Word::Chat(text));
    }

    pub(crate) fn leave(&mut self) {
        self.peer.close();
    }

    /// A sixteenth of a second: hears, moves what is the own to move, tells.
    pub(crate) fn tick(&mut self) {
        while let Some(event) = self.peer.poll() {
            self.hear(event);
        }
        if !self.connected || self.over.is_some() {
            return;
        }
        self.ticks += 1;
        if self.is_host() {
            self.simulate();
        }
        self.catch();
        let place = [self.me.x, self.me.y];
        self.tell_loosely(MOVES, &place);
        while let Some(word) = self.unsaid.pop_front() {
            if self.peer.send(Target::All, WORDS, Delivery::Reliable, &word) == Err(SendError::WouldBlock) {
                self.unsaid.push_front(word);
                break;
            }
        }
        self.peer.flush();
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Connected(_) => self.connected = true,
            Event::Joined(id) => {
                let line = format!("* {} joined", self.name(id));
                self.note(line);
                if self.is_host() {
                    self.tell(&Word::Score(self.score));
                }
            }
            Event::Left(id, _) => {
                self.players.remove(&id);
                self.note(format!("* player {id} left"));
            }
            Event::Packet { from, channel, data, .. } => {
                self.heard += 1;
                match channel {
                    MOVES => self.players.extend(spots(&data).first().map(|spot| (from, *spot))),
                    ENEMIES if from == PeerId::HOST => self.enemies = spots(&data),
                    WORDS => self.told(from, &data),
                    _ => {}
                }
            }
            Event::Closed(why) => {
                self.players.clear();
                self.over = Some(why);
            }
            _ => {}
        }
    }

    fn told(&mut self, from: PeerId, data: &[u8]) {
        match Word::read(data) {
            Some(Word::Chat(text)) => {
                let text: String = text.chars().filter(|c| !c.is_control()).take(120).collect();
                let line = format!("{}: {text}", self.name(from));
                self.note(line);
            }
            Some(Word::Hit(index)) if self.is_host() => {
                // The host has the last word: an enemy is caught where the host's view has them close.
                let near = self.players.get(&from).copied().is_some_and(|spot| self.is_near(spot, index));
                if near {
                    self.caught(index);
                }
            }
            Some(Word::Score(score)) if from == PeerId::HOST => self.score = score,
            _ => {}
        }
    }

    /// The host's: a wave that runs from whoever is nearest.
    fn simulate(&mut self) {
        if self.enemies.is_empty() {
            self.enemies = (0..WAVE).map(|n| spawn(self.score, n)).collect();
        }
        if self.ticks.is_multiple_of(4) {
            let people: Vec<Spot> = self.players.values().copied().chain([self.me]).collect();
            for (index, enemy) in self.enemies.iter_mut().enumerate() {
                let nearest = people.iter().min_by_key(|spot| distance(**spot, *enemy));
                let lazy = (self.ticks / 4 + index as u64).is_multiple_of(3);
                if let Some(nearest) = nearest.filter(|_| !lazy) {
                    *enemy = flee(*enemy, *nearest);
                }
            }
        }
        let wave: Vec<u8> = self.enemies.iter().flat_map(|spot| [spot.x, spot.y]).collect();
        self.tell_loosely(ENEMIES, &wave);
    }

    fn catch(&mut self) {
        let hits = (0..self.enemies.len()).filter_map(|index| u8::try_from(index).ok());
        let hit = { hits }.find(|index| self.is_near(self.me, *index));
        match hit {
            Some(index) if self.is_host() => self.caught(index),
            Some(index) if self.ticks.is_multiple_of(4) => self.tell(&Word::Hit(index)),
            _ => {}
        }
    }

    fn is_near(&self, spot: Spot, index: u8) -> bool {
        self.enemies.get(usize::from(index)).is_some_and(|enemy| distance(spot, *enemy) <= 2)
    }

    fn caught(&mut self, index: u8) {
        if usize::from(index) < self.enemies.len() {
            self.enemies.remove(usize::from(index));
            self.score += 1;
            self.tell(&Word::Score(self.score));
        }
    }

    fn tell(&mut self, word: &Word<'_>) {
        self.unsaid.push_back(word.to_bytes());
    }

    /// What the next tick says anew may be lost, or find no room.
    fn tell_loosely(&mut self, channel: Channel, data: &[u8]) {
        let _said_anew = self.peer.send(Target::All, channel, Delivery::UnreliableOrdered, data);
    }

    fn note(&mut self, line: String) {
        self.chat.push_back(line);
        if self.chat.len() > LINES {
            self.chat.pop_front();
        }
    }

    /// A line per player for whoever wants to know how good the links are.
    pub(crate) fn links(&self) -> Vec<String> {
        let line = |id: PeerId| {
            let stats = self.peer.link_stats(id)?;
            let ms =
                |time: Option<std::time::Duration>| time.map_or("-".to_owned(), |time| time.as_millis().to_string());
            let loss = stats.loss.map_or("-".to_owned(), |loss| format!("{:.0}", loss * 100.0));
            let (rtt, jitter) = (ms(stats.rtt), ms(stats.jitter));
            let (name, out, back) = (self.name(id), stats.sent / 1024, stats.received / 1024);
            let traffic = format!("{out} KiB out, {back} KiB in, {} waiting, {}", stats.queued, stats.route);
            Some(format!("{name}: {rtt} ms +-{jitter}, loss {loss} %, {traffic}"))
        };
        self.peer.peers().into_iter().filter_map(line).collect()
    }
}

impl<'a> Word<'a> {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Chat(text) => [b"c", text.as_bytes()].concat(),
            Self::Hit(index) => vec![b'h', *index],
            Self::Score(score) => [&b"s"[..], &score.to_be_bytes()].concat(),
        }
    }

    fn read(data: &'a [u8]) -> Option<Self> {
        match data.split_first()? {
            (b'c', text) => Some(Self::Chat(std::str::from_utf8(text).ok()?)),
            (b'h', [index]) => Some(Self::Hit(*index)),
            (b's', score) => Some(Self::Score(u32::from_be_bytes(score.try_into().ok()?))),
            _ => None,
        }
    }
}

/// Pairs of bytes within the arena; what is outside is not there.
fn spots(data: &[u8]) -> Vec<Spot> {
    let pairs = data.as_chunks::<2>().0.iter().take(64);
    pairs.map(|[x, y]| Spot { x: *x, y: *y }).filter(|spot| spot.x < WIDTH && spot.y < HEIGHT).collect()
}

fn spawn(score: u32, number: usize) -> Spot {
    let mix = score.wrapping_mul(7).wrapping_add(u32::try_from(number).unwrap_or(0).wrapping_mul(13));
    let byte = |n: u32, most: u8| u8::try_from(n % u32::from(most)).unwrap_or(0);
    Spot { x: byte(mix.wrapping_mul(5), WIDTH), y: byte(mix, HEIGHT) }
}

fn distance(a: Spot, b: Spot) -> u32 {
    u32::from(a.x.abs_diff(b.x)) + u32::from(a.y.abs_diff(b.y))
}

fn flee(enemy: Spot, from: Spot) -> Spot {
    let away = |at: u8, from: u8, most: u8| if at < from { at.saturating_sub(1) } else { (at + 1).min(most - 1) };
    Spot { x: away(enemy.x, from.x, WIDTH), y: away(enemy.y, from.y, HEIGHT) }
}
