//! NetherNet on sockets: [`Node::open`], then [`discover`](Node::discover), [`connect`](Node::connect) and
//! [`listen`](Node::listen).
//!
//! A node is one peer id with its sockets and one network thread. Calls block the caller where they say so, never the
//! network thread; every call may be made from any thread.
//!
//! Several processes of one machine find each other and are found: they share the broadcast port to hear Requests, and
//! each answers from a port of its own. Where another program holds the broadcast port for itself, a node still finds
//! hosts and connects to them, and says when it listens that nobody can find it.
//!
//! ```no_run
//! use std::time::Duration;
//! use nethernet::frame::Channel;
//! use nethernet_io::{Node, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::open(Options::default())?;
//! node.discover(true);
//! let host = node.next_host(Duration::from_secs(5)).ok_or("nobody hosts in this network")?;
//! let session = node.connect(host.id)?;
//! session.send(Channel::Reliable, "hello".into())?;
//! while let Some((channel, packet)) = session.recv()? {
//!     println!("{} bytes over {}", packet.len(), channel.label());
//! }
//! # Ok(())
//! # }
//! ```

mod core;
mod error;
mod http;
mod node;
mod options;
mod session;
mod sockets;
mod state;

pub use error::{CloseInfo, ConnectError, OpenError, SendError};
pub use http::{Http, KeyError, OwnKey};
pub use node::{Found, Heard, Listener, Node, NodeEvent};
pub use options::{Advert, Options};
pub use session::Session;
