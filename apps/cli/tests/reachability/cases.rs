//! Which pairs there are, and what has to come of each.

use crate::play::Outcome;

/// The kinds of homes, in the order in which they are shown.
pub(crate) const KINDS: [&str; 9] = [
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
/// Those whose router can map a port so that it is reached from outside.
pub(crate) const MAPPED: [&str; 4] = ["full-cone", "port-restricted", "symmetric", "symmetric-seq"];
/// One way over each home's link, and over the master's: two homes are 40 ms from each other, and 40 ms from the master.
const LINK: &str = "delay=10ms";

/// What has to come of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A direct path, by one of these words.
    Direct(&'static [&'static str]),
    /// A direct path by luck, or the relay.
    GuessOrRelay,
    /// TCP through the master.
    Tcp,
}

/// Which table a case belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Kinds of homes.
    Pairs,
    /// Where the host's router maps its port.
    Mapped,
    /// By name.
    Special,
}

/// One pair.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) table: Table,
    pub(crate) host: &'static str,
    pub(crate) joiner: &'static str,
    pub(crate) topology: String,
    pub(crate) want: Want,
    /// The host lets in whom it has not heard of, so that its code alone is enough.
    pub(crate) dialled: bool,
}

impl Case {
    /// The host asks its router.
    pub(crate) fn is_mapped(&self) -> bool {
        self.table == Table::Mapped
    }

    /// What is not as it has to be.
    pub(crate) fn wrong(&self, outcome: &Outcome) -> Option<String> {
        let Outcome::Met { route, .. } = outcome else { return Some(outcome.to_string()) };
        let right = match self.want {
            Want::Direct(words) => words.contains(&route.as_str()),
            Want::GuessOrRelay => is_direct(route) || route == "relay",
            Want::Tcp => route == "TCP through the master",
        };
        (!right).then(|| format!("{:?} was expected, not {route}", self.want))
    }
}

/// Whether the words of a way mean a path without a relay.
pub(crate) fn is_direct(route: &str) -> bool {
    !matches!(route, "relay" | "TCP through the master")
}

const ANY_DIRECT: &[&str] = &["public address", "address the host was seen at", "guessed port", "local network"];

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for host in KINDS {
        cases.extend(KINDS.map(|joiner| pair(host, joiner, Table::Pairs)));
    }
    for host in MAPPED {
        cases.extend(KINDS.map(|joiner| pair(host, joiner, Table::Mapped)));
    }
    cases.extend(special());
    cases
}

fn pair(host: &'static str, joiner: &'static str, table: Table) -> Case {
    let blocked = |kind: &str| matches!(kind, "udp-blocked" | "web-only");
    let is_mapped = table == Table::Mapped;
    let dialled = matches!(host, "open" | "full-cone") || is_mapped;
    let want = match () {
        () if blocked(host) || blocked(joiner) => Want::Tcp,
        () if is_mapped || natlab::punchable(host, joiner) => Want::Direct(ANY_DIRECT),
        () => Want::GuessOrRelay,
    };
    let asks = if is_mapped { " upnp natpmp" } else { "" };
    let topology = format!("home a kind={host}{asks} hosts=ada {LINK}\nhome b kind={joiner} hosts=lin {LINK}");
    let name = format!("{host}{} x {joiner}", if is_mapped { " mapped" } else { "" });
    Case { name, table, host, joiner, topology, want, dialled }
}

fn special() -> Vec<Case> {
    let two = |a: &str, b: &str, more: &str| {
        format!("home a kind=symmetric hosts=ada {LINK}{a}\nhome b kind=symmetric hosts=lin {LINK}{b}\n{more}")
    };
    let case = |name: &'static str, topology: String, want: Want, dialled: bool| {
        let (host, joiner) = (name, name);
        Case { name: name.to_owned(), table: Table::Special, host, joiner, topology, want, dialled }
    };
    let home = |hairpin: &str| format!("home a kind=port-restricted hosts=ada,lin {LINK} hairpin={hairpin}");
    vec![
        case("same home", home("yes"), Want::Direct(&["local network"]), true),
        case("same home without hairpin", home("no"), Want::Direct(&["local network"]), true),
        case(
            "one virtual network, two symmetric homes",
            two("", "", "vlan vpn net=25.0.0.0/8 hosts=ada,lin"),
            Want::Direct(&["virtual network"]),
            true,
        ),
        case("IPv6 at the host alone, two symmetric homes", two(" ipv6=firewall", "", ""), Want::GuessOrRelay, false),
        case("IPv6 at the joiner alone, two symmetric homes", two("", " ipv6=firewall", ""), Want::GuessOrRelay, false),
        case(
            "IPv6 at both, firewalls, two symmetric homes",
            two(" ipv6=firewall", " ipv6=firewall", ""),
            Want::Direct(&["IPv6"]),
            false,
        ),
        case(
            "IPv6 at both, open, two symmetric homes",
            two(" ipv6=open", " ipv6=open", ""),
            Want::Direct(&["IPv6"]),
            true,
        ),
    ]
}
