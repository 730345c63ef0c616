//! Sockets beside the first ones, opened and closed while a session runs: one end of a guess of ports has hundreds for a
//! few seconds, and keeps the one that was met.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::BytesMut;
use net::{FIRST_BEYOND, Poller, RecvPool, SendBatch, SendErrors, UdpSocket};
use seam::{Outbox, Path, Reply, Request, SocketId};

/// Most of them open at once: an attempt's, and those that are kept.
pub(crate) const EXTRA_MAX: usize = 512;
/// Where the system gave out its last descriptor, so many are given back: the rest of the program needs some.
const SPARE: u16 = 32;

struct Extra {
    socket: UdpSocket,
    batch: SendBatch,
    blocked: bool,
}

/// At most [`EXTRA_MAX`] sockets on ports of the system's choice.
pub(crate) struct Extras {
    /// What the first socket is bound to.
    ip: Option<IpAddr>,
    by_number: BTreeMap<u16, Extra>,
    readable: BTreeSet<u16>,
    /// Something was written to these since the last flush.
    written: BTreeSet<u16>,
}

impl Extras {
    pub(crate) fn new(ip: Option<IpAddr>) -> Self {
        Self { ip, by_number: BTreeMap::new(), readable: BTreeSet::new(), written: BTreeSet::new() }
    }

    /// Does what is asked, if it is for this part. The request comes back otherwise.
    pub(crate) fn request(&mut self, poller: &mut Poller, request: Request) -> Result<Option<Reply>, Request> {
        match request {
            Request::OpenSockets { first, count } => {
                let opened = self.open(poller, first, count);
                Ok(Some(Reply::SocketsOpen(opened)))
            }
            Request::CloseSockets { first, count } => {
                let last = first.0.saturating_add(count);
                for number in self.by_number.range(first.0..last).map(|(number, _)| *number).collect::<Vec<_>>() {
                    self.close(number);
                }
                Ok(None)
            }
            other => Err(other),
        }
    }

    /// Opens sockets until there are enough or the system allows no more; how many there are from the first number on.
    fn open(&mut self, poller: &mut Poller, first: SocketId, count: u16) -> u16 {
        let (Some(ip), true) = (self.ip, first.0 >= FIRST_BEYOND) else { return 0 };
        let mut opened = 0;
        while opened < count && self.by_number.len() < EXTRA_MAX {
            let Some(number) = first.0.checked_add(opened) else { break };
            if let Entry::Vacant(place) = self.by_number.entry(number) {
                let Ok(extra) = extra(poller, SocketId(number), ip) else {
                    // Whatever the reason, fewer sockets are a smaller chance and no fault.
                    let kept = opened.saturating_sub(SPARE);
                    for number in first.0 + kept..first.0 + opened {
                        self.close(number);
                    }
                    return kept;
                };
                place.insert(extra);
                self.readable.insert(number);
            }
            opened += 1;
        }
        opened
    }

    fn close(&mut self, number: u16) {
        self.by_number.remove(&number);
        self.readable.remove(&number);
        self.written.remove(&number);
    }

    /// Datagrams wait at these.
    pub(crate) fn note(&mut self, ready: impl Iterator<Item = SocketId>) {
        self.readable.extend(ready.map(|id| id.0).filter(|number| self.by_number.contains_key(number)));
    }

    pub(crate) fn has_readable(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.written.iter().any(|number| self.by_number.get(number).is_some_and(|extra| extra.blocked))
    }

    /// Takes what waits at each of them once.
    pub(crate) fn receive(
        &mut self,
        pool: &mut RecvPool,
        arrivals: &mut Vec<(SocketAddr, BytesMut)>,
        mut each: impl FnMut(Path, BytesMut),
    ) {
        for number in std::mem::take(&mut self.readable) {
            let Some(extra) = self.by_number.get_mut(&number) else { continue };
            // An error of such a socket ends with the socket.
            if extra.socket.recv_batch(pool, arrivals).unwrap_or(false) {
                self.readable.insert(number);
            }
            for (remote, data) in arrivals.drain(..) {
                each(Path::new(SocketId(number), remote), data);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Gives everything to the kernel; true when nothing is left.
    pub(crate) fn flush(&mut self, now: Instant, poller: &mut Poller, errors: &mut SendErrors) -> bool {
        let by_number = &mut self.by_number;
        self.written.retain(|number| {
            let Some(extra) = by_number.get_mut(number) else { return false };
            let sent = extra.batch.flush(now, &extra.socket, errors);
            if sent == extra.blocked {
                extra.blocked = !sent;
                // Without this the next try is when the wait for a blocked socket ends anyway.
                let _tried_later = poller.want_writable(&mut extra.socket, extra.blocked);
            }
            !sent
        });
        self.written.is_empty()
    }
}

impl Outbox for Extras {
    fn datagram(&mut self, path: Path, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        // A socket that is closed by now sends into the void.
        let Some(extra) = self.by_number.get_mut(&path.socket.0) else { return true };
        self.written.insert(path.socket.0);
        extra.batch.datagram(path, len, fill)
    }
}

fn extra(poller: &mut Poller, id: SocketId, ip: IpAddr) -> io::Result<Extra> {
    let mut socket = UdpSocket::bind(id, SocketAddr::new(ip, 0))?;
    poller.add(&mut socket)?;
    let batch = SendBatch::small(&socket);
    Ok(Extra { socket, batch, blocked: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket as StdSocket};
    use std::time::Duration;

    const FIRST: SocketId = SocketId(FIRST_BEYOND);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn rig() -> (Poller, Extras) {
        (Poller::new().unwrap(), Extras::new(Some(Ipv4Addr::LOCALHOST.into())))
    }

    fn open(extras: &mut Extras, poller: &mut Poller, count: u16) -> u16 {
        match extras.request(poller, Request::OpenSockets { first: FIRST, count }) {
            Ok(Some(Reply::SocketsOpen(count))) => count,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn two_hundred_and_fifty_sockets_speak_hear_and_close_but_the_one_that_is_kept() {
        let (mut poller, mut extras) = rig();
        let count = open(&mut extras, &mut poller, 250);
        assert!(count > 0 && count <= 250, "{count}");
        let peer = StdSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = peer.local_addr().unwrap();
        let mut errors = SendErrors::default();
        for number in 0..count {
            let path = Path::new(SocketId(FIRST.0 + number), to);
            assert!(extras.datagram(path, 2, |space| {
                space.copy_from_slice(&number.to_be_bytes());
                2
            }));
        }
        while !extras.flush(Instant::now(), &mut poller, &mut errors) {}
        let mut seen = BTreeMap::new();
        for _ in 0..count {
            let mut word = [0; 2];
            let (_, from) = peer.recv_from(&mut word).unwrap();
            seen.insert(u16::from_be_bytes(word), from);
        }
        let ports: BTreeSet<u16> = seen.values().map(SocketAddr::port).collect();
        assert_eq!((seen.len(), ports.len()), (usize::from(count), usize::from(count)), "each on a port of its own");

        for from in seen.values() {
            peer.send_to(b"back", from).unwrap();
        }
        let (mut pool, mut arrivals, mut heard) = (RecvPool::new(), Vec::new(), BTreeSet::new());
        let until = Instant::now() + PATIENCE;
        while heard.len() < usize::from(count) && Instant::now() < until {
            poller.wait(Some(until)).unwrap();
            extras.note(poller.ready_beyond());
            while extras.has_readable() {
                extras.receive(&mut pool, &mut arrivals, |path, data| {
                    assert_eq!((path.remote, data.as_ref()), (to, b"back".as_slice()));
                    heard.insert(path.socket.0);
                });
            }
        }
        assert_eq!(heard.len(), usize::from(count));

        let kept = FIRST.0 + count / 2;
        for (first, count) in [(FIRST.0, kept - FIRST.0), (kept + 1, count)] {
            let request = Request::CloseSockets { first: SocketId(first), count };
            assert_eq!(extras.request(&mut poller, request), Ok(None));
        }
        assert_eq!(extras.by_number.keys().copied().collect::<Vec<_>>(), [kept]);
        let gone = Path::new(SocketId(kept + 1), to);
        assert!(extras.datagram(gone, 1, |_| panic!("nothing is written for a closed socket")));
        // Their ports are free again.
        let free = seen.iter().find(|(number, _)| **number == count / 2 + 1).map(|(_, at)| *at).unwrap();
        assert!(StdSocket::bind(free).is_ok());
    }

    #[test]
    #[ignore = "the test below runs it in a process of its own, which may hold few descriptors"]
    fn opens_what_it_can() {
        let (mut poller, mut extras) = rig();
        let count = open(&mut extras, &mut poller, 250);
        assert!((20..100).contains(&count), "{count}");
        assert_eq!(extras.by_number.len(), usize::from(count));
        let others: Vec<_> = (0..SPARE - 2).map(|_| StdSocket::bind("127.0.0.1:0").unwrap()).collect();
        assert_eq!(others.len(), usize::from(SPARE - 2), "the rest of the program has descriptors left");
    }

    #[cfg(unix)]
    #[test]
    fn with_few_descriptors_there_are_fewer_sockets_and_some_descriptors_stay_free() {
        let program = std::env::current_exe().unwrap();
        let script = "ulimit -n 120 && exec \"$0\" --ignored --exact extra::tests::opens_what_it_can";
        let run = std::process::Command::new("sh").args(["-c", script]).arg(program).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn sockets_over_the_bound_and_numbers_of_other_sockets_are_not_opened() {
        let (mut poller, mut extras) = rig();
        let few = Request::OpenSockets { first: SocketId(0), count: 2 };
        assert_eq!(extras.request(&mut poller, few), Ok(Some(Reply::SocketsOpen(0))));
        assert_eq!(open(&mut extras, &mut poller, 3), 3);
        assert_eq!(open(&mut extras, &mut poller, 3), 3, "they are open already");
        assert_eq!(extras.by_number.len(), 3);
        assert!(usize::from(open(&mut extras, &mut poller, u16::MAX)) <= EXTRA_MAX);
        assert!(extras.by_number.len() <= EXTRA_MAX);
        let other = Request::CloseTunnel;
        assert_eq!(extras.request(&mut poller, other.clone()), Err(other));
    }
}
