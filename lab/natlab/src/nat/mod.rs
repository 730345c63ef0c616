//! The NAT engine: every RFC 4787 / RFC 5382 behaviour is a setting.
//!
//! A *binding* ties an inside endpoint to an outside endpoint. With
//! endpoint-independent mapping an inside endpoint has one binding; with
//! address- or address-and-port-dependent mapping it has one for each remote.
//! A *session* is one remote that the inside endpoint of a binding has talked
//! to; the filtering behaviour looks at the sessions.
//!
//! With `translate` off, the same tables make a stateful firewall: the outside
//! endpoint is the inside endpoint.

#[cfg(test)]
mod tests;
mod translate;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::packet;
use crate::rng::Rng;

/// Which remotes share a mapping, or pass a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependence {
    /// Endpoint-independent.
    Independent,
    /// Address-dependent.
    Address,
    /// Address-and-port-dependent.
    AddressPort,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ports {
    /// The inside port, when it is free.
    Preserve,
    Random,
    Sequential,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hairpin {
    Off,
    /// The inner receiver sees the sender's outside endpoint (RFC 4787 REQ-9).
    External,
    /// The inner receiver sees the sender's inside endpoint.
    Internal,
}

#[derive(Clone, Debug)]
pub(crate) struct NatConfig {
    pub(crate) translate: bool,
    pub(crate) mapping: Dependence,
    pub(crate) filtering: Dependence,
    pub(crate) ports: Ports,
    pub(crate) port_range: (u16, u16),
    pub(crate) hairpin: Hairpin,
    pub(crate) udp_timeout: Duration,
    pub(crate) tcp_timeout: Duration,
    /// Inbound traffic also keeps a mapping alive.
    pub(crate) refresh_inbound: bool,
    /// UDP may leave.
    pub(crate) udp: bool,
    /// Where TCP may connect to; None for anywhere.
    pub(crate) tcp_ports: Option<Vec<u16>>,
    /// Answer what is refused (RST, ICMP) instead of dropping it.
    pub(crate) reject: bool,
    pub(crate) fragments: bool,
    /// Answer pings to the outside address.
    pub(crate) ping: bool,
}

impl Default for NatConfig {
    fn default() -> Self {
        NatConfig {
            translate: true,
            mapping: Dependence::Independent,
            filtering: Dependence::AddressPort,
            ports: Ports::Preserve,
            port_range: (1024, 65535),
            hairpin: Hairpin::Off,
            udp_timeout: Duration::from_secs(120),
            tcp_timeout: Duration::from_secs(7200),
            refresh_inbound: true,
            udp: true,
            tcp_ports: None,
            reject: false,
            fragments: true,
            ping: true,
        }
    }
}

const TCP_OPENING: Duration = Duration::from_secs(60);
const TCP_CLOSING: Duration = Duration::from_secs(4);
const ICMP_TIMEOUT: Duration = Duration::from_secs(60);
const FRAGMENT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
struct Session {
    expires: Instant,
    sent: bool,
    received: bool,
    fin_sent: bool,
    fin_received: bool,
    reset: bool,
}

/// A port mapping that a router's owner or a control protocol asked for.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    pub(crate) proto: u8,
    pub(crate) outside_port: u16,
    pub(crate) inside: SocketAddr,
    /// Only this remote may use it, if set.
    pub(crate) remote: Option<IpAddr>,
    pub(crate) expires: Option<Instant>,
    pub(crate) description: String,
    /// Written in the topology: survives a reset.
    pub(crate) fixed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Scope {
    Any,
    Address(IpAddr),
    AddressPort(SocketAddr),
}

#[derive(Debug)]
struct Binding {
    proto: u8,
    inside: SocketAddr,
    outside: SocketAddr,
    scope: Scope,
    forward: Option<Forward>,
    sessions: HashMap<SocketAddr, Session>,
}

impl Binding {
    fn alive(&self, now: Instant) -> bool {
        match &self.forward {
            Some(f) => f.expires.is_none_or(|at| at > now),
            None => self.sessions.values().any(|s| s.expires > now),
        }
    }
}

/// What becomes of a packet that met the NAT.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Goes on in its direction.
    Forward(Vec<u8>),
    /// Goes to the inside: hairpinned traffic, or an answer of the router.
    Inside(Vec<u8>),
    /// Goes to the outside: an answer of the router.
    Outside(Vec<u8>),
    Drop(&'static str),
}

/// One line of the table, for showing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) proto: u8,
    pub(crate) inside: SocketAddr,
    pub(crate) outside: SocketAddr,
    pub(crate) scope: String,
    pub(crate) remotes: Vec<SocketAddr>,
    pub(crate) forward: Option<Forward>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ForwardError {
    /// The outside port is forwarded to another inside endpoint.
    Conflict,
}

pub(crate) struct Nat {
    pub(crate) cfg: NatConfig,
    wan: IpAddr,
    bindings: HashMap<u64, Binding>,
    next_id: u64,
    by_inside: HashMap<(u8, SocketAddr, Scope), u64>,
    by_outside: HashMap<(u8, SocketAddr), u64>,
    forwards: HashMap<(u8, SocketAddr), u64>,
    fragments: HashMap<(IpAddr, IpAddr, u8, u32), (SocketAddr, Instant)>,
    next_port: u16,
    rng: Rng,
}

impl Nat {
    pub(crate) fn new(cfg: NatConfig, wan: IpAddr, mut rng: Rng) -> Self {
        let next_port = rng.between(20000, 50000);
        Nat {
            cfg,
            wan,
            bindings: HashMap::new(),
            next_id: 1,
            by_inside: HashMap::new(),
            by_outside: HashMap::new(),
            forwards: HashMap::new(),
            fragments: HashMap::new(),
            next_port,
            rng,
        }
    }

    pub(crate) fn wan(&self) -> IpAddr {
        self.wan
    }

    /// The router got a new outside address: dynamic state is gone, and the
    /// forwards move to the new address.
    pub(crate) fn renumber(&mut self, wan: IpAddr) {
        let forwards = self.forwards();
        self.clear();
        self.wan = wan;
        for f in forwards {
            let _ = self.add_forward(f, Instant::now());
        }
    }

    /// The router was restarted: only what its configuration says is left.
    pub(crate) fn reset(&mut self) {
        let forwards = self.forwards();
        self.clear();
        for f in forwards.into_iter().filter(|f| f.fixed) {
            let _ = self.add_forward(f, Instant::now());
        }
    }

    fn clear(&mut self) {
        self.bindings.clear();
        self.by_inside.clear();
        self.by_outside.clear();
        self.forwards.clear();
        self.fragments.clear();
    }

    pub(crate) fn forwards(&self) -> Vec<Forward> {
        let mut all: Vec<Forward> = self.bindings.values().filter_map(|b| b.forward.clone()).collect();
        all.sort_by_key(|f| (f.proto, f.outside_port));
        all
    }

    /// The forward on an outside port, if one is there and has not run out.
    pub(crate) fn forward_at(&self, proto: u8, port: u16, now: Instant) -> Option<&Forward> {
        let id = self.by_outside.get(&(proto, SocketAddr::new(self.wan, port)))?;
        let forward = self.bindings.get(id)?.forward.as_ref()?;
        forward.expires.is_none_or(|at| at > now).then_some(forward)
    }

    /// Adds a forward, or renews one of the same inside endpoint. It takes the
    /// outside port from a dynamic mapping that holds it.
    pub(crate) fn add_forward(&mut self, f: Forward, now: Instant) -> Result<(), ForwardError> {
        let outside = if self.cfg.translate { SocketAddr::new(self.wan, f.outside_port) } else { f.inside };
        let mut sessions = HashMap::new();
        if let Some(id) = self.live_outside(f.proto, outside, now) {
            let old = &self.bindings[&id];
            if old.forward.is_some() && old.inside != f.inside {
                return Err(ForwardError::Conflict);
            }
            if old.inside == f.inside {
                sessions = old.sessions.clone();
            }
            self.remove(id);
        }
        let id = self.insert(Binding {
            proto: f.proto,
            inside: f.inside,
            outside,
            scope: Scope::Any,
            forward: Some(f.clone()),
            sessions,
        });
        self.forwards.insert((f.proto, f.inside), id);
        Ok(())
    }

    pub(crate) fn remove_forward(&mut self, proto: u8, port: u16) -> bool {
        let key = (proto, SocketAddr::new(self.wan, port));
        let id = self.by_outside.get(&key).copied();
        match id {
            Some(id) if self.bindings[&id].forward.is_some() => {
                self.remove(id);
                true
            }
            _ => false,
        }
    }

    /// An outside port that no forward and no live mapping holds.
    pub(crate) fn free_port(&mut self, proto: u8, wanted: u16, now: Instant) -> Option<u16> {
        let at = SocketAddr::new(self.wan, wanted);
        if wanted != 0 && self.live_outside(proto, at, now).is_none() {
            return Some(wanted);
        }
        self.random_port(proto, 0, now)
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let now = Instant::now();
        let mut all: Vec<Entry> = self
            .bindings
            .values()
            .filter(|b| b.alive(now))
            .map(|b| Entry {
                proto: b.proto,
                inside: b.inside,
                outside: b.outside,
                scope: match b.scope {
                    Scope::Any => "any".into(),
                    Scope::Address(a) => a.to_string(),
                    Scope::AddressPort(a) => a.to_string(),
                },
                remotes: b.sessions.iter().filter(|(_, s)| s.expires > now).map(|(r, _)| *r).collect(),
                forward: b.forward.clone(),
            })
            .collect();
        all.sort_by_key(|e| (e.proto, e.outside));
        all
    }

    /// Forgets what has run out. Lookups check for themselves; this only keeps
    /// the tables small.
    pub(crate) fn collect(&mut self, now: Instant) {
        let dead: Vec<u64> = self.bindings.iter().filter(|(_, b)| !b.alive(now)).map(|(id, _)| *id).collect();
        for id in dead {
            self.remove(id);
        }
        for b in self.bindings.values_mut() {
            b.sessions.retain(|_, s| s.expires > now);
        }
        self.fragments.retain(|_, (_, at)| *at > now);
    }

    fn insert(&mut self, b: Binding) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.by_outside.insert((b.proto, b.outside), id);
        if b.forward.is_none() {
            self.by_inside.insert((b.proto, b.inside, b.scope), id);
        }
        self.bindings.insert(id, b);
        id
    }

    fn remove(&mut self, id: u64) {
        if let Some(b) = self.bindings.remove(&id) {
            self.by_outside.remove(&(b.proto, b.outside));
            let key = (b.proto, b.inside, b.scope);
            if self.by_inside.get(&key) == Some(&id) {
                self.by_inside.remove(&key);
            }
            let key = (b.proto, b.inside);
            if self.forwards.get(&key) == Some(&id) {
                self.forwards.remove(&key);
            }
        }
    }

    fn live(&mut self, id: u64, now: Instant) -> Option<u64> {
        if self.bindings.get(&id)?.alive(now) {
            Some(id)
        } else {
            self.remove(id);
            None
        }
    }

    fn live_outside(&mut self, proto: u8, at: SocketAddr, now: Instant) -> Option<u64> {
        let id = *self.by_outside.get(&(proto, at))?;
        self.live(id, now)
    }

    fn scope(&self, remote: SocketAddr) -> Scope {
        match self.cfg.mapping {
            Dependence::Independent => Scope::Any,
            Dependence::Address => Scope::Address(remote.ip()),
            Dependence::AddressPort => Scope::AddressPort(remote),
        }
    }

    /// The binding that carries traffic of `inside` to `remote`, if there is one.
    fn find_out(&mut self, proto: u8, inside: SocketAddr, remote: SocketAddr, now: Instant) -> Option<u64> {
        if let Some(&id) = self.forwards.get(&(proto, inside))
            && let Some(id) = self.live(id, now)
        {
            let known = self.bindings[&id].sessions.get(&remote).is_some_and(|s| s.expires > now);
            // A forward answers with its own port; what the inside starts
            // by itself uses it too where mapping is endpoint-independent.
            if known || self.cfg.mapping == Dependence::Independent {
                return Some(id);
            }
        }
        let id = *self.by_inside.get(&(proto, inside, self.scope(remote)))?;
        self.live(id, now)
    }

    fn open(&mut self, proto: u8, inside: SocketAddr, remote: SocketAddr, now: Instant) -> Option<u64> {
        let outside = if self.cfg.translate {
            SocketAddr::new(self.wan, self.allocate(proto, inside.port(), now)?)
        } else {
            inside
        };
        let scope = self.scope(remote);
        Some(self.insert(Binding { proto, inside, outside, scope, forward: None, sessions: HashMap::new() }))
    }

    fn allocate(&mut self, proto: u8, inside: u16, now: Instant) -> Option<u16> {
        let (low, high) = self.cfg.port_range;
        match self.cfg.ports {
            Ports::Preserve => {
                let at = SocketAddr::new(self.wan, inside);
                let in_range = proto == packet::ICMP || (inside >= low && inside <= high);
                if in_range && self.live_outside(proto, at, now).is_none() {
                    return Some(inside);
                }
                self.random_port(proto, inside, now)
            }
            Ports::Random => self.random_port(proto, inside, now),
            Ports::Sequential => {
                for _ in low..=high {
                    self.next_port =
                        if self.next_port >= high || self.next_port < low { low } else { self.next_port + 1 };
                    let at = SocketAddr::new(self.wan, self.next_port);
                    if self.live_outside(proto, at, now).is_none() {
                        return Some(self.next_port);
                    }
                }
                None
            }
        }
    }

    fn random_port(&mut self, proto: u8, not: u16, now: Instant) -> Option<u16> {
        let (low, high) = self.cfg.port_range;
        for _ in 0..64 {
            let port = self.rng.between(low, high);
            let at = SocketAddr::new(self.wan, port);
            if port != not && self.live_outside(proto, at, now).is_none() {
                return Some(port);
            }
        }
        (low..=high).find(|p| self.live_outside(proto, SocketAddr::new(self.wan, *p), now).is_none())
    }
}
