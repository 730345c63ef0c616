//! The data plane: one thread that carries every packet between the devices.
//!
//! A *port* ties a server, a router or a carrier to a *domain*. Domain 0 is the
//! public segment; each carrier has a domain of its own. A packet goes out
//! through its port's NAT and up-link into the domain, is routed there by its
//! target address, and comes in through the other port's down-link and NAT.

mod control;

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::link::{LinkConfig, Pipe};
use crate::nat::{Nat, Verdict};
use crate::packet::{self, IcmpReason};
use crate::rng::Rng;
use crate::spec::LinkPair;
use crate::sys;

pub(crate) type SharedNat = Arc<Mutex<Nat>>;

pub(crate) enum Inside {
    Device(OwnedFd),
    Domain(usize),
}

pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) domain: usize,
    pub(crate) nat4: Option<SharedNat>,
    pub(crate) nat6: Option<SharedNat>,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    pub(crate) inside: Inside,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
}

impl Port {
    pub(crate) fn new(
        name: &str,
        domain: usize,
        nat4: Option<SharedNat>,
        nat6: Option<SharedNat>,
        link: &LinkPair,
        inside: Inside,
        seed: u64,
    ) -> Self {
        let pipe = |cfg: &LinkConfig, way: &str| Pipe::new(cfg.clone(), Rng::named(seed, &format!("{name} {way}")));
        Port {
            name: name.into(),
            domain,
            nat4,
            nat6,
            up: pipe(&link.up, "up"),
            down: pipe(&link.down, "down"),
            inside,
            dropped: BTreeMap::new(),
        }
    }
}

pub(crate) struct Domain {
    pub(crate) hosts: HashMap<IpAddr, usize>,
    /// Prefixes with their length, and the port behind which they are.
    pub(crate) nets: Vec<(IpAddr, u8, usize)>,
    /// The carrier's own port towards the public segment.
    pub(crate) uplink: Option<usize>,
    /// Who sends 'time exceeded' here.
    pub(crate) gateway: IpAddr,
    /// Ports reach each other directly.
    pub(crate) local: bool,
}

impl Domain {
    fn route(&self, to: IpAddr) -> Option<usize> {
        if let Some(port) = self.hosts.get(&to) {
            return Some(*port);
        }
        self.nets.iter().find(|(net, len, _)| covers(*net, *len, to)).map(|(_, _, port)| *port)
    }
}

fn covers(net: IpAddr, len: u8, ip: IpAddr) -> bool {
    match (net, ip) {
        (IpAddr::V4(n), IpAddr::V4(i)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            u32::from(n) & mask == u32::from(i) & mask
        }
        (IpAddr::V6(n), IpAddr::V6(i)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            u128::from(n) & mask == u128::from(i) & mask
        }
        _ => false,
    }
}

/// A host's own link inside its home: frames between two devices.
pub(crate) struct Wire {
    pub(crate) name: String,
    pub(crate) host: OwnedFd,
    pub(crate) home: OwnedFd,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
}

/// A virtual LAN: a learning switch.
pub(crate) struct Switch {
    pub(crate) name: String,
    pub(crate) broadcast: bool,
    pub(crate) ports: Vec<SwitchPort>,
    pub(crate) learned: HashMap<[u8; 6], usize>,
}

pub(crate) struct SwitchPort {
    pub(crate) name: String,
    pub(crate) device: OwnedFd,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
}

#[derive(Clone, Copy)]
enum Source {
    Port(usize),
    WireHost(usize),
    WireHome(usize),
    Switch(usize, usize),
}

#[derive(Clone, Copy)]
enum Stage {
    /// Left the up-link of a port.
    Up(usize),
    /// Left the down-link of a port.
    Down(usize),
    /// Left the up-link of a switch port.
    Switch(usize, usize),
    Write(RawFd),
}

struct Event {
    at: Instant,
    seq: u64,
    stage: Stage,
    data: Vec<u8>,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap gives the largest first: the earliest must be that.
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

pub(crate) struct Core {
    pub(crate) ports: Vec<Port>,
    pub(crate) domains: Vec<Domain>,
    pub(crate) wires: Vec<Wire>,
    pub(crate) switches: Vec<Switch>,
    queue: BinaryHeap<Event>,
    seq: u64,
    spare_ip: u8,
}

const COLLECT_EVERY: Duration = Duration::from_secs(1);
const BATCH: usize = 64;

impl Core {
    pub(crate) fn new(ports: Vec<Port>, domains: Vec<Domain>, wires: Vec<Wire>, switches: Vec<Switch>) -> Self {
        Core { ports, domains, wires, switches, queue: BinaryHeap::new(), seq: 0, spare_ip: 254 }
    }

    /// Carries packets until something can be read from `stop`.
    pub(crate) fn run(&mut self, control: &UnixListener, stop: &UnixStream) {
        let mut sources = Vec::new();
        let mut fds = vec![stop.as_raw_fd(), control.as_raw_fd()];
        for (i, p) in self.ports.iter().enumerate() {
            if let Inside::Device(fd) = &p.inside {
                sources.push(Source::Port(i));
                fds.push(fd.as_raw_fd());
            }
        }
        for (i, w) in self.wires.iter().enumerate() {
            sources.push(Source::WireHost(i));
            fds.push(w.host.as_raw_fd());
            sources.push(Source::WireHome(i));
            fds.push(w.home.as_raw_fd());
        }
        for (i, s) in self.switches.iter().enumerate() {
            for (j, p) in s.ports.iter().enumerate() {
                sources.push(Source::Switch(i, j));
                fds.push(p.device.as_raw_fd());
            }
        }
        let mut waiter = sys::Waiter::new(fds.iter().copied());
        let mut buf = vec![0u8; 65536];
        let mut collect = Instant::now() + COLLECT_EVERY;
        loop {
            let now = Instant::now();
            while self.queue.peek().is_some_and(|e| e.at <= now) {
                if let Some(e) = self.queue.pop() {
                    // By the time when it was due: being late here must not
                    // add to the delays still to come.
                    self.arrive(e.stage, e.data, e.at);
                }
            }
            if now >= collect {
                self.collect(now);
                collect = now + COLLECT_EVERY;
            }
            let next = self.queue.peek().map_or(collect, |e| e.at.min(collect));
            let wait = next.saturating_duration_since(Instant::now());
            if !waiter.wait(Some(wait)).unwrap_or(false) {
                continue;
            }
            if waiter.ready(0) {
                return;
            }
            if waiter.ready(1)
                && let Ok((stream, _)) = control.accept()
            {
                self.serve(stream);
            }
            for (i, source) in sources.iter().enumerate() {
                if !waiter.readable(i + 2) {
                    continue;
                }
                for _ in 0..BATCH {
                    match sys::read(fds[i + 2], &mut buf) {
                        // The time is taken after the read, so that no packet
                        // counts as sent before it was.
                        Ok(n) if n > 0 => self.enter(*source, buf[..n].to_vec(), Instant::now()),
                        _ => break,
                    }
                }
            }
        }
    }

    fn collect(&mut self, now: Instant) {
        for p in &self.ports {
            for nat in [&p.nat4, &p.nat6].into_iter().flatten() {
                lock(nat).collect(now);
            }
        }
    }

    fn enter(&mut self, source: Source, data: Vec<u8>, now: Instant) {
        match source {
            Source::Port(p) => self.port_out(p, data, now),
            Source::WireHost(i) => {
                let w = &mut self.wires[i];
                let exit = w.up.pass(now, data.len());
                let to = w.home.as_raw_fd();
                self.schedule(exit, Stage::Write(to), data, now);
            }
            Source::WireHome(i) => {
                let w = &mut self.wires[i];
                let exit = w.down.pass(now, data.len());
                let to = w.host.as_raw_fd();
                self.schedule(exit, Stage::Write(to), data, now);
            }
            Source::Switch(i, j) => {
                let exit = self.switches[i].ports[j].up.pass(now, data.len());
                self.schedule(exit, Stage::Switch(i, j), data, now);
            }
        }
    }

    fn schedule(&mut self, exit: crate::link::Exit, stage: Stage, data: Vec<u8>, now: Instant) {
        if let Some(at) = exit.second {
            self.push(at, stage, data.clone());
        }
        // Straight through, unless something that came before still waits.
        let waiting = self.queue.peek().is_some_and(|e| e.at <= now);
        match exit.first {
            Some(at) if at <= now && !waiting => self.arrive(stage, data, now),
            Some(at) => self.push(at, stage, data),
            None => {}
        }
    }

    fn push(&mut self, at: Instant, stage: Stage, data: Vec<u8>) {
        self.seq += 1;
        self.queue.push(Event { at, seq: self.seq, stage, data });
    }

    fn arrive(&mut self, stage: Stage, data: Vec<u8>, now: Instant) {
        match stage {
            Stage::Up(p) => self.route(self.ports[p].domain, data, now, Some(p)),
            Stage::Down(p) => self.port_in(p, data, now),
            Stage::Switch(i, j) => self.switch(i, j, data, now),
            Stage::Write(fd) => {
                // A device that is down, or full, loses the packet like a cable.
                let _ = sys::write(fd, &data);
            }
        }
    }

    fn nat(&self, p: usize, data: &[u8]) -> Option<SharedNat> {
        let port = &self.ports[p];
        if data[0] >> 4 == 6 { port.nat6.clone() } else { port.nat4.clone() }
    }

    fn drop(&mut self, p: usize, why: &'static str) {
        *self.ports[p].dropped.entry(why).or_insert(0) += 1;
    }

    /// From the inside of a port towards its domain.
    fn port_out(&mut self, p: usize, data: Vec<u8>, now: Instant) {
        let Some(h) = packet::parse(&data) else {
            return self.drop(p, "malformed");
        };
        let special = match h.dst {
            IpAddr::V4(d) => d.is_multicast() || d.is_broadcast() || d.is_unspecified(),
            IpAddr::V6(d) => {
                let link_local = |a: IpAddr| matches!(a, IpAddr::V6(a) if a.segments()[0] & 0xffc0 == 0xfe80);
                d.is_multicast() || link_local(h.dst) || link_local(h.src)
            }
        };
        if special {
            return self.drop(p, "broadcast, multicast or link-local");
        }
        let verdict = match self.nat(p, &data) {
            Some(nat) => lock(&nat).outbound(data, now),
            None => Verdict::Forward(data),
        };
        self.act(p, verdict, true, now);
    }

    /// From the domain of a port towards its inside.
    fn port_in(&mut self, p: usize, data: Vec<u8>, now: Instant) {
        let verdict = match self.nat(p, &data) {
            Some(nat) => lock(&nat).inbound(data, now),
            None => Verdict::Forward(data),
        };
        self.act(p, verdict, false, now);
    }

    fn act(&mut self, p: usize, verdict: Verdict, outbound: bool, now: Instant) {
        match verdict {
            Verdict::Drop(why) => self.drop(p, why),
            Verdict::Forward(data) if outbound => self.up(p, data, now),
            Verdict::Outside(data) => self.up(p, data, now),
            Verdict::Forward(data) | Verdict::Inside(data) => match &self.ports[p].inside {
                Inside::Device(fd) => {
                    let fd = fd.as_raw_fd();
                    self.arrive(Stage::Write(fd), data, now);
                }
                Inside::Domain(d) => self.route(*d, data, now, None),
            },
        }
    }

    fn up(&mut self, p: usize, mut data: Vec<u8>, now: Instant) {
        let port = &mut self.ports[p];
        if !packet::spend_hops(&mut data, port.up.cfg.hops) {
            let domain = port.domain;
            return self.time_exceeded(domain, &data, now);
        }
        let exit = port.up.pass(now, data.len());
        self.schedule(exit, Stage::Up(p), data, now);
    }

    fn time_exceeded(&mut self, domain: usize, about: &[u8], now: Instant) {
        let from = match packet::parse(about) {
            Some(h) if h.v6 => IpAddr::V6(Ipv6Addr::new(crate::spec::V6_LAB, 0, 0, 0, 0, 0, 0, 1)),
            _ => self.domains[domain].gateway,
        };
        if let Some(error) = packet::icmp_error(from, about, IcmpReason::TimeExceeded) {
            self.route(domain, error, now, None);
        }
    }

    fn route(&mut self, domain: usize, mut data: Vec<u8>, now: Instant, from: Option<usize>) {
        let Some(h) = packet::parse(&data) else {
            return;
        };
        // IPv6 is routed by the public segment everywhere: no carrier NAT.
        let at = if h.v6 { 0 } else { domain };
        let to = match self.domains[at].route(h.dst) {
            Some(to) if from.is_some() && at != 0 && !self.domains[at].local => {
                // Subscribers of one carrier meet only through its NAT.
                return self.drop(to, "carrier keeps subscribers apart");
            }
            Some(to) => to,
            None => match self.domains[at].uplink {
                Some(uplink) if from.is_some() => return self.port_out(uplink, data, now),
                _ => {
                    if let Some(p) = from {
                        self.drop(p, "no route");
                    }
                    return;
                }
            },
        };
        let port = &mut self.ports[to];
        if !packet::spend_hops(&mut data, port.down.cfg.hops) {
            return self.time_exceeded(at, &data, now);
        }
        let exit = port.down.pass(now, data.len());
        self.schedule(exit, Stage::Down(to), data, now);
    }

    fn switch(&mut self, i: usize, from: usize, data: Vec<u8>, now: Instant) {
        if data.len() < 14 {
            return;
        }
        let mac = |at: usize| -> [u8; 6] {
            let mut m = [0; 6];
            m.copy_from_slice(&data[at..at + 6]);
            m
        };
        let (to, source) = (mac(0), mac(6));
        let s = &mut self.switches[i];
        s.learned.insert(source, from);
        let group = to[0] & 1 == 1;
        let arp = data[12..14] == [0x08, 0x06];
        if group && !s.broadcast && !arp {
            return;
        }
        let targets: Vec<usize> = match s.learned.get(&to) {
            Some(port) if !group => vec![*port],
            _ => (0..s.ports.len()).collect(),
        };
        for j in targets.into_iter().filter(|j| *j != from) {
            let port = &mut self.switches[i].ports[j];
            let exit = port.down.pass(now, data.len());
            let fd = port.device.as_raw_fd();
            self.schedule(exit, Stage::Write(fd), data.clone(), now);
        }
    }
}

/// A NAT stays usable when a thread that held it panicked: each change to it is
/// complete in itself.
pub(crate) fn lock(nat: &SharedNat) -> std::sync::MutexGuard<'_, Nat> {
    nat.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
