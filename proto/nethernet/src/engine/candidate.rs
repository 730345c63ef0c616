//! ICE candidates as text (NetherNet, section 5.4; RFC 8839, section 5.1), in every form seen in the field.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::CandidateKind;

/// Longest text taken as a candidate. Real ones are under 300 bytes.
pub const CANDIDATE_MAX: usize = 2048;
/// Longest foundation kept (RFC 8839, section 5.1: 1 to 32 characters).
const FOUNDATION_MAX: usize = 32;
/// Highest priority (RFC 8445, section 5.1.2).
const PRIORITY_MAX: u32 = 0x7FFF_FFFF;

/// A UDP candidate for component 1, the only kind a session can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Equal for candidates of one kind, base and server; 1 to 32 bytes of ASCII without spaces.
    pub foundation: String,
    /// Higher is tried first; 1 to 2^31 - 1.
    pub priority: u32,
    /// Where it is.
    pub addr: SocketAddr,
    /// How it was found.
    pub kind: CandidateKind,
    /// Where it was found from; not for host candidates.
    pub related: Option<SocketAddr>,
    /// The user fragment of the session it belongs to, where the sender says so.
    pub ufrag: Option<String>,
    /// The network interface, numbered by its owner.
    pub network_id: u16,
    /// What traffic on that interface costs, 0 to 999.
    pub network_cost: u16,
}

/// What a CANDIDATEADD or an `a=candidate` line means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A candidate that can be tried.
    Candidate(Candidate),
    /// No more will come.
    End,
    /// Well-formed and of no use here, with the reason.
    Useless(&'static str),
}

/// Why a text is no candidate. The sender is to blame; the session goes on without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CandidateError {
    /// Over [`CANDIDATE_MAX`].
    #[error("a candidate of {0} bytes; at most {CANDIDATE_MAX}")]
    TooLong(usize),
    /// JSON without a `candidate` text.
    #[error("JSON without a candidate in it")]
    Json,
    /// A field is missing.
    #[error("the candidate has no {0}")]
    Missing(&'static str),
    /// A field cannot be read.
    #[error("the candidate's {0} cannot be read")]
    Bad(&'static str),
}

/// Reads a candidate in any of the four forms: bare, with `a=`, with trailing key-value pairs, or inside JSON.
///
/// Unknown trailing pairs are skipped. An empty text, and `candidate:` alone, mean the end of candidates.
///
/// # Errors
/// [`CandidateError`] says which field is wrong.
pub fn parse(text: &str) -> Result<Parsed, CandidateError> {
    if text.len() > CANDIDATE_MAX {
        return Err(CandidateError::TooLong(text.len()));
    }
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if !text.starts_with('{') {
        return line(text);
    }
    let json: serde_json::Value = serde_json::from_str(text).map_err(|_| CandidateError::Json)?;
    match json.get("candidate") {
        Some(serde_json::Value::String(inner)) => line(inner.trim()),
        Some(serde_json::Value::Null) => Ok(Parsed::End),
        _ => Err(CandidateError::Json),
    }
}

fn line(text: &str) -> Result<Parsed, CandidateError> {
    let text = text.strip_prefix("a=").unwrap_or(text);
    if text == "end-of-candidates" {
        return Ok(Parsed::End);
    }
    let text = text.strip_prefix("candidate:").unwrap_or(text).trim();
    if text.is_empty() {
        return Ok(Parsed::End);
    }
    let mut words = text.split_ascii_whitespace();
    let mut word = |name| words.next().ok_or(CandidateError::Missing(name));
    let foundation = word("foundation")?;
    let component = word("component")?;
    let protocol = word("protocol")?;
    let priority = word("priority")?;
    let ip = word("address")?;
    let port = word("port")?;
    let typ = word("type")?;
    let kind = word("type")?;
    if typ != "typ" {
        return Err(CandidateError::Bad("type"));
    }
    let priority: u32 = priority.parse().map_err(|_| CandidateError::Bad("priority"))?;
    let port: u16 = port.parse().map_err(|_| CandidateError::Bad("port"))?;
    let component: u16 = component.parse().map_err(|_| CandidateError::Bad("component"))?;
    let kind = CandidateKind::of(kind).ok_or(CandidateError::Bad("type"))?;
    if !protocol.eq_ignore_ascii_case("udp") {
        return Ok(Parsed::Useless("not UDP"));
    }
    if component != 1 {
        return Ok(Parsed::Useless("not component 1"));
    }
    if ip.len() > ".local".len() && ip.to_ascii_lowercase().ends_with(".local") {
        return Ok(Parsed::Useless("a name that only its own network resolves"));
    }
    let ip: IpAddr = ip.parse().map_err(|_| CandidateError::Bad("address"))?;
    let extras = Extras::read(words);
    if let Some(why) = useless(ip, port) {
        return Ok(Parsed::Useless(why));
    }
    Ok(Parsed::Candidate(Candidate {
        foundation: foundation.chars().take(FOUNDATION_MAX).collect(),
        priority: priority.clamp(1, PRIORITY_MAX),
        addr: SocketAddr::new(ip.to_canonical(), port),
        kind,
        related: extras.related(),
        ufrag: extras.ufrag.map(str::to_owned),
        network_id: extras.network_id,
        network_cost: extras.network_cost,
    }))
}

/// Addresses no check can be sent to. IPv6 link-local ones lack the scope that this text form cannot carry.
fn useless(ip: IpAddr, port: u16) -> Option<&'static str> {
    let unreachable = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local(),
    };
    // Port 9 is "discard": active TCP candidates carry it, and nobody answers there.
    if port == 0 || port == 9 {
        return Some("a port nobody answers at");
    }
    unreachable.then_some("an address nobody answers at")
}

#[derive(Default)]
struct Extras<'a> {
    raddr: Option<IpAddr>,
    rport: Option<u16>,
    ufrag: Option<&'a str>,
    network_id: u16,
    network_cost: u16,
}

impl<'a> Extras<'a> {
    fn read(mut words: impl Iterator<Item = &'a str>) -> Self {
        let mut extras = Self::default();
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            match key {
                "raddr" => extras.raddr = value.parse().ok(),
                "rport" => extras.rport = value.parse().ok(),
                "ufrag" => extras.ufrag = Some(value),
                "network-id" => extras.network_id = value.parse().unwrap_or(0),
                "network-cost" => extras.network_cost = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        extras
    }

    fn related(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.raddr?, self.rport?))
    }
}

impl fmt::Display for Candidate {
    /// The form the game sends and every program reads: lower-case `udp`, no `a=`, generation, user fragment, network.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { foundation, priority, addr, kind, .. } = self;
        write!(f, "candidate:{foundation} 1 udp {priority} {} {} typ {}", addr.ip(), addr.port(), kind.word())?;
        if let Some(related) = self.related {
            write!(f, " raddr {} rport {}", related.ip(), related.port())?;
        }
        write!(f, " generation 0")?;
        if let Some(ufrag) = &self.ufrag {
            write!(f, " ufrag {ufrag}")?;
        }
        write!(f, " network-id {} network-cost {}", self.network_id, self.network_cost)
    }
}

/// The priority of an own candidate (RFC 8445, section 5.1.2.1): by kind, IPv6 before IPv4, earlier interfaces first.
#[must_use]
pub fn priority(kind: CandidateKind, addr: SocketAddr, nth: u16) -> u32 {
    let type_preference: u32 = match kind {
        CandidateKind::Host => 126,
        CandidateKind::PeerReflexive => 110,
        CandidateKind::ServerReflexive => 100,
        CandidateKind::Relay => 2,
    };
    let top: u16 = if addr.is_ipv6() { u16::MAX } else { u16::MAX / 2 };
    (type_preference << 24) | (u32::from(top.saturating_sub(nth)) << 8) | 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn good(text: &str) -> Candidate {
        match parse(text) {
            Ok(Parsed::Candidate(candidate)) => candidate,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn pain_4_all_four_shapes_are_one_candidate() {
        let bare = "candidate:af27 1 udp 2130706431 10.77.0.2 44289 typ host";
        let shapes = [
            bare.to_owned(),
            format!("{bare} generation 0 ufrag BK2I network-id 1 network-cost 10"),
            "a=candidate:af27 1 UDP 2130706431 10.77.0.2 44289 typ host".to_owned(),
            format!(r#"{{"candidate":"{bare}","sdpMid":"","sdpMLineIndex":0,"usernameFragment":null}}"#),
            format!("  {bare} foo bar\r\n"),
            "af27 1 udp 2130706431 10.77.0.2 44289 typ host".to_owned(),
        ];
        for shape in shapes {
            let candidate = good(&shape);
            assert_eq!(candidate.addr, "10.77.0.2:44289".parse().unwrap(), "{shape}");
            assert_eq!((candidate.priority, candidate.kind), (2_130_706_431, CandidateKind::Host), "{shape}");
        }
    }

    #[test]
    fn what_ends_the_candidates() {
        for text in ["", "candidate:", "a=candidate:", "a=end-of-candidates", " \r\n", r#"{"candidate":""}"#] {
            assert_eq!(parse(text), Ok(Parsed::End), "{text:?}");
        }
    }

    #[test]
    fn candidates_of_no_use_are_told_from_broken_ones() {
        let useless = [
            "candidate:1 1 tcp 1 10.0.0.1 9 typ host tcptype active",
            "candidate:1 2 udp 1 10.0.0.1 4000 typ host",
            "candidate:1 1 udp 1 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed.local 4000 typ host",
            "candidate:1 1 udp 1 fe80::1 4000 typ host",
            "candidate:1 1 udp 1 0.0.0.0 4000 typ host",
            "candidate:1 1 udp 1 10.0.0.1 0 typ host",
        ];
        for text in useless {
            assert!(matches!(parse(text), Ok(Parsed::Useless(_))), "{text}");
        }
        let broken = [
            ("candidate:1 1 udp 1 10.0.0.1 4000", CandidateError::Missing("type")),
            ("candidate:1 1 udp x 10.0.0.1 4000 typ host", CandidateError::Bad("priority")),
            ("candidate:1 1 udp 1 10.0.0 4000 typ host", CandidateError::Bad("address")),
            ("candidate:1 1 udp 1 10.0.0.1 66000 typ host", CandidateError::Bad("port")),
            ("candidate:1 1 udp 1 10.0.0.1 4000 typ odd", CandidateError::Bad("type")),
            (r#"{"candidate":7}"#, CandidateError::Json),
            ("{", CandidateError::Json),
        ];
        for (text, why) in broken {
            assert_eq!(parse(text), Err(why), "{text}");
        }
        assert_eq!(parse(&"x".repeat(CANDIDATE_MAX + 1)), Err(CandidateError::TooLong(CANDIDATE_MAX + 1)));
    }

    #[test]
    fn it_is_sent_as_the_game_sends_it() {
        let candidate = Candidate {
            foundation: "7".into(),
            priority: 1_677_721_855,
            addr: "203.0.113.9:3478".parse().unwrap(),
            kind: CandidateKind::ServerReflexive,
            related: Some("10.0.0.1:4000".parse().unwrap()),
            ufrag: Some("aBcD".into()),
            network_id: 1,
            network_cost: 10,
        };
        let text = "candidate:7 1 udp 1677721855 203.0.113.9 3478 typ srflx raddr 10.0.0.1 rport 4000 \
                    generation 0 ufrag aBcD network-id 1 network-cost 10";
        assert_eq!(candidate.to_string(), text);
        assert_eq!(good(text), candidate);
    }

    #[test]
    fn priorities_rank_kinds_and_fit_31_bits() {
        let v4 = "10.0.0.1:1".parse().unwrap();
        let v6 = "[2001:db8::1]:1".parse().unwrap();
        let host = priority(CandidateKind::Host, v4, 0);
        assert!(priority(CandidateKind::Host, v6, 0) > host);
        assert!(host > priority(CandidateKind::Host, v4, 1));
        assert!(host > priority(CandidateKind::ServerReflexive, v6, 0));
        assert!(priority(CandidateKind::Relay, v6, 0) < priority(CandidateKind::ServerReflexive, v4, u16::MAX));
        assert!(priority(CandidateKind::Host, v6, 0) <= PRIORITY_MAX);
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn every_truncation_is_an_error_or_a_shorter_candidate(cut in 0usize..110) {
            let text = "candidate:7 1 udp 1677721855 203.0.113.9 3478 typ srflx raddr 10.0.0.1 rport 4000 generation 0 ufrag aBcD";
            let cut = cut.min(text.len());
            if let Ok(Parsed::Candidate(candidate)) = parse(&text[..cut]) {
                prop_assert_eq!(candidate.addr.ip().to_string(), "203.0.113.9");
            }
        }

        #[test]
        fn what_is_written_is_read(ip: u32, port in 10u16.., priority in 1u32..=PRIORITY_MAX, kind in 0usize..4, id: u16) {
            let kinds = [CandidateKind::Host, CandidateKind::ServerReflexive, CandidateKind::PeerReflexive, CandidateKind::Relay];
            let candidate = Candidate {
                foundation: "f".into(), priority, addr: SocketAddr::from((std::net::Ipv4Addr::from(ip), port)),
                kind: kinds[kind], related: None, ufrag: None, network_id: id, network_cost: 0,
            };
            match parse(&candidate.to_string()) {
                Ok(Parsed::Candidate(back)) => prop_assert_eq!(back, candidate),
                Ok(Parsed::Useless(_)) => prop_assert!(useless(candidate.addr.ip(), port).is_some()),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
