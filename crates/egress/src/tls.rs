//! TLS to the outside: aws-lc-rs, the system's authorities and the operator's own. Nothing turns
//! verification off.

use std::{fmt, io, net::IpAddr, path::Path, sync::Arc};

use bulkhead_model::network::Host;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::TlsConnector;

use crate::stream::Link;

/// Where distributions keep their bundle of authorities, most common first.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Whom to trust, read once and shared by all connections.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "reading the operator's extra certificate authorities; expected PEM with CERTIFICATE blocks"
    )]
    ExtraPem(#[source] rustls_pki_types::pem::Error),
    #[error("the operator's extra certificate authorities hold no CERTIFICATE block")]
    NoExtra,
    #[error("a certificate authority cannot be used")]
    BadAuthority(#[source] rustls::Error),
    #[error("setting up TLS")]
    Setup(#[source] rustls::Error),
}

impl Tls {
    /// Trusts the system's authorities.
    pub fn system() -> Result<Self, TlsError> {
        Self::with_extra(None)
    }

    /// Trusts the system's authorities and those in `extra_pem`. A system without any is no error: then
    /// only the extra ones count.
    pub fn with_extra(extra_pem: Option<&[u8]>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(system_roots());
        for certificate in extra_pem.map(read_pem).transpose()?.unwrap_or_default() {
            roots.add(certificate).map_err(TlsError::BadAuthority)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// The same trust for a client of another kind.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    /// Speaks TLS on a connection; the certificate must be for the very host that was checked.
    pub(crate) async fn connect(&self, link: Link, host: &Host) -> io::Result<Link> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
            Host::Ip(address) => ServerName::from(IpAddr::clone(address)),
        };
        let connector = TlsConnector::from(Arc::clone(&self.0));
        let stream = connector.connect(name, link).await?;
        Ok(Link::Tls(Box::new(stream)))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

fn read_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(TlsError::ExtraPem)?;
    match certificates.is_empty() {
        true => Err(TlsError::NoExtra),
        false => Ok(certificates),
    }
}

/// By known paths, so that no variable of the environment chooses whom we trust; where there are none
/// (macOS), by the system's own store.
fn system_roots() -> Vec<CertificateDer<'static>> {
    let bundle = BUNDLES.iter().map(Path::new).find(|path| path.is_file());
    match bundle {
        Some(path) => rustls_native_certs::load_certs_from_paths(Some(path), None).certs,
        None if cfg!(target_os = "macos") => rustls_native_certs::load_native_certs().certs,
        None => Vec::new(),
    }
}
