//! The last way to a relay: a connection to the master's own web port that carries datagrams, for a network that lets
//! nothing else out (docs/wire/extensions.md, "Relay over HTTP").
//!
//! It is opened when a relay answers no datagram for [`HEAD_START`] and the player behind it is not met directly, or
//! as soon as a relay is granted where no datagram ever came back from anywhere. A joiner in such a network opens it
//! while it knocks. Which bindings go through it is the business of [`crate::relay`]; a path by datagrams replaces it
//! whenever there is one.
//!
//! One tunnel at most. It is tried again after 0.5, 1, 2 .. 16 s for as long as something needs it, and closed when
//! nothing did for [`UNUSED`].

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use seam::{Path, Reply, Request, RequestId};

use crate::TUNNEL;
use crate::joiner::Phase;
use crate::reach::KNOCK_ON_FOR;
use crate::relay::HEAD_START;
use crate::rooms::lobby_path;
use crate::session::{Role, Session};

/// What the connection is asked to become.
const PROTOCOL: &str = "anywire-relay/1";
/// How long opening may take.
const OPEN_FOR: Duration = Duration::from_secs(10);
/// A tunnel nobody needs is kept for this long.
const UNUSED: Duration = Duration::from_secs(30);
/// A tunnel in use says something every three seconds: after this long without a word it is dead.
const DEAD: Duration = Duration::from_secs(10);
/// Between two tries, doubled with each that fails.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Opening(RequestId),
    Open(RequestId),
}

/// The tunnel of one session.
#[derive(Debug)]
pub(crate) struct Tunnel {
    url: String,
    state: State,
    /// Not tried again before.
    retry: Instant,
    tries: u32,
    /// When something came through it last, or it was opened.
    heard: Instant,
    /// Nothing has needed it since.
    unused: Option<Instant>,
    /// It was open once, or why not.
    fate: Option<Result<(), String>>,
}

impl Tunnel {
    /// A tunnel to the master at `base`, closed.
    pub(crate) fn new(base: &str, now: Instant) -> Self {
        Self {
            url: format!("{}/relay", base.trim().trim_end_matches('/')),
            state: State::Closed,
            retry: now,
            tries: 0,
            heard: now,
            unused: None,
            fate: None,
        }
    }

    /// What became of it, where it was needed.
    pub(crate) fn fate(&self) -> Option<Result<(), &str>> {
        match &self.fate {
            Some(Ok(())) => Some(Ok(())),
            Some(Err(why)) => Some(Err(why)),
            None => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn later(&mut self, now: Instant) {
        self.state = State::Closed;
        self.retry = now + (RETRY * 2u32.saturating_pow(self.tries.min(10))).min(RETRY_MAX);
        self.tries = self.tries.saturating_add(1);
    }
}

impl Session {
    /// No datagram ever came, though servers were asked for the own address and had time to answer.
    fn is_blocked(&self) -> bool {
        let asked = match &self.role {
            Role::Host(side) => !side.config.stun.is_empty(),
            Role::Joiner(side) => !side.config.stun.is_empty(),
        };
        asked && !self.arrived && self.now >= self.begun() + HEAD_START
    }

    /// Whether a joiner still looks for its host.
    fn is_dialling(&self) -> bool {
        matches!(&self.role, Role::Joiner(side) if side.dialling().is_some())
    }

    fn needs_tunnel(&self, blocked: bool) -> bool {
        let Some(reach) = &self.reach else { return false };
        if blocked && self.is_dialling() {
            return true;
        }
        let host = match &self.role {
            Role::Joiner(side) => side.host,
            Role::Host(_) => None,
        };
        let is_met = |other_end: Option<SocketAddr>| {
            let path = other_end.map(lobby_path).or(host);
            path.is_some_and(|path| reach.ways.is_well(reach.ways.primary_of(path).unwrap_or(path)))
        };
        reach.relays.starved(self.now, blocked).any(|other_end| !is_met(other_end))
    }

    /// Opens or closes the tunnel as it is needed, and binds through it what has no other way.
    pub(crate) fn step_tunnel(&mut self) {
        let (now, blocked) = (self.now, self.is_blocked());
        let needed = self.needs_tunnel(blocked);
        let Some(reach) = &mut self.reach else { return };
        let tunnel = &mut reach.tunnel;
        match tunnel.state {
            State::Closed if needed && tunnel.retry <= now => {
                let (url, first) = (tunnel.url.clone(), tunnel.tries == 0);
                if first {
                    self.log("[tunnel] no datagram gets out of this network: asking the master for TCP".to_owned());
                }
                let request = Request::OpenTunnel { socket: TUNNEL, url, protocol: PROTOCOL, timeout: OPEN_FOR };
                let id = self.request(request);
                if let Some(reach) = &mut self.reach {
                    reach.tunnel.state = State::Opening(id);
                }
            }
            State::Open(_) if needed => {
                tunnel.unused = None;
                if now.saturating_duration_since(tunnel.heard) >= DEAD && reach.relays.is_tunnelled() {
                    tunnel.later(now);
                    reach.relays.tunnel_closed();
                    let _ = self.request(Request::CloseTunnel);
                    return self.log("[tunnel] nothing comes through it: opening another".to_owned());
                }
                reach.relays.enter_tunnel(now, blocked);
            }
            State::Open(_) => {
                if now.saturating_duration_since(*tunnel.unused.get_or_insert(now)) >= UNUSED {
                    (tunnel.state, tunnel.unused) = (State::Closed, None);
                    reach.relays.tunnel_closed();
                    let _ = self.request(Request::CloseTunnel);
                    self.log("[tunnel] closed: it is not needed any more".to_owned());
                }
            }
            State::Closed | State::Opening(_) => {}
        }
    }

    /// Whether the reply was the tunnel's.
    pub(crate) fn tunnel_reply(&mut self, id: RequestId, reply: Reply) -> Option<Reply> {
        let (now, blocked) = (self.now, self.is_blocked());
        let Some(reach) = &mut self.reach else { return Some(reply) };
        let tunnel = &mut reach.tunnel;
        if tunnel.state != State::Opening(id) && tunnel.state != State::Open(id) {
            return Some(reply);
        }
        let was_open = tunnel.is_open();
        match reply {
            Reply::TunnelOpen => {
                (tunnel.state, tunnel.heard, tunnel.unused) = (State::Open(id), now, None);
                tunnel.fate = Some(Ok(()));
                reach.relays.tunnel_opened(now, blocked);
                self.log("[tunnel] open: TCP through the master".to_owned());
            }
            Reply::Unreachable(why) => {
                let first = tunnel.tries == 0;
                tunnel.later(now);
                reach.relays.tunnel_closed();
                if was_open {
                    self.log(format!("[tunnel] it is gone: {why}"));
                } else {
                    tunnel.fate.get_or_insert(Err(why.clone()));
                    if first {
                        self.log(format!("[tunnel] the master gives no TCP: {why}"));
                    }
                }
            }
            _ => tunnel.later(now),
        }
        None
    }

    /// Something came through the tunnel.
    pub(crate) fn tunnel_heard(&mut self) {
        if let Some(reach) = &mut self.reach {
            (reach.tunnel.heard, reach.tunnel.tries) = (self.now, 0);
        }
    }

    /// When [`Session::step_tunnel`] has something to do without anything else having happened.
    pub(crate) fn tunnel_deadline(&self) -> Option<(Instant, &'static str)> {
        let tunnel = &self.reach.as_ref()?.tunnel;
        match tunnel.state {
            State::Opening(_) => None,
            State::Open(_) => match tunnel.unused {
                Some(since) => Some((since + UNUSED, "a tunnel that is not needed")),
                None => Some((tunnel.heard + DEAD, "silence of the tunnel")).filter(|(at, _)| *at > self.now),
            },
            // Whatever makes a closed one needed comes with a deadline of its own, but for these two.
            State::Closed => {
                let early = self.begun() + HEAD_START;
                let is_early = self.is_dialling() && !self.arrived && self.now < early;
                let retry = (tunnel.retry > self.now).then_some((tunnel.retry, "the tunnel again"));
                [is_early.then_some((early, "a network without datagrams")), retry].into_iter().flatten().min()
            }
        }
    }

    /// Whether TCP carries what goes through the relay to a player, at one end at least.
    pub(crate) fn is_stream(&self, path: Path) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.relays.is_stream(path.remote))
    }

    /// The relay in use is reached by TCP at one end, or is not any more.
    pub(crate) fn tell_change(&mut self) {
        let Role::Joiner(side) = &self.role else { return };
        let Some(host) = side.host.filter(|host| self.is_relayed(*host)) else { return };
        let told = self.reach.as_ref().and_then(|reach| reach.told());
        if told.is_some() && self.via(host) != told {
            self.won(host);
        }
    }

    /// Datagrams pass again, so that a direct path may be had as well.
    pub(crate) fn look_for_direct(&mut self) {
        let now = self.now;
        let Role::Joiner(side) = &self.role else { return };
        let Phase::Up { host, redial: None } = &side.phase else { return };
        let targets = self.targets(host, None);
        // The first dial may still be under way: it goes on.
        let dial = self.reach.as_ref().is_none_or(|reach| !reach.is_looking()).then(|| self.dial_id());
        if let Some(id) = dial {
            self.punch.dial(now, id, targets, KNOCK_ON_FOR);
        }
        if let Some(reach) = &mut self.reach {
            reach.look_for(now, dial);
        }
    }
}
