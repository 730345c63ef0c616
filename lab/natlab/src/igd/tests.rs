//! The router's control protocols, without a network.

use std::sync::{Arc, Mutex};

use super::*;
use crate::nat::{Nat, NatConfig};
use crate::rng::Rng;

fn igd(mode: Upnp) -> Igd {
    let nat = Nat::new(NatConfig::default(), "198.51.100.9".parse().unwrap(), Rng::new(1));
    Igd {
        nat: Arc::new(Mutex::new(nat)),
        mode,
        gateway: "192.168.1.1".parse().unwrap(),
        lan: ("192.168.1.0".parse().unwrap(), 24),
        uuid: uuid("x"),
        ssdp: None,
        http: None,
        natpmp: None,
        started: Instant::now(),
    }
}

fn add(port: u16, client: &str, lease: u32) -> String {
    format!(
        "<s:Envelope><s:Body><u:AddPortMapping xmlns:u=\"x\"><NewRemoteHost/>\
         <NewExternalPort>{port}</NewExternalPort><NewProtocol>UDP</NewProtocol>\
         <NewInternalPort>7777</NewInternalPort><NewInternalClient>{client}</NewInternalClient>\
         <NewEnabled>1</NewEnabled><NewPortMappingDescription>a&lt;b</NewPortMappingDescription>\
         <NewLeaseDuration>{lease}</NewLeaseDuration></u:AddPortMapping></s:Body></s:Envelope>"
    )
}

#[test]
fn mappings_are_made_listed_and_removed() {
    let i = igd(Upnp::Version(1));
    let from = "192.168.1.2:9999".parse().unwrap();
    let call = |action: &str, body: &str| i.soap(action, body, from);
    assert!(call("GetExternalIPAddress", "").unwrap().contains("198.51.100.9"));
    call("AddPortMapping", &add(19132, "192.168.1.2", 0)).unwrap();
    let e = call("AddPortMapping", &add(19132, "192.168.1.3", 0)).unwrap_err();
    assert!(e.contains("<errorCode>718<"));
    let index = "<NewPortMappingIndex>0</NewPortMappingIndex>";
    let l = call("GetGenericPortMappingEntry", index).unwrap();
    assert!(l.contains("<NewExternalPort>19132<") && l.contains("a&lt;b"), "{l}");
    let key = "<NewExternalPort>19132</NewExternalPort><NewProtocol>UDP</NewProtocol>";
    let s = call("GetSpecificPortMappingEntry", key).unwrap();
    assert!(s.contains("<NewInternalClient>192.168.1.2<") && !s.contains("NewProtocol"));
    call("DeletePortMapping", key).unwrap();
    assert!(call("DeletePortMapping", key).unwrap_err().contains("714"));
    assert!(call("AddPortMapping", &add(1, "10.0.0.1", 0)).unwrap_err().contains("606"));
    assert!(call("AddAnyPortMapping", &add(1, "192.168.1.2", 0)).unwrap_err().contains("401"));
    assert!(call("Nonsense", "").unwrap_err().contains("401"));
}

#[test]
fn the_difficult_routers() {
    let from = "192.168.1.2:9999".parse().unwrap();
    let body = add(19132, "192.168.1.2", 60);
    assert!(igd(Upnp::Permanent).soap("AddPortMapping", &body, from).unwrap_err().contains("725"));
    assert!(igd(Upnp::Refuse).soap("AddPortMapping", &body, from).unwrap_err().contains("606"));
    let half = igd(Upnp::UdpOnly);
    half.soap("AddPortMapping", &body, from).unwrap();
    assert!(half.soap("AddPortMapping", &body.replace("UDP", "TCP"), from).unwrap_err().contains("606"));
    let liar = igd(Upnp::Lie);
    liar.soap("AddPortMapping", &body, from).unwrap();
    assert!(lock(&liar.nat).forwards().is_empty());
    let two = igd(Upnp::Version(2));
    assert!(two.soap("AddAnyPortMapping", &body, from).unwrap().contains("NewReservedPort>19132<"));
    let other = add(19132, "192.168.1.2", 60).replace("7777", "7778");
    let given = two.soap("AddAnyPortMapping", &other, from).unwrap();
    assert!(given.contains("NewReservedPort") && !given.contains(">19132<"), "{given}");
}

#[test]
fn natpmp_and_pcp() {
    let i = igd(Upnp::No);
    let from: SocketAddr = "192.168.1.2:9999".parse().unwrap();
    let a = i.map_request(&[0, 0], from).unwrap();
    assert_eq!(&a[8..12], &[198, 51, 100, 9]);
    let mut m = vec![0, 1, 0, 0];
    m.extend_from_slice(&7777u16.to_be_bytes());
    m.extend_from_slice(&19132u16.to_be_bytes());
    m.extend_from_slice(&3600u32.to_be_bytes());
    let a = i.map_request(&m, from).unwrap();
    assert_eq!((a[3], &a[10..12]), (0, &19132u16.to_be_bytes()[..]));
    let mut p = vec![2, 1, 0, 0];
    p.extend_from_slice(&3600u32.to_be_bytes());
    p.extend_from_slice(&"192.168.1.2".parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets());
    p.extend_from_slice(&[7; 12]);
    p.extend_from_slice(&[UDP, 0, 0, 0]);
    p.extend_from_slice(&8888u16.to_be_bytes());
    p.extend_from_slice(&8888u16.to_be_bytes());
    p.extend_from_slice(&[0; 16]);
    let a = i.map_request(&p, from).unwrap();
    assert_eq!((a.len(), a[3], &a[42..44]), (60, 0, &8888u16.to_be_bytes()[..]));
    assert_eq!(&a[56..60], &[198, 51, 100, 9]);
    assert_eq!(lock(&i.nat).forwards().len(), 2);
    p[4..8].fill(0);
    i.map_request(&p, from).unwrap();
    assert_eq!(lock(&i.nat).forwards().len(), 1);
    assert!(i.map_request(&[9, 0], from).unwrap()[3] == 1);
    assert!(i.map_request(&m, "203.0.113.9:1".parse().unwrap()).is_none());
}
