//! Discovery among machines of one network, in virtual time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests stand outside of test functions")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use netem::{Link, LinkConfig, Loss};
use nethernet::discovery::{
    Config, Discovery, DiscoveryError, Event, Heard, Interface, OWN_V4, PORT, SHARED_V4, WATCHED_MAX,
};
use nethernet::envelope::{APP_ID, Key};
use nethernet::packet::Packet;
use seam::{Path, Refused};

const BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 255);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

/// What an application does with its discovery: it advertises by a text, and keeps what it was told.
struct Machine {
    discovery: Discovery,
    address: SocketAddr,
    advertises: Option<&'static str>,
    told: Vec<Event>,
    signals: Vec<String>,
}

/// What is on its way between two machines.
type Wire = Link<(Path, Vec<u8>)>;

/// A network whose broadcasts reach every machine, the sender's own included.
struct Lan {
    now: Instant,
    machines: Vec<Machine>,
    links: BTreeMap<(usize, usize), Wire>,
    link: LinkConfig,
    sent: Vec<(usize, SocketAddr, Vec<u8>)>,
}

impl Lan {
    fn new(link: LinkConfig) -> Self {
        Self { now: Instant::now(), machines: Vec::new(), links: BTreeMap::new(), link, sent: Vec::new() }
    }

    fn add(&mut self, id: u64, config: Config) -> usize {
        let n = u8::try_from(self.machines.len()).unwrap();
        let mut discovery = Discovery::new(config, [n + 1; 32], self.now);
        discovery.open(self.now, id).unwrap();
        discovery.set_interfaces(self.now, [Ipv4Addr::BROADCAST, BROADCAST].map(Interface::V4));
        let address = SocketAddr::from(([10, 0, 0, n + 1], 40_000));
        self.machines.push(Machine { discovery, address, advertises: None, told: Vec::new(), signals: Vec::new() });
        usize::from(n)
    }

    fn host(&mut self, id: u64, text: &'static str) -> usize {
        let n = self.add(id, Config::default());
        self.machines[n].advertises = Some(text);
        let now = self.now;
        self.machines[n].discovery.advertise(now, id, true).unwrap();
        n
    }

    fn seeker(&mut self, id: u64) -> usize {
        let n = self.add(id, Config::default());
        let now = self.now;
        self.machines[n].discovery.discover(now, id, true).unwrap();
        n
    }

    fn deliver(&mut self, from: usize, to: SocketAddr, bytes: &[u8]) {
        let source = self.machines[from].address;
        let broadcast = to.ip() == IpAddr::V4(BROADCAST) || to.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
        for n in 0..self.machines.len() {
            let socket = match () {
                () if broadcast && to.port() == PORT => SHARED_V4,
                () if to == self.machines[n].address => OWN_V4,
                () => continue,
            };
            let seed = [u8::try_from(from * 16 + n).unwrap(); 32];
            let link = self.links.entry((from, n)).or_insert_with(|| Link::new(self.link, seed));
            link.push(self.now, (Path::new(socket, source), bytes.to_vec()));
        }
    }

    /// Everything that happens at this instant.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for (key, link) in &mut self.links {
                while let Some((path, bytes)) = link.pop(self.now) {
                    moved = true;
                    // Refusals are what some of these tests provoke.
                    let _refused = self.machines[key.1].discovery.handle_datagram(self.now, path, bytes[..].into());
                }
            }
            for n in 0..self.machines.len() {
                let machine = &mut self.machines[n];
                machine.discovery.handle_timeout(self.now);
                while let Some(event) = machine.discovery.poll_event() {
                    if let (Event::Asked { ask, .. }, Some(text)) = (&event, machine.advertises) {
                        machine.discovery.answer(self.now, *ask, text.as_bytes()).unwrap();
                    }
                    machine.told.push(event);
                }
                while let Some(signal) = machine.discovery.poll_signal() {
                    machine.signals.push(signal.text);
                }
                let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
                assert!(machine.discovery.poll_transmit(self.now, &mut out));
                for (path, bytes) in out {
                    moved = true;
                    assert_eq!(path.socket, OWN_V4, "everything leaves from the own socket");
                    self.sent.push((n, path.remote, bytes.clone()));
                    self.deliver(n, path.remote, &bytes);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let links = self.links.values().filter_map(|link| link.poll_timeout().map(|due| due.0));
            let machines = self.machines.iter().filter_map(|m| m.discovery.poll_timeout().map(|due| due.0));
            let Some(next) = links.chain(machines).min().filter(|next| *next <= end) else { break };
            assert!(next > self.now, "a machine asks to be woken in the past, though it was drained");
            self.now = next;
        }
        self.now = end;
    }

    fn hosts(&self, n: usize) -> Vec<(u64, String)> {
        let text = |e: &Event| match e {
            Event::Host(host) if host.new => Some((host.id, String::from_utf8(host.data().into_owned()).unwrap())),
            _ => None,
        };
        self.machines[n].told.iter().filter_map(text).collect()
    }

    fn signals(&self, n: usize) -> Vec<String> {
        self.machines[n].signals.clone()
    }

    /// Sends bytes to a machine's own socket from somewhere, past all links.
    fn inject(&mut self, to: usize, from: &str, packet: Packet<'_>) -> Result<(), Refused> {
        let bytes = Key::from_app_id(APP_ID).seal(&packet.encode().unwrap());
        let path = Path::new(OWN_V4, from.parse().unwrap());
        self.machines[to].discovery.handle_datagram(self.now, path, bytes[..].into())
    }
}

#[test]
fn a_host_is_found_at_once_and_lost_after_its_silence() {
    let mut lan = Lan::new(LinkConfig { delay: ms(1), ..LinkConfig::default() });
    lan.host(1, "one");
    let seeker = lan.seeker(2);
    lan.run(ms(5));
    assert_eq!(lan.hosts(seeker), [(1, "one".to_owned())]);
    let now = lan.now;
    lan.machines[0].discovery.advertise(now, 1, false).unwrap();
    lan.run(ms(14_990));
    assert!(!lan.machines[seeker].told.contains(&Event::Lost(1)));
    lan.run(ms(20));
    assert!(lan.machines[seeker].told.contains(&Event::Lost(1)));
}

#[test]
fn hosts_and_seekers_find_each_other_over_a_bad_link() {
    let link = LinkConfig {
        loss: Loss::Random(0.4),
        delay: ms(20),
        jitter: ms(40),
        reorder: 0.2,
        duplicate: 0.2,
        ..LinkConfig::default()
    };
    let mut lan = Lan::new(link);
    for (id, text) in [(1, "one"), (2, "two"), (3, "three")] {
        lan.host(id, text);
    }
    let seekers = [lan.seeker(10), lan.seeker(11)];
    lan.run(ms(40_000));
    for seeker in seekers {
        let mut found = lan.hosts(seeker);
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 3, "{found:?}");
    }
}

#[test]
fn a_request_leaves_at_once_for_every_broadcast_address_and_then_at_its_interval() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(7, config(|c| c.interval = ms(500)));
    let now = lan.now;
    lan.machines[n].discovery.discover(now, 7, true).unwrap();
    lan.run(ms(1_600));
    let to: Vec<IpAddr> = lan.sent.iter().map(|(_, to, _)| to.ip()).collect();
    assert_eq!(to, [IpAddr::V4(BROADCAST), IpAddr::V4(Ipv4Addr::BROADCAST)].repeat(4));
    assert!(lan.sent.iter().all(|(_, to, _)| to.port() == PORT));
    let mut bytes = lan.sent[0].2.clone();
    let plaintext = Key::from_app_id(APP_ID).open(&mut bytes).unwrap().to_vec();
    assert_eq!(Packet::parse(&plaintext), Ok(Packet::Request { sender: 7 }));
}

#[test]
fn pain_22_every_network_is_asked_also_over_ipv6() {
    let now = Instant::now();
    let mut d = Discovery::new(Config::default(), [1; 32], now);
    d.open(now, 7).unwrap();
    d.set_interfaces(now, [Interface::V4(BROADCAST), Interface::V4(Ipv4Addr::new(192, 168, 1, 255)), Interface::V6(3)]);
    d.discover(now, 7, true).unwrap();
    d.handle_timeout(now);
    let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
    d.poll_transmit(now, &mut out);
    let mut to: Vec<String> = out.iter().map(|(path, _)| format!("{} from {}", path.remote, path.socket.0)).collect();
    to.sort();
    assert_eq!(to, ["10.0.0.255:7551 from 0", "192.168.1.255:7551 from 0", "[ff02::1%3]:7551 from 1"]);
}

#[test]
fn each_advertised_id_asks_and_answers_for_itself() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.host(1, "one");
    let now = lan.now;
    lan.machines[n].discovery.open(now, 5).unwrap();
    lan.machines[n].discovery.advertise(now, 5, true).unwrap();
    let seeker = lan.seeker(9);
    lan.run(ms(100));
    let found = lan.hosts(seeker);
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 5]);
}

#[test]
fn only_who_advertises_answers() {
    let mut lan = Lan::new(LinkConfig::default());
    let quiet = lan.add(1, Config::default());
    let seeker = lan.seeker(2);
    lan.run(ms(5_000));
    assert_eq!(lan.hosts(seeker), []);
    assert_eq!(lan.machines[quiet].told, []);
}

#[test]
fn a_request_that_came_over_two_broadcast_addresses_is_answered_once() {
    let mut lan = Lan::new(LinkConfig { delay: ms(1), ..LinkConfig::default() });
    let host = lan.host(1, "one");
    lan.seeker(2);
    lan.run(ms(50));
    let answers = lan.sent.iter().filter(|(from, to, _)| *from == host && to.port() != PORT).count();
    assert_eq!(answers, 1);
}

#[test]
fn signals_go_by_unicast_to_who_was_heard_and_by_broadcast_to_others() {
    let mut lan = Lan::new(LinkConfig { delay: ms(1), ..LinkConfig::default() });
    let host = lan.host(1, "one");
    let dialer = lan.add(2, Config::default());
    let bystander = lan.add(3, Config::default());
    let now = lan.now;
    lan.machines[dialer].discovery.signal(now, 2, 1, "CANDIDATEADD 5 candidate:1").unwrap();
    lan.run(ms(10));
    assert_eq!(lan.signals(host), ["CANDIDATEADD 5 candidate:1"]);
    assert_eq!(lan.signals(bystander), Vec::<String>::new());
    let before = lan.sent.len();
    let now = lan.now;
    lan.machines[host].discovery.signal(now, 1, 2, "CONNECTERROR 5 16").unwrap();
    lan.run(ms(10));
    assert_eq!(lan.signals(dialer), ["CONNECTERROR 5 16"]);
    assert_eq!(lan.sent[before..].iter().map(|s| s.1).collect::<Vec<_>>(), [lan.machines[dialer].address]);
}

#[test]
fn long_answers_of_other_programs_are_taken_and_sent() {
    let mut lan = Lan::new(LinkConfig::default());
    let host = lan.host(1, "one");
    let dialer = lan.add(2, Config::default());
    let long = format!("CONNECTRESPONSE 5 {}", "x".repeat(20_000));
    let now = lan.now;
    lan.machines[host].discovery.signal(now, 1, 2, &long).unwrap();
    lan.run(ms(10));
    assert_eq!(lan.signals(dialer), [long]);
    let beyond = "x".repeat(70_000);
    let now = lan.now;
    let refused = lan.machines[host].discovery.signal(now, 1, 2, &beyond);
    assert!(matches!(refused, Err(DiscoveryError::TooLong(_))), "{refused:?}");
}

#[test]
fn keep_alives_and_noise_keep_a_peer_and_are_no_signals() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    for data in [&b""[..], b"Ping", b"connectrequest 1 v=0", b"CONNECTREQUEST +1 v=0", b"\xFF\xFE"] {
        assert_eq!(lan.inject(n, "10.0.0.9:5", Packet::Message { sender: 9, recipient: 1, data }), Ok(()));
    }
    lan.run(ms(1));
    assert_eq!((&lan.machines[n].told[..], &lan.signals(n)[..]), (&[][..], &[][..]));
    assert!(lan.machines[n].discovery.path_to(9).is_some());
}

#[test]
fn nobody_becomes_a_peer_of_the_id_0() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.host(1, "one");
    let from = "10.0.0.9:5";
    assert_eq!(lan.inject(n, from, Packet::Message { sender: 0, recipient: 1, data: b"" }), Ok(()));
    assert_eq!(lan.inject(n, from, Packet::Response { sender: 0, data: b"00" }), Err(Refused::NotAllowed));
    assert_eq!(lan.inject(n, from, Packet::Request { sender: 0 }), Ok(()));
    lan.run(ms(1));
    assert!(lan.machines[n].discovery.path_to(0).is_none());
    let told = &lan.machines[n].told;
    assert!(matches!(told[..], [Event::Asked { id: 1, by: 0, .. }]), "a question without an id is answered: {told:?}");
    assert_eq!(lan.machines[n].discovery.open(lan.now, 0), Err(DiscoveryError::Zero));
}

#[test]
fn messages_for_others_and_own_echoes_are_ignored() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    let data = b"CANDIDATEADD 5 candidate:1";
    let other = Packet::Message { sender: 9, recipient: 2, data };
    assert_eq!(lan.inject(n, "10.0.0.9:5", other), Err(Refused::Unexpected));
    let own = Packet::Message { sender: 1, recipient: 1, data };
    assert_eq!(lan.inject(n, "10.0.0.9:5", own), Err(Refused::NotAllowed));
    lan.run(ms(1));
    assert_eq!((&lan.machines[n].told[..], &lan.signals(n)[..]), (&[][..], &[][..]));
}

#[test]
fn a_host_with_unreadable_data_is_found_all_the_same() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    for (sender, data) in [(8, &b"MCPE;raw;text"[..]), (9, b"FF00"), (10, b"")] {
        assert_eq!(lan.inject(n, "10.0.0.9:5", Packet::Response { sender, data }), Ok(()));
    }
    lan.run(ms(1));
    let read = |e: &Event| if let Event::Host(h) = e { Some((h.id, h.data().into_owned())) } else { None };
    let hosts: Vec<_> = lan.machines[n].told.iter().filter_map(read).collect();
    assert_eq!(hosts, [(8, b"MCPE;raw;text".to_vec()), (9, vec![0xFF, 0]), (10, vec![])]);
    let unreadable = |e: &Event| matches!(e, Event::Host(h) if h.server_data().is_err());
    assert!(lan.machines[n].told.iter().all(unreadable));
}

#[test]
fn an_unchanged_answer_is_told_once_a_second_and_a_changed_one_at_once() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    let mut at = |wait: u64, data: &'static [u8]| {
        lan.now += ms(wait);
        lan.inject(n, "10.0.0.9:5", Packet::Response { sender: 9, data }).unwrap();
        lan.settle();
        std::mem::take(&mut lan.machines[n].told).len()
    };
    assert_eq!([at(0, b"00"), at(10, b"00"), at(10, b"01"), at(900, b"01"), at(100, b"01")], [1, 0, 1, 0, 1]);
}

#[test]
fn the_probe_is_off_unless_asked_for_and_then_sent_once() {
    for (probe, want) in [(false, 0), (true, 1)] {
        let mut lan = Lan::new(LinkConfig::default());
        let n = lan.add(1, config(|c| c.probe = probe));
        lan.inject(n, "10.0.0.9:5", Packet::Request { sender: 8 }).unwrap();
        for _ in 0..2 {
            lan.inject(n, "10.0.0.9:5", Packet::Response { sender: 9, data: b"" }).unwrap();
        }
        lan.run(ms(10));
        assert_eq!(lan.sent.len(), want);
        for (_, to, bytes) in &lan.sent {
            let mut bytes = bytes.clone();
            let plaintext = Key::from_app_id(APP_ID).open(&mut bytes).unwrap();
            assert_eq!(Packet::parse(plaintext), Ok(Packet::Message { sender: 0, recipient: 9, data: b"" }));
            assert_eq!(to.to_string(), "10.0.0.9:5");
        }
    }
}

#[test]
fn a_flood_of_questions_gets_no_more_answers_than_the_rate_allows() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.host(1, "one");
    for k in 0..5_000_u32 {
        let from = format!("10.{}.{}.9:{}", k % 7, k % 200, 1_000 + k);
        // Those over the rate are refused or go unanswered; both are fine.
        let _over = lan.inject(n, &from, Packet::Request { sender: u64::from(k) + 100 });
        lan.settle();
    }
    assert!(lan.sent.len() <= 70, "{} answers", lan.sent.len());
}

#[test]
fn a_flood_from_one_address_is_not_even_opened() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    let taken = (0..10_000).filter(|_| lan.inject(n, "10.0.0.9:5", Packet::Request { sender: 9 }).is_ok()).count();
    assert_eq!(taken, 256);
    assert_eq!(lan.inject(n, "10.0.0.8:5", Packet::Request { sender: 8 }), Ok(()));
}

#[test]
fn whoever_does_not_read_its_events_loses_the_newest_and_is_told_how_many() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    for k in 0..3_000_u32 {
        let from = format!("10.0.{}.{}:5", k / 250, k % 250);
        lan.inject(n, &from, Packet::Response { sender: u64::from(k) + 9, data: b"00" }).unwrap();
    }
    let mut read = 0;
    while lan.machines[n].discovery.poll_event().is_some() {
        read += 1;
    }
    assert_eq!(read, 1_024);
    assert!(lan.machines[n].discovery.dropped() >= 3_000 - 1_024);
}

#[test]
fn a_question_lapses_and_an_answer_is_given_once() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, Config::default());
    let start = lan.now;
    lan.machines[n].discovery.advertise(start, 1, true).unwrap();
    lan.inject(n, "10.0.0.9:5", Packet::Request { sender: 9 }).unwrap();
    let d = &mut lan.machines[n].discovery;
    let Some(Event::Asked { ask, .. }) = d.poll_event() else { unreachable!("not asked") };
    let long = [0; 575];
    assert!(matches!(d.answer(start, ask, &long), Err(DiscoveryError::TooLong(_))));
    assert_eq!(d.answer(start, ask, b"here"), Ok(()));
    assert_eq!(d.answer(start, ask, b"here"), Err(DiscoveryError::TooLate));
    lan.now += ms(3_000);
    lan.inject(n, "10.0.0.9:5", Packet::Request { sender: 9 }).unwrap();
    let now = lan.now;
    let d = &mut lan.machines[n].discovery;
    d.poll_event();
    d.handle_timeout(now + ms(2_000));
    assert_eq!(d.answer(now + ms(2_000), ask, b"late"), Err(DiscoveryError::TooLate));
}

#[test]
fn an_address_can_be_asked_where_no_broadcast_goes() {
    let mut lan = Lan::new(LinkConfig::default());
    let host = lan.host(1, "far");
    let seeker = lan.seeker(2);
    let now = lan.now;
    lan.machines[seeker].discovery.set_interfaces(now, []);
    lan.machines[host].discovery.set_interfaces(now, []);
    lan.run(ms(3_000));
    assert_eq!(lan.hosts(seeker), []);
    let (now, address) = (lan.now, lan.machines[host].address);
    lan.machines[seeker].discovery.watch(now, address).unwrap();
    lan.run(ms(100));
    assert_eq!(lan.hosts(seeker), [(1, "far".to_owned())]);
    let d = &mut lan.machines[seeker].discovery;
    for port in 1..WATCHED_MAX {
        d.watch(now, ([10, 9, 9, 9], u16::try_from(port).unwrap()).into()).unwrap();
    }
    assert_eq!(d.watch(now, ([10, 9, 9, 8], 1).into()), Err(DiscoveryError::TooManyAddresses));
}

#[test]
fn a_host_that_missed_a_broadcast_is_asked_directly() {
    let mut lan = Lan::new(LinkConfig::default());
    let host = lan.host(1, "one");
    let seeker = lan.seeker(2);
    lan.run(ms(100));
    let now = lan.now;
    lan.machines[seeker].discovery.set_interfaces(now, []);
    lan.run(ms(60_000));
    assert!(!lan.machines[seeker].told.contains(&Event::Lost(1)));
    let address = lan.machines[host].address;
    assert!(lan.sent.iter().any(|(from, to, _)| *from == seeker && *to == address));
}

#[test]
fn another_application_is_not_heard() {
    let mut lan = Lan::new(LinkConfig::default());
    lan.host(1, "one");
    let n = lan.add(2, config(|c| (c.app_id, c.trace) = (5, true)));
    let now = lan.now;
    lan.machines[n].discovery.discover(now, 2, true).unwrap();
    lan.run(ms(100));
    let deaf =
        |e: &Event| matches!(e, Event::Heard { what: Heard::Refused(Refused::NotAuthentic | Refused::NotAllowed), .. });
    assert!(lan.machines[n].told.iter().all(deaf), "{:?}", lan.machines[n].told);
    assert!(!lan.machines[n].told.is_empty());
}

#[test]
fn what_a_trace_shows_is_what_arrived() {
    let mut lan = Lan::new(LinkConfig::default());
    let n = lan.add(1, config(|c| c.trace = true));
    lan.inject(n, "10.0.0.9:5", Packet::Response { sender: 9, data: b"MCPE" }).unwrap();
    let garbage = lan.machines[n].discovery.handle_datagram(
        lan.now,
        Path::new(SHARED_V4, "10.0.0.8:5".parse().unwrap()),
        b"short"[..].into(),
    );
    assert_eq!(garbage, Err(Refused::NotOurs));
    lan.run(ms(1));
    let mut told: VecDeque<Event> = lan.machines[n].told.drain(..).collect();
    assert!(matches!(told.pop_front(), Some(Event::Host(_))));
    let Some(Event::Heard { size: 64, sender: Some(9), what: Heard::Response(wire), .. }) = told.pop_front() else {
        unreachable!("no response in the trace")
    };
    assert_eq!(&wire[..], b"MCPE");
    let Some(Event::Heard { path, size: 5, sender: None, what: Heard::Refused(Refused::NotOurs) }) = told.pop_front()
    else {
        unreachable!("no refusal in the trace")
    };
    assert_eq!(path.socket, SHARED_V4);
}
