//! A host's HTTP side: one thread that accepts, one for each of at most 64 connections, one request each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nethernet::signaling::http::{Answer, BODY_MAX, Token};

use super::clock;
use crate::state::Shared;

/// Most connections at once; one more is told 503.
const CONNECTIONS_MAX: usize = 64;
/// Most bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;
/// How long a client may take to send its request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Guards against a lost answer; the host's own time out comes first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The listener. Dropping it ends its thread.
pub(crate) struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn open(address: SocketAddr, shared: &Arc<Shared>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, shared) = (Arc::clone(&stop), Arc::clone(shared));
        let thread =
            Builder::new().name("nethernet-http".to_owned()).spawn(move || serve(&listener, &ends, &shared))?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
        }
        // A connection ends the wait for one; without it the thread ends with the next client.
        if TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // Nothing in it panics; if it did, it is over all the same.
            let _ended = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool, shared: &Arc<Shared>) {
    let open = Arc::new(AtomicUsize::new(0));
    let next = Arc::new(AtomicU64::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(mut stream) = stream else {
            // Out of descriptors, mostly: some come back.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            // Who is not told finds the connection closed.
            let _told = stream.set_write_timeout(Some(Duration::from_secs(1)));
            let _told = reply(&mut stream, &plain(503, "too many connections"));
            continue;
        }
        let token = Token(next.fetch_add(1, Ordering::Relaxed));
        let (theirs, shared) = (Arc::clone(&open), Arc::clone(shared));
        let spawned = Builder::new().name("nethernet-http".to_owned()).spawn(move || {
            // A client that goes away is nobody's fault.
            let _gone = connection(&mut stream, token, &shared);
            theirs.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn connection(stream: &mut TcpStream, token: Token, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = match read(stream, Instant::now() + READ_TIMEOUT)? {
        Ok(request) => {
            let begun = {
                let mut state = shared.lock();
                let http = state.http.as_mut();
                http.map(|http| {
                    let Request { method, path, body } = &request;
                    http.host.handle_request(Instant::now(), clock(), token, method, path, body);
                })
            };
            shared.wake.wake();
            let until = Some(Instant::now() + ANSWER_TIMEOUT);
            let answer = begun.and_then(|()| shared.wait(until, |state| state.answers.remove(&token)));
            if answer.is_none()
                && let Some(http) = shared.lock().http.as_mut()
            {
                http.host.give_up(token);
            }
            answer.unwrap_or_else(|| plain(502, "no answer"))
        }
        Err(refused) => refused,
    };
    reply(stream, &answer)
}

struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

fn plain(status: u16, text: &str) -> Answer {
    Answer { status, content_type: "text/plain; charset=utf-8", body: text.to_owned() }
}

/// Reads one request, or says what is wrong with it.
fn read(stream: &mut TcpStream, until: Instant) -> io::Result<Result<Request, Answer>> {
    let mut bytes = Vec::new();
    let (head, length, method, path) = loop {
        if let Some(head) = head(&bytes) {
            match head {
                Ok((head, length, method, path, waits)) => {
                    if waits && bytes.len() == head {
                        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                    }
                    break (head, length, method, path);
                }
                Err(refused) => return Ok(Err(refused)),
            }
        }
        if bytes.len() > HEAD_MAX {
            return Ok(Err(plain(431, "the head is too long")));
        }
        more(stream, &mut bytes, until)?;
    };
    while bytes.len() < head + length {
        more(stream, &mut bytes, until)?;
    }
    let body = bytes.get(head..head + length).unwrap_or_default().to_vec();
    Ok(Ok(Request { method, path, body }))
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    let mut chunk = [0; 8 << 10];
    let count = stream.read(&mut chunk)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
    Ok(())
}

type Head = (usize, usize, String, String, bool);

/// The head of a request: where its body begins, how long that is, method, path, and whether the client waits to be told
/// to go on. `None` when it is not all there.
fn head(bytes: &[u8]) -> Option<Result<Head, Answer>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let end = match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some(Err(plain(400, "not HTTP"))),
    };
    let (mut length, mut waits) = (None, false);
    for field in request.headers.iter() {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("content-length") {
            let told = value.bytes().all(|b| b.is_ascii_digit()).then(|| value.parse::<usize>().ok()).flatten();
            match (told, length) {
                (Some(told), None) => length = Some(told),
                (Some(told), Some(before)) if told == before => {}
                _ => return Some(Err(plain(400, "an unclear length"))),
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Some(Err(plain(411, "say Content-Length")));
        } else if field.name.eq_ignore_ascii_case("expect") {
            waits = value.eq_ignore_ascii_case("100-continue");
        }
    }
    let length = length.unwrap_or(0);
    if length > BODY_MAX {
        return Some(Err(plain(413, "the body is too long")));
    }
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    Some(Ok((end, length, text(request.method), text(request.path), waits)))
}

fn reply(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    stream.set_write_timeout(Some(READ_TIMEOUT))?;
    let Answer { status, content_type, body } = answer;
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Refused",
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_all_there() {
        let text = b"POST /v1/join/7 HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello";
        for end in 0..text.len() - 5 {
            assert!(head(&text[..end]).is_none(), "cut to {end}");
        }
        let (body, length, method, path, waits) = head(text).unwrap().unwrap();
        assert_eq!((&text[body..], length, method.as_str(), path.as_str()), (&b"hello"[..], 5, "POST", "/v1/join/7"));
        assert!(waits);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for (field, want) in [
            ("Content-Length: 5\r\nContent-Length: 6", 400),
            ("Content-Length: +5", 400),
            ("Content-Length: 99999999999999999999", 400),
            ("Content-Length: 1048577", 413),
            ("Transfer-Encoding: chunked", 411),
        ] {
            let text = format!("POST / HTTP/1.1\r\n{field}\r\n\r\n");
            assert_eq!(head(text.as_bytes()).unwrap().unwrap_err().status, want, "{field}");
        }
        assert_eq!(head(b"\x16\x03\x01\x00\x05hello\r\n\r\n").unwrap().unwrap_err().status, 400);
    }
}
