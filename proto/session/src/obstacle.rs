//! Why a host was not reached, and which way a joiner took.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use joincode::Profile;
use stun::Observation;
use thiserror::Error;

/// Which way won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Via {
    /// A virtual network both are in.
    Vpn,
    /// The local network.
    Lan,
    /// IPv6.
    V6,
    /// The public address of the host's code.
    Public,
    /// An address that the host was only seen at: its router gives out another per destination.
    Seen,
    /// A port that was guessed.
    Guessed,
    /// A relay of the master.
    Relay,
    /// A relay of the master, with TCP at one end at least: UDP does not get out there.
    Tcp,
}

impl Via {
    /// Which of a host's addresses this is.
    pub(crate) fn of(host: &Profile, at: SocketAddr) -> Self {
        let is = |candidate: Option<SocketAddrV4>| candidate.map(SocketAddr::V4) == Some(at);
        let [vpn, vpn2] = host.vpn;
        match () {
            () if is(vpn) || is(vpn2) => Self::Vpn,
            // Without a router both are one address.
            () if is(host.public) => Self::Public,
            () if is(host.lan) => Self::Lan,
            () if at.is_ipv6() => Self::V6,
            () => Self::Seen,
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vpn => "virtual network",
            Self::Lan => "local network",
            Self::V6 => "IPv6",
            Self::Public => "public address",
            Self::Seen => "address the host was seen at",
            Self::Guessed => "guessed port",
            Self::Relay => "relay",
            Self::Tcp => "TCP through the master",
        })
    }
}

/// What stood between a joiner and its host: one true sentence, and the one thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// The code names no address, and no master was asked.
    #[error("the code holds no address that can be dialled from here; ask the host for a new code")]
    NoAddress,
    /// The code is old and nobody answers.
    #[error("nobody answers at the addresses of this code, which is {minutes} minutes old; ask the host for a new one")]
    OldCode {
        /// Its age.
        minutes: u64,
    },
    /// Not one datagram came back from anywhere.
    #[error(
        "no datagram came back to this machine from anywhere, so this network seems to block UDP; try another network \
         or a virtual network both are in"
    )]
    UdpBlocked,
    /// Nor did TCP help.
    #[error(
        "no datagram came back to this machine from anywhere, so this network seems to block UDP, and the master server \
         gives no TCP either ({0}); try another network"
    )]
    TcpBlocked(String),
    /// No master was to be asked.
    #[error(
        "the host's addresses do not answer and no master server may be asked to help; leave the master server on at \
         both ends, or forward the host's UDP port"
    )]
    NoMaster,
    /// The master did not help.
    #[error("the host's addresses do not answer and the master server did not help ({0}); try again later")]
    MasterSilent(String),
    /// The master took the knocks, and nobody followed them.
    #[error(
        "the host's addresses do not answer and nobody heard the knock at the master server; the lobby is probably \
         closed: ask the host for its present code"
    )]
    NobodyHeard,
    /// Both routers change their ports.
    #[error(
        "the routers at both ends give every destination another port and no relay served; forward the host's UDP \
         port, or let the other one host"
    )]
    BothSymmetric,
    /// The host looks for us, but nothing gets through and no relay served.
    #[error(
        "the routers in between let nothing through and no relay served; forward the host's UDP port, or use a \
         virtual network both are in"
    )]
    NoWay,
}

/// What is known when a dial has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) host: &'a Profile,
    pub(crate) dialled: usize,
    /// Seconds.
    pub(crate) age: i64,
    pub(crate) mine: Option<&'a Observation>,
    /// Servers were asked for the own address.
    pub(crate) asked_stun: bool,
    /// Any datagram at all came in.
    pub(crate) heard_anything: bool,
    pub(crate) master: Option<Master<'a>>,
}

/// What came of asking the master.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Master<'a> {
    pub(crate) knocked: bool,
    pub(crate) trouble: Option<&'a str>,
    /// The host bound its end of a relay, or was seen punching.
    pub(crate) host_came: bool,
    /// What became of TCP through the master, where it was needed.
    pub(crate) tunnel: Option<Result<(), &'a str>>,
}

impl Obstacle {
    pub(crate) fn of(evidence: &Evidence<'_>) -> Self {
        let Evidence { host, dialled, age, mine, asked_stun, heard_anything, master } = *evidence;
        let known = mine.is_some_and(|o| !o.public.is_empty());
        let old = u64::try_from(age / 60).unwrap_or(0);
        let is_old = age >= i64::try_from(OLD.as_secs()).unwrap_or(i64::MAX);
        if dialled == 0 && master.is_none() {
            return Self::NoAddress;
        }
        if asked_stun && !known && !heard_anything {
            match master.and_then(|master| master.tunnel) {
                Some(Err(why)) => return Self::TcpBlocked(why.to_owned()),
                None => return Self::UdpBlocked,
                // It was met there, or it was not: datagrams have nothing to do with it.
                Some(Ok(())) => {}
            }
        }
        let both = host.flags.symmetric && mine.is_some_and(|o| o.symmetric);
        match master {
            None if is_old => Self::OldCode { minutes: old },
            None => Self::NoMaster,
            Some(Master { knocked: false, trouble, .. }) => {
                Self::MasterSilent(trouble.unwrap_or("it did not answer").to_owned())
            }
            Some(Master { host_came: false, .. }) if is_old => Self::OldCode { minutes: old },
            Some(Master { host_came: false, .. }) => Self::NobodyHeard,
            Some(_) if both => Self::BothSymmetric,
            Some(_) => Self::NoWay,
        }
    }
}

/// From this age on a code is named as the likely reason.
const OLD: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_of_evidence_names_its_obstacle() {
        let host = Profile::default();
        let symmetric =
            Profile { flags: joincode::NatFlags { symmetric: true, ..Default::default() }, ..Profile::default() };
        let seen = Observation { public: vec!["203.0.113.5:9".parse().unwrap()], symmetric: true, cgnat: false };
        let base = Evidence {
            host: &host,
            dialled: 1,
            age: 5,
            mine: Some(&seen),
            asked_stun: true,
            heard_anything: true,
            master: None,
        };
        let master = Master { knocked: true, trouble: None, host_came: true, tunnel: None };
        let silent = Master { knocked: false, trouble: Some("timed out"), host_came: false, tunnel: None };
        let dark = Evidence { mine: None, heard_anything: false, ..base };
        for (evidence, want) in [
            (Evidence { dialled: 0, ..base }, Obstacle::NoAddress),
            (Evidence { age: 3600, ..base }, Obstacle::OldCode { minutes: 60 }),
            (base, Obstacle::NoMaster),
            (dark, Obstacle::UdpBlocked),
            (
                Evidence { master: Some(Master { tunnel: Some(Err("refused")), ..master }), ..dark },
                Obstacle::TcpBlocked("refused".to_owned()),
            ),
            (
                Evidence { master: Some(Master { tunnel: Some(Ok(())), host_came: false, ..master }), ..dark },
                Obstacle::NobodyHeard,
            ),
            (Evidence { master: Some(silent), ..base }, Obstacle::MasterSilent("timed out".to_owned())),
            (Evidence { master: Some(Master { host_came: false, ..master }), ..base }, Obstacle::NobodyHeard),
            (
                Evidence { master: Some(Master { host_came: false, ..master }), age: 600, ..base },
                Obstacle::OldCode { minutes: 10 },
            ),
            (Evidence { master: Some(master), host: &symmetric, ..base }, Obstacle::BothSymmetric),
            (Evidence { master: Some(master), ..base }, Obstacle::NoWay),
        ] {
            assert_eq!(Obstacle::of(&evidence), want);
            let sentence = want.to_string();
            assert!(sentence.contains(';') || matches!(want, Obstacle::NoAddress), "a hint follows: {sentence}");
        }
    }
}
