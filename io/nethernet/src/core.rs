//! The network thread: sockets in, machines, sockets out, wait.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use net::{Poller, Ready, RecvPool, SendBatch, SendErrors, UdpSocket};
use nethernet::discovery::{Ask, SHARED_V6};
use seam::{Outbox, Path};

use crate::http::client;
use crate::node::NodeEvent;
use crate::sockets::Networks;
use crate::state::{Shared, State};

/// Longest wait for a full send buffer before trying again.
const BLOCKED: Duration = Duration::from_millis(5);
/// How often the system is asked for its networks.
const LOOK: Duration = Duration::from_secs(5);
/// How long a node that is being dropped may go on to deliver what was sent.
const LINGER: Duration = Duration::from_secs(5);

pub(crate) struct Core {
    shared: Arc<Shared>,
    poller: Poller,
    ports: Vec<Port>,
    pool: RecvPool,
    errors: SendErrors,
    look_at: Instant,
    leave_by: Option<Instant>,
}

struct Port {
    socket: UdpSocket,
    batch: SendBatch,
    readable: bool,
    blocked: bool,
}

/// The batches as one outbox.
struct Out<'a> {
    ports: &'a mut [Port],
    full: bool,
}

impl Outbox for Out<'_> {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        // A socket that is not there swallows: this machine has no such family.
        let Some(port) = self.ports.iter_mut().find(|port| port.socket.id() == path.socket) else { return true };
        let taken = port.batch.datagram(path, len, fill);
        self.full |= !taken;
        taken
    }
}

impl Core {
    /// Takes the sockets over.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut poller: Poller,
        sockets: Vec<UdpSocket>,
        now: Instant,
    ) -> io::Result<Self> {
        let mut ports = Vec::new();
        for mut socket in sockets {
            poller.add(&mut socket)?;
            let batch = SendBatch::new(&socket);
            // What came before the socket was watched makes no edge.
            ports.push(Port { socket, batch, readable: true, blocked: false });
        }
        let (pool, errors) = (RecvPool::new(), SendErrors::default());
        Ok(Self { shared, poller, ports, pool, errors, look_at: now + LOOK, leave_by: None })
    }

    /// Runs until the node is closed; says why, where that is a fault.
    pub(crate) fn run(mut self) -> String {
        let mut arrivals: Vec<(Path, BytesMut)> = Vec::new();
        loop {
            let now = Instant::now();
            self.receive(&mut arrivals);
            if self.turn(now, &mut arrivals) {
                return String::new();
            }
            let until = self.until(now);
            match self.poller.wait(Some(until)) {
                Ok(ready) => self.note(ready),
                Err(error) => return format!("cannot wait for sockets: {error}"),
            }
        }
    }

    fn note(&mut self, ready: Ready) {
        for port in &mut self.ports {
            port.readable |= ready.readable(port.socket.id());
        }
    }

    fn receive(&mut self, arrivals: &mut Vec<(Path, BytesMut)>) {
        let mut came: Vec<(SocketAddr, BytesMut)> = Vec::new();
        for port in self.ports.iter_mut().filter(|port| port.readable) {
            // A socket that fails is asked again when it has news.
            port.readable = port.socket.recv_batch(&mut self.pool, &mut came).unwrap_or(false);
            let id = port.socket.id();
            arrivals.extend(came.drain(..).map(|(remote, data)| (Path::new(id, remote), data)));
        }
    }

    /// Everything there is to do at this instant; true when the node is over.
    fn turn(&mut self, now: Instant, arrivals: &mut Vec<(Path, BytesMut)>) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut asks = Vec::new();
        let mut busy = !arrivals.is_empty();
        {
            let state = &mut *shared.lock();
            self.look(now, state);
            take(state, now, arrivals);
            if state.discovery.poll_timeout().is_some_and(|(due, _)| due <= now) {
                state.discovery.handle_timeout(now);
            }
            if state.endpoint.poll_timeout().is_some_and(|(due, _)| due <= now) {
                state.endpoint.handle_timeout(now);
            }
            busy |= state.pump(now, &mut asks);
        }
        let requests = std::mem::take(&mut shared.lock().requests);
        for (id, request) in requests {
            client::begin(&shared, id, request);
        }
        if !asks.is_empty() {
            answer(&shared, now, asks);
        }
        busy |= self.transmit(now, &shared);
        let mut state = shared.lock();
        while let Some(line) = self.errors.poll_line() {
            state.tell(NodeEvent::Log(line));
        }
        if busy {
            shared.changed.notify_all();
        }
        if !state.closing {
            return false;
        }
        let by = *self.leave_by.get_or_insert(now + LINGER);
        state.endpoint.is_empty() && self.ports.iter().all(|port| port.batch.is_empty()) || now >= by
    }

    fn look(&mut self, now: Instant, state: &mut State) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        state.networks = Networks::of(state.networks.only());
        state.discovery.set_interfaces(now, state.networks.interfaces());
    }

    /// Sends until the machines have no more or the kernel takes no more. The lock is not held while the kernel works.
    fn transmit(&mut self, now: Instant, shared: &Shared) -> bool {
        let mut any = false;
        loop {
            let mut out = Out { ports: &mut self.ports, full: false };
            {
                let state = &mut *shared.lock();
                // What is left when a batch is full is asked for again after a flush.
                let _through = state.discovery.poll_transmit(now, &mut out);
                let _any = state.endpoint.poll_transmit(now, &mut out);
            }
            let full = out.full;
            let mut room = true;
            for port in &mut self.ports {
                any |= !port.batch.is_empty();
                let sent = port.batch.flush(now, &port.socket, &mut self.errors);
                if sent == port.blocked {
                    port.blocked = !sent;
                    // Without the edge the next try comes after a short wait anyway.
                    let _edge = self.poller.want_writable(&mut port.socket, !sent);
                }
                room &= sent;
            }
            if !full || !room {
                return any;
            }
        }
    }

    fn until(&self, now: Instant) -> Instant {
        if self.ports.iter().any(|port| port.readable) {
            return now;
        }
        if self.ports.iter().any(|port| port.blocked) {
            return now + BLOCKED;
        }
        let state = self.shared.lock();
        let http = state.http.as_ref().and_then(|http| http.host.poll_timeout());
        let due = [state.discovery.poll_timeout(), state.endpoint.poll_timeout(), http];
        let due = due.into_iter().flatten().map(|(due, _)| due);
        due.chain([self.look_at]).chain(self.leave_by).min().unwrap_or(self.look_at)
    }
}

fn take(state: &mut State, now: Instant, arrivals: &mut Vec<(Path, BytesMut)>) {
    for (path, data) in arrivals.drain(..) {
        if path.socket <= SHARED_V6 {
            if state.networks.admits(path.remote.ip()) {
                // What is refused is dropped in silence; a trace shows it.
                let _refused = state.discovery.handle_datagram(now, path, data);
            }
        } else {
            // A datagram of no session is noise.
            let _ours = state.endpoint.handle_datagram(now, path, &data);
        }
    }
}

/// Asks the application for its advertisement, once for all questions of this turn.
fn answer(shared: &Shared, now: Instant, asks: Vec<Ask>) {
    let Some(advert) = shared.lock().advert.clone() else { return };
    let data = advert.make();
    let mut state = shared.lock();
    for ask in asks {
        if let Err(error) = state.discovery.answer(now, ask, &data) {
            state.tell(NodeEvent::Log(format!("a question was heard and not answered: {error}")));
        }
    }
}
