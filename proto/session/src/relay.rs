//! Bindings at relays: which session of the master's shared port, or which port of its own, carries what to whom.
//!
//! The shared port serves all pairs of our own ends: a number in front of each datagram names the pair, and rooms know
//! the other end by an address that stands for that number ([`rendezvous::shared::stand_in`]). A port for old peers
//! carries datagrams as they are, so its own address is the other end.
//!
//! A relay knows an end by its source address. A router that gives out another one breaks that in silence, so a
//! binding in use is repeated (pain 8).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use np1::Role;
use rendezvous::shared::{DATA_HEADER, Word, session_of, stand_in};
use rendezvous::words::Grant;

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
const ASK_GAP: Duration = Duration::from_millis(100);

/// What a relay's datagram meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Not from a relay of ours.
    Not,
    /// Something between the relay and us, or nothing of use.
    Taken,
    /// From the other end: how many bytes stand before its datagram, and the address that stands for it.
    Data { skip: usize, from: SocketAddr },
    /// Our end is bound; `other` tells of theirs, `again` that it was bound before and the relay asked for a new proof.
    Bound { other_end: SocketAddr, other: bool, again: bool },
}

#[derive(Clone, Debug)]
struct Binding {
    grant: Grant,
    shared: bool,
    role: Role,
    cookie: [u8; 8],
    session: Option<u32>,
    other: bool,
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
            (true, ..) => RENEW_EVERY,
            (false, true, _) if self.session.is_some() && !self.proving => WAIT_EVERY,
            (false, false, Role::Joiner) => OLD_JOINER_EVERY,
            (false, true, _) | (false, false, Role::Host) => ASK_EVERY,
        }
    }

    fn ask(&self) -> Vec<u8> {
        let Self { grant: Grant { id, .. }, role, cookie, .. } = *self;
        if self.shared { Word::Ask { id, role, cookie }.write() } else { np1::relay_bind(&id, role) }
    }
}

/// The bindings of one session. At most 256, each for one pair.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    by_grant: BTreeMap<Grant, Binding>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
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
            role,
            cookie: [0; 8],
            session: None,
            other: false,
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

    /// Takes a datagram that arrived from `from`.
    pub(crate) fn handle(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Heard {
        let mut ours = self.by_grant.values_mut().filter(|binding| binding.grant.at == from).peekable();
        if ours.peek().is_none() {
            return Heard::Not;
        }
        if np1::read_relay_bound(datagram).is_ok() {
            return Heard::Taken;
        }
        match Word::parse(datagram) {
            Ok(Word::Data { session, .. }) => match ours.find(|binding| binding.session == Some(session)) {
                Some(_) => Heard::Data { skip: DATA_HEADER, from: stand_in(session) },
                None => Heard::Taken,
            },
            Ok(Word::Proof { id, cookie }) => {
                if let Some(binding) = ours.find(|binding| binding.grant.id == id) {
                    // The relay repeats nothing by itself: one answer per ask, so this cannot go round for ever.
                    binding.proving |= binding.cookie != cookie;
                    binding.cookie = cookie;
                    binding.next = now;
                    let ask = (binding.grant.at, binding.ask());
                    binding.asked = Some(now);
                    binding.next = now + binding.pause().min(ASK_EVERY);
                    self.out.push_back(ask);
                }
                Heard::Taken
            }
            Ok(Word::Bound { id, session, other }) => {
                let Some(binding) = ours.find(|binding| binding.shared && binding.grant.id == id) else {
                    return Heard::Taken;
                };
                let again = binding.session.is_some() && binding.proving;
                binding.session = Some(session);
                binding.other = other;
                binding.proving = false;
                binding.next = now + binding.pause();
                Heard::Bound { other_end: stand_in(session), other, again }
            }
            Ok(Word::Ask { .. }) => Heard::Taken,
            // From a port for old peers: their own words.
            Err(_) => match ours.any(|binding| !binding.shared) {
                true => Heard::Data { skip: 0, from },
                false => Heard::Taken,
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
    pub(crate) fn shared_at(&self, session: u32) -> Option<SocketAddr> {
        self.by_grant.values().find(|binding| binding.session == Some(session)).map(|binding| binding.grant.at)
    }

    /// The next ask to send.
    pub(crate) fn poll(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.by_grant.retain(|_, binding| binding.in_use || binding.until > now);
        for binding in self.by_grant.values_mut().filter(|binding| binding.next <= now) {
            binding.asked = Some(now);
            binding.next = now + if binding.proving { ASK_EVERY.min(binding.pause()) } else { binding.pause() };
            let ask = (binding.grant.at, binding.ask());
            self.out.push_back(ask);
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

    fn sent(relays: &mut Relays) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| relays.poll()).map(|(_, bytes)| bytes).collect()
    }

    /// A joiner that is bound at session 5.
    fn bound(now: Instant) -> Relays {
        let mut relays = Relays::default();
        assert_eq!(relays.granted(now, grant(1), true, Role::Joiner), None);
        let at = grant(1).at;
        assert_eq!(relays.handle(now, at, &Word::Proof { id: ID, cookie: [3; 8] }.write()), Heard::Taken);
        let asks = [[0; 8], [3; 8]].map(|cookie| Word::Ask { id: ID, role: Role::Joiner, cookie }.write());
        assert_eq!(sent(&mut relays), asks);
        let answer = Word::Bound { id: ID, session: 5, other: false }.write();
        let want = Heard::Bound { other_end: stand_in(5), other: false, again: false };
        assert_eq!(relays.handle(now, at, &answer), want);
        relays
    }

    #[test]
    fn a_cookie_is_repeated_at_once_and_data_stands_for_its_session() {
        let now = Instant::now();
        let mut relays = bound(now);
        let data = |session| Word::Data { session, datagram: b"NP1:H" }.write();
        assert_eq!(relays.handle(now, grant(1).at, &data(5)), Heard::Data { skip: 8, from: stand_in(5) });
        assert_eq!(relays.handle(now, grant(1).at, &data(6)), Heard::Taken);
        assert_eq!(relays.handle(now, grant(2).at, &data(5)), Heard::Not);
        assert_eq!(relays.shared_at(5), Some(grant(1).at));
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
        relays.handle(later, grant(1).at, &proof);
        let answer = Word::Bound { id: ID, session: 5, other: true }.write();
        let want = Heard::Bound { other_end: stand_in(5), other: true, again: true };
        assert_eq!(relays.handle(later, grant(1).at, &answer), want);
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
        assert_eq!(relays.handle(now, grant(1).at, &np1::relay_bound(&ID)), Heard::Taken);
        assert_eq!(relays.handle(now, grant(1).at, b"NP1:H"), Heard::Data { skip: 0, from: grant(1).at });
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
