//! A whole session on one side, the script as everybody else.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use np1::{Kind, Packet};
use seal::{Opener, Sealer, SessionKey};
use seam::{Dice, Path, PooledBuf, Reply, Request, RequestId, SocketId};
use session::{Command, Event, GAME, Session, TUNNEL};

use crate::words::{Memory, plain_name};
use crate::{Batch, Machine, Script, member, remote, settle};

/// The secret of every fuzzed session.
pub const SECRET: [u8; 12] = *b"twelve bytes";

/// Packets of others that are remembered for replay and for their tokens.
const KEPT: usize = 32;

/// A session and what the others know of it.
pub struct World {
    /// The session under test.
    pub session: Session,
    /// Virtual time.
    pub now: Instant,
    bridge: Path,
    is_host: bool,
    memory: Memory,
    /// Everybody else's half of the seal; each its own process.
    sealers: Vec<Sealer>,
    opener: Opener,
    room: usize,
    /// Hellos that wait for their echo, newest first.
    hellos: VecDeque<(Path, Vec<u8>)>,
    /// Sealed packets sent so far, to be sent again.
    old: VecDeque<Vec<u8>>,
    /// Frames the session sealed, by salt and counter: one keystream, one frame.
    sealed: BTreeMap<Vec<u8>, Vec<u8>>,
    requests: Vec<(RequestId, Request)>,
    fragment: u32,
    ended: bool,
}

impl Machine for World {
    fn drain(&mut self, now: Instant) -> usize {
        let mut count = 0;
        loop {
            let mut batch = Batch::new(self.room);
            let all = self.session.poll_transmit(now, &mut batch);
            let wrote = !batch.sent.is_empty();
            for (path, datagram) in batch.sent {
                count += 1;
                self.sent(path, datagram);
            }
            assert!(all || wrote, "the batch is called full and is empty");
            if all {
                break;
            }
        }
        while let Some(request) = self.session.poll_request() {
            count += 1;
            self.requests.push(request);
            assert!(self.requests.len() < 100, "requests without end");
        }
        while let Some(event) = self.session.poll_event() {
            assert!(!self.ended, "{event:?} after the end");
            self.ended = matches!(event, Event::Ended(_));
            count += 1;
        }
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.session.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.session.handle_timeout(now);
    }
}

impl World {
    /// The others of a session that was made at `now` with [`SECRET`], no password, and [`bridge`] as its game.
    #[must_use]
    pub fn new(session: Session, is_host: bool, now: Instant) -> Self {
        let key = SessionKey::derive(&SECRET, "");
        Self {
            session,
            now,
            bridge: bridge(),
            is_host,
            memory: Memory::default(),
            sealers: (0..4).map(|n| Sealer::new(&key, Dice::new([n; 32]))).collect(),
            opener: Opener::new(&key),
            room: 64,
            hellos: VecDeque::new(),
            old: VecDeque::new(),
            sealed: BTreeMap::new(),
            requests: Vec::new(),
            fragment: 0,
            ended: false,
        }
    }

    /// Plays the whole script.
    pub fn play(&mut self, script: &mut Script<'_>) {
        let mut deadline = settle(self, self.now);
        while let Some(kind) = script.next_move() {
            match kind % 16 {
                0 => self.now += script.step(),
                1 => self.now = deadline.map_or(self.now, |at| at.max(self.now)),
                2..=5 => self.message(script),
                6 => {
                    let payload = script.bytes();
                    self.payload(script, payload);
                }
                7 => {
                    let to = self.players(script);
                    let payload = np1::Envelope { to: &to, from: &plain_name(script), inner: b"gframe" }.write();
                    self.payload(script, &payload.unwrap_or_default());
                }
                8 => self.take(member(script.below(4)), script.bytes()),
                9 => {
                    let kind = Kind::ALL[script.below(Kind::ALL.len())];
                    self.take(member(script.below(4)), &np1::packet(kind, script.short()));
                }
                10 => self.echo(script),
                11 => {
                    let at = script.below(self.old.len());
                    if let Some(packet) = self.old.get(at).cloned() {
                        self.take(member(script.below(4)), &packet);
                    }
                }
                12 => {
                    let path = match script.below(4) {
                        0 => Path::new(SocketId(1), remote(1)),
                        1 => Path::new(TUNNEL, remote(1)),
                        _ => self.bridge,
                    };
                    self.take(path, script.bytes());
                }
                13 => self.reply(script),
                14 => self.command(script),
                _ => self.room = [1, 2, 7, 64][script.below(4)],
            }
            deadline = settle(self, self.now);
            let players = self.session.roster().players.len();
            assert!(players <= if self.is_host { 6 } else { 256 }, "{players} players");
            assert!(!self.ended || self.session.is_over());
            assert!(self.session.links().len() <= players);
        }
    }

    /// One datagram arrives.
    fn take(&mut self, path: Path, bytes: &[u8]) {
        let _ = self.session.handle_datagram(self.now, path, PooledBuf::from(bytes));
    }

    /// A lobby message, whole, in fragments, or spoiled.
    fn message(&mut self, script: &mut Script<'_>) {
        let mut json = if self.is_host { self.memory.to_host(script) } else { self.memory.to_joiner(script) };
        match script.below(8) {
            0 => {
                let at = usize::from(script.u16()) % json.len();
                json[at] = script.byte();
            }
            1 => json.resize(json.len() + 3_000, b' '),
            _ => {}
        }
        self.fragment += 1;
        for piece in np1::split(self.fragment, &json).collect::<Vec<_>>() {
            self.payload(script, &piece);
        }
    }

    /// A payload in a sealed, signed or plain packet from one of the players.
    fn payload(&mut self, script: &mut Script<'_>, payload: &[u8]) {
        let bits = script.byte();
        let who = usize::from(bits & 3);
        // Now and then from an address that is not this process's own.
        let path = member(if bits & 0x30 == 0x30 { usize::from(bits >> 6) } else { who });
        let mut frame = vec![0; payload.len() + seal::OVERHEAD];
        let Some(sealer) = self.sealers.get_mut(who) else { return };
        let packet = match bits & 0x0C {
            0x0C => np1::packet(Kind::Plain, payload),
            0x08 => {
                sealer.sign(&[payload], &mut frame);
                np1::packet(Kind::Signed, &frame)
            }
            _ => {
                sealer.seal(&[payload], &mut frame);
                np1::packet(Kind::Sealed, &frame)
            }
        };
        self.old.push_front(packet.clone());
        self.old.truncate(KEPT);
        self.take(path, &packet);
    }

    /// Answers a hello as whoever has that address would.
    fn echo(&mut self, script: &mut Script<'_>) {
        let at = script.below(self.hellos.len());
        let Some((path, token)) = self.hellos.get(at).cloned() else { return };
        let path = if script.byte() == 1 { member(script.below(4)) } else { path };
        self.take(path, &np1::packet(Kind::Ack, &token));
    }

    fn reply(&mut self, script: &mut Script<'_>) {
        let at = script.below(self.requests.len());
        if at >= self.requests.len() {
            return;
        }
        let (id, request) = self.requests.remove(at);
        let reply = match request {
            Request::Resolve { .. } => Reply::Resolved((0..script.below(4)).map(remote).collect()),
            Request::Http { .. } if script.below(8) == 0 => Reply::Unreachable("no route".to_owned()),
            Request::Http { .. } => {
                Reply::Http { status: [200, 200, 429, 503][script.below(4)], body: script.bytes().to_vec() }
            }
            Request::OpenTunnel { .. } if script.flag() => {
                // It is answered again when it breaks.
                self.requests.push((
                    id,
                    Request::OpenTunnel { socket: TUNNEL, url: String::new(), protocol: "", timeout: Duration::ZERO },
                ));
                Reply::TunnelOpen
            }
            Request::OpenTunnel { .. } => Reply::Unreachable("closed".to_owned()),
            Request::CloseTunnel => return,
            _ => Reply::Stretched([script.byte(); 32]),
        };
        self.session.handle_reply(self.now, id, reply);
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let command = match script.below(12) {
            0 => Command::Chat(script.text()),
            1 => Command::Name(plain_name(script)),
            2 => Command::Company { player: script.flag().then(|| plain_name(script)), id: script.u32() },
            3 => Command::Stage(script.text()),
            4 => Command::Mode(if script.flag() { lobby::Mode::Coop } else { lobby::Mode::Companies }),
            5 => Command::Start { save: script.flag(), switch: script.flag() },
            6 => Command::Log((0..script.below(40)).map(|n| format!("line {n}")).collect()),
            7 => Command::Note(script.text()),
            8 => Command::Kick { player: plain_name(script), text: script.text() },
            9 | 10 => Command::Frame(Bytes::copy_from_slice(script.short())),
            _ if script.byte().is_multiple_of(8) => Command::Quit,
            _ => return,
        };
        self.session.command(self.now, command);
    }

    /// Somebody's name, of those there are if there are any.
    fn players(&self, script: &mut Script<'_>) -> String {
        let roster = self.session.roster();
        let at = script.below(roster.players.len() + 1);
        roster.players.keys().nth(at).cloned().unwrap_or_else(|| plain_name(script))
    }

    /// One datagram left.
    fn sent(&mut self, path: Path, datagram: Vec<u8>) {
        if path.socket == GAME {
            assert_eq!(path, self.bridge, "a frame for another program");
            return;
        }
        if np1::read_relay_bind(&datagram).is_ok() || rendezvous::shared::Word::parse(&datagram).is_ok() {
            return;
        }
        if stun::looks_like(&datagram) {
            assert!(stun::Request::parse(&datagram).is_ok());
            return;
        }
        let packet = Packet::parse(&datagram).expect("what is sent is a packet");
        match packet.kind {
            Kind::Hello => {
                self.hellos.push_front((path, packet.payload.to_vec()));
                self.hellos.truncate(KEPT);
            }
            Kind::Sealed => self.opened(packet.payload),
            Kind::Plain => assert!(matches!(np1::read_plain(packet.payload), np1::PlainTake::Reject(_))),
            Kind::Ack | Kind::Connected | Kind::Keepalive => {}
            other => panic!("sends {other:?}"),
        }
    }

    /// Everything sealed opens, and no keystream is used for two frames.
    fn opened(&mut self, frame: &[u8]) {
        let head = frame.get(..8).unwrap_or_default().to_vec();
        if let Some(before) = self.sealed.get(&head) {
            assert_eq!(before, frame, "one salt and counter, two frames");
            return;
        }
        self.sealed.insert(head, frame.to_vec());
        let mut copy = frame.to_vec();
        let opened = self.opener.open(self.now, &mut copy).expect("what is sealed opens");
        let payload = BytesMut::from(&*opened.plain);
        match np1::Payload::parse(&payload).expect("what is sent is read") {
            np1::Payload::Json(json) => {
                assert!(json.len() <= np1::FRAGMENT_DATA);
                self.memory.learn(json);
            }
            np1::Payload::Fragment(piece) => assert!(piece.data.len() <= np1::FRAGMENT_DATA),
            np1::Payload::Game(_) | np1::Payload::Envelope(_) => {}
            other => panic!("sends {other:?}"),
        }
    }
}

/// The game's own end.
#[must_use]
pub fn bridge() -> Path {
    Path::new(GAME, ([127, 0, 0, 1], 7_773).into())
}
