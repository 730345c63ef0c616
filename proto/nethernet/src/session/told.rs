//! What sessions have to say, on its way out of the endpoint.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::event::{Event, SessionId};
use crate::{Body, ConnectionId, NetworkId, Signal};

/// Signals that wait for the driver; later ones are dropped, as a network would.
const SIGNALS_MAX: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) events: VecDeque<Event>,
    pub(super) signals: VecDeque<(NetworkId, String)>,
    /// Sessions that have found a path, as (own base, remote).
    pub(super) paths: Vec<(SessionId, SocketAddr, SocketAddr)>,
    /// Sessions that have opened.
    pub(super) opened: Vec<SessionId>,
}

impl Told {
    pub(super) fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(super) fn signal(&mut self, to: &NetworkId, connection: ConnectionId, body: Body<'_>) {
        if self.signals.len() < SIGNALS_MAX {
            self.signals.push_back((to.clone(), Signal { connection, body }.to_string()));
        }
    }
}
