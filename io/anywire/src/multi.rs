//! Several wires behind one host: one roster, one id space, whoever came by which of them.

use std::time::Instant;

use seam::{HostOptions, OpenError, Peer};

use crate::drive::drive;
use crate::party::{Config, Party};
use crate::{EnetTransport, LobbyTransport};

/// A wire that can be one of several.
#[derive(Clone, Debug)]
pub enum HostWire {
    /// ENet.
    Enet(EnetTransport),
    /// The lobby.
    Lobby(LobbyTransport),
}

/// Opens a session on all of these wires. Its invitation is theirs, with a space between them.
///
/// Players hear of each other whichever wire they came by, and packets between two of them go by way of the host when
/// they have no link. A wire that fails later takes its players along and leaves the others alone.
///
/// # Errors
/// [`OpenError`] of the first wire that cannot begin; none is left open then.
pub fn host_on(wires: &[HostWire], options: &HostOptions) -> Result<Box<dyn Peer>, OpenError> {
    if wires.is_empty() {
        return Err(OpenError::BadAddress("a session needs at least one wire".to_owned()));
    }
    let open = |wire: &HostWire| match wire {
        HostWire::Enet(wire) => wire.host_links(options),
        HostWire::Lobby(wire) => wire.host_links(options),
    };
    let links = wires.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let seed = driver::entropy().map_err(|error| OpenError::Socket(error.to_string()))?;
    let config = Config {
        name: options.name.clone(),
        identity: [0; 16],
        wanted: None,
        max_players: options.max_players.into(),
        seed,
    };
    drive(Party::host(config, links, Instant::now()), options.drive)
}
