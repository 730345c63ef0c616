//! A host's port at its router, from the router's word to the code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use anywire_session::{Command, Event, HostConfig, LOBBY, Local, PortMap, PortState, Session, StunServer};
use bytes::BytesMut;
use joincode::{Code, Profile};
use rendezvous::words::{ProbeAsk, ProbeProtocol};
use seam::{HttpMethod, Path, Reply, Request, RequestId};

const MS: fn(u64) -> Duration = Duration::from_millis;
const MASTER: &str = "http://192.0.2.1:8471/base";
const SERVER: &str = "198.51.100.1:3478";

struct Host {
    start: Instant,
    now: Instant,
    session: Session,
    probes: Vec<(RequestId, ProbeAsk)>,
    codes: Vec<(Duration, Profile)>,
    states: Vec<PortState>,
    /// The public address that STUN tells.
    stun: Option<&'static str>,
}

fn v4(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

impl Host {
    fn new(stun: Option<&'static str>, change: impl FnOnce(&mut HostConfig)) -> Self {
        let start = Instant::now();
        let mut config = HostConfig {
            local: Local { port: 29_471, ..Local::default() },
            rendezvous: Some(MASTER.to_owned()),
            portmap: true,
            ..HostConfig::new("ada", [9; 12])
        };
        if stun.is_some() {
            config.stun = vec![StunServer { host: "198.51.100.1".to_owned(), port: 3478 }];
        }
        change(&mut config);
        let session = Session::host(config, [1; 32], start, 1_790_000_000);
        let (probes, codes, states) = (Vec::new(), Vec::new(), Vec::new());
        let mut host = Self { start, now: start, session, probes, codes, states, stun };
        host.settle();
        host
    }

    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            let mut out: Vec<(Path, Vec<u8>)> = Vec::new();
            self.session.poll_transmit(self.now, &mut out);
            for (path, bytes) in out {
                if let (Ok(request), Some(seen)) = (stun::Request::parse(&bytes), self.stun) {
                    quiet = false;
                    let answer = stun::Answer::of(&request, seen.parse().unwrap()).encode();
                    self.arrive(&path.remote.to_string(), &answer);
                }
            }
            while let Some((id, request)) = self.session.poll_request() {
                quiet = false;
                match request {
                    Request::Resolve { .. } => {
                        let found = Reply::Resolved(vec![SERVER.parse().unwrap()]);
                        self.session.handle_reply(self.now, id, found);
                    }
                    Request::Http { method: HttpMethod::Post, url, body, .. } => {
                        assert!(url.ends_with("/probe"), "{url}");
                        self.probes.push((id, ProbeAsk::read(&body).unwrap()));
                    }
                    // A poll for knocks, which the master holds.
                    Request::Http { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            while let Some(event) = self.session.poll_event() {
                match event {
                    Event::Code(code) => {
                        let Code::Plain(profile) = joincode::parse(&code).unwrap() else { panic!("{code}") };
                        self.codes.push((self.now - self.start, profile));
                    }
                    Event::Port(state) => self.states.push(state),
                    _ => {}
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((due, why)) = self.session.poll_timeout().filter(|(due, _)| *due <= end) {
            assert!(due >= self.now, "a deadline in the past after a drain: {why}");
            self.now = due;
            self.session.handle_timeout(due);
            self.settle();
        }
        self.now = end;
    }

    fn say(&mut self, word: PortMap) {
        self.session.command(self.now, Command::PortMap(word));
        self.settle();
    }

    fn mapped(&mut self, by: &'static str, external: &str) {
        self.say(PortMap::Mapped { by, external: v4(external) });
    }

    fn refused(&mut self, by: &'static str) {
        self.say(PortMap::Refused { by, why: "no gateway answered".to_owned() });
    }

    fn arrive(&mut self, from: &str, bytes: &[u8]) -> bool {
        let path = Path::new(LOBBY, from.parse::<SocketAddr>().unwrap());
        self.session.handle_datagram(self.now, path, BytesMut::from(bytes)).is_ok()
    }

    /// The master took the probe.
    fn sent(&mut self, id: RequestId) {
        self.session.handle_reply(self.now, id, Reply::Http { status: 200, body: br#"{"ok": true}"#.to_vec() });
        self.settle();
    }

    fn token(&mut self, from: &str, token: &[u8]) -> bool {
        let taken = self.arrive(from, &[b"AWPB", token].concat());
        self.settle();
        taken
    }

    fn last(&self) -> &Profile {
        &self.codes.last().unwrap().1
    }
}

#[test]
fn a_proved_port_is_in_the_code_that_waited_for_it() {
    let mut host = Host::new(Some("203.0.113.5:29471"), |_| {});
    host.run(MS(300));
    assert!(host.codes.is_empty(), "it waits for the router");
    host.mapped("UPnP", "203.0.113.5:29471");
    let (id, ask) = host.probes[0].clone();
    assert_eq!((ask.protocol, ask.port, ask.token.len()), (ProbeProtocol::Udp, 29471, 16));
    assert!(host.codes.is_empty() && host.states.is_empty(), "the router's word is not enough");
    host.sent(id);
    assert!(host.token("192.0.2.1:40000", &ask.token));
    let (when, code) = &host.codes[0];
    assert_eq!((*when, code.flags.open, code.public), (MS(300), true, Some(v4("203.0.113.5:29471"))));
    assert_eq!(host.states, [PortState::Open { by: "UPnP", external: v4("203.0.113.5:29471") }]);
    assert!(!host.token("192.0.2.1:40000", &ask.token), "once");
    host.run(MS(20_000));
    assert_eq!((host.codes.len(), host.states.len(), host.probes.len()), (1, 1, 1));
}

#[test]
fn a_token_may_come_before_the_masters_answer() {
    let mut host = Host::new(Some("203.0.113.5:29471"), |_| {});
    host.mapped("PCP", "203.0.113.5:29471");
    let (id, ask) = host.probes[0].clone();
    assert!(host.token("192.0.2.1:40000", &ask.token));
    host.sent(id);
    assert!(host.last().flags.open);
}

#[test]
fn pain_1_a_router_that_lies_is_not_believed() {
    let mut host = Host::new(Some("203.0.113.5:29471"), |_| {});
    host.mapped("UPnP", "203.0.113.5:29471");
    for n in 0..3 {
        assert_eq!(host.probes.len(), n + 1);
        let (id, ask) = host.probes[n].clone();
        host.sent(id);
        // What somebody else sends, or what comes by another way, proves nothing.
        assert!(!host.token("192.0.2.1:40000", &[1; 16]));
        assert!(!host.token("[2001:db8::1]:40000", &ask.token));
        host.run(MS(1_001));
    }
    assert_eq!(host.states, [PortState::Disproved { by: "UPnP" }]);
    let ask = host.probes[2].1.clone();
    assert!(!host.token("192.0.2.1:40000", &ask.token), "too late");
    host.run(MS(30_000));
    assert_eq!((host.probes.len(), host.codes.len()), (3, 1));
    assert_eq!((host.last().flags.open, host.last().public), (false, Some(v4("203.0.113.5:29471"))));
    assert_eq!(host.codes[0].0, MS(1_500));

    // The next way of asking has its own three tokens, and the proof does not change the address: no other code.
    host.mapped("NAT-PMP", "203.0.113.5:29471");
    let (id, ask) = host.probes[3].clone();
    host.sent(id);
    assert!(host.token("192.0.2.1:40000", &ask.token));
    assert!(matches!(host.states.last(), Some(PortState::Open { by: "NAT-PMP", .. })));
    assert_eq!(host.codes.len(), 1);
}

#[test]
fn a_router_that_refuses_every_way_holds_nothing_up() {
    let mut host = Host::new(Some("203.0.113.5:29471"), |_| {});
    for by in ["PCP", "NAT-PMP", "UPnP"] {
        host.refused(by);
    }
    assert!(host.codes.is_empty());
    host.say(PortMap::Done);
    assert_eq!((host.codes.len(), host.codes[0].0), (1, MS(0)));
    let [PortState::Closed { refused }] = host.states.as_slice() else { panic!("{:?}", host.states) };
    assert_eq!(refused.len(), 3);
    assert!(!host.last().flags.open);
}

#[test]
fn a_silent_router_costs_a_bounded_wait() {
    for (stun, change, wait) in [
        (Some("203.0.113.5:29471"), false, MS(1_500)),
        (None, false, MS(2_500)),
        (Some("203.0.113.5:29471"), true, MS(0)),
    ] {
        let mut host = Host::new(stun, |config| config.portmap = !change);
        host.run(MS(5_000));
        assert_eq!(host.codes.iter().map(|(when, _)| *when).collect::<Vec<_>>(), [wait]);
    }
}

#[test]
fn pain_2_without_stun_the_routers_word_is_the_address_and_never_open() {
    let mut host = Host::new(None, |config| config.rendezvous = None);
    host.mapped("UPnP", "203.0.113.5:40000");
    assert!(host.probes.is_empty());
    assert_eq!((host.last().public, host.last().flags.open), (Some(v4("203.0.113.5:40000")), false));
    assert!(matches!(host.states.as_slice(), [PortState::Unproved { by: "UPnP", .. }]), "{:?}", host.states);
}

#[test]
fn a_master_that_cannot_probe_leaves_it_open_what_the_port_is() {
    for (reply, asks_again) in [
        (Reply::Http { status: 404, body: Vec::new() }, false),
        (Reply::Http { status: 429, body: Vec::new() }, true),
        (Reply::Unreachable("no route".to_owned()), true),
    ] {
        let mut host = Host::new(Some("203.0.113.5:29471"), |_| {});
        host.mapped("UPnP", "203.0.113.5:29471");
        let id = host.probes[0].0;
        host.session.handle_reply(host.now, id, reply);
        host.settle();
        assert!(matches!(host.states.as_slice(), [PortState::Unproved { .. }]), "{:?}", host.states);
        assert_eq!((host.codes.len(), host.last().flags.open), (1, false));
        host.run(MS(59_000));
        assert_eq!(host.probes.len(), 1);
        host.run(MS(2_000));
        assert_eq!(host.probes.len(), 1 + usize::from(asks_again));
    }
}

#[test]
fn another_address_than_strangers_see_is_another_router() {
    let mut host = Host::new(Some("203.0.113.99:29471"), |_| {});
    host.say(PortMap::Wan("203.0.113.5".parse().unwrap()));
    host.mapped("UPnP", "203.0.113.5:29471");
    assert!(host.probes.is_empty());
    assert!(matches!(host.states.as_slice(), [PortState::Unproved { .. }]));
    let flags = host.last().flags;
    assert!(flags.cgnat && !flags.open);
    assert_eq!(host.last().public, Some(v4("203.0.113.99:29471")));
}

#[test]
fn a_master_that_may_have_been_asked_over_ipv6_disproves_nothing() {
    for (url, v6, disproved) in [
        ("http://master.example", Some("2001:db8::9"), false),
        ("http://[2001:db8::1]:8471", Some("2001:db8::9"), false),
        ("http://master.example", None, true),
        (MASTER, Some("2001:db8::9"), true),
    ] {
        let mut host = Host::new(Some("203.0.113.5:29471"), |config| {
            config.rendezvous = Some(url.to_owned());
            config.local.v6 = v6.map(|v6| v6.parse().unwrap());
        });
        host.mapped("UPnP", "203.0.113.5:29471");
        for n in 0..3 {
            let id = host.probes[n].0;
            host.sent(id);
            host.run(MS(1_001));
        }
        let [state] = host.states.as_slice() else { panic!("{:?}", host.states) };
        assert_eq!(matches!(state, PortState::Disproved { .. }), disproved, "{url}: {state}");
        assert!(!host.last().flags.open);
    }
}

#[test]
fn a_port_that_is_found_late_or_elsewhere_is_a_new_code_only_where_it_is_another_address() {
    let mut host = Host::new(Some("203.0.113.5:29471"), |_| {});
    host.run(MS(4_000));
    host.mapped("UPnP", "203.0.113.5:40001");
    let (id, ask) = host.probes[0].clone();
    host.sent(id);
    assert_eq!(host.codes.len(), 1);
    host.token("192.0.2.1:1", &ask.token);
    assert_eq!((host.codes.len(), host.last().public), (2, Some(v4("203.0.113.5:40001"))));
    host.say(PortMap::Lost);
    assert_eq!((host.codes.len(), host.last().public), (3, Some(v4("203.0.113.5:29471"))));
    assert!(!host.last().flags.open);
}

#[test]
fn a_joiner_and_a_host_without_a_mapper_ignore_the_words() {
    let mut host = Host::new(None, |config| config.portmap = false);
    host.mapped("UPnP", "203.0.113.5:29471");
    assert!(host.states.is_empty() && host.probes.is_empty());
    assert!(!host.token("192.0.2.1:1", &[0; 16]));
}
