//! Port mappings at this machine's own router: UPnP IGD, NAT-PMP and PCP, leased, renewed and taken back.
//!
//! A [`Mapper`] asks in all three ways at once, for a UDP and a TCP port independently; the first good answer for each
//! counts. It works on threads of its own and tells [`Event`]s.
//!
//! Guarantees
//! * A mapping is leased, and renewed at half its lease or after 10 minutes, so that a router which restarted or changed its
//!   address is noticed. A router that maps for good only gets such a mapping when there is a file to remember it by.
//! * Nothing stays behind: mappings are taken back on [`Mapper::stop`] and on drop, within 2 s; what a killed process left
//!   is taken back by the next start, out of the state file, which is written before a router is asked. A mapping that
//!   leads to another machine by then is left alone.
//! * A mapping behind a second router, which leads nowhere, is not made: [`Why::PrivateWan`].
//!
//! Non-guarantees
//! * An outside address is what the router says: a candidate until it was seen from outside. The caller sees to that, and
//!   says [`Mapper::distrust`] when nothing came through.
//! * IPv4 only. UPnP goes through an HTTP client that heeds `http_proxy`.

mod gateway;
mod mapper;
mod memory;
mod plan;
#[cfg(test)]
mod plan_tests;
mod pmp;
mod upnp;
mod words;

pub use gateway::{Way, way};
pub use mapper::{Mapper, Wanted};
pub use words::{Event, Method, Protocol, Why, behind_another_router};
