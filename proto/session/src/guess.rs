//! Guessing the port of a router that gives every destination another one: who does what, agreed with `aw_guess` over the
//! relay that carries the game already, so that nothing waits for it (docs/wire/extensions.md, "Guessing ports").
//!
//! ```text
//! joiner, by relay for AFTER ── aw_guess: address, how ports are chosen ──> host
//!        <── aw_guess: the same of the host, or why not ──  both know the method, and begin
//! one end    opens 256 sockets and says H from each          other end   probes 1,200 ports
//! whoever is met is tried like any path that opened later (crate::reach); the other sockets close
//! ```
//!
//! At most one attempt is under way. It costs what `punch::birthday` says, and there are at most three per joiner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use codec::Value;
use punch::SOCKETS;
use seam::{Path, Refused, Reply, Request, RequestId, SocketId};
use stun::Allocation;
use thiserror::Error;

use crate::egress::Body;
use crate::session::{Role, Session};
use crate::{FIRST_EXTRA, LOBBY};

/// The kind of the message.
pub(crate) const WORD: &[u8] = b"aw_guess";
/// By relay for so long, a joiner asks: what opens by itself has opened by then.
const AFTER: Duration = Duration::from_millis(300);
/// An unanswered ask is repeated so often and in this time.
const ASKS_MAX: u32 = 5;
const ASK_EVERY: Duration = Duration::from_millis(300);
/// A host, or this end, that is busy is asked again after this, so often.
const BUSY_FOR: Duration = Duration::from_secs(8);
const BUSY_MAX: u32 = 12;
/// What must be known before an ask is looked for this often, and so many times: a welcome may be lost, and an old host never
/// says the word.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: u32 = 50;
/// Attempts of a joiner. Between two of them the routers forget what the first one left in their tables.
const ATTEMPTS_MAX: u32 = 3;
const AGAIN_AFTER: Duration = Duration::from_secs(35);
/// A path that was met last has so long to prove itself.
const PROVE_FOR: Duration = Duration::from_millis(1_500);
/// The longest attempt: sockets to open, four seconds of guessing, the proof.
const ATTEMPT_MAX: Duration = Duration::from_secs(8);
/// Numbers of sockets are used in turn, so that none is used again while something may be left of its last use.
const NUMBERS: u16 = 32 * SOCKETS;

/// What one end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Says H from many sockets.
    Spray,
    /// Probes many ports.
    Probe,
    /// Says H to every first or second port.
    Stride(u16),
}

/// Why nothing is guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Why {
    /// Neither router gives out other ports.
    #[error("both routers keep their ports, so there is nothing to guess")]
    Needless,
    /// One router is random, the other gives out another port as well.
    #[error(
        "the routers at both ends give every destination another port and one of them at random, which cannot be guessed: the relay stays"
    )]
    Hopeless,
    /// The other end has it turned off.
    #[error("the other end has guessing turned off: the relay stays")]
    Off,
    /// The other end, or this one, is at it with somebody else.
    #[error("the host guesses with somebody else at the moment")]
    Busy,
    /// The other end does not know its own address, or a wrong one.
    #[error("the public address of one end is not known: the relay stays")]
    Unknown,
}

impl Why {
    const ALL: [Self; 5] = [Self::Needless, Self::Hopeless, Self::Off, Self::Busy, Self::Unknown];

    const fn word(self) -> &'static str {
        match self {
            Self::Needless => "needless",
            Self::Hopeless => "hopeless",
            Self::Off => "off",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}

/// What this end does, by how the routers of both ends choose their ports.
pub(crate) fn method(mine: Allocation, theirs: Allocation, is_host: bool) -> Result<Method, Why> {
    use Allocation::{Counted, Kept, Random};
    match (mine, theirs) {
        (Kept, Kept) => Err(Why::Needless),
        (Kept, Random | Counted) => Ok(Method::Probe),
        (Random | Counted, Kept) => Ok(Method::Spray),
        (Counted, Counted) => Ok(Method::Stride(if is_host { 1 } else { 2 })),
        (Random, Random | Counted) | (Counted, Random) => Err(Why::Hopeless),
    }
}

/// One end's part of the agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    /// Where its lobby socket is seen; of a router that counts, the last port it gave out.
    at: SocketAddrV4,
    ports: Allocation,
}

/// `aw_guess`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    /// Names the attempt.
    id: u64,
    said: Result<Facts, Why>,
}

impl Message {
    fn write(self) -> Vec<u8> {
        let mut map = codec::Map::new();
        map.insert("t".to_owned(), "aw_guess".into());
        map.insert("id".to_owned(), format!("{:016x}", self.id).into());
        match self.said {
            Ok(Facts { at, ports }) => {
                map.insert("at".to_owned(), at.to_string().into());
                map.insert("ports".to_owned(), ports.word().into());
            }
            Err(why) => {
                map.insert("no".to_owned(), why.word().into());
            }
        }
        codec::to_json(&map)
    }

    fn read(json: &[u8]) -> Result<Self, Refused> {
        let map = codec::object(json).map_err(|_| Refused::Malformed)?;
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        if text("t") != Some("aw_guess") {
            return Err(Refused::Malformed);
        }
        let hex = text("id")
            .filter(|id| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .ok_or(Refused::Malformed)?;
        let id = u64::from_str_radix(hex, 16).map_err(|_| Refused::Malformed)?;
        if let Some(no) = text("no") {
            // A word of a later release says no all the same.
            let why = Why::ALL.into_iter().find(|why| why.word() == no).unwrap_or(Why::Off);
            return Ok(Self { id, said: Err(why) });
        }
        let at = text("at").and_then(|at| at.parse().ok()).ok_or(Refused::Malformed)?;
        let ports = text("ports").and_then(Allocation::of_word).ok_or(Refused::Malformed)?;
        Ok(Self { id, said: Ok(Facts { at, ports }) })
    }
}

/// Whether ports of this address may be guessed because a member says so: never those of an own network.
fn is_far(at: SocketAddrV4) -> bool {
    let ip: &Ipv4Addr = at.ip();
    let [first, ..] = ip.octets();
    let special = ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast();
    !special && first != 0 && at.port() != 0
}

#[derive(Debug)]
struct Attempt {
    id: u64,
    /// The player, at its relay.
    player: Path,
    at: SocketAddrV4,
    /// Sockets that are open for it.
    sockets: Option<(SocketId, u16)>,
    until: Instant,
}

/// The attempts of one session.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    ask_at: Option<Instant>,
    id: u64,
    asks: u32,
    looks: u32,
    busy: u32,
    attempts: u32,
    /// Not before.
    again: Option<Instant>,
    attempt: Option<Attempt>,
    /// Sockets asked for, by request. One request is under way, and those of attempts that ended before.
    opening: BTreeMap<RequestId, SocketId>,
    /// How many numbers were used, modulo [`NUMBERS`].
    used: u16,
    /// Sockets that carry a path to a player.
    kept: BTreeSet<SocketId>,
    /// The path that was met last.
    met: Option<Path>,
}

impl Guess {
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let until = self.attempt.as_ref().map(|attempt| (attempt.until, "the end of a guess"));
        [self.ask_at.map(|at| (at, "a guess to ask for")), until].into_iter().flatten().min()
    }

    /// The next numbers for an attempt's sockets: none of them carries a path.
    fn numbers(&mut self) -> Option<SocketId> {
        for _ in 0..NUMBERS / SOCKETS {
            let first = FIRST_EXTRA + self.used;
            self.used = (self.used + SOCKETS) % NUMBERS;
            if self.kept.range(SocketId(first)..SocketId(first + SOCKETS)).next().is_none() {
                return Some(SocketId(first));
            }
        }
        None
    }

    /// Whether a path was found by guessing.
    pub(crate) fn is_met(&self, path: Path) -> bool {
        self.met == Some(path)
    }
}

impl Session {
    fn guess(&mut self) -> Option<&mut Guess> {
        self.reach.as_mut().map(|reach| &mut reach.guess)
    }

    fn guess_wanted(&self) -> bool {
        match &self.role {
            Role::Host(side) => side.config.guess && side.config.extensions,
            Role::Joiner(side) => side.config.guess && side.config.extensions,
        }
    }

    /// This end's part, once it is known.
    fn guess_facts(&self) -> Result<Facts, Why> {
        let seen = self.observing.observation().ok_or(Why::Unknown)?;
        let ports = seen.allocation().ok_or(Why::Unknown)?;
        let first = seen.public.first().ok_or(Why::Unknown)?;
        let newest = seen.public.iter().filter(|at| at.ip() == first.ip()).max_by_key(|at| at.port());
        let at = if ports == Allocation::Counted { newest.unwrap_or(first) } else { first };
        Ok(Facts { at: *at, ports })
    }

    // ---- asking and answering -----------------------------------------------------------------------------------

    /// A joiner's way to its host is another one now.
    pub(crate) fn guess_won(&mut self, path: Path) {
        let wanted = self.is_relayed(path) && !self.is_stream(path) && self.guess_wanted();
        let soon = self.now + AFTER;
        let Some(guess) = self.guess() else { return };
        guess.ask_at = if wanted && guess.attempts < ATTEMPTS_MAX && guess.busy < BUSY_MAX {
            Some(guess.again.map_or(soon, |again| again.max(soon)))
        } else {
            None
        };
        (guess.asks, guess.looks) = (0, 0);
    }

    pub(crate) fn guess_timeout(&mut self) {
        let now = self.now;
        let Some(guess) = self.guess() else { return };
        if guess.attempt.as_ref().is_some_and(|attempt| attempt.until <= now) {
            self.end_guess(None);
            self.log("[guess] no port was met: the relay stays".to_owned());
            self.guess_again(AGAIN_AFTER);
        }
        let Some(guess) = self.guess() else { return };
        if guess.ask_at.is_some_and(|at| at <= now) {
            guess.ask_at = None;
            self.guess_ask();
        }
    }

    /// A joiner asks its host, where that makes sense.
    fn guess_ask(&mut self) {
        let now = self.now;
        let Role::Joiner(side) = &self.role else { return };
        let Some(host) = side.host.filter(|host| self.is_relayed(*host)) else { return };
        let symmetric = side.profile().is_some_and(|profile| profile.flags.symmetric);
        if !side.lobby.host_guesses() || !self.observing.is_done() {
            if let Some(guess) = self.guess().filter(|guess| guess.looks < LOOKS_MAX) {
                guess.looks += 1;
                guess.ask_at = Some(now + LOOK_EVERY);
            }
            return;
        }
        let Ok(facts) = self.guess_facts() else { return };
        if facts.ports == Allocation::Kept && !symmetric {
            return;
        }
        let fresh = self.dice.u64();
        let Some(guess) = self.guess() else { return };
        if guess.attempt.is_some() {
            return;
        }
        if guess.asks == 0 {
            guess.id = fresh;
            guess.attempts += 1;
        }
        guess.asks += 1;
        if guess.asks < ASKS_MAX {
            guess.ask_at = Some(now + ASK_EVERY);
        }
        let message = Message { id: guess.id, said: Ok(facts) };
        self.egress.payload(vec![host], Body::Message(message.write()));
    }

    /// Another attempt later, if there may be one.
    fn guess_again(&mut self, pause: Duration) {
        let now = self.now;
        let Role::Joiner(side) = &self.role else { return };
        let relayed = side.host.is_some_and(|host| self.is_relayed(host));
        let Some(guess) = self.guess() else { return };
        guess.again = Some(now + pause);
        guess.asks = 0;
        guess.ask_at = (relayed && guess.attempts < ATTEMPTS_MAX).then_some(now + pause);
    }

    /// `aw_guess` came from a player.
    pub(crate) fn guess_heard(&mut self, from: Path, json: &[u8]) -> Result<(), Refused> {
        let message = Message::read(json)?;
        if !self.is_known(from) || self.reach.is_none() {
            return Err(Refused::NotAllowed);
        }
        match &self.role {
            Role::Host(_) => {
                let said = self.guess_asked(from, message);
                let answer = Message { id: message.id, said };
                self.egress.payload(vec![from], Body::Message(answer.write()));
                Ok(())
            }
            Role::Joiner(side) if side.host == Some(from) => self.guess_answered(from, message),
            Role::Joiner(_) => Err(Refused::NotAllowed),
        }
    }

    /// A joiner asks: what is answered.
    fn guess_asked(&mut self, from: Path, Message { id, said }: Message) -> Result<Facts, Why> {
        let theirs = said?;
        if !self.guess_wanted() {
            return Err(Why::Off);
        }
        let mine = self.guess_facts()?;
        let method = method(mine.ports, theirs.ports, true)?;
        if !is_far(theirs.at) {
            return Err(Why::Unknown);
        }
        let under_way = self.guess().and_then(|guess| guess.attempt.as_ref()).map(|attempt| attempt.id);
        match under_way {
            Some(other) if other == id => Ok(mine),
            None if self.begin_guess(id, from, theirs.at, method) => Ok(mine),
            Some(_) | None => Err(Why::Busy),
        }
    }

    /// The host answered.
    fn guess_answered(&mut self, from: Path, Message { id, said }: Message) -> Result<(), Refused> {
        let mine = self.guess_facts();
        let Some(guess) = self.guess() else { return Err(Refused::Unexpected) };
        if guess.asks == 0 || guess.id != id || guess.attempt.is_some() {
            // An answer to a repeated ask, most likely.
            return Err(Refused::Unexpected);
        }
        (guess.ask_at, guess.asks) = (None, 0);
        let begun = said.and_then(|theirs| {
            let method = method(mine?.ports, theirs.ports, false)?;
            let far = is_far(theirs.at);
            if !far {
                return Err(Why::Unknown);
            }
            if self.begin_guess(id, from, theirs.at, method) { Ok(()) } else { Err(Why::Busy) }
        });
        match begun {
            Ok(()) => {}
            Err(Why::Busy) => {
                if let Some(guess) = self.guess() {
                    guess.busy += 1;
                    guess.attempts = guess.attempts.saturating_sub(1);
                    if guess.busy < BUSY_MAX {
                        self.guess_again(BUSY_FOR);
                    }
                }
            }
            Err(why) => {
                if let Some(guess) = self.guess() {
                    guess.attempts = ATTEMPTS_MAX;
                }
                self.log(format!("[guess] {why}"));
            }
        }
        Ok(())
    }

    // ---- the attempt --------------------------------------------------------------------------------------------

    /// False when it may not be now.
    fn begin_guess(&mut self, id: u64, player: Path, at: SocketAddrV4, method: Method) -> bool {
        let now = self.now;
        match method {
            Method::Probe if !self.punch.probe_ports(now, (*at.ip()).into()) => return false,
            Method::Probe => self.log(format!("[guess] probing ports of {at}")),
            Method::Stride(step) => {
                self.punch.stride(now, at.into(), step);
                self.log(format!("[guess] both routers count their ports up: trying those after {at}"));
            }
            Method::Spray => {
                let Some(guess) = self.guess() else { return false };
                if !guess.opening.is_empty() {
                    return false;
                }
                let Some(first) = guess.numbers() else { return false };
                let request = self.request(Request::OpenSockets { first, count: SOCKETS });
                if let Some(guess) = self.guess() {
                    guess.opening.insert(request, first);
                }
            }
        }
        if let Some(guess) = self.guess() {
            guess.attempt = Some(Attempt { id, player, at, sockets: None, until: now + ATTEMPT_MAX });
        }
        true
    }

    /// Whether the reply was one of this part's.
    pub(crate) fn guess_reply(&mut self, id: RequestId, reply: Reply) -> Option<Reply> {
        let now = self.now;
        let Some(first) = self.guess().and_then(|guess| guess.opening.remove(&id)) else { return Some(reply) };
        let count = if let Reply::SocketsOpen(count) = reply { count } else { 0 };
        let guess = self.guess()?;
        let Some(attempt) = guess.attempt.as_mut() else {
            self.close_sockets(first, count);
            return None;
        };
        attempt.sockets = Some((first, count));
        let at = attempt.at;
        if self.punch.spray(now, first, count, at.into()) {
            self.log(format!("[guess] {count} sockets say hello to {at}"));
        } else {
            self.end_guess(None);
            self.guess_again(AGAIN_AFTER);
        }
        None
    }

    /// Somebody was met: a joiner tries the path, a host waits for that.
    pub(crate) fn guess_met(&mut self, path: Path) {
        if matches!(self.role, Role::Joiner(_)) && self.guess().is_some_and(|guess| guess.attempt.is_some()) {
            self.log(format!("[guess] met somebody at {}", path.remote));
            self.try_way(path);
        }
    }

    /// The time for guesses is over; whoever was met may still prove itself.
    pub(crate) fn guess_over(&mut self) {
        let until = self.now + PROVE_FOR;
        if let Some(attempt) = self.guess().and_then(|guess| guess.attempt.as_mut()) {
            attempt.until = attempt.until.min(until);
        }
    }

    /// The player at `primary` has one more path: an attempt for it is over.
    pub(crate) fn guess_proved(&mut self, primary: Path, path: Path) {
        if self.is_relayed(path) {
            return;
        }
        let Some(guess) = self.guess() else { return };
        let Some(attempt) = guess.attempt.as_ref() else { return };
        if attempt.player != primary && std::net::IpAddr::V4(*attempt.at.ip()) != path.remote.ip() {
            return;
        }
        guess.met = Some(path);
        guess.ask_at = None;
        self.end_guess(Some(path.socket));
        if let Some(guess) = self.guess() {
            guess.again = None;
        }
    }

    /// Ends the attempt. Sockets close, but for `keep`.
    fn end_guess(&mut self, keep: Option<SocketId>) {
        self.punch.stop_guessing();
        let Some(guess) = self.guess() else { return };
        let Some(attempt) = guess.attempt.take() else { return };
        let Some((first, count)) = attempt.sockets else { return };
        let last = first.0.saturating_add(count);
        match keep.filter(|keep| (first.0..last).contains(&keep.0)) {
            Some(keep) => {
                guess.kept.insert(keep);
                self.close_sockets(first, keep.0 - first.0);
                self.close_sockets(SocketId(keep.0 + 1), last - keep.0 - 1);
            }
            None => self.close_sockets(first, count),
        }
    }

    fn close_sockets(&mut self, first: SocketId, count: u16) {
        if count > 0 {
            self.request(Request::CloseSockets { first, count });
        }
    }

    /// A path is given up; a socket that was open for it alone closes.
    pub(crate) fn guess_dropped(&mut self, path: Path) {
        if path.socket != LOBBY && self.guess().is_some_and(|guess| guess.kept.remove(&path.socket)) {
            self.close_sockets(path.socket, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Allocation::{Counted, Kept, Random};
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_a_pair_choose_methods_that_fit() {
        for mine in [Kept, Counted, Random] {
            for theirs in [Kept, Counted, Random] {
                let pair = (method(mine, theirs, true), method(theirs, mine, false));
                let fits = matches!(
                    pair,
                    (Ok(Method::Spray), Ok(Method::Probe))
                        | (Ok(Method::Probe), Ok(Method::Spray))
                        | (Ok(Method::Stride(1)), Ok(Method::Stride(2)))
                );
                let feasible = mine == Kept || theirs == Kept || (mine, theirs) == (Counted, Counted);
                assert_eq!(fits, feasible && (mine, theirs) != (Kept, Kept), "{mine:?} {theirs:?}");
                assert!(fits || pair.0 == pair.1, "one reason at both ends: {pair:?}");
            }
        }
    }

    #[test]
    fn a_member_cannot_aim_at_an_own_network() {
        for (at, far) in [
            ("203.0.113.5:4000", true),
            ("100.64.0.9:4000", true),
            ("203.0.113.5:0", false),
            ("192.168.0.1:53", false),
            ("10.1.2.3:53", false),
            ("172.16.0.1:53", false),
            ("127.0.0.1:53", false),
            ("169.254.1.1:53", false),
            ("224.0.0.1:53", false),
            ("255.255.255.255:53", false),
            ("0.1.2.3:53", false),
        ] {
            assert_eq!(is_far(at.parse().unwrap()), far, "{at}");
        }
    }

    #[test]
    fn the_message_is_as_the_registry_shows_it() {
        let facts = Facts { at: "203.0.113.5:40000".parse().unwrap(), ports: Random };
        let ask = Message { id: 0x9f3c_5a77_01d2_e4b8, said: Ok(facts) };
        let text = r#"{"t": "aw_guess", "id": "9f3c5a7701d2e4b8", "at": "203.0.113.5:40000", "ports": "random"}"#;
        assert_eq!(String::from_utf8(ask.write()).unwrap(), text);
        let no = Message { said: Err(Why::Busy), ..ask };
        assert_eq!(
            String::from_utf8(no.write()).unwrap(),
            r#"{"t": "aw_guess", "id": "9f3c5a7701d2e4b8", "no": "busy"}"#
        );
        let later = br#"{"t": "aw_guess", "id": "9f3c5a7701d2e4b8", "no": "someday"}"#;
        assert_eq!(Message::read(later), Ok(Message { said: Err(Why::Off), ..ask }));
    }

    /// A joiner behind a router of this kind, on a path to its host, that asked it for attempt 7.
    fn asker(ports: &[u16]) -> (Session, Path) {
        let now = Instant::now();
        let host = joincode::Profile { secret: Some([7; 12]), ..joincode::Profile::default() };
        let config = crate::JoinConfig {
            rendezvous: Some("http://192.0.2.1".to_owned()),
            ..crate::JoinConfig::new("lin", joincode::Code::Plain(host))
        };
        let mut session = Session::join(config, [1; 32], now, 1_790_000_000);
        let seen = ports.iter().map(|port| ([203, 0, 113, 6], *port).into());
        session.observing = crate::observing::Observing::Done(Some(stun::Observation::of(seen)));
        let path = crate::rooms::lobby_path(([192, 0, 2, 1], 5).into());
        let Role::Joiner(side) = &mut session.role else { panic!("a joiner") };
        side.host = Some(path);
        let guess = session.guess().unwrap();
        (guess.id, guess.asks) = (7, 1);
        (session, path)
    }

    fn answer(id: u64, at: &str, ports: Allocation) -> Vec<u8> {
        Message { id, said: Ok(Facts { at: at.parse().unwrap(), ports }) }.write()
    }

    fn sent(session: &mut Session) -> usize {
        let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
        session.poll_transmit(session.now, &mut out);
        out.len()
    }

    #[test]
    fn only_the_host_that_was_asked_begins_an_attempt_and_only_toward_a_public_address() {
        let (mut session, path) = asker(&[4000]);
        sent(&mut session);
        let stranger = crate::rooms::lobby_path(([192, 0, 2, 2], 5).into());
        let right = answer(7, "203.0.113.5:4000", Random);
        assert_eq!(session.guess_heard(stranger, &right), Err(Refused::NotAllowed));
        assert_eq!(session.guess_heard(path, &answer(8, "203.0.113.5:4000", Random)), Err(Refused::Unexpected));
        assert_eq!(session.guess_heard(path, b"{}"), Err(Refused::Malformed));
        assert_eq!(sent(&mut session), 0);
        assert_eq!(session.guess_heard(path, &right), Ok(()));
        assert!(sent(&mut session) > 0 && session.guess().unwrap().attempt.is_some());
        assert_eq!(session.guess_heard(path, &right), Err(Refused::Unexpected), "it is under way");

        let (mut session, path) = asker(&[4000]);
        sent(&mut session);
        assert_eq!(session.guess_heard(path, &answer(7, "192.168.0.1:53", Random)), Ok(()));
        assert!(sent(&mut session) == 0 && session.guess().unwrap().attempt.is_none());
    }

    #[test]
    fn sockets_that_open_after_their_attempt_are_closed_and_none_is_no_attempt() {
        let (mut session, path) = asker(&[4000, 9000]);
        session.guess_heard(path, &answer(7, "203.0.113.5:4000", Kept)).unwrap();
        let requests = |session: &mut Session| -> Vec<(RequestId, Request)> {
            let all = std::iter::from_fn(|| session.poll_request());
            all.filter(|(_, r)| matches!(r, Request::OpenSockets { .. } | Request::CloseSockets { .. })).collect()
        };
        let first = SocketId(FIRST_EXTRA);
        let asked = requests(&mut session);
        assert_eq!(asked[0].1, Request::OpenSockets { first, count: SOCKETS });
        session.end_guess(None);
        session.handle_reply(session.now, asked[0].0, Reply::SocketsOpen(200));
        assert_eq!(requests(&mut session)[0].1, Request::CloseSockets { first, count: 200 });

        let (mut session, path) = asker(&[4000, 9000]);
        session.guess_heard(path, &answer(7, "203.0.113.5:4000", Kept)).unwrap();
        let id = requests(&mut session)[0].0;
        session.handle_reply(session.now, id, Reply::Unreachable("a driver without them".to_owned()));
        assert!(session.guess().unwrap().attempt.is_none());
    }

    #[test]
    fn numbers_are_used_in_turn_and_never_those_of_a_socket_in_use() {
        let mut guess = Guess::default();
        guess.kept.insert(SocketId(FIRST_EXTRA + SOCKETS + 7));
        let firsts: Vec<u16> = (0..40).map(|_| guess.numbers().unwrap().0 - FIRST_EXTRA).collect();
        assert_eq!(firsts[..3], [0, 2 * SOCKETS, 3 * SOCKETS]);
        assert_eq!((firsts[30], firsts[31], firsts[32]), (31 * SOCKETS, 0, 2 * SOCKETS));
        guess.kept.extend((0..32).map(|n| SocketId(FIRST_EXTRA + n * SOCKETS)));
        assert_eq!(guess.numbers(), None);
    }

    #[test]
    fn every_cut_and_every_wrong_field_is_refused() {
        let facts = Facts { at: "203.0.113.5:40000".parse().unwrap(), ports: Counted };
        let whole = Message { id: 7, said: Ok(facts) }.write();
        for cut in 0..whole.len() {
            assert_eq!(Message::read(&whole[..cut]), Err(Refused::Malformed));
        }
        let text = String::from_utf8(whole).unwrap();
        for (right, wrong) in [
            ("\"0000000000000007\"", "\"7\""),
            ("\"0000000000000007\"", "7"),
            ("\"0000000000000007\"", "\"+000000000000007\""),
            ("203.0.113.5:40000", "203.0.113.5"),
            ("203.0.113.5:40000", "[2001:db8::1]:40000"),
            ("203.0.113.5:40000", "203.0.113.5:70000"),
            ("\"counted\"", "\"many\""),
            ("\"counted\"", "[]"),
            ("\"aw_guess\"", "\"aw_guessed\""),
        ] {
            let bad = text.replace(right, wrong);
            assert_ne!(bad, text);
            assert_eq!(Message::read(bad.as_bytes()), Err(Refused::Malformed), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(id: u64, ip: [u8; 4], port: u16, ports in 0..3_usize, no in 0..6_usize) {
            let facts = Facts { at: SocketAddrV4::new(ip.into(), port), ports: [Kept, Counted, Random][ports] };
            let said = Why::ALL.get(no).map_or(Ok(facts), |why| Err(*why));
            let message = Message { id, said };
            prop_assert_eq!(Message::read(&message.write()), Ok(message));
        }
    }
}
