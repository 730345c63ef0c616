//! The threads: one that decides, one for questions by UPnP in their order, one for the length of each other question.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use igd_next::Gateway;
use seam::Dice;

use crate::gateway::way;
use crate::memory::Memory;
use crate::plan::{Action, Answer, At, Failure, Plan};
use crate::words::{Event, Method, Protocol, Why, words};
use crate::{pmp, upnp};

/// How long taking back may last.
const STOP: Duration = Duration::from_millis(1_900);
/// How often the way out of this machine is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Events that wait for a caller of [`Mapper::events`]; later ones are lost.
const EVENTS: usize = 256;

/// What is to be mapped, and how.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// This machine's UDP port.
    pub udp: Option<u16>,
    /// This machine's TCP port.
    pub tcp: Option<u16>,
    /// How long a mapping lasts without renewal: 1 s to a day.
    pub lease: Duration,
    /// Where mappings are remembered over a crash. Several processes of one machine may name the same: they take
    /// neighbours of it (`.1` to `.7`).
    pub state_file: Option<PathBuf>,
    /// What the router shows its owner.
    pub description: String,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { udp: None, tcp: None, lease: Duration::from_secs(3600), state_file: None, description: "anywire".into() }
    }
}

enum Message {
    Answer(Answer),
    Renew,
    Distrust(Protocol, Method),
    Stop,
}

/// Ports that are being mapped. They are taken back when it is dropped.
#[derive(Debug)]
pub struct Mapper {
    messages: Sender<Message>,
    events: Option<Receiver<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Mapper {
    /// Begins. Does not wait for anything; events are taken from [`Mapper::events`].
    #[must_use]
    pub fn start(wanted: Wanted) -> Self {
        let (sender, events) = mpsc::sync_channel(EVENTS);
        let mut mapper = Self::start_with(wanted, move |event| {
            let _ = sender.try_send(event);
        });
        mapper.events = Some(events);
        mapper
    }

    /// As [`Mapper::start`], with events told on the mapper's own thread, for a caller that must be woken. `tell` must not
    /// wait for anything long.
    #[must_use]
    pub fn start_with(wanted: Wanted, tell: impl FnMut(Event) + Send + 'static) -> Self {
        let (messages, inbox) = mpsc::channel();
        // If there is no thread to be had, `tell` goes away, and with it the events.
        let run = Run::new(wanted, messages.clone(), tell);
        let thread = Builder::new().name("anywire-portmap".into()).spawn(move || run.run(&inbox)).ok();
        Self { messages, events: None, thread }
    }

    /// What happened, oldest first, for a mapper of [`Mapper::start`]. At most 256 wait.
    pub fn try_event(&self) -> Option<Event> {
        self.events.as_ref()?.try_recv().ok()
    }

    /// As [`Mapper::try_event`], waiting for so long.
    pub fn event_timeout(&self, limit: Duration) -> Option<Event> {
        self.events.as_ref()?.recv_timeout(limit).ok()
    }

    /// All that has happened and was not taken yet.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| self.try_event())
    }

    /// The network may have changed, or the machine slept: renews everything at once.
    pub fn renew(&self) {
        let _ = self.messages.send(Message::Renew);
    }

    /// A mapping was told, but nothing comes through it from outside: it is taken back, and the other ways are tried.
    pub fn distrust(&self, protocol: Protocol, by: Method) {
        let _ = self.messages.send(Message::Distrust(protocol, by));
    }

    /// Takes everything back; returns after 2 s at most.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Run<F> {
    wanted: Wanted,
    tell: F,
    jobs: Jobs,
}

/// What threads of questions share with the one that decides.
#[derive(Clone)]
struct Jobs {
    messages: Sender<Message>,
    stop: Arc<AtomicBool>,
    router: Arc<Mutex<Option<Gateway>>>,
    /// What is mapped, and which way.
    ways: Arc<Mutex<BTreeMap<Protocol, Method>>>,
    description: Arc<str>,
}

fn at() -> At {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    At { now: Instant::now(), wall }
}

impl<F: FnMut(Event)> Run<F> {
    fn new(wanted: Wanted, messages: Sender<Message>, tell: F) -> Self {
        let description = words(&wanted.description).into();
        let jobs = Jobs { messages, stop: Arc::default(), router: Arc::default(), ways: Arc::default(), description };
        Self { wanted, tell, jobs }
    }

    fn run(mut self, inbox: &Receiver<Message>) {
        // Without a seed the nonces of PCP can be guessed by who is inside the home anyway.
        let mut seed = [0; 32];
        let _ = getrandom::fill(&mut seed);
        let opened = self.wanted.state_file.as_deref().and_then(|path| Memory::open(path).ok());
        let (mut memory, left) = opened.map_or((None, Vec::new()), |(memory, left)| (Some(memory), left));
        let ports = [(Protocol::Udp, self.wanted.udp), (Protocol::Tcp, self.wanted.tcp)];
        let ports: BTreeMap<Protocol, u16> = ports
            .into_iter()
            .filter_map(|(protocol, port)| Some((protocol, port.filter(|port| *port != 0)?)))
            .collect();
        let lease = u32::try_from(self.wanted.lease.as_secs()).unwrap_or(u32::MAX).clamp(1, 86_400);
        let mut plan = Plan::new(ports, lease, memory.is_some(), left, Dice::new(seed));
        let upnp = self.jobs.upnp_thread();
        plan.start(at(), way());
        let mut look = Instant::now() + LOOK;
        let mut end: Option<Instant> = None;
        loop {
            if let Some(memory) = &mut memory {
                // A folder that has become read-only costs what a crash would leave, until its lease ends.
                let _ = memory.keep(&plan.entries());
            }
            *lock(&self.jobs.ways) = plan.ways();
            while let Some(action) = plan.poll_action() {
                self.jobs.begin(action, upnp.as_ref());
            }
            while let Some(event) = plan.poll_event() {
                (self.tell)(event);
            }
            let now = Instant::now();
            if plan.finished() || end.is_some_and(|end| end <= now) {
                return;
            }
            let next = end.or_else(|| plan.poll_timeout().map(|at| at.min(look))).unwrap_or(look);
            match inbox.recv_timeout(next.saturating_duration_since(now)) {
                Ok(Message::Answer(answer)) => plan.answered(at(), answer),
                Ok(Message::Renew) => {
                    plan.set_way(at(), way());
                    plan.renew(at());
                }
                Ok(Message::Distrust(protocol, by)) => plan.distrust(at(), protocol, by),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.jobs.stop.store(true, Ordering::Relaxed);
                    end.get_or_insert(Instant::now() + STOP);
                    plan.stop(at());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let at = at();
                    if end.is_none() && look <= at.now {
                        look = at.now + LOOK;
                        plan.set_way(at, way());
                    }
                    plan.handle_timeout(at);
                }
            }
        }
    }
}

impl Jobs {
    /// Questions by UPnP go one after another: home routers serve no more, and a removal must not overtake a question.
    fn upnp_thread(&self) -> Option<Sender<Action>> {
        let (sender, actions) = mpsc::channel();
        let jobs = self.clone();
        let work = move || {
            while let Ok(action) = actions.recv() {
                jobs.answer(action);
            }
        };
        Builder::new().name("anywire-upnp".into()).spawn(work).ok()?;
        Some(sender)
    }

    fn begin(&self, action: Action, upnp: Option<&Sender<Action>>) {
        let by_upnp = match &action {
            // It touches no mapping, and may last 6 s.
            Action::Search => false,
            Action::Ask { entry, .. } | Action::Remove { entry, .. } => entry.method == Method::Upnp,
        };
        if by_upnp {
            match upnp {
                Some(upnp) if upnp.send(action.clone()).is_ok() => {}
                _ => self.unanswered(&action),
            }
            return;
        }
        let jobs = self.clone();
        let question = action.clone();
        if Builder::new().name("anywire-nat".into()).spawn(move || jobs.answer(question)).is_err() {
            self.unanswered(&action);
        }
    }

    fn answer(&self, action: Action) {
        // A fault in a crate that reads what routers say must not leave a question open for ever.
        match catch_unwind(AssertUnwindSafe(|| self.carry_out(&action))) {
            Ok(answer) => drop(self.messages.send(Message::Answer(answer))),
            Err(_) => self.unanswered(&action),
        }
    }

    fn unanswered(&self, action: &Action) {
        let answer = match *action {
            Action::Search => Answer::Searched(Err(Why::NoAnswer)),
            Action::Ask { id, entry, .. } => Answer::Asked { id, entry, result: Err(Failure::Told(Why::NoAnswer)) },
            Action::Remove { id, .. } => Answer::Removed { id, gone: false },
        };
        let _ = self.messages.send(Message::Answer(answer));
    }

    fn carry_out(&self, action: &Action) -> Answer {
        match *action {
            Action::Search => Answer::Searched(upnp::search(way()).map(|(found, router)| {
                *lock(&self.router) = Some(found);
                router
            })),
            Action::Ask { id, entry, lease } => {
                let router = lock(&self.router).clone();
                let result = match (entry.method, router) {
                    (Method::Upnp, Some(router)) => upnp::ask(&router, entry, lease, &self.description),
                    (Method::Upnp, None) => Err(Failure::Told(Why::NoAnswer)),
                    (Method::NatPmp | Method::Pcp, _) => {
                        let needed = || lock(&self.ways).get(&entry.protocol).is_none_or(|way| *way == entry.method);
                        pmp::ask(entry, lease, &self.stop, needed)
                    }
                };
                Answer::Asked { id, entry, result }
            }
            Action::Remove { id, entry, verify, patient } => {
                let router = lock(&self.router).clone();
                let gone = match (entry.method, router) {
                    (Method::Upnp, Some(router)) => upnp::remove(&router, entry, verify),
                    (Method::Upnp, None) => false,
                    (Method::NatPmp | Method::Pcp, _) => pmp::remove(entry, patient),
                };
                Answer::Removed { id, gone }
            }
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
