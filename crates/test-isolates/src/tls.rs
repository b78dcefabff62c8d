//! A certificate authority of the test's own, made by the `openssl` command.

use std::{path::Path, process::Command, sync::Arc};

use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

const EC: [&str; 5] = [
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
];

pub struct TestCa {
    dir: tempfile::TempDir,
}

/// Whether a certificate is good today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Today,
    UntilYesterday,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCa {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let words = "req -x509 -days 2 -keyout ca.key -out ca.pem -subj /CN=authority \
                     -addext basicConstraints=critical,CA:TRUE";
        openssl(dir.path(), words.split_whitespace().chain(EC));
        Self { dir }
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("ca.pem")).unwrap()
    }

    /// A server's configuration with a certificate for these names, such as `DNS:good.test`.
    pub fn server(&self, names: &str, validity: Validity) -> Arc<ServerConfig> {
        let dir = self.dir.path();
        let words = "req -keyout leaf.key -out leaf.csr -subj /CN=server";
        openssl(dir, words.split_whitespace().chain(EC));
        let extensions = format!("subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n");
        std::fs::write(dir.join("leaf.ext"), extensions).unwrap();
        let days = match validity {
            Validity::Today => "2",
            Validity::UntilYesterday => "-1",
        };
        let words = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile leaf.ext -out leaf.pem";
        openssl(dir, words.split_whitespace().chain(["-days", days]));
        let chain = vec![CertificateDer::from_pem_file(dir.join("leaf.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(dir.join("leaf.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }
}

fn openssl<'a>(dir: &Path, arguments: impl IntoIterator<Item = &'a str>) {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
