//! A dialer's HTTP side: each request on a thread of its own, at most as many as the dialer has dials.

use std::sync::{Arc, OnceLock};
use std::thread::Builder;

use nethernet::signaling::http::{BODY_MAX, HttpId, HttpRequest, SDP_TYPE};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::clock;
use crate::state::Shared;

/// Carries out a request and hands its reply to the dialer.
pub(crate) fn begin(shared: &Arc<Shared>, id: HttpId, request: HttpRequest) {
    let theirs = Arc::clone(shared);
    let spawned = Builder::new().name("nethernet-http".to_owned()).spawn(move || {
        let reply = fetch(&request);
        finish(&theirs, id, reply.as_ref().map(|(status, body)| (*status, body.as_slice())));
    });
    if spawned.is_err() {
        finish(shared, id, None);
    }
}

fn finish(shared: &Shared, id: HttpId, reply: Option<(u16, &[u8])>) {
    if let Some(http) = shared.lock().http.as_mut() {
        http.dialer.handle_reply(clock(), id, reply);
    }
    shared.wake.wake();
}

fn fetch(request: &HttpRequest) -> Option<(u16, Vec<u8>)> {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    let agent = AGENT.get_or_init(agent);
    let timeout = Some(request.timeout);
    let answer = match &request.offer {
        None => agent.get(&request.url).config().timeout_global(timeout).build().call(),
        Some(offer) => {
            let post = agent.post(&request.url).config().timeout_global(timeout).build();
            post.header("content-type", SDP_TYPE).send(offer.as_bytes())
        }
    };
    let mut answer = answer.ok()?;
    let limit = u64::try_from(BODY_MAX).unwrap_or(u64::MAX);
    let body = answer.body_mut().with_config().limit(limit).read_to_vec().ok()?;
    Some((answer.status().as_u16(), body))
}

/// Certificates are checked against Mozilla's roots. No redirect is followed.
fn agent() -> Agent {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(RootCerts::WebPki).build();
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("anywire/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build()
        .into()
}
