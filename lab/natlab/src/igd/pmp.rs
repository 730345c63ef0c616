//! NAT-PMP (RFC 6886) and the MAP part of PCP (RFC 6887).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::Igd;
use crate::nat::Forward;
use crate::packet::{TCP, UDP};
use crate::plane::lock;

impl Igd {
    pub(super) fn map_request(&self, m: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        let IpAddr::V4(client) = from.ip() else {
            return None;
        };
        if !self.inside(client) || m.len() < 2 {
            return None;
        }
        match m[0] {
            0 => self.natpmp_answer(m, client),
            2 => self.pcp_answer(m, client),
            // RFC 6886, 3.5: unsupported version.
            _ => Some(vec![0, 128 | m[1], 0, 1, 0, 0, 0, 0]),
        }
    }

    fn epoch(&self) -> [u8; 4] {
        (self.started.elapsed().as_secs() as u32).to_be_bytes()
    }

    fn natpmp_answer(&self, m: &[u8], client: Ipv4Addr) -> Option<Vec<u8>> {
        let mut a = vec![0, 128 | m[1], 0, 0];
        a.extend_from_slice(&self.epoch());
        match m[1] {
            0 => {
                let IpAddr::V4(wan) = lock(&self.nat).wan() else {
                    return None;
                };
                a.extend_from_slice(&wan.octets());
            }
            op @ (1 | 2) if m.len() >= 12 => {
                let proto = if op == 1 { UDP } else { TCP };
                let inside = u16::from_be_bytes([m[4], m[5]]);
                let wanted = u16::from_be_bytes([m[6], m[7]]);
                let lease = u32::from_be_bytes([m[8], m[9], m[10], m[11]]);
                let given = self.map(proto, SocketAddr::new(client.into(), inside), wanted, lease);
                if given.is_none() {
                    a[3] = 4;
                }
                a.extend_from_slice(&inside.to_be_bytes());
                a.extend_from_slice(&given.unwrap_or(0).to_be_bytes());
                a.extend_from_slice(&lease.to_be_bytes());
            }
            _ => a[3] = 5,
        }
        Some(a)
    }

    /// Makes, renews or (lease 0) removes a mapping; the outside port given.
    fn map(&self, proto: u8, inside: SocketAddr, wanted: u16, lease: u32) -> Option<u16> {
        let now = Instant::now();
        let mut nat = lock(&self.nat);
        let held = nat
            .forwards()
            .into_iter()
            .find(|f| f.proto == proto && f.inside == inside && f.expires.is_none_or(|at| at > now))
            .map(|f| f.outside_port);
        if lease == 0 {
            if let Some(port) = held {
                nat.remove_forward(proto, port);
            }
            return Some(0);
        }
        let port = match held {
            Some(p) => p,
            None => nat.free_port(proto, if wanted == 0 { inside.port() } else { wanted }, now)?,
        };
        let forward = Forward {
            proto,
            outside_port: port,
            inside,
            remote: None,
            expires: Some(now + Duration::from_secs(u64::from(lease))),
            description: "NAT-PMP or PCP".into(),
            fixed: false,
        };
        nat.add_forward(forward, now).ok()?;
        Some(port)
    }

    fn pcp_answer(&self, m: &[u8], client: Ipv4Addr) -> Option<Vec<u8>> {
        if m.len() < 24 || m[1] & 128 != 0 {
            return None;
        }
        let mut a = vec![2, 128 | m[1], 0, 0];
        a.extend_from_slice(&m[4..8]);
        a.extend_from_slice(&self.epoch());
        a.extend_from_slice(&[0; 12]);
        let claimed = &m[8..24];
        let mapped = client.to_ipv6_mapped().octets();
        match m[1] {
            0 => {}
            1 if m.len() >= 60 => {
                a.extend_from_slice(&m[24..60]);
                if claimed != mapped {
                    a[3] = 12; // ADDRESS_MISMATCH
                    return Some(a);
                }
                let proto = m[36];
                if proto != UDP && proto != TCP {
                    a[3] = 9; // UNSUPP_PROTOCOL
                    return Some(a);
                }
                let lease = u32::from_be_bytes([m[4], m[5], m[6], m[7]]);
                let inside = u16::from_be_bytes([m[40], m[41]]);
                let wanted = u16::from_be_bytes([m[42], m[43]]);
                match self.map(proto, SocketAddr::new(client.into(), inside), wanted, lease) {
                    Some(port) => {
                        a[42..44].copy_from_slice(&port.to_be_bytes());
                        if let IpAddr::V4(wan) = lock(&self.nat).wan() {
                            a[44..60].copy_from_slice(&wan.to_ipv6_mapped().octets());
                        }
                    }
                    None => a[3] = 8, // NO_RESOURCES
                }
            }
            _ => a[3] = 4, // UNSUPP_OPCODE
        }
        Some(a)
    }
}
