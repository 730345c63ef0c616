//! A small UPnP client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::tcp_connect;
use crate::lab::Handle;
use crate::net::Result;

/// A router that was found by UPnP.
pub struct Gateway {
    at: SocketAddr,
    path: String,
    service: String,
}

/// Looks for a gateway by SSDP from inside a host.
pub fn find_gateway(lab: &Handle, host: &str, limit: Duration) -> Result<Option<Gateway>> {
    let ip = lab.topology.ip(host).ok_or_else(|| format!("{host} has no address"))?;
    let socket = lab.inside(host, || UdpSocket::bind((ip, 0)))?.map_err(|e| format!("{host} cannot bind: {e}"))?;
    let search = "M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n\
                  ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\n\r\n";
    socket.set_read_timeout(Some(limit)).map_err(|e| e.to_string())?;
    socket
        .send_to(search.as_bytes(), (Ipv4Addr::new(239, 255, 255, 250), 1900))
        .map_err(|e| format!("{host} cannot multicast: {e}"))?;
    let mut buf = [0u8; 2048];
    let Ok((n, _)) = socket.recv_from(&mut buf) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&buf[..n]).into_owned();
    let location = text
        .lines()
        .find_map(|l| l.split_once(':').filter(|(k, _)| k.eq_ignore_ascii_case("location")))
        .map(|(_, v)| v.trim().to_string())
        .ok_or("the gateway's answer names no location")?;
    let rest = location.strip_prefix("http://").ok_or("the location is no http address")?;
    let (at, path) = rest.split_once('/').ok_or("the location has no path")?;
    let at: SocketAddr = at.parse().map_err(|_| "the location has no address")?;
    let (_, description) = http(lab, host, at, "GET", &format!("/{path}"), "", "")?;
    for version in [2, 1] {
        let service = format!("urn:schemas-upnp-org:service:WANIPConnection:{version}");
        if let Some(i) = description.find(&service) {
            let part = &description[i..];
            let path = part
                .split_once("<controlURL>")
                .and_then(|(_, r)| r.split_once("</controlURL>"))
                .map(|(p, _)| p.to_string())
                .ok_or("the service has no control address")?;
            return Ok(Some(Gateway { at, path, service }));
        }
    }
    Err("the gateway has no WANIPConnection".into())
}

impl Gateway {
    /// Calls an action; the answer's text, or the UPnP error code.
    pub fn call(
        &self,
        lab: &Handle,
        host: &str,
        action: &str,
        arguments: &[(&str, &str)],
    ) -> Result<std::result::Result<String, u16>> {
        let mut inner = String::new();
        for (k, v) in arguments {
            inner += &format!("<{k}>{v}</{k}>");
        }
        let service = &self.service;
        let body = format!(
            "<?xml version=\"1.0\"?><s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body>\
             <u:{action} xmlns:u=\"{service}\">{inner}</u:{action}></s:Body></s:Envelope>"
        );
        let (status, text) = http(lab, host, self.at, "POST", &self.path, &format!("{service}#{action}"), &body)?;
        if status == 200 {
            return Ok(Ok(text));
        }
        let code = text
            .split_once("<errorCode>")
            .and_then(|(_, r)| r.split_once('<'))
            .and_then(|(c, _)| c.parse().ok())
            .unwrap_or(0);
        Ok(Err(code))
    }

    /// Maps a UDP port of the host to itself; lease 0 is for ever.
    pub fn map(&self, lab: &Handle, host: &str, port: u16, lease: u32) -> Result<std::result::Result<String, u16>> {
        let ip = lab.topology.ip(host).map(|i| i.to_string()).unwrap_or_default();
        let (port, lease) = (port.to_string(), lease.to_string());
        self.call(
            lab,
            host,
            "AddPortMapping",
            &[
                ("NewRemoteHost", ""),
                ("NewExternalPort", &port),
                ("NewProtocol", "UDP"),
                ("NewInternalPort", &port),
                ("NewInternalClient", &ip),
                ("NewEnabled", "1"),
                ("NewPortMappingDescription", "natlab"),
                ("NewLeaseDuration", &lease),
            ],
        )
    }

    /// Takes such a mapping away.
    pub fn unmap(&self, lab: &Handle, host: &str, port: u16) -> Result<std::result::Result<String, u16>> {
        self.call(
            lab,
            host,
            "DeletePortMapping",
            &[("NewRemoteHost", ""), ("NewExternalPort", &port.to_string()), ("NewProtocol", "UDP")],
        )
    }

    /// The router's outside address, as it says.
    pub fn external_ip(&self, lab: &Handle, host: &str) -> Result<Option<IpAddr>> {
        let answer = self.call(lab, host, "GetExternalIPAddress", &[])?;
        Ok(answer.ok().and_then(|t| {
            let (_, rest) = t.split_once("<NewExternalIPAddress>")?;
            rest.split_once('<')?.0.parse().ok()
        }))
    }
}

fn http(
    lab: &Handle,
    host: &str,
    at: SocketAddr,
    method: &str,
    path: &str,
    action: &str,
    body: &str,
) -> Result<(u16, String)> {
    let stream = lab.inside(host, || tcp_connect(0, at, Duration::from_secs(2)))?;
    let mut stream = stream.map_err(|e| format!("{host} cannot reach the gateway: {e}"))?;
    let extra = if action.is_empty() { String::new() } else { format!("SOAPAction: \"{action}\"\r\n") };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: text/xml; charset=\"utf-8\"\r\n\
         Content-Length: {}\r\n{extra}Connection: close\r\n\r\n{body}",
        body.len()
    );
    let fail = |e: io::Error| format!("the gateway: {e}");
    stream.set_read_timeout(Some(Duration::from_secs(3))).map_err(fail)?;
    stream.write_all(request.as_bytes()).map_err(fail)?;
    let mut data = Vec::new();
    stream.read_to_end(&mut data).map_err(fail)?;
    let text = String::from_utf8_lossy(&data).into_owned();
    let status = text.split_whitespace().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map(|(_, b)| b.to_string()).unwrap_or_default();
    Ok((status, body))
}
