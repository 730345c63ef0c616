//! Slow work, away from the network thread.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use net::Wake;
use seam::{Reply, Request, RequestId};

use crate::http;

/// Jobs that wait at a crew; further ones wait at the driver and follow as answers come.
const QUEUE: usize = 16;
/// A name server that does not answer holds one thread for many seconds; four servers are usually asked for.
const LOOKUPS: usize = 4;
/// HTTP requests under way at once, and as many held polls beside them.
const HTTP: usize = 4;
/// HTTP requests of a crew that wait for one under way to end; further ones are answered as unreachable.
const HTTP_QUEUE: usize = 32;
/// A request that may take longer is a poll that its server holds.
const SHORT: Duration = Duration::from_secs(10);

type Job = (RequestId, Request);
type Answer = (RequestId, Reply);

/// Which threads do a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stretch,
    Lookup,
    Http,
    Held,
}

/// Threads for password stretching (one), name lookups, HTTP requests and held polls (up to four each), started when
/// first needed: none of these ever waits behind another. Requests are never lost: over the bound of 16 a crew they wait
/// here in order, as many as the session has outstanding; of HTTP requests 32 a crew wait, further ones are answered as
/// unreachable at once.
pub(crate) struct Workers {
    stretch: Crew,
    lookup: Crew,
    http: Crew,
    held: Crew,
    answers: Receiver<(Kind, Answer)>,
    ready: VecDeque<Answer>,
}

struct Crew {
    kind: Kind,
    jobs: SyncSender<Job>,
    shared: Arc<Mutex<Receiver<Job>>>,
    back: Sender<(Kind, Answer)>,
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
            stretch: Crew::new(Kind::Stretch, 1, back.clone(), wake.clone()),
            lookup: Crew::new(Kind::Lookup, LOOKUPS, back.clone(), wake.clone()),
            http: Crew::new(Kind::Http, HTTP, back.clone(), wake.clone()),
            held: Crew::new(Kind::Held, HTTP, back, wake.clone()),
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
            Request::Http { timeout, .. } => {
                let crew = if timeout > SHORT { &mut self.held } else { &mut self.http };
                if crew.out + crew.waiting.len() < HTTP + HTTP_QUEUE {
                    crew.submit((id, request));
                } else {
                    self.ready.push_back((id, Reply::Unreachable("too many requests are under way".to_owned())));
                }
            }
            // The kinds are open-ended for other drivers; a session asks for these.
            _ => {}
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Answer> {
        if let Some(answer) = self.ready.pop_front() {
            return Some(answer);
        }
        let (kind, answer) = self.answers.try_recv().ok()?;
        match kind {
            Kind::Stretch => self.stretch.answered(),
            Kind::Lookup => self.lookup.answered(),
            Kind::Http => self.http.answered(),
            Kind::Held => self.held.answered(),
        }
        Some(answer)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Something is being told to a server that answers at once.
    pub(crate) fn is_telling(&self) -> bool {
        self.http.out > 0 || !self.http.waiting.is_empty()
    }
}

impl Crew {
    fn new(kind: Kind, most: usize, back: Sender<(Kind, Answer)>, wake: Wake) -> Self {
        let (jobs, receiver) = sync_channel(QUEUE);
        let shared = Arc::new(Mutex::new(receiver));
        Self { kind, jobs, shared, back, wake, threads: 0, most, waiting: VecDeque::new(), out: 0 }
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
        let (kind, shared, back, wake) = (self.kind, Arc::clone(&self.shared), self.back.clone(), self.wake.clone());
        let body = move || {
            loop {
                let next = shared.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((id, request)) = next else { return };
                if let Some(reply) = perform(&request) {
                    if back.send((kind, (id, reply))).is_err() {
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
        Request::Http { .. } => http::fetch(request),
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

    fn ask(url: String, timeout: Duration) -> Request {
        Request::Http { method: seam::HttpMethod::Get, url, body: Vec::new(), timeout, answer_max: 10 }
    }

    #[test]
    fn held_polls_hold_up_neither_words_nor_look_ups_and_too_many_are_refused_at_once() {
        // It takes connections and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut poller = Poller::new().unwrap();
        let mut workers = Workers::new(&poller.wake());
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let (most, held) = (HTTP + HTTP_QUEUE, Duration::from_secs(30));
        for number in 0..most + 3 {
            workers.submit(RequestId(u64::try_from(number).unwrap()), ask(url.clone(), held));
        }
        let refused: Vec<u64> = std::iter::from_fn(|| workers.poll()).map(|(id, _)| id.0).collect();
        assert_eq!(refused, [most, most + 1, most + 2].map(|number| u64::try_from(number).unwrap()));
        assert_eq!((workers.held.threads, workers.is_telling()), (HTTP, false));
        workers.submit(RequestId(100), Request::Resolve { host: "localhost".to_owned(), port: 1 });
        assert_eq!(all(&mut workers, &mut poller, 1).first().map(|(id, _)| id.0), Some(100));
        workers.submit(RequestId(101), ask("http://127.0.0.1:1/".to_owned(), SHORT));
        assert!(workers.is_telling());
        let answers = all(&mut workers, &mut poller, 1);
        assert!(matches!(answers.as_slice(), [(RequestId(101), Reply::Unreachable(_))]), "{answers:?}");
        assert!(!workers.is_telling());
    }
}
