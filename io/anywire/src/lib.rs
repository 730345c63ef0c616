//! Write the game once, play it over any wire.
//!
//! Gameplay code holds a `Box<dyn Peer>` and never learns what carries it: [`open`] gives the [`Transport`] of a
//! [`TransportKind`], and that is the one place in a game that names a wire.
//!
//! ```no_run
//! use anywire::{Channel, Delivery, Event, HostOptions, Target, TransportKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wire = anywire::open(TransportKind::Lobby)?;
//! let mut peer = wire.host(&HostOptions { name: "ada".into(), ..HostOptions::default() })?;
//! loop {
//!     while let Some(event) = peer.poll() {
//!         if let Event::Packet { from, data, .. } = event {
//!             println!("{from}: {} bytes", data.len());
//!         }
//!     }
//!     let _ = peer.send(Target::All, Channel(0), Delivery::Unreliable, b"tick");
//! #   break;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Wires: [`OfflineTransport`] (alone, no socket), [`EnetTransport`] (stock ENet 1.3) and [`LobbyTransport`] (sealed UDP by
//! join code). [`host_on`] puts one session on several of them. The others answer that this
//! build does not carry them.

mod drive;
mod enet;
mod links;
mod lobby;
mod multi;
mod offline;
mod party;

pub use enet::{ENET_PORT, EnetTransport};
pub use lobby::LobbyTransport;
pub use multi::{HostWire, host_on};
pub use offline::OfflineTransport;
pub use seam::{
    Channel, CloseReason, Delivery, Drive, Event, HostOptions, JoinOptions, Launch, LaunchRole, LinkStats, OpenError,
    Peer, PeerId, PeerState, Route, Secret, SelectError, SendError, Target, Transport, TransportKind, default_kind,
    resolve,
};

/// The transport of a wire.
///
/// # Errors
/// [`OpenError::Unavailable`] for a wire this build does not carry.
pub fn open(kind: TransportKind) -> Result<Box<dyn Transport>, OpenError> {
    match kind {
        TransportKind::Offline => Ok(Box::new(OfflineTransport)),
        TransportKind::Enet => Ok(Box::new(EnetTransport::default())),
        TransportKind::Lobby => Ok(Box::new(LobbyTransport::default())),
        other => Err(OpenError::Unavailable(other, "this build does not carry it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_that_is_not_built_says_so() {
        for kind in TransportKind::ALL {
            match open(kind) {
                Ok(transport) => assert_eq!(transport.kind(), kind),
                Err(error) => {
                    assert_eq!(error.to_string(), format!("{kind} is not available: this build does not carry it"))
                }
            }
        }
    }
}
