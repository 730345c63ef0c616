//! HTTP signalling on sockets: a listener for hosts, requests for dialers, the own key.

pub(crate) mod client;
mod key;
pub(crate) mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nethernet::engine::Fingerprint;
use nethernet::signaling::Channel as _;
use nethernet::signaling::http::{HttpDialer, HttpHost};
use nethernet::signaling::identity::{self, Claims, Pins, Policy, ServiceKeys};
use nethernet::{Body, NetworkId, Signal};

pub use key::{KeyError, OwnKey};

/// How long an own token holds, and how long before its end a new one is made.
const LIFETIME: u64 = 3_600;
const RENEW: u64 = 600;

/// HTTP signalling of a node. With it, its sessions send whole descriptions instead of single candidates.
#[derive(Clone, Debug)]
pub struct Http {
    /// Where a host answers; a dialer needs none.
    pub listen: Option<SocketAddr>,
    /// What to do about other peers' identities.
    pub policy: Policy,
    /// Whose tokens are believed.
    pub keys: ServiceKeys,
    /// The own key. Clients in the field refuse a host without one.
    pub key: Option<Arc<OwnKey>>,
    /// The domain that own assertions name.
    pub domain: String,
    /// Hosts' keys that were seen before.
    pub pins: Pins,
    /// Whether a host that was never seen is trusted over plain HTTP.
    pub trust_first: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: None,
            policy: Policy::Accept,
            keys: ServiceKeys::new(),
            key: None,
            domain: "anywire.invalid".to_owned(),
            pins: Pins::default(),
            trust_first: true,
        }
    }
}

/// The HTTP side of a node's state.
pub(crate) struct HttpState {
    pub(crate) host: HttpHost,
    pub(crate) dialer: HttpDialer,
    own: Option<Own>,
}

/// The own identity.
struct Own {
    key: Arc<OwnKey>,
    domain: String,
    fingerprint: Fingerprint,
    value: Option<(u64, String)>,
}

impl HttpState {
    pub(crate) fn new(http: &Http, id: u64, fingerprint: Fingerprint, seed: [u8; 32], now: std::time::Instant) -> Self {
        let host = HttpHost::new(id.into(), http.policy, http.keys.clone(), seed, now);
        let mut dialer = HttpDialer::new(http.policy, http.keys.clone());
        dialer.set_pins(http.pins.clone(), http.trust_first);
        let own = http.key.clone().map(|key| Own { key, domain: http.domain.clone(), fingerprint, value: None });
        Self { host, dialer, own }
    }

    /// Passes a signal on where this channel reaches its receiver; false where another one has to.
    pub(crate) fn send(&mut self, now: std::time::Instant, from: &NetworkId, to: &NetworkId, text: &str) -> bool {
        let vouched = self.vouch(text);
        let text = vouched.as_deref().unwrap_or(text);
        self.dialer.send(now, from, to, text).is_ok() || self.host.send(now, from, to, text).is_ok()
    }

    /// A description with the own identity in it.
    fn vouch(&mut self, text: &str) -> Option<String> {
        let value = self.own.as_mut()?.value(clock())?;
        let signal = Signal::parse(text).ok()?;
        let with = |sdp| identity::with_value(sdp, &value);
        let (request, response);
        let body = match signal.body {
            Body::ConnectRequest(sdp) => {
                request = with(sdp);
                Body::ConnectRequest(&request)
            }
            Body::ConnectResponse(sdp) => {
                response = with(sdp);
                Body::ConnectResponse(&response)
            }
            _ => return None,
        };
        Some(Signal { connection: signal.connection, body }.to_string())
    }
}

impl Own {
    /// The assertion, made anew before it ends.
    fn value(&mut self, now: u64) -> Option<String> {
        if let Some((until, value)) = &self.value
            && now + RENEW < *until
        {
            return Some(value.clone());
        }
        let claims = Claims { domain: self.domain.clone(), now, lifetime: LIFETIME, ..Claims::default() };
        let line = format!("a=fingerprint:sha-256 {}", self.fingerprint);
        // A key that does not sign leaves the description without an identity; the other side decides about that.
        let value = identity::assert(&*self.key, &claims, &line).ok()?;
        self.value = Some((now + LIFETIME, value.clone()));
        Some(value)
    }
}

/// Seconds since 1970.
pub(crate) fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
