//! The demultiplexer: whose datagram this is, and who may have sent it.

use bytes::Buf;
use codec::Value;
use np1::{Chunk, Fragment, HEADER, Kind, Packet, PlainTake};
use seam::{Path, PooledBuf, Refused};

use crate::parcels::may_be_word;
use crate::session::{Crypt, Role, Session};
use crate::{Event, FIRST_EXTRA, GAME, LOBBY, TUNNEL};

/// Bytes of a sealed frame before its ciphertext, and after it.
const SEAL_HEAD: usize = 8;
const SEAL_TAIL: usize = 16;

impl Session {
    pub(crate) fn ingress(&mut self, path: Path, data: PooledBuf) -> Result<(), Refused> {
        if self.over {
            return Err(Refused::Unexpected);
        }
        match path.socket {
            // Only the game's own bridge may put frames into the session (netpunch wire, section 1).
            GAME if self.bridge() == Some(path.remote) => {
                self.mesh.local_frame(self.now, data);
                Ok(())
            }
            GAME => Err(Refused::NotAllowed),
            LOBBY => self.outside(path, data),
            TUNNEL => self.tunnelled(path, data),
            extra if extra.0 >= FIRST_EXTRA => self.outside(path, data),
            _ => Err(Refused::Unexpected),
        }
    }

    fn outside(&mut self, path: Path, mut data: PooledBuf) -> Result<(), Refused> {
        self.arrived = true;
        // Such an address is never a sender's: it stands for the other end of a relay.
        if rendezvous::shared::session_of(path.remote).is_some() {
            return Err(Refused::NotAllowed);
        }
        if let Some(result) = self.probed(path, &data) {
            return result;
        }
        let Some((path, skip)) = self.through_relay(path, &data) else { return Ok(()) };
        data.advance(skip.min(data.len()));
        self.player_said(path, data)
    }

    /// What comes through the tunnel is a relay's word, or comes from the other end of a session that it carries.
    fn tunnelled(&mut self, path: Path, mut data: PooledBuf) -> Result<(), Refused> {
        self.tunnel_heard();
        let Some((from, skip)) = self.through_relay(path, &data) else { return Ok(()) };
        if from.socket == TUNNEL {
            return Err(Refused::NotAllowed);
        }
        data.advance(skip.min(data.len()));
        self.player_said(from, data)
    }

    fn player_said(&mut self, path: Path, mut data: PooledBuf) -> Result<(), Refused> {
        self.egress.received(path, data.len());
        if stun::looks_like(&data) {
            return self.punch.handle_stun(self.now, path, &data);
        }
        let packet = Packet::parse(&data)?;
        match packet.kind {
            Kind::Ack => {
                self.punch.handle_packet(self.now, path, packet)?;
                // It carries a token that was sent there: whoever holds the path received it. Nothing else of these
                // four says as much.
                self.way_heard(path, false);
                self.mesh.heard(self.now, self.beside(path).unwrap_or(path));
                Ok(())
            }
            Kind::Hello => {
                self.punch.handle_packet(self.now, path, packet)?;
                self.seen(path);
                Ok(())
            }
            Kind::Connected | Kind::Keepalive => self.punch.handle_packet(self.now, path, packet),
            Kind::Sealed => self.sealed(path, data, Protection::Sealed),
            Kind::Signed => self.sealed(path, data, Protection::Signed),
            Kind::Plain => self.plain(path, data),
            Kind::Quic => {
                let from = self.beside(path).unwrap_or(path);
                data.advance(HEADER);
                self.quic_came(from, data)
            }
            Kind::KeyExchange | Kind::Other(_) => Err(Refused::NotOurs),
        }
    }

    fn sealed(&mut self, path: Path, mut data: PooledBuf, protection: Protection) -> Result<(), Refused> {
        let Crypt::Sealed(opener) = &mut self.crypt else { return Err(Refused::NotAuthentic) };
        let frame = data.get_mut(HEADER..).ok_or(Refused::Malformed)?;
        let opened = match protection {
            Protection::Sealed => opener.open(self.now, frame),
            Protection::Signed => opener.verify_signed(self.now, frame),
        };
        let salt = match opened {
            Ok(opened) => opened.salt,
            Err(refused) => {
                self.unopened(path, refused);
                return Err(refused);
            }
        };
        data.truncate(data.len().saturating_sub(SEAL_TAIL));
        data.advance((HEADER + SEAL_HEAD).min(data.len()));

        let is_hi = data.first() == Some(&b'{') && is_mesh_hi(&data);
        let mut moves = None;
        let from = match self.salts.owner(salt) {
            Some(owner) if owner != path && (self.beside(path) == Some(owner) || self.on_trial(path, owner)) => {
                // The trial may have made this very path the primary.
                self.beside(path).unwrap_or(path)
            }
            Some(owner) if owner != path && !self.is_known(path) && self.is_known(owner) && !is_hi => {
                // A join wants its answer at the new address: it waits until the address is proved.
                let waits = data.first() == Some(&b'{') && is_named(&data, b"join");
                let stash = waits.then(|| data.to_vec());
                if self.salts.begin_move(self.now, owner, path, stash) {
                    self.punch.challenge(self.now, path);
                }
                if waits {
                    return Ok(());
                }
                moves = Some(owner);
                owner
            }
            Some(_) | None => path,
        };
        self.salts.touch(self.now, salt);
        if from == path || self.beside(path) == Some(from) {
            self.way_heard(path, true);
        }
        // Being heard may have changed which path is the primary.
        let from = self.beside(from).unwrap_or(from);
        self.heard(from);
        if Self::is_way(&data) {
            self.answer_way(path, from);
            self.pump();
            return Ok(());
        }
        let result = self.payload(from, data);
        if let Some(owner) = moves {
            self.mesh.doubt(self.now, owner);
        }
        // The rooms say in their events who was admitted; a salt is learned from somebody known only.
        self.pump();
        if from == path && self.is_known(path) {
            self.salts.learn(self.now, salt, path);
        }
        result
    }

    /// What cannot be opened and comes from nobody we know is answered with the plain reject, within its rate.
    fn unopened(&mut self, path: Path, refused: Refused) {
        let is_stranger = matches!(&self.role, Role::Host(side) if !side.lobby.is_member(path));
        if is_stranger && refused == Refused::NotAuthentic && self.may_reject(path) {
            self.egress.packet(path, np1::plain_reject("wrong password"));
        }
    }

    /// Type D: everything in a plain session, otherwise next to nothing (netpunch wire, section 4.2).
    fn plain(&mut self, path: Path, mut data: PooledBuf) -> Result<(), Refused> {
        data.advance(HEADER.min(data.len()));
        let from = self.beside(path).unwrap_or(path);
        match (&self.crypt, &mut self.role) {
            (Crypt::Plain, _) => {
                self.heard(path);
                self.payload(path, data)
            }
            (Crypt::Sealed(_), Role::Joiner(side)) => match np1::read_plain(&data) {
                PlainTake::Reject(reason) => side.lobby.handle_plain_reject(self.now, path, &reason),
                PlainTake::Chunk(chunk) => self.chunk_came(from, &chunk),
                PlainTake::Nothing => Err(Refused::NotAllowed),
            },
            // A relay's leader brings its world in pieces (netpunch wire, section 4.2).
            (Crypt::Sealed(_), Role::Host(side)) if side.lobby.leader() == Some(from) => match np1::read_plain(&data) {
                PlainTake::Chunk(chunk) => self.chunk_came(from, &chunk),
                PlainTake::Reject(_) | PlainTake::Nothing => Err(Refused::NotAllowed),
            },
            (Crypt::Sealed(_) | Crypt::Locked, _) => Err(Refused::NotAllowed),
        }
    }

    fn heard(&mut self, from: Path) {
        match &mut self.role {
            Role::Host(side) => side.lobby.heard(self.now, from),
            Role::Joiner(side) => {
                side.lobby.heard(self.now, from);
                self.proved(from);
            }
        }
        self.mesh.heard(self.now, from);
    }

    /// An authentic payload, by its first byte.
    fn payload(&mut self, from: Path, mut data: PooledBuf) -> Result<(), Refused> {
        match data.first() {
            Some(b'{') => self.message(from, &data),
            Some(&np1::GAME) => {
                self.may_send_frames(from)?;
                data.advance(1);
                self.mesh.handle_frame(self.now, from, data)
            }
            Some(&np1::ENVELOPE) => {
                self.may_send_frames(from)?;
                self.mesh.handle_envelope(self.now, from, data)
            }
            Some(&np1::FRAGMENT) => {
                let piece = Fragment::parse(&data)?;
                match self.reassembly.push(self.now, from, &piece)? {
                    Some(whole) => self.message(from, &whole),
                    None => Ok(()),
                }
            }
            Some(_) if data.starts_with(&np1::CHUNK_MAGIC) => {
                let chunk = Chunk::parse(&data)?;
                self.chunk_came(from, &chunk)
            }
            Some(_) | None => Err(Refused::Malformed),
        }
    }

    /// Frames come from players only, and at a joiner only after the host has confirmed its version.
    fn may_send_frames(&mut self, from: Path) -> Result<(), Refused> {
        match &mut self.role {
            Role::Host(side) if side.lobby.is_member(from) => Ok(()),
            Role::Host(side) => {
                side.lobby.unknown_member(self.now, from);
                Err(Refused::NotAllowed)
            }
            Role::Joiner(side) if side.lobby.is_confirmed() => Ok(()),
            Role::Joiner(_) => Err(Refused::NotAllowed),
        }
    }

    pub(crate) fn message(&mut self, from: Path, json: &[u8]) -> Result<(), Refused> {
        if is_mesh_hi(json) {
            let map = codec::object(json).map_err(|_| Refused::Malformed)?;
            if map.get("t").and_then(Value::as_str) == Some("mesh_hi") {
                let name = map.get("name").and_then(Value::as_str).ok_or(Refused::Malformed)?;
                return match &self.role {
                    Role::Joiner(side) if side.lobby.is_confirmed() => self.mesh.handle_hi(self.now, from, name),
                    // An old host ignores it as well.
                    Role::Joiner(_) | Role::Host(_) => Err(Refused::Unexpected),
                };
            }
        }
        if may_be_word(json) {
            match self.parcel_word(from, json) {
                Err(Refused::NotOurs) => {}
                other => return other,
            }
        }
        if is_named(json, crate::guess::WORD) {
            return self.guess_heard(from, json);
        }
        match &mut self.role {
            Role::Host(side) => side.lobby.handle_message(self.now, from, json),
            Role::Joiner(side) => side.lobby.handle_message(self.now, from, json),
        }
    }

    /// A frame for the own game.
    pub(crate) fn deliver(&mut self, from: Option<String>, frame: bytes::Bytes) {
        match self.bridge() {
            Some(bridge) => self.egress.packet(Path::new(GAME, bridge), frame),
            None if self.game == crate::GameSide::Inside => self.push(Event::Frame { from, data: frame }),
            None => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Protection {
    Sealed,
    Signed,
}

/// Whether a JSON text may be a `mesh_hi`; the parser has the last word.
fn is_mesh_hi(json: &[u8]) -> bool {
    is_named(json, b"mesh_hi")
}

/// Whether a JSON text says so near its beginning, where every known program writes the kind of a message.
fn is_named(json: &[u8], word: &[u8]) -> bool {
    json.get(..json.len().min(64)).is_some_and(|head| head.windows(word.len()).any(|w| w == word))
}
