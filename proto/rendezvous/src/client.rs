//! A player's half: announces a game, knocks at a host, listens for knocks, asks for the list.
//!
//! It seals and opens nothing. A joiner answers each [`Event::SealKnock`] with a freshly sealed profile; a host is
//! handed every new blob once. What a master refuses is asked again: without the relay when that is full, later when it
//! says that there was too much. A master from before polls could be held open is asked once a second.
//!
//! At most one request of each kind is under way.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use seam::{Dice, HttpMethod, Reply, Request, RequestId};

use crate::WAIT_MAX;
use crate::words::{Announce, Grants, Knock, Note, Notes, Row, Tag, read_error, read_list, write_leave};

/// Between announces.
pub const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// A row that changed is announced anew no sooner than this after the last time.
pub const ANNOUNCE_GAP: Duration = Duration::from_secs(1);
/// Between knocks.
pub const KNOCK_EVERY: Duration = Duration::from_secs(2);
/// Between polls at a master that does not hold them open.
pub const POLL_EVERY: Duration = Duration::from_secs(1);
/// Longest wait between tries at a master that refuses or does not answer.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(16);

/// How long an old peer waits for a master.
const TIMEOUT: Duration = Duration::from_secs(6);
const ANSWER_MAX: usize = 64 << 10;
const LIST_MAX: usize = 4 << 20;
/// Blobs a host has been handed and may be told again.
const SEEN_MAX: usize = 256;
/// Events that wait to be taken; more are dropped, the oldest first.
const EVENTS_MAX: usize = 256;

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The row is in the list.
    Published,
    /// It is not, for now; the text is the master's, or says why it cannot be reached.
    NotPublished(String),
    /// A knock is due: seal the profile with a fresh counter and call [`Client::sealed`].
    SealKnock,
    /// The note is at the master, and here is where its host will look for us besides.
    Knocked(Grants),
    /// The master did not take the knock; it is repeated.
    NotKnocked(String),
    /// A joiner knocked.
    Note {
        /// The sealed profile.
        blob: Vec<u8>,
        /// Where it can be met besides.
        grants: Grants,
    },
    /// Polls fail; the first of a row of failures is told.
    NotListening(String),
    /// The public list.
    Listed(Result<Vec<Row>, String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Announce,
    Leave,
    Knock,
    Poll,
    List,
}

#[derive(Debug)]
struct Flying {
    kind: Kind,
    id: RequestId,
    since: Instant,
}

#[derive(Debug)]
struct Publishing {
    row: Announce,
    due: Instant,
    last: Option<Instant>,
    tries: u32,
    up: bool,
}

#[derive(Debug)]
struct Knocking {
    tag: Tag,
    nonce: String,
    due: Instant,
    /// Knocks the master has been sent.
    count: u32,
    /// The next goes without asking for a scarce port.
    skip_port: bool,
    port_asked: bool,
    both_bound: bool,
    sealing: bool,
    tries: u32,
}

#[derive(Debug)]
struct Listening {
    tag: Tag,
    since: f64,
    due: Instant,
    seen: VecDeque<String>,
    tries: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    base: String,
    dice: Dice,
    now: Instant,
    next_id: u64,
    publishing: Option<Publishing>,
    leaving: VecDeque<String>,
    knocking: Option<Knocking>,
    listening: Option<Listening>,
    list_due: bool,
    flying: Vec<Flying>,
    requests: VecDeque<(RequestId, Request)>,
    events: VecDeque<Event>,
}

impl Client {
    /// A client of the master at `base`, an `http` or `https` address with or without a last `/`.
    #[must_use]
    pub fn new(base: &str, seed: [u8; 32], now: Instant) -> Self {
        Self {
            base: base.trim().trim_end_matches('/').to_owned(),
            dice: Dice::new(seed),
            now,
            next_id: 0,
            publishing: None,
            leaving: VecDeque::new(),
            knocking: None,
            listening: None,
            list_due: false,
            flying: Vec::new(),
            requests: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Keeps `row` in the list from now on, or takes the row out of it.
    pub fn publish(&mut self, now: Instant, row: Option<Announce>) {
        self.now = now;
        match (row, &mut self.publishing) {
            (Some(row), Some(old)) if old.row.id == row.id => {
                if old.row != row {
                    old.row = row;
                    let soonest = old.last.map_or(now, |last| (last + ANNOUNCE_GAP).max(now));
                    old.due = if old.tries == 0 { old.due.min(soonest) } else { old.due };
                }
            }
            (row, old) => {
                if let Some(old) = old.take()
                    && old.last.is_some()
                {
                    self.leaving.push_back(old.row.id);
                }
                self.publishing = row.map(|row| Publishing { row, due: now, last: None, tries: 0, up: false });
            }
        }
        self.handle_timeout(now);
    }

    /// Starts to knock at the host with this tag, at once and then every two seconds.
    pub fn knock(&mut self, now: Instant, tag: Tag) {
        self.now = now;
        let nonce = codec::hex(&self.dice.bytes::<6>());
        self.knocking = Some(Knocking {
            tag,
            nonce,
            due: now,
            count: 0,
            skip_port: false,
            port_asked: false,
            both_bound: false,
            sealing: false,
            tries: 0,
        });
        self.handle_timeout(now);
    }

    /// The sealed profile that [`Event::SealKnock`] asked for.
    pub fn sealed(&mut self, now: Instant, blob: &[u8]) {
        self.now = now;
        let Some(knocking) = self.knocking.as_mut().filter(|knocking| knocking.sealing) else { return };
        knocking.sealing = false;
        // The shared port costs a master nothing, so it is asked for at once; an old master's ports are scarce, and
        // are not needed either when both ends have met on the shared one.
        knocking.port_asked = knocking.count >= 1 && !knocking.skip_port && !knocking.both_bound;
        knocking.skip_port = false;
        knocking.count += 1;
        knocking.due = now + KNOCK_EVERY;
        let word = Knock {
            tag: knocking.tag.clone(),
            blob: data_encoding::BASE64.encode(blob),
            relay: knocking.port_asked,
            nonce: Some(knocking.nonce.clone()),
            shared: true,
        };
        let url = format!("{}/knock", self.base);
        self.send(now, Kind::Knock, HttpMethod::Post, url, word.write());
    }

    /// Both ends are bound at the shared port: no scarce one is asked for any more.
    pub fn both_bound(&mut self) {
        if let Some(knocking) = &mut self.knocking {
            knocking.both_bound = true;
        }
    }

    /// Stops knocking.
    pub fn stop_knocking(&mut self) {
        self.knocking = None;
    }

    /// Starts to listen for knocks at this tag.
    pub fn listen(&mut self, now: Instant, tag: Tag) {
        self.now = now;
        self.listening = Some(Listening { tag, since: 0.0, due: now, seen: VecDeque::new(), tries: 0 });
        self.handle_timeout(now);
    }

    /// Stops listening.
    pub fn stop_listening(&mut self) {
        self.listening = None;
    }

    /// Asks for the public list once.
    pub fn list(&mut self, now: Instant) {
        self.now = now;
        self.list_due = true;
        self.handle_timeout(now);
    }

    /// Takes the row out of the list and stops everything else.
    pub fn close(&mut self, now: Instant) {
        self.stop_knocking();
        self.stop_listening();
        self.publish(now, None);
    }

    /// The next request to carry out.
    pub fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Client::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !(self.requests.is_empty() && self.events.is_empty()) {
            return Some((self.now, "requests or events are queued"));
        }
        let free = |kind| !self.flies(kind);
        let announce = self.publishing.as_ref().filter(|_| free(Kind::Announce)).map(|p| (p.due, "announce"));
        let leave =
            self.leaving.front().filter(|_| free(Kind::Leave) && free(Kind::Announce)).map(|_| (self.now, "leave"));
        let knock = self.knocking.as_ref().filter(|k| free(Kind::Knock) && !k.sealing).map(|k| (k.due, "knock"));
        let poll = self.listening.as_ref().filter(|_| free(Kind::Poll)).map(|l| (l.due, "poll for knocks"));
        let list = (self.list_due && free(Kind::List)).then_some((self.now, "list"));
        [announce, leave, knock, poll, list].into_iter().flatten().min()
    }

    /// Sends what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        // An announce that arrives behind it would put the row back.
        let free = !self.flies(Kind::Leave) && !self.flies(Kind::Announce);
        if let Some(id) = self.leaving.front().cloned().filter(|_| free) {
            self.leaving.pop_front();
            self.send(now, Kind::Leave, HttpMethod::Post, format!("{}/leave", self.base), write_leave(&id));
        }
        if let Some(publishing) = self.publishing.as_ref().filter(|p| p.due <= now && !self.flies(Kind::Announce)) {
            let body = publishing.row.write();
            self.send(now, Kind::Announce, HttpMethod::Post, format!("{}/announce", self.base), body);
            if let Some(publishing) = &mut self.publishing {
                publishing.last = Some(now);
                publishing.due = now + ANNOUNCE_EVERY;
            }
        }
        let free = !self.flies(Kind::Knock);
        if let Some(knocking) = self.knocking.as_mut().filter(|k| free && k.due <= now && !k.sealing) {
            knocking.sealing = true;
            self.tell(Event::SealKnock);
        }
        if let Some(listening) = self.listening.as_ref().filter(|l| l.due <= now && !self.flies(Kind::Poll)) {
            let Listening { tag, since, .. } = listening;
            let url = format!("{}/knock?s={}&since={since}&wait={WAIT_MAX}", self.base, tag.as_str());
            self.send(now, Kind::Poll, HttpMethod::Get, url, Vec::new());
        }
        if self.list_due && !self.flies(Kind::List) {
            self.list_due = false;
            self.send(now, Kind::List, HttpMethod::Get, format!("{}/list", self.base), Vec::new());
        }
    }

    /// Takes the answer to a request. One that was not asked for, or is asked for no more, is passed over.
    pub fn handle_reply(&mut self, now: Instant, id: RequestId, reply: Reply) {
        self.now = now;
        let Some(at) = self.flying.iter().position(|flying| flying.id == id) else { return };
        let flying = self.flying.swap_remove(at);
        let answer = match reply {
            Reply::Http { status: 200, body } => Ok(body),
            Reply::Http { status, body } => {
                Err((status, format!("the master answered {status} {}", read_error(&body))))
            }
            Reply::Unreachable(why) => Err((0, why)),
            _ => Err((0, "no HTTP answer".to_owned())),
        };
        match flying.kind {
            Kind::Announce => self.announced(now, answer),
            Kind::Knock => self.knocked(now, answer),
            Kind::Poll => self.polled(now, flying.since, answer),
            Kind::List => {
                let rows = answer.map_err(|(_, why)| why).and_then(|body| read_list(&body).map_err(|e| e.to_string()));
                self.tell(Event::Listed(rows));
            }
            Kind::Leave => {}
        }
        self.handle_timeout(now);
    }

    fn announced(&mut self, now: Instant, answer: Result<Vec<u8>, (u16, String)>) {
        let Some(publishing) = &mut self.publishing else { return };
        match answer {
            Ok(_) => {
                publishing.tries = 0;
                if !std::mem::replace(&mut publishing.up, true) {
                    self.tell(Event::Published);
                }
            }
            Err((_, why)) => {
                publishing.tries += 1;
                publishing.due = now + back_off(&mut self.dice, publishing.tries).min(ANNOUNCE_EVERY);
                if std::mem::replace(&mut publishing.up, false) || publishing.tries == 1 {
                    self.tell(Event::NotPublished(why));
                }
            }
        }
    }

    fn knocked(&mut self, now: Instant, answer: Result<Vec<u8>, (u16, String)>) {
        let Some(knocking) = &mut self.knocking else { return };
        match answer {
            Ok(body) => {
                knocking.tries = 0;
                let grants = codec::object(&body).map(|map| Grants::read(&map)).unwrap_or_default();
                self.tell(Event::Knocked(grants));
            }
            // The note was not kept, so punching would stop as well: again at once, and ask for less.
            Err((503, why)) if knocking.port_asked && why.ends_with("relay full") => {
                knocking.skip_port = true;
                knocking.due = now;
            }
            Err((status, why)) => {
                knocking.tries += 1;
                let pause = back_off(&mut self.dice, knocking.tries);
                let refused = matches!(status, 429 | 503);
                knocking.due = if refused { now + KNOCK_EVERY.max(pause) } else { knocking.due.max(now + pause) };
                self.tell(Event::NotKnocked(why));
            }
        }
    }

    fn polled(&mut self, now: Instant, asked: Instant, answer: Result<Vec<u8>, (u16, String)>) {
        let Some(listening) = &mut self.listening else { return };
        let notes = answer.map_err(|(_, why)| why).and_then(|body| Notes::read(&body).map_err(|e| e.to_string()));
        let Notes { notes, held } = match notes {
            Ok(notes) => notes,
            Err(why) => {
                listening.tries += 1;
                listening.due = now + back_off(&mut self.dice, listening.tries);
                if listening.tries == 1 {
                    self.tell(Event::NotListening(why));
                }
                return;
            }
        };
        listening.tries = 0;
        let mut fresh = Vec::new();
        for Note { t, blob, grants } in notes {
            if t.is_finite() {
                listening.since = listening.since.max(t);
            }
            if listening.seen.contains(&blob) {
                continue;
            }
            let Ok(bytes) = data_encoding::BASE64.decode(blob.as_bytes()) else { continue };
            listening.seen.push_back(blob);
            if listening.seen.len() > SEEN_MAX {
                listening.seen.pop_front();
            }
            fresh.push(Event::Note { blob: bytes, grants });
        }
        // An answer at once without anything new was not held, whatever the master says of itself.
        let early = now < asked + POLL_EVERY;
        listening.due = if early && (fresh.is_empty() || !held) { asked + POLL_EVERY } else { now };
        for event in fresh {
            self.tell(event);
        }
    }

    fn flies(&self, kind: Kind) -> bool {
        self.flying.iter().any(|flying| flying.kind == kind)
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn send(&mut self, now: Instant, kind: Kind, method: HttpMethod, url: String, body: Vec<u8>) {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.flying.push(Flying { kind, id, since: now });
        let timeout = if kind == Kind::Poll { TIMEOUT + Duration::from_secs(WAIT_MAX) } else { TIMEOUT };
        let answer_max = if kind == Kind::List { LIST_MAX } else { ANSWER_MAX };
        self.requests.push_back((id, Request::Http { method, url, body, timeout, answer_max }));
    }
}

/// 1, 2, 4, 8, 16 s, each by half shorter at random, so that those behind one address share what it is allowed.
fn back_off(dice: &mut Dice, tries: u32) -> Duration {
    let full = (Duration::from_secs(1) * 2u32.saturating_pow(tries.saturating_sub(1).min(10))).min(BACK_OFF_MAX);
    let half = full / 2;
    half + Duration::from_millis(dice.below(u64::try_from(half.as_millis()).unwrap_or(0) + 1))
}
