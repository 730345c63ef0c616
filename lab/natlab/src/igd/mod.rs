//! The control protocols of a home router: UPnP IGD (SSDP, SOAP), NAT-PMP
//! (RFC 6886) and the MAP part of PCP (RFC 6887).

mod pmp;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::nat::{Forward, ForwardError};
use crate::packet::{TCP, UDP};
use crate::plane::{SharedNat, lock};
use crate::spec::Upnp;
use crate::sys;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
const HTTP_PORT: u16 = 5000;
const NATPMP_PORT: u16 = 5351;

pub(crate) struct Igd {
    nat: SharedNat,
    mode: Upnp,
    gateway: Ipv4Addr,
    lan: (Ipv4Addr, u8),
    uuid: String,
    ssdp: Option<UdpSocket>,
    http: Option<TcpListener>,
    natpmp: Option<UdpSocket>,
    started: Instant,
}

impl Igd {
    /// Binds in the calling thread's namespace.
    pub(crate) fn bind(
        nat: SharedNat,
        mode: Upnp,
        natpmp: bool,
        name: &str,
        gateway: Ipv4Addr,
        lan: (Ipv4Addr, u8),
    ) -> io::Result<Igd> {
        let mut igd = Igd {
            nat,
            mode,
            gateway,
            lan,
            uuid: uuid(name),
            ssdp: None,
            http: None,
            natpmp: None,
            started: Instant::now(),
        };
        if mode != Upnp::No {
            let ssdp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 1900))?;
            ssdp.join_multicast_v4(&GROUP, &gateway)?;
            ssdp.set_nonblocking(true)?;
            igd.ssdp = Some(ssdp);
            let http = TcpListener::bind((gateway, HTTP_PORT))?;
            http.set_nonblocking(true)?;
            igd.http = Some(http);
        }
        if natpmp {
            let socket = UdpSocket::bind((gateway, NATPMP_PORT))?;
            socket.set_nonblocking(true)?;
            igd.natpmp = Some(socket);
        }
        Ok(igd)
    }

    /// Serves until `stop` can be read or is closed.
    pub(crate) fn run(self, stop: &UnixStream) {
        let mut fds = vec![stop.as_raw_fd()];
        let mut at = [0usize; 3];
        for (slot, fd) in [
            self.ssdp.as_ref().map(AsRawFd::as_raw_fd),
            self.http.as_ref().map(AsRawFd::as_raw_fd),
            self.natpmp.as_ref().map(AsRawFd::as_raw_fd),
        ]
        .into_iter()
        .enumerate()
        {
            if let Some(fd) = fd {
                at[slot] = fds.len();
                fds.push(fd);
            }
        }
        let mut buf = [0u8; 2048];
        while let Some(ready) = sys::wait(&fds, None) {
            if ready[0] {
                return;
            }
            if let (Some(s), true) = (&self.ssdp, ready[at[0]]) {
                while let Ok((n, from)) = s.recv_from(&mut buf) {
                    self.search(s, &String::from_utf8_lossy(&buf[..n]), from);
                }
            }
            if let (Some(l), true) = (&self.http, ready[at[1]]) {
                while let Ok((stream, from)) = l.accept() {
                    // One at a time: a home router is no web server.
                    let _ = self.http(stream, from);
                }
            }
            if let (Some(s), true) = (&self.natpmp, ready[at[2]]) {
                while let Ok((n, from)) = s.recv_from(&mut buf) {
                    if let Some(answer) = self.map_request(&buf[..n], from) {
                        let _ = s.send_to(&answer, from);
                    }
                }
            }
        }
    }

    fn version(&self) -> u8 {
        match self.mode {
            Upnp::Version(v) => v,
            _ => 1,
        }
    }

    // ---- SSDP ----

    fn targets(&self) -> Vec<String> {
        let mut all = vec!["upnp:rootdevice".to_string(), format!("uuid:{}", self.uuid)];
        for v in (1..=self.version()).rev() {
            for part in [
                "device:InternetGatewayDevice",
                "device:WANDevice",
                "device:WANConnectionDevice",
                "service:WANIPConnection",
            ] {
                all.push(format!("urn:schemas-upnp-org:{part}:{v}"));
            }
        }
        all.push("urn:schemas-upnp-org:service:WANCommonInterfaceConfig:1".into());
        all
    }

    fn search(&self, socket: &UdpSocket, text: &str, from: SocketAddr) {
        if !text.starts_with("M-SEARCH") || !text.to_ascii_lowercase().contains("ssdp:discover") {
            return;
        }
        // Only the inside may ask.
        let IpAddr::V4(ip) = from.ip() else { return };
        if !self.inside(ip) {
            return;
        }
        let Some(wanted) = field(text, "st") else {
            return;
        };
        for target in self.targets() {
            if wanted != "ssdp:all" && wanted != target {
                continue;
            }
            let usn =
                if target.starts_with("uuid:") { target.clone() } else { format!("uuid:{}::{target}", self.uuid) };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=120\r\nST: {target}\r\nUSN: {usn}\r\nEXT:\r\n\
                 SERVER: natlab UPnP/1.1 natlab/1.0\r\nLOCATION: http://{}:{HTTP_PORT}/rootDesc.xml\r\n\r\n",
                self.gateway
            );
            let _ = socket.send_to(answer.as_bytes(), from);
        }
    }

    fn inside(&self, ip: Ipv4Addr) -> bool {
        let mask = u32::MAX << (32 - self.lan.1);
        u32::from(ip) & mask == u32::from(self.lan.0)
    }

    // ---- HTTP ----

    fn http(&self, mut stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        let mut data = Vec::new();
        let mut buf = [0u8; 4096];
        let end = loop {
            if let Some(i) = data.windows(4).position(|w| w == b"\r\n\r\n") {
                break i + 4;
            }
            let n = stream.read(&mut buf)?;
            if n == 0 || data.len() > 65536 {
                return Ok(());
            }
            data.extend_from_slice(&buf[..n]);
        };
        let head = String::from_utf8_lossy(&data[..end]).into_owned();
        let length: usize = field(&head, "content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
        if field(&head, "expect").is_some_and(|v| v.eq_ignore_ascii_case("100-continue")) {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        while data.len() < end + length.min(65536) {
            let n = stream.read(&mut buf)?;
            if n == 0 {
                return Ok(());
            }
            data.extend_from_slice(&buf[..n]);
        }
        let body = String::from_utf8_lossy(&data[end..]).into_owned();
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (status, answer) = match (method, path) {
            ("GET", "/rootDesc.xml") => ("200 OK", self.description()),
            ("GET", "/WANIPCn.xml") => ("200 OK", self.service_description(WAN_IP_ACTIONS)),
            ("GET", "/WANCfg.xml") => ("200 OK", self.service_description(COMMON_ACTIONS)),
            ("POST", "/ctl/IPConn" | "/ctl/CmnIfCfg") => {
                let action = field(&head, "soapaction")
                    .and_then(|a| Some(a.trim_matches('"').rsplit_once('#')?.1.to_string()))
                    .unwrap_or_default();
                match self.soap(&action, &body, from) {
                    Ok(answer) => ("200 OK", answer),
                    Err(e) => ("500 Internal Server Error", e),
                }
            }
            _ => ("404 Not Found", String::new()),
        };
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/xml; charset=\"utf-8\"\r\nContent-Length: {}\r\n\
             Connection: close\r\nServer: natlab UPnP/1.1 natlab/1.0\r\nEXT:\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(text.as_bytes())
    }

    fn description(&self) -> String {
        let v = self.version();
        let device = |kind: &str, tail: &str, inner: &str| {
            format!(
                "<device><deviceType>urn:schemas-upnp-org:device:{kind}:{v}</deviceType>\
                 <friendlyName>natlab {kind}</friendlyName><manufacturer>natlab</manufacturer>\
                 <modelName>natlab</modelName><UDN>uuid:{}{tail}</UDN>{inner}</device>",
                self.uuid
            )
        };
        let service = |kind: &str, id: &str, ctl: &str, scpd: &str| {
            format!(
                "<serviceList><service><serviceType>urn:schemas-upnp-org:service:{kind}</serviceType>\
                 <serviceId>urn:upnp-org:serviceId:{id}</serviceId><SCPDURL>{scpd}</SCPDURL>\
                 <controlURL>{ctl}</controlURL><eventSubURL>/evt</eventSubURL></service></serviceList>"
            )
        };
        let connection = device(
            "WANConnectionDevice",
            "2",
            &service(&format!("WANIPConnection:{v}"), "WANIPConn1", "/ctl/IPConn", "/WANIPCn.xml"),
        );
        let wan = device(
            "WANDevice",
            "1",
            &format!(
                "{}<deviceList>{connection}</deviceList>",
                service("WANCommonInterfaceConfig:1", "WANCommonIFC1", "/ctl/CmnIfCfg", "/WANCfg.xml")
            ),
        );
        let root = device("InternetGatewayDevice", "", &format!("<deviceList>{wan}</deviceList>"));
        format!(
            "<?xml version=\"1.0\"?>\n<root xmlns=\"urn:schemas-upnp-org:device-1-0\">\
             <specVersion><major>1</major><minor>0</minor></specVersion>{root}</root>"
        )
    }

    fn service_description(&self, actions: &[&str]) -> String {
        let mut list = String::new();
        for a in actions {
            if *a == "AddAnyPortMapping" && self.version() < 2 {
                continue;
            }
            let _ = write!(list, "<action><name>{a}</name></action>");
        }
        format!(
            "<?xml version=\"1.0\"?>\n<scpd xmlns=\"urn:schemas-upnp-org:service-1-0\">\
             <specVersion><major>1</major><minor>0</minor></specVersion>\
             <actionList>{list}</actionList></scpd>"
        )
    }

    fn soap(&self, action: &str, body: &str, from: SocketAddr) -> Result<String, String> {
        let v = self.version();
        let service = if COMMON_ACTIONS.contains(&action) {
            "WANCommonInterfaceConfig:1".to_string()
        } else {
            format!("WANIPConnection:{v}")
        };
        match self.act(action, body, from) {
            Ok(fields) => {
                let mut inner = String::new();
                for (k, v) in fields {
                    let _ = write!(inner, "<{k}>{v}</{k}>");
                }
                Ok(envelope(&format!(
                    "<u:{action}Response xmlns:u=\"urn:schemas-upnp-org:service:{service}\">{inner}</u:{action}Response>"
                )))
            }
            Err((code, text)) => Err(envelope(&format!(
                "<s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail>\
                 <UPnPError xmlns=\"urn:schemas-upnp-org:control-1-0\"><errorCode>{code}</errorCode>\
                 <errorDescription>{text}</errorDescription></UPnPError></detail></s:Fault>"
            ))),
        }
    }

    fn act(&self, action: &str, body: &str, from: SocketAddr) -> Result<Fields, SoapError> {
        let now = Instant::now();
        let invalid = (402, "Invalid Args");
        let text = |key: &str| tag(body, key);
        let uptime = self.started.elapsed().as_secs().to_string();
        match action {
            "GetExternalIPAddress" => Ok(vec![("NewExternalIPAddress", lock(&self.nat).wan().to_string())]),
            "GetStatusInfo" => Ok(vec![
                ("NewConnectionStatus", "Connected".into()),
                ("NewLastConnectionError", "ERROR_NONE".into()),
                ("NewUptime", uptime),
            ]),
            "GetConnectionTypeInfo" => {
                Ok(vec![("NewConnectionType", "IP_Routed".into()), ("NewPossibleConnectionTypes", "IP_Routed".into())])
            }
            "GetNATRSIPStatus" => Ok(vec![("NewRSIPAvailable", "0".into()), ("NewNATEnabled", "1".into())]),
            "GetCommonLinkProperties" => Ok(vec![
                ("NewWANAccessType", "Cable".into()),
                ("NewLayer1UpstreamMaxBitRate", "100000000".into()),
                ("NewLayer1DownstreamMaxBitRate", "100000000".into()),
                ("NewPhysicalLinkStatus", "Up".into()),
            ]),
            "GetTotalBytesSent" => Ok(vec![("NewTotalBytesSent", "0".into())]),
            "GetTotalBytesReceived" => Ok(vec![("NewTotalBytesReceived", "0".into())]),
            "GetTotalPacketsSent" => Ok(vec![("NewTotalPacketsSent", "0".into())]),
            "GetTotalPacketsReceived" => Ok(vec![("NewTotalPacketsReceived", "0".into())]),
            "AddPortMapping" | "AddAnyPortMapping" => {
                let any = action == "AddAnyPortMapping";
                if any && self.version() < 2 {
                    return Err((401, "Invalid Action"));
                }
                if self.mode == Upnp::Refuse {
                    return Err((606, "Action not authorized"));
                }
                let proto = protocol(text("NewProtocol")).ok_or(invalid)?;
                if self.mode == Upnp::UdpOnly && proto == TCP {
                    return Err((606, "Action not authorized"));
                }
                let outside: u16 = parsed(text("NewExternalPort")).ok_or(invalid)?;
                let inside: u16 = parsed(text("NewInternalPort")).ok_or(invalid)?;
                let client: Ipv4Addr = parsed(text("NewInternalClient")).ok_or(invalid)?;
                let lease: u32 = parsed(text("NewLeaseDuration")).unwrap_or(0);
                let remote = match text("NewRemoteHost") {
                    None => None,
                    Some(r) if r.is_empty() => None,
                    Some(r) => Some(r.parse().map_err(|_| invalid)?),
                };
                if inside == 0 || (outside == 0 && !any) {
                    return Err((716, "WildCardNotPermittedInExtPort"));
                }
                if self.mode == Upnp::Permanent && lease != 0 {
                    return Err((725, "OnlyPermanentLeasesSupported"));
                }
                if !self.inside(client) || (self.version() > 1 && IpAddr::V4(client) != from.ip()) {
                    return Err((606, "Action not authorized"));
                }
                if self.mode == Upnp::Lie {
                    return Ok(vec![]);
                }
                // Version 2 turns 'for ever' into a week.
                let lease = if lease == 0 && self.version() > 1 { 604_800 } else { lease };
                let mut nat = lock(&self.nat);
                let mut forward = Forward {
                    proto,
                    outside_port: outside,
                    inside: SocketAddr::new(IpAddr::V4(client), inside),
                    remote,
                    expires: (lease > 0).then(|| now + Duration::from_secs(u64::from(lease))),
                    description: text("NewPortMappingDescription").unwrap_or_default(),
                    fixed: false,
                };
                let mut result = nat.add_forward(forward.clone(), now);
                if any
                    && result == Err(ForwardError::Conflict)
                    && let Some(port) = nat.free_port(proto, 0, now)
                {
                    forward.outside_port = port;
                    result = nat.add_forward(forward.clone(), now);
                }
                match result {
                    Ok(()) if any => Ok(vec![("NewReservedPort", forward.outside_port.to_string())]),
                    Ok(()) => Ok(vec![]),
                    Err(ForwardError::Conflict) => Err((718, "ConflictInMappingEntry")),
                }
            }
            "DeletePortMapping" => {
                let proto = protocol(text("NewProtocol")).ok_or(invalid)?;
                let port: u16 = parsed(text("NewExternalPort")).ok_or(invalid)?;
                if lock(&self.nat).remove_forward(proto, port) { Ok(vec![]) } else { Err((714, "NoSuchEntryInArray")) }
            }
            "GetSpecificPortMappingEntry" => {
                let proto = protocol(text("NewProtocol")).ok_or(invalid)?;
                let port: u16 = parsed(text("NewExternalPort")).ok_or(invalid)?;
                let nat = lock(&self.nat);
                let f = nat.forward_at(proto, port, now).ok_or((714, "NoSuchEntryInArray"))?;
                Ok(entry(f, now).split_off(3))
            }
            "GetGenericPortMappingEntry" => {
                let index: usize = parsed(text("NewPortMappingIndex")).ok_or(invalid)?;
                let forwards = lock(&self.nat).forwards();
                let live: Vec<_> = forwards.into_iter().filter(|f| f.expires.is_none_or(|at| at > now)).collect();
                let f = live.get(index).ok_or((713, "SpecifiedArrayIndexInvalid"))?;
                Ok(entry(f, now))
            }
            _ => Err((401, "Invalid Action")),
        }
    }
}

type Fields = Vec<(&'static str, String)>;
type SoapError = (u16, &'static str);

const WAN_IP_ACTIONS: &[&str] = &[
    "AddPortMapping",
    "AddAnyPortMapping",
    "DeletePortMapping",
    "GetExternalIPAddress",
    "GetSpecificPortMappingEntry",
    "GetGenericPortMappingEntry",
    "GetStatusInfo",
    "GetConnectionTypeInfo",
    "GetNATRSIPStatus",
];

const COMMON_ACTIONS: &[&str] = &[
    "GetCommonLinkProperties",
    "GetTotalBytesSent",
    "GetTotalBytesReceived",
    "GetTotalPacketsSent",
    "GetTotalPacketsReceived",
];

fn entry(f: &Forward, now: Instant) -> Fields {
    let left = f.expires.map_or(0, |at| at.saturating_duration_since(now).as_secs());
    vec![
        ("NewRemoteHost", f.remote.map(|r| r.to_string()).unwrap_or_default()),
        ("NewExternalPort", f.outside_port.to_string()),
        ("NewProtocol", if f.proto == UDP { "UDP" } else { "TCP" }.into()),
        ("NewInternalPort", f.inside.port().to_string()),
        ("NewInternalClient", f.inside.ip().to_string()),
        ("NewEnabled", "1".into()),
        ("NewPortMappingDescription", escape(&f.description)),
        ("NewLeaseDuration", left.to_string()),
    ]
}

fn envelope(inner: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body>{inner}</s:Body></s:Envelope>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn protocol(text: Option<String>) -> Option<u8> {
    match text?.to_ascii_uppercase().as_str() {
        "UDP" => Some(UDP),
        "TCP" => Some(TCP),
        _ => None,
    }
}

fn parsed<T: std::str::FromStr>(text: Option<String>) -> Option<T> {
    text?.trim().parse().ok()
}

/// The value of a header line.
fn field(head: &str, name: &str) -> Option<String> {
    head.lines().skip(1).find_map(|line| {
        let (k, v) = line.split_once(':')?;
        k.trim().eq_ignore_ascii_case(name).then(|| v.trim().to_string())
    })
}

/// The text of the first element of this name, whatever its prefix.
fn tag(body: &str, name: &str) -> Option<String> {
    let mut rest = body;
    loop {
        let open = rest.find('<')?;
        rest = &rest[open + 1..];
        let close = rest.find('>')?;
        let inside = &rest[..close];
        let word = inside.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or("");
        let local = word.rsplit(':').next().unwrap_or("");
        if local == name {
            if inside.ends_with('/') {
                return Some(String::new());
            }
            let text = &rest[close + 1..];
            let end = text.find('<')?;
            let text = &text[..end];
            return Some(text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"));
        }
        rest = &rest[close + 1..];
    }
}

fn uuid(name: &str) -> String {
    let mut rng = crate::rng::Rng::named(0x6e61_746c, name);
    let (a, b) = (rng.bits(), rng.bits());
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:011x}",
        (a >> 32) as u32,
        (a >> 16) as u16,
        a & 0xfff,
        b >> 52,
        b & 0xfff_ffff_ffff
    )
}
