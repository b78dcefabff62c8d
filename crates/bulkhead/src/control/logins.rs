//! The tokens that a person has kept with `bulkhead login`: one file of theirs, readable by nobody else.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::remote;
use crate::{environment, failure::Misuse};

const FILE: &str = "bulkhead/servers.json";

/// Server → token.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    file: PathBuf,
    servers: BTreeMap<String, SecretString>,
}

/// The file's shape. It is written by this program only, and read only where nobody else could have written it.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    servers: BTreeMap<String, String>,
}

impl Logins {
    pub(crate) fn open() -> Result<Self> {
        let dir = environment::xdg("XDG_CONFIG_HOME", ".config").ok_or_else(|| {
            Misuse::usage_hint(
                "this account has no home directory",
                "set BULKHEAD_TOKEN, or use --token-file",
            )
        })?;
        Self::read(&dir.join(FILE))
    }

    fn read(file: &Path) -> Result<Self> {
        let mut logins = Self {
            file: file.to_owned(),
            servers: BTreeMap::new(),
        };
        let mode = match fs::metadata(file) {
            Ok(found) => found.permissions().mode(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(logins),
            Err(error) => Err(error).with_context(|| format!("looking at {}", file.display()))?,
        };
        if mode & 0o077 != 0 {
            return Err(Misuse::usage_hint(
                format!("{} can be read by others", file.display()),
                format!(
                    "chmod 600 {0}, and replace its tokens if others may have seen them",
                    file.display()
                ),
            )
            .into());
        }
        let text = Zeroizing::new(
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?,
        );
        let kept: Kept = serde_json::from_str(&text).with_context(|| {
            format!(
                "reading {} (`bulkhead login` makes it anew where it is removed)",
                file.display()
            )
        })?;
        logins.servers = kept
            .servers
            .into_iter()
            .map(|(server, token)| (server, token.into()))
            .collect();
        Ok(logins)
    }

    pub(crate) fn token(&self, server: &str) -> Result<Option<SecretString>> {
        Ok(self.servers.get(&key(server)?).cloned())
    }

    pub(crate) fn keep(&mut self, server: &str, token: SecretString) -> Result<()> {
        self.servers.insert(key(server)?, token);
        self.write()
    }

    /// Whether there was one.
    pub(crate) fn forget(&mut self, server: &str) -> Result<bool> {
        let had = self.servers.remove(&key(server)?).is_some();
        if had {
            self.write()?;
        }
        Ok(had)
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Whole or not at all: a new file takes the old one's place.
    fn write(&self) -> Result<()> {
        let dir = self
            .file
            .parent()
            .context("finding the directory of the logins")?;
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let kept = Kept {
            servers: self
                .servers
                .iter()
                .map(|(server, token)| (server.clone(), token.expose_secret().to_owned()))
                .collect(),
        };
        let text = Zeroizing::new(serde_json::to_vec_pretty(&kept)?);
        // Made with 0600 from the first moment on.
        let mut file = tempfile::NamedTempFile::new_in(dir)
            .with_context(|| format!("making a file in {}", dir.display()))?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(&self.file)
            .with_context(|| format!("writing {}", self.file.display()))?;
        Ok(())
    }
}

/// One spelling for each server.
fn key(server: &str) -> Result<String> {
    Ok(remote::address(server)?.to_string())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn r18_a_kept_token_is_found_by_any_spelling_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep/servers.json");
        let mut logins = Logins::read(&file).unwrap();
        logins
            .keep("http://localhost:7070", "s3cret".into())
            .unwrap();
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let mut again = Logins::read(&file).unwrap();
        let found = again.token("http://127.0.0.1:7070/").unwrap().unwrap();
        assert_eq!(found.expose_secret(), "s3cret");
        assert!(again.token("https://127.0.0.1:7070").unwrap().is_none());
        assert!(again.forget("http://127.0.0.1:7070").unwrap());
        assert!(!again.forget("http://127.0.0.1:7070").unwrap());
        assert!(Logins::read(&file).unwrap().servers.is_empty());
    }

    #[test]
    fn r18_a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("servers.json");
        fs::write(&file, "{\"servers\":{}}").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            Logins::read(&file)
                .unwrap_err()
                .to_string()
                .contains("others")
        );
    }
}
