//! A home router by what RFC 4787 calls its mapping and its filtering behaviour.
//!
//! The box is told of datagrams that leave and arrive and answers with the address they get; carrying them is the
//! world's work. UDP only, one external address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use seam::Dice;

/// Most mappings of one box; a new one then takes the place of the one unused longest.
const MAPPINGS_MAX: usize = 4096;
/// Most remotes one mapping remembers having sent to; the one unused longest goes. A router holds one entry for each, and
/// small ones hold as many in all.
const REMOTES_MAX: usize = 4096;
/// Ports below this are never handed out.
const PORT_MIN: u16 = 1024;

/// What of the other end a mapping or a filter depends on (RFC 4787, sections 4.1 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// Nothing: one external port per inner endpoint; or everybody is let in.
    Endpoint,
    /// Its address.
    Address,
    /// Its address and port.
    AddressAndPort,
}

/// How external ports are chosen (RFC 4787, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The inner port where it is free, else the next free one.
    Preserving,
    /// One after the other, beginning with this one.
    Sequential(u16),
    /// Any.
    Random,
}

/// A kind of box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatConfig {
    /// When a new external port is taken.
    pub mapping: Dependence,
    /// Who is let in.
    pub filtering: Dependence,
    /// Which port it is.
    pub ports: Ports,
    /// A mapping unused this long is gone, and so is the right to answer.
    pub timeout: Duration,
    /// Whether datagrams from outside keep a mapping alive. Those from inside always do.
    pub inbound_refreshes: bool,
    /// Whether an inner endpoint reaches another by its external address.
    pub hairpin: bool,
}

impl NatConfig {
    /// Lets everybody in once a port is mapped ("full cone").
    pub const OPEN: Self = Self {
        mapping: Dependence::Endpoint,
        filtering: Dependence::Endpoint,
        ports: Ports::Preserving,
        timeout: Duration::from_secs(120),
        inbound_refreshes: false,
        hairpin: true,
    };
    /// Lets in who was sent to, from any of their ports ("address restricted cone").
    pub const ADDRESS_RESTRICTED: Self = Self { filtering: Dependence::Address, ..Self::OPEN };
    /// Lets in whom was sent to exactly ("port restricted cone"): the common home router.
    pub const PORT_RESTRICTED: Self = Self { filtering: Dependence::AddressAndPort, ..Self::OPEN };
    /// A new random port for every destination, and only that one answers ("symmetric").
    pub const SYMMETRIC: Self = Self {
        mapping: Dependence::AddressAndPort,
        filtering: Dependence::AddressAndPort,
        ports: Ports::Random,
        hairpin: false,
        ..Self::OPEN
    };
}

/// The part of a destination that a mapping belongs to.
type Toward = (Option<IpAddr>, Option<u16>);

#[derive(Clone, Debug)]
struct Mapping {
    inner: SocketAddr,
    toward: Toward,
    used: Instant,
    /// Who was sent to through this mapping, and when last.
    remotes: BTreeMap<SocketAddr, Instant>,
}

/// One box. At most 4,096 mappings, each with at most 4,096 remembered remotes.
#[derive(Clone, Debug)]
pub struct Nat {
    config: NatConfig,
    external: IpAddr,
    dice: Dice,
    by_port: BTreeMap<u16, Mapping>,
    by_inner: BTreeMap<(SocketAddr, Toward), u16>,
    next_port: u16,
    /// Ports of before the last rebinding: they are not handed out again, so that a rebinding always shows.
    burnt: BTreeSet<u16>,
}

impl Nat {
    /// A box with one external address and its own stream of chance.
    #[must_use]
    pub fn new(config: NatConfig, external: IpAddr, seed: [u8; 32]) -> Self {
        let next_port = if let Ports::Sequential(first) = config.ports { first.max(PORT_MIN) } else { PORT_MIN };
        Self {
            config,
            external,
            dice: Dice::new(seed),
            by_port: BTreeMap::new(),
            by_inner: BTreeMap::new(),
            next_port,
            burnt: BTreeSet::new(),
        }
    }

    /// The address the world sees.
    #[must_use]
    pub fn external(&self) -> IpAddr {
        self.external
    }

    /// A datagram from `inner` leaves for `remote`: the source address the world sees. `None` when no port is left.
    pub fn outbound(&mut self, now: Instant, inner: SocketAddr, remote: SocketAddr) -> Option<SocketAddr> {
        self.expire(now);
        let toward = toward(self.config.mapping, remote);
        let port = match self.by_inner.get(&(inner, toward)) {
            Some(port) => *port,
            None => self.map(now, inner, toward)?,
        };
        let mapping = self.by_port.get_mut(&port)?;
        mapping.used = now;
        mapping.remotes.insert(remote, now);
        if mapping.remotes.len() > REMOTES_MAX
            && let Some(stalest) = mapping.remotes.iter().min_by_key(|(_, used)| **used).map(|(remote, _)| *remote)
        {
            mapping.remotes.remove(&stalest);
        }
        Some(SocketAddr::new(self.external, port))
    }

    /// A datagram from `remote` arrives at `outer`: the inner endpoint it is passed to. `None` when it is dropped.
    pub fn inbound(&mut self, now: Instant, remote: SocketAddr, outer: SocketAddr) -> Option<SocketAddr> {
        self.expire(now);
        if outer.ip() != self.external {
            return None;
        }
        let (filtering, timeout) = (self.config.filtering, self.config.timeout);
        let mapping = self.by_port.get_mut(&outer.port())?;
        let wanted = toward(filtering, remote);
        let allowed = filtering == Dependence::Endpoint
            || mapping.remotes.iter().any(|(sent_to, used)| {
                toward(filtering, *sent_to) == wanted && now.saturating_duration_since(*used) < timeout
            });
        if !allowed {
            return None;
        }
        if self.config.inbound_refreshes {
            mapping.used = now;
            if let Some(sent_to) = mapping.remotes.get_mut(&remote) {
                *sent_to = now;
            }
        }
        Some(mapping.inner)
    }

    /// A datagram from `inner` leaves for `outer`, an external address of this same box: the source the receiver sees
    /// and the inner endpoint it is passed to. `None` when the box does not hairpin or drops it.
    pub fn hairpin(&mut self, now: Instant, inner: SocketAddr, outer: SocketAddr) -> Option<(SocketAddr, SocketAddr)> {
        let source = self.outbound(now, inner, outer)?;
        if !self.config.hairpin {
            return None;
        }
        let to = self.inbound(now, source, outer)?;
        Some((source, to))
    }

    /// Forgets every mapping, as a restart does. What maps anew gets another port than before.
    pub fn rebind(&mut self) {
        self.burnt = self.by_port.keys().copied().collect();
        self.by_port.clear();
        self.by_inner.clear();
    }

    /// The provider hands out another external address; mappings are gone.
    pub fn readdress(&mut self, external: IpAddr) {
        self.rebind();
        self.external = external;
    }

    /// Mappings alive at `now`.
    pub fn mappings(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.by_port.len()
    }

    fn map(&mut self, now: Instant, inner: SocketAddr, toward: Toward) -> Option<u16> {
        if self.by_port.len() >= MAPPINGS_MAX
            && let Some(stalest) = self.by_port.iter().min_by_key(|(_, mapping)| mapping.used).map(|(port, _)| *port)
        {
            self.unmap(stalest);
        }
        let port = self.choose_port(inner.port())?;
        self.by_port.insert(port, Mapping { inner, toward, used: now, remotes: BTreeMap::new() });
        self.by_inner.insert((inner, toward), port);
        Some(port)
    }

    fn choose_port(&mut self, inner: u16) -> Option<u16> {
        let wanted = match self.config.ports {
            Ports::Preserving => inner.max(PORT_MIN),
            Ports::Sequential(_) => self.next_port,
            Ports::Random => {
                let above = self.dice.below(u64::from(u16::MAX - PORT_MIN) + 1);
                PORT_MIN + u16::try_from(above).unwrap_or_default()
            }
        };
        let port = (wanted..=u16::MAX).chain(PORT_MIN..wanted).find(|port| self.is_free(*port))?;
        self.next_port = port.checked_add(1).unwrap_or(PORT_MIN);
        Some(port)
    }

    fn is_free(&self, port: u16) -> bool {
        !self.by_port.contains_key(&port) && !self.burnt.contains(&port)
    }

    fn expire(&mut self, now: Instant) {
        let timeout = self.config.timeout;
        let dead: Vec<u16> = self
            .by_port
            .iter()
            .filter(|(_, mapping)| now.saturating_duration_since(mapping.used) >= timeout)
            .map(|(port, _)| *port)
            .collect();
        for port in dead {
            self.unmap(port);
        }
    }

    fn unmap(&mut self, port: u16) {
        if let Some(mapping) = self.by_port.remove(&port) {
            self.by_inner.remove(&(mapping.inner, mapping.toward));
        }
    }
}

fn toward(dependence: Dependence, remote: SocketAddr) -> Toward {
    match dependence {
        Dependence::Endpoint => (None, None),
        Dependence::Address => (Some(remote.ip()), None),
        Dependence::AddressAndPort => (Some(remote.ip()), Some(remote.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn home(config: NatConfig) -> Nat {
        Nat::new(config, at("203.0.113.5:0").ip(), [3; 32])
    }

    /// The mapped ports toward two ports of one address and one of another.
    fn ports(config: NatConfig) -> [u16; 3] {
        let mut nat = home(config);
        let now = Instant::now();
        ["198.51.100.1:1", "198.51.100.1:2", "198.51.100.2:1"]
            .map(|to| nat.outbound(now, at("192.168.0.2:5000"), at(to)).unwrap().port())
    }

    #[test]
    fn mapping_depends_on_what_its_kind_says() {
        let kind = |mapping| ports(NatConfig { mapping, ports: Ports::Sequential(3000), ..NatConfig::OPEN });
        assert_eq!(kind(Dependence::Endpoint), [3000, 3000, 3000]);
        assert_eq!(kind(Dependence::Address), [3000, 3000, 3001]);
        assert_eq!(kind(Dependence::AddressAndPort), [3000, 3001, 3002]);
    }

    #[test]
    fn filtering_depends_on_what_its_kind_says() {
        let kind = |filtering| {
            let mut nat = home(NatConfig { filtering, ..NatConfig::OPEN });
            let now = Instant::now();
            let outer = nat.outbound(now, at("192.168.0.2:5000"), at("198.51.100.1:1")).unwrap();
            ["198.51.100.1:1", "198.51.100.1:2", "198.51.100.2:1"]
                .map(|from| nat.inbound(now, at(from), outer) == Some(at("192.168.0.2:5000")))
        };
        assert_eq!(kind(Dependence::Endpoint), [true, true, true]);
        assert_eq!(kind(Dependence::Address), [true, true, false]);
        assert_eq!(kind(Dependence::AddressAndPort), [true, false, false]);
    }

    #[test]
    fn a_preserved_port_goes_to_who_comes_first() {
        let mut nat = home(NatConfig::OPEN);
        let now = Instant::now();
        let [a, b] =
            ["192.168.0.2:5000", "192.168.0.3:5000"].map(|inner| nat.outbound(now, at(inner), at("198.51.100.1:1")));
        assert_eq!([a, b], [Some(at("203.0.113.5:5000")), Some(at("203.0.113.5:5001"))]);
    }

    #[test]
    fn random_ports_repeat_with_their_seed_and_stay_off_the_low_ones() {
        assert_eq!(ports(NatConfig::SYMMETRIC), ports(NatConfig::SYMMETRIC));
        assert!(ports(NatConfig::SYMMETRIC).iter().all(|port| *port >= PORT_MIN));
    }

    #[test]
    fn nothing_gets_in_unasked_or_at_another_address() {
        let mut nat = home(NatConfig::OPEN);
        let now = Instant::now();
        assert_eq!(nat.inbound(now, at("198.51.100.1:1"), at("203.0.113.5:5000")), None);
        nat.outbound(now, at("192.168.0.2:5000"), at("198.51.100.1:1"));
        assert_eq!(nat.inbound(now, at("198.51.100.1:1"), at("203.0.113.6:5000")), None);
    }

    #[test]
    fn a_mapping_times_out_and_receiving_refreshes_it_where_the_kind_says_so() {
        let start = Instant::now();
        let (inner, remote) = (at("192.168.0.2:5000"), at("198.51.100.1:1"));
        let secs = |n| start + Duration::from_secs(n);
        for refreshes in [false, true] {
            let mut nat = home(NatConfig { inbound_refreshes: refreshes, ..NatConfig::PORT_RESTRICTED });
            let outer = nat.outbound(start, inner, remote).unwrap();
            assert_eq!(nat.outbound(secs(100), inner, remote), Some(outer));
            assert_eq!(nat.inbound(secs(219), remote, outer), Some(inner));
            assert_eq!(nat.inbound(secs(220), remote, outer).is_some(), refreshes);
        }
    }

    #[test]
    fn the_right_to_answer_times_out_with_its_own_sender() {
        let start = Instant::now();
        let mut nat = home(NatConfig::PORT_RESTRICTED);
        let (inner, old, new) = (at("192.168.0.2:5000"), at("198.51.100.1:1"), at("198.51.100.2:1"));
        let outer = nat.outbound(start, inner, old).unwrap();
        nat.outbound(start + Duration::from_secs(100), inner, new);
        let later = start + Duration::from_secs(130);
        assert_eq!([old, new].map(|from| nat.inbound(later, from, outer).is_some()), [false, true]);
    }

    #[test]
    fn hairpin_turns_round_with_the_external_source_or_drops() {
        let now = Instant::now();
        for hairpin in [true, false] {
            let mut nat = home(NatConfig { hairpin, ..NatConfig::OPEN });
            let outer = nat.outbound(now, at("192.168.0.2:5000"), at("198.51.100.1:1")).unwrap();
            let turned = nat.hairpin(now, at("192.168.0.3:6000"), outer);
            let want = (at("203.0.113.5:6000"), at("192.168.0.2:5000"));
            assert_eq!(turned, hairpin.then_some(want));
        }
    }

    #[test]
    fn a_rebinding_drops_what_was_and_shows_in_the_port() {
        let now = Instant::now();
        let (inner, remote) = (at("192.168.0.2:5000"), at("198.51.100.1:1"));
        let mut nat = home(NatConfig::OPEN);
        let before = nat.outbound(now, inner, remote).unwrap();
        nat.rebind();
        assert_eq!((nat.mappings(now), nat.inbound(now, remote, before)), (0, None));
        assert_ne!(nat.outbound(now, inner, remote), Some(before));
        nat.readdress(at("203.0.113.77:0").ip());
        assert_eq!(nat.outbound(now, inner, remote).unwrap().ip(), at("203.0.113.77:0").ip());
    }

    #[test]
    fn a_flood_of_destinations_is_bounded() {
        let mut nat = home(NatConfig::SYMMETRIC);
        let now = Instant::now();
        for n in 0..5_000u32 {
            assert!(nat.outbound(now, at("192.168.0.2:5000"), SocketAddr::from((n.to_be_bytes(), 9))).is_some());
        }
        assert_eq!(nat.mappings(now), MAPPINGS_MAX);
        let mut nat = home(NatConfig::OPEN);
        for n in 0..1_000u32 {
            nat.outbound(now, at("192.168.0.2:5000"), SocketAddr::from((n.to_be_bytes(), 9)));
        }
        assert!(nat.by_port.values().all(|mapping| mapping.remotes.len() <= REMOTES_MAX));
    }
}
