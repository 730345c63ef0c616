//! Finding the own public address: names are looked up by the driver, then every server is asked at once.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use joincode::{NatFlags, Profile};
use seam::RequestId;
use stun::Observation;

use crate::{Local, StunServer};

/// Servers asked at most.
const MAX_SERVERS: usize = 8;
/// Names that are not found by then are left out.
const RESOLVE_FOR: Duration = Duration::from_millis(900);
/// From then on the session goes on without a public address.
const OBSERVE_FOR: Duration = Duration::from_millis(2800);

/// Where the observation stands.
#[derive(Debug)]
pub(crate) enum Observing {
    /// Names are being looked up.
    Resolving { waiting: BTreeSet<RequestId>, found: Vec<SocketAddr>, v6: Vec<SocketAddr>, until: Instant },
    /// Servers are being asked.
    Asking { until: Instant },
    /// Over, with or without a result.
    Done(Option<Observation>),
}

impl Observing {
    /// The servers to look up, at most eight.
    pub(crate) fn servers(servers: &[StunServer]) -> &[StunServer] {
        servers.get(..MAX_SERVERS).unwrap_or(servers)
    }

    /// Begins with the look-ups of `waiting`.
    pub(crate) fn begin(now: Instant, waiting: BTreeSet<RequestId>) -> Self {
        if waiting.is_empty() {
            return Self::Done(None);
        }
        Self::Resolving { waiting, found: Vec::new(), v6: Vec::new(), until: now + RESOLVE_FOR }
    }

    /// A name was looked up. One IPv4 address per server is asked: two answers of one server would not tell a
    /// symmetric router. IPv6 ones are kept for a survey.
    pub(crate) fn resolved(&mut self, id: RequestId, addresses: &[SocketAddr]) {
        if let Self::Resolving { waiting, found, v6, .. } = self
            && waiting.remove(&id)
        {
            let is_v4 = |address: &&SocketAddr| matches!(address.ip().to_canonical(), IpAddr::V4(_));
            found.extend(addresses.iter().find(is_v4));
            v6.extend(addresses.iter().find(|address| !is_v4(address)));
        }
    }

    /// Time passes. Gives the servers when they are to be asked.
    pub(crate) fn step(&mut self, now: Instant) -> Option<Vec<SocketAddr>> {
        match self {
            Self::Resolving { waiting, found, v6, until } if waiting.is_empty() || now >= *until => {
                let (mut servers, v6) = (std::mem::take(found), std::mem::take(v6));
                let any = !servers.is_empty();
                servers.extend(v6);
                *self = if any { Self::Asking { until: now + OBSERVE_FOR } } else { Self::Done(None) };
                any.then_some(servers)
            }
            Self::Asking { until } if now >= *until => {
                *self = Self::Done(None);
                None
            }
            Self::Resolving { .. } | Self::Asking { .. } | Self::Done(_) => None,
        }
    }

    /// The servers answered, or did not.
    pub(crate) fn finish(&mut self, observation: Observation) {
        *self = Self::Done(Some(observation));
    }

    /// More answers came: two that differ make a router symmetric, whenever they come.
    pub(crate) fn refine(&mut self, later: &Observation) {
        if let Self::Done(Some(observation)) = self {
            observation.symmetric |= later.symmetric;
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    pub(crate) fn observation(&self) -> Option<&Observation> {
        match self {
            Self::Done(observation) => observation.as_ref(),
            Self::Resolving { .. } | Self::Asking { .. } => None,
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match self {
            Self::Resolving { waiting, until, .. } if !waiting.is_empty() => Some((*until, "names of STUN servers")),
            Self::Resolving { until, .. } => Some((*until - RESOLVE_FOR, "STUN servers to ask")),
            Self::Asking { until } => Some((*until, "answers of STUN servers")),
            Self::Done(_) => None,
        }
    }
}

/// What goes into a code or profile of this machine (netpunch wire, section 2.6).
pub(crate) fn profile(local: &Local, observation: Option<&Observation>, timestamp: u32) -> Profile {
    let at = |ip: std::net::Ipv4Addr| std::net::SocketAddrV4::new(ip, local.port);
    let [vpn, vpn2] = local.vpn;
    Profile {
        timestamp,
        flags: NatFlags {
            open: false,
            symmetric: observation.is_some_and(|o| o.symmetric),
            cgnat: observation.is_some_and(|o| o.cgnat),
        },
        lan: local.lan.map(at),
        public: observation.and_then(|o| o.public.first().copied()),
        v6: local.v6.map(|ip| std::net::SocketAddrV6::new(ip, local.port, 0, 0)),
        vpn: [vpn.map(at), vpn2.map(at)],
        ..Profile::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(n: u64) -> BTreeSet<RequestId> {
        (0..n).map(RequestId).collect()
    }

    #[test]
    fn servers_are_asked_when_every_name_is_known_or_time_is_up() {
        let t0 = Instant::now();
        let server: SocketAddr = ([192, 0, 2, 1], 3478).into();
        let mut all = Observing::begin(t0, ids(2));
        all.resolved(RequestId(0), &[server]);
        assert_eq!(all.step(t0), None);
        all.resolved(RequestId(1), &[]);
        assert_eq!(all.step(t0), Some(vec![server]));

        let mut slow = Observing::begin(t0, ids(2));
        slow.resolved(RequestId(0), &[server]);
        assert_eq!(slow.step(t0 + RESOLVE_FOR), Some(vec![server]));
        assert_eq!(slow.step(t0 + RESOLVE_FOR + OBSERVE_FOR), None);
        assert!(slow.is_done() && slow.observation().is_none());
    }

    #[test]
    fn nobody_to_ask_is_done_at_once() {
        assert!(Observing::begin(Instant::now(), BTreeSet::new()).is_done());
        let t0 = Instant::now();
        let mut none = Observing::begin(t0, ids(1));
        none.resolved(RequestId(0), &["[2001:db8::1]:3478".parse().unwrap()]);
        assert_eq!(none.step(t0), None);
        assert!(none.is_done());
    }
}
