//! Negotiation and transport of sessions (NetherNet, sections 5, 6 and 9).
//!
//! An [`Endpoint`] runs all sessions of one peer id over the driver's sockets: signals and datagrams in, signals,
//! datagrams and events out. Network ids, not addresses, name peers; how signals travel is the driver's matter.
//!
//! ```no_run
//! use std::time::Instant;
//! use nethernet::engine::Certificate;
//! use nethernet::session::{Config, Endpoint, Socket, Use};
//! use seam::SocketId;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let addr = "192.0.2.1:19132".parse()?;
//! let socket = Socket { id: SocketId(0), base: addr, announce: vec![addr], purpose: Use::Both };
//! let now = Instant::now();
//! let mut endpoint = Endpoint::new(Config::new(vec![socket]), Certificate::generate()?, [7; 32], now)?;
//! let session = endpoint.connect(now, 1234.into())?;
//! # let _ = session;
//! # Ok(())
//! # }
//! ```

mod ask;
mod config;
mod early;
mod endpoint;
mod event;
mod gather;
mod one;
mod told;

pub use config::{
    Admit, CLOSE_TIMEOUT, Config, ConfigError, INACTIVITY_TIMEOUT, NEGOTIATION_TIMEOUT, SERVERS_MAX, Socket, Use,
};
pub use endpoint::Endpoint;
pub use event::{By, ConnectError, Event, SendError, SessionId};
pub use gather::{IceServer, ServerFailure};

fn copy(bytes: &[u8], room: &mut [u8]) -> usize {
    match room.get_mut(..bytes.len()) {
        Some(room) => {
            room.copy_from_slice(bytes);
            bytes.len()
        }
        None => 0,
    }
}
