//! Identity assertions: `a=identity` in offers and answers.
//!
//! The value is base64 of `{"assertion":A,"idp":{"domain":D,"protocol":"default"}}`, where `A` is a text holding
//! `{"fingerprints":JWS,"token":JWT}`. The token names a P-384 key (claim `cpk`); the JWS is made with that key over every
//! `a=fingerprint` line of the same description, so that whoever carries the description cannot exchange the certificate
//! under it. A host's token is signed by that key itself; a player's token by the game's service, whose keys come from
//! configuration: nothing is fetched here.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{
    ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Most bytes of a value that is read.
pub const IDENTITY_MAX: usize = 32 << 10;
/// Fingerprint lines that are looked at; a description with more is refused.
const LINES_MAX: usize = 16;
/// Clocks may differ by this many seconds.
const SKEW: u64 = 60;

/// What stands before the point in the DER of a P-384 public key (RFC 5480, section 2).
const SPKI: [u8; 23] = [
    0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x05, 0x2B, 0x81, 0x04, 0x00,
    0x22, 0x03, 0x62, 0x00,
];

/// An uncompressed P-384 point.
pub type Point = [u8; 97];

/// A P-384 key that signs. Signing needs randomness, so whoever holds the key is outside of this crate.
pub trait Signer {
    /// The public half.
    fn public_key(&self) -> Point;

    /// ECDSA with SHA-384, `r` and `s` in 48 bytes each. `None` when it cannot be done.
    fn sign(&self, message: &[u8]) -> Option<[u8; 96]>;
}

/// What to do about other peers' identities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nobody without one.
    Require,
    /// One that is there must be valid.
    #[default]
    Accept,
    /// They are not looked at.
    Ignore,
}

/// A key of the service that issues players' tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceKey {
    /// RS256: modulus and exponent, big-endian.
    Rsa(Vec<u8>, Vec<u8>),
    /// ES384.
    P384(Box<Point>),
}

/// Whose tokens are believed, by key id. Empty: only tokens that their own key signs.
pub type ServiceKeys = BTreeMap<String, ServiceKey>;

/// An identity that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The key that vouches for the description.
    pub key: Box<Point>,
    /// The key id of the service that issued the token; `None` for a token its own key signed.
    pub service: Option<String>,
    /// What the token says.
    pub claims: Map<String, Value>,
    /// The domain of the identity provider, as it was said.
    pub domain: String,
}

impl Identity {
    /// What a dialer pins: the SHA-256 digest of the key's DER form.
    #[must_use]
    pub fn pin(&self) -> [u8; 32] {
        Sha256::digest(spki(&self.key)).into()
    }
}

/// Why an identity does not hold. On channels that have it, that is error 37.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// There is none, and one is required.
    #[error("the description has no identity")]
    Missing,
    /// A part of it cannot be read.
    #[error("the identity's {0} cannot be read")]
    Malformed(&'static str),
    /// The token was issued by somebody nobody here knows.
    #[error("the identity's token is signed by an unknown key")]
    UnknownIssuer,
    /// A signature is another.
    #[error("the identity's {0} is not authentic")]
    NotAuthentic(&'static str),
    /// Too early or too late.
    #[error("the identity's token is not valid at this time")]
    Time,
    /// The own key would not sign.
    #[error("the own key does not sign")]
    Signer,
}

/// What goes into an own token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// The identity provider's domain.
    pub domain: String,
    /// Seconds since 1970.
    pub now: u64,
    /// How long the token holds, in seconds.
    pub lifetime: u64,
    /// Anything else to say.
    pub other: Map<String, Value>,
}

/// The value of `a=identity` for a description with these fingerprint lines, signed by the key itself.
///
/// # Errors
/// [`IdentityError::Signer`].
pub fn assert(signer: &impl Signer, claims: &Claims, description: &str) -> Result<String, IdentityError> {
    let mut payload = claims.other.clone();
    payload.insert("cpk".to_owned(), BASE64.encode(&spki(&signer.public_key())).into());
    payload.insert("iat".to_owned(), claims.now.into());
    payload.insert("exp".to_owned(), claims.now.saturating_add(claims.lifetime).into());
    let header = BASE64URL_NOPAD.encode(br#"{"alg":"ES384","typ":"JWT"}"#);
    let token = format!("{header}.{}", BASE64URL_NOPAD.encode(Value::Object(payload).to_string().as_bytes()));
    let sign = |message: &str| {
        let signature = signer.sign(message.as_bytes()).ok_or(IdentityError::Signer)?;
        Ok(BASE64URL_NOPAD.encode(&signature))
    };
    let token = format!("{token}.{}", sign(&token)?);
    let header = BASE64URL_NOPAD.encode(br#"{"alg":"ES384"}"#);
    let signature = sign(&format!("{header}.{}", BASE64URL_NOPAD.encode(canonical(description)?.as_bytes())))?;
    let assertion = json!({"fingerprints": format!("{header}..{signature}"), "token": token}).to_string();
    let value = json!({"assertion": assertion, "idp": {"domain": claims.domain, "protocol": "default"}});
    Ok(BASE64.encode(value.to_string().as_bytes()))
}

/// Looks at the identity of a description under a policy. `None` where none is needed and none is there.
///
/// # Errors
/// [`IdentityError`]: the peer is to be refused.
pub fn check(
    policy: Policy,
    description: &str,
    now: u64,
    keys: &ServiceKeys,
) -> Result<Option<Identity>, IdentityError> {
    match (policy, value(description)) {
        (Policy::Ignore, _) | (Policy::Accept, None) => Ok(None),
        (Policy::Require, None) => Err(IdentityError::Missing),
        (Policy::Require | Policy::Accept, Some(value)) => verify(value, description, now, keys).map(Some),
    }
}

/// Verifies the value of `a=identity` against the description it came in.
///
/// # Errors
/// [`IdentityError`]: the peer is to be refused.
pub fn verify(value: &str, description: &str, now: u64, keys: &ServiceKeys) -> Result<Identity, IdentityError> {
    use IdentityError::{Malformed, NotAuthentic};
    if value.len() > IDENTITY_MAX {
        return Err(Malformed("value"));
    }
    let outer = object(&BASE64.decode(value.as_bytes()).map_err(|_| Malformed("value"))?).ok_or(Malformed("value"))?;
    let domain = outer.get("idp").and_then(|idp| idp.get("domain")).and_then(Value::as_str).unwrap_or_default();
    let assertion = outer.get("assertion").and_then(Value::as_str).ok_or(Malformed("assertion"))?;
    let inner = object(assertion.as_bytes()).ok_or(Malformed("assertion"))?;
    let text = |key: &'static str| inner.get(key).and_then(Value::as_str).ok_or(Malformed(key));

    let token = Compact::parse(text("token")?, "token")?;
    let claims = object(&token.payload).ok_or(Malformed("token"))?;
    let key = claims.get("cpk").and_then(public_key).ok_or(Malformed("key"))?;
    let service = match token.header.get("kid").and_then(Value::as_str) {
        Some(kid) if keys.contains_key(kid) => Some(kid.to_owned()),
        _ => None,
    };
    let authentic = match service.as_ref().and_then(|kid| keys.get(kid)) {
        Some(ServiceKey::Rsa(n, e)) => {
            token.algorithm() == Some("RS256") && {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, token.signed.as_bytes(), &token.signature).is_ok()
            }
        }
        Some(ServiceKey::P384(key)) => token.is_by(key),
        // A token of somebody's service, by an algorithm that no own key has.
        None if token.algorithm() != Some("ES384") => return Err(IdentityError::UnknownIssuer),
        None => token.is_by(&key),
    };
    if !authentic {
        return Err(NotAuthentic("token"));
    }
    let at = |name: &str| claims.get(name).and_then(Value::as_u64);
    let early = ["nbf", "iat"].iter().filter_map(|name| at(name)).any(|from| from > now.saturating_add(SKEW));
    if early || at("exp").is_some_and(|until| until.saturating_add(SKEW) < now) {
        return Err(IdentityError::Time);
    }
    let detached = text("fingerprints")?;
    let (header, signature) = detached.split_once("..").ok_or(Malformed("fingerprints"))?;
    let whole = format!("{header}.{}.{signature}", BASE64URL_NOPAD.encode(canonical(description)?.as_bytes()));
    if !Compact::parse(&whole, "fingerprints")?.is_by(&key) {
        return Err(NotAuthentic("signature over the fingerprints"));
    }
    Ok(Identity { key, service, domain: domain.to_owned(), claims })
}

/// A JWS in compact form (RFC 7515, section 7.1).
struct Compact {
    header: Map<String, Value>,
    payload: Vec<u8>,
    signed: String,
    signature: Vec<u8>,
}

impl Compact {
    fn parse(text: &str, what: &'static str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::Malformed(what);
        let (signed, signature) = text.rsplit_once('.').ok_or_else(bad)?;
        let (header, payload) = signed.split_once('.').ok_or_else(bad)?;
        let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| bad());
        let header = object(&decode(header)?).ok_or_else(bad)?;
        // A header that must be understood and is not (RFC 7515, section 4.1.11).
        if header.contains_key("crit") {
            return Err(bad());
        }
        Ok(Self { header, payload: decode(payload)?, signed: signed.to_owned(), signature: decode(signature)? })
    }

    fn algorithm(&self) -> Option<&str> {
        self.header.get("alg").and_then(Value::as_str)
    }

    /// Whether this P-384 key made it. The algorithm is the key's, never one that the text asks for.
    fn is_by(&self, key: &Point) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key);
        self.algorithm() == Some("ES384") && key.verify(self.signed.as_bytes(), &self.signature).is_ok()
    }
}

fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    codec::object(bytes).ok()
}

fn spki(point: &Point) -> Vec<u8> {
    [&SPKI[..], point].concat()
}

/// The key in a `cpk` claim: base64 of its DER form, or a JWK.
fn public_key(claim: &Value) -> Option<Box<Point>> {
    if let Some(text) = claim.as_str() {
        let der = BASE64.decode(text.as_bytes()).or_else(|_| BASE64URL_NOPAD.decode(text.as_bytes())).ok()?;
        let point: Point = der.strip_prefix(&SPKI)?.try_into().ok()?;
        return (point.first() == Some(&4)).then(|| Box::new(point));
    }
    let part = |key: &str| claim.get(key).and_then(Value::as_str);
    if part("kty") != Some("EC") || part("crv") != Some("P-384") {
        return None;
    }
    let number = |key: &str| BASE64URL_NOPAD.decode(part(key)?.as_bytes()).ok().filter(|bytes| bytes.len() == 48);
    [&[4][..], &number("x")?, &number("y")?].concat().try_into().ok().map(Box::new)
}

/// What the JWS is made over: every fingerprint line in order, keys sorted, no white space.
fn canonical(description: &str) -> Result<String, IdentityError> {
    let mut list = Vec::new();
    for line in description.lines() {
        let Some(rest) = line.trim_end().strip_prefix("a=fingerprint:") else { continue };
        let (algorithm, digest) = rest.split_once(' ').ok_or(IdentityError::Malformed("fingerprint line"))?;
        if list.len() >= LINES_MAX {
            return Err(IdentityError::Malformed("fingerprint line"));
        }
        list.push(format!(r#"{{"algorithm":{},"digest":{}}}"#, json!(algorithm), json!(digest.trim())));
    }
    if list.is_empty() {
        return Err(IdentityError::Malformed("fingerprint line"));
    }
    Ok(format!(r#"{{"fingerprint":[{}]}}"#, list.join(",")))
}

/// The value of the `a=identity` line of a description.
#[must_use]
pub fn value(description: &str) -> Option<&str> {
    description.lines().find_map(|line| line.strip_prefix("a=identity:")).map(str::trim)
}

/// The description with this value: at session level, before the first medium.
#[must_use]
pub fn with_value(description: &str, value: &str) -> String {
    let plain = without_value(description);
    let at = plain.find("\nm=").map_or(plain.len(), |at| at + 1);
    let (head, tail) = plain.split_at(at);
    format!("{head}a=identity:{value}\r\n{tail}")
}

/// The description without it, as an engine wants it.
#[must_use]
pub fn without_value(description: &str) -> String {
    description.split_inclusive('\n').filter(|line| !line.starts_with("a=identity:")).collect()
}

/// Keys that hosts were first seen with, by address. At most [`PINS_MAX`](Self::PINS_MAX).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    pins: BTreeMap<String, [u8; 32]>,
}

/// What a pin store says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// Nobody was seen there before; ask the player, then [`Pins::keep`].
    New,
    /// The same as before.
    Same,
    /// Another than before: somebody else answers, or the operator changed the key.
    Changed,
}

impl Pins {
    /// Most pins that are kept.
    pub const PINS_MAX: usize = 4_096;

    /// What is known of a host.
    #[must_use]
    pub fn look(&self, host: &str, pin: &[u8; 32]) -> Pinned {
        match self.pins.get(host) {
            None => Pinned::New,
            Some(known) if known == pin => Pinned::Same,
            Some(_) => Pinned::Changed,
        }
    }

    /// Keeps a host's key. False when the store is full.
    pub fn keep(&mut self, host: &str, pin: [u8; 32]) -> bool {
        let room = self.pins.len() < Self::PINS_MAX || self.pins.contains_key(host);
        if room {
            self.pins.insert(host.to_owned(), pin);
        }
        room
    }

    /// Every pin, for whoever writes them down.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8; 32])> {
        self.pins.iter().map(|(host, pin)| (host.as_str(), pin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

    const SDP: &str =
        "v=0\r\ns=-\r\na=fingerprint:sha-256 AA:BB\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:0\r\n";
    const NOW: u64 = 1_800_000_000;

    struct Keys(EcdsaKeyPair);

    impl Keys {
        fn new() -> Self {
            let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
            Self(EcdsaKeyPair::generate(algorithm).unwrap())
        }
    }

    impl Signer for Keys {
        fn public_key(&self) -> Point {
            self.0.public_key().as_ref().try_into().unwrap()
        }

        fn sign(&self, message: &[u8]) -> Option<[u8; 96]> {
            self.0.sign(&SystemRandom::new(), message).unwrap().as_ref().try_into().ok()
        }
    }

    fn claims() -> Claims {
        Claims { domain: "example.net".into(), now: NOW, lifetime: 60, other: Map::new() }
    }

    #[test]
    fn an_assertion_holds_for_its_description_and_no_other() {
        let keys = Keys::new();
        let value = assert(&keys, &claims(), SDP).unwrap();
        let identity = verify(&value, SDP, NOW, &ServiceKeys::new()).unwrap();
        assert_eq!((*identity.key, identity.domain.as_str()), (keys.public_key(), "example.net"));
        assert_eq!(identity.service, None);
        let other = SDP.replace("AA:BB", "AA:BC");
        let refused = verify(&value, &other, NOW, &ServiceKeys::new());
        assert_eq!(refused, Err(IdentityError::NotAuthentic("signature over the fingerprints")));
        let more = SDP.replace("m=", "a=fingerprint:sha-512 CC\r\nm=");
        assert!(verify(&value, &more, NOW, &ServiceKeys::new()).is_err(), "every line counts");
    }

    #[test]
    fn a_token_has_its_time() {
        let value = assert(&Keys::new(), &claims(), SDP).unwrap();
        let at = |now| verify(&value, SDP, now, &ServiceKeys::new()).map(drop);
        assert_eq!(at(NOW + 120), Ok(()));
        assert_eq!(at(NOW + 121), Err(IdentityError::Time));
        assert_eq!(at(NOW - 61), Err(IdentityError::Time));
    }

    #[test]
    fn a_policy_decides_about_who_has_none() {
        let none = ServiceKeys::new();
        assert_eq!(check(Policy::Require, SDP, NOW, &none), Err(IdentityError::Missing));
        assert_eq!(check(Policy::Accept, SDP, NOW, &none), Ok(None));
        let bad = with_value(SDP, "AAAA");
        assert!(check(Policy::Accept, &bad, NOW, &none).is_err());
        assert_eq!(check(Policy::Ignore, &bad, NOW, &none), Ok(None));
    }

    #[test]
    fn a_service_vouches_by_its_own_key_alone() {
        let (service, player) = (Keys::new(), Keys::new());
        // A token as a service makes it: its own key id, somebody else's `cpk`.
        let payload = json!({"cpk": BASE64.encode(&spki(&player.public_key())), "xuid": "7", "exp": NOW + 9});
        let signed = format!(
            "{}.{}",
            BASE64URL_NOPAD.encode(br#"{"alg":"ES384","kid":"one"}"#),
            BASE64URL_NOPAD.encode(payload.to_string().as_bytes())
        );
        let token = format!("{signed}.{}", BASE64URL_NOPAD.encode(&service.sign(signed.as_bytes()).unwrap()));
        let own = assert(&player, &claims(), SDP).unwrap();
        let mut outer = object(&BASE64.decode(own.as_bytes()).unwrap()).unwrap();
        let mut inner = object(outer["assertion"].as_str().unwrap().as_bytes()).unwrap();
        inner.insert("token".into(), token.into());
        outer.insert("assertion".into(), Value::Object(inner).to_string().into());
        let value = BASE64.encode(Value::Object(outer).to_string().as_bytes());
        let key = |point| ServiceKeys::from([("one".to_owned(), ServiceKey::P384(Box::new(point)))]);
        let identity = verify(&value, SDP, NOW, &key(service.public_key())).unwrap();
        assert_eq!((identity.service.as_deref(), &identity.claims["xuid"]), (Some("one"), &json!("7")));
        let refused = Err(IdentityError::NotAuthentic("token"));
        assert_eq!(verify(&value, SDP, NOW, &key(player.public_key())), refused);
        assert_eq!(verify(&value, SDP, NOW, &ServiceKeys::new()), refused, "it is not the player's own");
    }

    #[test]
    fn every_cut_and_every_flipped_bit_of_a_value_is_refused() {
        let value = assert(&Keys::new(), &claims(), SDP).unwrap();
        let none = ServiceKeys::new();
        for end in 0..value.len() {
            assert!(verify(&value[..end], SDP, NOW, &none).is_err(), "cut to {end}");
        }
        let plain = BASE64.decode(value.as_bytes()).unwrap();
        for byte in 0..plain.len() {
            let mut bent = plain.clone();
            bent[byte] ^= 1;
            let held = verify(&BASE64.encode(&bent), SDP, NOW, &none);
            // The names of the provider are not signed; the protocol is not looked at.
            let free = held.as_ref().is_ok_and(|identity| identity.claims["cpk"].is_string());
            assert!(held.is_err() || free && byte > plain.len() - 60, "byte {byte}");
        }
        assert!(verify(&"A".repeat(IDENTITY_MAX + 4), SDP, NOW, &none).is_err());
    }

    #[test]
    fn a_key_may_be_a_jwk() {
        let point = Keys::new().public_key();
        let part = |from: usize| BASE64URL_NOPAD.encode(&point[from..from + 48]);
        let jwk = json!({"kty": "EC", "crv": "P-384", "x": part(1), "y": part(49)});
        assert_eq!(public_key(&jwk).as_deref(), Some(&point));
        assert_eq!(public_key(&json!({"kty": "EC", "crv": "P-256", "x": part(1), "y": part(49)})), None);
    }

    #[test]
    fn the_value_stands_at_session_level_and_is_taken_out_again() {
        let with = with_value(SDP, "QQ==");
        assert_eq!(value(&with), Some("QQ=="));
        assert!(with.find("a=identity").unwrap() < with.find("m=").unwrap());
        assert!(with.find("a=identity").unwrap() > with.find("a=fingerprint").unwrap());
        assert_eq!(without_value(&with), SDP);
        assert_eq!(value(&with_value(&with, "Qg==")), Some("Qg=="));
    }

    #[test]
    fn a_host_is_known_by_the_key_it_was_first_seen_with() {
        let mut pins = Pins::default();
        assert_eq!(pins.look("a:1", &[1; 32]), Pinned::New);
        assert!(pins.keep("a:1", [1; 32]));
        assert_eq!(pins.look("a:1", &[1; 32]), Pinned::Same);
        assert_eq!(pins.look("a:1", &[2; 32]), Pinned::Changed);
        let kept = (0..5_000).filter(|n| pins.keep(&n.to_string(), [0; 32])).count();
        assert_eq!(kept, Pins::PINS_MAX - 1);
    }
}
