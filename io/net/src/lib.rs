//! Sockets: UDP batches, timers, buffers, interfaces; no protocol.
//!
//! A driver owns one [`Poller`], one [`RecvPool`] and, per socket, a [`UdpSocket`] with its [`SendBatch`]. One turn costs
//! one wait, one receive per readable socket and one send per run of datagrams:
//!
//! * [`UdpSocket::recv_batch`] takes up to 32 messages per call, each of which may be a train of equal datagrams that the
//!   kernel coalesced (GRO). A receive that was not full is not followed by another: the next datagram wakes the poller.
//! * [`SendBatch`] is the [`seam::Outbox`] of a socket: datagrams are written once, where they are sent from, and
//!   neighbours of one size to one address leave in one system call (GSO) where the kernel can.
//! * Errors belong to a datagram, never to a batch: they are counted and told at most once a second per address.

mod batch;
mod interfaces;
mod networks;
mod poller;
mod pool;
mod report;
mod socket;
mod tune;

pub use batch::SendBatch;
pub use interfaces::{Addresses, addresses, choose, mtu};
pub use networks::{Network, networks};
pub use poller::{FIRST_BEYOND, Poller, Ready, Wake};
pub use pool::RecvPool;
pub use report::SendErrors;
pub use socket::{BUFFER_WANTED, UdpSocket};
