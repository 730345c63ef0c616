//! The ENet wire: stock ENet 1.3 over UDP.
//!
//! With a peer that is not ours a link is exactly what Godot's `ENetMultiplayerPeer` makes of it: the joiner's id travels as the connection's
//! data; channel 0 is ENet's channel 0 for reliable packets and 1 for both unreliable deliveries, channel n is ENet's n + 1; payloads are bare; a kick
//! is the number a disconnection carries, 0 a goodbye. Two ends of ours tell each other what they are without a byte that a stock peer would notice: a
//! joiner asks for 254 channels where everybody else asks for their own number or for 255, a host grants packets of 1,388
//! bytes where ENet's default is 1,392 or 1,400. They then have ENet's channel 253 for control messages, and in front of
//! every other packet one byte of delivery and a mark (`docs/wire/lanes.md`).
//!
//! Delivery of a packet from a stock peer: `rusty_enet` 0.4 does not tell it, so packets of channel 0 have the one its ENet
//! channel stands for, where unreliable and unreliable ordered are one, and those of other channels are told as reliable.

mod link;
mod socket;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use seam::{Dice, HostOptions, JoinOptions, OpenError, Peer, PeerId, Transport, TransportKind};

use crate::drive::drive;
use crate::enet::link::{EnetLinks, Setup};
use crate::links::Links;
use crate::party::{Config, Party};

/// The port the devlog's games listen at.
pub const ENET_PORT: u16 = 7777;
/// Players at once unless told otherwise.
const PLAYERS: u16 = 255;

/// Opens ENet sessions.
#[derive(Clone, Copy, Debug)]
pub struct EnetTransport {
    /// What a host is bound to when its options name no port; port 0 takes any.
    pub bind: SocketAddr,
    /// A player of whom nothing was heard for this long is gone.
    pub silence: Duration,
    /// The id a joiner asks for first; `None` draws one.
    pub id: Option<PeerId>,
}

impl Default for EnetTransport {
    fn default() -> Self {
        let bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, ENET_PORT));
        Self { bind, silence: Duration::from_secs(10), id: None }
    }
}

impl EnetTransport {
    /// A host's links, for a party with other wires beside this one.
    pub(crate) fn host_links(&self, options: &HostOptions) -> Result<Box<dyn Links>, OpenError> {
        let mut bind = self.bind;
        if options.port != 0 {
            bind.set_port(options.port);
        }
        let players = if options.max_players == 0 { PLAYERS } else { options.max_players };
        let setup = Setup { bind, silence: self.silence, players, join: None };
        Ok(Box::new(EnetLinks::open(&setup)?))
    }
}

impl Transport for EnetTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Enet
    }

    fn is_available(&self) -> bool {
        true
    }

    fn host(&self, options: &HostOptions) -> Result<Box<dyn Peer>, OpenError> {
        let links = self.host_links(options)?;
        let players = if options.max_players == 0 { PLAYERS } else { options.max_players };
        let config = Config {
            name: options.name.clone(),
            identity: [0; 16],
            wanted: None,
            max_players: players.into(),
            seed: seed()?,
        };
        drive(Party::host(config, vec![links], Instant::now()), options.drive)
    }

    fn join(&self, options: &JoinOptions) -> Result<Box<dyn Peer>, OpenError> {
        let to = resolve(&options.address)?;
        let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let seed = seed()?;
        let drawn = PeerId::new((Dice::new(seed).u32() >> 1).max(2)).unwrap_or(PeerId::HOST);
        let id = self.id.unwrap_or(drawn);
        let setup = Setup { bind: SocketAddr::new(any, 0), silence: self.silence, players: 1, join: Some((to, id)) };
        let links = Box::new(EnetLinks::open(&setup)?);
        let config = Config {
            name: options.name.clone(),
            identity: options.identity,
            wanted: Some(id),
            max_players: 0,
            seed: Dice::new(seed).child().bytes(),
        };
        drive(Party::join(config, links, Instant::now()), options.drive)
    }
}

fn seed() -> Result<[u8; 32], OpenError> {
    driver::entropy().map_err(|error| OpenError::Socket(error.to_string()))
}

/// `host:port`, or a host alone with the port everybody knows. Names are looked up here and now.
fn resolve(text: &str) -> Result<SocketAddr, OpenError> {
    let text = text.trim();
    let bad = |why: &str| OpenError::BadAddress(format!("'{text}' is no address to join: {why}; write host:port"));
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, ENET_PORT));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| bad("a port is 1 to 65535"))?),
        None => (text, ENET_PORT),
    };
    if host.is_empty() {
        return Err(bad("the host is missing"));
    }
    let mut found = (host, port).to_socket_addrs().map_err(|error| bad(&error.to_string()))?;
    found.next().ok_or_else(|| bad("the name has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_maybe_a_port() {
        let read = |text| resolve(text).map(|address| address.to_string());
        assert_eq!(read(" 10.0.0.7:9 "), Ok("10.0.0.7:9".to_owned()));
        assert_eq!(read("10.0.0.7"), Ok("10.0.0.7:7777".to_owned()));
        assert_eq!(read("[::1]:80"), Ok("[::1]:80".to_owned()));
        assert_eq!(read("::1"), Ok("[::1]:7777".to_owned()));
        for (text, why) in [("", "host is missing"), (":80", "host is missing"), ("here:port", "a port is 1 to 65535")]
        {
            let error = resolve(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write host:port"), "{error}");
        }
    }
}
