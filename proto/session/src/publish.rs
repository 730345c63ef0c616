//! A host's row in a master's public list.
//!
//! The row says what the code, the roster and the configuration say: a change of any of them is announced, and the row
//! is taken out when the host says so or the session ends. The master of the list need not be the one joiners knock at.

use std::collections::BTreeMap;
use std::time::Instant;

use rendezvous::words::{Announce, Game, GameType};
use rendezvous::{Client, client};
use seam::{Reply, RequestId};

use crate::session::{Role, Session};

/// How a lobby is listed.
#[derive(Clone, PartialEq, Eq)]
pub struct Publish {
    /// The master's address.
    pub url: String,
    /// The row's secret name: whoever knows it can change or remove the row. A server that is always on keeps it, so
    /// that it replaces its own row after a restart.
    pub id: String,
    /// A game without a player at its machine.
    pub dedicated: bool,
}

impl std::fmt::Debug for Publish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publish").field("url", &self.url).field("dedicated", &self.dedicated).finish_non_exhaustive()
    }
}

/// A host's row and the client that keeps it.
#[derive(Debug)]
pub(crate) struct Listing {
    publish: Publish,
    client: Client,
    requests: BTreeMap<RequestId, RequestId>,
    /// The row may have changed.
    stale: bool,
    /// The row is wanted.
    on: bool,
}

impl Session {
    /// Lists the lobby from now on, or takes it out of the list.
    pub(crate) fn publish(&mut self, publish: Option<Publish>) {
        let now = self.now;
        if !matches!(self.role, Role::Host(_)) {
            return self.log("[publish] only a host lists its lobby".to_owned());
        }
        let Some(publish) = publish else { return self.unlist() };
        if self.listing.as_ref().is_none_or(|listing| listing.publish != publish) {
            self.unlist();
            // What the last master is still to be told of its row comes first; its own time out takes the row out else.
            self.pump_listing();
            let client = Client::new(&publish.url, self.dice.bytes(), now);
            let requests = BTreeMap::new();
            self.listing = Some(Box::new(Listing { publish, client, requests, stale: true, on: true }));
        }
        if let Some(listing) = &mut self.listing {
            (listing.on, listing.stale) = (true, true);
        }
    }

    /// Takes the lobby out of the list.
    pub(crate) fn unlist(&mut self) {
        let now = self.now;
        if let Some(listing) = &mut self.listing
            && std::mem::replace(&mut listing.on, false)
        {
            listing.client.publish(now, None);
            self.log("[publish] the lobby is taken out of the public list".to_owned());
        }
    }

    /// What a row is made of changed.
    pub(crate) fn row_changed(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.stale = true;
        }
    }

    pub(crate) fn listing_timeout(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.client.handle_timeout(self.now);
        }
    }

    pub(crate) fn listing_deadline(&self) -> Option<(Instant, &'static str)> {
        self.listing.as_ref()?.client.poll_timeout()
    }

    /// Whether the reply was the list's.
    pub(crate) fn listing_reply(&mut self, id: RequestId, reply: Reply) -> Option<Reply> {
        let now = self.now;
        let Some(listing) = &mut self.listing else { return Some(reply) };
        let Some(own) = listing.requests.remove(&id) else { return Some(reply) };
        listing.client.handle_reply(now, own, reply);
        None
    }

    /// Brings the row up to date and passes on what the client has to say; whether there was anything.
    pub(crate) fn pump_listing(&mut self) -> bool {
        let now = self.now;
        let due = self.listing.as_ref().is_some_and(|listing| listing.on && listing.stale);
        let row = if due { self.row() } else { None };
        if let (Some(row), Some(listing)) = (row, &mut self.listing) {
            listing.stale = false;
            listing.client.publish(now, Some(row));
        }
        let mut moved = false;
        while let Some(event) = self.listing.as_mut().and_then(|listing| listing.client.poll_event()) {
            moved = true;
            match event {
                client::Event::Published => self.log("[publish] the lobby is in the public list".to_owned()),
                client::Event::NotPublished(why) => {
                    self.log(format!("[publish] the lobby is not in the public list: {why}"));
                }
                _ => {}
            }
        }
        while let Some((own, request)) = self.listing.as_mut().and_then(|listing| listing.client.poll_request()) {
            let id = self.request(request);
            if let Some(listing) = &mut self.listing {
                listing.requests.insert(id, own);
            }
        }
        moved
    }

    /// The row as it should be now; `None` while there is no code to join with.
    fn row(&self) -> Option<Announce> {
        let (Role::Host(side), Some(listing)) = (&self.role, &self.listing) else { return None };
        let code = self.code.clone()?;
        let config = &side.config;
        let kind = match (config.relay_only, listing.publish.dedicated) {
            (true, _) => GameType::Relay,
            (false, true) => GameType::Dedicated,
            (false, false) => GameType::Host,
        };
        let name = if config.lobby_name.is_empty() { &config.name } else { &config.lobby_name };
        let game = Game {
            name: name.clone(),
            code,
            players: u32::try_from(self.roster().players.len()).unwrap_or(u32::MAX),
            max: u32::from(config.max_players),
            kind,
            version: config.version.clone(),
            locked: config.password.as_ref().is_some_and(|password| !password.reveal().is_empty()),
        };
        Some(Announce { id: listing.publish.id.clone(), game })
    }
}
