//! Which way two ends will most likely meet, before they try: what is known of both, by one pure function.
//!
//! A host's code says little: its addresses, and whether its port is open, its router gives every destination another
//! port, or a carrier stands in between. Nothing in it tells how the host's router filters, so the worse kind is assumed,
//! which is also the usual one; the sentence says so where it matters.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

use joincode::Profile;
use stun::{Behaviour, Filtering};

/// What a master server can do for the pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Help {
    /// None is named, or it does not answer.
    #[default]
    None,
    /// It answers: it passes on knocks, and relays.
    Master,
    /// It carries datagrams over its web port as well.
    Tunnel,
}

/// What is known of the machine that would join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mine {
    /// Its addresses and flags.
    pub profile: Profile,
    /// How its router behaves.
    pub behaviour: Behaviour,
    /// A datagram came back from somewhere.
    pub udp: bool,
    /// The master server, as this machine reaches it.
    pub help: Help,
}

/// The way a pair is expected to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Expected {
    /// A virtual network both are in.
    Vpn,
    /// The local network.
    Lan,
    /// IPv6.
    V6,
    /// The host's public address, dialled.
    Direct,
    /// Directly, after the master told the host.
    Knock,
    /// Directly, by a port that is guessed; else the relay.
    Guess,
    /// The master's relay.
    Relay,
    /// The master's relay, with TCP at one end at least.
    Tcp,
    /// Not at all.
    Nowhere,
}

impl Expected {
    /// Its name in files that programs read.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Vpn => "vpn",
            Self::Lan => "lan",
            Self::V6 => "ipv6",
            Self::Direct => "direct",
            Self::Knock => "knock",
            Self::Guess => "guess",
            Self::Relay => "relay",
            Self::Tcp => "tcp",
            Self::Nowhere => "nowhere",
        }
    }
}

/// What would make the way better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Better {
    /// It is as good as it gets.
    Nothing,
    /// The host's port, forwarded or mapped.
    OpenPort,
    /// A master server for both ends.
    NameMaster,
    /// A network that lets UDP out, for this machine.
    AllowUdp,
    /// The same for the host, or STUN servers that answer it.
    HostAddress,
    /// A master that carries datagrams over its web port, or UDP.
    Tunnel,
}

/// The way, and what would better it. Displayed as one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The way.
    pub expected: Expected,
    /// What would better it.
    pub better: Better,
}

impl Verdict {
    /// The verdict for a host's code and the machine that would join with it.
    #[must_use]
    pub fn of(host: &Profile, mine: &Mine) -> Self {
        let expected = expected(host, mine);
        Self { expected, better: better(expected, host, mine) }
    }
}

fn expected(host: &Profile, mine: &Mine) -> Expected {
    let me = &mine.profile;
    let (vpns, own) = (host.vpn.iter().flatten(), || me.vpn.iter().flatten());
    if vpns.clone().any(|theirs| own().any(|own| is_one_network(*theirs.ip(), *own.ip()))) {
        return Expected::Vpn;
    }
    let public = |profile: &Profile| profile.public.map(|public| *public.ip());
    let carried = host.flags.cgnat || me.flags.cgnat;
    let one_router = match (public(host), public(me)) {
        // A carrier's address is that of many homes.
        (Some(theirs), Some(own)) => theirs == own && (!carried || is_one_lan(host, me)),
        // Where there is no internet either, the same numbers mean the same network.
        (None, None) => mine.help == Help::None && is_one_lan(host, me),
        _ => false,
    };
    if one_router && host.lan.is_some() {
        return Expected::Lan;
    }
    let helped = mine.help != Help::None;
    if host.v6.is_some() && me.v6.is_some() && helped && mine.udp {
        return Expected::V6;
    }
    let tunnel = mine.help == Help::Tunnel;
    match () {
        () if !mine.udp && tunnel => Expected::Tcp,
        () if !mine.udp => Expected::Nowhere,
        // It found out nothing about itself: most likely no UDP leaves there.
        () if host.public.is_none() && tunnel => Expected::Tcp,
        () if host.public.is_none() && helped => Expected::Relay,
        () if host.public.is_none() => Expected::Nowhere,
        () if host.flags.open || (is_public(host) && !helped) => Expected::Direct,
        () if !helped => Expected::Nowhere,
        () => between_routers(host, mine),
    }
}

/// Two ends with UDP and a master.
fn between_routers(host: &Profile, mine: &Mine) -> Expected {
    let changes = mine.profile.flags.symmetric || mine.behaviour.mapping.is_dependent();
    let lets_in = matches!(
        mine.behaviour.filtering,
        Filtering::EndpointIndependent | Filtering::AddressDependent | Filtering::PortIndependent
    );
    match (host.flags.symmetric, changes) {
        (false, false) if is_public(host) => Expected::Direct,
        (false, false) => Expected::Knock,
        // Its own address is the host's, but there may be a firewall, which lets in one port of ours and not the next.
        (false, true) if is_public(host) => Expected::Direct,
        (true, false) if lets_in => Expected::Knock,
        (false, true) | (true, false) => Expected::Guess,
        (true, true) => Expected::Relay,
    }
}

fn better(expected: Expected, host: &Profile, mine: &Mine) -> Better {
    match expected {
        Expected::Vpn | Expected::Lan | Expected::V6 | Expected::Direct | Expected::Knock => Better::Nothing,
        Expected::Guess => Better::OpenPort,
        Expected::Tcp if !mine.udp => Better::AllowUdp,
        Expected::Nowhere if !mine.udp => Better::Tunnel,
        Expected::Tcp | Expected::Relay if host.public.is_none() => Better::HostAddress,
        Expected::Relay | Expected::Tcp => Better::OpenPort,
        Expected::Nowhere => Better::NameMaster,
    }
}

/// The host's machine has a public address itself.
fn is_public(host: &Profile) -> bool {
    host.public.is_some() && host.public == host.lan
}

/// Hamachi's network is one, a Tailscale network is one; of others the address says that they may be.
fn is_one_network(a: Ipv4Addr, b: Ipv4Addr) -> bool {
    let shared = |ip: Ipv4Addr| matches!(ip.octets(), [100, second, ..] if second & 0xC0 == 64);
    let ([a1, a2, ..], [b1, b2, ..]) = (a.octets(), b.octets());
    (a1 == 25 && b1 == 25) || (shared(a) && shared(b)) || (a1, a2) == (b1, b2)
}

fn is_one_lan(host: &Profile, me: &Profile) -> bool {
    let net = |lan: Option<SocketAddrV4>| lan.map(|lan| u32::from(*lan.ip()) >> 8);
    host.lan.is_some() && net(host.lan) == net(me.lan)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.expected {
            Expected::Vpn => "You will most likely meet on the virtual network that both of you are in",
            Expected::Lan => "You will most likely meet on the local network, since both of you are behind one router",
            Expected::V6 => "You will most likely meet over IPv6",
            Expected::Direct => "You will most likely reach the host directly at its public address",
            Expected::Knock => {
                "You will most likely meet directly, once the master server has told the host to let you in"
            }
            Expected::Guess => {
                "Of your two routers one gives every destination another port, so you will most likely meet at the \
                 master's relay first and then directly by a guessed port, unless the host's router is stricter or laxer \
                 than usual, which its code does not tell"
            }
            Expected::Relay => "You will most likely play through the master's relay",
            Expected::Tcp => "You will most likely play through the master server over TCP",
            Expected::Nowhere => "You will most likely not reach each other",
        })?;
        f.write_str(match self.better {
            Better::Nothing => ", and nothing would make that better.",
            Better::OpenPort => {
                "; if the host forwards its UDP port, or turns on UPnP at its router, it is direct at once."
            }
            Better::NameMaster => "; with a master server named at both ends, or the host's UDP port forwarded, you would.",
            Better::AllowUdp => "; on a network that lets UDP out of this computer it would be faster.",
            Better::HostAddress => {
                "; the host's code holds no public address, so its network seems to block UDP: another network for the \
                 host would make it direct."
            }
            Better::Tunnel => {
                "; this network seems to block UDP, so take another network, or a master server that carries the game over \
                 its web port."
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joincode::NatFlags;
    use stun::Mapping;

    /// Kinds of networks as they are told apart by what a code can say of them.
    const HOSTS: [&str; 10] = [
        "open",
        "firewall",
        "full-cone",
        "port-restricted",
        "symmetric",
        "symmetric-seq",
        "cgnat",
        "mapped",
        "udp-blocked",
        "web-only",
    ];
    const JOINERS: [&str; 9] = [
        "open",
        "firewall",
        "full-cone",
        "port-restricted",
        "symmetric",
        "symmetric-seq",
        "cgnat",
        "udp-blocked",
        "web-only",
    ];

    fn address(text: &str) -> Option<SocketAddrV4> {
        Some(text.parse().unwrap())
    }

    fn profile(kind: &str, lan: &str, public: &str) -> Profile {
        let symmetric = kind.starts_with("symmetric");
        let flags = NatFlags { open: kind == "mapped", symmetric, cgnat: kind == "cgnat" };
        let known = !matches!(kind, "udp-blocked" | "web-only");
        let lan = if matches!(kind, "open" | "firewall") { public } else { lan };
        Profile { flags, lan: address(lan), public: address(public).filter(|_| known), ..Profile::default() }
    }

    fn host(kind: &str) -> Profile {
        profile(kind, "192.168.1.2:29471", "203.0.113.5:29471")
    }

    fn joiner(kind: &str, help: Help) -> Mine {
        let (mapping, filtering) = match kind {
            "open" | "full-cone" => (Mapping::EndpointIndependent, Filtering::EndpointIndependent),
            "symmetric" | "symmetric-seq" => (Mapping::AddressAndPortDependent, Filtering::AddressAndPortDependent),
            "udp-blocked" | "web-only" => (Mapping::Unknown, Filtering::Unknown),
            _ => (Mapping::EndpointIndependent, Filtering::AddressAndPortDependent),
        };
        Mine {
            profile: profile(kind, "192.168.2.2:5000", "198.51.100.7:5000"),
            behaviour: Behaviour { mapping, filtering, ..Behaviour::default() },
            udp: !matches!(kind, "udp-blocked" | "web-only"),
            help,
        }
    }

    #[test]
    fn every_pair_of_kinds_has_its_verdict() {
        // Rows: hosts. Columns: joiners. D direct, K knock, G guess, R relay, T TCP, - not at all.
        for (help, table) in [
            (
                Help::Tunnel,
                [
                    "DDDDDDDTT",
                    "DDDDDDDTT",
                    "KKKKGGKTT",
                    "KKKKGGKTT",
                    "KGKGRRGTT",
                    "KGKGRRGTT",
                    "KKKKGGKTT",
                    "DDDDDDDTT",
                    "TTTTTTTTT",
                    "TTTTTTTTT",
                ],
            ),
            (
                Help::Master,
                [
                    "DDDDDDD--",
                    "DDDDDDD--",
                    "KKKKGGK--",
                    "KKKKGGK--",
                    "KGKGRRG--",
                    "KGKGRRG--",
                    "KKKKGGK--",
                    "DDDDDDD--",
                    "RRRRRRR--",
                    "RRRRRRR--",
                ],
            ),
            (
                Help::None,
                [
                    "DDDDDDD--",
                    "DDDDDDD--",
                    "---------",
                    "---------",
                    "---------",
                    "---------",
                    "---------",
                    "DDDDDDD--",
                    "---------",
                    "---------",
                ],
            ),
        ] {
            for (h, row) in HOSTS.iter().zip(table) {
                for (j, letter) in JOINERS.iter().zip(row.chars()) {
                    let verdict = Verdict::of(&host(h), &joiner(j, help));
                    let got = match verdict.expected {
                        Expected::Direct => 'D',
                        Expected::Knock => 'K',
                        Expected::Guess => 'G',
                        Expected::Relay => 'R',
                        Expected::Tcp => 'T',
                        Expected::Nowhere => '-',
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(got, letter, "host {h}, joiner {j}, {help:?}");
                    let text = verdict.to_string();
                    assert!(text.ends_with('.') && text.matches('.').count() == 1, "one sentence: {text}");
                    let fine = matches!(got, 'D' | 'K');
                    assert_eq!(verdict.better == Better::Nothing, fine, "host {h}, joiner {j}, {help:?}");
                }
            }
        }
    }

    #[test]
    fn what_both_are_in_comes_before_what_is_in_between() {
        let mut me = joiner("udp-blocked", Help::None);
        let mut ada = host("symmetric");
        ada.vpn = [address("25.1.2.3:29471"), None];
        me.profile.vpn = [None, address("25.9.9.9:1")];
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Vpn);
        me.profile.vpn = [address("100.64.1.1:1"), None];
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Nowhere, "another virtual network");

        let (ada, mut me) = (host("symmetric"), joiner("symmetric", Help::Master));
        me.profile.public = address("203.0.113.5:9");
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Lan);
        me.profile.flags.cgnat = true;
        me.profile.lan = address("10.0.0.4:9");
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Relay, "two homes of one carrier");

        let (mut ada, mut me) = (host("symmetric"), joiner("symmetric", Help::Master));
        (ada.v6, me.profile.v6) = (Some("[2001:db8::1]:1".parse().unwrap()), Some("[2001:db8::2]:1".parse().unwrap()));
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::V6);
        me.help = Help::None;
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Nowhere, "nobody opens the host's firewall");
    }

    #[test]
    fn a_table_without_internet_is_a_local_network() {
        let (ada, mut me) = (host("udp-blocked"), joiner("udp-blocked", Help::None));
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Nowhere);
        me.profile.lan = address("192.168.1.9:1");
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Lan);
        me.help = Help::Tunnel;
        assert_eq!(Verdict::of(&ada, &me).expected, Expected::Tcp, "many homes have the same numbers");
    }
}
