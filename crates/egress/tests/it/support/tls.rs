//! A certificate authority of our own, made anew for each test by the `openssl` command.

use std::{path::Path, process::Command, sync::Arc};

use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

pub(crate) struct TestCa {
    dir: tempfile::TempDir,
}

impl TestCa {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        openssl(
            dir.path(),
            &[
                "-keyout",
                "ca.key",
                "-out",
                "ca.pem",
                "-subj",
                "/CN=test authority",
                "-addext",
                "basicConstraints=critical,CA:TRUE",
            ],
        );
        Self { dir }
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("ca.pem")).unwrap()
    }

    /// A server's configuration with a certificate for these names, such as `DNS:good.test,IP:127.0.0.1`.
    pub(crate) fn server(&self, names: &str) -> Arc<ServerConfig> {
        let dir = self.dir.path();
        let alternative = format!("subjectAltName={names}");
        openssl(
            dir,
            &[
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-keyout",
                "leaf.key",
                "-out",
                "leaf.pem",
                "-subj",
                "/CN=test server",
                "-addext",
                &alternative,
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ],
        );
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

fn openssl(dir: &Path, arguments: &[&str]) {
    let new = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ];
    let output = Command::new("openssl")
        .args(new)
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
