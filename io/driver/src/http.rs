//! HTTP requests, one at a time on whichever thread asks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use seam::{HttpMethod, Reply, Request};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Error};

/// What masters see of us.
pub(crate) const USER_AGENT: &str = concat!("anywire/", env!("CARGO_PKG_VERSION"));

/// Carries out a [`Request::Http`] on this thread, which it blocks for up to the request's time out. `None` for another
/// kind of request.
///
/// Certificates are checked against Mozilla's roots, or against those in the file that `SSL_CERT_FILE` names.
/// Connections are kept for the next request to the same server. A proxy named by the environment is used.
#[must_use]
pub fn fetch(request: &Request) -> Option<Reply> {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    match request {
        Request::Http { method, url, body, timeout, answer_max } => {
            let answer = send(AGENT.get_or_init(agent), *method, url, body, *timeout, *answer_max);
            Some(answer.unwrap_or_else(|error| Reply::Unreachable(explain(error, *timeout, *answer_max))))
        }
        _ => None,
    }
}

fn agent() -> Agent {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(roots()).build();
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(USER_AGENT)
        .tls_config(tls)
        .build()
        .into()
}

/// Certificates in the file that `SSL_CERT_FILE` names.
pub(crate) fn own_roots() -> Vec<Certificate<'static>> {
    let named = std::env::var_os("SSL_CERT_FILE").and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    parse_pem(&named)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            Ok(_) | Err(_) => None,
        })
        .collect()
}

fn roots() -> RootCerts {
    let own = own_roots();
    if own.is_empty() { RootCerts::WebPki } else { RootCerts::from(own) }
}

fn send(
    agent: &Agent,
    method: HttpMethod,
    url: &str,
    body: &[u8],
    timeout: Duration,
    answer_max: usize,
) -> Result<Reply, Error> {
    let mut answer = match method {
        HttpMethod::Get => agent.get(url).config().timeout_global(Some(timeout)).build().call(),
        HttpMethod::Post => agent
            .post(url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/json")
            .send(body),
    }?;
    // One byte more tells an answer of exactly the allowed length from one that goes on.
    let limit = u64::try_from(answer_max).unwrap_or(u64::MAX).saturating_add(1);
    let bytes = answer.body_mut().with_config().limit(limit).read_to_vec()?;
    if bytes.len() > answer_max {
        return Err(Error::BodyExceedsLimit(limit));
    }
    Ok(Reply::Http { status: answer.status().as_u16(), body: bytes })
}

fn explain(error: Error, timeout: Duration, answer_max: usize) -> String {
    match error {
        Error::Timeout(_) => format!("no answer within {} s", timeout.as_secs_f32()),
        Error::HostNotFound => "its name cannot be looked up".to_owned(),
        Error::BodyExceedsLimit(_) => format!("the answer is over {answer_max} bytes"),
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}
