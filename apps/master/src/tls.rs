//! The certificate, which may be renewed while the master runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::lock;

/// A certificate and where it came from.
#[derive(Clone)]
pub(crate) struct Reload {
    cert: PathBuf,
    key: PathBuf,
    acceptor: Arc<Mutex<TlsAcceptor>>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reload({})", self.cert.display())
    }
}

impl Reload {
    pub(crate) fn open(cert: &Path, key: &Path) -> Result<Self, String> {
        let acceptor = Arc::new(Mutex::new(read(cert, key)?));
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), acceptor })
    }

    /// Reads the files again; the old certificate stays when they cannot be used.
    pub(crate) fn again(&self) -> Result<(), String> {
        *lock(&self.acceptor) = read(&self.cert, &self.key)?;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        lock(&self.acceptor).clone()
    }
}

fn read(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let named = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let chain = CertificateDer::pem_file_iter(cert).map_err(|error| named(cert, &error))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| named(cert, &error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| named(key, &error))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| named(cert, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
