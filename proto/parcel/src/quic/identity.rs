//! Who is at the other end of a connection: a raw public key (RFC 7250) that the sealed channel named, and nobody else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme};
use thiserror::Error;

use super::steady::SteadyConfig;

/// What every Ed25519 key begins with as a SubjectPublicKeyInfo (RFC 8410, section 4).
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The library under a connection would not be set up: a fault of this program, not of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("QUIC cannot be set up: {0}")]
pub struct SetupError(String);

impl SetupError {
    pub(crate) fn of(error: &impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

fn setup(error: impl fmt::Display) -> SetupError {
    SetupError(error.to_string())
}

/// The key of one end of one transfer, drawn from a seed of its own.
pub struct Identity {
    public: [u8; 32],
    pkcs8: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", codec::hex(&self.public))
    }
}

impl Identity {
    /// The identity that belongs to a secret, fresh seed.
    ///
    /// # Errors
    /// [`SetupError`] when the library takes no key.
    pub fn new(seed: &[u8; 32]) -> Result<Self, SetupError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(setup)?;
        let public = pair.public_key().as_ref().try_into().map_err(setup)?;
        let pkcs8 = pair.to_pkcs8().map_err(setup)?.as_ref().to_vec();
        Ok(Self { public, pkcs8 })
    }

    /// What the other end is told through the sealed channel.
    #[must_use]
    pub const fn public(&self) -> [u8; 32] {
        self.public
    }

    fn certified(&self) -> Result<Arc<CertifiedKey>, SetupError> {
        let key = PrivatePkcs8KeyDer::from(self.pkcs8.clone());
        let signer = provider::sign::any_eddsa_type(&key).map_err(setup)?;
        let spki = [&SPKI_HEAD[..], &self.public].concat();
        Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], signer)))
    }

    /// The configuration of the end that is dialled by `peer`, and by nobody else.
    pub(crate) fn server(&self, peer: [u8; 32]) -> Result<ServerConfig, SetupError> {
        let provider = Arc::new(provider::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(setup)?
            .with_client_cert_verifier(Arc::new(Pinned { peer, provider }))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(self.certified()?)));
        tls.send_tls13_tickets = 0;
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(setup)?));
        config.transport_config(Arc::new(transport())).migration(false).max_incoming(1);
        Ok(config)
    }

    /// The configuration of the end that dials `peer`, and nobody else.
    pub(crate) fn client(&self, peer: [u8; 32]) -> Result<ClientConfig, SetupError> {
        let provider = Arc::new(provider::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(setup)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { peer, provider }))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(self.certified()?)));
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(setup)?));
        config.transport_config(Arc::new(transport()));
        Ok(config)
    }
}

/// Windows for 200 Mbit/s over 300 ms.
fn transport() -> TransportConfig {
    const WINDOW: u32 = 8 << 20;
    let mut mtu = MtuDiscoveryConfig::default();
    // Ethernet less IPv6, UDP and the five bytes of a packet of ours.
    mtu.upper_bound(1447);
    let mut config = TransportConfig::default();
    config
        .congestion_controller_factory(Arc::new(SteadyConfig))
        // A lost first packet is repeated after three of these.
        .initial_rtt(Duration::from_millis(100))
        .initial_mtu(1200)
        .min_mtu(1200)
        .mtu_discovery_config(Some(mtu))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW * 2))
        .send_window(u64::from(WINDOW))
        .max_concurrent_bidi_streams(VarInt::from_u32(16))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .keep_alive_interval(Some(Duration::from_secs(5)))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(20_000))));
    config
}

/// Takes the one key the sealed channel named.
#[derive(Debug)]
struct Pinned {
    peer: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        let right = key.strip_prefix(&SPKI_HEAD).is_some_and(|key| key == self.peer);
        if right { Ok(()) } else { Err(Error::General("another key than the sealed channel named".to_owned())) }
    }

    fn signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
