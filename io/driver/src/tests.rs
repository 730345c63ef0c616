//! The driver with a stand-in for the session.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lobby::End;
use net::UdpSocket;
use seam::{Outbox, Path, PooledBuf, Refused, Reply, Request, RequestId};
use session::{Command, Event, LOBBY};

use crate::core::Core;
use crate::machine::Machine;
use crate::{Facts, Handle};

const PATIENCE: Duration = Duration::from_secs(10);

/// Echoes datagrams, says what it was told, and does what some texts ask for.
#[derive(Default)]
struct Stub {
    peers: Vec<Path>,
    out: VecDeque<(Path, Vec<u8>)>,
    events: VecDeque<Event>,
    requests: VecDeque<(RequestId, Request)>,
    byes: Vec<Instant>,
    deaf: bool,
    restless: bool,
    turns: Arc<AtomicUsize>,
}

impl Machine for Stub {
    fn handle_datagram(&mut self, _: Instant, path: Path, data: PooledBuf) -> Result<(), Refused> {
        if !self.peers.contains(&path) {
            self.peers.push(path);
        }
        if data.starts_with(b"bad") {
            return Err(Refused::Malformed);
        }
        self.events.push_back(Event::Log(format!("got {}", data.len())));
        self.out.push_back((path, data.to_vec()));
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        if self.byes.first().is_some_and(|due| *due <= now) {
            self.byes.remove(0);
            self.out.extend(self.peers.iter().map(|path| (*path, b"bye".to_vec())));
            if self.byes.is_empty() {
                self.events.push_back(Event::Ended(End::Quit));
            }
        }
    }

    fn handle_reply(&mut self, _: Instant, id: RequestId, reply: Reply) {
        self.events.push_back(Event::Log(format!("{} {reply:?}", id.0)));
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Quit if !self.deaf => {
                self.byes = (0..3).map(|n| now + Duration::from_millis(20) * n).collect();
            }
            Command::Chat(text) if text == "panic" => panic!("asked to"),
            Command::Chat(text) if text == "deaf" => self.deaf = true,
            Command::Chat(text) if text == "restless" => self.restless = true,
            Command::Chat(text) if text == "resolve" => {
                let host = "192.0.2.7".to_owned();
                self.requests.push_back((RequestId(5), Request::Resolve { host, port: 1 }));
            }
            Command::Chat(text) => {
                for number in 0..text.parse::<u32>().unwrap_or(0) {
                    let bytes = [number.to_be_bytes().as_slice(), &[0; 996]].concat();
                    self.out.extend(self.peers.iter().map(|path| (*path, bytes.clone())));
                }
                self.events.push_back(Event::Log(text));
            }
            _ => {}
        }
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut impl Outbox) {
        while let Some((path, bytes)) = self.out.front() {
            let taken = out.datagram(*path, bytes.len(), |space| {
                space.copy_from_slice(bytes);
                bytes.len()
            });
            if !taken {
                return;
            }
            self.out.pop_front();
        }
    }

    fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop_front()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if self.restless {
            return Some((Instant::now(), "a fault"));
        }
        self.byes.first().map(|due| (*due, "bye"))
    }
}

struct Rig {
    handle: Handle,
    address: SocketAddr,
    player: StdSocket,
    turns: Arc<AtomicUsize>,
}

fn rig() -> Rig {
    let socket = UdpSocket::bind(LOBBY, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr();
    let stub = Stub::default();
    let turns = Arc::clone(&stub.turns);
    let core = Core::new(stub, vec![socket], Instant::now()).unwrap();
    let handle = crate::thread::start(core, Facts::default(), vec![Event::Log("first".to_owned())]).unwrap();
    assert_eq!(handle.event_timeout(PATIENCE), Some(Event::Log("first".to_owned())));
    let player = StdSocket::bind("127.0.0.1:0").unwrap();
    player.set_read_timeout(Some(PATIENCE)).unwrap();
    Rig { handle, address, player, turns }
}

impl Rig {
    fn say(&self, text: &str) {
        self.handle.command(Command::Chat(text.to_owned())).unwrap();
    }

    fn hear(&self) -> Vec<u8> {
        let mut buffer = vec![0; 2048];
        let (len, _) = self.player.recv_from(&mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }

    fn echo(&self) {
        self.player.send_to(b"hello", self.address).unwrap();
        assert_eq!(self.hear(), b"hello");
        assert_eq!(self.event(), Event::Log("got 5".to_owned()));
    }

    fn event(&self) -> Event {
        self.handle.event_timeout(PATIENCE).unwrap()
    }
}

#[test]
fn datagrams_commands_and_answers_reach_the_machine_and_its_words_come_out() {
    let rig = rig();
    rig.echo();
    rig.say("word");
    assert_eq!(rig.event(), Event::Log("word".to_owned()));
    rig.say("resolve");
    assert_eq!(rig.event(), Event::Log("5 Resolved(1 addresses)".to_owned()));
}

#[test]
fn quitting_sends_every_bye_before_the_last_event() {
    let rig = rig();
    rig.echo();
    rig.handle.command(Command::Quit).unwrap();
    assert_eq!(rig.event(), Event::Ended(End::Quit));
    rig.player.set_nonblocking(true).unwrap();
    assert_eq!((rig.hear(), rig.hear(), rig.hear()), (b"bye".to_vec(), b"bye".to_vec(), b"bye".to_vec()));
    assert_eq!(rig.handle.join(), End::Quit);
    assert!(rig.handle.is_over());
    assert_eq!(rig.handle.command(Command::Chat(String::new())), Err(crate::CommandError::Over));
}

#[test]
fn dropping_the_handle_leaves_the_lobby() {
    let rig = rig();
    rig.echo();
    drop(rig.handle);
    let mut buffer = [0; 16];
    for _ in 0..3 {
        assert_eq!(rig.player.recv_from(&mut buffer).unwrap().0, 3);
    }
}

#[test]
fn a_session_that_does_not_leave_is_ended_anyway() {
    let rig = rig();
    rig.say("deaf");
    rig.handle.command(Command::Quit).unwrap();
    assert_eq!(rig.event(), Event::Ended(End::Quit));
}

#[test]
fn a_panic_in_the_network_thread_ends_the_session_with_its_text() {
    let rig = rig();
    rig.say("panic");
    let fault = End::Fault("the network thread panicked: asked to".to_owned());
    assert_eq!(rig.event(), Event::Ended(fault.clone()));
    assert_eq!(rig.handle.join(), fault);
}

#[test]
fn more_datagrams_than_a_batch_holds_all_leave_in_order() {
    let rig = rig();
    rig.echo();
    // Ten receivers, so that what is more than a batch is less than each one's buffer on a stock system.
    let others: Vec<StdSocket> = (0..9).map(|_| StdSocket::bind("127.0.0.1:0").unwrap()).collect();
    for other in &others {
        other.send_to(b"me too", rig.address).unwrap();
        assert_eq!(rig.event(), Event::Log("got 6".to_owned()));
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(other.recv_from(&mut [0; 16]).unwrap().0, 6);
    }
    rig.say("60");
    for receiver in others.iter().chain([&rig.player]) {
        for number in 0..60_u32 {
            let mut got = [1; 2048];
            assert_eq!(receiver.recv_from(&mut got).unwrap().0, 1000);
            assert_eq!(got[..4], number.to_be_bytes());
        }
    }
}

#[test]
fn refused_datagrams_are_counted_and_told_once_a_second() {
    let rig = rig();
    for _ in 0..50 {
        rig.player.send_to(b"bad", rig.address).unwrap();
    }
    let Event::Log(first) = rig.event() else { panic!("a line") };
    assert!(first.starts_with("datagrams not taken: ") && first.ends_with(" malformed"), "{first}");
    rig.echo();
    assert_eq!(rig.handle.try_event(), None, "the others wait for the second to pass");
}

#[test]
fn a_machine_that_always_wants_another_turn_does_not_burn_a_core() {
    let rig = rig();
    rig.say("restless");
    assert_eq!(rig.handle.event_timeout(Duration::from_millis(300)), None);
    let turns = rig.turns.load(Ordering::Relaxed);
    assert!(turns < 1000, "{turns} turns in 0.3 s");
    rig.echo();
}
