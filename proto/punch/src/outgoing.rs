//! What waits to be sent.

use std::collections::VecDeque;

use np1::Kind;
use seam::{Outbox, Path};

use crate::Token;

/// Most datagrams waiting: every candidate of every dial at once, twice.
const QUEUE_MAX: usize = 16_384;
/// Most bytes of echoes waiting.
const ECHO_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Debug)]
enum Body {
    Token(Kind, Token),
    /// The payload of an H, going back as an A.
    Echo(Box<[u8]>),
    Stun(Vec<u8>),
}

/// Datagrams in the order they were queued. Bounded; what does not fit is dropped, since all of it is repeated or is
/// an answer to something repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    items: VecDeque<(Path, Body)>,
    echo_bytes: usize,
}

impl Outgoing {
    pub(crate) fn token(&mut self, path: Path, kind: Kind, token: Token) {
        self.push(path, Body::Token(kind, token));
    }

    pub(crate) fn stun(&mut self, path: Path, request: &stun::Request) {
        self.push(path, Body::Stun(request.encode()));
    }

    /// False when there is no room.
    pub(crate) fn echo(&mut self, path: Path, payload: &[u8]) -> bool {
        if self.echo_bytes + payload.len() > ECHO_BYTES_MAX || self.items.len() >= QUEUE_MAX {
            return false;
        }
        self.echo_bytes += payload.len();
        self.push(path, Body::Echo(payload.into()));
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Writes as much as the batch takes; whether anything was.
    pub(crate) fn poll(&mut self, out: &mut impl Outbox) -> bool {
        let mut any = false;
        while let Some((path, body)) = self.items.front() {
            let taken = match body {
                Body::Token(kind, token) => write(out, *path, &np1::header(*kind), token),
                Body::Echo(payload) => write(out, *path, &np1::header(Kind::Ack), payload),
                Body::Stun(request) => write(out, *path, &[], request),
            };
            if !taken {
                break;
            }
            if let Some((_, Body::Echo(payload))) = self.items.pop_front() {
                self.echo_bytes = self.echo_bytes.saturating_sub(payload.len());
            }
            any = true;
        }
        any
    }

    fn push(&mut self, path: Path, body: Body) {
        if self.items.len() < QUEUE_MAX {
            self.items.push_back((path, body));
        }
    }
}

fn write(out: &mut impl Outbox, path: Path, head: &[u8], body: &[u8]) -> bool {
    let len = head.len() + body.len();
    out.datagram(path, len, |buffer| {
        let Some((first, rest)) = buffer.split_at_mut_checked(head.len()) else { return 0 };
        let Some(rest) = rest.get_mut(..body.len()) else { return 0 };
        first.copy_from_slice(head);
        rest.copy_from_slice(body);
        len
    })
}
