//! What was found, in words and as JSON.

use std::net::SocketAddrV4;

use joincode::Profile;
use serde_json::{Value, json};
use session::{Behaviour, Filtering, Mapping, PortState, Verdict};

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Addresses and flags, as a code would hold them.
    pub(super) profile: Profile,
    /// How the router behaves.
    pub(super) behaviour: Behaviour,
    /// The public addresses that STUN servers saw.
    pub(super) seen: Vec<SocketAddrV4>,
    /// What the router says of the port, and whether it is true.
    pub(super) port: Option<PortState>,
    /// The master, where one is named.
    pub(super) master: Option<Master>,
    /// Longest packet on the way out.
    pub(super) mtu: Option<u32>,
    /// STUN servers were asked.
    pub(super) asked_stun: bool,
    /// The router was asked.
    pub(super) asked_router: bool,
}

/// What the master offers from here.
#[derive(Clone, Debug)]
pub(super) struct Master {
    pub(super) url: String,
    /// It answers as a web server.
    pub(super) web: Result<(), String>,
    /// It carries datagrams over that.
    pub(super) tunnel: Result<(), String>,
}

impl Findings {
    /// Whether UDP gets out and back; `None` when nothing was sent.
    pub(super) fn udp(&self) -> Option<bool> {
        let any = !self.seen.is_empty() || self.behaviour.v6.is_some();
        (any || self.asked_stun).then_some(any)
    }

    /// The machine has the address that servers see.
    fn is_public(&self) -> bool {
        self.profile.lan.is_some_and(|lan| self.seen.contains(&lan))
    }

    fn is_symmetric(&self) -> bool {
        self.profile.flags.symmetric || self.behaviour.mapping.is_dependent()
    }

    /// The usual name of such a router, for people and for files.
    fn kind(&self) -> &'static str {
        let Behaviour { mapping, filtering, .. } = self.behaviour;
        match filtering {
            _ if self.udp() != Some(true) || self.seen.is_empty() => "unknown",
            Filtering::EndpointIndependent if self.is_public() => "open",
            Filtering::Unknown if self.is_public() => "public",
            _ if self.is_public() => "firewall",
            _ if self.is_symmetric() => "symmetric",
            Filtering::EndpointIndependent => "full-cone",
            Filtering::AddressDependent => "restricted-cone",
            Filtering::AddressAndPortDependent => "port-restricted",
            Filtering::PortIndependent => "cone",
            Filtering::Unknown if mapping == Mapping::EndpointIndependent => "cone",
            Filtering::Unknown => "unknown",
        }
    }
}

/// One line a fact, then what they mean, then the verdict.
pub(super) fn lines(findings: &Findings, verdict: Option<Verdict>) -> Vec<String> {
    let Findings { profile, behaviour, .. } = findings;
    let text = |address: Option<String>| address.unwrap_or_else(|| "none".to_owned());
    let v6 = match (profile.v6, behaviour.v6) {
        (None, None) => "none".to_owned(),
        (Some(own), None) => format!("{own}, which no server on IPv6 has confirmed"),
        (_, Some(seen)) => format!("{seen}, as a server sees it"),
    };
    let mut lines = vec![
        format!("local network    {}", text(profile.lan.map(|lan| lan.to_string()))),
        format!("public address   {}", text(profile.public.map(|public| public.to_string()))),
        format!("IPv6             {v6}"),
    ];
    lines.extend(profile.vpn.iter().flatten().map(|vpn| format!("virtual network  {vpn}")));
    lines.push(format!("MTU              {}", text(findings.mtu.map(|mtu| mtu.to_string()))));
    lines.push(format!(
        "UDP              {}",
        match (findings.udp(), &findings.master) {
            (None, _) => "not tried: STUN is off".to_owned(),
            (Some(true), _) => "gets out and back".to_owned(),
            (Some(false), Some(Master { web: Ok(()), .. })) => {
                "blocked, as it seems: no STUN server answered, while the master server does".to_owned()
            }
            (Some(false), _) => "nothing came back; blocked, or there is no internet here".to_owned(),
        }
    ));
    let hairpin = behaviour.hairpin.map_or("unknown", |yes| if yes { "yes" } else { "no" });
    let (mapping, filtering) = (behaviour.mapping.word(), behaviour.filtering.word());
    lines.push(format!("router           {} (mapping {mapping}, filtering {filtering})", findings.kind()));
    lines.push(format!("hairpin          {hairpin}"));
    lines.push(format!(
        "port at router   {}",
        match &findings.port {
            Some(state) => state.to_string(),
            None if findings.asked_router => "no answer yet".to_owned(),
            None => "not asked for".to_owned(),
        }
    ));
    match &findings.master {
        None => lines.push("master server    none named".to_owned()),
        Some(Master { url, web, tunnel }) => {
            let scheme =
                if url.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("https")) { "HTTPS" } else { "HTTP" };
            lines.push(match web {
                Ok(()) => format!("master server    answers by {scheme} at {url}"),
                Err(why) => format!("master server    does not answer by {scheme} at {url}: {why}"),
            });
            lines.push(match tunnel {
                Ok(()) => "                 carries the game over TCP where UDP does not get through".to_owned(),
                Err(why) => format!("                 does not carry the game over TCP: {why}"),
            });
        }
    }
    lines.push(String::new());
    lines.extend(meaning(findings));
    lines.extend(verdict.map(|verdict| verdict.to_string()));
    lines
}

/// What the facts mean for who hosts here.
fn meaning(findings: &Findings) -> Option<String> {
    let flags = findings.profile.flags;
    let helped = findings.master.as_ref().is_some_and(|master| master.web.is_ok());
    let text = match findings.kind() {
        _ if flags.open => "Others reach a lobby on this computer directly: its port is open at the router.",
        "open" | "full-cone" => "Others reach a lobby on this computer directly.",
        "symmetric" if helped => {
            "Your router gives every destination another port: others reach a lobby here directly only if their routers \
             are easier, and through the master's relay else. UPnP, or a forwarded port, would help."
        }
        "symmetric" => {
            "Your router gives every destination another port: without a master server nobody reaches a lobby here unless \
             a port is forwarded or UPnP is turned on."
        }
        "unknown" if findings.udp() == Some(false) => {
            "Without UDP only a master server that carries the game over TCP helps."
        }
        "unknown" => return None,
        _ if helped => "Others reach a lobby on this computer directly, once the master server has told it of them.",
        _ => {
            "Others reach a lobby on this computer with the help of a master server; without one a port has to be forwarded, \
             or UPnP turned on."
        }
    };
    let carrier = if flags.cgnat { " There is a second router in between, of your provider or your own." } else { "" };
    Some(format!("{text}{carrier}"))
}

/// Everything as one object.
pub(super) fn json(findings: &Findings, verdict: Option<Verdict>) -> Value {
    let Findings { profile, behaviour, .. } = findings;
    let text = |address: Option<String>| address.map_or(Value::Null, Value::from);
    let port = match &findings.port {
        None => json!({ "state": if findings.asked_router { "waiting" } else { "off" } }),
        Some(PortState::Open { by, external }) => json!({ "state": "open", "by": by, "at": external.to_string() }),
        Some(PortState::Unproved { by, external, why }) => {
            json!({ "state": "unproved", "by": by, "at": external.to_string(), "why": why })
        }
        Some(PortState::Disproved { by }) => json!({ "state": "disproved", "by": by }),
        Some(PortState::Closed { refused }) => json!({ "state": "closed", "refused": refused }),
        Some(other) => json!({ "state": other.to_string() }),
    };
    let outcome = |result: &Result<(), String>| match result {
        Ok(()) => Value::Bool(true),
        Err(why) => Value::from(why.as_str()),
    };
    let master = findings.master.as_ref().map_or(
        Value::Null,
        |master| json!({ "url": master.url, "web": outcome(&master.web), "tcp": outcome(&master.tunnel) }),
    );
    let verdict =
        verdict.map_or(Value::Null, |verdict| json!({ "route": verdict.expected.word(), "text": verdict.to_string() }));
    json!({
        "lan": text(profile.lan.map(|lan| lan.to_string())),
        "public": text(profile.public.map(|public| public.to_string())),
        "ipv6": text(profile.v6.map(|v6| v6.to_string())),
        "ipv6_seen": text(behaviour.v6.map(|v6| v6.to_string())),
        "vpn": profile.vpn.iter().flatten().map(ToString::to_string).collect::<Vec<_>>(),
        "mtu": findings.mtu,
        "udp": findings.udp(),
        "router": {
            "kind": findings.kind(),
            "mapping": behaviour.mapping.word(),
            "filtering": behaviour.filtering.word(),
            "hairpin": behaviour.hairpin,
            "symmetric": findings.is_symmetric(),
            "cgnat": profile.flags.cgnat,
        },
        "port": port,
        "master": master,
        "verdict": verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use session::{Help, Mine};

    fn findings(lan: &str, seen: &str, mapping: Mapping, filtering: Filtering) -> Findings {
        let seen: Vec<SocketAddrV4> = seen.split_whitespace().map(|seen| seen.parse().unwrap()).collect();
        let profile = Profile { lan: lan.parse().ok(), public: seen.first().copied(), ..Profile::default() };
        let behaviour = Behaviour { mapping, filtering, hairpin: Some(false), v6: None };
        Findings { profile, behaviour, seen, asked_stun: true, ..Findings::default() }
    }

    const LAN: &str = "192.168.1.4:5000";
    const OUT: &str = "203.0.113.9:5000";

    #[test]
    fn each_kind_of_router_has_its_usual_name() {
        use Filtering as F;
        use Mapping as M;
        for (lan, seen, mapping, filtering, kind) in [
            (OUT, OUT, M::EndpointIndependent, F::EndpointIndependent, "open"),
            (OUT, OUT, M::EndpointIndependent, F::AddressAndPortDependent, "firewall"),
            (OUT, OUT, M::Unknown, F::Unknown, "public"),
            (LAN, OUT, M::EndpointIndependent, F::EndpointIndependent, "full-cone"),
            (LAN, OUT, M::EndpointIndependent, F::AddressDependent, "restricted-cone"),
            (LAN, OUT, M::EndpointIndependent, F::AddressAndPortDependent, "port-restricted"),
            (LAN, OUT, M::EndpointIndependent, F::PortIndependent, "cone"),
            (LAN, OUT, M::EndpointIndependent, F::Unknown, "cone"),
            (LAN, OUT, M::Unknown, F::Unknown, "unknown"),
            (LAN, OUT, M::AddressAndPortDependent, F::AddressAndPortDependent, "symmetric"),
            (LAN, "", M::Unknown, F::Unknown, "unknown"),
        ] {
            assert_eq!(findings(lan, seen, mapping, filtering).kind(), kind, "{lan} {seen} {mapping:?} {filtering:?}");
        }
    }

    #[test]
    fn the_report_says_each_fact_once_and_is_masked_by_the_log() {
        let mut found = findings(LAN, OUT, Mapping::EndpointIndependent, Filtering::AddressAndPortDependent);
        found.mtu = Some(1500);
        found.port = Some(PortState::Open { by: "UPnP", external: OUT.parse().unwrap() });
        found.profile.flags.open = true;
        let url = "https://master.example".to_owned();
        found.master = Some(Master { url, web: Ok(()), tunnel: Err("no answer".to_owned()) });
        let shown = lines(&found, None);
        let facts = [
            "local network    192.168.1.4:5000",
            "public address   203.0.113.9:5000",
            "IPv6             none",
            "MTU              1500",
            "UDP              gets out and back",
            "router           port-restricted (mapping endpoint-independent, filtering address-and-port-dependent)",
            "hairpin          no",
            "port at router   mapped by UPnP and seen from outside at 203.0.113.9:5000",
            "master server    answers by HTTPS at https://master.example",
            "                 does not carry the game over TCP: no answer",
            "",
            "Others reach a lobby on this computer directly: its port is open at the router.",
        ];
        assert_eq!(shown, facts);
        let masked = Log::new(false).mask(&shown.join("\n"));
        assert!(!masked.contains("203.0.113.9") && masked.contains("203.0.113.x:5000"), "{masked}");
    }

    #[test]
    fn json_holds_the_same_facts_and_the_verdict() {
        let mut found = findings(LAN, "", Mapping::Unknown, Filtering::Unknown);
        found.asked_router = true;
        let refused = [("UPnP", "no gateway answered".to_owned())].into();
        found.port = Some(PortState::Closed { refused });
        let mine = Mine { profile: found.profile.clone(), udp: false, help: Help::None, ..Mine::default() };
        let value = json(&found, Some(Verdict::of(&Profile::default(), &mine)));
        assert_eq!((&value["udp"], &value["verdict"]["route"]), (&json!(false), &json!("nowhere")));
        assert_eq!(value["port"]["refused"]["UPnP"], "no gateway answered");
        assert_eq!((&value["master"], &value["mtu"]), (&Value::Null, &Value::Null));
        assert!(value["verdict"]["text"].as_str().unwrap().ends_with('.'));
    }
}
