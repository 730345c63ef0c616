//! What the driver needs of a session.

use std::time::Instant;

use seam::{Outbox, Path, PooledBuf, Refused, Reply, Request, RequestId};
use session::{Command, Did, Event, Job, Session};

/// The verbs of a session; in tests, of a stand-in. They mean what a session's own mean.
pub(crate) trait Machine {
    fn handle_datagram(&mut self, now: Instant, path: Path, data: PooledBuf) -> Result<(), Refused>;
    fn handle_timeout(&mut self, now: Instant);
    fn handle_reply(&mut self, now: Instant, id: RequestId, reply: Reply);
    fn command(&mut self, now: Instant, command: Command);
    /// Writes datagrams until there are no more or `out` turns one away.
    fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox);
    fn poll_request(&mut self) -> Option<(RequestId, Request)>;
    fn poll_event(&mut self) -> Option<Event>;
    fn poll_timeout(&self) -> Option<(Instant, &'static str)>;
    fn poll_job(&mut self) -> Option<Job> {
        None
    }
    fn handle_job(&mut self, _now: Instant, _did: Did) {}
}

impl Machine for Session {
    fn handle_datagram(&mut self, now: Instant, path: Path, data: PooledBuf) -> Result<(), Refused> {
        self.handle_datagram(now, path, data)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn handle_reply(&mut self, now: Instant, id: RequestId, reply: Reply) {
        self.handle_reply(now, id, reply);
    }

    fn command(&mut self, now: Instant, command: Command) {
        self.command(now, command);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl Outbox) {
        // What is left when the batch is full is asked for again after a flush.
        let _through = self.poll_transmit(now, out);
    }

    fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.poll_request()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.poll_timeout()
    }

    fn poll_job(&mut self) -> Option<Job> {
        self.poll_job()
    }

    fn handle_job(&mut self, now: Instant, did: Did) {
        self.handle_job(now, did);
    }
}
