//! The turn: one fixed order of work, shared by the thread and the inline driver.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use net::{Poller, Ready, RecvPool, SendBatch, SendErrors, UdpSocket, Wake};
use seam::{Outbox, Path, Refused};
use session::{Command, Event};

use crate::extra::Extras;
use crate::jobs::Jobs;
use crate::machine::Machine;
use crate::router::Router;
use crate::tunnel::{Came, Tunnels};
use crate::workers::Workers;

/// Longest wait for a full send buffer before trying again.
const BLOCKED: Duration = Duration::from_millis(5);
/// Refusals and receive errors are told at most this often.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long datagrams that the kernel does not take, or that are delayed on purpose, may hold up an ended session.
const LINGER: Duration = Duration::from_millis(500);
/// How long the last word to a master may: a new connection to one far away takes several round trips.
const LINGER_HTTP: Duration = Duration::from_millis(1_500);
/// Turns in a row that may ask for another at once without anything having happened.
const SPINS: u32 = 64;

/// A machine, its sockets and its helpers.
pub(crate) struct Core<M> {
    machine: M,
    poller: Poller,
    out: Out,
    pool: RecvPool,
    arrivals: Vec<(SocketAddr, BytesMut)>,
    workers: Workers,
    router: Option<Router>,
    jobs: Option<Jobs>,
    refused: BTreeMap<Refused, u64>,
    tell_at: Option<Instant>,
    ended: Option<Instant>,
    spins: u32,
}

/// The sockets, and the outbox over their batches.
struct Out {
    ports: Vec<Port>,
    extra: Extras,
    tunnels: Tunnels,
    errors: SendErrors,
    now: Instant,
    full: bool,
}

struct Port {
    socket: UdpSocket,
    batch: SendBatch,
    readable: bool,
    blocked: bool,
}

impl<M: Machine> Core<M> {
    /// Takes over `sockets`, numbered from 0 in order.
    pub(crate) fn new(machine: M, sockets: Vec<UdpSocket>, now: Instant) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        let mut ports = Vec::new();
        for mut socket in sockets {
            poller.add(&mut socket)?;
            let batch = SendBatch::new(&socket);
            // What came before the socket was watched makes no edge.
            ports.push(Port { socket, batch, readable: true, blocked: false });
        }
        let workers = Workers::new(&poller.wake());
        let extra = Extras::new(ports.first().map(|port| port.socket.local_addr().ip()));
        let tunnels = Tunnels::new(poller.wake());
        let out = Out { ports, extra, tunnels, errors: SendErrors::default(), now, full: false };
        Ok(Self {
            machine,
            poller,
            out,
            pool: RecvPool::new(),
            arrivals: Vec::new(),
            workers,
            router: None,
            jobs: None,
            refused: BTreeMap::new(),
            tell_at: None,
            ended: None,
            spins: 0,
        })
    }

    pub(crate) fn wake(&self) -> Wake {
        self.poller.wake()
    }

    /// This machine's router is asked for the port as well.
    pub(crate) fn set_router(&mut self, router: Router) {
        self.router = Some(router);
    }

    /// Files come and go.
    pub(crate) fn set_jobs(&mut self, jobs: Jobs) {
        self.jobs = Some(jobs);
    }

    /// One turn: timers, what was received, commands, answers; then requests, events and datagrams until there are no
    /// more. Events are appended to `events`.
    pub(crate) fn turn(&mut self, now: Instant, commands: &mut VecDeque<Command>, events: &mut Vec<Event>) {
        self.out.now = now;
        let mut busy = !commands.is_empty();
        if self.machine.poll_timeout().is_some_and(|(due, _)| due <= now) {
            self.machine.handle_timeout(now);
        }
        busy |= self.receive(now, events);
        for command in commands.drain(..) {
            if let (Command::Quit, Some(router)) = (&command, &mut self.router) {
                router.leave();
            }
            self.machine.command(now, command);
        }
        while let Some((id, reply)) = self.workers.poll() {
            busy = true;
            self.machine.handle_reply(now, id, reply);
        }
        while let Some(word) = self.router.as_mut().and_then(Router::poll) {
            busy = true;
            self.machine.command(now, Command::PortMap(word));
        }
        while let Some(came) = self.out.tunnels.poll() {
            busy = true;
            match came {
                Came::Reply(id, reply) => self.machine.handle_reply(now, id, reply),
                Came::Datagram(path, data) => {
                    if let Err(refused) = self.machine.handle_datagram(now, path, data) {
                        *self.refused.entry(refused).or_default() += 1;
                    }
                }
            }
        }

        while let Some(did) = self.jobs.as_mut().and_then(Jobs::poll) {
            busy = true;
            self.machine.handle_job(now, did);
        }

        while let Some((id, request)) = self.machine.poll_request() {
            busy = true;
            match self.out.extra.request(&mut self.poller, request) {
                Ok(reply) => {
                    if let Some(reply) = reply {
                        self.machine.handle_reply(now, id, reply);
                    }
                }
                Err(request) => {
                    if let Some(request) = self.out.tunnels.submit(id, request) {
                        self.workers.submit(id, request);
                    }
                }
            }
        }
        while let Some(job) = self.machine.poll_job() {
            busy = true;
            if let Some(jobs) = &mut self.jobs {
                jobs.submit(job);
            }
        }
        while let Some(event) = self.machine.poll_event() {
            busy = true;
            if let Some(router) = &mut self.router {
                router.heard(&event);
            }
            if self.ended.is_some() {
                continue;
            }
            if matches!(event, Event::Ended(_)) {
                self.ended = Some(now);
            }
            events.push(event);
        }
        busy |= self.transmit(now);
        self.tell(now, events);
        self.spins = if busy { 0 } else { self.spins.saturating_add(1) };
    }

    /// The session is over, its last datagrams are with the kernel and its last words to a master are answered.
    pub(crate) fn is_done(&self, now: Instant) -> bool {
        let Some(since) = self.ended else { return false };
        let sent = self.out.is_empty() && self.out.tunnels.is_drained();
        let drained = now >= since + LINGER || (sent && self.machine.poll_timeout().is_none());
        drained && (now >= since + LINGER_HTTP || !self.workers.is_telling())
    }

    /// Waits for the next reason to take a turn, but not past `limit`.
    pub(crate) fn wait(&mut self, now: Instant, limit: Option<Instant>) -> io::Result<()> {
        let ending = self.ended.map(|since| since + LINGER_HTTP);
        let until = [self.until(now), limit, ending].into_iter().flatten().min();
        let ready = self.poller.wait(until)?;
        self.note(ready);
        Ok(())
    }

    fn note(&mut self, ready: Ready) {
        for port in &mut self.out.ports {
            port.readable |= ready.readable(port.socket.id());
        }
        self.out.extra.note(self.poller.ready_beyond());
    }

    /// When the next turn is due even if nothing arrives.
    fn until(&self, now: Instant) -> Option<Instant> {
        let readable = self.out.extra.has_readable() || self.out.ports.iter().any(|port| port.readable);
        if self.workers.has_ready() || readable {
            return Some(now);
        }
        let due = self.machine.poll_timeout().map(|(due, _)| due);
        if self.out.extra.is_blocked() || self.out.ports.iter().any(|port| port.blocked) {
            // Queued output makes a machine answer "now", which would spin until the kernel has room.
            return Some(now + BLOCKED);
        }
        if self.spins > SPINS {
            // A machine that asks for turns in which nothing happens is slowed down rather than burning a core.
            return due.map(|due| due.max(now + Duration::from_millis(1)));
        }
        due
    }

    fn receive(&mut self, now: Instant, events: &mut Vec<Event>) -> bool {
        let mut any = false;
        for index in 0..self.out.ports.len() {
            let Some(port) = self.out.ports.get_mut(index).filter(|port| port.readable) else { continue };
            let id = port.socket.id();
            match port.socket.recv_batch(&mut self.pool, &mut self.arrivals) {
                Ok(more) => port.readable = more,
                Err(error) => {
                    port.readable = false;
                    if self.tell_at.is_none_or(|at| now >= at) {
                        self.tell_at = Some(now + TELL_EVERY);
                        events.push(Event::Log(format!("cannot receive: {error}")));
                    }
                }
            }
            any |= !self.arrivals.is_empty();
            for (remote, data) in self.arrivals.drain(..) {
                if let Err(refused) = self.machine.handle_datagram(now, Path::new(id, remote), data) {
                    *self.refused.entry(refused).or_default() += 1;
                }
            }
        }
        let (machine, refused) = (&mut self.machine, &mut self.refused);
        self.out.extra.receive(&mut self.pool, &mut self.arrivals, |path, data| {
            any = true;
            if let Err(why) = machine.handle_datagram(now, path, data) {
                *refused.entry(why).or_default() += 1;
            }
        });
        any
    }

    /// Sends until the machine has no more or the kernel takes no more. Whether the machine is through shows in the
    /// batches: one that turned a datagram away is flushed and offered again.
    fn transmit(&mut self, now: Instant) -> bool {
        let mut any = false;
        loop {
            self.out.full = false;
            self.machine.poll_transmit(now, &mut self.out);
            any |= !self.out.is_empty();
            let room = self.out.flush(&mut self.poller);
            self.out.tunnels.flush();
            if !self.out.full || !room {
                return any;
            }
        }
    }

    fn tell(&mut self, now: Instant, events: &mut Vec<Event>) {
        if self.ended.is_some() {
            return;
        }
        while let Some(line) = self.out.errors.poll_line() {
            events.push(Event::Log(line));
        }
        if !self.refused.is_empty() && self.tell_at.is_none_or(|at| now >= at) {
            self.tell_at = Some(now + TELL_EVERY);
            let list: Vec<String> =
                std::mem::take(&mut self.refused).iter().map(|(why, count)| format!("{count} {why}")).collect();
            events.push(Event::Log(format!("datagrams not taken: {}", list.join(", "))));
        }
    }
}

impl Out {
    fn is_empty(&self) -> bool {
        self.extra.is_empty() && self.ports.iter().all(|port| port.batch.is_empty())
    }

    /// Gives everything to the kernel; true when every batch is empty afterwards.
    fn flush(&mut self, poller: &mut Poller) -> bool {
        let mut room = true;
        for port in &mut self.ports {
            let sent = port.batch.flush(self.now, &port.socket, &mut self.errors);
            if sent == port.blocked {
                port.blocked = !sent;
                // Without this the next try is when the wait for a blocked socket ends anyway.
                let _tried_later = poller.want_writable(&mut port.socket, port.blocked);
            }
            room &= sent;
        }
        room & self.extra.flush(self.now, poller, &mut self.errors)
    }
}

impl Outbox for Out {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.tunnels.is_at(path.socket) {
            self.tunnels.send(len, fill);
            return true;
        }
        let taken = match self.ports.get_mut(usize::from(path.socket.0)) {
            Some(port) => port.batch.datagram(path, len, fill),
            // A machine without this socket sends into the void rather than for ever.
            None => self.extra.datagram(path, len, fill),
        };
        self.full |= !taken;
        taken
    }
}
