//! HTTP signalling, both sides: one POST carries the offer, its answer carries the answer.
//!
//! Descriptions are whole: an endpoint on this channel does not trickle, and candidates sent on their own go nowhere.
//! Both machines speak of requests and answers only; who drives them owns the sockets, TLS and the parsing of HTTP.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use seam::Dice;

use super::identity::{self, Identity, IdentityError, Pinned, Pins, Policy, ServiceKeys};
use super::{Channel, Incoming, Undelivered};
use crate::{Body, ConnectionId, NetworkId, SessionError, Signal};

/// Most bytes of a body.
pub const BODY_MAX: usize = 1 << 20;
/// Content type of both descriptions.
pub const SDP_TYPE: &str = "application/sdp";
/// Where everything is.
const PATH: &str = "/v1/join";
/// How long a host's endpoint may take for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one request of a dialer may take: the host's time and the way.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a host may take to say that it speaks NetherNet.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Most offers that wait for their answers.
const PENDING_MAX: usize = 256;
/// Most dials at once.
const DIALS_MAX: usize = 64;

/// Names one request of a client between [`HttpHost::handle_request`] and [`HttpHost::poll_answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a host answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The content type.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// The host's side: requests in, offers out to the endpoint, its answers back. At most 256 offers wait, 15 s each.
#[derive(Debug)]
pub struct HttpHost {
    id: NetworkId,
    policy: Policy,
    keys: ServiceKeys,
    dice: Dice,
    now: Instant,
    pending: BTreeMap<(NetworkId, ConnectionId), Pending>,
    offers: VecDeque<Incoming>,
    answers: VecDeque<(Token, Answer)>,
}

#[derive(Debug)]
struct Pending {
    token: Token,
    until: Instant,
}

impl HttpHost {
    /// A host with this own id. Offers whose identity the policy refuses never reach the endpoint.
    #[must_use]
    pub fn new(id: NetworkId, policy: Policy, keys: ServiceKeys, seed: [u8; 32], now: Instant) -> Self {
        Self {
            id,
            policy,
            keys,
            dice: Dice::new(seed),
            now,
            pending: BTreeMap::new(),
            offers: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Takes one request. `clock` is the wall clock in seconds since 1970, for the time of tokens. The answer comes from
    /// [`poll_answer`](Self::poll_answer), mostly not at once.
    pub fn handle_request(&mut self, now: Instant, clock: u64, token: Token, method: &str, path: &str, body: &[u8]) {
        self.now = self.now.max(now);
        if let Err(answer) = self.request(now, clock, token, method, path, body) {
            self.answers.push_back((token, answer));
        }
    }

    fn request(
        &mut self,
        now: Instant,
        clock: u64,
        token: Token,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(), Answer> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let rest = path.strip_prefix(PATH).ok_or_else(|| Answer::text(404, "nothing here"))?;
        let client = match (method, rest.strip_prefix('/')) {
            ("GET" | "HEAD", None) if rest.is_empty() => return Err(Answer::text(200, "NetherNet")),
            ("POST", Some(client)) if !client.contains('/') => client,
            (_, Some(_)) => return Err(Answer::text(405, "POST an offer here")),
            (_, None) => return Err(Answer::text(404, "nothing here")),
        };
        let refused = |error: SessionError| Answer::text(status(error), failed(error));
        let client: NetworkId = client.parse().map_err(|_| Answer::text(400, "the path does not end with an id"))?;
        let offer = std::str::from_utf8(body).map_err(|_| refused(SessionError::FailedToSetRemoteDescription))?;
        if body.len() > BODY_MAX || offer.is_empty() {
            return Err(refused(SessionError::FailedToSetRemoteDescription));
        }
        identity::check(self.policy, offer, clock, &self.keys).map_err(|error| match error {
            IdentityError::Malformed(_) => Answer::text(400, failed(SessionError::IdentityVerificationFailed)),
            _ => refused(SessionError::IdentityVerificationFailed),
        })?;
        if self.pending.len() >= PENDING_MAX {
            return Err(Answer::text(503, failed(SessionError::IncomingConnectionIgnored)));
        }
        // The wire has no connection id; ours is nobody's who posts twice.
        let connection = ConnectionId(self.dice.u64());
        let text = Signal { connection, body: Body::ConnectRequest(offer) }.to_string();
        self.offers.push_back(Incoming { from: client.clone(), to: self.id.clone(), text });
        self.pending.insert((client, connection), Pending { token, until: now + ANSWER_TIMEOUT });
        Ok(())
    }

    /// Forgets a request whose client went away.
    pub fn give_up(&mut self, token: Token) {
        self.pending.retain(|_, pending| pending.token != token);
    }

    /// Answers what the endpoint left unanswered for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let answers = &mut self.answers;
        self.pending.retain(|_, pending| {
            let waits = pending.until > now;
            if !waits {
                let late = failed(SessionError::NegotiationTimeoutWaitingForResponse);
                answers.push_back((pending.token, Answer::text(502, late)));
            }
            waits
        });
    }

    /// The next answer, and whom it is for.
    pub fn poll_answer(&mut self) -> Option<(Token, Answer)> {
        self.answers.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        if !self.answers.is_empty() || !self.offers.is_empty() {
            return Some((self.now, "something is queued"));
        }
        self.pending.values().map(|pending| (pending.until, "an offer lapses")).min()
    }
}

impl Channel for HttpHost {
    fn send(&mut self, now: Instant, _from: &NetworkId, to: &NetworkId, text: &str) -> Result<(), Undelivered> {
        self.now = self.now.max(now);
        let signal = Signal::parse(text).map_err(|error| Undelivered::Failed(error.to_string()))?;
        let answer = match signal.body {
            Body::ConnectResponse(sdp) => Answer { status: 200, content_type: SDP_TYPE, body: sdp.to_owned() },
            Body::ConnectError(error) => Answer::text(status(error), failed(error)),
            // They are in the description.
            Body::CandidateAdd(_) => return Ok(()),
            Body::ConnectRequest(_) => return Err(Undelivered::NoWay(to.clone())),
        };
        let key = (to.clone(), signal.connection);
        let pending = self.pending.remove(&key).ok_or_else(|| Undelivered::NoWay(to.clone()))?;
        self.answers.push_back((pending.token, answer));
        Ok(())
    }

    fn poll(&mut self) -> Option<Incoming> {
        self.offers.pop_front()
    }
}

/// What programs in the field print for a person, and some read.
fn failed(error: SessionError) -> String {
    format!("Negotiation failed with error code: {}", error.code())
}

fn status(error: SessionError) -> u16 {
    match error {
        SessionError::IdentityVerificationFailed => 403,
        SessionError::NegotiationTimeout | SessionError::NegotiationTimeoutWaitingForResponse => 502,
        SessionError::IncomingConnectionIgnored => 503,
        _ => 400,
    }
}

/// Names one HTTP request of a dialer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpId(u64);

/// An HTTP request to carry out: no redirects, and no answer of more than [`BODY_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Where to.
    pub url: String,
    /// An offer to post; `None` asks with GET.
    pub offer: Option<String>,
    /// From the first packet to the last byte.
    pub timeout: Duration,
}

/// The dialer's side: offers in from the endpoint, requests out, answers back. At most 64 dials at once.
#[derive(Debug, Default)]
pub struct HttpDialer {
    policy: Policy,
    keys: ServiceKeys,
    pins: Pins,
    trust_first: bool,
    routes: BTreeMap<NetworkId, Vec<String>>,
    dials: BTreeMap<HttpId, Dial>,
    next: u64,
    requests: VecDeque<(HttpId, HttpRequest)>,
    signals: VecDeque<Incoming>,
}

#[derive(Debug)]
struct Dial {
    from: NetworkId,
    to: NetworkId,
    connection: ConnectionId,
    offer: String,
    /// Bases that were not asked yet, in order.
    left: VecDeque<String>,
    /// The base that was asked last.
    base: String,
    posted: bool,
}

impl HttpDialer {
    /// A dialer that looks at hosts' identities under this policy, and trusts a host's first key.
    #[must_use]
    pub fn new(policy: Policy, keys: ServiceKeys) -> Self {
        Self { policy, keys, trust_first: true, ..Self::default() }
    }

    /// Hosts' keys that were seen before. Over plain HTTP a host with another key than before is refused (error 37), and
    /// so is one that was never seen, unless `trust_first`: then its key is kept.
    pub fn set_pins(&mut self, pins: Pins, trust_first: bool) {
        (self.pins, self.trust_first) = (pins, trust_first);
    }

    /// The keys that were seen by now, for whoever writes them down.
    #[must_use]
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Whether a host's key is the one that is expected. Over HTTPS the certificate has said who answers.
    fn is_expected(&mut self, base: &str, identity: Option<&Identity>) -> bool {
        let (Some(host), Some(identity)) = (base.strip_prefix("http://"), identity) else { return true };
        let pin = identity.pin();
        match self.pins.look(host, &pin) {
            Pinned::Same => true,
            Pinned::Changed => false,
            Pinned::New => self.trust_first && self.pins.keep(host, pin),
        }
    }

    /// Where a peer is: `host` or `host:port`, or a whole `http://` or `https://` base. Without a scheme the four ways of
    /// programs in the field are tried in their order. Hands out the id to dial.
    pub fn route(&mut self, address: &str) -> NetworkId {
        let address = address.trim_end_matches('/');
        let bases = if address.contains("://") {
            vec![address.to_owned()]
        } else {
            let bare = host_of(address);
            let mut bases = Vec::new();
            for base in [address, bare].iter().flat_map(|at| [format!("https://{at}"), format!("http://{at}")]) {
                if !bases.contains(&base) {
                    bases.push(base);
                }
            }
            // https before http.
            bases.sort_by_key(|base| !base.starts_with("https"));
            bases
        };
        let id = NetworkId::Opaque(address.into());
        self.routes.insert(id.clone(), bases);
        id
    }

    fn ask(&mut self, mut dial: Dial) {
        let Some(base) = dial.left.pop_front() else {
            return self.tell(&dial, Body::ConnectError(SessionError::SignalingUnicastMessageDeliveryFailed));
        };
        dial.base = base;
        let request = HttpRequest { url: format!("{}{PATH}", dial.base), offer: None, timeout: PROBE_TIMEOUT };
        self.begin(dial, request);
    }

    fn begin(&mut self, dial: Dial, request: HttpRequest) {
        let id = HttpId(self.next);
        self.next = self.next.wrapping_add(1);
        self.dials.insert(id, dial);
        self.requests.push_back((id, request));
    }

    fn tell(&mut self, dial: &Dial, body: Body<'_>) {
        let text = Signal { connection: dial.connection, body }.to_string();
        self.signals.push_back(Incoming { from: dial.to.clone(), to: dial.from.clone(), text });
    }

    /// The next request to carry out.
    pub fn poll_request(&mut self) -> Option<(HttpId, HttpRequest)> {
        self.requests.pop_front()
    }

    /// What came of a request: the status and the body, or `None` when there was no answer. `clock` is the wall clock in
    /// seconds since 1970.
    pub fn handle_reply(&mut self, clock: u64, id: HttpId, reply: Option<(u16, &[u8])>) {
        let Some(mut dial) = self.dials.remove(&id) else { return };
        let fine = reply.filter(|(status, _)| (200..300).contains(status));
        if !dial.posted {
            if fine.is_none() {
                return self.ask(dial);
            }
            let url = format!("{}{PATH}/{}", dial.base, dial.from);
            let offer = Some(std::mem::take(&mut dial.offer));
            dial.posted = true;
            return self.begin(dial, HttpRequest { url, offer, timeout: REQUEST_TIMEOUT });
        }
        let body = reply.and_then(|(_, body)| std::str::from_utf8(body).ok()).unwrap_or_default();
        match fine {
            Some(_) => {
                // Some hosts answer 200 with a number.
                let number = crate::id::decimal(body.trim()).and_then(|code| u32::try_from(code).ok());
                if let Some(code) = number {
                    return self.tell(&dial, Body::ConnectError(SessionError::from_code(code)));
                }
                match identity::check(self.policy, body, clock, &self.keys) {
                    Ok(identity) if self.is_expected(&dial.base, identity.as_ref()) => {
                        self.tell(&dial, Body::ConnectResponse(body));
                    }
                    Ok(_) | Err(_) => self.tell(&dial, Body::ConnectError(SessionError::IdentityVerificationFailed)),
                }
            }
            None => self.tell(&dial, Body::ConnectError(said(reply.map(|(status, _)| status), body))),
        }
    }
}

/// The host of `host:port`; an IPv6 address keeps its brackets.
fn host_of(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => address,
    }
}

/// The error a host has given: by its number where the text ends with one, else by the status.
fn said(status: Option<u16>, body: &str) -> SessionError {
    let number = body.rsplit_once("error code: ").and_then(|(_, code)| code.trim().parse().ok());
    match (number, status) {
        (Some(code), _) => SessionError::from_code(code),
        (None, Some(403)) => SessionError::IdentityVerificationFailed,
        (None, Some(502 | 504)) => SessionError::NegotiationTimeoutWaitingForResponse,
        (None, Some(503)) => SessionError::IncomingConnectionIgnored,
        (None, Some(_)) => SessionError::ConnectRequest,
        (None, None) => SessionError::SignalingUnicastMessageDeliveryFailed,
    }
}

impl Channel for HttpDialer {
    fn send(&mut self, _now: Instant, from: &NetworkId, to: &NetworkId, text: &str) -> Result<(), Undelivered> {
        let bases = self.routes.get(to).ok_or_else(|| Undelivered::NoWay(to.clone()))?;
        let signal = Signal::parse(text).map_err(|error| Undelivered::Failed(error.to_string()))?;
        let Body::ConnectRequest(offer) = signal.body else {
            // Candidates are in the description, and a host learns by its own time outs that nobody comes.
            return Ok(());
        };
        let same = |dial: &Dial| dial.connection == signal.connection && dial.to == *to;
        if self.dials.values().any(same) {
            // An offer that is repeated because it was not answered: the request is on its way.
            return Ok(());
        }
        if self.dials.len() >= DIALS_MAX {
            return Err(Undelivered::Failed("too many dials at once".to_owned()));
        }
        let dial = Dial {
            from: from.clone(),
            to: to.clone(),
            connection: signal.connection,
            offer: offer.to_owned(),
            left: bases.iter().cloned().collect(),
            base: String::new(),
            posted: false,
        };
        self.ask(dial);
        Ok(())
    }

    fn poll(&mut self) -> Option<Incoming> {
        self.signals.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\na=fingerprint:sha-256 AA:BB\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n";

    fn host(policy: Policy) -> (HttpHost, Instant) {
        let now = Instant::now();
        (HttpHost::new(1.into(), policy, ServiceKeys::new(), [3; 32], now), now)
    }

    fn ask(host: &mut HttpHost, now: Instant, method: &str, path: &str, body: &[u8]) -> Option<Answer> {
        host.handle_request(now, 0, Token(7), method, path, body);
        host.poll_answer().map(|(token, answer)| {
            assert_eq!(token, Token(7));
            answer
        })
    }

    #[test]
    fn an_offer_reaches_the_endpoint_and_its_answer_the_client() {
        let (mut host, now) = host(Policy::Accept);
        assert_eq!(ask(&mut host, now, "GET", "/v1/join", b"").unwrap().status, 200);
        assert_eq!(ask(&mut host, now, "POST", "/v1/join/guest-7", SDP.as_bytes()), None);
        let offer = host.poll().unwrap();
        assert_eq!((offer.from.to_string().as_str(), &offer.to), ("guest-7", &1.into()));
        let signal = Signal::parse(&offer.text).unwrap();
        assert_eq!(signal.body, Body::ConnectRequest(SDP));
        let candidate = Signal { body: Body::CandidateAdd("candidate:1"), ..signal }.to_string();
        assert_eq!(host.send(now, &1.into(), &offer.from, &candidate), Ok(()));
        let answer = Signal { body: Body::ConnectResponse("v=0\r\n"), ..signal }.to_string();
        host.send(now, &1.into(), &offer.from, &answer).unwrap();
        let want = Answer { status: 200, content_type: SDP_TYPE, body: "v=0\r\n".to_owned() };
        assert_eq!(host.poll_answer(), Some((Token(7), want)));
        assert!(host.send(now, &1.into(), &offer.from, &answer).is_err(), "answered already");
    }

    #[test]
    fn what_is_no_offer_is_refused_by_status() {
        let (mut host, now) = host(Policy::Require);
        for (method, path, body, want) in [
            ("GET", "/", &b""[..], 404),
            ("GET", "/v1/joins", b"", 404),
            ("POST", "/v1/join", b"x", 404),
            ("POST", "/v1/join/", b"x", 400),
            ("POST", "/v1/join/a/b", b"x", 405),
            ("PUT", "/v1/join/7", b"x", 405),
            ("POST", "/v1/join/7", b"", 400),
            ("POST", "/v1/join/7", b"\xFF", 400),
            ("POST", "/v1/join/7", SDP.as_bytes(), 403),
            ("POST", "/v1/join/7", &vec![b'x'; BODY_MAX + 1], 400),
        ] {
            assert_eq!(ask(&mut host, now, method, path, body).map(|a| a.status), Some(want), "{method} {path}");
        }
        assert_eq!(host.poll(), None);
    }

    #[test]
    fn a_refusal_a_silence_and_a_crowd_have_their_own_status() {
        let (mut host, now) = host(Policy::Ignore);
        host.handle_request(now, 0, Token(1), "POST", "/v1/join/7", SDP.as_bytes());
        let offer = host.poll().unwrap();
        let connection = Signal::parse(&offer.text).unwrap().connection;
        let body = Body::ConnectError(SessionError::IncomingConnectionIgnored);
        host.send(now, &1.into(), &7.into(), &Signal { connection, body }.to_string()).unwrap();
        let (_, answer) = host.poll_answer().unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (503, "Negotiation failed with error code: 16"));
        for n in 0..=256 {
            host.handle_request(now, 0, Token(n), "POST", "/v1/join/7", SDP.as_bytes());
        }
        assert_eq!(host.poll_answer().map(|(token, answer)| (token, answer.status)), Some((Token(256), 503)));
        while host.poll().is_some() {}
        let (due, _) = host.poll_timeout().unwrap();
        assert_eq!(due, now + ANSWER_TIMEOUT);
        host.give_up(Token(0));
        host.handle_timeout(due);
        let late = std::iter::from_fn(|| host.poll_answer()).filter(|(_, answer)| answer.status == 502).count();
        assert_eq!(late, 255);
        assert_eq!(host.poll_timeout(), None);
    }

    fn dial(dialer: &mut HttpDialer, address: &str) -> NetworkId {
        let to = dialer.route(address);
        let text = Signal { connection: ConnectionId(5), body: Body::ConnectRequest(SDP) }.to_string();
        dialer.send(Instant::now(), &9.into(), &to, &text).unwrap();
        to
    }

    #[test]
    fn a_dialer_asks_the_four_ways_in_order_and_posts_at_the_one_that_answers() {
        let mut dialer = HttpDialer::default();
        let to = dial(&mut dialer, "example.net:19132");
        let mut asked = Vec::new();
        for status in [None, Some((404, &b""[..])), Some((204, b""))] {
            let (id, request) = dialer.poll_request().unwrap();
            assert_eq!(request.offer, None);
            asked.push(request.url);
            dialer.handle_reply(0, id, status);
        }
        assert_eq!(
            asked,
            ["https://example.net:19132/v1/join", "https://example.net/v1/join", "http://example.net:19132/v1/join"]
        );
        let (id, request) = dialer.poll_request().unwrap();
        assert_eq!((request.url.as_str(), request.offer.as_deref()), ("http://example.net:19132/v1/join/9", Some(SDP)));
        dialer.handle_reply(0, id, Some((200, b"v=0\r\n")));
        let answer = dialer.poll().unwrap();
        assert_eq!((answer.from, answer.to, answer.text.as_str()), (to, 9.into(), "CONNECTRESPONSE 5 v=0\r\n"));
    }

    #[test]
    fn every_way_to_fail_has_its_error() {
        for (reply, want) in [
            (Some((200, &b"16"[..])), 16),
            (Some((400, b"Negotiation failed with error code: 13")), 13),
            (Some((403, b"no")), 37),
            (Some((502, b"")), 14),
            (Some((503, b"")), 16),
            (Some((500, b"")), 6),
            (None, 19),
        ] {
            let mut dialer = HttpDialer::default();
            dial(&mut dialer, "http://10.0.0.1:80/");
            let (id, request) = dialer.poll_request().unwrap();
            assert_eq!(request.url, "http://10.0.0.1:80/v1/join");
            dialer.handle_reply(0, id, Some((200, b"")));
            let (id, _) = dialer.poll_request().unwrap();
            dialer.handle_reply(0, id, reply);
            assert_eq!(dialer.poll().map(|m| m.text), Some(format!("CONNECTERROR 5 {want}")), "{reply:?}");
        }
        let mut dialer = HttpDialer::default();
        dial(&mut dialer, "[2001:db8::1]:80");
        while let Some((id, request)) = dialer.poll_request() {
            assert!(request.url.contains("[2001:db8::1]"), "{}", request.url);
            dialer.handle_reply(0, id, None);
        }
        assert_eq!(dialer.poll().map(|m| m.text).as_deref(), Some("CONNECTERROR 5 19"));
    }

    #[test]
    fn an_answer_without_a_required_identity_is_refused() {
        let mut dialer = HttpDialer::new(Policy::Require, ServiceKeys::new());
        dial(&mut dialer, "http://10.0.0.1:80");
        for body in [&b""[..], SDP.as_bytes()] {
            let (id, _) = dialer.poll_request().unwrap();
            dialer.handle_reply(0, id, Some((200, body)));
        }
        assert_eq!(dialer.poll().map(|m| m.text).as_deref(), Some("CONNECTERROR 5 37"));
    }

    #[test]
    fn a_repeated_offer_is_one_request() {
        let mut dialer = HttpDialer::default();
        let to = dial(&mut dialer, "http://10.0.0.1:80");
        dial(&mut dialer, "http://10.0.0.1:80");
        assert!(dialer.poll_request().is_some() && dialer.poll_request().is_none());
        let elsewhere = dialer.send(Instant::now(), &9.into(), &2.into(), "CONNECTERROR 5 16");
        assert_eq!(elsewhere, Err(Undelivered::NoWay(2.into())), "{to}");
    }
}
