//! The way out of this machine.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// This machine's default router, and the address by which the router knows this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The router.
    pub gateway: Ipv4Addr,
    /// This machine, on the way there.
    pub local: Ipv4Addr,
}

/// The default route. Runs no program, sends nothing.
#[must_use]
pub fn way() -> Option<Way> {
    let gateway = default_gateway()?;
    Some(Way { gateway, local: local_toward(gateway)? })
}

/// The address from which this machine would send there. Sends nothing.
pub(crate) fn local_toward(address: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((address, 9)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(local) if !local.ip().is_unspecified() => Some(*local.ip()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => None,
    }
}

#[cfg(target_os = "linux")]
fn default_gateway() -> Option<Ipv4Addr> {
    // The calling thread's own network: `/proc/net` is the first thread's.
    let table = std::fs::read_to_string("/proc/thread-self/net/route").ok()?;
    parse(&table)
}

#[cfg(not(target_os = "linux"))]
fn default_gateway() -> Option<Ipv4Addr> {
    netdev::get_default_gateway().ok()?.ipv4.first().copied()
}

/// The gateway of the default route with the least metric.
#[cfg(any(target_os = "linux", test))]
fn parse(table: &str) -> Option<Ipv4Addr> {
    const UP_AND_GATEWAY: u16 = 0x3;
    let number = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 8);
    let routes = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let destination = number(fields.next()?)?;
        let gateway = number(fields.next()?)?;
        let flags = u16::from_str_radix(fields.next()?, 16).ok()?;
        let metric: u32 = fields.nth(2)?.parse().ok()?;
        let mask = number(fields.next()?)?;
        let default = destination == 0 && mask == 0 && flags & UP_AND_GATEWAY == UP_AND_GATEWAY;
        // The kernel prints the address as a number of this machine's byte order.
        default.then(|| (metric, Ipv4Addr::from(gateway.to_ne_bytes())))
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, gateway)| gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_default_route_with_the_least_metric_is_the_way_out() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            tun0\t00000000\t00000000\t0001\t0\t0\t50\t00000000\t0\t0\t0\n\
            tun0\t00000000\t010000AA\t0003\t0\t0\t10\t000000FF\t0\t0\t0\n\
            eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(parse(table), Some(Ipv4Addr::new(192, 168, 1, 1)));
        assert_eq!(parse(table.lines().next().unwrap()), None);
        for end in 0..table.len() {
            let cut = table.get(..end).unwrap();
            assert!(parse(cut).is_none_or(|way| way.octets()[0] != 170), "{cut}");
        }
    }

    #[test]
    fn the_way_to_oneself_is_loopback() {
        assert_eq!(local_toward(Ipv4Addr::LOCALHOST), Some(Ipv4Addr::LOCALHOST));
    }
}
