//! Routing at a host: everybody is one hop away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use seam::{Path, PooledBuf, Refused, Route};

use crate::names::Former;
use crate::out::{Out, Whose};
use crate::{Outgoing, envelope};

/// Most members; the lobby admits fewer.
const MEMBERS_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct Host {
    relay_only: bool,
    me: Option<Arc<str>>,
    former: Former,
    leader: Option<Arc<str>>,
    members: BTreeMap<Path, Member>,
    by_name: BTreeMap<Arc<str>, Path>,
}

#[derive(Debug)]
struct Member {
    name: Arc<str>,
    former: Former,
    mesh: bool,
}

impl Host {
    pub(crate) fn new(relay_only: bool) -> Self {
        Self {
            relay_only,
            me: None,
            former: Former::default(),
            leader: None,
            members: BTreeMap::new(),
            by_name: BTreeMap::new(),
        }
    }

    pub(crate) fn set_me(&mut self, now: Instant, name: &str) {
        if self.me.as_deref() == Some(name) {
            return;
        }
        if let Some(old) = self.me.replace(name.into()) {
            self.former.add(now, old);
        }
    }

    pub(crate) fn set_leader(&mut self, name: Option<&str>) {
        self.leader = name.map(Into::into);
    }

    pub(crate) fn member_joined(&mut self, now: Instant, name: &str, path: Path, mesh: bool) {
        let name: Arc<str> = name.into();
        if let Some(elsewhere) = self.by_name.get(&name).copied().filter(|old| *old != path) {
            self.member_left(elsewhere);
        }
        if let Some(member) = self.members.get_mut(&path) {
            member.mesh = mesh;
            self.rename(now, path, &name);
        } else if self.members.len() < MEMBERS_MAX {
            self.by_name.insert(name.clone(), path);
            self.members.insert(path, Member { name, former: Former::default(), mesh });
        }
    }

    pub(crate) fn member_left(&mut self, path: Path) {
        if let Some(member) = self.members.remove(&path) {
            self.by_name.remove(&member.name);
        }
    }

    pub(crate) fn rename(&mut self, now: Instant, path: Path, name: &str) {
        let Some(member) = self.members.get_mut(&path) else { return };
        if &*member.name == name {
            return;
        }
        let name: Arc<str> = name.into();
        let old = std::mem::replace(&mut member.name, name.clone());
        self.by_name.remove(&old);
        member.former.add(now, old);
        if let Some(other) = self.by_name.insert(name, path).filter(|other| *other != path) {
            self.members.remove(&other);
        }
    }

    pub(crate) fn rekey(&mut self, old: Path, new: Path) {
        if old == new || !self.members.contains_key(&old) {
            return;
        }
        self.member_left(new);
        if let Some(member) = self.members.remove(&old) {
            self.by_name.insert(member.name.clone(), new);
            self.members.insert(new, member);
        }
    }

    pub(crate) fn local_frame(&mut self, out: &mut Out, frame: Bytes) {
        if !self.relay_only {
            out.frame(Whose::Own, self.members.keys().copied().collect(), Outgoing::Game(frame));
        }
    }

    pub(crate) fn local_frame_to(&mut self, out: &mut Out, to: &str, frame: Bytes) {
        if self.relay_only {
            return;
        }
        match self.find(out.now, to) {
            Some((path, _)) => out.frame(Whose::Own, vec![path], Outgoing::Game(frame)),
            None => out.stats.no_peer += 1,
        }
    }

    pub(crate) fn handle_frame(&mut self, out: &mut Out, from: Path, frame: Bytes) -> Result<(), Refused> {
        let Some(member) = self.members.get(&from) else { return Err(Refused::NotAllowed) };
        if !self.relay_only {
            out.deliver(Some(&member.name), frame.clone());
        }
        let to = match (member.mesh, self.relay_only) {
            // A player without a mesh has no other way to anybody.
            (false, _) => self.members.keys().copied().filter(|path| *path != from).collect(),
            (true, false) => return Ok(()),
            (true, true) => {
                let leader = self.leader.as_ref().and_then(|name| self.by_name.get(name)).copied();
                let Some(leader) = leader else {
                    out.stats.no_peer += 1;
                    return Ok(());
                };
                if leader == from {
                    return Ok(());
                }
                vec![leader]
            }
        };
        out.frame(Whose::Other, to, Outgoing::Game(frame));
        Ok(())
    }

    pub(crate) fn handle_envelope(&mut self, out: &mut Out, from: Path, payload: PooledBuf) -> Result<(), Refused> {
        let Some(sender) = self.members.get(&from) else { return Err(Refused::NotAllowed) };
        let payload = payload.freeze();
        let wrapped = envelope::open(&payload)?;
        if *wrapped.from != *sender.name && !sender.former.has(out.now, wrapped.from) {
            return Err(Refused::NotAllowed);
        }
        if !self.relay_only && self.is_me(out.now, wrapped.to) {
            out.deliver(Some(&sender.name), wrapped.frame);
            return Ok(());
        }
        let receiver = self.find(out.now, wrapped.to).filter(|(path, _)| *path != from);
        let Some((path, member)) = receiver else {
            out.stats.no_peer += 1;
            return Ok(());
        };
        let onward = if member.mesh { Outgoing::Raw(payload.clone()) } else { Outgoing::Game(wrapped.frame) };
        out.frame(Whose::Other, vec![path], onward);
        Ok(())
    }

    pub(crate) fn route_to(&self, name: &str) -> Route {
        if !self.relay_only && self.me.as_deref() == Some(name) {
            Route::Local
        } else if self.by_name.contains_key(name) {
            Route::Direct
        } else {
            Route::None
        }
    }

    fn is_me(&self, now: Instant, name: &str) -> bool {
        self.me.as_deref() == Some(name) || (!self.by_name.contains_key(name) && self.former.has(now, name))
    }

    /// The member of that name, or who went by it until lately.
    fn find(&self, now: Instant, name: &str) -> Option<(Path, &Member)> {
        if let Some(path) = self.by_name.get(name) {
            return self.members.get(path).map(|member| (*path, member));
        }
        self.members.iter().find(|(_, member)| member.former.has(now, name)).map(|(path, member)| (*path, member))
    }
}
