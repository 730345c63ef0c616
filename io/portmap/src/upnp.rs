//! Questions to a router that speaks UPnP IGD, through `igd-next`. Every call blocks: 6 s for the search and 10 s for the
//! rest at most.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use igd_next::{AddPortError, Gateway, GetExternalIpError, GetGenericPortMappingEntryError, PortMappingProtocol};
use igd_next::{GatewayIpVersion, RemovePortError, RequestError, SearchError, SearchOptions};

use crate::gateway::{self, Way};
use crate::memory::Entry;
use crate::plan::{Failure, Granted, Router};
use crate::words::{Protocol, Why, outside, words};

/// A router may wait 3 s, to spread answers over time.
const SEARCH: Duration = Duration::from_secs(4);
/// A search is one multicast, which Wi-Fi loses easily: more of them, so long after one another.
const SEARCHES: [Duration; 3] = [Duration::from_millis(400), Duration::from_millis(1_200), SEARCH];
/// Mappings of a router that are looked through for one of ours.
const MOST_LISTED: u32 = 64;

/// The arguments of WANIPConnection:1, for routers that list their actions without them.
const STANDARD: &[(&str, &[&str])] = &[
    (
        "AddPortMapping",
        &[
            "NewRemoteHost",
            "NewExternalPort",
            "NewProtocol",
            "NewInternalPort",
            "NewInternalClient",
            "NewEnabled",
            "NewPortMappingDescription",
            "NewLeaseDuration",
        ],
    ),
    ("DeletePortMapping", &["NewRemoteHost", "NewExternalPort", "NewProtocol"]),
];

/// Looks for the router on the network of the way out.
pub(crate) fn search(way: Option<Way>) -> Result<(Gateway, Router), Why> {
    let (sender, answers) = mpsc::channel();
    let mut running = 0;
    let mut failure = Why::NoAnswer;
    for pause in SEARCHES {
        let sender = sender.clone();
        let one = move || drop(sender.send(search_once(way)));
        running += usize::from(Builder::new().name("anywire-ssdp".into()).spawn(one).is_ok());
        let next = Instant::now() + pause;
        while running > 0 {
            match answers.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Ok(found)) => return understand(found),
                Ok(Err(why)) => {
                    running -= 1;
                    failure = why;
                }
                Err(_) => break,
            }
        }
    }
    Err(failure)
}

fn search_once(way: Option<Way>) -> Result<Gateway, Why> {
    let mut options = SearchOptions::default();
    options.timeout = Some(SEARCH);
    options.single_search_timeout = Some(SEARCH);
    options.gateway_ip_version = GatewayIpVersion::V4;
    if let Some(way) = way {
        options.bind_addr = SocketAddr::new(IpAddr::V4(way.local), 0);
    }
    igd_next::search_gateway(options).map_err(|error| match error {
        // The second: no network that carries multicasts.
        SearchError::NoResponseWithinTimeout | SearchError::IoError(_) => Why::NoAnswer,
        other => Why::Broken(words(&other.to_string())),
    })
}

fn understand(mut found: Gateway) -> Result<(Gateway, Router), Why> {
    for (action, arguments) in STANDARD {
        let arguments = || arguments.iter().map(|name| (*name).to_owned()).collect();
        found.control_schema.entry((*action).to_owned()).or_insert_with(arguments);
    }
    let IpAddr::V4(at) = found.addr.ip() else { return Err(Why::NoAnswer) };
    let client = gateway::local_toward(at).ok_or(Why::NoGateway)?;
    let router = Router { gateway: at, client, wan: wan(&found) };
    Ok((found, router))
}

fn wan(router: &Gateway) -> Result<std::net::Ipv4Addr, Why> {
    match router.get_external_ip() {
        Ok(IpAddr::V4(address)) => Ok(address),
        // Old devices answer an empty text where there is no connection.
        Ok(IpAddr::V6(_)) | Err(GetExternalIpError::RequestError(RequestError::InvalidResponse(_))) => {
            Err(Why::NoOutsideAddress)
        }
        Err(GetExternalIpError::ActionNotAuthorized) => Err(not_authorized()),
        Err(GetExternalIpError::RequestError(error)) => Err(request(error)),
    }
}

/// Makes or renews a mapping. Where it would lead is asked first, so that a useless one is never made.
pub(crate) fn ask(router: &Gateway, entry: Entry, lease: u32, description: &str) -> Result<Granted, Failure> {
    let address = wan(router).and_then(outside).map_err(Failure::Told)?;
    let inside = SocketAddr::V4(SocketAddrV4::new(entry.client, entry.internal));
    match router.add_port(protocol(entry.protocol), entry.external, inside, lease, description) {
        Ok(()) => Ok(Granted { external: SocketAddrV4::new(address, entry.external), lease }),
        Err(AddPortError::PortInUse | AddPortError::SamePortValuesRequired) => Err(Failure::PortTaken),
        Err(AddPortError::OnlyPermanentLeasesSupported) => Err(Failure::PermanentOnly),
        // Some routers call a lease an invalid argument.
        Err(AddPortError::RequestError(RequestError::ErrorCode(402, _))) if lease != 0 => Err(Failure::PermanentOnly),
        Err(AddPortError::ActionNotAuthorized) => Err(Failure::Told(not_authorized())),
        Err(AddPortError::RequestError(error)) => Err(Failure::Told(request(error))),
        Err(other) => Err(Failure::Told(Why::Broken(words(&other.to_string())))),
    }
}

/// Takes a mapping back. `verify`: only if the router does not say that it leads to another machine by now.
pub(crate) fn remove(router: &Gateway, entry: Entry, verify: bool) -> bool {
    if verify && is_anothers(router, entry) {
        return true;
    }
    match router.remove_port(protocol(entry.protocol), entry.external) {
        Ok(()) | Err(RemovePortError::NoSuchPortMapping | RemovePortError::ActionNotAuthorized) => true,
        Err(RemovePortError::RequestError(error)) => matches!(error, RequestError::ErrorCode(..)),
    }
}

fn is_anothers(router: &Gateway, entry: Entry) -> bool {
    for index in 0..MOST_LISTED {
        match router.get_generic_port_mapping_entry(index) {
            Ok(listed) => {
                if listed.external_port == entry.external && listed.protocol == protocol(entry.protocol) {
                    let inside = listed.internal_client.trim() == entry.client.to_string();
                    return !inside || listed.internal_port != entry.internal;
                }
            }
            // The end of the list: it is nobody's.
            Err(GetGenericPortMappingEntryError::SpecifiedArrayIndexInvalid) => return true,
            Err(_) => return false,
        }
    }
    false
}

fn protocol(protocol: Protocol) -> PortMappingProtocol {
    match protocol {
        Protocol::Udp => PortMappingProtocol::UDP,
        Protocol::Tcp => PortMappingProtocol::TCP,
    }
}

fn not_authorized() -> Why {
    Why::Refused { code: 606, text: "Action not authorized".into() }
}

fn request(error: RequestError) -> Why {
    match error {
        RequestError::ErrorCode(code, text) => Why::Refused { code, text: words(&text) },
        RequestError::UnsupportedAction(action) => Why::Broken(words(&format!("it has no {action}"))),
        RequestError::InvalidResponse(text) => Why::Broken(words(&text)),
        RequestError::IoError(_) | RequestError::AttoHttpError(_) => Why::NoAnswer,
    }
}
