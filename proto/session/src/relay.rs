//! Bindings at relays: which session of the master's shared port, or which port of its own, carries what to whom.
//!
//! The shared port serves all pairs of our own ends: a number in front of each datagram names the pair, and rooms know
//! the other end by an address that stands for that number ([`rendezvous::shared::stand_in`]). A port for old peers
//! carries datagrams as they are, so its own address is the other end.
//!
//! A relay knows an end by its source address. A router that gives out another one breaks that in silence, so a
//! binding in use is repeated (pain 8).
//!
//! Each end has two ways to the relay: datagrams, and the tunnel ([`crate::tunnel`]) where no datagram gets through. Which
//! one is an end's own affair, and not another path: the master forwards to whichever was bound last. A binding that is
//! up through the tunnel goes on asking for a proof by datagrams, and goes back to them once one comes.
//!
//! ```text
//! asked by datagrams ──> unanswered for HEAD_START ──> tunnel opens ──> bound through it
//!        ^                                                               │ asks by datagram without a cookie, every 3 s
//!        └── bound by datagrams <── the cookie is repeated <── a proof comes by datagram
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use np1::Role;
use rendezvous::shared::{DATA_HEADER, Other, Word, session_of, stand_in};
use rendezvous::words::Grant;
use seam::Path;

use crate::{LOBBY, TUNNEL};

/// Bindings at most; of more, the one with the least time left goes.
const BINDINGS_MAX: usize = 256;
/// Between two asks until the relay has answered, and between two of the old kind (netpunch wire, section 11.4).
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Between two asks while only the other end is missing.
const WAIT_EVERY: Duration = Duration::from_millis(500);
/// Between two asks of a joiner of the old kind.
const OLD_JOINER_EVERY: Duration = Duration::from_secs(2);
/// Between two asks while the relay is in use: so long a changed address may go unnoticed on a path that only stands by.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How long a binding is asked for after its last grant while nobody uses it.
const ASK_FOR: Duration = Duration::from_secs(15);
/// A router that moved us is noticed by several paths at once; they ask together.
const ASK_GAP: Duration = Duration::from_millis(30);

/// A relay that answers no datagram for this long, in which it was asked this often, is asked through the tunnel. A round
/// trip to the farthest master takes half as long, and two lost datagrams are not yet a network without UDP.
pub(crate) const HEAD_START: Duration = Duration::from_millis(600);
const STARVED_ASKS: u32 = 3;
/// Datagrams that repeat the cookie before the tunnel is bound again.
const RETURN_ASKS: u32 = 5;

/// What a relay's datagram meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Not from a relay of ours.
    Not,
    /// Something between the relay and us, or nothing of use.
    Taken,
    /// A relay in use asked for a proof, which is on its way: it has seen us at another address.
    Proving { other_end: SocketAddr },
    /// From the other end: how many bytes stand before its datagram, and the address that stands for it.
    Data { skip: usize, from: SocketAddr },
    /// Our end is bound; `other` tells of theirs, `again` that it was bound before and that the relay has just learned
    /// another address or way to us, `returned` that this way is datagrams again.
    Bound { other_end: SocketAddr, other: Other, again: bool, returned: bool },
}

/// One end's way to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    /// Datagrams of the lobby socket.
    Datagrams,
    /// The stream over HTTP.
    Tunnel,
}

#[derive(Clone, Debug)]
struct Binding {
    grant: Grant,
    /// On the shared port, or through the tunnel, which speaks its words.
    shared: bool,
    /// Granted at a port for old peers: there is no way back from the tunnel.
    old: bool,
    role: Role,
    cookie: [u8; 8],
    session: Option<u32>,
    other: Other,
    /// Where the relay sends what is for us, as far as it has told.
    leg: Leg,
    /// Asks by datagram since one was answered, and when the first of them went out.
    unanswered: u32,
    silent: Option<Instant>,
    /// The cookie came by datagram while the tunnel is bound.
    returning: bool,
    /// When the tunnel was asked for because datagrams were not answered.
    entered: Option<Instant>,
    /// The relay did not know our address when it was asked last.
    proving: bool,
    in_use: bool,
    asked: Option<Instant>,
    next: Instant,
    until: Instant,
}

impl Binding {
    /// The address that stands for the other end.
    fn other_end(&self) -> Option<SocketAddr> {
        if self.shared { self.session.map(stand_in) } else { Some(self.grant.at) }
    }

    fn pause(&self) -> Duration {
        match (self.in_use, self.shared, self.role) {
            _ if self.returning => ASK_EVERY,
            (true, ..) => RENEW_EVERY,
            (false, true, _) if self.session.is_some() && !self.proving => WAIT_EVERY,
            (false, false, Role::Joiner) => OLD_JOINER_EVERY,
            (false, true, _) | (false, false, Role::Host) => ASK_EVERY,
        }
    }

    fn ask(&self) -> Vec<u8> {
        let Self { grant: Grant { id, .. }, role, cookie, .. } = *self;
        if self.old { np1::relay_bind(&id, role) } else { Word::Ask { id, role, cookie }.write() }
    }

    /// As often as it is due: the way that is bound, and datagrams besides to learn whether they pass again.
    fn ask_all(&mut self, now: Instant, tunnel: bool, out: &mut VecDeque<(Path, Vec<u8>)>) {
        let id = self.grant.id;
        if self.returning && self.unanswered >= RETURN_ASKS {
            self.returning = false;
        }
        let through = tunnel && self.leg == Leg::Tunnel && !self.returning;
        if through {
            let ask = Word::Ask { id, role: self.role, cookie: [0; 8] }.write();
            out.push_back((Path::new(TUNNEL, self.grant.at), ask));
            // A cookie would bind the datagrams' address, from which nothing may have come back yet.
            self.cookie = [0; 8];
        }
        if !(through && self.old) {
            out.push_back((Path::new(LOBBY, self.grant.at), self.ask()));
            self.unanswered = self.unanswered.saturating_add(1);
            self.silent.get_or_insert(now);
        }
        self.asked = Some(now);
    }

    /// The relay answered a datagram.
    fn answered(&mut self) {
        (self.unanswered, self.silent) = (0, None);
    }

    /// No datagram gets to the relay and back. `blocked`: none ever came from anywhere.
    fn is_starved(&self, now: Instant, blocked: bool) -> bool {
        let (asks, head_start) = if blocked { (1, Duration::ZERO) } else { (STARVED_ASKS, HEAD_START) };
        self.leg == Leg::Tunnel
            || (self.unanswered >= asks
                && self.silent.is_some_and(|since| now.saturating_duration_since(since) >= head_start))
    }
}

/// The bindings of one session. At most 256, each for one pair.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    by_grant: BTreeMap<Grant, Binding>,
    /// The tunnel is open.
    tunnel: bool,
    out: VecDeque<(Path, Vec<u8>)>,
}

impl Relays {
    /// The master granted this; asking begins, or goes on. The address of the other end is answered when it is known.
    pub(crate) fn granted(&mut self, now: Instant, grant: Grant, shared: bool, role: Role) -> Option<SocketAddr> {
        if self.by_grant.len() >= BINDINGS_MAX
            && !self.by_grant.contains_key(&grant)
            && let Some(oldest) = self.by_grant.iter().min_by_key(|(_, b)| (b.in_use, b.until)).map(|(at, _)| *at)
        {
            self.by_grant.remove(&oldest);
        }
        let until = now + ASK_FOR;
        let binding = self.by_grant.entry(grant).or_insert(Binding {
            grant,
            shared,
            old: !shared,
            role,
            cookie: [0; 8],
            session: None,
            other: Other::Absent,
            leg: Leg::Datagrams,
            unanswered: 0,
            silent: None,
            returning: false,
            entered: None,
            proving: true,
            in_use: false,
            asked: None,
            next: now,
            until,
        });
        binding.until = until;
        let other_end = binding.other_end();
        self.handle_timeout(now);
        other_end
    }

    /// Takes a datagram that arrived on `path`.
    pub(crate) fn handle(&mut self, now: Instant, path: Path, datagram: &[u8]) -> Heard {
        let (from, tunnel) = (path.remote, path.socket == TUNNEL);
        // The tunnel leads to one master, whose sessions' numbers and ids are its own.
        let mut ours = self.by_grant.values_mut().filter(|binding| tunnel || binding.grant.at == from).peekable();
        if ours.peek().is_none() {
            return if tunnel { Heard::Taken } else { Heard::Not };
        }
        if np1::read_relay_bound(datagram).is_ok() {
            ours.filter(|_| !tunnel).for_each(Binding::answered);
            return Heard::Taken;
        }
        match Word::parse(datagram) {
            Ok(Word::Data { session, .. }) => match ours.find(|binding| binding.session == Some(session)) {
                Some(binding) => {
                    if !tunnel {
                        binding.answered();
                    }
                    if !binding.other.is_bound() {
                        // It is by now, and how is worth knowing.
                        binding.next = binding.next.min(now);
                    }
                    Heard::Data { skip: DATA_HEADER, from: stand_in(session) }
                }
                None => Heard::Taken,
            },
            Ok(Word::Proof { id, cookie }) => {
                if let Some(binding) = ours.find(|binding| !tunnel && binding.shared && binding.grant.id == id) {
                    // The relay repeats nothing by itself: one answer per ask, so this cannot go round for ever.
                    binding.proving |= binding.cookie != cookie;
                    binding.cookie = cookie;
                    binding.answered();
                    binding.returning = binding.leg == Leg::Tunnel;
                    binding.ask_all(now, self.tunnel, &mut self.out);
                    binding.next = now + binding.pause().min(ASK_EVERY);
                    let moved = binding.in_use && binding.proving && binding.leg == Leg::Datagrams;
                    if let Some(other_end) = binding.other_end().filter(|_| moved) {
                        return Heard::Proving { other_end };
                    }
                }
                Heard::Taken
            }
            Ok(Word::Bound { id, session, other }) => {
                let Some(binding) = ours.find(|binding| binding.shared && binding.grant.id == id) else {
                    return Heard::Taken;
                };
                let leg = if tunnel { Leg::Tunnel } else { Leg::Datagrams };
                if tunnel && binding.returning {
                    // The answer to an ask from before.
                    return Heard::Taken;
                }
                let again = binding.session.is_some() && (binding.proving || binding.leg != leg);
                let returned = binding.leg == Leg::Tunnel && leg == Leg::Datagrams;
                (binding.session, binding.other, binding.leg) = (Some(session), other, leg);
                (binding.proving, binding.returning) = (false, false);
                if returned {
                    binding.entered = None;
                }
                if !tunnel {
                    binding.answered();
                }
                binding.next = now + binding.pause();
                Heard::Bound { other_end: stand_in(session), other, again, returned }
            }
            Ok(Word::Ask { .. }) => Heard::Taken,
            // From a port for old peers: their own words.
            Err(_) => match ours.find(|binding| !binding.shared && !tunnel) {
                Some(binding) => {
                    binding.answered();
                    Heard::Data { skip: 0, from }
                }
                None => Heard::Taken,
            },
        }
    }

    /// Whether `other_end` is at the far side of a relay, so that no dial of a stream to that address makes sense.
    pub(crate) fn is_relay(&self, other_end: SocketAddr) -> bool {
        session_of(other_end).is_some() || self.by_grant.keys().any(|grant| grant.at == other_end)
    }

    /// The relay of the pair that `other_end` stands for is in use, or is not any more.
    pub(crate) fn set_in_use(&mut self, now: Instant, other_end: SocketAddr, in_use: bool) {
        for binding in self.by_grant.values_mut().filter(|binding| binding.other_end() == Some(other_end)) {
            binding.in_use = in_use;
            binding.next = binding.next.max(now);
            if !in_use {
                binding.until = now;
            }
        }
        self.handle_timeout(now);
    }

    /// The own address may have changed: every relay in use is asked now.
    pub(crate) fn ask_now(&mut self, now: Instant) {
        for binding in self.by_grant.values_mut().filter(|binding| binding.in_use) {
            if binding.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= ASK_GAP) {
                binding.next = now;
            }
        }
        self.handle_timeout(now);
    }

    /// Where to the datagrams of a session on a shared port go.
    pub(crate) fn shared_at(&self, session: u32) -> Option<Path> {
        let binding = self.by_grant.values().find(|binding| binding.session == Some(session))?;
        let socket = if binding.leg == Leg::Tunnel { TUNNEL } else { LOBBY };
        Some(Path::new(socket, binding.grant.at))
    }

    /// Whether `other_end` is reached over TCP: ours, theirs or both.
    pub(crate) fn is_stream(&self, other_end: SocketAddr) -> bool {
        let mut theirs = self.by_grant.values().filter(|binding| binding.other_end() == Some(other_end));
        theirs.any(|binding| binding.leg == Leg::Tunnel || binding.other == Other::Stream)
    }

    /// The other ends of bindings that get no answer by datagram; `None` for one whose other end is not known yet.
    pub(crate) fn starved(&self, now: Instant, blocked: bool) -> impl Iterator<Item = Option<SocketAddr>> {
        self.by_grant.values().filter(move |binding| binding.is_starved(now, blocked)).map(Binding::other_end)
    }

    /// The tunnel is open: what gets no answer by datagram is bound through it.
    pub(crate) fn tunnel_opened(&mut self, now: Instant, blocked: bool) {
        self.tunnel = true;
        for binding in self.by_grant.values_mut() {
            binding.entered = None;
        }
        self.enter_tunnel(now, blocked);
    }

    /// The tunnel is gone. What was bound through it is asked for by datagram until there is another.
    pub(crate) fn tunnel_closed(&mut self) {
        self.tunnel = false;
        for binding in self.by_grant.values_mut().filter(|binding| binding.leg == Leg::Tunnel) {
            binding.proving = true;
        }
    }

    /// Whether something is bound through the tunnel.
    pub(crate) fn is_tunnelled(&self) -> bool {
        self.by_grant.values().any(|binding| binding.leg == Leg::Tunnel || binding.entered.is_some())
    }

    /// Binds what is starved through the tunnel. Of a session that is granted twice one binding is enough.
    pub(crate) fn enter_tunnel(&mut self, now: Instant, blocked: bool) {
        let shared: Vec<[u8; 16]> =
            self.by_grant.values().filter(|binding| !binding.old).map(|binding| binding.grant.id).collect();
        for binding in self.by_grant.values_mut().filter(|binding| binding.is_starved(now, blocked)) {
            let soon = binding.entered.is_some_and(|at| now.saturating_duration_since(at) < HEAD_START);
            let bound = binding.leg == Leg::Tunnel && binding.entered.is_some();
            if !self.tunnel || soon || bound || (binding.old && shared.contains(&binding.grant.id)) {
                continue;
            }
            (binding.shared, binding.returning, binding.entered) = (true, false, Some(now));
            let ask = Word::Ask { id: binding.grant.id, role: binding.role, cookie: [0; 8] }.write();
            self.out.push_back((Path::new(TUNNEL, binding.grant.at), ask));
        }
    }

    /// The next ask to send.
    pub(crate) fn poll(&mut self) -> Option<(Path, Vec<u8>)> {
        self.out.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.by_grant.retain(|_, binding| binding.in_use || binding.until > now);
        for binding in self.by_grant.values_mut().filter(|binding| binding.next <= now) {
            binding.ask_all(now, self.tunnel, &mut self.out);
            binding.next = now + if binding.proving { ASK_EVERY.min(binding.pause()) } else { binding.pause() };
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let due = |binding: &Binding| if binding.in_use { binding.next } else { binding.next.min(binding.until) };
        self.by_grant.values().map(due).min().map(|due| (due, "relay binding"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 16] = [7; 16];

    fn grant(port: u16) -> Grant {
        Grant { at: ([192, 0, 2, 9], port).into(), id: ID }
    }

    fn lobby(port: u16) -> Path {
        Path::new(LOBBY, grant(port).at)
    }

    fn sent(relays: &mut Relays) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| relays.poll()).map(|(_, bytes)| bytes).collect()
    }

    /// A joiner that is bound at session 5.
    fn bound(now: Instant) -> Relays {
        let mut relays = Relays::default();
        assert_eq!(relays.granted(now, grant(1), true, Role::Joiner), None);
        let at = lobby(1);
        assert_eq!(relays.handle(now, at, &Word::Proof { id: ID, cookie: [3; 8] }.write()), Heard::Taken);
        let asks = [[0; 8], [3; 8]].map(|cookie| Word::Ask { id: ID, role: Role::Joiner, cookie }.write());
        assert_eq!(sent(&mut relays), asks);
        let answer = Word::Bound { id: ID, session: 5, other: Other::Absent }.write();
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Absent, again: false, returned: false };
        assert_eq!(relays.handle(now, at, &answer), want);
        relays
    }

    #[test]
    fn a_cookie_is_repeated_at_once_and_data_stands_for_its_session() {
        let now = Instant::now();
        let mut relays = bound(now);
        let data = |session| Word::Data { session, datagram: b"NP1:H" }.write();
        assert_eq!(relays.handle(now, lobby(1), &data(5)), Heard::Data { skip: 8, from: stand_in(5) });
        assert_eq!(relays.handle(now, lobby(1), &data(6)), Heard::Taken);
        assert_eq!(relays.handle(now, lobby(2), &data(5)), Heard::Not);
        assert_eq!(relays.shared_at(5), Some(lobby(1)));
        assert!(relays.is_relay(stand_in(5)) && !relays.is_relay(grant(2).at));
    }

    #[test]
    fn a_binding_in_use_is_repeated_and_a_new_proof_shows_that_we_moved() {
        let start = Instant::now();
        let mut relays = bound(start);
        relays.set_in_use(start, stand_in(5), true);
        sent(&mut relays);
        let renewals = (0..60).filter(|second| {
            relays.handle_timeout(start + Duration::from_secs(*second));
            !sent(&mut relays).is_empty()
        });
        assert!((19..=22).contains(&renewals.count()));
        let later = start + Duration::from_secs(60);
        let proof = Word::Proof { id: ID, cookie: [4; 8] }.write();
        let proving = Heard::Proving { other_end: stand_in(5) };
        assert_eq!(relays.handle(later, lobby(1), &proof), proving);
        let answer = Word::Bound { id: ID, session: 5, other: Other::Datagrams }.write();
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Datagrams, again: true, returned: false };
        assert_eq!(relays.handle(later, lobby(1), &answer), want);
    }

    fn tunnel() -> Path {
        Path::new(TUNNEL, grant(1).at)
    }

    fn word(other: Other) -> Vec<u8> {
        Word::Bound { id: ID, session: 5, other }.write()
    }

    /// A relay that answers no datagram, and the tunnel that is open since.
    fn tunnelled(start: Instant) -> (Relays, Instant) {
        let mut relays = Relays::default();
        relays.granted(start, grant(1), true, Role::Joiner);
        let mut now = start;
        while relays.starved(now, false).next().is_none() {
            now = relays.poll_timeout().unwrap().0;
            relays.handle_timeout(now);
        }
        sent(&mut relays);
        relays.tunnel_opened(now, false);
        assert_eq!(sent(&mut relays), [Word::Ask { id: ID, role: Role::Joiner, cookie: [0; 8] }.write()]);
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Stream, again: false, returned: false };
        assert_eq!(relays.handle(now, tunnel(), &word(Other::Stream)), want);
        relays.set_in_use(now, stand_in(5), true);
        sent(&mut relays);
        (relays, now)
    }

    #[test]
    fn a_relay_that_answers_no_datagram_is_bound_through_the_tunnel() {
        let start = Instant::now();
        let (mut relays, now) = tunnelled(start);
        assert_eq!(now, start + HEAD_START);
        assert_eq!(relays.shared_at(5), Some(tunnel()));
        assert!(relays.is_stream(stand_in(5)) && relays.is_tunnelled());
        let data = Word::Data { session: 5, datagram: b"NP1:H" }.write();
        assert_eq!(relays.handle(now, tunnel(), &data), Heard::Data { skip: 8, from: stand_in(5) });
        let strange = Word::Data { session: 6, datagram: b"NP1:H" }.write();
        assert_eq!(relays.handle(now, tunnel(), &strange), Heard::Taken);
        assert_eq!(relays.handle(now, tunnel(), b"NP1:H"), Heard::Taken, "nobody speaks there but through a session");
    }

    #[test]
    fn where_nothing_ever_came_by_datagram_the_tunnel_is_wanted_at_once() {
        let now = Instant::now();
        let mut relays = Relays::default();
        relays.granted(now, grant(1), true, Role::Host);
        assert_eq!((relays.starved(now, false).count(), relays.starved(now, true).count()), (0, 1));
        let mut bound = bound(now);
        bound.handle_timeout(now + HEAD_START * 2);
        assert_eq!(bound.starved(now + HEAD_START * 2, false).count(), 0, "one ask that is on its way says nothing");
    }

    #[test]
    fn a_datagram_that_comes_back_ends_the_tunnels_service_and_both_ends_repeat() {
        let (mut relays, now) = tunnelled(Instant::now());
        let later = now + RENEW_EVERY;
        relays.handle_timeout(later);
        let ask = |cookie| Word::Ask { id: ID, role: Role::Joiner, cookie }.write();
        assert_eq!(sent(&mut relays), [ask([0; 8]), ask([0; 8])], "on both ways, by datagram without a cookie");
        relays.handle(later, tunnel(), &word(Other::Datagrams));
        relays.handle(later, lobby(1), &Word::Proof { id: ID, cookie: [3; 8] }.write());
        assert_eq!(sent(&mut relays), [ask([3; 8])]);
        assert_eq!(relays.handle(later, tunnel(), &word(Other::Datagrams)), Heard::Taken, "an old ask's answer");
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Datagrams, again: true, returned: true };
        assert_eq!(relays.handle(later, lobby(1), &word(Other::Datagrams)), want);
        assert_eq!(relays.shared_at(5), Some(lobby(1)));
        assert!(!relays.is_stream(stand_in(5)) && relays.starved(later, false).next().is_none());
    }

    #[test]
    fn a_return_that_is_not_confirmed_goes_back_to_the_tunnel() {
        let (mut relays, mut now) = tunnelled(Instant::now());
        relays.handle(now, lobby(1), &Word::Proof { id: ID, cookie: [3; 8] }.write());
        let start = now;
        let back = loop {
            if sent(&mut relays).contains(&Word::Ask { id: ID, role: Role::Joiner, cookie: [0; 8] }.write()) {
                break now;
            }
            now = relays.poll_timeout().unwrap().0;
            relays.handle_timeout(now);
        };
        assert_eq!(back - start, ASK_EVERY * RETURN_ASKS);
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Datagrams, again: true, returned: false };
        assert_eq!(relays.handle(now, tunnel(), &word(Other::Datagrams)), want);
        assert_eq!(relays.shared_at(5), Some(tunnel()));
    }

    #[test]
    fn a_tunnel_that_broke_is_entered_again_when_there_is_another() {
        let (mut relays, now) = tunnelled(Instant::now());
        relays.tunnel_closed();
        relays.handle_timeout(now + RENEW_EVERY);
        assert!(std::iter::from_fn(|| relays.poll()).all(|(path, _)| path.socket == LOBBY));
        relays.tunnel_opened(now + RENEW_EVERY, false);
        assert_eq!(std::iter::from_fn(|| relays.poll()).filter(|(path, _)| path.socket == TUNNEL).count(), 1);
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Stream, again: true, returned: false };
        assert_eq!(relays.handle(now + RENEW_EVERY, tunnel(), &word(Other::Stream)), want);
    }

    #[test]
    fn a_grant_at_an_old_peers_port_is_bound_through_the_tunnel_as_a_session() {
        let now = Instant::now();
        let mut relays = Relays::default();
        assert_eq!(relays.granted(now, grant(1), false, Role::Host), Some(grant(1).at));
        sent(&mut relays);
        relays.tunnel_opened(now, true);
        assert_eq!(sent(&mut relays), [Word::Ask { id: ID, role: Role::Host, cookie: [0; 8] }.write()]);
        let want = Heard::Bound { other_end: stand_in(5), other: Other::Absent, again: false, returned: false };
        assert_eq!(relays.handle(now, tunnel(), &word(Other::Absent)), want);
        relays.handle_timeout(now + ASK_EVERY);
        assert!(std::iter::from_fn(|| relays.poll()).all(|(path, _)| path.socket == TUNNEL), "old ports read no words");
    }

    #[test]
    fn an_unused_binding_is_asked_for_15_s_and_forgotten() {
        let start = Instant::now();
        let mut relays = Relays::default();
        relays.granted(start, grant(1), false, Role::Host);
        let mut asks = 0;
        let mut now = start;
        while let Some((due, _)) = relays.poll_timeout() {
            asks += sent(&mut relays).len();
            now = now.max(due);
            relays.handle_timeout(now);
        }
        assert_eq!((asks, now), (75, start + ASK_FOR));
        assert!(!relays.is_relay(grant(1).at));
    }

    #[test]
    fn the_port_of_an_old_peer_carries_its_words_as_they_are() {
        let now = Instant::now();
        let mut relays = Relays::default();
        assert_eq!(relays.granted(now, grant(1), false, Role::Joiner), Some(grant(1).at));
        assert_eq!(sent(&mut relays), [np1::relay_bind(&ID, Role::Joiner)]);
        assert_eq!(relays.handle(now, lobby(1), &np1::relay_bound(&ID)), Heard::Taken);
        assert_eq!(relays.handle(now, lobby(1), b"NP1:H"), Heard::Data { skip: 0, from: grant(1).at });
    }

    #[test]
    fn bindings_are_bounded_and_those_in_use_stay() {
        let now = Instant::now();
        let mut relays = Relays::default();
        relays.granted(now, grant(1), false, Role::Host);
        relays.set_in_use(now, grant(1).at, true);
        for port in 2..600 {
            relays.granted(now + Duration::from_micros(port.into()), grant(port), false, Role::Host);
        }
        assert_eq!(relays.by_grant.len(), BINDINGS_MAX);
        assert!(relays.is_relay(grant(1).at));
    }
}
