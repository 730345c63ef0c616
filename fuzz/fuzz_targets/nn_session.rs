//! A whole NetherNet endpoint, fed hostile signals and datagrams.

#![no_main]

use std::sync::OnceLock;
use std::time::Instant;

use anywire_fuzz::{Batch, Machine, Script, remote, settle};
use libfuzzer_sys::fuzz_target;
use nethernet::engine::Certificate;
use nethernet::frame::Channel;
use nethernet::session::{Admit, Config, Endpoint, Event, IceServer, SessionId, Socket, Use};
use nethernet::{ConnectionFlags, NetworkId, SessionError};
use seam::{Path, SocketId};

const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
    m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\n\
    a=ice-pwd:0123456789012345678901\r\na=setup:actpass\r\na=mid:0\r\na=max-message-size:262144\r\n\
    a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\n";

struct World {
    endpoint: Endpoint,
    sessions: Vec<SessionId>,
    /// Own signals, whose user fragments and connection ids the input may use.
    said: Vec<String>,
    sent: Vec<(Path, Vec<u8>)>,
    room: usize,
}

impl Machine for World {
    fn drain(&mut self, now: Instant) -> usize {
        let mut count = 0;
        let mut batch = Batch::new(self.room);
        self.endpoint.poll_transmit(now, &mut batch);
        count += batch.sent.len();
        self.sent.extend(batch.sent);
        self.sent.truncate(64);
        while let Some((_, text)) = self.endpoint.poll_signal() {
            count += 1;
            self.said.push(text);
        }
        self.said.truncate(64);
        while let Some(event) = self.endpoint.poll_event() {
            count += 1;
            match event {
                Event::Requested { session, .. } => self.sessions.push(session),
                Event::Opened { .. } => panic!("a session opened without a peer"),
                _ => {}
            }
        }
        count
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        self.endpoint.poll_timeout()
    }

    fn tick(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
    }
}

impl World {
    fn connection(&self, n: usize) -> u64 {
        let id = |text: &String| text.split(' ').nth(1).and_then(|id| id.parse().ok());
        self.said.get(n).and_then(id).unwrap_or(n as u64)
    }

    fn ufrag(&self, n: usize) -> String {
        let text = self.said.get(n).map(String::as_str).unwrap_or_default();
        let at = text.find("a=ice-ufrag:").map_or(0, |at| at + 12);
        text.get(at..at + 8).unwrap_or("abcdefgh").to_owned()
    }

    /// A signal of one of the four kinds, whole or with a part replaced.
    fn signal(&mut self, now: Instant, script: &mut Script<'_>) {
        let kind = script.below(6);
        let (at, from) = (script.below(8), NetworkId::P2p(script.below(4) as u64 + 1));
        let id = self.connection(at);
        let text = match kind {
            0 => format!("CONNECTREQUEST {id} {OFFER}{}", script.text()),
            1 => format!("CONNECTRESPONSE {id} {}{}", OFFER.replace("actpass", "active"), script.text()),
            2 => format!("CANDIDATEADD {id} candidate:1 1 udp 5 {} {} typ host {}", remote(at).ip(), 4000 + at, script.text()),
            3 => format!("CANDIDATEADD {id} {}", script.text()),
            4 => format!("CONNECTERROR {id} {}", script.byte()),
            _ => String::from_utf8_lossy(script.bytes()).into_owned(),
        };
        self.endpoint.handle_signal(now, &from, &text);
    }

    /// A datagram: raw, an own one sent back, or a binding request for one of the sessions.
    fn datagram(&mut self, now: Instant, script: &mut Script<'_>) {
        let path = Path::new(SocketId(script.below(2) as u16), remote(script.below(4)));
        let bytes = match script.below(4) {
            0 => script.bytes().to_vec(),
            1 => self.sent.get(script.below(64)).map(|(_, bytes)| bytes.clone()).unwrap_or_default(),
            2 => {
                let mut bytes = vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0];
                bytes.extend_from_slice(script.bytes());
                bytes
            }
            _ => {
                let name = format!("{}:abcd", self.ufrag(script.below(8)));
                let mut body = vec![0, 6, 0, name.len() as u8];
                body.extend_from_slice(name.as_bytes());
                body.resize(body.len().next_multiple_of(4), 0);
                body.extend_from_slice(script.short());
                body.resize(body.len().next_multiple_of(4), 0);
                let mut bytes = vec![0, 1, (body.len() >> 8) as u8, body.len() as u8, 0x21, 0x12, 0xA4, 0x42];
                bytes.extend_from_slice(&[7; 12]);
                bytes.extend_from_slice(&body);
                bytes
            }
        };
        self.endpoint.handle_datagram(now, path, &bytes);
    }
}

fuzz_target!(|input: &[u8]| {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    let certificate = CERTIFICATE.get_or_init(|| Certificate::generate().unwrap_or_else(|e| panic!("{e}"))).clone();
    let mut script = Script::new(input);
    let bits = script.byte();
    let socket = |id: u16, addr: &str, purpose| {
        let base = addr.parse().unwrap_or_else(|_| remote(0));
        Socket { id: SocketId(id), base, announce: vec![base], purpose }
    };
    let both = if bits & 1 == 0 { Use::Both } else { Use::Dial };
    let mut config = Config::new(vec![socket(0, "10.0.0.1:4000", both), socket(1, "[2001:db8::1]:4000", Use::Both)]);
    config.trickle = bits & 2 == 0;
    config.admit = if bits & 4 == 0 { Admit::All } else { Admit::Ask };
    config.sessions_max = 8;
    if bits & 8 != 0 {
        let (username, password) = ("u".to_owned(), "p".to_owned());
        config.servers = vec![IceServer::Stun(remote(0)), IceServer::Turn { addr: remote(1), username, password }];
    }
    config.flags = ConnectionFlags::from_bits(u32::from(bits >> 4));
    let mut now = Instant::now();
    let Ok(endpoint) = Endpoint::new(config, certificate, [1; 32], now) else { return };
    let mut world = World { endpoint, sessions: Vec::new(), said: Vec::new(), sent: Vec::new(), room: 16 };
    while let Some(next) = script.next_move() {
        match next % 8 {
            0 | 1 => world.signal(now, &mut script),
            2 | 3 => world.datagram(now, &mut script),
            4 => now += script.step(),
            5 => {
                if let Ok(id) = world.endpoint.connect(now, NetworkId::P2p(script.below(4) as u64)) {
                    world.sessions.push(id);
                }
            }
            6 => {
                let at = script.below(8);
                let Some(id) = world.sessions.get(at).copied() else { continue };
                match script.below(5) {
                    0 => world.endpoint.accept(now, id),
                    1 => world.endpoint.refuse(now, id, SessionError::from_code(script.u32())),
                    2 => world.endpoint.close(now, id),
                    3 => drop(world.endpoint.send(now, id, Channel::Reliable, vec![1; 10].into())),
                    _ => drop(world.endpoint.recv(now, id)),
                }
            }
            _ => world.room = script.below(4) + 1,
        }
        settle(&mut world, now);
        assert!(world.endpoint.len() <= 8, "more sessions than allowed");
    }
});
