//! People outside who make trouble: some know nothing, some have recorded what passed, one has the key and no place.
//!
//! Left out is what the protocol cannot tell from a player: with the key, a frame or a `mesh_hi` from any address is as
//! good as a joiner's (netpunch wire, section 8.5), and what was recorded on its way to one player opens at another.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use joincode::Code;
use np1::{Kind, packet};
use seal::{OVERHEAD, Sealer, SessionKey};
use seam::Dice;

/// How many addresses trouble comes from.
const ADDRESSES: u64 = 16;
/// Datagrams of one burst of replays.
const REPLAYED: usize = 20;
/// Datagrams remembered by whoever listens in.
const RECORDED: usize = 256;

/// One hostile datagram: claimed source, target, bytes.
pub(super) type Shot = (SocketAddr, SocketAddr, Vec<u8>);

/// What was sent to strangers, by what the documents allow.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Bytes of H they sent from an address of their own, and of A they got; an answer is no larger than its question.
    hellos: u64,
    acks: u64,
    /// Datagrams that reject: plain, and sealed.
    plain: u64,
    sealed: u64,
    /// Recorded frames from an address of their own, and the questions whether that address can be reached.
    replays: u64,
    challenges: u64,
    /// Anything else.
    other: u64,
}

/// The strangers of one world.
pub(super) struct Strangers {
    dice: Dice,
    recorded: VecDeque<Shot>,
    sealer: Option<Sealer>,
    told: Told,
}

impl Strangers {
    pub(super) fn new(dice: Dice) -> Self {
        Self { dice, recorded: VecDeque::new(), sealer: None, told: Told::default() }
    }

    /// The code was published.
    pub(super) fn learn(&mut self, code: &str) {
        if self.sealer.is_none()
            && let Ok(Code::Plain(profile)) = joincode::parse(code)
            && let Some(secret) = profile.secret
        {
            self.sealer = Some(Sealer::new(&SessionKey::derive(&secret, ""), self.dice.child()));
        }
    }

    /// A datagram arrived somewhere. Only what arrived is recorded: whoever can also keep it from arriving sits on the
    /// way and can do worse.
    pub(super) fn overhear(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if !is_stranger(from) && self.dice.chance(0.05) {
            if self.recorded.len() >= RECORDED {
                self.recorded.pop_front();
            }
            self.recorded.push_back((from, to, bytes.to_vec()));
        }
    }

    /// A datagram was sent to a stranger.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let told = &mut self.told;
        match np1::Packet::parse(bytes).map(|packet| packet.kind) {
            Ok(Kind::Ack) => told.acks += bytes.len() as u64,
            Ok(Kind::Plain) => told.plain += 1,
            Ok(Kind::Sealed) => told.sealed += 1,
            Ok(Kind::Hello) => told.challenges += 1,
            _ => told.other += 1,
        }
    }

    /// The next burst against `target`, which may be the host; `member` is the address of somebody who plays.
    pub(super) fn burst(&mut self, target: SocketAddr, member: SocketAddr) -> Vec<Shot> {
        let shots = self.shots(target, member);
        let hellos = shots.iter().filter(|(from, _, bytes)| is_stranger(*from) && bytes.get(4) == Some(&b'H'));
        self.told.hellos += hellos.map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>();
        shots
    }

    fn shots(&mut self, target: SocketAddr, member: SocketAddr) -> Vec<Shot> {
        let own = stranger(self.dice.below(ADDRESSES));
        match self.dice.below(8) {
            0 => (0..20).map(|_| (own, target, self.hello())).collect(),
            1 => (0..10).map(|_| (own, target, self.noise(Kind::Sealed))).collect(),
            2 => {
                let kinds = [Kind::Signed, Kind::Plain, Kind::Ack, Kind::Connected, Kind::Keepalive, Kind::KeyExchange];
                kinds.into_iter().map(|kind| (own, target, self.noise(kind))).collect()
            }
            // A member's address on what only its owner can write, or what means nothing.
            3 => [Kind::Sealed, Kind::Signed, Kind::Ack, Kind::Connected, Kind::Keepalive]
                .into_iter()
                .map(|kind| (member, target, self.noise(kind)))
                .collect(),
            4 => {
                let shots: Vec<Shot> =
                    self.recorded.iter().take(REPLAYED).map(|(_, to, bytes)| (own, *to, bytes.clone())).collect();
                self.told.replays += shots.iter().filter(|(.., bytes)| bytes.get(4) == Some(&b'E')).count() as u64;
                shots
            }
            5 => self.recorded.iter().take(REPLAYED).cloned().collect(),
            6 => self.sealed(own, target, |dice| {
                let count = [0, 1, 8192, 8193, u32::MAX][dice.below(5) as usize];
                let index = [0, 1, 8191, u32::MAX][dice.below(4) as usize];
                let mut piece = vec![np1::FRAGMENT];
                piece.extend([dice.u32(), index, count].iter().flat_map(|n| n.to_be_bytes()));
                piece.extend(vec![b'x'; dice.below(1300) as usize]);
                piece
            }),
            _ => self.sealed(own, target, |dice| match dice.below(4) {
                0 => br#"{"t": "join", "version": "0.0.0.1", "name": "p1", "mesh": true}"#.to_vec(),
                1 => br#"{"t": "join", "version": 7, "name": ["#.to_vec(),
                2 => br#"{"t": "leave"}"#.to_vec(),
                _ => br#"{"t": "bye"}"#.to_vec(),
            }),
        }
    }

    fn hello(&mut self) -> Vec<u8> {
        packet(Kind::Hello, &self.dice.bytes::<8>())
    }

    fn noise(&mut self, kind: Kind) -> Vec<u8> {
        let bytes: Vec<u8> = (0..24 + self.dice.below(100)).map(|_| self.dice.u32() as u8).collect();
        packet(kind, &bytes)
    }

    fn sealed(&mut self, own: SocketAddr, target: SocketAddr, make: impl Fn(&mut Dice) -> Vec<u8>) -> Vec<Shot> {
        let Some(sealer) = &mut self.sealer else { return Vec::new() };
        let mut shots = Vec::new();
        for _ in 0..10 {
            let payload = make(&mut self.dice);
            let mut body = vec![0; payload.len() + OVERHEAD];
            let used = sealer.seal(&[&payload], &mut body);
            shots.push((own, target, packet(Kind::Sealed, &body[..used])));
        }
        shots
    }

    /// What strangers got beyond the documents within `seconds`.
    pub(super) fn excess(&self, seconds: u64) -> Option<String> {
        let told = self.told;
        // A plain reject per address and 2 s (netpunch wire, section 4.3); sealed answers two at once and one more a
        // second (docs/wire/extensions.md).
        let plain = ADDRESSES * (seconds / 2 + 1);
        let sealed = ADDRESSES * (seconds + 2);
        // A frame that was recorded but not heard asks the address to prove itself, ten times in a second.
        let is_over = told.challenges > 10 * told.replays
            || told.acks > told.hellos
            || told.plain > plain
            || told.sealed > sealed
            || told.other > 0;
        is_over.then(|| format!("strangers got more than {plain} plain and {sealed} sealed answers: {told:?}"))
    }
}

/// Whether an address is outside of the session.
pub(super) fn is_stranger(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V4(v4) if v4.ip().octets()[..2] == [203, 0])
}

fn stranger(n: u64) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(203, 0, 113, n as u8), 4000))
}
