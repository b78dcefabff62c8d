//! How a process that holds the data directory tells the others of this user where it answers: its address in the
//! file `address`, beside the token; both are for this user alone.

use std::{
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use secrecy::SecretString;

/// Removes the address when the process no longer answers there.
pub(crate) struct Published(PathBuf);

impl Published {
    pub(crate) fn write(data_dir: &Path, address: SocketAddr) -> Result<Self> {
        let path = data_dir.join("address");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("writing {}", path.display()))?;
        writeln!(file, "http://{address}")
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The address and the token that another process has left.
pub(crate) fn read(data_dir: &Path) -> Option<(String, SecretString)> {
    let line = |name: &str| {
        let text = std::fs::read_to_string(data_dir.join(name)).ok()?;
        text.lines()
            .next()
            .map(str::to_owned)
            .filter(|line| !line.is_empty())
    };
    Some((line("address")?, line("token")?.into()))
}
