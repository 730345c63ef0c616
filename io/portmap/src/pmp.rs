//! Questions by NAT-PMP (RFC 6886) and PCP (RFC 6887), through `crab_nat`. It is written for tokio, so each call brings a
//! runtime without threads for its own length.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU16;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crab_nat::pcp::{self, BaseMapRequest, DropMappingRange};
use crab_nat::{GatewayAddress, InternetProtocol, PortMappingOptions, PortMappingType, TimeoutConfig, natpmp};

use crate::memory::Entry;
use crate::plan::{Failure, Granted};
use crate::words::{Method, Protocol, Why, outside, words};

/// 0.25 + 0.5 + 1 + 2 s (RFC 6886, section 3.1; for PCP, whose servers are the same boxes, too).
const ASKING: TimeoutConfig =
    TimeoutConfig { initial_timeout: Duration::from_millis(250), max_retries: 3, max_retry_timeout: None };
/// 0.25 + 0.5 + 1 s.
const PATIENT: TimeoutConfig = TimeoutConfig { max_retries: 2, ..ASKING };
const ONCE: TimeoutConfig = TimeoutConfig { max_retries: 0, ..ASKING };
/// How soon a question notices that nobody wants to know any more.
const GLANCE: Duration = Duration::from_millis(20);

/// Makes or renews a mapping. Unanswered when `stop` is set meanwhile. By NAT-PMP only if it
/// is `needed` when the router has said where it is: slow routers keep one table for all protocols, and rewrite it for each.
pub(crate) fn ask(entry: Entry, lease: u32, stop: &AtomicBool, needed: impl Fn() -> bool) -> Result<Granted, Failure> {
    let internal = NonZeroU16::new(entry.internal).ok_or(Why::NoAnswer)?;
    let options = PortMappingOptions {
        external_port: NonZeroU16::new(entry.external),
        lifetime_seconds: Some(lease),
        timeout_config: Some(ASKING),
    };
    let gateway = GatewayAddress::IpV4(entry.gateway);
    let (address, mapping) = run(unless(stop, async {
        match entry.method {
            Method::Pcp => {
                let base = BaseMapRequest::new(gateway, IpAddr::V4(entry.client), protocol(entry.protocol), internal);
                let mapping = pcp::port_mapping(base, Some(entry.nonce), None, options).await.map_err(pcp_failure)?;
                match mapping.mapping_type() {
                    PortMappingType::Pcp { external_ip, .. } => Ok((v4(external_ip)?, mapping)),
                    PortMappingType::NatPmp => Err(Why::NoOutsideAddress.into()),
                }
            }
            Method::NatPmp | Method::Upnp => {
                // First where it would lead, so that a useless one is never made.
                let address = natpmp::external_address(gateway, Some(ASKING)).await.map_err(natpmp_failure)?;
                let address = outside(address)?;
                if !needed() {
                    return Err(Failure::Unneeded);
                }
                let mapping = natpmp::port_mapping(gateway, protocol(entry.protocol), internal, options)
                    .await
                    .map_err(natpmp_failure)?;
                Ok((address, mapping))
            }
        }
    }))?;
    match mapping.lifetime() {
        0 => Err(Why::Broken("it mapped for no time at all".into()).into()),
        lease => Ok(Granted { external: SocketAddrV4::new(address, mapping.external_port().get()), lease }),
    }
}

/// Takes a mapping back; false when nobody answered.
pub(crate) fn remove(entry: Entry, patient: bool) -> bool {
    let Some(internal) = NonZeroU16::new(entry.internal) else { return true };
    let timing = Some(if patient { PATIENT } else { ONCE });
    let gateway = GatewayAddress::IpV4(entry.gateway);
    let gone: Result<(), Why> = run(async {
        match entry.method {
            Method::Pcp => {
                let what = DropMappingRange::Single { protocol: protocol(entry.protocol), internal_port: internal };
                let client = IpAddr::V4(entry.client);
                pcp::try_drop_mapping(gateway, client, entry.nonce, what, timing).await.map_err(pcp_failure)
            }
            Method::NatPmp | Method::Upnp => {
                natpmp::try_drop_mapping(gateway, protocol(entry.protocol), Some(internal), timing)
                    .await
                    .map_err(natpmp_failure)
            }
        }
    });
    // What a router refuses to take back, or answers with nonsense, is not asked of it for ever.
    !matches!(gone, Err(Why::NoAnswer))
}

fn run<T, E: From<Why>>(question: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match runtime {
        Ok(runtime) => runtime.block_on(question),
        Err(error) => Err(Why::Broken(words(&error.to_string())).into()),
    }
}

async fn unless<T>(stop: &AtomicBool, question: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut question = pin!(question);
    loop {
        match tokio::time::timeout(GLANCE, question.as_mut()).await {
            Ok(answer) => return answer,
            Err(_) if stop.load(Ordering::Relaxed) => return Err(Why::NoAnswer.into()),
            Err(_) => {}
        }
    }
}

fn v4(address: IpAddr) -> Result<Ipv4Addr, Why> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => address.to_ipv4_mapped().ok_or(Why::NoOutsideAddress),
    }
}

fn protocol(protocol: Protocol) -> InternetProtocol {
    match protocol {
        Protocol::Udp => InternetProtocol::Udp,
        Protocol::Tcp => InternetProtocol::Tcp,
    }
}

fn refused(code: u16, text: &str) -> Why {
    Why::Refused { code, text: text.into() }
}

fn socket(error: &std::io::Error) -> Why {
    match error.kind() {
        // "Port unreachable": somebody is there, and nobody listens.
        std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::ConnectionReset => Why::Unspoken,
        _ => Why::NoAnswer,
    }
}

fn natpmp_failure(failure: natpmp::Failure) -> Why {
    match failure {
        natpmp::Failure::Socket(error) => socket(&error),
        natpmp::Failure::Timeout => Why::NoAnswer,
        natpmp::Failure::UnsupportedVersion(_) => Why::Unspoken,
        natpmp::Failure::NotAuthorized => refused(2, "Not authorized"),
        natpmp::Failure::NetworkFailure => refused(3, "Network failure"),
        natpmp::Failure::OutOfResources => refused(4, "Out of resources"),
        natpmp::Failure::UnsupportedOpcode => refused(5, "Unsupported opcode"),
        natpmp::Failure::InvalidResponse(kind) => Why::Broken(words(&kind.to_string())),
    }
}

fn pcp_failure(failure: pcp::Failure) -> Why {
    match failure {
        pcp::Failure::Socket(error) => socket(&error),
        pcp::Failure::Timeout => Why::NoAnswer,
        pcp::Failure::UnsupportedVersion(_) => Why::Unspoken,
        pcp::Failure::NotAuthorized(_) => refused(2, "Not authorized"),
        pcp::Failure::MalformedRequest => refused(3, "Malformed request"),
        pcp::Failure::UnsupportedOpcode => refused(4, "Unsupported opcode"),
        pcp::Failure::UnsupportedOption => refused(5, "Unsupported option"),
        pcp::Failure::MalformedOption => refused(6, "Malformed option"),
        pcp::Failure::NetworkFailure(_) => refused(7, "Network failure"),
        pcp::Failure::NoResources(_) => refused(8, "No resources"),
        pcp::Failure::UnsupportedProtocol => refused(9, "Unsupported protocol"),
        pcp::Failure::UserExceededQuota(_) => refused(10, "Quota exceeded"),
        pcp::Failure::CannotProvideExternal(_) => refused(11, "Cannot provide the outside port"),
        pcp::Failure::AddressMismatch => refused(12, "Address mismatch"),
        pcp::Failure::ExcessiveRemotePeers => refused(13, "Excessive remote peers"),
        pcp::Failure::Nonce => Why::Broken("it answered somebody else's question".into()),
        pcp::Failure::InvalidResponse(kind) => Why::Broken(words(&kind.to_string())),
    }
}
