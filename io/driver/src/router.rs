//! This machine's router, asked for the lobby's port.
//!
//! A [`portmap::Mapper`] works on threads of its own. What it tells becomes words for the session, which knows whether
//! anything comes through; what the session finds to be untrue is told to the mapper. The port is given back as soon as
//! the session is told to leave, at the latest when its driver goes away, which waits for it: 2 s at most.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use net::Wake;
use portmap::{Mapper, Method, Protocol, Wanted};
use session::{Event, PortMap, PortState};

/// How the router is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskRouter {
    /// Where mappings are remembered over a crash, so that the next start gives them back. Several processes may name the
    /// same file. Without one a killed process leaves its mapping until its lease is over, after an hour.
    pub state_file: Option<PathBuf>,
}

/// The mapper of one driver.
pub(crate) struct Router {
    mapper: Option<Mapper>,
    /// A few words a minute at most: they are taken in the next turn.
    words: Receiver<portmap::Event>,
    /// How the mapping that was told last was made.
    offered: Option<Method>,
    leaving: Option<JoinHandle<()>>,
}

impl Router {
    /// Begins to ask for `port`.
    pub(crate) fn start(ask: AskRouter, port: u16, wake: Wake) -> Self {
        let (sender, words) = channel();
        let wanted = Wanted { udp: Some(port), state_file: ask.state_file, ..Wanted::default() };
        let mapper = Mapper::start_with(wanted, move |event| {
            if sender.send(event).is_ok() {
                wake.wake();
            }
        });
        Self { mapper: Some(mapper), words, offered: None, leaving: None }
    }

    /// The next word for the session.
    pub(crate) fn poll(&mut self) -> Option<PortMap> {
        loop {
            if let Some(word) = self.word(self.words.try_recv().ok()?) {
                return Some(word);
            }
        }
    }

    fn word(&mut self, event: portmap::Event) -> Option<PortMap> {
        Some(match event {
            portmap::Event::Wan { address, .. } => PortMap::Wan(address),
            portmap::Event::Mapped { protocol: Protocol::Udp, by, external, .. } => {
                self.offered = Some(by);
                PortMap::Mapped { by: name(by), external }
            }
            portmap::Event::Lost { protocol: Protocol::Udp, .. } => {
                self.offered = None;
                PortMap::Lost
            }
            portmap::Event::Refused { protocol: Protocol::Udp, by, why } => {
                PortMap::Refused { by: name(by), why: why.to_string() }
            }
            portmap::Event::Done => PortMap::Done,
            _ => return None,
        })
    }

    /// What the session found out.
    pub(crate) fn heard(&mut self, event: &Event) {
        match event {
            Event::Port(PortState::Disproved { by }) => {
                if let (Some(mapper), Some(offered)) =
                    (&self.mapper, self.offered.filter(|offered| name(*offered) == *by))
                {
                    mapper.distrust(Protocol::Udp, offered);
                }
            }
            Event::Ended(_) => self.leave(),
            _ => {}
        }
    }

    /// Gives the port back, without waiting for it.
    pub(crate) fn leave(&mut self) {
        if let Some(mapper) = self.mapper.take() {
            // Without a thread it is waited for after all.
            self.leaving =
                std::thread::Builder::new().name("anywire-unmap".to_owned()).spawn(move || mapper.stop()).ok();
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.leave();
        if let Some(leaving) = self.leaving.take() {
            let _ = leaving.join();
        }
    }
}

/// Its name in front of people.
fn name(method: Method) -> &'static str {
    match method {
        Method::Upnp => "UPnP",
        Method::NatPmp => "NAT-PMP",
        Method::Pcp => "PCP",
    }
}
