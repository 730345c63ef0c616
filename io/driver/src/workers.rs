//! Slow work, away from the network thread.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use net::Wake;
use seam::{Reply, Request, RequestId};

/// Jobs that wait at a crew; further ones wait at the driver and follow as answers come.
const QUEUE: usize = 16;
/// A name server that does not answer holds one thread for many seconds; four servers are usually asked for.
const LOOKUPS: usize = 4;

type Job = (RequestId, Request);
type Answer = (RequestId, Reply);

/// Threads for password stretching (one) and name lookups (up to four), started when first needed. A stretch never waits
/// behind a name that does not resolve. Requests are never lost: over the bound of 16 a crew they wait here in order,
/// as many as the session has outstanding.
pub(crate) struct Workers {
    stretch: Crew,
    lookup: Crew,
    answers: Receiver<Answer>,
    ready: VecDeque<Answer>,
}

struct Crew {
    jobs: SyncSender<Job>,
    shared: Arc<Mutex<Receiver<Job>>>,
    back: Sender<Answer>,
    wake: Wake,
    threads: usize,
    most: usize,
    waiting: VecDeque<Job>,
    out: usize,
}

impl Workers {
    pub(crate) fn new(wake: &Wake) -> Self {
        let (back, answers) = channel();
        Self {
            stretch: Crew::new(1, back.clone(), wake.clone()),
            lookup: Crew::new(LOOKUPS, back, wake.clone()),
            answers,
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn submit(&mut self, id: RequestId, request: Request) {
        match request {
            Request::Stretch { .. } => self.stretch.submit((id, request)),
            Request::Resolve { ref host, port } => match literal(host) {
                Some(ip) => self.ready.push_back((id, Reply::Resolved(vec![SocketAddr::new(ip, port)]))),
                None => self.lookup.submit((id, request)),
            },
            // The kinds are open-ended for other drivers; a session asks for these two.
            _ => {}
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Answer> {
        if let Some(answer) = self.ready.pop_front() {
            return Some(answer);
        }
        let answer = self.answers.try_recv().ok()?;
        match answer.1 {
            Reply::Stretched(_) => self.stretch.answered(),
            _ => self.lookup.answered(),
        }
        Some(answer)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

impl Crew {
    fn new(most: usize, back: Sender<Answer>, wake: Wake) -> Self {
        let (jobs, receiver) = sync_channel(QUEUE);
        let shared = Arc::new(Mutex::new(receiver));
        Self { jobs, shared, back, wake, threads: 0, most, waiting: VecDeque::new(), out: 0 }
    }

    fn submit(&mut self, job: Job) {
        self.waiting.push_back(job);
        self.feed();
    }

    fn answered(&mut self) {
        self.out = self.out.saturating_sub(1);
        self.feed();
    }

    fn feed(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            match self.jobs.try_send(job) {
                Ok(()) => self.out += 1,
                Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                    self.waiting.push_front(job);
                    break;
                }
            }
            if self.threads < self.most.min(self.out) {
                self.start();
            }
        }
    }

    /// A thread ends when the driver is gone: its job queue closes. It is not waited for, since a lookup may hang.
    fn start(&mut self) {
        let (shared, back, wake) = (Arc::clone(&self.shared), self.back.clone(), self.wake.clone());
        let body = move || {
            loop {
                let next = shared.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((id, request)) = next else { return };
                if let Some(reply) = perform(&request) {
                    if back.send((id, reply)).is_err() {
                        return;
                    }
                    wake.wake();
                }
            }
        };
        if thread::Builder::new().name("anywire-worker".to_owned()).spawn(body).is_ok() {
            self.threads += 1;
        }
    }
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn perform(request: &Request) -> Option<Reply> {
    match request {
        Request::Stretch { password, timestamp } => {
            Some(Reply::Stretched(*joincode::stretch(password.reveal(), *timestamp).as_bytes()))
        }
        Request::Resolve { host, port } => {
            let found = (host.as_str(), *port).to_socket_addrs().map(Iterator::collect);
            Some(Reply::Resolved(found.unwrap_or_default()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use net::Poller;
    use seam::Secret;

    use super::*;

    fn all(workers: &mut Workers, poller: &mut Poller, count: usize) -> Vec<Answer> {
        let until = Instant::now() + Duration::from_secs(60);
        let mut answers = Vec::new();
        while answers.len() < count && Instant::now() < until {
            while let Some(answer) = workers.poll() {
                answers.push(answer);
            }
            if answers.len() < count {
                poller.wait(Some(until)).unwrap();
            }
        }
        answers
    }

    #[test]
    fn an_address_in_text_form_needs_no_thread() {
        let poller = Poller::new().unwrap();
        let mut workers = Workers::new(&poller.wake());
        for (number, host) in ["192.0.2.7", "2001:db8::1", "[2001:db8::1]"].into_iter().enumerate() {
            let id = RequestId(u64::try_from(number).unwrap());
            workers.submit(id, Request::Resolve { host: host.to_owned(), port: 3478 });
        }
        assert!(workers.has_ready());
        let found: Vec<Reply> = std::iter::from_fn(|| workers.poll()).map(|(_, reply)| reply).collect();
        let v6 = Reply::Resolved(vec!["[2001:db8::1]:3478".parse().unwrap()]);
        assert_eq!(found, [Reply::Resolved(vec!["192.0.2.7:3478".parse().unwrap()]), v6.clone(), v6]);
        assert_eq!((workers.lookup.threads, workers.stretch.threads), (0, 0));
    }

    #[test]
    fn requests_over_the_bound_wait_and_every_one_is_answered() {
        let mut poller = Poller::new().unwrap();
        let mut workers = Workers::new(&poller.wake());
        let count = 3 * QUEUE;
        for number in 0..count {
            let id = RequestId(u64::try_from(number).unwrap());
            workers.submit(id, Request::Resolve { host: "localhost".to_owned(), port: 1 });
        }
        let answers = all(&mut workers, &mut poller, count);
        let mut ids: Vec<u64> = answers.iter().map(|(id, _)| id.0).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..u64::try_from(count).unwrap()));
        assert!(workers.lookup.threads <= LOOKUPS);
        assert_eq!((workers.lookup.waiting.len(), workers.lookup.out), (0, 0));
    }

    #[test]
    fn a_stretch_is_the_key_of_the_code() {
        let mut poller = Poller::new().unwrap();
        let mut workers = Workers::new(&poller.wake());
        workers.submit(RequestId(9), Request::Stretch { password: Secret::new("hunter2"), timestamp: 1_700_000_000 });
        let expected = *joincode::stretch("hunter2", 1_700_000_000).as_bytes();
        assert_eq!(all(&mut workers, &mut poller, 1), [(RequestId(9), Reply::Stretched(expected))]);
    }
}
