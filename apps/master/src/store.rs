//! Where rows and notes live: in this process, or in a database that several masters share.

use std::sync::Mutex;
use std::time::Instant;

use futures_util::future::BoxFuture;
use rendezvous::Limits;
use rendezvous::store::{Memory, Op, Outcome};

use crate::{lock, wall};

/// Carries out the server's questions.
pub(crate) trait Store: Send + Sync {
    /// One question. Never fails but with [`Outcome::Unavailable`].
    fn run(&self, op: Op) -> BoxFuture<'_, Outcome>;

    /// Rows and tags held, where that is known without asking.
    fn len(&self) -> Option<(usize, usize)>;
}

/// Rows and notes of this process.
pub(crate) struct InMemory(Mutex<Memory>);

impl InMemory {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(Memory::new(limits)))
    }
}

impl Store for InMemory {
    fn run(&self, op: Op) -> BoxFuture<'_, Outcome> {
        let outcome = lock(&self.0).run(Instant::now(), wall(), op);
        Box::pin(std::future::ready(outcome))
    }

    fn len(&self) -> Option<(usize, usize)> {
        Some(lock(&self.0).len())
    }
}
